// op_log.c - y = log x (natural);  dx += dy / x.
#include "tape/ops/ops_int.h"

static void log_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = 8 * tensor_count(n->out);
    n->backward_flops = 2 * tensor_count(n->out);
}

static void log_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data;
    real *y = n->out->data;
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = (real)log((double)x[i]);
}

static void log_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data, *dy = n->dy;
    real *dx = n->dx[0];   // may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0) + dy[i] / x[i];
}

const struct op op_log_desc = {
    .name = "log",
    .formula = "y = log(x)",
    .keeps = "x: the slope is 1 / x",
    .needs = {NEEDS_IN0},
    .grad = GRAD_IN_PLACE,
    .infer = log_infer,
    .forward = {log_forward},
    .backward = {log_backward},
};

struct tensor *(op_log)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_log_desc, 1, (struct tensor *[]){x}, NULL);
}
