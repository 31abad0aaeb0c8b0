// op_mul.c - y = a b, element by element;  da += dy b,  db += dy a. a and b may be one tensor.
#include "tape/ops/ops_int.h"

static void mul_infer(struct tape *t, struct node *n)
{
    (void)t;
    CHECK(tensor_count(n->in[0]) == tensor_count(n->in[1]));
    tensor_like(n->out, n->in[0]);
    n->forward_flops = tensor_count(n->out);
    n->backward_flops = 2 * tensor_count(n->out);
}

static void mul_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *a = n->in[0]->data, *b = n->in[1]->data;
    real *y = n->out->data;
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] * b[i];
}

static void mul_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t count = tensor_count(n->out);
    for (int which = 0; which < 2; which++) {
        real *dx = n->dx[which];
        const real *other = n->in[1 - which]->data;
        int adds = n->adds[which]; // a bool would keep gcc from vectorising the loop
        if (dx == NULL)
            continue;
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
        for (int64_t i = 0; i < count; i++)
            dx[i] = (adds ? dx[i] : 0) + n->dy[i] * other[i];
    }
}

const struct op op_mul_desc = {
    .name = "mul",
    .formula = "y = a b",
    .keeps = "a and b: each is the slope of the other",
    .needs = {NEEDS_IN1, NEEDS_IN0},
    .infer = mul_infer,
    .forward = {mul_forward},
    .backward = {mul_backward},
};

struct tensor *(op_mul)(struct tape *t, struct tensor *a, struct tensor *b)
{
    return tape_apply(t, &op_mul_desc, 2, (struct tensor *[]){a, b}, NULL);
}
