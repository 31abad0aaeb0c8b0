// op_cross_entropy.c - loss[b] = sum over the rows of sample b of log(sum_v exp l[v]) - l[target].
//
//   dl = dloss[b] (softmax(l) - [v = target]);  rows whose target is TARGET_IGNORED count nothing
//
// The logits are the widest tensor there is, so they exist once: forward turns them into the
// gradient of an unscaled loss in place (saved), backward multiplies that by dloss. The mean over
// counted targets is the caller's: only it knows the whole effective batch.
#include "tape/ops/cross_entropy_int.h"

void cross_entropy_check(const int32_t *targets, int64_t count, int64_t cols)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(targets[i] == TARGET_IGNORED || (targets[i] >= 0 && targets[i] < cols));
}

// log(0) cannot occur: the largest term of the sum is 1.
double cross_entropy_row(struct array l, int64_t cols, int32_t target, struct array d, real *room)
{
    const real *x = array_read(l, 0, cols, room);
    real *p = array_open(d, 0, cols, false, room); // may be x
    real max = vec_max(x, cols);
    double above = (double)x[target < 0 ? 0 : target] - (double)max;
#pragma omp simd
    for (int64_t j = 0; j < cols; j++)
        p[j] = vec_exp(x[j] - max);
    real sum = vec_sum(p, cols);
    vec_scale(p, 1 / sum, cols);
    if (target < 0)
        memset(p, 0, (size_t)cols * sizeof(real));
    else
        p[target] -= 1;
    array_close(d, 0, cols, p);
    return target < 0 ? 0 : log((double)sum) - above;
}

void cross_entropy_scale(struct array d, int64_t cols, real dloss)
{
    for (int64_t at = 0; at < cols; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, cols);
        real room[ARRAY_PIECE], *p = array_open(d, at, count, true, room);
        vec_scale(p, dloss, count);
        array_close(d, at, count, p);
    }
}

double cross_entropy_sum(const double *loss, int64_t rows)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += loss[i];
    return sum;
}

static void cross_entropy_infer(struct tape *t, struct node *n)
{
    const struct tensor *logits = n->in[0];
    CHECK(logits->dim_count >= 2);
    tensor_shape(n->out, 1, (int64_t[]){logits->dim[0]});
    n->out->saved_bytes = tensor_bytes(logits);
    int64_t rows = tensor_samples(logits) * tensor_rows(logits);
    n->forward_work_bytes = rows * (int64_t)sizeof(double);
    if (logits->dtype != DTYPE_REAL)
        n->forward_work_bytes += t->threads * tensor_cols(logits) * (int64_t)sizeof(real);
    n->forward_flops = 10 * tensor_count(logits);
    n->backward_flops = tensor_count(logits);
}

static void cross_entropy_forward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    const struct tensor *logits = n->in[0];
    int64_t samples = tensor_samples(logits), rows = tensor_rows(logits);
    int64_t cols = tensor_cols(logits);
    struct array l = tensor_data(logits), d = array_of(n->out->saved, logits->dtype);
    double *loss = n->work;
    real *room = l.dtype != DTYPE_REAL ? (real *)(loss + samples * rows) : NULL;
    cross_entropy_check(n->args.ids, samples * rows, cols);
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t i = 0; i < samples * rows; i++)
        loss[i] = cross_entropy_row(array_from(l, i * cols), cols, n->args.ids[i],
                                    array_from(d, i * cols), op_part(room, op_thread() * cols));
    for (int64_t b = 0; b < samples; b++)
        n->out->data[b] = (real)cross_entropy_sum(loss + b * rows, rows);
}

static void cross_entropy_backward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *logits = n->in[0];
    int64_t rows = tensor_rows(logits), cols = tensor_cols(logits);
    int64_t all_rows = tensor_samples(logits) * rows;
    struct array d = array_of(n->dx[0], logits->dtype); // what forward has saved
    if (d.at == NULL)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < all_rows; i++)
        // forward: n->out->data[b] = (real)cross_entropy_sum(loss + b * rows, rows);
        cross_entropy_scale(array_from(d, i * cols), cols, n->dy[i / rows]);
}

const struct op op_cross_entropy_desc = {
    .name = "cross_entropy",
    .formula = "loss[b] = sum over rows of logsumexp(l) - l[target]",
    .keeps =
        "dlogits of an unscaled loss, in the logits' buffer; backward multiplies them by dloss",
    .saved_name = "dlogits",
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
