// optimizer.h - from gradients to new weights, once per effective batch.
//
// g: the gradient, clipped; lr: the schedule's rate; t: the step, from 1; wd: weight decay, of
// matrices and embeddings, not of biases and norms. In every kind it is decoupled from the gradient
// (Loshchilov and Hutter 2019): w = (1 - lr wd) w - the update. State in bytes per weight:
//
//   kind       bytes  update
//   sgd        0      lr g
//   momentum   4      m = b1 m + g; lr m. PyTorch's SGD with momentum, without dampening
//   adamw      8      m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//                     lr m^ / (sqrt(v^) + eps) with m^ = m / (1 - b1^t), v^ = v / (1 - b2^t)
//   adamw8bit  2.03   the same with m and v as one byte each (tape/cpu/code8.h) and an absmax each
//                     for a block of 256 (Dettmers et al. 2021, arXiv 2110.02861; bitsandbytes).
//                     Decoded, moved by g, and encoded again after the update, which sees them as
//                     they are in between; decay comes after the update. Tensors of fewer than 4096
//                     weights have adamw's state and update. A gradient without a finite square
//                     leaves its weight, and clears its m and v
//   lion       4      lr sign(b1 m + (1 - b1) g); then m = b2 m + (1 - b2) g. Chen et al. 2023,
//                     arXiv 2302.06675
//   adafactor  about 0  Shazeer and Stern 2018, arXiv 1804.04235, without momentum, as
//                     torch.optim.Adafactor defines it. Of a matrix of R rows and C columns:
//                     row = b row + (1 - b) mean of g^2 over a row, col likewise, 1 - b = t^-0.8;
//                     v = row col / max(mean of row, eps1); of a vector v = b v + (1 - b) g^2;
//                     u = g / sqrt(max(v, eps1^2)); a u / max(1, rms(u)) with
//                     a = max(0.001, rms(w)) min(lr, 1 / sqrt(t)), w before decay, eps1 = 2^-23
//
// Weights stored as bf16 have a master: the same weights as reals, which is what is updated and
// then rounded into them. 1 - 0.001 in bf16 is 1: without a master small updates are lost.
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/param.h"

enum optimizer_kind {
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADAMW8BIT,
    OPTIMIZER_LION,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_COUNT,
};

enum { OPTIMIZER_SMALL = 4096 }; // weights of a tensor, from which on adamw8bit's state is codes

const char *optimizer_name(enum optimizer_kind k); // "sgd", "adamw"
bool optimizer_find(const char *name, enum optimizer_kind *k);

struct optimizer_config {
    enum optimizer_kind kind;
    double weight_decay;
    double beta1, beta2, eps; // beta1: momentum's, too
    double clip;              // largest norm of all gradients together; 0: no limit
    bool no_master;           // for a test: updates the bf16 weights themselves
};

bool optimizer_check(const struct optimizer_config *c, struct error *e);

// Places masters and states at the low end: of params that have a gradient. States are zero,
// masters what the weights are.
void optimizer_init(const struct optimizer_config *c, struct param_list *params, struct tape *t);

// The norm of all gradients as one vector.
double optimizer_gradient_norm(const struct param_list *params);

// Step counts from 1. norm: as above, for clipping. A dry run makes the same scratch, and no more.
void optimizer_update(const struct optimizer_config *c, struct param_list *params, struct tape *t,
                      int64_t step, double rate, double norm);

// A door: an empty function for debuggers to break on. Called after each parameter's update; its
// gradient is still there.
void optimizer_break(const struct param *p, int64_t step);

#endif
