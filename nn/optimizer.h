// optimizer.h - from gradients to new weights, once per effective batch.
//
// sgd    w = (1 - lr wd) w - lr g                                      no state
// adamw  Loshchilov and Hutter 2019: m, v moments with bias correction by the optimizer step
//        w = (1 - lr wd) w - lr m^ / (sqrt(v^) + eps)                  2 numbers per weight
// Weight decay (wd) applies to matrices and embeddings, not to biases and norms.
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/param.h"

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAMW, OPTIMIZER_COUNT };

const char *optimizer_name(enum optimizer_kind k); // "sgd", "adamw"

struct optimizer_config {
    enum optimizer_kind kind;
    double weight_decay;
    double beta1, beta2, eps; // adamw
    double clip;              // largest norm of all gradients together; 0: no limit
};

bool optimizer_check(const struct optimizer_config *c, struct error *e);

// Places the state at the low end, zeroed.
void optimizer_init(const struct optimizer_config *c, struct param_list *params, struct tape *t);

// The norm of all gradients as one vector.
double optimizer_gradient_norm(const struct param_list *params);

// Step counts from 1. norm: as above, for clipping.
void optimizer_update(const struct optimizer_config *c, struct param_list *params, int64_t step,
                      double rate, double norm);

// A door: an empty function for debuggers to break on. Called after each parameter's update; its
// gradient is still there.
void optimizer_break(const struct param *p, int64_t step);

#endif
