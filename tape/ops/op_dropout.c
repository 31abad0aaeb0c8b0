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

// to = (adds ? to : 0) + from m / (1 - rate); `to` may be `from`.
static void apply_mask(const struct node *n, const real *from, real *to, bool adds)
{
    int64_t rows = tensor_rows(n->out), cols = tensor_cols(n->out);
    int64_t all_rows = tensor_samples(n->out) * rows;
    uint32_t threshold = dropout_threshold(n->args.rate);
    real factor = dropout_factor(n->args.rate);
#pragma omp parallel for schedule(static) if (all_rows * cols > PARALLEL_MIN)
    for (int64_t r = 0; r < all_rows; r++) {
        uint64_t key = dropout_row_key(n->args.key, n->first_sample + r / rows, r % rows);
        for (int64_t j = 0; j < cols; j++) {
            real m = rng_u32(key, (uint32_t)j) < threshold ? 0 : factor;
            to[r * cols + j] = (adds ? to[r * cols + j] : 0) + from[r * cols + j] * m;
        }
    }
}

static void dropout_forward(struct tape *t, struct node *n)
{
    (void)t;
    apply_mask(n, n->in[0]->data, n->out->data, false);
}

static void dropout_backward(struct tape *t, struct node *n)
{
    (void)t;
    apply_mask(n, n->dy, n->dx[0], n->adds[0]);
}

const struct op op_dropout_desc = {
    .name = "dropout",
    .formula = "y = x m / (1 - rate)",
    .keeps = "nothing: the mask is drawn again",
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = dropout_infer,
    .forward = {dropout_forward},
    .backward = {dropout_backward},
};

struct tensor *(op_dropout)(struct tape *t, struct tensor *x, double rate, uint64_t key)
{
    struct op_args args = {.rate = rate, .key = key};
    return tape_apply(t, &op_dropout_desc, 1, (struct tensor *[]){x}, &args);
}
