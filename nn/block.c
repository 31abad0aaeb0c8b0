// block.c - one layer: attention and MLP in a checkpoint segment, or in one each.
#include "nn/block_int.h"

#include "tape/rng.h"

double block_dropout_rate(const struct tape *t, const struct gpt *g)
{
    return t->eval ? 0 : g->config.dropout;
}

uint64_t block_dropout_key(const struct gpt *g, int64_t layer, enum dropout_place place)
{
    return rng_key(rng_key(g->dropout_key, (uint64_t)layer), place);
}

struct tensor *block_dropout(struct tape *t, const struct gpt *g, struct tensor *x, int64_t layer,
                             enum dropout_place place)
{
    double rate = block_dropout_rate(t, g);
    return rate > 0 ? op_dropout(t, x, rate, block_dropout_key(g, layer, place)) : x;
}

struct tensor *(block_linear)(struct tape *t, const char *name, struct tensor *x, struct param *w,
                              struct param *b, const struct lora *adapters)
{
    tape_name(t, name);
    struct tensor *y = (op_linear)(t, x, &w->tensor, b != NULL ? &b->tensor : NULL);
    return lora_forward(t, adapters, name, x, y);
}

struct tensor *(block_norm)(struct tape *t, const char *name, struct tensor *x, struct param *w,
                            struct param *b)
{
    tape_name(t, name);
    return (op_layernorm)(t, x, &w->tensor, b != NULL ? &b->tensor : NULL);
}

void block_enter_pair(struct tape *t, const struct param *w)
{
    if (w->is_frozen)
        tape_enter(t, "%s", "");
}

struct tensor *block_leave_pair(struct tape *t, const struct param *w, struct tensor *y)
{
    return w->is_frozen ? tape_leave(t, y) : y;
}

static enum tape_policy policy_of(const struct gpt *g, int64_t segment)
{
    const struct gpt_config *c = &g->config;
    return c->policies != NULL ? (enum tape_policy)c->policies[segment] : c->checkpoint;
}

struct tensor *block_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x)
{
    long long i = (long long)layer;
    if (!g->config.half_segments) {
        tape_segment_begin(t, policy_of(g, layer), x, "h.%lld", i);
        return tape_segment_end(t, mlp_forward(t, g, layer, attn_forward(t, g, layer, x)));
    }
    tape_segment_begin(t, policy_of(g, 2 * layer), x, "h.%lld", i);
    x = tape_segment_end(t, attn_forward(t, g, layer, x));
    tape_segment_begin(t, policy_of(g, 2 * layer + 1), x, "h.%lld", i);
    return tape_segment_end(t, mlp_forward(t, g, layer, x));
}
