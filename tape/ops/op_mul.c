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
            y[i] = a[i] * b[i];
        array_close(ys, at, length, y);
    }
}

static void mul_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array dys = op_dy(n);
    int64_t count = tensor_count(n->out);
    for (int which = 0; which < 2; which++) {
        struct array dxs = op_dx(n, which); // da, then db
        struct array others = tensor_data(n->in[1 - which]);
        int adds = n->adds[which]; // a bool would keep gcc from vectorising the loop
        if (dxs.at == NULL)
            continue;
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
        for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
            real room[3][ARRAY_PIECE];
            int64_t length = array_piece(at, count);
            const real *dy = array_read(dys, at, length, room[0]);
            const real *other = array_read(others, at, length, room[1]);
            real *dx = array_open(dxs, at, length, adds, room[2]);
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                // forward: y[i] = a[i] * b[i]
                dx[i] = (adds ? dx[i] : 0) + dy[i] * other[i];
            array_close(dxs, at, length, dx);
        }
    }
}

const struct op op_mul_desc = {
    .name = "mul",
    .formula = "y = a b",
    .keeps = "a and b: each is the slope of the other",
    .needs = {NEEDS_IN1, NEEDS_IN0},
    .elementwise = true,
    .infer = mul_infer,
    .forward = {mul_forward},
    .backward = {mul_backward},
};

struct tensor *(op_mul)(struct tape *t, struct tensor *a, struct tensor *b)
{
    return tape_apply(t, &op_mul_desc, 2, (struct tensor *[]){a, b}, NULL);
}
