// op_attention.c - causal attention by tiles; no T x T matrix exists (Dao et al. 2022).
//
//   s = q.k / sqrt(D),  p = exp(s - lse),  y = sum (p m) v,  lse = log sum exp s   per row and head
//   delta = dy.y;  ds = p (m dy.v - delta) / sqrt(D);  dq += ds k,  dk += ds^T q,  dv += (p m)^T dy
//
// m is the dropout mask divided by 1 - rate (1 without dropout), drawn where it is needed.
// Keeps its input qkv, its output y and lse (one number per row and head). A head of a sample is
// one thread's work from begin to end, tiles in order: QUERIES x KEYS scores at a time.
#include "tape/blas.h"
#include "tape/ops/dropout_int.h"

enum { QUERIES = 64, KEYS = 64, TILE = QUERIES * KEYS };

struct head { // one head of one sample
    const real *q, *k, *v;
    int64_t stride, size, time; // stride of q, k, v
    int64_t y_stride;           // of y and dy
    int64_t heads, index;       // index: h
    int64_t sample;             // in the effective batch
    real scale;
};

// Where a head of a sample lies: its first element in qkv (q; k and v follow a width each) and in
// y.
struct place {
    int64_t width, qkv, y, row;
};

static struct place place_of(const struct node *n, int64_t task)
{
    int64_t width = n->out->dim[2], heads = n->args.heads, time = n->out->dim[1];
    int64_t row = task / heads * time, column = task % heads * (width / heads);
    return (struct place){width, row * 3 * width + column, row * width + column, row};
}

// q, k and v as reals: where they are, or widened in room (3 T D numbers).
static struct head head_at(const struct node *n, int64_t task, real *room)
{
    struct place at = place_of(n, task);
    int64_t heads = n->args.heads, time = n->out->dim[1], part = time * (at.width / heads);
    struct head w = {.size = at.width / heads,
                     .time = time,
                     .heads = heads,
                     .index = task % heads,
                     .sample = n->first_sample + task / heads,
                     .scale = (real)(1 / sqrt((double)(at.width / heads)))};
    const real *of[3];
    for (int i = 0; i < 3; i++)
        of[i] = array_read_rows(tensor_data(n->in[0]), at.qkv + i * at.width, time, w.size,
                                3 * at.width, op_part(room, i * part), &w.stride);
    w.q = of[0], w.k = of[1], w.v = of[2];
    return w;
}

// Numbers of room that a head takes where something is stored as bf16: T D of each of `parts`.
static int64_t room_size(const struct node *n, int parts)
{
    bool stored = n->in[0]->dtype != DTYPE_REAL || n->out->dtype != DTYPE_REAL ||
                  n->in[0]->grad_dtype != DTYPE_REAL;
    return stored ? parts * n->out->dim[1] * (n->out->dim[2] / n->args.heads) : 0;
}

// Of each thread: a tile of scores, then q, k, v, y. Two tiles and a row of delta, then q, k, v, y,
// dy, dq, dk, dv.
static int64_t forward_room(const struct node *n)
{
    return TILE + room_size(n, 4);
}

static int64_t backward_room(const struct node *n)
{
    return 2 * TILE + QUERIES + room_size(n, 8);
}

static void attention_infer(struct tape *t, struct node *n)
{
    const struct tensor *qkv = n->in[0];
    int64_t heads = n->args.heads, b = qkv->dim[0], time = qkv->dim[1];
    CHECK(qkv->dim_count == 3 && qkv->dim[2] % (3 * heads) == 0);
    tensor_shape(n->out, 3, (int64_t[]){b, time, qkv->dim[2] / 3});
    n->out->saved_bytes = b * time * heads * (int64_t)sizeof(real);
    n->forward_work_bytes = t->threads * (int64_t)sizeof(real) * forward_room(n);
    n->backward_work_bytes = t->threads * (int64_t)sizeof(real) * backward_room(n);
    // Two products forward and five backward over the lower triangle of tiles.
    int64_t full = time / QUERIES, rest = time % QUERIES; // KEYS is QUERIES
    int64_t pairs = QUERIES * KEYS * (full * (full + 1) / 2) + rest * time;
    int64_t product = 2 * b * (qkv->dim[2] / 3) * pairs;
    n->forward_flops = 2 * product + 10 * b * heads * pairs;
    n->backward_flops = 5 * product + 14 * b * heads * pairs;
}

// s = scale q k^T for one tile; keys beyond the query get -infinity.
static void scores(const struct head *w, struct tile i, struct tile j, real *s)
{
    blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, i.count, j.count, w->size, w->scale,
              w->q + i.from * w->stride, w->stride, w->k + j.from * w->stride, w->stride, 0, s,
              KEYS);
    for (int64_t r = 0; r < i.count; r++)
        for (int64_t c = i.from + r + 1 > j.from ? i.from + r + 1 - j.from : 0; c < j.count; c++)
            s[r * KEYS + c] = -(real)INFINITY;
}

// p *= m for one row of a tile.
static void drop(const struct node *n, const struct head *w, int64_t row, struct tile j, real *p)
{
    if (n->args.rate <= 0)
        return;
    uint64_t key = dropout_row_key(n->args.key, w->sample, w->index * w->time + row);
    uint32_t threshold = dropout_threshold(n->args.rate);
    real factor = dropout_factor(n->args.rate);
    for (int64_t c = 0; c < j.count; c++)
        p[c] *= rng_u32(key, (uint32_t)(j.from + c)) < threshold ? 0 : factor;
}

// One tile of queries: running maximum, running sum, rescaled output.
static void queries_forward(const struct node *n, const struct head *w, struct tile i, real *s,
                            real *y, real *lse)
{
    real max[QUERIES], sum[QUERIES];
    for (int64_t r = 0; r < i.count; r++) {
        max[r] = -(real)INFINITY;
        sum[r] = 0;
        memset(y + r * w->y_stride, 0, (size_t)w->size * sizeof(real));
    }
    for (int64_t from = 0; from < i.from + i.count; from += KEYS) {
        struct tile j = tile_at(from / KEYS, w->time, KEYS);
        scores(w, i, j, s);
        for (int64_t r = 0; r < i.count; r++) {
            real *p = s + r * KEYS, top = vec_max(p, j.count);
            top = top > max[r] ? top : max[r];
            real shrink = vec_exp(max[r] - top);
#pragma omp simd
            for (int64_t c = 0; c < j.count; c++)
                p[c] = vec_exp(p[c] - top);
            sum[r] = sum[r] * shrink + vec_sum(p, j.count);
            max[r] = top;
            if (from > 0)
                vec_scale(y + r * w->y_stride, shrink, w->size);
            drop(n, w, i.from + r, j, p);
        }
        blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, s, KEYS,
                  w->v + from * w->stride, w->stride, 1, y, w->y_stride);
    }
    for (int64_t r = 0; r < i.count; r++) {
        vec_scale(y + r * w->y_stride, 1 / sum[r], w->size);
        lse[r * w->heads] = max[r] + (real)log((double)sum[r]);
    }
}

static void attention_forward(struct tape *t, struct node *n)
{
    int64_t tasks = n->out->dim[0] * n->args.heads;
    CHECK(n->forward_work_bytes == t->threads * (int64_t)sizeof(real) * forward_room(n));
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < tasks; task++) {
        real *s = (real *)n->work + op_thread() * forward_room(n), *room = s + TILE;
        struct place at = place_of(n, task);
        struct head w = head_at(n, task, room);
        real *y = array_open_rows(tensor_data(n->out), at.y, w.time, w.size, at.width, false,
                                  room + room_size(n, 3), &w.y_stride);
        real *lse = n->out->saved + at.row * w.heads + w.index;
        for (int64_t from = 0; from < w.time; from += QUERIES)
            queries_forward(n, &w, tile_at(from / QUERIES, w.time, QUERIES), s,
                            y + from * w.y_stride, lse + from * w.heads);
        array_close_rows(tensor_data(n->out), at.y, w.time, w.size, at.width, y);
    }
}

struct head_grad {
    real *dq, *dk, *dv;
    int64_t stride; // of the three
    const real *y, *dy, *lse;
    real *p, *ds, *delta; // scratch: two tiles and a row
};

// ds (p) turns into p (m dp - delta) scale, p into p m. dp is in ds.
static void score_gradient(const struct node *n, const struct head *w, struct tile i, struct tile j,
                           const struct head_grad *g)
{
    for (int64_t r = 0; r < i.count; r++) {
        real *p = g->p + r * KEYS, *ds = g->ds + r * KEYS;
        real lse = g->lse[(i.from + r) * w->heads], delta = g->delta[r];
#pragma omp simd
        for (int64_t c = 0; c < j.count; c++)
            p[c] = vec_exp(p[c] - lse);
        drop(n, w, i.from + r, j, ds);
        for (int64_t c = 0; c < j.count; c++)
            ds[c] = p[c] * (ds[c] - delta) * w->scale;
        drop(n, w, i.from + r, j, p);
    }
}

static void tile_backward(const struct node *n, const struct head *w, struct tile i, struct tile j,
                          const struct head_grad *g)
{
    const real *dy = g->dy + i.from * w->y_stride;
    const real *q = w->q + i.from * w->stride, *k = w->k + j.from * w->stride;
    const real *v = w->v + j.from * w->stride;
    scores(w, i, j, g->p);
    // forward: blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, s, KEYS, w->v
    blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, i.count, j.count, w->size, 1, dy, w->y_stride, v,
              w->stride, 0, g->ds, KEYS);
    score_gradient(n, w, i, j, g);
    blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, j.count, w->size, i.count, 1, g->p, KEYS, dy,
              w->y_stride, 1, g->dv + j.from * g->stride, g->stride);
    // forward: blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, i.count, j.count, w->size, w->scale, w->q
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, g->ds, KEYS, k, w->stride, 1,
              g->dq + i.from * g->stride, g->stride);
    blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, j.count, w->size, i.count, 1, g->ds, KEYS, q, w->stride,
              1, g->dk + j.from * g->stride, g->stride);
}

static void head_backward(const struct node *n, const struct head *w, const struct head_grad *g,
                          bool adds)
{
    size_t bytes = (size_t)w->size * sizeof(real);
    for (int64_t row = 0; !adds && row < w->time; row++) {
        memset(g->dq + row * g->stride, 0, bytes);
        memset(g->dk + row * g->stride, 0, bytes);
        memset(g->dv + row * g->stride, 0, bytes);
    }
    for (int64_t from = 0; from < w->time; from += QUERIES) {
        struct tile i = tile_at(from / QUERIES, w->time, QUERIES);
        for (int64_t r = 0; r < i.count; r++)
            g->delta[r] =
                vec_dot(g->dy + (from + r) * w->y_stride, g->y + (from + r) * w->y_stride, w->size);
        for (int64_t at = 0; at < i.from + i.count; at += KEYS)
            tile_backward(n, w, i, tile_at(at / KEYS, w->time, KEYS), g);
    }
}

// One head, with its rooms: q, k, v, y, dy, dq, dk, dv.
static void task_backward(struct node *n, int64_t task, real *work)
{
    struct place at = place_of(n, task);
    real *room = work + 2 * TILE + QUERIES, *d[3];
    struct head w = head_at(n, task, room);
    struct head_grad g = {.p = work, .ds = work + TILE, .delta = work + 2 * TILE};
    g.lse = n->out->saved + at.row * w.heads + w.index;
    g.y = array_read_rows(tensor_data(n->out), at.y, w.time, w.size, at.width,
                          room + room_size(n, 3), &w.y_stride);
    g.dy = array_read_rows(op_dy(n), at.y, w.time, w.size, at.width, room + room_size(n, 4),
                           &w.y_stride);
    for (int i = 0; i < 3; i++)
        d[i] = array_open_rows(op_dx(n, 0), at.qkv + i * at.width, w.time, w.size, 3 * at.width,
                               n->adds[0], room + room_size(n, 5 + i), &g.stride);
    g.dq = d[0], g.dk = d[1], g.dv = d[2];
    head_backward(n, &w, &g, n->adds[0]);
    for (int i = 0; i < 3; i++)
        array_close_rows(op_dx(n, 0), at.qkv + i * at.width, w.time, w.size, 3 * at.width, d[i]);
}

static void attention_backward(struct tape *t, struct node *n)
{
    int64_t tasks = n->out->dim[0] * n->args.heads;
    CHECK(n->backward_work_bytes == t->threads * (int64_t)sizeof(real) * backward_room(n));
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < tasks; task++)
        task_backward(n, task, (real *)n->work + op_thread() * backward_room(n));
}

const struct op op_attention_desc = {
    .name = "attention",
    .formula = "y = softmax(q k^T / sqrt(D), causal) v",
    .keeps = "q, k, v, y, and each row's log of the sum of exp: scores are made again by tiles",
    .saved_name = "log-sum-exp",
    .needs = {NEEDS_IN0 | NEEDS_OUT},
    .cost = COST_ATTENTION,
    .infer = attention_infer,
    .forward = {attention_forward},
    .backward = {attention_backward},
};

struct tensor *(op_attention)(struct tape *t, struct tensor *qkv, int64_t heads, double rate,
                              uint64_t key)
{
    struct op_args args = {.heads = heads, .rate = rate, .key = key};
    return tape_apply(t, &op_attention_desc, 1, (struct tensor *[]){qkv}, &args);
}
