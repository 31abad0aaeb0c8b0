// update.h - loops over whole parameters, for what is not an op: initial values and updates.
//
// Element by element, so no bit depends on the thread count.
#ifndef TAPE_CPU_UPDATE_H
#define TAPE_CPU_UPDATE_H

#include "tape/array.h"

void update_fill(struct array x, int64_t n, real value);
void update_fill_normal(struct array x, int64_t n, uint64_t key,
                        double deviation);                                         // see rng_normal
void update_fill_uniform(struct array x, int64_t n, uint64_t key, double largest); // either sign

struct update_adamw { // one step's constants, in double; see nn/optimizer.h
    double rate, beta1, beta2, eps;
    double decay;                    // 1 - rate * weight decay; 1 for what does not decay
    double correction1, correction2; // 1 - beta^t
    double gradient_scale;           // from clipping; 1 if the norm is below the limit
};

// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = decay w - rate m^ / (sqrt(v^) + eps)
void update_adamw(const struct update_adamw *u, real *w, real *m, real *v, const real *g,
                  int64_t n);

// w = decay w - rate scale g
void update_sgd(real *w, const real *g, int64_t n, double rate, double decay, double scale);

#endif
