// op_cached_attention.c - causal attention of T new positions over themselves and all before them,
// whose keys and values are in a cache. For generation: forward only.
//
//   cache[first + i] = k_i, v_i;   y_i = sum p v,  p = softmax(q_i k^T / sqrt(D)), rows 0..first+i
//
// The cache holds numbers as activations are stored. It is an input that forward writes: rows first
// and on, nothing else. Keeps nothing. A head is one thread's work from begin to end, tiles in
// order: it stores its own columns, then attends QUERIES x KEYS scores at a time. Scratch does not
// grow with the text.
#include "tape/blas.h"
#include "tape/ops/ops_int.h"

enum { QUERIES = 64, KEYS = 64, TILE = QUERIES * KEYS };

struct head {
    struct array qkv, keys, values, y; // from the head's first column on
    int64_t width, size, first, count; // C, D, positions before the new ones, new ones
    real scale;
    real *s, *q_room, *kv_room, *y_room; // scratch: scores, and tiles that are not stored as real
};

static int64_t work_reals(const struct node *n)
{
    int64_t size = n->out->dim[2] / n->args.heads;
    return TILE + (n->out->dtype == DTYPE_REAL ? 0 : (2 * QUERIES + KEYS) * size);
}

static void cached_attention_infer(struct tape *t, struct node *n)
{
    const struct tensor *qkv = n->in[0];
    int64_t heads = n->args.heads, count = qkv->dim[1], width = qkv->dim[2] / 3;
    int64_t seen = n->args.first + count;
    CHECK(qkv->dim_count == 3 && qkv->dim[0] == 1 && qkv->dim[2] % (3 * heads) == 0);
    for (int i = 1; i < 3; i++) {
        const struct tensor *cache = n->in[i];
        CHECK(cache->is_persistent && cache->dtype == qkv->dtype && cache->dim_count == 2);
        CHECK(n->args.first >= 0 && cache->dim[0] >= seen && cache->dim[1] == width);
    }
    CHECK(n->out->dtype == qkv->dtype);
    tensor_shape(n->out, 3, (int64_t[]){1, count, width});
    n->forward_work_bytes = t->threads * work_reals(n) * (int64_t)sizeof(real);
    int64_t pairs = count * n->args.first + count * (count + 1) / 2;
    n->forward_flops = 4 * width * pairs + 10 * heads * pairs;
}

static struct head head_at(const struct node *n, int64_t h)
{
    int64_t width = n->out->dim[2], size = width / n->args.heads;
    real *work = (real *)n->work + op_thread() * work_reals(n);
    return (struct head){.qkv = array_from(tensor_data(n->in[0]), h * size),
                         .keys = array_from(tensor_data(n->in[1]), h * size),
                         .values = array_from(tensor_data(n->in[2]), h * size),
                         .y = array_from(tensor_data(n->out), h * size),
                         .width = width,
                         .size = size,
                         .first = n->args.first,
                         .count = n->out->dim[1],
                         .scale = (real)(1 / sqrt((double)size)),
                         .s = work,
                         .q_room = work + TILE,
                         .y_room = work + TILE + QUERIES * size,
                         .kv_room = work + TILE + 2 * QUERIES * size};
}

// The new positions' keys (part 1) or values (2), bits as they are.
static void store(const struct head *w, struct array cache, int part)
{
    size_t bytes = (size_t)(w->size * dtype_bytes(cache.dtype));
    for (int64_t i = 0; i < w->count; i++)
        memcpy(array_from(cache, (w->first + i) * w->width).at,
               array_from(w->qkv, (3 * i + part) * w->width).at, bytes);
}

static const real *read_tile(const struct head *w, struct array cache, struct tile j,
                             int64_t *stride)
{
    return array_read_rows(cache, j.from * w->width, j.count, w->size, w->width, w->kv_room,
                           stride);
}

// s = scale q k^T for one tile; keys beyond the query get -infinity.
static void scores(const struct head *w, struct tile i, struct tile j, const real *q,
                   int64_t q_stride)
{
    int64_t k_stride;
    const real *k = read_tile(w, w->keys, j, &k_stride);
    blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, i.count, j.count, w->size, w->scale, q, q_stride, k,
              k_stride, 0, w->s, KEYS);
    for (int64_t r = 0; r < i.count; r++) {
        int64_t seen = w->first + i.from + r + 1 - j.from; // of this tile's keys
        for (int64_t c = seen > 0 ? seen : 0; c < j.count; c++)
            w->s[r * KEYS + c] = -(real)INFINITY;
    }
}

// One tile of queries: running maximum, running sum, rescaled output.
static void attend(const struct head *w, struct tile i)
{
    real max[QUERIES], sum[QUERIES];
    int64_t q_stride, v_stride, y_stride, seen = w->first + i.from + i.count;
    const real *q = array_read_rows(w->qkv, i.from * 3 * w->width, i.count, w->size, 3 * w->width,
                                    w->q_room, &q_stride);
    real *y = array_open_rows(w->y, i.from * w->width, i.count, w->size, w->width, false, w->y_room,
                              &y_stride);
    for (int64_t r = 0; r < i.count; r++) {
        max[r] = -(real)INFINITY;
        sum[r] = 0;
        memset(y + r * y_stride, 0, (size_t)w->size * sizeof(real));
    }
    for (int64_t from = 0; from < seen; from += KEYS) {
        struct tile j = tile_at(from / KEYS, seen, KEYS);
        scores(w, i, j, q, q_stride);
        for (int64_t r = 0; r < i.count; r++) {
            real *p = w->s + r * KEYS, top = vec_max(p, j.count);
            top = top > max[r] ? top : max[r];
            real shrink = vec_exp(max[r] - top);
#pragma omp simd
            for (int64_t c = 0; c < j.count; c++)
                p[c] = vec_exp(p[c] - top);
            sum[r] = sum[r] * shrink + vec_sum(p, j.count);
            max[r] = top;
            vec_scale(y + r * y_stride, shrink, w->size);
        }
        const real *v = read_tile(w, w->values, j, &v_stride);
        blas_gemm(BLAS_AS_IS, BLAS_AS_IS, i.count, w->size, j.count, 1, w->s, KEYS, v, v_stride, 1,
                  y, y_stride);
    }
    for (int64_t r = 0; r < i.count; r++)
        vec_scale(y + r * y_stride, 1 / sum[r], w->size);
    array_close_rows(w->y, i.from * w->width, i.count, w->size, w->width, y);
}

static void cached_attention_forward(struct tape *t, struct node *n)
{
    int64_t heads = n->args.heads, count = n->out->dim[1];
    CHECK(n->forward_work_bytes == t->threads * work_reals(n) * (int64_t)sizeof(real));
#pragma omp parallel for schedule(dynamic)                                                         \
    num_threads(t->threads) if (n->forward_flops > 32 * PARALLEL_MIN)
    for (int64_t h = 0; h < heads; h++) {
        struct head w = head_at(n, h);
        store(&w, w.keys, 1);
        store(&w, w.values, 2);
        for (int64_t from = 0; from < count; from += QUERIES)
            attend(&w, tile_at(from / QUERIES, count, QUERIES));
    }
}

const struct op op_cached_attention_desc = {
    .name = "cached_attention",
    .formula = "y = softmax(q k^T / sqrt(D), causal) v, k v cached",
    .keeps = "nothing: it is for inference; keys and values go into the cache",
    .forward_only = true,
    .cost = COST_ATTENTION,
    .infer = cached_attention_infer,
    .forward = {cached_attention_forward},
};

struct tensor *(op_cached_attention)(struct tape *t, struct tensor *qkv, struct tensor *keys,
                                     struct tensor *values, int64_t heads, int64_t first)
{
    struct op_args args = {.heads = heads, .first = first};
    return tape_apply(t, &op_cached_attention_desc, 3, (struct tensor *[]){qkv, keys, values},
                      &args);
}
