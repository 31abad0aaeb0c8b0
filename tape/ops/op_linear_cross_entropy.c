// op_linear_cross_entropy.c - the loss of logits l = x w^T that never exist whole.
//
//   forward    loss[b] = sum over the rows of sample b of logsumexp(l) - l[target]
//   backward   dl = dloss[b] (softmax(l) - [v = target]),  dx += dl w,  dw += dl^T x
//
// linear and cross_entropy, some rows at a time: the (B,T,V) tensor becomes scratch for one chunk.
// A chunk is a multiple of a product's row tiles of one sample, or whole samples where those are
// small, so every tile is the one of the plain pair and has its bits: losses, dx and dw are equal
// (where dw is stored as bf16 each chunk rounds it). Forward keeps no gradient: whether one is
// wanted, and times what, is known in backward, which computes the logits again. That costs one
// more product of the head; keeping dw apart would cost as many bytes as the weights.
#include "tape/ops/cross_entropy_int.h"
#include "tape/ops/product_int.h"

enum { CHUNK = 1 << 22 }; // numbers of logits, if that is a row tile

// Which rows are together: `rows` each of `samples` samples, from row `first` of all on.
struct chunk {
    int64_t first, samples, rows;
};

static int64_t rows_at_once(const struct tensor *x, int64_t cols)
{
    int64_t rows = CHUNK / cols / PRODUCT_ROWS * PRODUCT_ROWS, time = tensor_rows(x);
    if (rows < PRODUCT_ROWS)
        rows = PRODUCT_ROWS;
    return rows < time ? rows : time;
}

static int64_t samples_at_once(const struct tensor *x, int64_t cols)
{
    int64_t time = tensor_rows(x), most = CHUNK / cols / time;
    if (rows_at_once(x, cols) < time || most < 1)
        return 1;
    return most < tensor_samples(x) ? most : tensor_samples(x);
}

static int64_t chunk_count(const struct tensor *x, int64_t cols)
{
    return tile_count(tensor_samples(x), samples_at_once(x, cols)) *
           tile_count(tensor_rows(x), rows_at_once(x, cols));
}

static struct chunk chunk_at(const struct tensor *x, int64_t cols, int64_t index)
{
    int64_t parts = tile_count(tensor_rows(x), rows_at_once(x, cols));
    struct tile b = tile_at(index / parts, tensor_samples(x), samples_at_once(x, cols));
    struct tile r = tile_at(index % parts, tensor_rows(x), rows_at_once(x, cols));
    return (struct chunk){b.from * tensor_rows(x) + r.from, b.count, r.count};
}

// Scratch: a loss for each row, the logits of a chunk, a row as reals for each thread if logits are
// not stored so, and what the product wants.
struct scratch {
    double *loss;
    struct array logits;
    real *rows, *product;
};

static int64_t logits_bytes(const struct tape *t, const struct node *n)
{
    const struct tensor *x = n->in[0];
    int64_t cols = n->in[1]->dim[0], width = dtype_bytes(t->activation_dtype);
    int64_t bytes = samples_at_once(x, cols) * rows_at_once(x, cols) * cols * width;
    return tile_count(bytes, ARENA_ALIGN_BYTES) * ARENA_ALIGN_BYTES;
}

static int64_t rows_bytes(const struct tape *t, const struct node *n)
{
    bool stored = t->activation_dtype != DTYPE_REAL;
    return stored ? t->threads * n->in[1]->dim[0] * (int64_t)sizeof(real) : 0;
}

static int64_t loss_bytes(const struct node *n)
{
    return tensor_samples(n->in[0]) * tensor_rows(n->in[0]) * (int64_t)sizeof(double);
}

static struct scratch scratch_of(const struct tape *t, const struct node *n)
{
    struct scratch s = {.loss = n->work};
    char *at = (char *)n->work + loss_bytes(n);
    s.logits = array_of(at, t->activation_dtype);
    at += logits_bytes(t, n);
    s.rows = rows_bytes(t, n) > 0 ? (real *)(void *)at : NULL;
    s.product = (real *)(void *)(at + rows_bytes(t, n));
    return s;
}

static struct product product_of(const struct tape *t, const struct node *n, struct chunk c,
                                 struct array logits, real *work)
{
    const struct tensor *x = n->in[0], *w = n->in[1];
    int64_t at = c.first * w->dim[1];
    return (struct product){.samples = c.samples,
                            .rows = c.rows,
                            .in = w->dim[1],
                            .out = w->dim[0],
                            .x = array_from(tensor_data(x), at),
                            .w = tensor_data(w),
                            .b = array_of(NULL, DTYPE_REAL),
                            .y = logits,
                            .dy = logits,
                            .dx = array_from(op_dx(n, 0), at),
                            .dw = op_dx(n, 1),
                            .db = array_of(NULL, DTYPE_REAL),
                            .adds = n->adds[0],
                            .threads = t->threads,
                            .work = work};
}

static void linear_cross_entropy_infer(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0], *w = n->in[1];
    CHECK(x->dim_count >= 2 && w->dim_count == 2 && tensor_cols(x) == w->dim[1]);
    tensor_shape(n->out, 1, (int64_t[]){tensor_samples(x)});
    struct array logits = array_of(NULL, t->activation_dtype);
    struct product p = product_of(t, n, chunk_at(x, w->dim[0], 0), logits, NULL);
    int64_t common = loss_bytes(n) + logits_bytes(t, n) + rows_bytes(t, n);
    int64_t forward = product_forward_work_bytes(&p), backward = product_backward_work_bytes(&p);
    n->forward_work_bytes = common + forward;
    n->backward_work_bytes = common + (forward > backward ? forward : backward);
    int64_t rows = tensor_samples(x) * tensor_rows(x), product = 2 * rows * w->dim[0] * w->dim[1];
    n->forward_flops = product + 10 * rows * w->dim[0];
    n->backward_flops = n->forward_flops + (x->wants_grad ? product : 0) +
                        (w->wants_grad ? product : 0) + rows * w->dim[0];
}

// The chunk's logits, turned into the gradient of an unscaled loss; s->loss has its rows' losses.
static void chunk_forward(const struct tape *t, const struct node *n, struct chunk c,
                          const struct scratch *s)
{
    int64_t cols = n->in[1]->dim[0];
    const int32_t *targets = n->args.ids + c.first;
    struct product p = product_of(t, n, c, s->logits, s->product);
    product_forward(&p);
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < c.samples * c.rows; i++) {
        struct array row = array_from(s->logits, i * cols);
        s->loss[c.first + i] =
            cross_entropy_row(row, cols, targets[i], row, op_part(s->rows, op_thread() * cols));
    }
}

static void linear_cross_entropy_forward(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0];
    struct scratch s = scratch_of(t, n);
    int64_t cols = n->in[1]->dim[0], rows = tensor_rows(x);
    cross_entropy_check(n->args.ids, tensor_samples(x) * rows, cols);
    for (int64_t k = 0; k < chunk_count(x, cols); k++)
        chunk_forward(t, n, chunk_at(x, cols, k), &s);
    for (int64_t b = 0; b < tensor_samples(x); b++)
        n->out->data[b] = (real)cross_entropy_sum(s.loss + b * rows, rows);
}

static void linear_cross_entropy_backward(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0];
    struct scratch s = scratch_of(t, n);
    int64_t cols = n->in[1]->dim[0], rows = tensor_rows(x);
    op_start_sum(n, 1);
    for (int64_t k = 0; k < chunk_count(x, cols); k++) {
        struct chunk c = chunk_at(x, cols, k);
        chunk_forward(t, n, c, &s);
#pragma omp parallel for schedule(static) num_threads(t->threads)
        for (int64_t i = 0; i < c.samples * c.rows; i++)
            // forward: n->out->data[b] = (real)cross_entropy_sum(s.loss + b * rows, rows);
            cross_entropy_scale(array_from(s.logits, i * cols), cols, n->dy[(c.first + i) / rows]);
        struct product p = product_of(t, n, c, s.logits, s.product);
        // forward: product_forward(&p);
        if (p.dx.at != NULL)
            product_input_gradient(&p);
        if (p.dw.at != NULL)
            product_weight_gradient(&p);
    }
}

const struct op op_linear_cross_entropy_desc = {
    .name = "linear_cross_entropy",
    .formula = "loss[b] = sum over rows of logsumexp(x w^T) - (x w^T)[target]",
    .keeps = "x and w: the logits are made again, some rows at a time",
    .needs = {NEEDS_IN0 | NEEDS_IN1, NEEDS_IN0 | NEEDS_IN1},
    .cost = COST_GEMM,
    .wide_out = true,
    .infer = linear_cross_entropy_infer,
    .forward = {linear_cross_entropy_forward},
    .backward = {linear_cross_entropy_backward},
};

struct tensor *(op_linear_cross_entropy)(struct tape *t, struct tensor *x, struct tensor *w,
                                         const int32_t *targets)
{
    struct op_args args = {.ids = targets};
    return tape_apply(t, &op_linear_cross_entropy_desc, 2, (struct tensor *[]){x, w}, &args);
}
