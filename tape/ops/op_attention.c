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
    int64_t stride, size, time; // stride of q, k, v and their gradients
    int64_t width;              // stride of y and dy
    int64_t heads, index;       // index: h
    int64_t sample;             // in the effective batch
    real scale;
};

static struct head head_at(const struct node *n, int64_t task)
{
    int64_t width = n->out->dim[2], heads = n->args.heads, size = width / heads;
    int64_t time = n->out->dim[1], b = task / heads, h = task % heads;
    const real *q = n->in[0]->data + b * time * 3 * width + h * size;
    return (struct head){.q = q,
                         .k = q + width,
                         .v = q + 2 * width,
                         .stride = 3 * width,
                         .size = size,
                         .time = time,
                         .width = width,
                         .heads = heads,
                         .index = h,
                         .sample = n->first_sample + b,
                         .scale = (real)(1 / sqrt((double)size))};
}

static void attention_infer(struct tape *t, struct node *n)
{
    const struct tensor *qkv = n->in[0];
    int64_t heads = n->args.heads, b = qkv->dim[0], time = qkv->dim[1];
    CHECK(qkv->dim_count == 3 && qkv->dim[2] % (3 * heads) == 0);
    tensor_shape(n->out, 3, (int64_t[]){b, time, qkv->dim[2] / 3});
    n->out->saved_bytes = b * time * heads * (int64_t)sizeof(real);
    n->forward_work_bytes = t->threads * (int64_t)sizeof(real) * TILE;
    n->backward_work_bytes = t->threads * (int64_t)sizeof(real) * (2 * TILE + QUERIES);
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
        memset(y + r * w->width, 0, (size_t)w->size * sizeof(real));
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
                vec_scale(y + r * w->width, shrink, w->size);
            drop(n, w, i.from + r, j, p);
        }
        blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, s, KEYS,
                  w->v + from * w->stride, w->stride, 1, y, w->width);
    }
    for (int64_t r = 0; r < i.count; r++) {
        vec_scale(y + r * w->width, 1 / sum[r], w->size);
        lse[r * w->heads] = max[r] + (real)log((double)sum[r]);
    }
}

static void attention_forward(struct tape *t, struct node *n)
{
    int64_t tasks = n->out->dim[0] * n->args.heads;
    CHECK(n->forward_work_bytes == t->threads * (int64_t)sizeof(real) * TILE);
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < tasks; task++) {
        struct head w = head_at(n, task);
        int64_t row = task / w.heads * w.time;
        real *s = (real *)n->work + op_thread() * TILE;
        for (int64_t from = 0; from < w.time; from += QUERIES)
            queries_forward(n, &w, tile_at(from / QUERIES, w.time, QUERIES), s,
                            n->out->data + (row + from) * w.width + w.index * w.size,
                            n->out->saved + (row + from) * w.heads + w.index);
    }
}

// dq, dk, dv of one head have the layout of q, k, v.
struct head_grad {
    real *dq, *dk, *dv;
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
    const real *dy = g->dy + i.from * w->width;
    int64_t q = i.from * w->stride, k = j.from * w->stride;
    scores(w, i, j, g->p);
    blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, i.count, j.count, w->size, 1, dy, w->width, w->v + k,
              w->stride, 0, g->ds, KEYS);
    score_gradient(n, w, i, j, g);
    blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, j.count, w->size, i.count, 1, g->p, KEYS, dy, w->width,
              1, g->dv + k, w->stride);
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, g->ds, KEYS, w->k + k,
              w->stride, 1, g->dq + q, w->stride);
    blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, j.count, w->size, i.count, 1, g->ds, KEYS, w->q + q,
              w->stride, 1, g->dk + k, w->stride);
}

static void head_backward(const struct node *n, const struct head *w, const struct head_grad *g,
                          bool adds)
{
    size_t bytes = (size_t)w->size * sizeof(real);
    for (int64_t row = 0; !adds && row < w->time; row++) {
        memset(g->dq + row * w->stride, 0, bytes);
        memset(g->dk + row * w->stride, 0, bytes);
        memset(g->dv + row * w->stride, 0, bytes);
    }
    for (int64_t from = 0; from < w->time; from += QUERIES) {
        struct tile i = tile_at(from / QUERIES, w->time, QUERIES);
        for (int64_t r = 0; r < i.count; r++)
            g->delta[r] =
                vec_dot(g->dy + (from + r) * w->width, g->y + (from + r) * w->width, w->size);
        for (int64_t at = 0; at < i.from + i.count; at += KEYS)
            tile_backward(n, w, i, tile_at(at / KEYS, w->time, KEYS), g);
    }
}

static void attention_backward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    int64_t tasks = n->out->dim[0] * n->args.heads;
#pragma omp parallel for schedule(dynamic) num_threads(t->threads)
    for (int64_t task = 0; task < tasks; task++) {
        struct head w = head_at(n, task);
        int64_t row = task / w.heads * w.time, at = row * w.width + w.index * w.size;
        real *dq = n->dx[0] + row * w.stride + w.index * w.size;
        real *work = (real *)n->work + op_thread() * (2 * TILE + QUERIES);
        struct head_grad g = {.dq = dq,
                              .dk = dq + w.width,
                              .dv = dq + 2 * w.width,
                              .y = n->out->data + at,
                              .dy = n->dy + at,
                              .lse = n->out->saved + row * w.heads + w.index,
                              .p = work,
                              .ds = work + TILE,
                              .delta = work + 2 * TILE};
        head_backward(n, &w, &g, n->adds[0]);
    }
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
