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
    struct array xs = tensor_data(n->in[0]);
    real *y = n->out->data; // reals: wide_out
#pragma omp parallel for schedule(static) if (samples * count > PARALLEL_MIN)
    for (int64_t b = 0; b < samples; b++) {
        real room[ARRAY_PIECE], lane[VEC_LANES] = {0};
        for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
            int64_t length = array_piece(at, count);
            const real *x = array_read(xs, b * count + at, length, room);
            vec_dot_part(lane, x, x, length);
        }
        y[b] = vec_join(lane);
    }
}

static void sum_squares_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t samples = n->out->dim[0], count = tensor_count(n->in[0]) / samples;
    struct array xs = tensor_data(n->in[0]), dxs = op_dx(n, 0);
    const real *dy = n->dy; // reals: wide_out
    int adds = n->adds[0];  // a bool would keep gcc from vectorising the loop
#pragma omp parallel for schedule(static) if (samples * count > PARALLEL_MIN)
    for (int64_t b = 0; b < samples; b++)
        for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, count);
            const real *x = array_read(xs, b * count + at, length, room[0]);
            real *dx = array_open(dxs, b * count + at, length, adds, room[1]);
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                // forward: vec_dot_part(lane, x, x, length)
                dx[i] = (adds ? dx[i] : 0) + 2 * x[i] * dy[b];
            array_close(dxs, b * count + at, length, dx);
        }
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
