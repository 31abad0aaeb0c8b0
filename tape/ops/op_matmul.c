// op_matmul.c - one product per sample and head: y = a b, or a b^T if `transposed`.
//
//   da += dy b^T,  db += a^T dy      (transposed: da += dy b,  db += dy^T a)
//
// a (B,H,M,K), b (B,H,K,N) or (B,H,N,K), y (B,H,M,N). Inputs may be views. With heads_inside, y is
// stored as (B,M,H,N). A head of a sample is one single-threaded BLAS call; they run in parallel.
#include "tape/blas.h"
#include "tape/ops/ops_int.h"

static void matmul_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *a = n->in[0], *b = n->in[1];
    CHECK(a->dim_count == 4 && b->dim_count == 4);
    CHECK(a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1]);
    CHECK(a->stride[3] == 1 && b->stride[3] == 1);
    int64_t m = a->dim[2], k = a->dim[3], cols = n->args.transposed ? b->dim[2] : b->dim[3];
    CHECK(k == (n->args.transposed ? b->dim[3] : b->dim[2]));
    tensor_shape(n->out, 4, (int64_t[]){a->dim[0], a->dim[1], m, cols});
    if (n->args.heads_inside) {
        n->out->stride[1] = cols;
        n->out->stride[2] = a->dim[1] * cols;
    }
    n->forward_flops = 2 * tensor_count(n->out) * k;
    n->backward_flops = n->forward_flops * (a->wants_grad + b->wants_grad);
}

static int64_t offset(const struct tensor *x, int64_t task) // of one head of one sample
{
    return task / x->dim[1] * x->stride[0] + task % x->dim[1] * x->stride[1];
}

static void matmul_forward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *a = n->in[0], *b = n->in[1];
    struct tensor *y = n->out;
    int64_t tasks = a->dim[0] * a->dim[1];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < tasks; i++)
        blas_gemm(BLAS_AS_IS, n->args.transposed ? BLAS_TRANSPOSED : BLAS_AS_IS, a->dim[2],
                  y->dim[3], a->dim[3], 1, a->data + offset(a, i), a->stride[2],
                  b->data + offset(b, i), b->stride[2], 0, y->data + offset(y, i), y->stride[2]);
}

static void matmul_backward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    int64_t tasks = a->dim[0] * a->dim[1], m = a->dim[2], k = a->dim[3], cols = y->dim[3];
    bool tr = n->args.transposed;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < tasks; i++) {
        const real *dy = n->dy + offset(y, i);
        const real *ai = a->data + offset(a, i), *bi = b->data + offset(b, i);
        real *da = n->dx[0] != NULL ? n->dx[0] + offset(a, i) : NULL;
        real *db = n->dx[1] != NULL ? n->dx[1] + offset(b, i) : NULL;
        real keep_a = n->adds[0] ? 1 : 0, keep_b = n->adds[1] ? 1 : 0;
        if (da != NULL)
            blas_gemm(BLAS_AS_IS, tr ? BLAS_AS_IS : BLAS_TRANSPOSED, m, k, cols, 1, dy,
                      y->stride[2], bi, b->stride[2], keep_a, da, a->stride[2]);
        if (db != NULL && tr)
            blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, cols, k, m, 1, dy, y->stride[2], ai,
                      a->stride[2], keep_b, db, b->stride[2]);
        if (db != NULL && !tr)
            blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, k, cols, m, 1, ai, a->stride[2], dy,
                      y->stride[2], keep_b, db, b->stride[2]);
    }
}

const struct op op_matmul_desc = {
    .name = "matmul",
    .formula = "y[b][h] = a[b][h] b[b][h]",
    .keeps = "a and b: each is the slope of the other",
    .needs = {NEEDS_IN1, NEEDS_IN0},
    .cost = COST_ATTENTION,
    .reads_views = true,
    .infer = matmul_infer,
    .forward = {matmul_forward},
    .backward = {matmul_backward},
};

struct tensor *(op_matmul)(struct tape *t, struct tensor *a, struct tensor *b, bool transposed,
                           bool heads_inside)
{
    struct op_args args = {.transposed = transposed, .heads_inside = heads_inside};
    return tape_apply(t, &op_matmul_desc, 2, (struct tensor *[]){a, b}, &args);
}
