// op_lora.c - y = base, with s h b^T added to `count` of its columns from `first` on: what a
// low-rank adapter (Hu et al. 2021) adds to a linear's output. h = x a^T is a linear of its own.
//
//   dbase  is dy                            in place: the same buffer
//   dh += s dy b          (R,O)(O,K)        of dy those O columns
//   db += s dy^T h        (O,R)(R,K)        sample after sample, row tile after row tile
//
// R rows of one sample, O = count, K the rank. As in product.c, tiles depend on R, O and K alone
// and never cross a sample: at most ROW_TILE rows by SLICE of the O columns. dh goes over the
// slices in order, so that of dy no more than a tile is ever widened from bf16.
#include "tape/blas.h"
#include "tape/ops/ops_int.h"

enum { ROW_TILE = 128, SLICE = 128 };

struct shape {
    int64_t samples, rows, cols, rank;
    int64_t first, count;
    int64_t row_tiles, slices;
    real factor;
};

// Where a thread keeps what is not stored as reals: a tile of y or dy, and what stands beside it.
struct room {
    real *tile; // ROW_TILE x SLICE
    real *rows; // ROW_TILE x K
    real *cols; // SLICE x K
};

static struct shape shape_of(const struct node *n)
{
    const struct tensor *base = n->in[0], *b = n->in[2];
    struct shape s = {.samples = tensor_samples(base),
                      .rows = tensor_rows(base),
                      .cols = tensor_cols(base),
                      .rank = b->dim[1],
                      .first = n->args.first,
                      .count = b->dim[0],
                      .factor = (real)n->args.factor};
    s.row_tiles = tile_count(s.rows, ROW_TILE);
    s.slices = tile_count(s.count, SLICE);
    return s;
}

static int64_t room_reals(const struct shape *s)
{
    return ROW_TILE * SLICE + (ROW_TILE + SLICE) * s->rank;
}

static struct room room_of(const struct shape *s, const struct node *n)
{
    if (n->work == NULL)
        return (struct room){NULL, NULL, NULL};
    real *at = (real *)n->work + op_thread() * room_reals(s);
    return (struct room){at, at + ROW_TILE * SLICE, at + ROW_TILE * (SLICE + s->rank)};
}

static bool is_real(const struct tensor *x)
{
    return x->dtype == DTYPE_REAL && x->grad_dtype == DTYPE_REAL;
}

static void lora_infer(struct tape *t, struct node *n)
{
    const struct tensor *base = n->in[0], *h = n->in[1], *b = n->in[2];
    struct shape s = shape_of(n);
    CHECK(base->dim_count >= 2 && b->dim_count == 2 && tensor_cols(h) == s.rank);
    CHECK(tensor_samples(h) == s.samples && tensor_rows(h) == s.rows);
    CHECK(s.first >= 0 && s.first + s.count <= s.cols);
    tensor_like(n->out, base);
    bool plain = is_real(base) && is_real(h) && is_real(b) && is_real(n->out);
    n->forward_work_bytes = plain ? 0 : t->threads * room_reals(&s) * (int64_t)sizeof(real);
    n->backward_work_bytes = n->forward_work_bytes;
    int64_t product = 2 * s.samples * s.rows * s.count * s.rank;
    n->forward_flops = product;
    n->backward_flops = (h->wants_grad ? product : 0) + (b->wants_grad ? product : 0);
}

// to = from, or to += from.
static void carry(const struct tape *t, struct array from, struct array to, int64_t count,
                  bool adds)
{
    (void)t; // without OpenMP
#pragma omp parallel for schedule(static) num_threads(t->threads) if (count >= PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE)
        array_carry(array_from(to, at), array_from(from, at), array_piece(at, count), adds);
}

// Rows of tile `task`, counted over all samples.
static struct tile rows_of(const struct shape *s, int64_t task)
{
    struct tile r = tile_at(task % s->row_tiles, s->rows, ROW_TILE);
    r.from += task / s->row_tiles * s->rows;
    return r;
}

static void lora_forward(struct tape *t, struct node *n)
{
    struct shape s = shape_of(n);
    struct array base = tensor_data(n->in[0]), h = tensor_data(n->in[1]), b = tensor_data(n->in[2]);
    struct array y = tensor_data(n->out);
    if (base.at != y.at)
        carry(t, base, y, tensor_count(n->out), false);
    int64_t tiles = s.samples * s.row_tiles;
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < s.slices * tiles; task++) {
        struct room room = room_of(&s, n);
        struct tile o = tile_at(task / tiles, s.count, SLICE);
        struct tile r = rows_of(&s, task % tiles);
        int64_t stride, at = r.from * s.cols + s.first + o.from;
        real *yi = array_open_rows(y, at, r.count, o.count, s.cols, true, room.tile, &stride);
        blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, o.count, s.rank, s.factor,
                  array_read(h, r.from * s.rank, r.count * s.rank, room.rows), s.rank,
                  array_read(b, o.from * s.rank, o.count * s.rank, room.cols), s.rank, 1, yi,
                  stride);
        array_close_rows(y, at, r.count, o.count, s.cols, yi);
    }
}

static const real *dy_tile(const struct shape *s, const struct node *n, struct tile r,
                           struct tile o, const struct room *room, int64_t *stride)
{
    return array_read_rows(op_dy(n), r.from * s->cols + s->first + o.from, r.count, o.count,
                           s->cols, room->tile, stride);
}

static void input_gradient(const struct tape *t, const struct shape *s, const struct node *n)
{
    (void)t; // without OpenMP
    struct array dh = op_dx(n, 1), b = tensor_data(n->in[2]);
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < s->samples * s->row_tiles; task++) {
        struct room room = room_of(s, n);
        struct tile r = rows_of(s, task);
        int64_t stride, from = r.from * s->rank, count = r.count * s->rank;
        real *dhi = array_open(dh, from, count, n->adds[1], room.rows);
        for (int64_t i = 0; i < s->slices; i++) {
            struct tile o = tile_at(i, s->count, SLICE);
            const real *dy = dy_tile(s, n, r, o, &room, &stride);
            // forward: blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, o.count, s.rank,
            blas_gemm(BLAS_AS_IS, BLAS_AS_IS, r.count, s->rank, o.count, s->factor, dy, stride,
                      array_read(b, o.from * s->rank, o.count * s->rank, room.cols), s->rank,
                      i > 0 || n->adds[1] ? 1 : 0, dhi, s->rank);
        }
        array_close(dh, from, count, dhi);
    }
}

static void weight_gradient(const struct tape *t, const struct shape *s, const struct node *n)
{
    (void)t; // without OpenMP
    struct array db = op_dx(n, 2), h = tensor_data(n->in[1]);
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < s->slices; task++) {
        struct room room = room_of(s, n);
        struct tile o = tile_at(task, s->count, SLICE);
        int64_t stride, from = o.from * s->rank, count = o.count * s->rank;
        real *dbi = array_open(db, from, count, true, room.cols);
        for (int64_t i = 0; i < s->samples * s->row_tiles; i++) {
            struct tile r = rows_of(s, i);
            const real *dy = dy_tile(s, n, r, o, &room, &stride);
            // forward: blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, o.count, s.rank,
            blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, o.count, s->rank, r.count, s->factor, dy, stride,
                      array_read(h, r.from * s->rank, r.count * s->rank, room.rows), s->rank, 1,
                      dbi, s->rank);
        }
        array_close(db, from, count, dbi);
    }
}

static void lora_backward(struct tape *t, struct node *n)
{
    struct shape s = shape_of(n);
    if (n->dx[1] != NULL)
        input_gradient(t, &s, n);
    op_start_sum(n, 2);
    if (n->dx[2] != NULL)
        weight_gradient(t, &s, n);
    if (n->dx[0] != NULL && n->dx[0] != n->dy)
        // forward: carry(t, base, y, tensor_count(n->out), false);
        carry(t, op_dy(n), op_dx(n, 0), tensor_count(n->out), n->adds[0]);
}

const struct op op_lora_desc = {
    .name = "lora",
    .formula = "y = base + s h b^T, in some of the columns",
    .keeps = "h for db, b for dh; of base nothing",
    .needs = {0, NEEDS_IN2, NEEDS_IN1},
    .cost = COST_GEMM,
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = lora_infer,
    .forward = {lora_forward},
    .backward = {lora_backward},
};

struct tensor *(op_lora)(struct tape *t, struct tensor *base, struct tensor *h, struct tensor *b,
                         int64_t first, double factor)
{
    return tape_apply(t, &op_lora_desc, 3, (struct tensor *[]){base, h, b},
                      &(struct op_args){.first = first, .factor = factor});
}
