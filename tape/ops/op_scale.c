// op_scale.c - y = factor x;  dx += factor dy. Keeps nothing, so y may take x's buffer.
#include "tape/ops/ops_int.h"

static void scale_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = n->backward_flops = tensor_count(n->out);
}

static void scale_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data;
    real *y = n->out->data, factor = (real)n->args.factor; // y may be x
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = factor * x[i];
}

static void scale_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *dy = n->dy;
    real *dx = n->dx[0], factor = (real)n->args.factor; // dx may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0) + factor * dy[i];
}

const struct op op_scale_desc = {
    .name = "scale",
    .formula = "y = factor x",
    .keeps = "nothing: the slope is the factor",
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = scale_infer,
    .forward = {scale_forward},
    .backward = {scale_backward},
};

struct tensor *(op_scale)(struct tape *t, struct tensor *x, double factor)
{
    struct op_args args = {.factor = factor};
    return tape_apply(t, &op_scale_desc, 1, (struct tensor *[]){x}, &args);
}
