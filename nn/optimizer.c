#include "nn/optimizer.h"

#include "tape/cpu/adafactor.h"
#include "tape/cpu/code8.h"
#include "tape/cpu/update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- the kinds -------------------------------------------------------------------------

enum layout { WHOLE, CODES, BLOCKS, ROWS, COLS }; // of a state, for a parameter of some shape

struct state {
    const char *suffix; // of its name; NULL: no more
    enum layout layout;
};

struct way { // to keep a state and to update
    update_fn *update;
    struct state state[PARAM_STATES];
};

static const struct {
    const char *name;
    struct way way;
    struct way small; // of tensors that are too small for it; update NULL: there are none
} kinds[OPTIMIZER_COUNT] = {
    [OPTIMIZER_SGD] = {.name = "sgd", .way = {update_sgd, {{0}}}},
    [OPTIMIZER_MOMENTUM] = {.name = "momentum", .way = {update_momentum, {{".m", WHOLE}}}},
    [OPTIMIZER_ADAMW] = {.name = "adamw", .way = {update_adamw, {{".m", WHOLE}, {".v", WHOLE}}}},
    [OPTIMIZER_ADAMW8BIT] =
        {.name = "adamw8bit",
         .way = {update_adamw8bit,
                 {{".m", CODES}, {".v", CODES}, {".m.absmax", BLOCKS}, {".v.absmax", BLOCKS}}},
         .small = {update_adamw, {{".m", WHOLE}, {".v", WHOLE}}}},
    [OPTIMIZER_LION] = {.name = "lion", .way = {update_lion, {{".m", WHOLE}}}},
    [OPTIMIZER_ADAFACTOR] = {.name = "adafactor",
                             .way = {adafactor_update, {{".row", ROWS}, {".col", COLS}}},
                             .small = {adafactor_update, {{".v", WHOLE}}}},
};

const char *optimizer_name(enum optimizer_kind k)
{
    return kinds[k].name;
}

bool optimizer_find(const char *name, enum optimizer_kind *k)
{
    int i = 0;
    while (i < OPTIMIZER_COUNT && strcmp(name, kinds[i].name) != 0)
        i++;
    if (i < OPTIMIZER_COUNT)
        *k = (enum optimizer_kind)i;
    return i < OPTIMIZER_COUNT;
}

static const struct way *way_of(enum optimizer_kind k, const struct tensor *x)
{
    bool is_small =
        k == OPTIMIZER_ADAFACTOR ? x->dim_count == 1 : tensor_count(x) < OPTIMIZER_SMALL;
    return is_small && kinds[k].small.update != NULL ? &kinds[k].small : &kinds[k].way;
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

// ---- what is kept ----------------------------------------------------------------------

static void place(struct tensor *x, const struct param *p, struct tape *t, const char *suffix,
                  enum ledger_category category, enum dtype dtype, int dim_count,
                  const int64_t *dim)
{
    char label[PARAM_NAME_BYTES + 16];
    snprintf(label, sizeof(label), "%s%s", p->name, suffix);
    tensor_place(x, &t->arena, label, category, dtype, dim_count, dim);
    x->name = suffix;
}

static void add_master(struct param *p, struct tape *t)
{
    const struct tensor *w = &p->tensor;
    place(&p->master, p, t, ".master", LEDGER_MASTER_WEIGHTS, DTYPE_REAL, w->dim_count, w->dim);
    if (!tape_is_dry(t))
        update_copy(tensor_data(&p->master), tensor_data(w), tensor_count(w));
}

static void add_state(struct tensor *x, const struct param *p, struct tape *t,
                      const struct state *s)
{
    const struct tensor *w = &p->tensor;
    const int64_t blocks = (tensor_count(w) + CODE8_BLOCK - 1) / CODE8_BLOCK;
    bool is_whole = s->layout == WHOLE || s->layout == CODES;
    const int64_t *dim = is_whole              ? w->dim
                         : s->layout == BLOCKS ? &blocks
                         : s->layout == ROWS   ? &w->dim[0]
                                               : &w->dim[1];
    place(x, p, t, s->suffix, LEDGER_OPTIMIZER_STATE, s->layout == CODES ? DTYPE_U8 : DTYPE_REAL,
          is_whole ? w->dim_count : 1, dim);
    if (!tape_is_dry(t))
        memset(x->data, 0, (size_t)tensor_bytes(x));
}

void optimizer_init(const struct optimizer_config *c, struct param_list *params, struct tape *t)
{
    struct param *end = params->param + params->count;
    for (struct param *p = params->param; p < end; p++)
        if (p->tensor.grad != NULL && p->tensor.dtype != DTYPE_REAL && !c->no_master)
            add_master(p, t);
    for (int k = 0; k < PARAM_STATES; k++)
        for (struct param *p = params->param; p < end; p++) {
            const struct state *s = &way_of(c->kind, &p->tensor)->state[k];
            if (p->tensor.grad != NULL && s->suffix != NULL)
                add_state(&p->state[k], p, t, s);
        }
}

// ---- updates ---------------------------------------------------------------------------

double optimizer_gradient_norm(const struct param_list *params)
{
    double sum = 0;
    for (int i = 0; i < params->count; i++) {
        const struct tensor *x = &params->param[i].tensor;
        if (x->grad != NULL)
            sum += update_sum_squares(tensor_grad(x), tensor_count(x));
    }
    return sqrt(sum);
}

__attribute__((noinline)) void optimizer_break(const struct param *p, int64_t step)
{
    __asm__ volatile("" : : "r"(p), "r"(step)); // keep the call and its arguments
}

static void update_param(const struct optimizer_config *c, struct param *p, struct update u)
{
    struct tensor *x = &p->tensor;
    u.n = tensor_count(x);
    u.cols = x->dim_count > 1 ? x->dim[1] : 0;
    u.weights = tensor_data(x);
    u.gradient = tensor_grad(x);
    u.master = p->master.data;
    for (int k = 0; k < PARAM_STATES; k++)
        u.state[k] = p->state[k].data;
    u.decay = p->decays ? 1 - u.rate * c->weight_decay : 1;
    way_of(c->kind, x)->update(&u);
}

void optimizer_update(const struct optimizer_config *c, struct param_list *params, struct tape *t,
                      int64_t step, double rate, double norm)
{
    _Static_assert((int)PARAM_STATES == (int)UPDATE_STATES, "states");
    struct update u = {.step = step,
                       .rate = rate,
                       .beta1 = c->beta1,
                       .beta2 = c->beta2,
                       .eps = c->eps,
                       .correction1 = 1 - pow(c->beta1, (double)step),
                       .correction2 = 1 - pow(c->beta2, (double)step),
                       .gradient_scale = c->clip > 0 && norm > c->clip ? c->clip / norm : 1};
    real *maps = NULL;
    if (c->kind == OPTIMIZER_ADAMW8BIT)
        maps = tape_scratch(t, "adamw8bit.maps", 2 * CODE8_VALUES * (int64_t)sizeof(real));
    if (maps != NULL && !tape_is_dry(t)) {
        code8_signed_map(maps);
        code8_unsigned_map(maps + CODE8_VALUES);
        u.signed_map = maps;
        u.unsigned_map = maps + CODE8_VALUES;
    }
    for (int i = 0; !tape_is_dry(t) && i < params->count; i++)
        if (params->param[i].tensor.grad != NULL) {
            update_param(c, &params->param[i], u);
            optimizer_break(&params->param[i], step);
        }
    if (maps != NULL)
        tape_scratch_give(t, maps);
}
