// op_tanh.c - y = tanh x;  dx += dy (1 - y^2). Backward reads y, so y may take x's buffer.
#include "tape/ops/ops_int.h"

static void tanh_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = 8 * tensor_count(n->out);
    n->backward_flops = 3 * tensor_count(n->out);
}

static void tanh_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data;
    real *y = n->out->data; // may be x
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = vec_tanh(x[i]);
}

static void tanh_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *y = n->out->data, *dy = n->dy;
    real *dx = n->dx[0];   // may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0) + dy[i] * (1 - y[i] * y[i]);
}

const struct op op_tanh_desc = {
    .name = "tanh",
    .formula = "y = tanh(x)",
    .keeps = "y: the slope is 1 - y^2",
    .needs = {NEEDS_OUT},
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = tanh_infer,
    .forward = {tanh_forward},
    .backward = {tanh_backward},
};

struct tensor *(op_tanh)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_tanh_desc, 1, (struct tensor *[]){x}, NULL);
}
