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
    struct array xs = tensor_data(n->in[0]), ys = tensor_data(n->out);
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[2][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *x = array_read(xs, at, length, room[0]);
        real *y = array_open(ys, at, length, false, room[1]); // may be x
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = vec_tanh(x[i]);
        array_close(ys, at, length, y);
    }
}

static void tanh_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array ys = tensor_data(n->out), dys = op_dy(n), dxs = op_dx(n, 0);
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[3][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *y = array_read(ys, at, length, room[0]);
        const real *dy = array_read(dys, at, length, room[1]);
        real *dx = array_open(dxs, at, length, adds, room[2]); // may be dy
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            // forward: y[i] = vec_tanh(x[i])
            dx[i] = (adds ? dx[i] : 0) + dy[i] * (1 - y[i] * y[i]);
        array_close(dxs, at, length, dx);
    }
}

const struct op op_tanh_desc = {
    .name = "tanh",
    .formula = "y = tanh(x)",
    .keeps = "y: the slope is 1 - y^2",
    .needs = {NEEDS_OUT},
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .elementwise = true,
    .infer = tanh_infer,
    .forward = {tanh_forward},
    .backward = {tanh_backward},
};

struct tensor *(op_tanh)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_tanh_desc, 1, (struct tensor *[]){x}, NULL);
}
