// op_merge_heads.c - the heads side by side again: (B,H,T,D) -> (B,T,C), as a view.
//
// The matmul that made x stored it as (B,T,H,D) (heads_inside), so merging only renames it.
#include "tape/ops/ops_int.h"

static void merge_heads_infer(struct tape *t, struct node *n)
{
    (void)t;
    struct tensor *x = n->in[0];
    CHECK(x->dim_count == 4 && x->stride[1] == x->dim[3]);
    CHECK(x->stride[2] == x->dim[1] * x->dim[3] && x->stride[3] == 1);
    tensor_shape(n->out, 3, (int64_t[]){x->dim[0], x->dim[2], x->dim[1] * x->dim[3]});
    n->out->base = x->base != NULL ? x->base : x;
    n->out->base_offset = x->base_offset;
}

static void merge_heads_forward(struct tape *t, struct node *n)
{
    (void)t;
    (void)n;
}

const struct op op_merge_heads_desc = {
    .name = "merge_heads",
    .formula = "y[b][t][h D + d] = x[b][h][t][d]",
    .keeps = "nothing of its own: y is a view",
    .grad = GRAD_IS_VIEW,
    .reads_views = true,
    .infer = merge_heads_infer,
    .forward = {merge_heads_forward},
};

struct tensor *(op_merge_heads)(struct tape *t, struct tensor *x)
{
    return tape_apply(t, &op_merge_heads_desc, 1, (struct tensor *[]){x}, NULL);
}
