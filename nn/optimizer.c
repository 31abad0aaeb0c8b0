#include "nn/optimizer.h"

#include "tape/cpu/update.h"
#include "tape/cpu/vec.h"

#include <math.h>
#include <stdio.h>

static const char *const names[OPTIMIZER_COUNT] = {
    [OPTIMIZER_SGD] = "sgd",
    [OPTIMIZER_ADAMW] = "adamw",
};

const char *optimizer_name(enum optimizer_kind k)
{
    return names[k];
}

static bool check_beta(const char *name, double value, struct error *e)
{
    if (value >= 0 && value < 1)
        return true;
    return refuse(e, "%s %g: expected at least 0 and below 1", name, value);
}

bool optimizer_check(const struct optimizer_config *c, struct error *e)
{
    if (!(c->weight_decay >= 0) || !isfinite(c->weight_decay))
        return refuse(e, "weight-decay %g: expected 0 or more", c->weight_decay);
    if (!(c->clip >= 0) || !isfinite(c->clip))
        return refuse(e, "clip %g: expected 0 (no limit) or more", c->clip);
    return check_beta("beta1", c->beta1, e) && check_beta("beta2", c->beta2, e);
}

static void add_moment(struct tensor *x, const struct param *p, struct tape *t, const char *name)
{
    char label[PARAM_NAME_BYTES + 8];
    if (p->is_frozen)
        return;
    snprintf(label, sizeof(label), "%s%s", p->name, name);
    tensor_persistent(x, &t->arena, label, LEDGER_OPTIMIZER_STATE, p->tensor.dim_count,
                      p->tensor.dim);
    x->name = p->name;
    if (!tape_is_dry(t))
        update_fill(array_of(x->data, x->dtype), tensor_count(x), 0);
}

void optimizer_init(const struct optimizer_config *c, struct param_list *params, struct tape *t)
{
    for (int i = 0; c->kind == OPTIMIZER_ADAMW && i < params->count; i++)
        add_moment(&params->param[i].m, &params->param[i], t, ".m");
    for (int i = 0; c->kind == OPTIMIZER_ADAMW && i < params->count; i++)
        add_moment(&params->param[i].v, &params->param[i], t, ".v");
}

double optimizer_gradient_norm(const struct param_list *params)
{
    double sum = 0;
    for (int i = 0; i < params->count; i++) {
        const struct tensor *x = &params->param[i].tensor;
        if (x->grad != NULL)
            sum += vec_sum_squares(x->grad, tensor_count(x));
    }
    return sqrt(sum);
}

static void update_param(const struct optimizer_config *c, struct param *p, int64_t step,
                         double rate, double scale)
{
    double decay = p->decays ? 1 - rate * c->weight_decay : 1;
    struct tensor *x = &p->tensor;
    int64_t n = tensor_count(x);
    if (c->kind == OPTIMIZER_SGD) {
        update_sgd(x->data, x->grad, n, rate, decay, scale);
        return;
    }
    struct update_adamw u = {.rate = rate,
                             .beta1 = c->beta1,
                             .beta2 = c->beta2,
                             .eps = c->eps,
                             .decay = decay,
                             .correction1 = 1 - pow(c->beta1, (double)step),
                             .correction2 = 1 - pow(c->beta2, (double)step),
                             .gradient_scale = scale};
    update_adamw(&u, x->data, p->m.data, p->v.data, x->grad, n);
}

void optimizer_update(const struct optimizer_config *c, struct param_list *params, int64_t step,
                      double rate, double norm)
{
    double scale = c->clip > 0 && norm > c->clip ? c->clip / norm : 1;
    for (int i = 0; i < params->count; i++)
        if (params->param[i].tensor.grad != NULL)
            update_param(c, &params->param[i], step, rate, scale);
}
