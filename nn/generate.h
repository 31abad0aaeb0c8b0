// generate.h - text from a model, one token at a time.
//
// The whole window goes through the model for each token; beyond the context the window slides.
#ifndef NN_GENERATE_H
#define NN_GENERATE_H

#include "nn/gpt.h"

struct generate_config {
    int64_t tokens;     // to make
    double temperature; // 0: the likeliest token
    int64_t top_k;      // only among the k likeliest; 0: all
    uint64_t seed;
};

bool generate_config_check(const struct generate_config *c, const struct gpt_config *model,
                           struct error *e);

struct generate {
    struct generate_config config;
    struct gpt *gpt;
    int32_t *window; // (context): the last `length` tokens
    int64_t length;
    int64_t made;
};

// Places the window (category batch). The prompt is copied; its last `context` tokens count. An
// empty prompt is not possible: give at least one token.
void generate_init(struct generate *s, struct tape *t, struct gpt *g,
                   const struct generate_config *c);
void generate_close(struct generate *s, struct tape *t);
void generate_prompt(struct generate *s, struct tape *t, const int32_t *prompt, int64_t count);

// The next token; 0 in a dry run.
int32_t generate_next(struct generate *s, struct tape *t);

// For a plan: steps with the longest windows that the run will have.
void generate_longest(struct generate *s, struct tape *t, int64_t prompt_count);

#endif
