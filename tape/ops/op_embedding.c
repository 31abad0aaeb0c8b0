// op_embedding.c - y[b][t] = token[ids[b][t]] + position[first + t]; first is 0 but in generation.
// The position table may be NULL.
//
//   dtoken[row of the id] += dy[b][t],  dposition[first + t] += dy[b][t]  in the order of b, then t
//
// With `slots`, the gradient of the token table is compact: one row per id that occurs, and slots
// says which. A gradient stored as bf16 is rounded at each occurrence of its id; a compact one of
// reals, joined later, once. A tied table uses it: its head and its embedding then have an
// accumulator each.
#include "tape/ops/ops_int.h"

static void embedding_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *token = n->in[0];
    CHECK(token->dim_count == 2);
    if (n->in_count == 2)
        CHECK(n->in[1]->dim[0] >= n->args.first + n->args.length &&
              n->in[1]->dim[1] == token->dim[1]);
    tensor_shape(n->out, 3, (int64_t[]){n->args.samples, n->args.length, token->dim[1]});
    n->forward_flops = n->in_count == 2 ? tensor_count(n->out) : 0;
    n->backward_flops = n->in_count * tensor_count(n->out);
}

static void embedding_forward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), length = n->args.length, rows = n->args.samples * length;
    int64_t vocabulary = n->in[0]->dim[0];
    for (int64_t i = 0; i < rows; i++)
        CHECK(n->args.ids[i] >= 0 && n->args.ids[i] < vocabulary);
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0; at < cols; at += ARRAY_PIECE) {
            int64_t count = array_piece(at, cols);
            real room[3][ARRAY_PIECE];
            const real *token =
                array_read(tensor_data(n->in[0]), n->args.ids[i] * cols + at, count, room[0]);
            const real *position = NULL;
            if (n->in_count == 2)
                position = array_read(tensor_data(n->in[1]),
                                      (n->args.first + i % length) * cols + at, count, room[1]);
            real *y = array_open(tensor_data(n->out), i * cols + at, count, false, room[2]);
            for (int64_t j = 0; j < count; j++)
                y[j] = token[j] + (position != NULL ? position[j] : 0);
            array_close(tensor_data(n->out), i * cols + at, count, y);
        }
}

// to[row] += dy[i], columns c of both.
static void add_row(const struct node *n, struct array to, int64_t row, int64_t i, struct tile c)
{
    int64_t cols = tensor_cols(n->out);
    real room[COLUMN_TILE], sum[COLUMN_TILE];
    const real *dy = array_read(op_dy(n), i * cols + c.from, c.count, room);
    real *at = array_open(to, row * cols + c.from, c.count, true, sum);
    // forward: y[j] = token[j] + (position != NULL ? position[j] : 0)
    for (int64_t j = 0; j < c.count; j++)
        at[j] += dy[j];
    array_close(to, row * cols + c.from, c.count, at);
}

// A position's sum over the samples is rounded once.
static void add_position(const struct node *n, int64_t position, struct tile c)
{
    int64_t cols = tensor_cols(n->out), length = n->args.length;
    real room[COLUMN_TILE], sum[COLUMN_TILE];
    int64_t row = n->args.first + position;
    real *to = array_open(op_dx(n, 1), row * cols + c.from, c.count, true, sum);
    for (int64_t b = 0; b < n->args.samples; b++) {
        const real *dy =
            array_read(op_dy(n), (b * length + position) * cols + c.from, c.count, room);
        // forward: y[j] = token[j] + (position != NULL ? position[j] : 0)
        for (int64_t j = 0; j < c.count; j++)
            to[j] += dy[j];
    }
    array_close(op_dx(n, 1), row * cols + c.from, c.count, to);
}

static void embedding_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), length = n->args.length, rows = n->args.samples * length;
    for (int i = 0; i < n->in_count; i++)
        op_start_sum(n, i);
    const int32_t *row_of = n->args.slots != NULL ? n->args.slots : n->args.ids;
    int64_t tiles = tile_count(cols, COLUMN_TILE);
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t k = 0; k < tiles; k++) {
        struct tile c = tile_at(k, cols, COLUMN_TILE);
        for (int64_t i = 0; n->dx[0] != NULL && i < rows; i++)
            add_row(n, op_dx(n, 0), row_of[i], i, c);
        for (int64_t i = 0; n->in_count == 2 && n->dx[1] != NULL && i < length; i++)
            add_position(n, i, c);
    }
}

const struct op op_embedding_desc = {
    .name = "embedding",
    .formula = "y[b][t] = token[ids[b][t]] + position[first + t]",
    .keeps = "nothing but the ids, which are the batch",
    .infer = embedding_infer,
    .forward = {embedding_forward},
    .backward = {embedding_backward},
};

struct tensor *(op_embedding)(struct tape *t, struct tensor *token, struct tensor *position,
                              const int32_t *ids, const int32_t *slots, int64_t samples,
                              int64_t length)
{
    return (op_embedding_at)(t, token, position, ids, slots, samples, length, 0);
}

struct tensor *(op_embedding_at)(struct tape *t, struct tensor *token, struct tensor *position,
                                 const int32_t *ids, const int32_t *slots, int64_t samples,
                                 int64_t length, int64_t first)
{
    struct op_args args = {
        .ids = ids, .slots = slots, .samples = samples, .length = length, .first = first};
    struct tensor *in[] = {token, position};
    return tape_apply(t, &op_embedding_desc, position != NULL ? 2 : 1, in, &args);
}
