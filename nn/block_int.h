// block_int.h - the parts of a block, each a scope on the tape.
#ifndef NN_BLOCK_INT_H
#define NN_BLOCK_INT_H

#include "nn/gpt.h"

// Where a dropout stands in the model; with the layer it makes the op's own stream of numbers.
enum dropout_place { DROPOUT_EMBEDDING, DROPOUT_PROBABILITIES, DROPOUT_ATTENTION, DROPOUT_MLP };

// x, or x with dropout if the model has any and this is training.
struct tensor *block_dropout(struct tape *t, const struct gpt *g, struct tensor *x, int64_t layer,
                             enum dropout_place place);
uint64_t block_dropout_key(const struct gpt *g, int64_t layer, enum dropout_place place);
double block_dropout_rate(const struct tape *t, const struct gpt *g); // 0 in evaluation

// The node is called `name`, as in "h.0.mlp.c_fc". adapters: its own, or NULL.
struct tensor *block_linear(struct tape *t, const char *name, struct tensor *x, struct param *w,
                            struct param *b, const struct lora *adapters);
struct tensor *block_norm(struct tape *t, const char *name, struct tensor *x, struct param *w,
                          struct param *b);
// The node remembers who called these, not the line in block.c.
#define block_linear(t, ...) (block_linear)(OPS_HERE(t), __VA_ARGS__)
#define block_norm(t, ...) (block_norm)(OPS_HERE(t), __VA_ARGS__)

// Around a norm and the linear that reads it. If that linear's weights are frozen nobody may want
// the norm's output again: it then goes, and the linear's slides into its place, before anything
// else lies on it.
void block_enter_pair(struct tape *t, const struct param *w);
struct tensor *block_leave_pair(struct tape *t, const struct param *w, struct tensor *y);

struct tensor *attn_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x);
struct tensor *mlp_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x);
struct tensor *block_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x);

#endif
