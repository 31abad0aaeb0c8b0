// op_split_heads.c - the queries, keys or values of each head, as a view (B,H,T,D) of qkv (B,T,3C).
//
// Nothing is copied: the view says where head h of position t begins. Its gradient is a part of
// qkv's gradient, so backward has nothing to do.
#include "tape/ops/ops_int.h"

static void split_heads_infer(struct tape *t, struct node *n)
{
    (void)t;
    struct tensor *qkv = n->in[0];
    int64_t heads = n->args.heads;
    CHECK(qkv->dim_count == 3 && qkv->dim[2] % (3 * heads) == 0);
    CHECK(n->args.part >= 0 && n->args.part < 3);
    int64_t width = qkv->dim[2] / 3, size = width / heads, time = qkv->dim[1];
    tensor_shape(n->out, 4, (int64_t[]){qkv->dim[0], heads, time, size});
    const int64_t stride[] = {time * 3 * width, size, 3 * width, 1};
    for (int i = 0; i < 4; i++)
        n->out->stride[i] = stride[i];
    n->out->base = qkv->base != NULL ? qkv->base : qkv;
    n->out->base_offset = qkv->base_offset + n->args.part * width;
}

static void split_heads_forward(struct tape *t, struct node *n)
{
    (void)t;
    (void)n;
}

const struct op op_split_heads_desc = {
    .name = "split_heads",
    .formula = "y[b][h][t] = qkv[b][t][part][h]",
    .keeps = "nothing of its own: y is a view",
    .grad = GRAD_IS_VIEW,
    .infer = split_heads_infer,
    .forward = {split_heads_forward},
};

struct tensor *(op_split_heads)(struct tape *t, struct tensor *qkv, int64_t heads, int64_t part)
{
    struct op_args args = {.heads = heads, .part = part};
    return tape_apply(t, &op_split_heads_desc, 1, (struct tensor *[]){qkv}, &args);
}
