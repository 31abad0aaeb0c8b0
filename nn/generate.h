// generate.h - text from a model, one token at a time.
//
// With a cache of keys and values, the prompt goes through the model once, and then each token
// alone; without one, the whole window does for each token. When the context is full, its older
// half is dropped and the rest, whose positions begin at 0 again, goes through the model anew: in
// both ways, so that they make the same text, rounding apart. Nothing grows with the tokens made.
#ifndef NN_GENERATE_H
#define NN_GENERATE_H

#include "nn/gpt.h"

struct generate_config {
    int64_t tokens;     // to make
    double temperature; // 0: the likeliest token
    int64_t top_k;      // only among the k likeliest; 0: all
    uint64_t seed;
    bool kv_cache;
};

bool generate_config_check(const struct generate_config *c, const struct gpt_config *model,
                           struct error *e);

struct generate {
    struct generate_config config;
    struct gpt *gpt;
    int64_t prompt_count;
    int32_t *window; // (context): the last `length` tokens
    int64_t length;
    int64_t cached;       // of them, those whose keys and values the cache has; 0 without a cache
    int64_t cache_tokens; // that there is room for; 0 without a cache
    int64_t made;
    real *logits; // (V) of the caller's, to be filled in by generate_next; NULL
};

// Places the window (category batch) and the cache (of as many tokens as can ever be in the window:
// prompt and text, at most the context). Ends with the tape in PHASE_GENERATE. The prompt has at
// least one token; its last `context` tokens count.
void generate_init(struct generate *s, struct tape *t, struct gpt *g,
                   const struct generate_config *c, int64_t prompt_count);
void generate_close(struct generate *s, struct tape *t);
void generate_prompt(struct generate *s, struct tape *t, const int32_t *prompt);

// The next token; 0 in a dry run.
int32_t generate_next(struct generate *s, struct tape *t);

// For a plan: of the passes that the run will make, one of each size that can matter.
void generate_longest(struct generate *s, struct tape *t);

#endif
