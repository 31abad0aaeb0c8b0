#include "nn/block_int.h"

#include "tape/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const attention_names[GPT_ATTENTION_COUNT] = {
    [GPT_ATTENTION_NAIVE] = "naive",
    [GPT_ATTENTION_TILED] = "tiled",
};

const char *gpt_attention_name(enum gpt_attention a)
{
    return attention_names[a];
}

#define OPENAI(name_, layers_, heads_, width_, context_, note_)                                    \
    {                                                                                              \
        .name = name_, .note = note_, .config = {                                                  \
            .layers = layers_,                                                                     \
            .heads = heads_,                                                                       \
            .width = width_,                                                                       \
            .context = context_,                                                                   \
            .vocab = 50257,                                                                        \
            .bias = true,                                                                          \
            .tie = true,                                                                           \
            .attention = GPT_ATTENTION_TILED                                                       \
        }                                                                                          \
    }

#define SMALL(name_, layers_, heads_, width_, context_)                                            \
    {                                                                                              \
        .name = name_, .config = {                                                                 \
            .layers = layers_,                                                                     \
            .heads = heads_,                                                                       \
            .width = width_,                                                                       \
            .context = context_,                                                                   \
            .bias = true,                                                                          \
            .tie = true,                                                                           \
            .attention = GPT_ATTENTION_TILED                                                       \
        }                                                                                          \
    }

const struct gpt_preset gpt_presets[] = {
    SMALL("tiny", 2, 2, 32, 32),
    SMALL("nano", 4, 4, 128, 64),
    SMALL("baby", 6, 6, 384, 256),
    // Radford et al. 2019
    OPENAI("gpt2", 12, 12, 768, 1024, NULL),
    OPENAI("gpt2-medium", 24, 16, 1024, 1024, NULL),
    OPENAI("gpt2-large", 36, 20, 1280, 1024, NULL),
    OPENAI("gpt2-xl", 48, 25, 1600, 1024, NULL),
    // Brown et al. 2020, table 2.1, every layer dense.
    OPENAI("gpt3-small", 12, 12, 768, 2048, NULL),
    OPENAI("gpt3-medium", 24, 16, 1024, 2048, NULL),
    OPENAI("gpt3-large", 24, 16, 1536, 2048, NULL),
    OPENAI("gpt3-xl", 24, 16, 2048, 2048,
           "the paper prints 24 heads, which do not divide 2048; 16 of 128 here"),
    OPENAI("gpt3-2.7b", 32, 32, 2560, 2048, NULL),
    OPENAI("gpt3-6.7b", 32, 32, 4096, 2048, NULL),
    OPENAI("gpt3-13b", 40, 40, 5120, 2048,
           "the paper prints width 5140, which 40 heads of 128 are not; 5120 here"),
    OPENAI("gpt3", 96, 96, 12288, 2048, NULL),
};
const int gpt_preset_count = COUNT_OF(gpt_presets);

static bool check_size(const char *name, int64_t value, int64_t most, struct error *e)
{
    if (value >= 1 && value <= most)
        return true;
    return refuse(e, "%s %lld: expected 1 to %lld", name, (long long)value, (long long)most);
}

// Past this even addresses run out (tape/arena.c), and products of sizes would near 2^63.
static bool check_bytes(const char *what, const char *try, double numbers, struct error *e)
{
    const double most = 0x1p45;
    double bytes = numbers * (double)sizeof(real);
    if (bytes <= most)
        return true;
    return refuse(e, "%s would take %.3g bytes: expected at most %.3g; try a smaller %s", what,
                  bytes, most, try);
}

static bool check_weights(const struct gpt_config *c, struct error *e)
{
    double width = (double)c->width;
    return check_bytes("the token embedding", "vocab or width", width * (double)c->vocab, e) &&
           check_bytes("the position embedding", "context or width", width * (double)c->context,
                       e) &&
           check_bytes("a layer's MLP weights", "width", 4 * width * width, e);
}

bool gpt_pass_check(const struct gpt_config *c, int64_t samples, int64_t total_samples,
                    int64_t length, int64_t predicted, struct error *e)
{
    double width = (double)c->width, time = (double)length, vocab = (double)c->vocab;
    double tokens = (double)samples * time, layers = (double)c->layers;
    bool naive = c->attention == GPT_ATTENTION_NAIVE;
    double scores = naive ? tokens * time * (double)c->heads : 0;
    if (!check_bytes("the hidden layer of an MLP", "micro-batch, seq or width", 4 * width * tokens,
                     e) ||
        !check_bytes("attention's scores", "micro-batch or seq", scores, e) ||
        !check_bytes("the logits", "micro-batch, seq or vocab, or --loss chunked",
                     c->chunked_loss ? 0 : (double)samples * (double)predicted * vocab, e))
        return false;
    double per_token = 2 * width * vocab + layers * (24 * width * width + 16 * width * time) +
                       100 * (layers * width + vocab) +
                       2 * (double)c->lora.rank * (18 * layers * width + width + vocab);
    double flops = 4.5 * per_token * (double)total_samples * time; // backward: below 2.5 forwards
    if (flops < 0x1p63)
        return true;
    return refuse(e, "about %.1g FLOPs: more than 64 bits count; try a smaller batch or seq",
                  flops);
}

bool gpt_config_check(const struct gpt_config *c, struct error *e)
{
    enum { LAYERS_MAX = 1000, SIZE_MAX_ = 1 << 24 };
    if (!check_size("layers", c->layers, LAYERS_MAX, e) ||
        !check_size("heads", c->heads, SIZE_MAX_, e) ||
        !check_size("width", c->width, SIZE_MAX_, e) ||
        !check_size("context", c->context, SIZE_MAX_, e) ||
        !check_size("vocab", c->vocab, SIZE_MAX_, e))
        return false;
    if (c->width % c->heads != 0)
        return refuse(e, "width %lld is not divisible by heads %lld: try --width %lld",
                      (long long)c->width, (long long)c->heads,
                      (long long)((c->width / c->heads + 1) * c->heads));
    if (!(c->dropout >= 0 && c->dropout < 1))
        return refuse(e, "dropout %g: expected at least 0 and below 1", c->dropout);
    if (c->chunked_loss && c->lora.rank > 0 && (c->lora.targets & LORA_HEAD))
        return refuse(e, "--loss chunked: adapters of the head need its logits whole: try --loss "
                         "plain, or --lora-targets without head");
    return check_weights(c, e) && lora_config_check(&c->lora, c->width, e);
}

int64_t gpt_segments(const struct gpt_config *c)
{
    return c->layers * (c->half_segments ? 2 : 1);
}

// ---- weights ---------------------------------------------------------------------------

static struct param *weight(struct gpt *g, struct tape *t, int64_t out, int64_t in,
                            double deviation, int64_t layer, const char *name)
{
    return param_add(&g->params, t, out, in, PARAM_NORMAL, deviation, "h.%lld.%s.weight",
                     (long long)layer, name);
}

static struct param *bias(struct gpt *g, struct tape *t, int64_t count, int64_t layer,
                          const char *name)
{
    if (!g->config.bias)
        return NULL;
    return param_add(&g->params, t, 0, count, PARAM_ZEROS, 0, "h.%lld.%s.bias", (long long)layer,
                     name);
}

static struct param *norm(struct gpt *g, struct tape *t, int64_t layer, const char *name)
{
    return param_add(&g->params, t, 0, g->config.width, PARAM_ONES, 0, "h.%lld.%s.weight",
                     (long long)layer, name);
}

// The branches' last linears start smaller: 2 L of them add up in the stream.
static void layer_init(struct gpt *g, struct tape *t, int64_t i)
{
    int64_t c = g->config.width;
    double small = 0.02 / sqrt(2 * (double)g->config.layers);
    struct gpt_layer *l = &g->layer[i];
    l->ln1_w = norm(g, t, i, "ln_1");
    l->ln1_b = bias(g, t, c, i, "ln_1");
    l->qkv_w = weight(g, t, 3 * c, c, 0.02, i, "attn.c_attn");
    l->qkv_b = bias(g, t, 3 * c, i, "attn.c_attn");
    l->proj_w = weight(g, t, c, c, small, i, "attn.c_proj");
    l->proj_b = bias(g, t, c, i, "attn.c_proj");
    l->ln2_w = norm(g, t, i, "ln_2");
    l->ln2_b = bias(g, t, c, i, "ln_2");
    l->up_w = weight(g, t, 4 * c, c, 0.02, i, "mlp.c_fc");
    l->up_b = bias(g, t, 4 * c, i, "mlp.c_fc");
    l->down_w = weight(g, t, c, 4 * c, small, i, "mlp.c_proj");
    l->down_b = bias(g, t, c, i, "mlp.c_proj");
}

static int64_t params_per_layer(const struct gpt_config *c)
{
    return (c->bias ? 12 : 6) + lora_param_count(&c->lora, ~(unsigned)LORA_HEAD);
}

// ---- adapters --------------------------------------------------------------------------

const struct lora *gpt_adapters(const struct gpt *g, int64_t layer, enum gpt_linear linear)
{
    return g->lora != NULL ? &g->lora[layer * GPT_LINEARS + linear] : NULL;
}

const struct lora *gpt_head_adapters(const struct gpt *g)
{
    return g->lora != NULL ? &g->lora[g->config.layers * GPT_LINEARS] : NULL;
}

static void adapt_linear(struct gpt *g, struct tape *t, int64_t layer, enum gpt_linear linear)
{
    static const struct {
        enum lora_target target;
        const char *name;
        int out, in; // times the width
    } of[GPT_LINEARS] = {
        [GPT_QKV] = {LORA_QKV, "attn.c_attn", 3, 1},
        [GPT_PROJ] = {LORA_PROJ, "attn.c_proj", 1, 1},
        [GPT_FC] = {LORA_FC, "mlp.c_fc", 4, 1},
        [GPT_DOWN] = {LORA_DOWN, "mlp.c_proj", 1, 4},
    };
    const struct lora_config *c = &g->config.lora;
    struct lora *l = &g->lora[layer * GPT_LINEARS + linear];
    char stem[PARAM_NAME_BYTES];
    snprintf(stem, sizeof(stem), "h.%lld.%s", (long long)layer, of[linear].name);
    struct lora_linear w = {.stem = stem,
                            .out = of[linear].out * g->config.width,
                            .in = of[linear].in * g->config.width,
                            .target = of[linear].target,
                            .parts = 1};
    if (linear == GPT_QKV && !(c->targets & LORA_QKV)) {
        w.target = LORA_Q;
        w.parts = 3;
    }
    lora_add(l, t, &g->params, c, &w);
}

// At the end of the list, so that the base starts from the same values with adapters and without.
static void adapt(struct gpt *g, struct tape *t)
{
    const struct gpt_config *c = &g->config;
    if (c->lora.rank == 0)
        return;
    lora_freeze(&g->params, &c->lora);
    int64_t count = c->layers * GPT_LINEARS + 1;
    g->lora = arena_table(&t->arena, "gpt.lora", count, sizeof(struct lora));
    for (int64_t i = 0; i < count; i++)
        g->lora[i] = (struct lora){.count = 0};
    for (int64_t i = 0; i < c->layers; i++)
        for (int k = 0; k < GPT_LINEARS; k++)
            adapt_linear(g, t, i, (enum gpt_linear)k);
    lora_add(&g->lora[count - 1], t, &g->params, &c->lora,
             &(struct lora_linear){"lm_head", c->vocab, c->width, LORA_HEAD, 1});
}

void gpt_init(struct gpt *g, struct tape *t, const struct gpt_config *c)
{
    struct error e;
    CHECK(gpt_config_check(c, &e));
    *g = (struct gpt){.config = *c};
    params_open(&g->params, t,
                (int)(c->layers * params_per_layer(c) + 5 + lora_param_count(&c->lora, LORA_HEAD)));
    g->params.weights = c->weights;
    t->activation_dtype = precision_dtype(c->activations);
    g->layer = arena_table(&t->arena, "gpt.layers", c->layers, sizeof(struct gpt_layer));
    struct param_list *p = &g->params;
    g->wte = param_add(p, t, c->vocab, c->width, PARAM_NORMAL, 0.02, "wte.weight");
    g->wpe = param_add(p, t, c->context, c->width, PARAM_NORMAL, 0.02, "wpe.weight");
    for (int64_t i = 0; i < c->layers; i++)
        layer_init(g, t, i);
    g->lnf_w = param_add(p, t, 0, c->width, PARAM_ONES, 0, "ln_f.weight");
    if (c->bias)
        g->lnf_b = param_add(p, t, 0, c->width, PARAM_ZEROS, 0, "ln_f.bias");
    g->head =
        c->tie ? g->wte : param_add(p, t, c->vocab, c->width, PARAM_NORMAL, 0.02, "lm_head.weight");
    g->token_table = &g->wte->tensor;
    adapt(g, t);
}

// ---- keys and values -------------------------------------------------------------------

static void place_cache(struct gpt_cache *c, struct gpt *g, struct tape *t, int64_t tokens,
                        int64_t layer, const char *what)
{
    snprintf(c->name, sizeof(c->name), "h.%lld.attn.%s", (long long)layer, what);
    tensor_place(&c->tensor, &t->arena, c->name, LEDGER_KV_CACHE, t->activation_dtype, 2,
                 (int64_t[]){tokens, g->config.width});
    if (!tape_is_dry(t)) // whoever looks for a NaN finds none where no token has been yet
        memset(c->tensor.data, 0, (size_t)tensor_bytes(&c->tensor));
}

void gpt_cache_place(struct gpt *g, struct tape *t, int64_t tokens)
{
    for (int64_t i = 0; i < g->config.layers; i++) {
        place_cache(&g->layer[i].keys, g, t, tokens, i, "keys");
        place_cache(&g->layer[i].values, g, t, tokens, i, "values");
    }
}

void gpt_cache_give(struct gpt *g, struct tape *t)
{
    for (int64_t i = g->config.layers - 1; i >= 0; i--) {
        arena_give(&t->arena, g->layer[i].values.tensor.data);
        arena_give(&t->arena, g->layer[i].keys.tensor.data);
    }
}

// ---- forward ---------------------------------------------------------------------------

struct tensor *gpt_hidden(struct tape *t, struct gpt *g, const int32_t *ids, const int32_t *slots,
                          int64_t samples, int64_t length)
{
    int64_t first = g->uses_cache ? g->cached : 0;
    CHECK(first + length <= g->config.context);
    struct tensor *x =
        op_embedding_at(t, g->token_table, &g->wpe->tensor, ids, slots, samples, length, first);
    x = block_dropout(t, g, x, -1, DROPOUT_EMBEDDING);
    for (int64_t i = 0; i < g->config.layers; i++)
        x = block_forward(t, g, i, x);
    return x;
}

struct tensor *gpt_logits(struct tape *t, struct gpt *g, struct tensor *hidden)
{
    struct tensor *n = block_norm(t, "ln_f", hidden, g->lnf_w, g->lnf_b);
    return block_linear(t, "lm_head", n, g->head, NULL, gpt_head_adapters(g));
}

struct tensor *gpt_loss(struct tape *t, struct gpt *g, const int32_t *ids, const int32_t *targets,
                        const int32_t *slots, int64_t samples, int64_t length)
{
    struct tensor *x = gpt_hidden(t, g, ids, slots, samples, length);
    tape_enter(t, "head");
    if (!g->config.chunked_loss)
        return tape_leave(t, op_cross_entropy(t, gpt_logits(t, g, x), targets));
    struct tensor *n = block_norm(t, "ln_f", x, g->lnf_w, g->lnf_b);
    return tape_leave(t, op_linear_cross_entropy(t, n, &g->head->tensor, targets));
}
