#include "tape/array.h"
#include "tape/debug_int.h"
#include "tape/text.h"
#include "tape/trap.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PRINTER(f) ((void (*)(void))(f))
void (*const debug_printers[])(void) = {
    PRINTER(debug_tape),     PRINTER(debug_node),        PRINTER(debug_tensor),
    PRINTER(debug_grad),     PRINTER(debug_why),         PRINTER(debug_ledger),
    PRINTER(debug_arena),    PRINTER(debug_live),        PRINTER(debug_check),
    PRINTER(debug_text),     PRINTER(debug_find),        PRINTER(debug_offset),
    PRINTER(debug_has_node), PRINTER(debug_is_unwritten)};

// ---- small things ----------------------------------------------------------------------

size_t debug_append(char *out, size_t used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out + used, DEBUG_TEXT_BYTES - used, format, args);
    va_end(args);
    size_t end = used + (size_t)(length > 0 ? length : 0);
    return end < DEBUG_TEXT_BYTES ? end : DEBUG_TEXT_BYTES - 1;
}

bool debug_has_tape(const struct tape *t)
{
    if (t != NULL && t->node != NULL)
        return true;
    printf("no tape here: run to one with `tback 7`\n");
    fflush(stdout);
    return false;
}

bool debug_has_node(const struct tape *t, int index)
{
    if (!debug_has_tape(t))
        return false;
    if (index >= 0 && index < t->node_count)
        return true;
    printf("node %d: this tape has ", index);
    printf(t->node_count > 0 ? "nodes 0 to %d\n" : "no nodes yet\n", t->node_count - 1);
    fflush(stdout);
    return false;
}

int debug_first_done(const struct tape *t)
{
    return t->node_count - t->walked_count;
}

const struct ledger_row *debug_row_at(const struct tape *t, const void *address)
{
    int64_t offset = (const char *)address - t->arena.base;
    for (int end = 0; address != NULL && end < ARENA_END_COUNT; end++) {
        const struct arena_stack *s = &t->arena.stack[end];
        for (int64_t i = 0; i < s->count; i++)
            if (s->block[i].live && s->block[i].offset_bytes == offset)
                return &t->arena.ledger.row[s->block[i].row];
    }
    return NULL;
}

// ---- names -----------------------------------------------------------------------------

// Every tensor that has a name, some of them twice: those made on the tape, then what nodes read.
static int64_t candidate_count(const struct tape *t)
{
    return t->tensor_count + (int64_t)t->node_count * NODE_IN_MAX;
}

static const struct tensor *candidate(const struct tape *t, int64_t k)
{
    if (k < t->tensor_count)
        return &t->tensor[k];
    const struct node *n = &t->node[(k - t->tensor_count) / NODE_IN_MAX];
    int i = (int)((k - t->tensor_count) % NODE_IN_MAX);
    return i < n->in_count && n->in[i]->is_persistent ? n->in[i] : NULL;
}

static bool is_called(const struct tape *t, const struct tensor *x, const char *name)
{
    char numbered[DEBUG_TEXT_BYTES];
    debug_append(numbered, 0, "%s#%d", x->name, x->index);
    if (strcmp(x->name, name) == 0 || (!x->is_persistent && strcmp(numbered, name) == 0))
        return true;
    const struct ledger_row *row = x->is_persistent ? debug_row_at(t, x->grad) : NULL;
    return row != NULL && strcmp(row->name, name) == 0;
}

// A tied table is two tensors of one name, with a gradient each. The first is the weight itself.
static bool is_second(const struct tape *t, const struct tensor *x, const char *name)
{
    const struct ledger_row *row = x->is_persistent ? debug_row_at(t, x->grad) : NULL;
    size_t length = strlen(name);
    return row != NULL && strncmp(row->name, name, length) == 0 &&
           strcmp(row->name + length, ".grad") != 0 && row->name[length] != 0;
}

// Before a node has read it, a parameter is known to the ledger alone.
static const struct tensor *from_ledger(const struct tape *t, const char *name)
{
    static struct tensor x;
    static char x_name[LEDGER_NAME_BYTES], grad_name[LEDGER_NAME_BYTES + 8];
    const struct arena_stack *low = &t->arena.stack[ARENA_LOW];
    x = (struct tensor){.name = x_name, .index = -1, .is_persistent = true};
    snprintf(x_name, sizeof(x_name), "%s", name);
    snprintf(grad_name, sizeof(grad_name), "%s.grad", x_name);
    for (int64_t i = 0; i < low->count; i++) {
        const struct ledger_row *r = &t->arena.ledger.row[low->block[i].row];
        if (!low->block[i].live || (r->dtype != DTYPE_REAL && r->dtype != DTYPE_BF16))
            continue;
        real *at = (real *)(void *)(t->arena.base + low->block[i].offset_bytes);
        if (strcmp(r->name, grad_name) == 0) {
            x.grad = at;
            x.grad_dtype = r->dtype;
            x.wants_grad = true;
        } else if (strcmp(r->name, x_name) == 0) {
            x.data = at;
            x.dtype = r->dtype;
            tensor_shape(&x, r->dim_count, r->dim);
        }
    }
    return x.data != NULL ? &x : NULL;
}

static void suggest(const struct tape *t, const char *name)
{
    enum { SHOWN = 3 };
    const char *shown[SHOWN];
    int count = 0;
    for (int most = 0; count < SHOWN && most <= (int)strlen(name) / 2; most++)
        for (int64_t k = 0; count < SHOWN && k < candidate_count(t); k++) {
            const struct tensor *x = candidate(t, k);
            if (x == NULL || (text_distance(name, strlen(name), x->name) > most &&
                              strstr(x->name, name) == NULL))
                continue;
            int i = 0;
            while (i < count && strcmp(shown[i], x->name) != 0)
                i++;
            if (i == count)
                shown[count++] = x->name;
        }
    printf("no tensor is called %s", name);
    for (int i = 0; i < count; i++)
        printf("%s%s", i == 0 ? "; close: " : ", ", shown[i]);
    printf(count > 0 ? "\n" : "; `tape` lists those there are\n");
    fflush(stdout);
}

const struct tensor *debug_find(const struct tape *t, const char *name)
{
    if (!debug_has_tape(t))
        return NULL;
    const struct tensor *found = NULL;
    for (int64_t k = 0; k < candidate_count(t); k++) {
        const struct tensor *x = candidate(t, k);
        if (x == NULL || x == found || !is_called(t, x, name) || is_second(t, x, name))
            continue;
        if (found != NULL && !x->is_persistent) {
            printf("several tensors are called %s: say which, %s#%d or %s#%d\n", name, name,
                   found->index, name, x->index);
            fflush(stdout);
            return NULL;
        }
        found = x;
    }
    if (found == NULL)
        found = from_ledger(t, name);
    if (found == NULL)
        suggest(t, name);
    return found;
}

int64_t debug_offset(const struct tensor *x, int64_t i, int64_t j)
{
    int64_t cols = x->dim[x->dim_count - 1], rows = tensor_count(x) / cols;
    if (i < 0 || i >= rows || j < 0 || j >= cols) {
        printf("%s has rows 0 to %lld and columns 0 to %lld\n", x->name, (long long)rows - 1,
               (long long)cols - 1);
        fflush(stdout);
        return -1;
    }
    int64_t at = j * x->stride[x->dim_count - 1];
    for (int d = x->dim_count - 2; d >= 0; i /= x->dim[d--])
        at += i % x->dim[d] * x->stride[d];
    return at;
}

// ---- one line --------------------------------------------------------------------------

static bool node_reads(const struct node *n, const struct tensor *x)
{
    bool reads = (n->needs & NEEDS_OUT) && debug_owner(n->out) == x;
    for (int i = n->gave_input ? 1 : 0; i < n->in_count; i++)
        reads |= (n->needs & (1u << i)) && debug_owner(n->in[i]) == x;
    return reads && n->out->wants_grad;
}

// Appends "node 5" or "nodes 5, 7": those whose backward is to come and reads x.
static size_t append_readers(const struct tape *t, const struct tensor *x, char *out, size_t used)
{
    int count = 0;
    for (int i = 0; i < debug_first_done(t); i++)
        count += node_reads(&t->node[i], x);
    const char *before = count > 1 ? "nodes " : "node ";
    for (int i = 0; i < debug_first_done(t); i++)
        if (node_reads(&t->node[i], x)) {
            used = debug_append(out, used, "%s%d", before, i);
            before = ", ";
        }
    return used;
}

static size_t append_gone(const struct tape *t, const struct tensor *x, const char *readers,
                          char *out, size_t used)
{
    for (int i = 0; i < t->node_count; i++)
        if (t->node[i].taken == x && readers[0] == 0)
            return debug_append(out, used, "in a buffer that node %d took over", i);
    if (readers[0] != 0)
        return debug_append(out, used, "not there, will be computed again for %s", readers);
    return debug_append(out, used, "given back");
}

static size_t append_purpose(const struct tape *t, const struct tensor *x, char *out, size_t used)
{
    char readers[DEBUG_TEXT_BYTES] = "";
    if (x->base != NULL)
        return debug_append(out, used, "a view of %s", x->base->name);
    append_readers(t, x, readers, 0);
    if (x->data == NULL)
        return append_gone(t, x, readers, out, used);
    const struct ledger_row *row = debug_row_at(t, x->data);
    if (x->is_persistent)
        return debug_append(out, used, "%s",
                            row != NULL ? ledger_category_name(row->category) : "elsewhere");
    bool again = row != NULL && row->category == LEDGER_RECOMPUTED;
    if (readers[0] != 0 && x->is_transient && !again)
        return debug_append(out, used, "until its scope ends, then again for %s", readers);
    if (readers[0] != 0)
        return debug_append(out, used, "%s for %s", again ? "recomputed" : "saved", readers);
    return debug_append(out, used, x->in_scope ? "held by its scope" : "held by its segment");
}

static size_t append_shape(const struct tensor *x, enum dtype dtype, char *out, size_t used)
{
    used = debug_append(out, used, "%s[", dtype_name(dtype));
    for (int i = 0; i < x->dim_count; i++)
        used = debug_append(out, used, "%s%lld", i > 0 ? "," : "", (long long)x->dim[i]);
    return debug_append(out, used, "]");
}

static bool is_tensor(const struct tensor *x)
{
    return x != NULL && x->name != NULL && x->dim_count >= 1 && x->dim_count <= DIM_MAX;
}

const char *debug_text(const struct tape *t, const struct tensor *x)
{
    static char text[DEBUG_TEXT_BYTES];
    if (!is_tensor(x))
        return "(no tensor)";
    size_t used = debug_append(text, 0, "%s ", x->name);
    used = append_shape(x, x->dtype, text, used);
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    used = debug_append(text, used, " %lld B", (long long)bytes);
    if (t != NULL && t->node != NULL) {
        used = debug_append(text, used, " ");
        append_purpose(t, x, text, used);
    }
    return text;
}

// ---- the tape and its nodes ------------------------------------------------------------

static const char *state_of(const struct tape *t, const struct node *n)
{
    if (t->running == n)
        return "now";
    if (n->index >= debug_first_done(t))
        return "back";
    if (n->gave_input)
        return "half";
    return n->out->redo && n->out->data == NULL ? "again" : "done";
}

static void print_saved(const struct node *n)
{
    if (n->out->saved != NULL)
        printf(", with %lld B %s", (long long)n->out->saved_bytes,
               n->op->saved_name != NULL ? n->op->saved_name : "saved");
}

void debug_tape(const struct tape *t)
{
    if (!debug_has_tape(t))
        return;
    printf("%d nodes, %s", t->node_count, ledger_phase_name(t->arena.ledger.phase));
    if (t->running != NULL)
        printf(", at node %d", t->running->index);
    else if (t->walked_count > 0)
        printf(", %d to go", debug_first_done(t));
    printf("; samples from %lld on\n", (long long)t->first_sample);
    for (int i = 0; i < t->node_count; i++) {
        const struct node *n = &t->node[i];
        printf("%4d %-5s %s", i, state_of(t, n), debug_text(t, n->out));
        print_saved(n);
        printf("\n");
    }
    printf("done: forward ran; back: backward, too; now: at work; again: about to be recomputed; "
           "half: dx is to come\n");
    fflush(stdout);
}

static void print_scope(const struct node *n)
{
    const char *dot = strrchr(n->name, '.');
    printf("  asked  %s:%d", n->file != NULL ? n->file : "?", n->line);
    if (dot != NULL)
        printf(", in scope %.*s", (int)(dot - n->name), n->name);
    printf("\n");
}

static void print_keeps(const struct node *n)
{
    char text[DEBUG_TEXT_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < n->in_count; i++)
        if (n->needs & (1u << i))
            used = debug_append(text, used, "%sin[%d]", used > 0 ? ", " : "", i);
    if (n->needs & NEEDS_OUT)
        used = debug_append(text, used, "%sout", used > 0 ? ", " : "");
    if (n->out->saved_bytes > 0)
        used = debug_append(text, used, "%sout->saved", used > 0 ? ", " : "");
    printf("  keeps  %s (%s)\n", n->op->keeps != NULL ? n->op->keeps : "nothing",
           used > 0 ? text : "nothing of its own");
}

// While its backward runs: what has become of each input's gradient.
static const char *fate_of(const struct node *n, int i)
{
    if (!n->in[i]->wants_grad)
        return "nobody wants it";
    if (n->op->grad == GRAD_PASSES)
        return i == 0 ? "dy's buffer moves here" : "dy's buffer is lent";
    if (n->dx[i] == NULL)
        return n->gave_input ? "done before the first" : "later, alone, when the others are done";
    if (n->dx[i] == n->dy)
        return "in place: dy's own buffer";
    return n->adds[i] ? "adds to what is there" : "writes";
}

static void print_numbers(const struct tensor *x, struct array values);

static void print_backward(const struct tape *t, const struct node *n)
{
    bool runs = t->running == n && t->arena.ledger.phase == PHASE_BACKWARD;
    const real *dy = n->out->grad == NULL && runs ? n->dy : n->out->grad;
    if (dy == NULL)
        return;
    printf("  dy     ");
    print_numbers(n->out, array_of(dy, n->out->grad_dtype));
    for (int i = 0; runs && i < n->in_count; i++)
        printf("  dx[%d]  %s\n", i, fate_of(n, i));
}

void debug_node(const struct tape *t, int index)
{
    if (!debug_has_node(t, index))
        return;
    const struct node *n = &t->node[index];
    printf("node %d, %s: %s: %s\n", index, state_of(t, n), n->op->name, n->op->formula);
    print_scope(n);
    for (int i = 0; i < n->in_count; i++)
        printf("  in[%d]  %s\n", i, debug_text(t, n->in[i]));
    printf("  out    %s", debug_text(t, n->out));
    print_saved(n);
    printf("\n");
    print_keeps(n);
    print_backward(t, n);
    fflush(stdout);
}

// ---- values ----------------------------------------------------------------------------

struct numbers {
    double norm, largest; // of those that are finite
    int64_t at, nan_count, inf_count;
};

static double value_at(const struct tensor *x, struct array values, int64_t k)
{
    int64_t cols = x->dim[x->dim_count - 1];
    return (double)array_get(values, debug_offset(x, k / cols, k % cols));
}

static struct numbers numbers_of(const struct tensor *x, struct array values)
{
    struct numbers s = {.at = 0};
    double sum = 0;
    for (int64_t k = 0; k < tensor_count(x); k++) {
        double v = value_at(x, values, k);
        s.nan_count += isnan(v) != 0;
        s.inf_count += isinf(v) != 0;
        if (!isfinite(v))
            continue;
        sum += v * v;
        if (fabs(v) > fabs(s.largest)) {
            s.largest = v;
            s.at = k;
        }
    }
    s.norm = sqrt(sum);
    return s;
}

// "[3,7]" of the k-th element, the last dimension left out if only a row is meant.
static size_t append_index(const struct tensor *x, int64_t k, int dims, char *out, size_t used)
{
    int64_t rest = 1;
    for (int d = 1; d < x->dim_count; d++)
        rest *= x->dim[d];
    for (int d = 0; d < dims; d++) {
        used = debug_append(out, used, "%c%lld", d == 0 ? '[' : ',', (long long)(k / rest));
        k %= rest;
        rest = d + 1 < x->dim_count ? rest / x->dim[d + 1] : 1;
    }
    return debug_append(out, used, "]");
}

static void print_numbers(const struct tensor *x, struct array values)
{
    char at[DEBUG_TEXT_BYTES];
    struct numbers s = numbers_of(x, values);
    append_index(x, s.at, x->dim_count, at, 0);
    printf("norm %.4g, largest %.4g at %s", s.norm, s.largest, at);
    if (s.nan_count > 0 || s.inf_count > 0)
        printf(", %lld NaN, %lld infinite", (long long)s.nan_count, (long long)s.inf_count);
    printf("\n");
}

enum { EDGE = 3, WHOLE = 6 }; // up to WHOLE all are shown, else EDGE from either end

static bool is_shown(int64_t i, int64_t count)
{
    return count <= WHOLE || i < EDGE || i >= count - EDGE;
}

static size_t append_row(const struct tensor *x, struct array values, int64_t row, char *out,
                         size_t used)
{
    int64_t cols = x->dim[x->dim_count - 1];
    char label[DEBUG_TEXT_BYTES] = "";
    if (x->dim_count > 1)
        append_index(x, row * cols, x->dim_count - 1, label, 0);
    used = debug_append(out, used, "%10s", label);
    for (int64_t j = 0; j < cols; j++) {
        double v = is_shown(j, cols) ? value_at(x, values, row * cols + j) : 0;
        if (isnan(v)) // whatever its sign
            used = debug_append(out, used, " %10s", "nan");
        else if (is_shown(j, cols))
            used = debug_append(out, used, " %10.4g", v);
        else if (j == EDGE)
            used = debug_append(out, used, "  ...");
    }
    return debug_append(out, used, "\n");
}

static const char *matrix_of(const struct tensor *x, struct array values)
{
    static char text[DEBUG_TEXT_BYTES];
    int64_t cols = x->dim[x->dim_count - 1], rows = tensor_count(x) / cols;
    size_t used = 0;
    text[0] = 0;
    for (int64_t i = 0; values.at != NULL && i < rows; i++) {
        if (is_shown(i, rows))
            used = append_row(x, values, i, text, used);
        else if (i == EDGE)
            used = debug_append(text, used, "%10s\n", "...");
    }
    return text;
}

static struct array values_of(const struct tensor *x)
{
    return array_from(tensor_data(debug_owner(x)), x->base_offset);
}

void debug_tensor(const struct tape *t, const char *name)
{
    const struct tensor *x = debug_find(t, name);
    if (x == NULL)
        return;
    printf("%s\n", debug_text(t, x));
    struct array values = values_of(x);
    if (values.at != NULL)
        print_numbers(x, values);
    printf("%s", matrix_of(x, values));
    fflush(stdout);
}

// ---- gradients -------------------------------------------------------------------------

static const struct tensor *lender_of(const struct tape *t, const struct tensor *x)
{
    for (int i = 0; i < t->tensor_count; i++) {
        const struct tensor *y = &t->tensor[i];
        if (y != x && y->grad == x->grad && !y->grad_is_lent)
            return y;
    }
    return NULL;
}

// Where the gradient's bytes come from, if not from a row of its own.
static void print_buffer(const struct tape *t, const struct tensor *x)
{
    const struct ledger_row *row = debug_row_at(t, x->grad);
    size_t length = strlen(x->name);
    bool own = row != NULL && strncmp(row->name, x->name, length) == 0 &&
               strcmp(row->name + length, ".grad") == 0;
    const struct tensor *lender = x->grad_is_lent ? lender_of(t, x) : NULL;
    if (lender != NULL)
        printf(", lent by %s", lender->name);
    if (row != NULL && !own)
        printf(", in the buffer born as %s", row->name);
}

static void print_no_gradient(const struct tape *t, const struct tensor *x)
{
    printf("%s has no gradient now: ", x->name);
    int maker = tape_maker(t, x);
    if (!x->wants_grad)
        printf("nobody wants one, it depends on no parameter\n");
    else if (maker >= debug_first_done(t))
        printf("node %d, which made it, has used it up\n", maker);
    else
        printf("backward has not come to a node that reads it\n");
}

// Values look alike in every op that makes nothing but NaN: once a trap has seen them, they are it.
bool debug_is_unwritten(const struct tape *t, const struct tensor *x)
{
    const struct node *n = t->running;
    const struct tensor *owner = debug_owner(x);
    bool is_due = false;
    if (n == NULL || t->arena.ledger.phase != PHASE_BACKWARD || owner->grad == NULL ||
        (t->trap != NULL && t->trap->text[0] != 0))
        return false;
    for (int i = 0; i < n->in_count; i++)
        is_due |=
            debug_owner(n->in[i]) == owner && n->dx[i] != NULL && n->dx[i] != n->dy && !n->adds[i];
    struct array values = array_of(owner->grad, owner->grad_dtype);
    for (int64_t k = 0; is_due && k < tensor_count(owner); k++)
        is_due = isnan((double)array_get(values, k));
    return is_due;
}

void debug_grad(const struct tape *t, const char *name)
{
    const struct tensor *x = debug_find(t, name);
    if (x == NULL)
        return;
    const struct tensor *owner = debug_owner(x);
    struct array values = array_from(tensor_grad(owner), x->base_offset);
    bool is_dy = values.at == NULL && t->running != NULL && t->running->out == x;
    if (is_dy && t->arena.ledger.phase == PHASE_BACKWARD)
        values.at = (void *)(uintptr_t)t->running->dy; // in place: it is its input's already
    if (values.at == NULL) {
        print_no_gradient(t, x);
    } else {
        char shape[DEBUG_TEXT_BYTES];
        append_shape(x, owner->grad_dtype, shape, 0);
        printf("gradient of %s %s", x->name, shape);
        if (x->base != NULL)
            printf(", inside that of %s", x->base->name);
        else if (!is_dy)
            print_buffer(t, x);
        if (debug_is_unwritten(t, x)) {
            printf("\nborn, not written yet: node %d is about to\n", t->running->index);
        } else {
            printf("\n");
            print_numbers(x, values);
            printf("%s", matrix_of(x, values));
        }
    }
    fflush(stdout);
}

// ---- who keeps a tensor ----------------------------------------------------------------

static void print_scopes(const struct tape *t, const struct tensor *x)
{
    for (int i = t->scope_count - 1; i >= 0; i--)
        if (t->scope[i].first_tensor <= x->index) {
            const char *name = t->scope[i].name;
            printf("  its scope is open: %s\n", name[0] != 0 ? name : "the outermost");
            return;
        }
}

static void print_segments(const struct tape *t, const struct tensor *x)
{
    for (int i = 0; i < t->segment_count; i++) {
        const struct segment *s = &t->segment[i];
        bool reads = false;
        for (int k = s->first_node; k < s->end_node; k++)
            for (int j = 0; j < t->node[k].in_count; j++)
                reads |= t->node[k].in[j] == x;
        if (reads && s->is_replayed && x->index < s->first_tensor &&
            s->first_node < debug_first_done(t))
            printf("  segment %d (nodes %d to %d) reads it, and holds it to the end of its "
                   "backward\n",
                   i, s->first_node, s->end_node - 1);
    }
}

static void print_borrowers(const struct tape *t, const struct tensor *x)
{
    const struct tensor *lender = x->grad_is_lent ? lender_of(t, x) : NULL;
    if (lender != NULL)
        printf("  its gradient is lent by %s\n", lender->name);
    for (int i = 0; x->grad != NULL && !x->grad_is_lent && i < t->loan_count; i++)
        if (t->loan[i]->grad == x->grad)
            printf("  its gradient is lent to %s\n", t->loan[i]->name);
}

void debug_why(const struct tape *t, const char *name)
{
    const struct tensor *x = debug_find(t, name);
    if (x == NULL)
        return;
    printf("%s\n", debug_text(t, x));
    x = debug_owner(x);
    if (x->is_persistent)
        printf("  it is persistent: made before training, it stays\n");
    else if (x->in_scope)
        print_scopes(t, x);
    for (int i = 0; i < debug_first_done(t); i++)
        if (node_reads(&t->node[i], x))
            printf("  backward of node %d, %s, reads it: %s\n", i, t->node[i].name,
                   t->node[i].op->keeps);
    for (int i = 0; i < t->tensor_count; i++)
        if (t->tensor[i].base == x && t->tensor[i].holders > 0)
            printf("  %s is a view of it\n", t->tensor[i].name);
    if (!x->is_persistent)
        print_segments(t, x);
    print_borrowers(t, x);
    if (!x->is_persistent)
        printf("  %d holder%s\n", x->holders, x->holders == 1 ? "" : "s");
    fflush(stdout);
}
