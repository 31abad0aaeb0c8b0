// op_relu.c - y = max(x, 0). Backward reads y, so y may take x's buffer.
#include "tape/ops/ops_int.h"

static void relu_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = tensor_count(n->out);
    n->backward_flops = tensor_count(n->out);
}

static void relu_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data;
    real *y = n->out->data; // may be x
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

static void relu_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *y = n->out->data, *dy = n->dy;
    real *dx = n->dx[0];   // may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0) + (y[i] > 0 ? dy[i] : 0);
}

const struct op op_relu_desc = {
    .name = "relu",
    .formula = "y = max(x, 0)",
    .keeps = "y: its sign is x's",
    .needs = {NEEDS_OUT},
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = relu_infer,
    .forward = {relu_forward},
    .backward = {relu_backward},
};

struct tensor *(op_relu)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_relu_desc, 1, (struct tensor *[]){x}, NULL);
}
