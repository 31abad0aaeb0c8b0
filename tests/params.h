// params.h - persistent tensors with reproducible contents, for tests that record on a tape.
#ifndef TESTS_PARAMS_H
#define TESTS_PARAMS_H

#include "tape/ops/ops.h"
#include "tape/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum params_fill {
    PARAMS_NORMAL,   // mean 0, deviation 0.7
    PARAMS_POSITIVE, // 0.5 to 2
    PARAMS_NOT_ZERO, // 0.3 to 1.3 away from 0, either sign
};

static inline double params_value(enum params_fill fill, uint64_t seed, int64_t i)
{
    uint64_t key = rng_key(rng_key(seed, RNG_TEST), 1);
    double uniform = rng_uniform(key, (uint64_t)i), normal = rng_normal(key, (uint64_t)i);
    if (fill == PARAMS_POSITIVE)
        return 0.5 + 1.5 * uniform;
    return fill == PARAMS_NORMAL ? 0.7 * normal : (normal < 0 ? -1 : 1) * (0.3 + uniform);
}

static inline void params_fill(const struct tape *t, struct tensor *x, enum params_fill fill,
                               uint64_t seed)
{
    for (int64_t i = 0; !tape_is_dry(t) && i < tensor_count(x); i++)
        x->data[i] = (real)params_value(fill, seed, i);
}

static inline void params_make(struct tape *t, struct tensor *x, const char *name, bool wants_grad,
                               uint64_t seed, int dim_count, const int64_t *dim)
{
    tensor_persistent(x, &t->arena, name, LEDGER_WEIGHTS, dim_count, dim);
    if (wants_grad)
        tensor_add_grad(x, &t->arena);
    params_fill(t, x, PARAMS_NORMAL, seed);
}

// A tape to try something on; a test that can't have it can't go on.
static inline void params_open(struct tape *t, int64_t bytes, int threads)
{
    struct plan plan = tape_plan_small(bytes);
    struct error e;
    if (!tape_open(t, &plan, false, threads, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static inline int64_t params_live_bytes(const struct tape *t)
{
    return t->arena.ledger.counts.total_now;
}

#endif
