// op_matmul.c - one product per sample and head: y = a b, or a b^T if `transposed`.
//
//   da += dy b^T,  db += a^T dy      (transposed: da += dy b,  db += dy^T a)
//
// a (B,H,M,K), b (B,H,K,N) or (B,H,N,K), y (B,H,M,N). Inputs may be views. With heads_inside, y is
// stored as (B,M,H,N). A head of a sample is one single-threaded BLAS call; they run in parallel.
#include "tape/blas.h"
#include "tape/ops/ops_int.h"

static int64_t matrix_size(const struct tensor *x) // of one head of one sample
{
    return x->dim[2] * x->dim[3];
}

// Numbers of room for a head of each of a, b and y; 0 if all is real.
static int64_t forward_room(const struct node *n)
{
    const struct tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    bool real_only = a->dtype == DTYPE_REAL && b->dtype == DTYPE_REAL && y->dtype == DTYPE_REAL;
    return real_only ? 0 : matrix_size(a) + matrix_size(b) + matrix_size(y);
}

// Of a, b and dy, and of da, then db.
static int64_t backward_room(const struct node *n)
{
    const struct tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    bool real_only = a->grad_dtype == DTYPE_REAL && b->grad_dtype == DTYPE_REAL;
    if (real_only && forward_room(n) == 0)
        return 0;
    return 2 * (matrix_size(a) + matrix_size(b)) + matrix_size(y);
}

static void matmul_infer(struct tape *t, struct node *n)
{
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
    n->forward_work_bytes = t->threads * forward_room(n) * (int64_t)sizeof(real);
    n->backward_work_bytes = t->threads * backward_room(n) * (int64_t)sizeof(real);
    n->forward_flops = 2 * tensor_count(n->out) * k;
    n->backward_flops = n->forward_flops * (a->wants_grad + b->wants_grad);
}

static int64_t offset(const struct tensor *x, int64_t task)
{
    return task / x->dim[1] * x->stride[0] + task % x->dim[1] * x->stride[1];
}

// One head of one sample of `from` (x's data or gradient), as reals. Rooms follow each other: *room
// moves on.
static struct blas_matrix open_head(const struct tensor *x, struct array from, int64_t task,
                                    bool keeps, real **room)
{
    struct blas_matrix m = {NULL, 0};
    if (from.at == NULL)
        return m;
    m.at = array_open_rows(from, offset(x, task), x->dim[2], x->dim[3], x->stride[2], keeps, *room,
                           &m.stride);
    *room = op_part(*room, matrix_size(x));
    return m;
}

static void close_head(const struct tensor *x, struct array to, int64_t task, struct blas_matrix m)
{
    if (to.at != NULL)
        array_close_rows(to, offset(x, task), x->dim[2], x->dim[3], x->stride[2], m.at);
}

static void matmul_forward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    const struct tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    int64_t tasks = a->dim[0] * a->dim[1];
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < tasks; i++) {
        real *room = op_part(n->work, op_thread() * forward_room(n));
        struct blas_matrix ma = open_head(a, tensor_data(a), i, true, &room);
        struct blas_matrix mb = open_head(b, tensor_data(b), i, true, &room);
        struct blas_matrix my = open_head(y, tensor_data(y), i, false, &room);
        blas_gemm(BLAS_AS_IS, n->args.transposed ? BLAS_TRANSPOSED : BLAS_AS_IS, a->dim[2],
                  y->dim[3], a->dim[3], 1, ma.at, ma.stride, mb.at, mb.stride, 0, my.at, my.stride);
        close_head(y, tensor_data(y), i, my);
    }
}

static void head_backward(const struct node *n, int64_t task, real *room)
{
    const struct tensor *a = n->in[0], *b = n->in[1], *y = n->out;
    int64_t m = a->dim[2], k = a->dim[3], cols = y->dim[3];
    bool tr = n->args.transposed;
    struct blas_matrix ma = open_head(a, tensor_data(a), task, true, &room);
    struct blas_matrix mb = open_head(b, tensor_data(b), task, true, &room);
    struct blas_matrix dy = open_head(y, op_dy(n), task, true, &room);
    struct blas_matrix da = open_head(a, op_dx(n, 0), task, n->adds[0], &room);
    real keep_a = n->adds[0] ? 1 : 0, keep_b = n->adds[1] ? 1 : 0;
    // forward: blas_gemm(BLAS_AS_IS, n->args.transposed ? BLAS_TRANSPOSED : BLAS_AS_IS, a->dim[2],
    if (da.at != NULL)
        blas_gemm(BLAS_AS_IS, tr ? BLAS_AS_IS : BLAS_TRANSPOSED, m, k, cols, 1, dy.at, dy.stride,
                  mb.at, mb.stride, keep_a, da.at, da.stride);
    close_head(a, op_dx(n, 0), task, da); // first: b may be a
    struct blas_matrix db = open_head(b, op_dx(n, 1), task, n->adds[1], &room);
    if (db.at != NULL && tr)
        blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, cols, k, m, 1, dy.at, dy.stride, ma.at, ma.stride,
                  keep_b, db.at, db.stride);
    if (db.at != NULL && !tr)
        blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, k, cols, m, 1, ma.at, ma.stride, dy.at, dy.stride,
                  keep_b, db.at, db.stride);
    close_head(b, op_dx(n, 1), task, db);
}

static void matmul_backward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    int64_t tasks = n->in[0]->dim[0] * n->in[0]->dim[1];
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < tasks; i++)
        head_backward(n, i, op_part(n->work, op_thread() * backward_room(n)));
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
