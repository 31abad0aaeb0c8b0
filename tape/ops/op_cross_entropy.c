// op_cross_entropy.c - loss[b] = sum over the rows of sample b of log(sum_v exp l[v]) - l[target].
//
//   dl = dloss[b] (softmax(l) - [v = target]);  rows whose target is TARGET_IGNORED count nothing
//
// The logits are the widest tensor there is, so they exist once: forward turns them into
// probabilities in place (saved), backward turns those into dlogits in place. The mean over counted
// targets is the caller's: only it knows the whole effective batch.
#include "tape/ops/ops_int.h"

static void cross_entropy_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *logits = n->in[0];
    CHECK(logits->dim_count >= 2);
    tensor_shape(n->out, 1, (int64_t[]){logits->dim[0]});
    n->out->saved_bytes = tensor_bytes(logits);
    int64_t rows = tensor_samples(logits) * tensor_rows(logits);
    n->forward_work_bytes = rows * (int64_t)sizeof(double);
    n->forward_flops = 10 * tensor_count(logits);
    n->backward_flops = tensor_count(logits);
}

// Probabilities into p (may be l). Returns the loss of the row; log(0) cannot occur: the largest
// term of the sum is 1.
static double row_forward(const real *l, int64_t cols, int32_t target, real *p)
{
    real max = vec_max(l, cols);
    double above = (double)l[target < 0 ? 0 : target] - (double)max;
#pragma omp simd
    for (int64_t j = 0; j < cols; j++)
        p[j] = vec_exp(l[j] - max);
    real sum = vec_sum(p, cols);
    vec_scale(p, 1 / sum, cols);
    return target < 0 ? 0 : log((double)sum) - above;
}

static void cross_entropy_forward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *logits = n->in[0];
    int64_t samples = tensor_samples(logits), rows = tensor_rows(logits);
    int64_t cols = tensor_cols(logits);
    double *loss = n->work;
    for (int64_t i = 0; i < samples * rows; i++)
        CHECK(n->args.ids[i] == TARGET_IGNORED || (n->args.ids[i] >= 0 && n->args.ids[i] < cols));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples * rows; i++)
        loss[i] =
            row_forward(logits->data + i * cols, cols, n->args.ids[i], n->out->saved + i * cols);
    for (int64_t b = 0; b < samples; b++) {
        double sum = 0;
        for (int64_t i = b * rows; i < (b + 1) * rows; i++)
            sum += loss[i];
        n->out->data[b] = (real)sum;
    }
}

static void cross_entropy_backward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *logits = n->in[0];
    int64_t rows = tensor_rows(logits), cols = tensor_cols(logits);
    int64_t all_rows = tensor_samples(logits) * rows;
    if (n->dx[0] == NULL)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < all_rows; i++) {
        real *d = n->dx[0] + i * cols; // holds the probabilities
        int32_t target = n->args.ids[i];
        if (target < 0) {
            memset(d, 0, (size_t)cols * sizeof(real));
            continue;
        }
        d[target] -= 1;
        vec_scale(d, n->dy[i / rows], cols);
    }
}

const struct op op_cross_entropy_desc = {
    .name = "cross_entropy",
    .formula = "loss[b] = sum over rows of logsumexp(l) - l[target]",
    .keeps = "the probabilities, in the logits' buffer; they turn into dlogits there",
    .saved_name = "probabilities",
    .takes = TAKES_IN0_AS_SAVED,
    .grad = GRAD_FROM_SAVED,
    .wide_out = true,
    .infer = cross_entropy_infer,
    .forward = {cross_entropy_forward},
    .backward = {cross_entropy_backward},
};

struct tensor *(op_cross_entropy)(struct tape *t, struct tensor *logits, const int32_t *targets)
{
    struct op_args args = {.ids = targets};
    return tape_apply(t, &op_cross_entropy_desc, 1, (struct tensor *[]){logits}, &args);
}
