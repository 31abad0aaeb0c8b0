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
    struct array xs = tensor_data(n->in[0]), ys = tensor_data(n->out);
    real factor = (real)n->args.factor;
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[2][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *x = array_read(xs, at, length, room[0]);
        real *y = array_open(ys, at, length, false, room[1]); // may be x
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = factor * x[i];
        array_close(ys, at, length, y);
    }
}

static void scale_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array dys = op_dy(n), dxs = op_dx(n, 0);
    real factor = (real)n->args.factor;
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[2][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *dy = array_read(dys, at, length, room[0]);
        real *dx = array_open(dxs, at, length, adds, room[1]); // may be dy
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            // forward: y[i] = factor * x[i]
            dx[i] = (adds ? dx[i] : 0) + factor * dy[i];
        array_close(dxs, at, length, dx);
    }
}

const struct op op_scale_desc = {
    .name = "scale",
    .formula = "y = factor x",
    .keeps = "nothing: the slope is the factor",
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .elementwise = true,
    .infer = scale_infer,
    .forward = {scale_forward},
    .backward = {scale_backward},
};

struct tensor *(op_scale)(struct tape *t, struct tensor *x, double factor)
{
    struct op_args args = {.factor = factor};
    return tape_apply(t, &op_scale_desc, 1, (struct tensor *[]){x}, &args);
}
