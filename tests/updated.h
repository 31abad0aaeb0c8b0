// updated.h - parameters whose weights and gradients are made of integers, as
// tests/golden/optimizers.py makes them, for tests of updates and of what is saved between them.
#ifndef TESTS_UPDATED_H
#define TESTS_UPDATED_H

#include "nn/optimizer.h"
#include "tape/cpu/update.h"

#include <string.h>

enum { UPDATED_BYTES = 1 << 20 };

struct updated_shape {
    const char *name;
    int64_t rows, cols;
    bool is_frozen;
};

static const struct updated_shape updated_shapes[] = {
    {"matrix", 9, 150, false}, {"vector", 0, 70, false}, {"large", 65, 70, false}};
struct updated {
    struct tape tape;
    struct param_list params;
    struct optimizer_config config;
};

static inline real updated_number(int64_t stream, int64_t i, double unit)
{
    uint32_t z = (uint32_t)i * 2654435761u + (uint32_t)stream * 2246822519u + 374761393u;
    z = (z ^ z >> 15) * 2246822519u;
    z = (z ^ z >> 13) * 3266489917u;
    return (real)(((double)(z >> 16) - 32768) * unit);
}

static inline void updated_fill(struct array x, int64_t n, int64_t stream, double unit)
{
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, n);
        real room[ARRAY_PIECE], *to = array_open(x, at, count, false, room);
        for (int64_t i = 0; i < count; i++)
            to[i] = updated_number(stream, at + i, unit);
        array_close(x, at, count, to);
    }
}

static inline struct array updated_weights(const struct param *p)
{
    return array_of(p->tensor.data, p->tensor.dtype);
}

static inline void updated_make(struct updated *x, struct tape *t,
                                const struct updated_shape *shape, int count,
                                enum precision weights, enum precision gradients)
{
    params_open(&x->params, t, count);
    x->params.weights = weights;
    x->params.gradients = gradients;
    for (int i = 0; i < count; i++)
        param_add(&x->params, t, shape[i].rows, shape[i].cols, PARAM_ZEROS, 0, "%s", shape[i].name)
            ->is_frozen = shape[i].is_frozen;
    params_add_grads(&x->params, t);
    optimizer_init(&x->config, &x->params, t);
}

static inline void updated_open(struct updated *x, const struct updated_shape *shape, int count,
                                enum precision weights, enum precision gradients)
{
    struct error e;
    struct plan plan = tape_plan_small(UPDATED_BYTES);
    CHECK(tape_open(&x->tape, &plan, false, 1, &e));
    updated_make(x, &x->tape, shape, count, weights, gradients);
    for (int i = 0; i < count; i++) {
        struct param *p = &x->params.param[i];
        bool has_master = p->master.data != NULL;
        int64_t n = tensor_count(&p->tensor);
        struct array to = has_master ? array_of(p->master.data, DTYPE_REAL) : updated_weights(p);
        updated_fill(to, n, 1000 + i, 0x1p-18);
        update_copy(updated_weights(p), to, n);
    }
}

static inline void updated_step(struct updated *x, int64_t step, double rate, double norm)
{
    for (int i = 0; i < x->params.count; i++) {
        struct tensor *w = &x->params.param[i].tensor;
        if (w->grad != NULL)
            updated_fill(array_of(w->grad, w->grad_dtype), tensor_count(w), 8 * step + i, 0x1p-20);
    }
    optimizer_update(&x->config, &x->params, &x->tape, step, rate, norm);
}

static inline void updated_copy(const struct updated *m, char *to, int64_t *used)
{
    *used = 0;
    for (int i = 0; i < m->params.count; i++) {
        const struct param *p = &m->params.param[i];
        const struct tensor *const all[] = {&p->tensor,   &p->master,   &p->state[0],
                                            &p->state[1], &p->state[2], &p->state[3]};
        for (int j = 0; j < COUNT_OF(all); j++)
            if (all[j]->data != NULL) {
                memcpy(to + *used, all[j]->data, (size_t)tensor_bytes(all[j]));
                *used += tensor_bytes(all[j]);
            }
    }
}

#endif
