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
    const struct tensor *x = n->in[0];
    int64_t from = n->args.first * x->dim[2], part = n->args.count * x->dim[2];
    for (int64_t b = 0; b < x->dim[0]; b++)
        memcpy(n->out->data + b * part, x->data + b * x->stride[0] + from,
               (size_t)part * sizeof(real));
}

static void rows_backward(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *x = n->in[0];
    int64_t from = n->args.first * x->dim[2], part = n->args.count * x->dim[2];
    if (!n->adds[0])
        memset(n->dx[0], 0, (size_t)tensor_count(x) * sizeof(real));
    for (int64_t b = 0; b < x->dim[0]; b++)
        vec_add_to(n->dx[0] + b * x->stride[0] + from, n->dy + b * part, part);
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
