// op_causal_softmax.c - row i of each head: y[j] = exp(x[j]) / sum over k <= i of exp(x[k]) for
// j <= i, and 0 for j > i.
//
//   dx[j] += y[j] (dy[j] - sum of dy y)
//
// Backward reads y, so y may take x's buffer and dx may be dy. A row that is not stored as reals is
// widened whole, into scratch of the thread that works on it: its sums have the same bits then.
#include "tape/ops/ops_int.h"

static void causal_softmax_infer(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0], *y = n->out;
    CHECK(x->dim_count == 4 && x->dim[2] == x->dim[3]);
    tensor_like(n->out, x);
    n->forward_flops = 10 * tensor_count(x);
    n->backward_flops = 4 * tensor_count(x);
    int64_t row_bytes = t->threads * x->dim[3] * (int64_t)sizeof(real);
    if (x->dtype != DTYPE_REAL || y->dtype != DTYPE_REAL)
        n->forward_work_bytes = row_bytes;
    if (y->dtype != DTYPE_REAL || y->grad_dtype != DTYPE_REAL || x->grad_dtype != DTYPE_REAL)
        n->backward_work_bytes = 3 * row_bytes;
}

// Row number `which` of the `rows` that this thread has in scratch; NULL where all is real.
static real *row_room(const struct node *n, int which, int rows)
{
    return op_part(n->work, (op_thread() * rows + which) * n->out->dim[3]);
}

static void causal_softmax_forward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    int64_t time = n->out->dim[3], rows = tensor_count(n->out) / time;
    struct array xs = tensor_data(n->in[0]), ys = tensor_data(n->out);
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t r = 0; r < rows; r++) {
        int64_t count = r % time + 1;
        real *room = row_room(n, 0, 1); // x and y share it
        const real *x = array_read(xs, r * time, count, room);
        real *y = array_open(ys, r * time, time, false, room); // may be x
        real max = vec_max(x, count);
#pragma omp simd
        for (int64_t j = 0; j < count; j++)
            y[j] = vec_exp(x[j] - max);
        vec_scale(y, 1 / vec_sum(y, count), count);
        for (int64_t j = count; j < time; j++)
            y[j] = 0;
        array_close(ys, r * time, time, y);
    }
}

static void causal_softmax_backward(struct tape *t, struct node *n)
{
    (void)t; // without OpenMP
    int64_t time = n->out->dim[3], rows = tensor_count(n->out) / time;
    struct array ys = tensor_data(n->out), dys = op_dy(n), dxs = op_dx(n, 0);
    int adds = n->adds[0]; // a bool would keep gcc from vectorising the loop
#pragma omp parallel for schedule(static) num_threads(t->threads)
    for (int64_t r = 0; r < rows; r++) {
        const real *y = array_read(ys, r * time, time, row_room(n, 0, 3));
        const real *dy = array_read(dys, r * time, time, row_room(n, 1, 3));
        real *dx = array_open(dxs, r * time, time, adds, row_room(n, 2, 3)); // may be dy
        real sum = vec_dot(y, dy, r % time + 1);
#pragma omp simd
        for (int64_t j = 0; j < time; j++)
            // forward: y[j] = vec_exp(x[j] - max)
            // forward: vec_scale(y, 1 / vec_sum(y, count), count)
            dx[j] = (adds ? dx[j] : 0) + (j <= r % time ? y[j] * (dy[j] - sum) : 0);
        array_close(dxs, r * time, time, dx);
    }
}

const struct op op_causal_softmax_desc = {
    .name = "causal_softmax",
    .formula = "y = softmax(x over j <= i)",
    .keeps = "y: the slope is a function of it",
    .needs = {NEEDS_OUT},
    .cost = COST_ATTENTION,
    .takes = TAKES_IN0_AS_OUT,
    .grad = GRAD_IN_PLACE,
    .infer = causal_softmax_infer,
    .forward = {causal_softmax_forward},
    .backward = {causal_softmax_backward},
};

struct tensor *(op_causal_softmax)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_causal_softmax_desc, 1, (struct tensor *[]){x}, NULL);
}
