// op_dropout.c - y = x m / (1 - rate). The mask m is a function of (key, sample, row, column): it
// is drawn again in backward and in a replay instead of being stored.
#include "tape/ops/dropout_int.h"

static void dropout_infer(struct tape *t, struct node *n)
{
    (void)t;
    CHECK(n->args.rate >= 0 && n->args.rate < 1);
    tensor_like(n->out, n->in[0]);
    n->forward_flops = n->backward_flops = tensor_count(n->out);
}

// What m is drawn from in one row.
struct row {
    uint64_t key;
    uint32_t threshold;
    real factor;
};

static struct row row_at(const struct node *n, int64_t r)
{
    int64_t rows = tensor_rows(n->out);
    return (struct row){dropout_row_key(n->args.key, n->first_sample + r / rows, r % rows),
                        dropout_threshold(n->args.rate), dropout_factor(n->args.rate)};
}

static inline real draw(struct row row, int64_t column)
{
    return rng_u32(row.key, (uint32_t)column) < row.threshold ? 0 : row.factor;
}

static void dropout_forward(struct tape *t, struct node *n)
{
    (void)t;
    struct array xs = tensor_data(n->in[0]), ys = tensor_data(n->out);
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        struct row row = row_at(n, r);
        for (int64_t at = 0; at < cols; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, cols);
            const real *x = array_read(xs, r * cols + at, length, room[0]);
            real *y = array_open(ys, r * cols + at, length, false, room[1]); // may be x
#pragma omp simd
            for (int64_t i = 0; i < length; i++) {
                real m = draw(row, at + i);
                y[i] = x[i] * m + 0; // what is dropped is 0, not -0
            }
            array_close(ys, r * cols + at, length, y);
        }
    }
}

static void dropout_backward(struct tape *t, struct node *n)
{
    (void)t;
    struct array dys = op_dy(n), dxs = op_dx(n, 0);
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        struct row row = row_at(n, r);
        for (int64_t at = 0; at < cols; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, cols);
            const real *dy = array_read(dys, r * cols + at, length, room[0]);
            real *dx = array_open(dxs, r * cols + at, length, adds, room[1]); // may be dy
#pragma omp simd
            for (int64_t i = 0; i < length; i++) {
                real m = draw(row, at + i);
                // forward: y[i] = x[i] * m + 0
                dx[i] = (adds ? dx[i] : 0) + dy[i] * m;
            }
            array_close(dxs, r * cols + at, length, dx);
        }
    }
}

const struct op op_dropout_desc = {
    .name = "dropout",
    .formula = "y = x m / (1 - rate)",
    .keeps = "nothing: the mask is drawn again",
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .elementwise = true,
    .infer = dropout_infer,
    .forward = {dropout_forward},
    .backward = {dropout_backward},
};

struct tensor *(op_dropout)(struct tape *t, struct tensor *x, double rate, uint64_t key)
{
    struct op_args args = {.rate = rate, .key = key};
    return tape_apply(t, &op_dropout_desc, 1, (struct tensor *[]){x}, &args);
}
