// op_sum_squares.c - y[b] = sum of x[b]^2;  dx[b] += 2 x[b] dy[b].
#include "tape/ops/ops_int.h"

static void sum_squares_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_shape(n->out, 1, (int64_t[]){n->in[0]->dim[0]});
    n->forward_flops = n->backward_flops = 2 * tensor_count(n->in[0]);
}

static void sum_squares_forward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t samples = n->out->dim[0], count = tensor_count(n->in[0]) / samples;
    const real *x = n->in[0]->data;
#pragma omp parallel for schedule(static) if (samples * count > PARALLEL_MIN)
    for (int64_t b = 0; b < samples; b++)
        n->out->data[b] = vec_dot(x + b * count, x + b * count, count);
}

static void sum_squares_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t samples = n->out->dim[0], count = tensor_count(n->in[0]) / samples;
    const real *x = n->in[0]->data;
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
#pragma omp parallel for schedule(static) if (samples * count > PARALLEL_MIN)
    for (int64_t b = 0; b < samples; b++)
        for (int64_t i = b * count; i < (b + 1) * count; i++)
            n->dx[0][i] = (adds ? n->dx[0][i] : 0) + 2 * x[i] * n->dy[b];
}

const struct op op_sum_squares_desc = {
    .name = "sum_squares",
    .formula = "y[b] = sum of x[b]^2",
    .keeps = "x: the slope is 2 x",
    .needs = {NEEDS_IN0},
    .wide_out = true,
    .infer = sum_squares_infer,
    .forward = {sum_squares_forward},
    .backward = {sum_squares_backward},
};

struct tensor *(op_sum_squares)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_sum_squares_desc, 1, (struct tensor *[]){x}, NULL);
}
