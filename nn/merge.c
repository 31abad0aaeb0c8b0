#include "nn/merge.h"

#include "tape/cpu/update.h"

struct gpt_config merge_config(const struct gpt_config *from)
{
    struct gpt_config c = *from;
    c.tie = from->tie && !(from->lora.rank > 0 && from->lora.targets & LORA_HEAD);
    c.lora = (struct lora_config){.rank = 0};
    return c;
}

static void copy(struct tensor *to, const struct tensor *from)
{
    CHECK(tensor_count(to) == tensor_count(from));
    update_copy(tensor_data(to), tensor_data(from), tensor_count(from));
}

void merge_weights(struct gpt *to, const struct gpt *from)
{
    for (int i = 0; i < to->params.count; i++) {
        struct param *p = &to->params.param[i];
        const struct param *q = param_find(&from->params, p->name);
        CHECK(q != NULL || p == to->head);
        copy(&p->tensor, q != NULL ? &q->tensor : &from->head->tensor);
    }
    for (int64_t i = 0; from->lora != NULL && i < from->config.layers; i++) {
        struct gpt_layer *l = &to->layer[i];
        struct param *const w[GPT_LINEARS] = {l->qkv_w, l->proj_w, l->up_w, l->down_w};
        for (int k = 0; k < GPT_LINEARS; k++)
            lora_merge(gpt_adapters(from, i, (enum gpt_linear)k), &w[k]->tensor);
    }
    if (from->lora != NULL)
        lora_merge(gpt_head_adapters(from), &to->head->tensor);
}
