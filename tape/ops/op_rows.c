// op_rows.c - some rows of each sample: y[b][i] = x[b][first + i]. Generation needs logits of the
// last position only.
#include "tape/ops/ops_int.h"

static void rows_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *x = n->in[0];
    CHECK(x->dim_count == 3 && n->args.first >= 0 && n->args.first + n->args.count <= x->dim[1]);
    tensor_shape(n->out, 3, (int64_t[]){x->dim[0], n->args.count, x->dim[2]});
}

static void rows_forward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *in = n->in[0];
    struct array xs = tensor_data(in), ys = tensor_data(n->out);
    int64_t from = n->args.first * in->dim[2], part = n->args.count * in->dim[2];
    for (int64_t b = 0; b < in->dim[0]; b++)
        for (int64_t at = 0; at < part; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, part);
            const real *x = array_read(xs, b * in->stride[0] + from + at, length, room[0]);
            real *y = array_open(ys, b * part + at, length, false, room[1]);
            for (int64_t i = 0; i < length; i++)
                y[i] = x[i];
            array_close(ys, b * part + at, length, y);
        }
}

static void rows_backward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *in = n->in[0];
    struct array dys = op_dy(n), dxs = op_dx(n, 0);
    int64_t from = n->args.first * in->dim[2], part = n->args.count * in->dim[2];
    op_start_sum(n, 0);
    for (int64_t b = 0; b < in->dim[0]; b++)
        for (int64_t at = 0; at < part; at += ARRAY_PIECE) {
            real room[2][ARRAY_PIECE];
            int64_t length = array_piece(at, part), dx_at = b * in->stride[0] + from + at;
            const real *dy = array_read(dys, b * part + at, length, room[0]);
            real *dx = array_open(dxs, dx_at, length, true, room[1]);
            for (int64_t i = 0; i < length; i++)
                // forward: y[i] = x[i]
                dx[i] += dy[i];
            array_close(dxs, dx_at, length, dx);
        }
}

const struct op op_rows_desc = {
    .name = "rows",
    .formula = "y[b][i] = x[b][first + i]",
    .keeps = "nothing: dy is added where x was read",
    .infer = rows_infer,
    .forward = {rows_forward},
    .backward = {rows_backward},
};

struct tensor *(op_rows)(struct tape *t, struct tensor *x, int64_t first, int64_t count)
{
    struct op_args args = {.first = first, .count = count};
    return tape_apply(t, &op_rows_desc, 1, (struct tensor *[]){x}, &args);
}
