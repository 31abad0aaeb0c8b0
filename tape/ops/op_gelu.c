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
    const real *x = n->in[0]->data;
    real *y = n->out->data;
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] / 2 * (1 + vec_tanh(c * (x[i] + a * x[i] * x[i] * x[i])));
}

static void gelu_backward(struct tape *t, struct node *n)
{
    (void)t;
    const real *x = n->in[0]->data, *dy = n->dy;
    real *dx = n->dx[0];   // may be dy
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t count = tensor_count(n->out);
#pragma omp parallel for simd schedule(static) if (count > PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++) {
        real th = vec_tanh(c * (x[i] + a * x[i] * x[i] * x[i]));
        real du = c * (1 + 3 * a * x[i] * x[i]);
        dx[i] = (adds ? dx[i] : 0) + dy[i] * ((1 + th) / 2 + x[i] / 2 * (1 - th * th) * du);
    }
}

const struct op op_gelu_desc = {
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
    .keeps = "x: the slope is a function of it",
    .needs = {NEEDS_IN0},
    .grad = GRAD_IN_PLACE,
    .infer = gelu_infer,
    .forward = {gelu_forward},
    .backward = {gelu_backward},
};

struct tensor *(op_gelu)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_gelu_desc, 1, (struct tensor *[]){x}, NULL);
}
