// merge.h - a model with adapters as a plain one: each W becomes W + alpha / r B A.
#ifndef NN_MERGE_H
#define NN_MERGE_H

#include "nn/gpt.h"

// What `from` is without adapters. A tied head that was adapted is a matrix of its own then: the
// token embedding stays as it was.
struct gpt_config merge_config(const struct gpt_config *from);

// Fills in the weights of `to`, a model of merge_config.
void merge_weights(struct gpt *to, const struct gpt *from);

#endif
