#define _DEFAULT_SOURCE
#include "nn/param.h"

#include "tape/cpu/update.h"
#include "tape/rng.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum dtype dtype;
} precisions[PRECISION_COUNT] = {
#ifdef TAPE_F64
    [PRECISION_REAL] = {"f64", DTYPE_REAL},
#else
    [PRECISION_REAL] = {"f32", DTYPE_REAL},
#endif
    [PRECISION_BF16] = {"bf16", DTYPE_BF16},
};

const char *precision_name(enum precision p)
{
    return precisions[p].name;
}

enum dtype precision_dtype(enum precision p)
{
    return precisions[p].dtype;
}

void params_open(struct param_list *l, struct tape *t, int cap)
{
    *l = (struct param_list){.cap = cap};
    l->param = arena_table(&t->arena, "params", cap, sizeof(struct param));
}

struct param *param_add(struct param_list *l, struct tape *t, int64_t rows, int64_t cols,
                        enum param_start start, double deviation, const char *format, ...)
{
    CHECK(l->count < l->cap);
    struct param *p = &l->param[l->count++];
    *p = (struct param){.decays = rows > 0, .start = start, .deviation = deviation};
    va_list args;
    va_start(args, format);
    vsnprintf(p->name, sizeof(p->name), format, args);
    va_end(args);
    const int64_t dim[] = {rows, cols};
    tensor_place(&p->tensor, &t->arena, p->name, LEDGER_WEIGHTS, precision_dtype(l->weights),
                 rows > 0 ? 2 : 1, rows > 0 ? dim : dim + 1);
    return p;
}

static void start(struct param *p, uint64_t key)
{
    int64_t n = tensor_count(&p->tensor);
    struct array weights = tensor_data(&p->tensor);
    bool has_master = p->master.data != NULL;
    struct array to = has_master ? array_of(p->master.data, DTYPE_REAL) : weights;
    if (p->start == PARAM_NORMAL)
        update_fill_normal(to, n, key, p->deviation);
    else if (p->start == PARAM_UNIFORM)
        update_fill_uniform(to, n, key, p->deviation);
    else
        update_fill(to, n, p->start == PARAM_ONES ? 1 : 0);
    if (has_master)
        update_copy(weights, to, n);
}

void params_start(struct param_list *l, struct tape *t, uint64_t seed)
{
    uint64_t key = rng_key(seed, RNG_INIT);
    for (int i = 0; !tape_is_dry(t) && i < l->count; i++)
        start(&l->param[i], rng_key(key, (uint64_t)i));
}

void params_start_adapters(struct param_list *l, struct tape *t, uint64_t seed)
{
    uint64_t key = rng_key(seed, RNG_INIT);
    for (int i = 0; !tape_is_dry(t) && i < l->count; i++)
        if (l->param[i].is_adapter)
            start(&l->param[i], rng_key(key, (uint64_t)i));
}

void params_add_grads(struct param_list *l, struct tape *t)
{
    for (int i = 0; i < l->count; i++) {
        struct tensor *x = &l->param[i].tensor;
        x->grad_dtype = precision_dtype(l->gradients);
        if (!l->param[i].is_frozen)
            tensor_add_grad(x, &t->arena);
    }
}

void params_zero_grads(struct param_list *l, struct tape *t)
{
    for (int i = 0; i < l->count; i++) {
        struct tensor *x = &l->param[i].tensor;
        tensor_zero_grad(&t->arena, x);
        if (!tape_is_dry(t) && x->grad != NULL)
            tape_break_grad(t, NULL, x);
    }
}

int64_t params_count(const struct param_list *l)
{
    int64_t count = 0;
    for (int i = 0; i < l->count; i++)
        count += tensor_count(&l->param[i].tensor);
    return count;
}

int64_t params_trainable(const struct param_list *l)
{
    int64_t count = 0;
    for (int i = 0; i < l->count; i++)
        count += l->param[i].is_frozen ? 0 : tensor_count(&l->param[i].tensor);
    return count;
}

// ---- freezing --------------------------------------------------------------------------

static bool fail_pattern(const struct param_list *l, const char *pattern, struct error *e)
{
    char names[640] = "";
    for (int i = 0; i < l->count; i++) {
        size_t used = strlen(names), left = sizeof(names) - used;
        if (left < PARAM_NAME_BYTES + 8) {
            snprintf(names + used, left, ", ...");
            break;
        }
        snprintf(names + used, left, "%s%s", i > 0 ? ", " : "", l->param[i].name);
    }
    return refuse(e, "freeze: '%.80s' fits no parameter: there are %s", pattern, names);
}

static int freeze_one(struct param_list *l, const char *pattern)
{
    int found = 0;
    for (int i = 0; i < l->count; i++)
        if (fnmatch(pattern, l->param[i].name, 0) == 0) {
            l->param[i].is_frozen = true;
            found++;
        }
    return found;
}

bool params_freeze(struct param_list *l, const char *patterns, struct error *e)
{
    enum { PATTERN_BYTES = 256 };
    for (const char *at = patterns;; at++) {
        char pattern[PATTERN_BYTES];
        size_t length = strcspn(at, ",");
        if (length >= PATTERN_BYTES)
            return refuse(e, "freeze: '%.40s...': expected patterns of less than %d characters", at,
                          PATTERN_BYTES);
        memcpy(pattern, at, length);
        pattern[length] = 0;
        if (freeze_one(l, pattern) == 0)
            return fail_pattern(l, pattern, e);
        at += length;
        if (*at == 0)
            break;
    }
    return params_trainable(l) > 0 ||
           refuse(e, "freeze '%.200s' leaves nothing to train: freeze less", patterns);
}

struct param *param_find(const struct param_list *l, const char *name)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->param[i].name, name) == 0)
            return &l->param[i];
    return NULL;
}
