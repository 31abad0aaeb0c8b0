// op_linear.c - y = x w^T + b. The bias may be NULL.
//
//   dx += dy w        (R,O)(O,I)    for each sample
//   dw += dy^T x      (O,R)(R,I)    sample after sample
//   db += sum over rows of dy       row after row
//
// R rows of one sample, I inputs, O outputs. Every product is cut into tiles whose shape depends on
// R, I and O alone: at most ROW_TILE rows of one sample by a slice of about SLICE columns for y and
// dx; a slice of outputs by a slice of inputs for dw, whose tile adds all samples in order. A tile
// is one single-threaded BLAS call; tiles run in parallel. What that costs against one threaded
// call over all rows, and why these sizes: docs/decisions.md.
#include "tape/blas.h"
#include "tape/ops/ops_int.h"

enum { ROW_TILE = 128, SLICE = 96, SLICE_UNIT = 8 };

struct linear {
    int64_t samples, rows, in, out;
    int64_t row_tile, in_slice, out_slice; // of y and dx
    int64_t dw_in_slice, dw_out_slice;     // of dw
    int64_t row_tiles, in_slices, out_slices, dw_in_slices, dw_out_slices;
};

// Equal slices of about SLICE: 65 -> one, 128 -> two of 64, 384 -> four of 96.
static int64_t slice_of(int64_t columns)
{
    int64_t size = tile_count(columns, tile_count(columns, SLICE));
    return tile_count(size, SLICE_UNIT) * SLICE_UNIT;
}

#ifdef TAPE_ONE_GEMM
// For `make bench-exact` alone: each product as one call per thread over the rows of all samples,
// which is what the exact order is measured against. Its bits depend on batch and threads.
static void cut_for_speed(struct linear *s, int threads)
{
    s->rows *= s->samples;
    s->samples = 1;
    s->row_tile = tile_count(s->rows, threads);
    s->in_slice = s->dw_in_slice = s->in;
    s->out_slice = s->out;
    s->dw_out_slice = tile_count(s->out, threads);
}
#endif

static struct linear shape_of(const struct tape *t, const struct node *n)
{
    const struct tensor *x = n->in[0], *w = n->in[1];
    struct linear s = {.samples = tensor_samples(x),
                       .rows = tensor_rows(x),
                       .in = w->dim[1],
                       .out = w->dim[0],
                       .row_tile = ROW_TILE};
    s.in_slice = s.dw_in_slice = slice_of(s.in);
    s.out_slice = s.dw_out_slice = slice_of(s.out);
#ifdef TAPE_ONE_GEMM
    cut_for_speed(&s, t->threads);
#else
    (void)t;
#endif
    s.row_tiles = tile_count(s.rows, s.row_tile);
    s.in_slices = tile_count(s.in, s.in_slice);
    s.out_slices = tile_count(s.out, s.out_slice);
    s.dw_in_slices = tile_count(s.in, s.dw_in_slice);
    s.dw_out_slices = tile_count(s.out, s.dw_out_slice);
    return s;
}

static void linear_infer(struct tape *t, struct node *n)
{
    (void)t;
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
}

// Which rows tile number `task` of one slice has, counted over all samples.
static struct tile rows_of(const struct linear *s, int64_t task)
{
    struct tile r = tile_at(task % s->row_tiles, s->rows, s->row_tile);
    r.from += task / s->row_tiles * s->rows;
    return r;
}

static void linear_forward(struct tape *t, struct node *n)
{
    struct linear s = shape_of(t, n);
    const real *x = n->in[0]->data, *w = n->in[1]->data;
    const real *b = n->in_count == 3 ? n->in[2]->data : NULL;
    real *y = n->out->data;
    int64_t tiles = s.samples * s.row_tiles;
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < s.out_slices * tiles; task++) {
        struct tile o = tile_at(task / tiles, s.out, s.out_slice);
        struct tile r = rows_of(&s, task % tiles);
        real *tile = y + r.from * s.out + o.from;
        for (int64_t i = 0; b != NULL && i < r.count; i++)
            memcpy(tile + i * s.out, b + o.from, (size_t)o.count * sizeof(real));
        blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, o.count, s.in, 1, x + r.from * s.in, s.in,
                  w + o.from * s.in, s.in, b != NULL ? 1 : 0, tile, s.out);
    }
}

static void input_gradient(const struct linear *s, const real *dy, const real *w, real *dx,
                           bool adds)
{
    int64_t tiles = s->samples * s->row_tiles;
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < s->in_slices * tiles; task++) {
        struct tile c = tile_at(task / tiles, s->in, s->in_slice);
        struct tile r = rows_of(s, task % tiles);
        blas_gemm(BLAS_AS_IS, BLAS_AS_IS, r.count, c.count, s->out, 1, dy + r.from * s->out, s->out,
                  w + c.from, s->in, adds ? 1 : 0, dx + r.from * s->in + c.from, s->in);
    }
}

static void bias_gradient(const struct linear *s, const real *dy, struct tile o, real *db)
{
    for (int64_t i = 0; i < s->samples * s->rows; i++)
        for (int64_t j = o.from; j < o.from + o.count; j++)
            db[j] += dy[i * s->out + j];
}

static void weight_gradient(const struct linear *s, const real *dy, const real *x, real *dw,
                            real *db)
{
    int64_t tasks = s->dw_out_slices * s->dw_in_slices;
#pragma omp parallel for schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++) {
        struct tile o = tile_at(task / s->dw_in_slices, s->out, s->dw_out_slice);
        struct tile c = tile_at(task % s->dw_in_slices, s->in, s->dw_in_slice);
        for (int64_t row = 0; dw != NULL && row < s->samples * s->rows; row += s->rows)
            blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, o.count, c.count, s->rows, 1,
                      dy + row * s->out + o.from, s->out, x + row * s->in + c.from, s->in, 1,
                      dw + o.from * s->in + c.from, s->in);
        if (db != NULL && c.from == 0)
            bias_gradient(s, dy, o, db);
    }
}

static void linear_backward(struct tape *t, struct node *n)
{
    struct linear s = shape_of(t, n);
    if (n->dx[0] != NULL)
        input_gradient(&s, n->dy, n->in[1]->data, n->dx[0], n->adds[0]);
    for (int i = 1; i < n->in_count; i++)
        op_start_sum(n, i);
    real *db = n->in_count == 3 ? n->dx[2] : NULL;
    if (n->dx[1] != NULL || db != NULL)
        weight_gradient(&s, n->dy, n->in[0]->data, n->dx[1], db);
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
