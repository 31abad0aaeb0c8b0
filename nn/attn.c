// attn.c - x + proj(attention(qkv(ln_1(x)))), the first half of a block.
//
// Tiled: one op that keeps its output and one number per row and head. Naive: the same from small
// ops, so that each saved tensor is visible; scores, scaled scores and probabilities share a
// buffer. Either is computed by another op while a text is generated from a cache.
#include "nn/block_int.h"

#include <math.h>

static struct tensor *naive(struct tape *t, struct gpt *g, int64_t layer, struct tensor *qkv)
{
    int64_t heads = g->config.heads;
    tape_enter(t, "core");
    tape_scope_cost(t, COST_ATTENTION);
    struct tensor *q = op_split_heads(t, qkv, heads, 0);
    struct tensor *k = op_split_heads(t, qkv, heads, 1);
    struct tensor *v = op_split_heads(t, qkv, heads, 2);
    struct tensor *s = op_matmul(t, q, k, true, false); // (B,H,T,T)
    s = op_scale(t, s, 1 / sqrt((double)(g->config.width / heads)));
    struct tensor *p = op_causal_softmax(t, s);
    double rate = block_dropout_rate(t, g);
    if (rate > 0)
        p = op_dropout(t, p, rate, block_dropout_key(g, layer, DROPOUT_PROBABILITIES));
    return tape_leave(t, op_merge_heads(t, op_matmul(t, p, v, false, true))); // (B,T,C)
}

static struct tensor *core(struct tape *t, struct gpt *g, int64_t layer, struct tensor *qkv)
{
    int64_t heads = g->config.heads;
    struct gpt_layer *l = &g->layer[layer];
    if (g->uses_cache)
        return op_cached_attention(t, qkv, &l->keys.tensor, &l->values.tensor, heads, g->cached);
    if (g->config.attention == GPT_ATTENTION_NAIVE)
        return naive(t, g, layer, qkv);
    return op_attention(t, qkv, heads, block_dropout_rate(t, g),
                        block_dropout_key(g, layer, DROPOUT_PROBABILITIES));
}

struct tensor *attn_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x)
{
    struct gpt_layer *l = &g->layer[layer];
    tape_enter(t, "attn");
    block_enter_pair(t, l->qkv_w);
    struct tensor *n = block_norm(t, "ln_1", x, l->ln1_w, l->ln1_b);
    struct tensor *qkv = block_linear(t, "c_attn", n, l->qkv_w, l->qkv_b,
                                      gpt_adapters(g, layer, GPT_QKV)); // (B,T,3C)
    qkv = block_leave_pair(t, l->qkv_w, qkv);
    struct tensor *a = core(t, g, layer, qkv);
    struct tensor *y =
        block_linear(t, "c_proj", a, l->proj_w, l->proj_b, gpt_adapters(g, layer, GPT_PROJ));
    y = block_dropout(t, g, y, layer, DROPOUT_ATTENTION);
    return tape_leave(t, op_add(t, x, y));
}
