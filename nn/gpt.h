// gpt.h - GPT-2: token and position embedding, blocks on a residual stream, a head.
//
//   x = wte[ids] + wpe;   L times: x += attn(ln_1(x)), x += mlp(ln_2(x));   logits = ln_f(x) wte^T
//
// Radford et al. 2019: norms before each branch, learned positions, GELU in its tanh form. Shapes:
// B samples, T positions, C width, H heads, V vocabulary, L layers. Linears are stored (out, in).
// Parameters: V C + K C + L (12 C^2 + 13 C) + 2 C with biases and a tied head, K the context.
#ifndef NN_GPT_H
#define NN_GPT_H

#include "nn/lora.h"
#include "tape/ops/ops.h"

enum gpt_attention { GPT_ATTENTION_NAIVE, GPT_ATTENTION_TILED, GPT_ATTENTION_COUNT };

const char *gpt_attention_name(enum gpt_attention a); // "naive", "tiled"

struct gpt_config {
    int64_t layers, heads, width, context, vocab;
    bool bias;      // of linears and norms
    bool tie;       // the head is wte
    double dropout; // of embeddings, attention probabilities and both branches
    enum gpt_attention attention;
    enum tape_policy checkpoint;   // of every checkpoint segment ...
    const unsigned char *policies; // ... or one enum tape_policy for each; NULL: the one above
    bool half_segments;            // attention and MLP of a block are a segment each
    bool chunked_loss;             // the logits never exist whole: op_linear_cross_entropy
    enum precision weights;        // how they are stored ...
    enum precision activations;    // ... and what ops make, gradients of activations included
    struct lora_config lora;       // adapters; all else is then frozen
};

// Refuses what cannot be built: sizes below 1, width not divisible by heads, dropout outside [0,1).
bool gpt_config_check(const struct gpt_config *c, struct error *e);

// Refuses a forward with a tensor of more bytes than a plan can address, or more FLOPs (times
// `total_samples`, backward and recomputation included) than 64 bits count. FLOPs by an upper
// bound that nothing but this reads. predicted: how many of the `length` positions the head sees.
bool gpt_pass_check(const struct gpt_config *c, int64_t samples, int64_t total_samples,
                    int64_t length, int64_t predicted, struct error *e);

int64_t gpt_segments(const struct gpt_config *c); // how many checkpoint segments there are

struct gpt_cache { // of a layer's keys or values, (tokens, C): see gpt_cache_place
    struct tensor tensor;
    char name[PARAM_NAME_BYTES]; // "h.0.attn.keys"
};

struct gpt_layer {
    struct param *ln1_w, *ln1_b, *qkv_w, *qkv_b, *proj_w, *proj_b;
    struct param *ln2_w, *ln2_b, *up_w, *up_b, *down_w, *down_b; // biases NULL without
    struct gpt_cache keys, values;
};

enum gpt_linear { GPT_QKV, GPT_PROJ, GPT_FC, GPT_DOWN, GPT_LINEARS }; // of a layer

struct gpt {
    struct gpt_config config;
    struct param_list params;
    struct param *wte, *wpe, *lnf_w, *lnf_b, *head; // head: wte if tied
    struct gpt_layer *layer;
    struct lora *lora;          // of the linears, layer by layer, and of the head; NULL without
    struct tensor *token_table; // what the embedding reads: wte, or wte with a gradient of its own
    uint64_t dropout_key;       // of this optimizer step
    bool uses_cache;            // attention continues a text: one sample, in evaluation
    int64_t cached;             // positions of it whose keys and values the cache has
};

// Places the weights (no gradients, no values: params_start, params_add_grads, or a file).
void gpt_init(struct gpt *g, struct tape *t, const struct gpt_config *c);

// A cache of keys and values for a text of so many tokens: two tensors per layer at the low end, as
// activations are stored. 2 L C tokens numbers. It is read and written while g->uses_cache.
void gpt_cache_place(struct gpt *g, struct tape *t, int64_t tokens);
void gpt_cache_give(struct gpt *g, struct tape *t);

// Of a linear of the blocks, and of the head. NULL if the model has no adapters.
const struct lora *gpt_adapters(const struct gpt *g, int64_t layer, enum gpt_linear linear);
const struct lora *gpt_head_adapters(const struct gpt *g);

// One pass over ids (samples * length, row by row), up to but without the norm before the head:
// (B,T,C). slots: see op_embedding. With g->uses_cache the first id is at position g->cached.
struct tensor *gpt_hidden(struct tape *t, struct gpt *g, const int32_t *ids, const int32_t *slots,
                          int64_t samples, int64_t length);
struct tensor *gpt_logits(struct tape *t, struct gpt *g, struct tensor *hidden); // (B,T,V)

// The loss of each sample, summed over its counted targets: (B).
struct tensor *gpt_loss(struct tape *t, struct gpt *g, const int32_t *ids, const int32_t *targets,
                        const int32_t *slots, int64_t samples, int64_t length);

struct gpt_preset {
    const char *name;
    const char *note;         // where it is not what its paper prints; NULL
    struct gpt_config config; // vocab 0: the tokenizer's
};

extern const struct gpt_preset gpt_presets[];
extern const int gpt_preset_count;

#endif
