// op_gelu.c - the smooth gate between the two linears of an MLP (tanh form, Hendrycks and Gimpel
// 2016).
//
//   forward    y  = x/2 (1 + tanh u),              u  = c (x + a x^3)
//   backward   dx += dy [ (1 + tanh u)/2 + x/2 (1 - tanh^2 u) u' ],  u' = c (1 + 3 a x^2)
//
// Backward reads x, not y, so y may be given back as soon as the next op has read it; the price is
// a second tanh. Keeping u instead would cost one more tensor the size of the widest layer.
#include "tape/ops/ops_int.h"

static const real c = (real)0.7978845608028654; // sqrt(2/pi)
static const real a = (real)0.044715;

static void gelu_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->forward_flops = 14 * tensor_count(n->out);
    n->backward_flops = 24 * tensor_count(n->out);
}

static void gelu_forward(struct tape *t, struct node *n)
{
    (void)t;
    struct array xs = tensor_data(n->in[0]), ys = tensor_data(n->out);
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[2][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *x = array_read(xs, at, length, room[0]);
        real *y = array_open(ys, at, length, false, room[1]);
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = x[i] / 2 * (1 + vec_tanh(c * (x[i] + a * x[i] * x[i] * x[i])));
        array_close(ys, at, length, y);
    }
}

static void gelu_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array xs = tensor_data(n->in[0]), dys = op_dy(n), dxs = op_dx(n, 0);
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[3][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *x = array_read(xs, at, length, room[0]);
        const real *dy = array_read(dys, at, length, room[1]);
        real *dx = array_open(dxs, at, length, adds, room[2]); // may be dy
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            real th = vec_tanh(c * (x[i] + a * x[i] * x[i] * x[i]));
            real du = c * (1 + 3 * a * x[i] * x[i]);
            // forward: y[i] = x[i] / 2 * (1 + vec_tanh(c * (x[i] + a * x[i] * x[i] * x[i])))
            dx[i] = (adds ? dx[i] : 0) + dy[i] * ((1 + th) / 2 + x[i] / 2 * (1 - th * th) * du);
        }
        array_close(dxs, at, length, dx);
    }
}

const struct op op_gelu_desc = {
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
    .keeps = "x: the slope is a function of it",
    .needs = {NEEDS_IN0},
    .grad = GRAD_IN_PLACE,
    .elementwise = true,
    .infer = gelu_infer,
    .forward = {gelu_forward},
    .backward = {gelu_backward},
};

struct tensor *(op_gelu)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_gelu_desc, 1, (struct tensor *[]){x}, NULL);
}
