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
    struct array as = tensor_data(n->in[0]), bs = tensor_data(n->in[1]), ys = tensor_data(n->out);
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[3][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *a = array_read(as, at, length, room[0]);
        const real *b = array_read(bs, at, length, room[1]);
        real *y = array_open(ys, at, length, false, room[2]);
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = a[i] - b[i];
        array_close(ys, at, length, y);
    }
}

static void sub_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array dys = op_dy(n);
    int64_t count = tensor_count(n->out);
    for (int which = 0; which < 2; which++) {
        struct array dxs = op_dx(n, which); // da, then db
        real sign = which == 0 ? 1 : -1;
        int adds = n->adds[which]; // a bool would keep gcc from vectorising the loop
        if (dxs.at == NULL)
            continue;
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
        for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, count);
            const real *dy = array_read(dys, at, length, room[0]);
            real *dx = array_open(dxs, at, length, adds, room[1]);
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                // forward: y[i] = a[i] - b[i]
                dx[i] = (adds ? dx[i] : 0) + sign * dy[i];
            array_close(dxs, at, length, dx);
        }
    }
}

const struct op op_sub_desc = {
    .name = "sub",
    .formula = "y = a - b",
    .keeps = "nothing: da = dy, db = -dy",
    .elementwise = true,
    .infer = sub_infer,
    .forward = {sub_forward},
    .backward = {sub_backward},
};

struct tensor *(op_sub)(struct tape *t, struct tensor *a, struct tensor *b)
{
    return tape_apply(t, &op_sub_desc, 2, (struct tensor *[]){a, b}, NULL);
}
