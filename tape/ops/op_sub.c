// op_sub.c - y = a - b;  da += dy,  db -= dy.
#include "tape/ops/ops_int.h"

static void sub_infer(struct tape *t, struct node *n)
{
    (void)t;
    CHECK(tensor_count(n->in[0]) == tensor_count(n->in[1]));
    tensor_like(n->out, n->in[0]);
    n->forward_flops = n->backward_flops = tensor_count(n->out);
}

static void sub_forward(struct tape *t, struct node *n)
{
    (void)t;
    const real *a = n->in[0]->data, *b = n->in[1]->data;
    real *y = n->out->data;
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] - b[i];
}

static void sub_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t count = tensor_count(n->out);
    for (int which = 0; which < 2; which++) {
        real *dx = n->dx[which], sign = which == 0 ? 1 : -1;
        int adds = n->adds[which]; // a bool would keep gcc from vectorising the loop
        if (dx == NULL)
            continue;
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
        for (int64_t i = 0; i < count; i++)
            dx[i] = (adds ? dx[i] : 0) + sign * n->dy[i];
    }
}

const struct op op_sub_desc = {
    .name = "sub",
    .formula = "y = a - b",
    .keeps = "nothing: da = dy, db = -dy",
    .infer = sub_infer,
    .forward = {sub_forward},
    .backward = {sub_backward},
};

struct tensor *(op_sub)(struct tape *t, struct tensor *a, struct tensor *b)
{
    return tape_apply(t, &op_sub_desc, 2, (struct tensor *[]){a, b}, NULL);
}
