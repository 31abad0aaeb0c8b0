#include "tape/ops/product_int.h"

#include "tape/blas.h"

enum {
    ROW_TILE = PRODUCT_ROWS,
    SLICE = 96,
    SLICE_UNIT = 8,
    DEPTH = 512,     // of a sum over widened numbers: x or dy goes through a room of this width
    PANEL = 1 << 20, // numbers: weights that are widened at a time
    TEAM = 1 << 18,  // products of two numbers below which a team costs more than it saves
};

// Asked by OpenMP's pragmas alone.
__attribute__((unused)) static bool is_large(const struct product *p)
{
    return p->samples * p->rows * p->in * p->out > TEAM;
}

// How one product is cut: rows by a slice of columns, and the depth of a sum.
struct cut {
    int64_t row_tile, row_tiles; // of one sample; of all
    int64_t slice, slices;       // of columns
    int64_t depth;               // of one BLAS call
    int64_t per_panel;           // slices whose weights are there at the same time
    bool as_stored; // both operands are bf16 and the BLAS takes them: nothing is widened
};

static bool taken_as_stored(struct array a, struct array b)
{
    return a.dtype != DTYPE_REAL && b.dtype != DTYPE_REAL && blas_has_bf16();
}

// Equal slices of about SLICE: 65 -> one, 128 -> two of 64, 384 -> four of 96.
static int64_t slice_of(int64_t columns)
{
    int64_t size = tile_count(columns, tile_count(columns, SLICE));
    return tile_count(size, SLICE_UNIT) * SLICE_UNIT;
}

// `columns` of y or dx, sums over `depth` numbers of `from` (x or dy).
static struct cut cut_of(const struct product *p, int64_t columns, int64_t depth, struct array from)
{
    struct cut c = {.row_tile = ROW_TILE, .slice = slice_of(columns)};
#ifdef TAPE_ONE_GEMM
    // For `make bench-exact` alone: each product as one call per thread over the rows of all
    // samples, which is what the exact order is measured against. Its bits depend on batch and
    // threads.
    CHECK(p->samples == 1);
    c.row_tile = tile_count(p->rows, p->threads);
    c.slice = columns;
#endif
    c.row_tiles = p->samples * tile_count(p->rows, c.row_tile);
    c.slices = tile_count(columns, c.slice);
    c.as_stored = taken_as_stored(from, p->w);
    c.depth = from.dtype == DTYPE_REAL || c.as_stored || depth < DEPTH ? depth : DEPTH;
    c.per_panel = c.slices;
    if (p->w.dtype != DTYPE_REAL && !c.as_stored && c.slices * c.slice * depth > PANEL)
        c.per_panel = PANEL / (c.slice * depth) > 1 ? PANEL / (c.slice * depth) : 1;
    return c;
}

static struct cut forward_cut(const struct product *p)
{
    return cut_of(p, p->out, p->in, p->x);
}

static struct cut input_cut(const struct product *p)
{
    return cut_of(p, p->in, p->out, p->dy);
}

// Scratch is a multiple of what the arena aligns to: so its padding does not depend on rows.
static int64_t whole_lines(int64_t numbers)
{
    enum { LINE = ARENA_ALIGN_BYTES / sizeof(float) };
    return tile_count(numbers, LINE) * LINE;
}

// Numbers of the panel, and of what each thread has: a tile, and behind it a room.
static int64_t panel_size(const struct product *p, const struct cut *c, int64_t depth)
{
    bool widens = p->w.dtype != DTYPE_REAL && !c->as_stored;
    return widens ? whole_lines(c->per_panel * c->slice * depth) : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// The largest tile of y, dx or dw.
static int64_t tile_size(const struct product *p)
{
    int64_t out = slice_of(p->out), in = slice_of(p->in);
    return whole_lines(larger(smaller(p->rows, ROW_TILE) * larger(out, in), out * in));
}

// Rows of x or dy as deep as a sum, or a slice of each of the two.
static int64_t room_size(const struct product *p)
{
    int64_t depth = smaller(larger(p->out, p->in), DEPTH);
    int64_t across = larger(depth, slice_of(p->out) + slice_of(p->in));
    return whole_lines(smaller(p->rows, ROW_TILE) * across);
}

static int64_t own_size(const struct product *p, bool widens, bool rounds)
{
    return widens ? tile_size(p) + room_size(p) : rounds ? tile_size(p) : 0;
}

// That a needs no room in its product with b.
static bool in_place(struct array a, struct array b)
{
    return a.dtype == DTYPE_REAL || taken_as_stored(a, b);
}

static int64_t forward_own(const struct product *p)
{
    return own_size(p, !in_place(p->x, p->w), p->y.dtype != DTYPE_REAL);
}

static int64_t backward_own(const struct product *p)
{
    bool widens = !in_place(p->dy, p->w) || !in_place(p->dy, p->x) || !in_place(p->x, p->dy);
    return own_size(p, widens, p->dx.dtype != DTYPE_REAL || p->dw.dtype != DTYPE_REAL);
}

int64_t product_forward_work_bytes(const struct product *p)
{
    struct cut c = forward_cut(p);
    return (panel_size(p, &c, p->in) + p->threads * forward_own(p)) * (int64_t)sizeof(real);
}

int64_t product_backward_work_bytes(const struct product *p)
{
    struct cut c = input_cut(p);
    return (panel_size(p, &c, p->out) + p->threads * backward_own(p)) * (int64_t)sizeof(real);
}

static real *own_of(const struct product *p, int64_t panel, int64_t own)
{
    return p->work != NULL ? p->work + panel + op_thread() * own : NULL;
}

// An operand of multiply: where it is, or widened into room.
static struct array operand(struct array a, int64_t from, int64_t rows, int64_t count,
                            int64_t stride, bool as_stored, real *room, int64_t *room_stride)
{
    *room_stride = stride;
    if (as_stored)
        return array_from(a, from);
    return array_of(array_read_rows(a, from, rows, count, stride, room, room_stride), DTYPE_REAL);
}

// c (m,n) = op(a) (m,k) op(b) (k,n) + beta c, of two operands that are stored alike.
static void multiply(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                     struct array a, int64_t stride_a, struct array b, int64_t stride_b, real beta,
                     real *c, int64_t stride_c)
{
    CHECK(a.dtype == b.dtype);
    if (a.dtype == DTYPE_REAL)
        blas_gemm(side_a, side_b, m, n, k, 1, a.at, stride_a, b.at, stride_b, beta, c, stride_c);
    else
        blas_gemm_bf16(side_a, side_b, m, n, k, 1, a.at, stride_a, b.at, stride_b, beta, c,
                       stride_c);
}

// Rows of tile number `tile`, counted over all samples.
static struct tile rows_of(const struct product *p, const struct cut *c, int64_t tile)
{
    int64_t tiles = tile_count(p->rows, c->row_tile);
    struct tile r = tile_at(tile % tiles, p->rows, c->row_tile);
    r.from += tile / tiles * p->rows;
    return r;
}

// ---- y = x w^T + b ---------------------------------------------------------------------

// Slices `first` to `end` of w, row by row: they are neighbours.
static struct array forward_panel(const struct product *p, const struct cut *c, int64_t first,
                                  int64_t end)
{
    if (p->w.dtype == DTYPE_REAL || c->as_stored)
        return array_from(p->w, first * c->slice * p->in);
    int64_t from = first * c->slice, to = end * c->slice < p->out ? end * c->slice : p->out;
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->in * p->out > TEAM)
    for (int64_t i = from; i < to; i++)
        array_read(p->w, i * p->in, p->in, p->work + (i - from) * p->in);
    return array_of(p->work, DTYPE_REAL);
}

static void forward_tile(const struct product *p, const struct cut *c, struct tile r, struct tile o,
                         struct array w, real *own)
{
    real bias[SLICE];
    const real *b = p->b.at != NULL ? array_read(p->b, o.from, o.count, bias) : NULL;
    int64_t stride, stride_x, at = r.from * p->out + o.from;
    real *y = array_open_rows(p->y, at, r.count, o.count, p->out, false, own, &stride);
    for (int64_t i = 0; b != NULL && i < r.count; i++)
        memcpy(y + i * stride, b, (size_t)o.count * sizeof(real));
    for (int64_t k = 0; k < p->in; k += c->depth) {
        int64_t count = p->in - k < c->depth ? p->in - k : c->depth;
        struct array x = operand(p->x, r.from * p->in + k, r.count, count, p->in, c->as_stored,
                                 op_part(own, tile_size(p)), &stride_x);
        // y = x w^T + b
        multiply(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, o.count, count, x, stride_x,
                 array_from(w, k), p->in, b != NULL || k > 0 ? 1 : 0, y, stride);
    }
    array_close_rows(p->y, at, r.count, o.count, p->out, y);
}

void product_forward(const struct product *p)
{
    struct cut c = forward_cut(p);
    int64_t panel = panel_size(p, &c, p->in), own = forward_own(p);
    for (int64_t first = 0; first < c.slices; first += c.per_panel) {
        int64_t end = first + c.per_panel < c.slices ? first + c.per_panel : c.slices;
        struct array w = forward_panel(p, &c, first, end);
        int64_t tasks = (end - first) * c.row_tiles;
#pragma omp parallel for schedule(dynamic) num_threads(p->threads) if (is_large(p))
        for (int64_t task = 0; task < tasks; task++) {
            int64_t s = task / c.row_tiles;
            forward_tile(p, &c, rows_of(p, &c, task % c.row_tiles),
                         tile_at(first + s, p->out, c.slice), array_from(w, s * c.slice * p->in),
                         own_of(p, panel, own));
        }
    }
}

// ---- dx += dy w ------------------------------------------------------------------------

// Column slices `first` to `end` of w, each (O, slice).
static void input_panel(const struct product *p, const struct cut *c, int64_t first, int64_t end)
{
    enum { ROWS = 64 };
    int64_t parts = tile_count(p->out, ROWS);
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->in * p->out > TEAM)
    for (int64_t task = 0; task < (end - first) * parts; task++) {
        int64_t s = task / parts, stride;
        struct tile rows = tile_at(task % parts, p->out, ROWS);
        struct tile k = tile_at(first + s, p->in, c->slice);
        array_read_rows(p->w, rows.from * p->in + k.from, rows.count, k.count, p->in,
                        p->work + s * c->slice * p->out + rows.from * k.count, &stride);
    }
}

// w: its slice of columns k.
static void input_tile(const struct product *p, const struct cut *c, struct tile r, struct tile k,
                       struct array w, int64_t stride_w, real *own)
{
    int64_t stride, stride_dy, at = r.from * p->in + k.from;
    real *dx = array_open_rows(p->dx, at, r.count, k.count, p->in, p->adds, own, &stride);
    for (int64_t o = 0; o < p->out; o += c->depth) {
        int64_t count = p->out - o < c->depth ? p->out - o : c->depth;
        struct array dy = operand(p->dy, r.from * p->out + o, r.count, count, p->out, c->as_stored,
                                  op_part(own, tile_size(p)), &stride_dy);
        // forward: y = x w^T + b
        multiply(BLAS_AS_IS, BLAS_AS_IS, r.count, k.count, count, dy, stride_dy,
                 array_from(w, o * stride_w), stride_w, p->adds || o > 0 ? 1 : 0, dx, stride);
    }
    array_close_rows(p->dx, at, r.count, k.count, p->in, dx);
}

void product_input_gradient(const struct product *p)
{
    struct cut c = input_cut(p);
    int64_t panel = panel_size(p, &c, p->out), own = backward_own(p);
    for (int64_t first = 0; first < c.slices; first += c.per_panel) {
        int64_t end = first + c.per_panel < c.slices ? first + c.per_panel : c.slices;
        if (panel > 0)
            input_panel(p, &c, first, end);
        int64_t tasks = (end - first) * c.row_tiles;
#pragma omp parallel for schedule(dynamic) num_threads(p->threads) if (is_large(p))
        for (int64_t task = 0; task < tasks; task++) {
            int64_t s = task / c.row_tiles;
            struct tile k = tile_at(first + s, p->in, c.slice);
            struct tile r = rows_of(p, &c, task % c.row_tiles);
            struct array w = panel > 0 ? array_of(p->work + s * c.slice * p->out, DTYPE_REAL)
                                       : array_from(p->w, k.from);
            input_tile(p, &c, r, k, w, panel > 0 ? k.count : p->in, own_of(p, panel, own));
        }
    }
}

// ---- dw += dy^T x, db += dy ------------------------------------------------------------

static void bias_tile(const struct product *p, struct tile o)
{
    real sum[SLICE], row[SLICE], *db = array_open(p->db, o.from, o.count, true, sum);
    for (int64_t i = 0; i < p->samples * p->rows; i++) {
        const real *dy = array_read(p->dy, i * p->out + o.from, o.count, row);
        // forward: y = x w^T + b
        for (int64_t j = 0; j < o.count; j++)
            db[j] += dy[j];
    }
    array_close(p->db, o.from, o.count, db);
}

static void weight_tile(const struct product *p, struct tile o, struct tile k, real *own)
{
    bool stored = taken_as_stored(p->dy, p->x);
    int64_t stride, stride_dy, stride_x, at = o.from * p->in + k.from;
    real *dw = array_open_rows(p->dw, at, o.count, k.count, p->in, true, own, &stride);
    int64_t tiles = tile_count(p->rows, ROW_TILE);
    for (int64_t i = 0; i < p->samples * tiles; i++) {
        struct tile r = tile_at(i % tiles, p->rows, ROW_TILE);
        r.from += i / tiles * p->rows;
        struct array dy = operand(p->dy, r.from * p->out + o.from, r.count, o.count, p->out, stored,
                                  op_part(own, tile_size(p)), &stride_dy);
        struct array x = operand(p->x, r.from * p->in + k.from, r.count, k.count, p->in, stored,
                                 op_part(own, tile_size(p) + r.count * o.count), &stride_x);
        // forward: y = x w^T + b
        multiply(BLAS_TRANSPOSED, BLAS_AS_IS, o.count, k.count, r.count, dy, stride_dy, x, stride_x,
                 1, dw, stride);
    }
    array_close_rows(p->dw, at, o.count, k.count, p->in, dw);
}

void product_weight_gradient(const struct product *p)
{
    int64_t out_slice = slice_of(p->out), in_slice = slice_of(p->in);
#ifdef TAPE_ONE_GEMM
    in_slice = p->in;
    out_slice = tile_count(p->out, p->threads);
#endif
    struct cut c = input_cut(p);
    int64_t panel = panel_size(p, &c, p->out), own = backward_own(p);
    int64_t in_slices = tile_count(p->in, in_slice);
#pragma omp parallel for schedule(dynamic) num_threads(p->threads) if (is_large(p))
    for (int64_t task = 0; task < tile_count(p->out, out_slice) * in_slices; task++) {
        struct tile o = tile_at(task / in_slices, p->out, out_slice);
        struct tile k = tile_at(task % in_slices, p->in, in_slice);
        if (p->dw.at != NULL)
            weight_tile(p, o, k, own_of(p, panel, own));
        if (p->db.at != NULL && k.from == 0)
            bias_tile(p, o);
    }
}
