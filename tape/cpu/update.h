// update.h - loops over whole parameters, for what is not an op: initial values and updates.
//
// Element by element, in pieces of ARRAY_PIECE, or in sums whose order is fixed: no bit depends on
// the thread count. The formulas are in nn/optimizer.h.
#ifndef TAPE_CPU_UPDATE_H
#define TAPE_CPU_UPDATE_H

#include "tape/array.h"

enum { UPDATE_STATES = 4 };

void update_fill(struct array x, int64_t n, real value);
void update_fill_normal(struct array x, int64_t n, uint64_t key,
                        double deviation);                                         // see rng_normal
void update_fill_uniform(struct array x, int64_t n, uint64_t key, double largest); // either sign
void update_copy(struct array to, struct array from, int64_t n); // rounded, or widened

// The sum of x^2, and any sum of n terms: `part` adds up at most ARRAY_PIECE of them.
typedef double update_part_fn(const void *user, int64_t from, int64_t count);
double update_sum_squares(struct array x, int64_t n);
double update_sum(int64_t n, update_part_fn *part, const void *user);

struct update {   // one step of one parameter; constants in double
    int64_t n;    // elements ...
    int64_t cols; // ... of a matrix with so many columns; 0: of a vector
    struct array weights, gradient;
    real *master;               // what is updated, and then rounded into the weights; NULL: they
    void *state[UPDATE_STATES]; // reals, but for adamw8bit's codes
    int64_t step;               // from 1
    double rate, beta1, beta2, eps;
    double decay;                          // 1 - rate * weight decay; 1 for what does not decay
    double correction1, correction2;       // 1 - beta^step
    double gradient_scale;                 // from clipping; 1 if the norm is below the limit
    const real *signed_map, *unsigned_map; // of adamw8bit: code8.h
};

// What is updated: then it is rounded into the weights, if it is not them.
static inline struct array update_target(const struct update *u)
{
    return u->master != NULL ? array_of(u->master, DTYPE_REAL) : u->weights;
}

typedef void update_fn(const struct update *u);
void update_sgd(const struct update *u);
void update_momentum(const struct update *u);  // state: m
void update_adamw(const struct update *u);     // state: m, v
void update_adamw8bit(const struct update *u); // state: codes of m and v, absmax of m and v
void update_lion(const struct update *u);      // state: m

#endif
