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
            y[i] = x[i] > 0 ? x[i] : 0;
        array_close(ys, at, length, y);
    }
}

static void relu_backward(struct tape *t, struct node *n)
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
            // forward: y[i] = x[i] > 0 ? x[i] : 0
            dx[i] = (adds ? dx[i] : 0) + (y[i] > 0 ? dy[i] : 0);
        array_close(dxs, at, length, dx);
    }
}

const struct op op_relu_desc = {
    .name = "relu",
    .formula = "y = max(x, 0)",
    .keeps = "y: its sign is x's",
    .needs = {NEEDS_OUT},
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .elementwise = true,
    .infer = relu_infer,
    .forward = {relu_forward},
    .backward = {relu_backward},
};

struct tensor *(op_relu)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_relu_desc, 1, (struct tensor *[]){x}, NULL);
}
