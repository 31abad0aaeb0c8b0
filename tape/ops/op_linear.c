// op_linear.c - y = x w^T + b. The bias may be NULL.
//
//   dx += dy w,  dw += dy^T x,  db += sum over rows of dy
//
// How the products are cut, and what happens to numbers stored as bf16: tape/ops/product_int.h.
#include "tape/ops/product_int.h"

static struct product product_of(const struct tape *t, const struct node *n)
{
    const struct tensor *x = n->in[0], *w = n->in[1];
    struct product p = {.samples = tensor_samples(x),
                        .rows = tensor_rows(x),
                        .in = w->dim[1],
                        .out = w->dim[0],
                        .x = tensor_data(x),
                        .w = tensor_data(w),
                        .b = n->in_count == 3 ? tensor_data(n->in[2]) : array_of(NULL, DTYPE_REAL),
                        .y = tensor_data(n->out),
                        .dy = op_dy(n),
                        .dx = op_dx(n, 0),
                        .dw = op_dx(n, 1),
                        .db = n->in_count == 3 ? op_dx(n, 2) : array_of(NULL, DTYPE_REAL),
                        .adds = n->adds[0],
                        .threads = t->threads,
                        .work = n->work};
#ifdef TAPE_ONE_GEMM
    p.rows *= p.samples;
    p.samples = 1;
#endif
    return p;
}

static void linear_infer(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0], *w = n->in[1];
    CHECK(x->dim_count >= 2 && w->dim_count == 2 && tensor_cols(x) == w->dim[1]);
    CHECK(n->in_count == 2 || tensor_count(n->in[2]) == w->dim[0]);
    int64_t dim[DIM_MAX];
    for (int i = 0; i < x->dim_count; i++)
        dim[i] = x->dim[i];
    dim[x->dim_count - 1] = w->dim[0];
    tensor_shape(n->out, x->dim_count, dim);
    int64_t rows = tensor_samples(x) * tensor_rows(x), product = 2 * rows * w->dim[0] * w->dim[1];
    bool bias = n->in_count == 3;
    n->forward_flops = product + (bias ? rows * w->dim[0] : 0);
    n->backward_flops = (x->wants_grad ? product : 0) + (w->wants_grad ? product : 0) +
                        (bias && n->in[2]->wants_grad ? rows * w->dim[0] : 0);
    struct product p = product_of(t, n);
    n->forward_work_bytes = product_forward_work_bytes(&p);
    n->backward_work_bytes = product_backward_work_bytes(&p);
}

static void linear_forward(struct tape *t, struct node *n)
{
    struct product p = product_of(t, n);
    product_forward(&p);
}

static void linear_backward(struct tape *t, struct node *n)
{
    struct product p = product_of(t, n);
    // forward: product_forward(&p);
    if (p.dx.at != NULL)
        product_input_gradient(&p);
    for (int i = 1; i < n->in_count; i++)
        op_start_sum(n, i);
    if (p.dw.at != NULL || p.db.at != NULL)
        product_weight_gradient(&p);
}

const struct op op_linear_desc = {
    .name = "linear",
    .formula = "y = x w^T + b",
    .keeps = "x for dw, w for dx",
    .needs = {NEEDS_IN1, NEEDS_IN0},
    .cost = COST_GEMM,
    .input_last = true,
    .infer = linear_infer,
    .forward = {linear_forward},
    .backward = {linear_backward},
};

struct tensor *(op_linear)(struct tape *t, struct tensor *x, struct tensor *w, struct tensor *b)
{
    return tape_apply(t, &op_linear_desc, b ? 3 : 2, (struct tensor *[]){x, w, b}, NULL);
}
