// trap.c - see trap.h. The pass over what an op wrote is in tape/cpu/scan.c; here is what is
// scanned, and the report.
//
// Never scanned: buffers that nobody has written (views write nothing; the compact gradient of a
// token table counts as far as its highest slot), and scratch, where attention keeps -infinity.
#include "tape/trap.h"

#include "tape/cpu/scan.h"
#include "tape/tape_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) void tape_break_nan(const struct tape *t, const struct node *n,
                                              const struct tensor *x, int64_t index)
{
    __asm__ volatile("" : : "r"(t), "r"(n), "r"(x), "r"(index)); // keep the call and its arguments
}

// ---- looking ---------------------------------------------------------------------------

struct view { // elements in the shape and strides of x, somewhere
    const struct tensor *x;
    struct array at;
    int64_t count; // row-major; less than all of x where the rest has no bytes
};

static struct view view_of(const struct tensor *x, struct array at)
{
    return (struct view){x, at, tensor_count(x)};
}

static int64_t offset_of(const struct tensor *x, int64_t index)
{
    int64_t offset = 0;
    for (int i = x->dim_count - 1; i >= 0; i--) {
        offset += index % x->dim[i] * x->stride[i];
        index /= x->dim[i];
    }
    return offset;
}

static double element(struct view v, int64_t index)
{
    return (double)array_get(v.at, offset_of(v.x, index));
}

// Elements that lie side by side.
static int64_t run_of(struct view v)
{
    return tensor_is_contiguous(v.x) ? v.count : v.x->dim[v.x->dim_count - 1];
}

static int64_t first_bad(struct view v)
{
    int64_t run = run_of(v);
    for (int64_t from = 0; from < v.count; from += run) {
        int64_t i = scan_first_bad(array_from(v.at, offset_of(v.x, from)), run);
        if (i >= 0)
            return from + i;
    }
    return -1;
}

static struct scan_range range_of(struct view v)
{
    struct scan_range r = {0};
    int64_t run = run_of(v);
    for (int64_t from = 0; from < v.count; from += run)
        scan_range(&r, array_from(v.at, offset_of(v.x, from)), run);
    return r;
}

// ---- words -----------------------------------------------------------------------------

static void say(struct trap *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct trap *p, const char *format, ...)
{
    size_t used = strlen(p->text);
    va_list args;
    va_start(args, format);
    vsnprintf(p->text + used, sizeof(p->text) - used, format, args);
    va_end(args);
}

static void say_at(struct trap *p, int dim_count, const int64_t *dim, int64_t index)
{
    int64_t at[DIM_MAX];
    for (int i = dim_count - 1; i >= 0; i--) {
        at[i] = index % dim[i];
        index /= dim[i];
    }
    for (int i = 0; i < dim_count; i++)
        say(p, "%s%lld", i == 0 ? "[" : ",", (long long)at[i]);
    say(p, "]");
}

static void say_shape(struct trap *p, const struct tensor *x, enum dtype dtype)
{
    say(p, " %s", dtype_name(dtype));
    for (int i = 0; i < x->dim_count; i++)
        say(p, "%s%lld", i == 0 ? "[" : ",", (long long)x->dim[i]);
    say(p, "]");
}

// "  in[0] h.0.mlp.c_fc f32[12,64,512] from -3 to 4; [0,3,7] is -1". at NULL: why is said instead.
static void say_tensor(struct trap *p, const char *what, const struct tensor *x, struct array at,
                       const char *why)
{
    const struct trap_finding *f = &p->first;
    say(p, "\n  %s %s", what, x->name);
    say_shape(p, x, at.dtype);
    if (at.at == NULL) {
        say(p, " %s", why);
        return;
    }
    struct view v = view_of(x, at);
    struct scan_range r = range_of(v);
    if (r.finite > 0)
        say(p, " from %g to %g", (double)r.low, (double)r.high);
    if (r.bad > 0)
        say(p, "%s %lld of %lld not finite", r.finite > 0 ? "," : "", (long long)r.bad,
            (long long)v.count);
    if (f->op->elementwise && v.count == f->count) {
        say(p, "; ");
        say_at(p, x->dim_count, x->dim, f->index);
        say(p, " is %.9g", element(v, f->index));
    }
}

static void say_inputs(struct trap *p, const struct node *n, const char *why)
{
    char what[16];
    for (int i = 0; i < n->in_count; i++) {
        snprintf(what, sizeof(what), "in[%d]", i);
        say_tensor(p, what, n->in[i], tensor_data(n->in[i]), why);
    }
}

static const char *kind_of(const struct trap_finding *f)
{
    return isnan(f->value) ? "a NaN" : "an infinity";
}

static void say_element(struct trap *p)
{
    const struct trap_finding *f = &p->first;
    say(p, "%s", f->tensor_name);
    say_at(p, f->dim_count, f->dim, f->index);
    say(p, " is %s", isnan(f->value) ? "nan" : f->value > 0 ? "inf" : "-inf");
}

static void say_node(struct trap *p)
{
    const struct trap_finding *f = &p->first;
    say(p, "\n  node %d, %s, asked for at %s:%d: %s", f->node, f->node_name,
        f->file != NULL ? f->file : "?", f->line, f->op->formula);
}

// ---- springing -------------------------------------------------------------------------

static void fill(struct trap *p, const struct node *n, enum ledger_phase phase, enum trap_part part,
                 struct view v, const char *suffix, int64_t index)
{
    struct trap_finding *f = &p->first;
    *f = (struct trap_finding){.node = -1,
                               .phase = phase,
                               .part = part,
                               .dim_count = v.x->dim_count,
                               .index = index,
                               .count = v.count,
                               .bad = range_of(v).bad,
                               .value = element(v, index)};
    memcpy(f->dim, v.x->dim, sizeof(f->dim));
    snprintf(f->tensor_name, sizeof(f->tensor_name), "%s%s", v.x->name, suffix);
    if (n == NULL)
        return;
    f->op = n->op;
    f->node = n->index;
    f->file = n->file;
    f->line = n->line;
    snprintf(f->node_name, sizeof(f->node_name), "%s", n->name);
}

static void spring(struct tape *t, const struct node *n, const struct tensor *x)
{
    struct trap *p = t->trap;
    p->is_sprung = true;
    tape_break_nan(t, n, x, p->first.index);
    if (p->on_found != NULL)
        p->on_found(p, p->user);
}

// A parameter that was no number when its first reader came: that reader is not to blame.
static bool blame_parameter(struct tape *t, const struct node *n, enum ledger_phase phase)
{
    struct trap *p = t->trap;
    for (int i = 0; i < n->in_count; i++) {
        const struct tensor *x = n->in[i];
        int64_t index = x->is_persistent ? first_bad(view_of(x, tensor_data(x))) : -1;
        if (index < 0)
            continue;
        fill(p, n, phase, TRAP_VALUES, view_of(x, tensor_data(x)), "", index);
        say_element(p);
        say(p, " before any op (%lld of %lld are not finite); %s is the first to read it",
            (long long)p->first.bad, (long long)p->first.count, n->op->name);
        say_node(p);
        spring(t, n, x);
        return true;
    }
    return false;
}

bool trap_values(struct tape *t, const struct tensor *x, struct array at, const char *suffix,
                 const char *when)
{
    struct trap *p = t->trap;
    if (p == NULL || p->is_sprung || t->arena.dry)
        return true;
    int64_t index = first_bad(view_of(x, at));
    if (index < 0)
        return true;
    fill(p, NULL, t->arena.ledger.phase, TRAP_VALUES, view_of(x, at), suffix, index);
    say_element(p);
    say(p, " %s (%lld of %lld are not finite)", when, (long long)p->first.bad,
        (long long)p->first.count);
    spring(t, NULL, x);
    return false;
}

// ---- an input that the output was written over -----------------------------------------

// What n took over is gone, but ops repeat exactly: those that wrote in that buffer one after the
// other run again up to the input. It is looked at, and n runs once more.
enum { CHAIN_MAX = 16 };

static bool can_repeat(const struct node *m)
{
    bool ok = m->forward_work_bytes == 0 && m->out->base == NULL &&
              (m->out->saved_bytes == 0 || m->out->saved != NULL);
    for (int i = 0; i < m->in_count; i++)
        ok = ok && (m->in[i] == m->taken || !tensor_is_missing(m->in[i]));
    return ok;
}

static bool bring_back(struct tape *t, struct node *n)
{
    struct node *chain[CHAIN_MAX];
    int count = 0;
    for (struct tensor *x = n->taken; x != NULL; x = chain[count - 1]->taken) {
        int maker = count < CHAIN_MAX ? tape_maker(t, x) : -1;
        if (maker < 0 || !can_repeat(&t->node[maker]))
            return false;
        chain[count++] = &t->node[maker];
    }
    real *buffer = n->taken->data;
    while (count-- > 0) {
        struct node *m = chain[count];
        if (m->taken != NULL)
            m->taken->data = buffer;
        m->out->data = buffer;
        tape_bind(m);
        m->op->forward[t->device](t, m);
        if (m->taken != NULL)
            m->taken->data = NULL;
    }
    return true;
}

static void say_forward_inputs(struct tape *t, struct node *n)
{
    struct tensor *x = n->taken;
    bool is_back = x != NULL && bring_back(t, n);
    real *buffer = x != NULL ? x->data : NULL;
    if (x != NULL && !is_back)
        x->data = NULL;
    say_inputs(t->trap, n, "was overwritten by the output");
    if (x != NULL)
        x->data = buffer;
    if (!is_back)
        return;
    tape_bind(n);
    n->op->forward[t->device](t, n);
}

// ---- after an op -----------------------------------------------------------------------

static bool found_forward(struct tape *t, struct node *n, enum ledger_phase phase,
                          enum trap_part part, struct view v, const char *suffix)
{
    struct trap *p = t->trap;
    int64_t index = first_bad(v);
    if (index < 0)
        return false;
    if (blame_parameter(t, n, phase))
        return true;
    fill(p, n, phase, part, v, suffix, index);
    say(p, "%s made %s in %s: ", n->op->name, kind_of(&p->first), ledger_phase_name(phase));
    say_element(p);
    say(p, ", the first of %lld among %lld", (long long)p->first.bad, (long long)p->first.count);
    if (part == TRAP_SAVED)
        say(p, " (%s, saved for backward)", n->op->saved_name);
    say_node(p);
    say_forward_inputs(t, n);
    spring(t, n, n->out);
    return true;
}

void trap_forward(struct tape *t, struct node *n, enum ledger_phase phase)
{
    struct tensor *y = n->out;
    if (t->trap->is_sprung || y->base != NULL)
        return;
    if (found_forward(t, n, phase, TRAP_OUTPUT, view_of(y, tensor_data(y)), "") ||
        y->saved_bytes == 0)
        return;
    struct tensor flat = {.name = y->name};
    bool as_saved = n->op->takes == TAKES_IN0_AS_SAVED;
    if (as_saved)
        tensor_like(&flat, n->in[0]);
    else
        tensor_shape(&flat, 1, (int64_t[]){y->saved_bytes / (int64_t)sizeof(real)});
    found_forward(t, n, phase, TRAP_SAVED,
                  view_of(&flat, array_of(y->saved, as_saved ? n->in[0]->dtype : DTYPE_REAL)),
                  ".saved");
}

// The gradient of a token table may be compact, a row per slot; rows that no slot of this
// micro-batch reaches are none of this op's business.
static struct view gradient_of(const struct node *n, int i, struct array dx)
{
    struct view v = view_of(n->in[i], dx);
    if (i != 0 || n->args.slots == NULL)
        return v;
    int64_t rows = 0;
    for (int64_t k = 0; k < n->args.samples * n->args.length; k++)
        rows = n->args.slots[k] >= rows ? n->args.slots[k] + 1 : rows;
    v.count = rows * tensor_cols(v.x);
    return v;
}

// A compact row's place in the whole table.
static int64_t whole_index(const struct node *n, int i, int64_t index)
{
    if (i != 0 || n->args.slots == NULL)
        return index;
    int64_t cols = tensor_cols(n->in[0]), k = 0;
    while (k + 1 < n->args.samples * n->args.length && n->args.slots[k] != index / cols)
        k++;
    return n->args.ids[k] * cols + index % cols;
}

static void found_backward(struct tape *t, struct node *n, int i, struct array dx, bool adds)
{
    struct trap *p = t->trap;
    struct view v = gradient_of(n, i, dx);
    int64_t index = p->is_sprung ? -1 : first_bad(v);
    if (index < 0 || blame_parameter(t, n, PHASE_BACKWARD))
        return;
    fill(p, n, PHASE_BACKWARD, TRAP_GRADIENT, v, ".grad", index);
    p->first.input = i;
    p->first.index = whole_index(n, i, index);
    say(p, "%s made %s in backward: ", n->op->name, kind_of(&p->first));
    say_element(p);
    say(p, ", the first of %lld among %lld, in the gradient of in[%d]%s", (long long)p->first.bad,
        (long long)p->first.count, i, adds ? ", which was added to what it held" : "");
    say_node(p);
    say_inputs(p, n, "was given back");
    say_tensor(p, "out", n->out, tensor_data(n->out), "was given back");
    bool is_over = n->dy == dx.at || n->dy == NULL; // dx was written over dy, or handed on
    say_tensor(p, "dy", n->out, array_of(is_over ? NULL : n->dy, n->out->grad_dtype),
               "was overwritten by the gradient");
    spring(t, n, n->in[i]);
}

// A saved buffer that turns into a gradient is stored as what it was.
static enum dtype gradient_dtype(const struct node *n, int i)
{
    return n->op->grad == GRAD_FROM_SAVED ? n->in[i]->dtype : n->in[i]->grad_dtype;
}

void trap_backward(struct tape *t, struct node *n)
{
    for (int i = 0; i < n->in_count; i++)
        if (n->dx[i] != NULL)
            found_backward(t, n, i, array_of(n->dx[i], gradient_dtype(n, i)), n->adds[i]);
}

void trap_added(struct tape *t, struct node *n, struct tensor *x, struct array dx)
{
    found_backward(t, n, x == n->in[0] ? 0 : 1, dx, true);
}
