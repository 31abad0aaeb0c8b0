#include "nn/lora.h"

#include "tape/array.h"
#include "tape/ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Parts of one linear stand together, in the order of its rows.
static const struct {
    const char *name;
    enum lora_target target;
    bool is_part;
} names[] = {
    {"q", LORA_Q, true},        {"k", LORA_K, true},        {"v", LORA_V, true},
    {"qkv", LORA_QKV, false},   {"proj", LORA_PROJ, false}, {"fc", LORA_FC, false},
    {"down", LORA_DOWN, false}, {"head", LORA_HEAD, false},
};

bool lora_config_check(const struct lora_config *c, int64_t width, struct error *e)
{
    if (c->rank < 0 || c->rank > width)
        return refuse(e, "lora rank %lld: expected 1 to width %lld, or 0 for none",
                      (long long)c->rank, (long long)width);
    if (c->rank == 0)
        return true;
    if (!isfinite(c->alpha) || c->alpha == 0)
        return refuse(e, "lora alpha %g: expected a number that is not 0", c->alpha);
    return c->targets != 0 || refuse(e, "lora targets: none is given");
}

// ---- targets ---------------------------------------------------------------------------

static unsigned target_of(const char *name, size_t length)
{
    if (length == 3 && memcmp(name, "all", 3) == 0)
        return LORA_ALL;
    for (int i = 0; i < COUNT_OF(names); i++)
        if (strlen(names[i].name) == length && memcmp(names[i].name, name, length) == 0)
            return names[i].target;
    return 0;
}

bool lora_read_targets(const char *text, unsigned *targets, struct error *e)
{
    *targets = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        unsigned one = target_of(at, length);
        if (one == 0)
            return refuse(e,
                          "lora targets: '%.*s': expected q, k, v, qkv, proj, fc, down, head, or "
                          "all (qkv, proj, fc, down), with commas between",
                          length < 40 ? (int)length : 40, at);
        *targets |= one;
        at += length;
        if (*at == 0)
            break;
    }
    if ((*targets & LORA_QKV) && (*targets & (LORA_Q | LORA_K | LORA_V)))
        return refuse(e, "lora targets %.100s: q, k and v are parts of qkv: give them or it", text);
    return true;
}

char *lora_write_targets(unsigned targets, char out[LORA_TARGETS_BYTES])
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < COUNT_OF(names); i++)
        if (targets & names[i].target)
            used += (size_t)snprintf(out + used, LORA_TARGETS_BYTES - used, "%s%s",
                                     used > 0 ? "," : "", names[i].name);
    return out;
}

// ---- params ----------------------------------------------------------------------------

int64_t lora_param_count(const struct lora_config *c, unsigned of)
{
    int64_t count = 0;
    for (int i = 0; c->rank > 0 && i < COUNT_OF(names); i++)
        count += c->targets & of & names[i].target ? 2 : 0;
    return count;
}

static bool is_bias(const struct param *p)
{
    size_t length = strlen(p->name);
    return length > 5 && strcmp(p->name + length - 5, ".bias") == 0;
}

void lora_freeze(struct param_list *params, const struct lora_config *c)
{
    for (int i = 0; i < params->count; i++) {
        struct param *p = &params->param[i];
        p->is_frozen = p->is_left_out = !(c->trains_bias && is_bias(p));
    }
}

static struct param *add(struct tape *t, struct param_list *params, const char *stem,
                         const char *part, char which, int64_t rows, int64_t cols)
{
    bool is_a = which == 'A';
    struct param *p = param_add(params, t, rows, cols, is_a ? PARAM_UNIFORM : PARAM_ZEROS,
                                is_a ? 1 / sqrt((double)cols) : 0, "%s%s%s.lora_%c.weight", stem,
                                part[0] != 0 ? "." : "", part, which);
    p->is_adapter = true;
    return p;
}

void lora_add(struct lora *l, struct tape *t, struct param_list *params,
              const struct lora_config *c, const struct lora_linear *w)
{
    int64_t rows = w->out / w->parts;
    l->factor = c->alpha / (double)c->rank;
    for (int i = 0, k = 0; i < COUNT_OF(names) && k < w->parts; i++) {
        if (names[i].target < w->target)
            continue;
        int64_t first = k++ * rows;
        if (!(c->targets & names[i].target))
            continue;
        struct lora_part *p = &l->part[l->count++];
        p->first = first;
        p->name = names[i].is_part ? names[i].name : "";
        p->a = add(t, params, w->stem, p->name, 'A', c->rank, w->in);
        p->b = add(t, params, w->stem, p->name, 'B', rows, c->rank);
    }
}

// ---- forward ---------------------------------------------------------------------------

struct tensor *lora_forward(struct tape *t, const struct lora *l, const char *name,
                            struct tensor *x, struct tensor *y)
{
    char text[NODE_NAME_BYTES];
    for (int i = 0; l != NULL && i < l->count; i++) {
        const struct lora_part *p = &l->part[i];
        const char *dot = p->name[0] != 0 ? "." : "";
        snprintf(text, sizeof(text), "%s%s%s.lora_A", name, dot, p->name);
        tape_name(t, text);
        struct tensor *h = op_linear(t, x, &p->a->tensor, NULL);
        snprintf(text, sizeof(text), "%s%s%s.lora_B", name, dot, p->name);
        tape_name(t, text);
        y = op_lora(t, y, h, &p->b->tensor, p->first, l->factor);
    }
    return y;
}

// ---- merging ---------------------------------------------------------------------------

// Columns [at, at + n) of a row of W += factor b A, b that row of B.
static void merge_piece(const struct lora_part *p, double factor, int64_t row, int64_t at,
                        int64_t n, real *w)
{
    const struct tensor *a = &p->a->tensor, *b = &p->b->tensor;
    int64_t rank = a->dim[0], in = a->dim[1];
    real room[ARRAY_PIECE];
    for (int64_t k = 0; k < rank; k++) {
        real times = (real)factor * array_get(tensor_data(b), row * rank + k);
        const real *ak = array_read(tensor_data(a), k * in + at, n, room);
        for (int64_t i = 0; i < n; i++)
            w[i] += times * ak[i];
    }
}

void lora_merge(const struct lora *l, struct tensor *w)
{
    struct array to = tensor_data(w);
    for (int k = 0; k < l->count; k++) {
        const struct lora_part *p = &l->part[k];
        int64_t rows = p->b->tensor.dim[0], cols = w->dim[1];
        for (int64_t row = 0; row < rows; row++)
            for (int64_t at = 0; at < cols; at += ARRAY_PIECE) {
                int64_t n = array_piece(at, cols), from = (p->first + row) * cols + at;
                real room[ARRAY_PIECE], *wi = array_open(to, from, n, true, room);
                merge_piece(p, l->factor, row, at, n, wi);
                array_close(to, from, n, wi);
            }
    }
}
