// mlp.c - x + down(gelu(up(ln_2(x)))), the second half of a block: C -> 4C -> C.
#include "nn/block_int.h"

struct tensor *mlp_forward(struct tape *t, struct gpt *g, int64_t layer, struct tensor *x)
{
    struct gpt_layer *l = &g->layer[layer];
    tape_enter(t, "mlp");
    block_enter_pair(t, l->up_w);
    struct tensor *n = block_norm(t, "ln_2", x, l->ln2_w, l->ln2_b);
    struct tensor *h =
        block_linear(t, "c_fc", n, l->up_w, l->up_b, gpt_adapters(g, layer, GPT_FC)); // (B,T,4C)
    h = op_gelu(t, block_leave_pair(t, l->up_w, h));
    struct tensor *y =
        block_linear(t, "c_proj", h, l->down_w, l->down_b, gpt_adapters(g, layer, GPT_DOWN));
    y = block_dropout(t, g, y, layer, DROPOUT_MLP);
    return tape_leave(t, op_add(t, x, y));
}
