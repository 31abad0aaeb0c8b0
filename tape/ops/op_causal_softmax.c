// op_causal_softmax.c - row i of each head: y[j] = exp(x[j]) / sum over k <= i of exp(x[k]) for
// j <= i, and 0 for j > i.
//
//   dx[j] += y[j] (dy[j] - sum of dy y)
//
// Backward reads y, so y may take x's buffer and dx may be dy.
#include "tape/ops/ops_int.h"

static void causal_softmax_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *x = n->in[0];
    CHECK(x->dim_count == 4 && x->dim[2] == x->dim[3]);
    tensor_like(n->out, x);
    n->forward_flops = 10 * tensor_count(x);
    n->backward_flops = 4 * tensor_count(x);
}

static void causal_softmax_forward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t time = n->out->dim[3], rows = tensor_count(n->out) / time;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const real *x = n->in[0]->data + r * time;
        real *y = n->out->data + r * time; // may be x
        int64_t count = r % time + 1;
        real max = vec_max(x, count);
#pragma omp simd
        for (int64_t j = 0; j < count; j++)
            y[j] = vec_exp(x[j] - max);
        vec_scale(y, 1 / vec_sum(y, count), count);
        for (int64_t j = count; j < time; j++)
            y[j] = 0;
    }
}

static void causal_softmax_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t time = n->out->dim[3], rows = tensor_count(n->out) / time;
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const real *y = n->out->data + r * time, *dy = n->dy + r * time;
        real *dx = n->dx[0] + r * time; // may be dy
        real sum = vec_dot(y, dy, r % time + 1);
        for (int64_t j = 0; j < time; j++)
            dx[j] = (adds ? dx[j] : 0) + (j <= r % time ? y[j] * (dy[j] - sum) : 0);
    }
}

const struct op op_causal_softmax_desc = {
    .name = "causal_softmax",
    .formula = "y = softmax(x over j <= i)",
    .keeps = "y: the slope is a function of it",
    .needs = {NEEDS_OUT},
    .cost = COST_ATTENTION,
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = causal_softmax_infer,
    .forward = {causal_softmax_forward},
    .backward = {causal_softmax_backward},
};

struct tensor *(op_causal_softmax)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_causal_softmax_desc, 1, (struct tensor *[]){x}, NULL);
}
