// op_sqrt.c - y = sqrt x;  dx += dy / (2 y). Backward reads y, so y may take x's buffer.
#include "tape/ops/ops_int.h"

static void sqrt_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = tensor_count(n->out);
    n->backward_flops = 2 * tensor_count(n->out);
}

static void sqrt_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data;
    real *y = n->out->data; // may be x
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = (real)sqrt((double)x[i]);
}

static void sqrt_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *y = n->out->data, *dy = n->dy;
    real *dx = n->dx[0];   // may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0) + dy[i] / (2 * y[i]);
}

const struct op op_sqrt_desc = {
    .name = "sqrt",
    .formula = "y = sqrt(x)",
    .keeps = "y: the slope is 1 / (2 y)",
    .needs = {NEEDS_OUT},
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = sqrt_infer,
    .forward = {sqrt_forward},
    .backward = {sqrt_backward},
};

struct tensor *(op_sqrt)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_sqrt_desc, 1, (struct tensor *[]){x}, NULL);
}
