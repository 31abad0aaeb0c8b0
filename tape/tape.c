#include "tape/tape_int.h"

#include "tape/blas.h"
#include "tape/debug.h"
#include "tape/text.h"
#include "tape/trap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const policy_names[POLICY_COUNT] = {
    [POLICY_NONE] = "none",
    [POLICY_LEAN] = "lean",
    [1 << COST_GEMM] = "gemm",
    [1 << COST_CHEAP | 1 << COST_GEMM] = "cheap+gemm",
    [POLICY_SELECTIVE] = "selective",
    [1 << COST_CHEAP | 1 << COST_ATTENTION] = "cheap+attention",
    [1 << COST_GEMM | 1 << COST_ATTENTION] = "gemm+attention",
    [POLICY_FULL] = "full",
};

const char *tape_policy_name(enum tape_policy p)
{
    return policy_names[p];
}

bool tape_is_dry(const struct tape *t)
{
    return t->arena.dry;
}

// From the last on, where who asks is likely to find it.
int tape_maker(const struct tape *t, const struct tensor *x)
{
    int i = t->node_count - 1;
    while (i >= 0 && t->node[i].out != x)
        i--;
    return i;
}

__attribute__((noinline)) void tape_break(const struct tape *t, const struct node *n,
                                          enum ledger_phase phase)
{
    // Keep the call and its arguments; and the printers, which nobody else calls.
    __asm__ volatile("" : : "r"(t), "r"(n), "r"(phase), "r"(&debug_printers));
}

__attribute__((noinline)) void tape_break_grad(const struct tape *t, const struct node *n,
                                               const struct tensor *x)
{
    __asm__ volatile("" : : "r"(t), "r"(n), "r"(x)); // keep the call and its arguments
}

void tape_name(struct tape *t, const char *name)
{
    t->next_name = name;
}

struct tape *tape_at(struct tape *t, const char *file, int line)
{
    t->file = file;
    t->line = line;
    return t;
}

// ---- opening and planning --------------------------------------------------------------

static void make_tables(struct tape *t, const struct plan *p)
{
    struct arena *a = &t->arena;
    t->node = arena_table(a, "tape.nodes", p->node_count, sizeof(struct node));
    t->tensor = arena_table(a, "tape.tensors", p->tensor_count, sizeof(struct tensor));
    t->segment = arena_table(a, "tape.segments", p->segment_count, sizeof(struct segment));
    t->loan = arena_table(a, "tape.loans", p->loan_count, sizeof(struct tensor *));
    t->cap = *p;
}

bool tape_open(struct tape *t, const struct plan *plan, bool dry, int threads, struct error *e)
{
    memset(t, 0, sizeof(*t));
    if (threads < 1)
        return refuse(e, "%d threads: at least 1 is needed", threads);
    if (!arena_open(&t->arena, plan, dry, e))
        return false;
    t->threads = threads;
    t->activation_dtype = DTYPE_REAL;
    make_tables(t, plan != NULL ? plan : &arena_boundless);
    if (!dry)
        blas_set_threads(threads);
    return true;
}

void tape_close(struct tape *t)
{
    arena_close(&t->arena);
    memset(t, 0, sizeof(*t));
}

struct plan tape_plan(const struct tape *t)
{
    struct plan p = t->max;
    p.bytes = t->arena.ledger.counts.total_peak;
    p.row_count = t->arena.ledger.row_max;
    p.event_count = t->arena.ledger.event_max;
    p.low_count = t->arena.stack[ARENA_LOW].max;
    p.high_count = t->arena.stack[ARENA_HIGH].max;
    return p;
}

struct plan tape_plan_small(int64_t bytes)
{
    enum { NODES = 4096 };
    int64_t tables =
        NODES *
        (int64_t)(sizeof(struct node) + sizeof(struct tensor) + 4 * sizeof(struct ledger_row) +
                  8 * sizeof(struct ledger_event) + 4 * sizeof(struct arena_block) +
                  sizeof(struct segment) + sizeof(struct tensor *));
    return (struct plan){.bytes = bytes + tables + 4096,
                         .row_count = 4 * NODES,
                         .event_count = 8 * NODES,
                         .low_count = 2 * NODES,
                         .high_count = 2 * NODES,
                         .node_count = NODES,
                         .tensor_count = NODES,
                         .segment_count = NODES,
                         .loan_count = NODES};
}

static int64_t at_least_one(int64_t count)
{
    return count > 0 ? count : 1;
}

// A dry run that needs more addresses than there are ends here, not in a CHECK.
struct full {
    jmp_buf back;
    struct error *e;
};

static void end_dry_run(struct arena *a, const struct ledger_label *label, int64_t bytes)
{
    struct full *f = a->on_full_user;
    refuse(f->e,
           "%s%s wants %lld bytes, and the system grants addresses for %lld in all: try a smaller "
           "model, micro-batch or sequence",
           label->name, label->suffix != NULL ? label->suffix : "", (long long)bytes,
           (long long)a->cap_bytes);
    longjmp(f->back, 1);
}

static bool run_dry(struct tape *t, tape_run_fn *fn, void *user, struct error *e)
{
    struct full full = {.e = e};
    t->arena.on_full = end_dry_run;
    t->arena.on_full_user = &full;
    if (setjmp(full.back) != 0)
        return false;
    bool ok = fn(t, user, e);
    t->arena.on_full = NULL;
    return ok;
}

bool tape_measure(struct tape *t, int threads, tape_run_fn *fn, void *user, struct plan *plan,
                  struct error *e)
{
    if (!tape_open(t, NULL, true, threads, e))
        return false;
    bool ok = run_dry(t, fn, user, e);
    struct plan counts = tape_plan(t);
    counts.bytes = t->arena.cap_bytes;
    counts.segment_count = at_least_one(counts.segment_count);
    counts.loan_count = at_least_one(counts.loan_count);
    counts.node_count = at_least_one(counts.node_count);
    counts.tensor_count = at_least_one(counts.tensor_count);
    counts.high_count = at_least_one(counts.high_count);
    tape_close(t);
    if (!ok || !tape_open(t, &counts, true, threads, e))
        return false;
    ok = run_dry(t, fn, user, e);
    *plan = counts;
    plan->bytes = tape_plan(t).bytes;
    if (!ok)
        tape_close(t);
    return ok;
}

// ---- tensors, scopes, lifetimes --------------------------------------------------------

// A tensor that no scope let go of would stay in the arena for ever, under an index that is reused.
static void check_gone(const struct tape *t)
{
    for (int i = 0; i < t->tensor_count; i++) {
        const struct tensor *x = &t->tensor[i];
        bool is_gone = x->base != NULL || (x->data == NULL && x->saved == NULL && x->grad == NULL);
        if (!is_gone)
            fprintf(stderr, "%s is still there: it was made outside a scope, or kept by the last\n",
                    x->name);
        CHECK(is_gone);
    }
}

void tape_begin(struct tape *t, enum ledger_phase phase, int64_t first_sample)
{
    CHECK(t->scope_count == 0 && t->open == NULL && t->loan_count == 0);
    CHECK(t->arena.stack[ARENA_HIGH].bytes == 0);
    CHECK(t->node_count == 0 || t->eval || t->is_walked); // else activations are still kept
    check_gone(t);
    t->node_count = t->tensor_count = t->segment_count = 0;
    t->eval = phase == PHASE_EVAL || phase == PHASE_GENERATE;
    t->is_walked = false;
    t->walked_count = 0;
    t->first_sample = first_sample;
    t->begin_bytes = arena_held_bytes(&t->arena);
    arena_lap(&t->arena);
    ledger_enter_phase(&t->arena.ledger, phase);
}

struct ledger_label tape_label(const struct tensor *x, const char *suffix,
                               enum ledger_category category, const struct node *n)
{
    return (struct ledger_label){.name = x->name,
                                 .suffix = suffix,
                                 .op = n != NULL ? n->op->name : NULL,
                                 .category = category,
                                 .dtype = x->dtype,
                                 .dim_count = x->dim_count,
                                 .dim = x->dim,
                                 .node = n != NULL ? n->index : -1};
}

static struct tensor *new_tensor(struct tape *t)
{
    CHECK(t->tensor_count < t->cap.tensor_count);
    struct tensor *x = &t->tensor[t->tensor_count];
    *x = (struct tensor){.index = t->tensor_count++,
                         .dtype = t->activation_dtype,
                         .grad_dtype = t->activation_dtype,
                         .in_scope = true,
                         .holders = 1};
    if (t->tensor_count > t->max.tensor_count)
        t->max.tensor_count = t->tensor_count;
    return x;
}

void tape_give_data(struct tape *t, struct tensor *x)
{
    if (x->data != NULL && x->base == NULL)
        arena_give(&t->arena, x->data);
    x->data = NULL;
}

void tape_give_saved(struct tape *t, struct tensor *x)
{
    if (x->saved != NULL)
        arena_give(&t->arena, x->saved);
    x->saved = NULL;
}

void tape_let_go(struct tape *t, struct tensor *x)
{
    if (x->is_persistent)
        return;
    CHECK(x->holders > 0);
    if (--x->holders > 0)
        return;
    tape_give_data(t, x);
    if (x->base != NULL)
        tape_let_go(t, x->base);
}

static void enter(struct tape *t, const char *format, va_list args)
{
    CHECK(t->scope_count < SCOPES_MAX);
    struct scope *s = &t->scope[t->scope_count++];
    vsnprintf(s->name, sizeof(s->name), format, args);
    s->first_tensor = t->tensor_count;
    s->has_cost = false;
}

void tape_enter(struct tape *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enter(t, format, args);
    va_end(args);
}

void tape_scope_cost(struct tape *t, enum op_cost cost)
{
    CHECK(t->scope_count > 0);
    t->scope[t->scope_count - 1].has_cost = true;
    t->scope[t->scope_count - 1].cost = cost;
}

void tape_segment_begin(struct tape *t, enum tape_policy policy, struct tensor *in,
                        const char *format, ...)
{
    CHECK(t->open == NULL && t->segment_count < t->cap.segment_count);
    CHECK(in->in_scope && in->base == NULL);
    t->open = &t->segment[t->segment_count++];
    if (t->segment_count > t->max.segment_count)
        t->max.segment_count = t->segment_count;
    *t->open = (struct segment){
        .first_node = t->node_count, .first_tensor = t->tensor_count, .policy = policy, .in = in};
    t->open->low_before_bytes = t->arena.stack[ARENA_LOW].bytes;
    ledger_watch(&t->arena.ledger);
    va_list args;
    va_start(args, format);
    enter(t, format, args);
    va_end(args);
}

// Newest first, so that what is given back is on top.
struct tensor *tape_leave(struct tape *t, struct tensor *keep)
{
    CHECK(t->scope_count > 0);
    int first = t->scope[t->scope_count - 1].first_tensor;
    struct tensor *owner = keep != NULL ? tensor_owner(keep) : NULL;
    for (int i = t->tensor_count - 1; i >= first; i--) {
        struct tensor *x = &t->tensor[i];
        if (x == keep || x == owner || !x->in_scope)
            continue;
        x->in_scope = false;
        if (x->is_transient || !x->wants_grad)
            tape_give_saved(t, x);
        if (x->is_transient)
            tape_give_data(t, x); // even if backward needs it: the replay brings it back
        tape_let_go(t, x);
    }
    t->scope_count--;
    if (owner != NULL && owner->data != NULL && !owner->is_persistent)
        owner->data = arena_sink(&t->arena, owner->data);
    return keep;
}

// ---- forward ---------------------------------------------------------------------------

static void name_node(const struct tape *t, struct node *n)
{
    size_t used = 0, size = sizeof(n->name);
    for (int i = 0; i < t->scope_count; i++)
        if (t->scope[i].name[0] != 0) { // a root scope is a lifetime without a name
            used = text_append(n->name, size, used, t->scope[i].name);
            used = text_append(n->name, size, used, ".");
        }
    text_append(n->name, size, used, t->next_name != NULL ? t->next_name : n->op->name);
}

// Somebody reads x too late. Says who, and who had it last.
static void explain_missing(const struct tape *t, const struct node *n, const struct tensor *x)
{
    fprintf(stderr, "%s (%s:%d) reads %s, ", n->name, n->file ? n->file : "?", n->line, x->name);
    for (int i = 0; i < n->index; i++)
        if (t->node[i].taken == x) {
            fprintf(stderr,
                    "which %s (%s:%d) took over for its output: read x before that op, or make\n"
                    "what it takes over with an op of its own\n",
                    t->node[i].name, t->node[i].file ? t->node[i].file : "?", t->node[i].line);
            return;
        }
    fprintf(stderr, "which a scope gave back: only what tape_leave keeps outlives it\n");
}

static struct node *new_node(struct tape *t, const struct op *op, int in_count,
                             struct tensor *const in[])
{
    CHECK(t->node_count < t->cap.node_count && in_count <= NODE_IN_MAX && !t->is_walked);
    struct node *n = &t->node[t->node_count];
    *n = (struct node){.index = t->node_count++,
                       .op = op,
                       .in_count = in_count,
                       .first_sample = t->first_sample,
                       .cost = op->cost,
                       .file = t->file,
                       .line = t->line};
    if (t->node_count > t->max.node_count)
        t->max.node_count = t->node_count;
    for (int i = 0; i < t->scope_count; i++)
        if (t->scope[i].has_cost)
            n->cost = t->scope[i].cost;
    name_node(t, n);
    t->next_name = NULL;
    n->out = new_tensor(t);
    n->out->name = n->name;
    if (op->wide_out)
        n->out->dtype = n->out->grad_dtype = DTYPE_REAL;
    for (int i = 0; i < in_count; i++) {
        if (tensor_is_missing(in[i]))
            explain_missing(t, n, in[i]);
        CHECK(!tensor_is_missing(in[i]));
        CHECK(op->reads_views || tensor_is_contiguous(in[i]));
        n->in[i] = in[i];
        if (!in[i]->wants_grad || t->eval)
            continue;
        n->out->wants_grad = true;
        n->needs |= op->needs[i];
    }
    return n;
}

// The input this node may overwrite: made in this segment, and wanted by nothing but its scope.
static struct tensor *taken_input(const struct tape *t, const struct node *n)
{
    if (n->op->takes == TAKES_NOTHING)
        return NULL;
    struct tensor *x = n->in[n->op->takes == TAKES_IN1_AS_OUT ? 1 : 0];
    bool outside = t->open != NULL && x->index < t->open->first_tensor;
    bool free = !x->is_persistent && !outside && x->base == NULL && x->holders == 1 && x->in_scope;
    bool fits = n->op->takes == TAKES_IN0_AS_SAVED || x->dtype == n->out->dtype;
    bool again = n->in_count == 2 && n->in[0] == n->in[1]; // x + x reads x twice
    return free && fits && !again ? x : NULL;
}

// What no gradient flows through is scratch, until a backward holds it: the input of an adapter
// below which all is frozen.
void tape_call_saved(struct tape *t, struct tensor *x)
{
    if (x->wants_grad || x->holders > 1 || x->is_transient || x->base != NULL || x->data == NULL)
        return;
    int maker = tape_maker(t, x);
    struct ledger_label label =
        tape_label(x, NULL, LEDGER_SAVED_ACTIVATIONS, maker >= 0 ? &t->node[maker] : NULL);
    arena_relabel(&t->arena, x->data, &label);
}

static void hold_for_backward(struct tape *t, struct node *n)
{
    if (n->out->base != NULL)
        n->out->base->holders++;
    if (!n->out->wants_grad)
        return;
    for (int i = 0; i < n->in_count; i++)
        if ((n->needs & (1u << i)) && !n->in[i]->is_persistent) {
            tape_call_saved(t, n->in[i]);
            n->in[i]->holders++;
        }
    if (n->needs & NEEDS_OUT)
        n->out->holders++;
}

void tape_bind(struct node *n)
{
    for (int i = 0; i <= n->in_count; i++) {
        struct tensor *x = i < n->in_count ? n->in[i] : n->out;
        if (x->base != NULL)
            x->data = tensor_at(x->base->data, x->dtype, x->base_offset);
    }
}

void tape_push_work(struct tape *t, struct node *n, int64_t bytes)
{
    struct ledger_label label = {.name = n->name,
                                 .suffix = ".work",
                                 .op = n->op->name,
                                 .category = LEDGER_WORKSPACE,
                                 .dtype = DTYPE_U8,
                                 .dim_count = 1,
                                 .dim = &bytes,
                                 .node = n->index};
    n->work = bytes > 0 ? arena_push(&t->arena, ARENA_HIGH, bytes, &label) : NULL;
}

void tape_give_work(struct tape *t, struct node *n)
{
    if (n->work != NULL)
        arena_give(&t->arena, n->work);
    n->work = NULL;
}

static enum ledger_category category_of(const struct tape *t, const struct tensor *y,
                                        enum ledger_phase phase)
{
    if (phase == PHASE_RECOMPUTE)
        return LEDGER_RECOMPUTED;
    return y->is_transient || t->eval || !y->wants_grad ? LEDGER_WORKSPACE
                                                        : LEDGER_SAVED_ACTIVATIONS;
}

// Where the output's bytes come from: the taken input, or a push. Extras first: backward gives them
// back last.
static void place(struct tape *t, struct node *n, enum arena_end end, enum ledger_phase phase)
{
    struct tensor *y = n->out, *from = n->taken;
    bool as_saved = n->op->takes == TAKES_IN0_AS_SAVED;
    enum ledger_category category = category_of(t, y, phase);
    struct ledger_label label = tape_label(y, NULL, category, n);
    enum dtype saved_dtype = as_saved ? n->in[0]->dtype : DTYPE_REAL;
    struct ledger_label saved = {.name = n->name,
                                 .suffix = ".saved",
                                 .op = n->op->name,
                                 .category = category,
                                 .dtype = saved_dtype,
                                 .dim_count = 1,
                                 .dim = (int64_t[]){y->saved_bytes / dtype_bytes(saved_dtype)},
                                 .node = n->index};
    if (from != NULL) {
        *(as_saved ? &y->saved : &y->data) = from->data;
        arena_relabel(&t->arena, from->data, as_saved ? &saved : &label);
        from->data = NULL;
    }
    if (y->saved_bytes > 0 && y->saved == NULL)
        y->saved = arena_push(&t->arena, end, y->saved_bytes, &saved);
    if (y->data == NULL && y->base == NULL)
        y->data = arena_push(&t->arena, end, tensor_bytes(y), &label);
}

// Computes the output of n, which must be missing. In-place ops find in[i]->data == out->data (or
// == out->saved).
void tape_compute(struct tape *t, struct node *n, enum arena_end end, enum ledger_phase phase)
{
    struct tensor *from = n->taken;
    real *taken_data = from != NULL ? from->data : NULL;
    n->out->is_transient = end == ARENA_HIGH;
    place(t, n, end, phase);
    tape_push_work(t, n, n->forward_work_bytes);
    t->flops[phase] += n->forward_flops;
    t->class_flops[phase][n->cost] += n->forward_flops;
    if (!t->arena.dry) {
        if (from != NULL)
            from->data = taken_data;
        tape_bind(n);
        t->running = n;
        tape_break(t, n, phase);
        CHECK(n->op->forward[t->device] != NULL);
        n->op->forward[t->device](t, n);
        if (t->trap != NULL)
            trap_forward(t, n, phase);
        t->running = NULL;
        if (from != NULL)
            from->data = NULL;
    }
    tape_give_work(t, n);
}

struct tensor *tape_apply(struct tape *t, const struct op *op, int in_count,
                          struct tensor *const in[], const struct op_args *args)
{
    struct node *n = new_node(t, op, in_count, in);
    CHECK(!op->forward_only || !n->out->wants_grad);
    if (args != NULL)
        n->args = *args;
    op->infer(t, n);
    CHECK((n->out->base != NULL) == (op->grad == GRAD_IS_VIEW));
    if (n->out->base != NULL)
        n->out->dtype = n->out->grad_dtype = n->out->base->dtype;
    n->taken = taken_input(t, n);
    bool recompute = t->open != NULL && (t->eval || !segment_keeps(t->open->policy, n->cost));
    bool high = n->taken != NULL ? n->taken->is_transient : recompute;
    if (n->out->base != NULL)
        high = n->out->base->is_transient;
    tape_compute(t, n, high ? ARENA_HIGH : ARENA_LOW, t->arena.ledger.phase);
    hold_for_backward(t, n);
    return n->out;
}

// ---- backward --------------------------------------------------------------------------

static void give_back_node(struct tape *t, struct node *n)
{
    grad_give(t, n->out);
    tape_give_saved(t, n->out);
    if (!n->out->wants_grad)
        return;
    for (int i = n->gave_input ? 1 : 0; i < n->in_count; i++)
        if (n->needs & (1u << i))
            tape_let_go(t, n->in[i]);
    if (n->needs & NEEDS_OUT)
        tape_let_go(t, n->out);
}

void tape_backward(struct tape *t, struct tensor *loss, real seed)
{
    CHECK(!t->eval && !t->is_walked && t->open == NULL);
    enum ledger_phase before = ledger_enter_phase(&t->arena.ledger, PHASE_BACKWARD);
    ledger_backward_begins(&t->arena.ledger);
    grad_seed(t, loss, seed);
    int s = t->segment_count - 1;
    for (int i = t->node_count - 1; i >= 0; i--) {
        struct node *n = &t->node[i];
        if (s >= 0 && i == t->segment[s].end_node - 1)
            t->segment[s].after_peak_bytes = ledger_watch(&t->arena.ledger);
        if (s >= 0 && i < t->segment[s].end_node && n->out->grad != NULL)
            segment_replay_for(t, &t->segment[s], n);
        grad_backward_node(t, n);
        give_back_node(t, n);
        t->walked_count++;
        if (s >= 0 && i == t->segment[s].first_node)
            segment_close(t, &t->segment[s--]);
    }
    t->is_walked = true;
    ledger_enter_phase(&t->arena.ledger, before);
}

// ---- scratch ---------------------------------------------------------------------------

void *tape_scratch(struct tape *t, const char *name, int64_t bytes)
{
    struct ledger_label label = {.name = name,
                                 .category = LEDGER_WORKSPACE,
                                 .dtype = DTYPE_U8,
                                 .dim_count = 1,
                                 .dim = &bytes,
                                 .node = -1};
    return arena_push(&t->arena, ARENA_HIGH, bytes, &label);
}

void tape_scratch_give(struct tape *t, void *scratch)
{
    arena_give(&t->arena, scratch);
}
