// op_add.c - the residual sum y = stream + branch. The branch's buffer becomes y's if nothing else
// wants it; the stream's value is usually needed by the norm that read it, so never that.
// Backward moves buffers and computes nothing: see tape/grad.c, rules 2 to 4.
#include "tape/ops/ops_int.h"

static void add_infer(struct tape *t, struct node *n)
{
    (void)t;
    CHECK(tensor_count(n->in[0]) == tensor_count(n->in[1]));
    tensor_like(n->out, n->in[1]);
    n->forward_flops = tensor_count(n->out);
}

static void add_forward(struct tape *t, struct node *n)
{
    (void)t;
    struct array as = tensor_data(n->in[0]), bs = tensor_data(n->in[1]), ys = tensor_data(n->out);
    int64_t count = tensor_count(n->out);
#pragma omp parallel for schedule(static) if (count > PARALLEL_MIN)
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        real room[3][ARRAY_PIECE];
        int64_t length = array_piece(at, count);
        const real *a = array_read(as, at, length, room[0]);
        const real *b = array_read(bs, at, length, room[1]);
        real *y = array_open(ys, at, length, false, room[2]); // may be b
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = a[i] + b[i];
        array_close(ys, at, length, y);
    }
}

const struct op op_add_desc = {
    .name = "add",
    .formula = "y = a + b",
    .keeps = "nothing: dy itself becomes da, and db borrows it",
    .takes = TAKES_IN1_AS_OUT,
    .grad = GRAD_PASSES,
    .elementwise = true,
    .infer = add_infer,
    .forward = {add_forward},
};

struct tensor *(op_add)(struct tape *t, struct tensor *stream, struct tensor *branch)
{
    return tape_apply(t, &op_add_desc, 2, (struct tensor *[]){stream, branch}, NULL);
}
