// debug_check.c - one node's backward against finite differences of its forward, at any stop.
//
// Everything happens on copies in a buffer of this file: nothing is restored because nothing is
// written. The scalar is L = sum of dy[k] out[k], so dL/dx is what backward should leave in dx.
// Inputs that are not there any more (taken over, given back, not yet recomputed) are computed
// from what is, node by node, on copies as well. Copies hold reals, however tensors are stored: in
// bf16 a small step would be lost.
#include "tape/array.h"
#include "tape/debug_int.h"
#include "tape/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 32 << 20, COPIES_MAX = 64, PICKS_MAX = 16 };

const int64_t debug_check_bytes = BUFFER_BYTES;

#ifdef TAPE_F64
static const double tolerance = 1e-6, relative_step = 0x1p-10;
#else
static const double tolerance = 1e-2, relative_step = 0x1p-5;
#endif

struct copy {
    const struct tensor *of; // an owner: views look into its copy
    real *data;
};

struct copies {
    const struct tape *t;
    struct tape tape; // what ops are called with: t, but for how it stores activations
    struct copy copy[COPIES_MAX];
    int count;
    int64_t used_bytes;
    const char *trouble; // NULL so far
};

// A node on copies: what its op is called with instead of the real one.
struct stand_in {
    struct node node;
    struct tensor in[NODE_IN_MAX], out;
};

static void *take(struct copies *c, int64_t bytes)
{
    static _Alignas(ARENA_ALIGN_BYTES) char buffer[BUFFER_BYTES];
    int64_t rounded = (bytes + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
    if (rounded > BUFFER_BYTES - c->used_bytes) {
        c->trouble = "its copies do not fit: try a smaller --micro-batch or --seq";
        return NULL;
    }
    c->used_bytes += rounded;
    return memset(buffer + c->used_bytes - rounded, 0, (size_t)rounded);
}

static real *take_reals(struct copies *c, int64_t count)
{
    return take(c, count * (int64_t)sizeof(real));
}

static struct copy *find(struct copies *c, const struct tensor *x)
{
    for (int i = 0; i < c->count; i++)
        if (c->copy[i].of == debug_owner(x))
            return &c->copy[i];
    return NULL;
}

static struct copy *add(struct copies *c, const struct tensor *owner)
{
    if (c->count == COPIES_MAX)
        c->trouble = "too much would have to be computed again";
    real *data = c->trouble == NULL ? take_reals(c, tensor_count(owner)) : NULL;
    if (data == NULL)
        return NULL;
    c->copy[c->count] = (struct copy){.of = owner, .data = data};
    return &c->copy[c->count++];
}

// Whether x has its values: the output of an op that is at work has a place, but not those.
static bool is_there(const struct tape *t, const struct tensor *owner)
{
    bool is_being_made =
        t->running != NULL && t->running->out == owner && t->arena.ledger.phase != PHASE_BACKWARD;
    return owner->data != NULL && !is_being_made;
}

// ---- running an op on copies -----------------------------------------------------------

static struct tensor on_copy(struct copies *c, const struct tensor *x)
{
    struct tensor y = *x;
    y.base = NULL;
    y.grad = NULL;
    y.dtype = y.grad_dtype = DTYPE_REAL;
    y.data = find(c, x)->data + x->base_offset;
    return y;
}

static int first_use(const struct node *n, int i)
{
    int first = 0;
    while (n->in[first] != n->in[i])
        first++;
    return first;
}

// All inputs of n have copies; its output gets one. The caller keeps *s where it is.
static bool stand_in(struct copies *c, const struct node *n, struct stand_in *s)
{
    s->node = *n;
    s->node.taken = NULL;
    s->node.args.slots = NULL; // rows of the table itself
    for (int i = 0; i < n->in_count; i++) {
        s->in[i] = on_copy(c, n->in[i]);
        s->node.in[i] = &s->in[first_use(n, i)]; // x + x reads x twice
        s->node.dx[i] = NULL;
    }
    s->out = (struct tensor){.name = n->out->name, .wants_grad = n->out->wants_grad};
    s->out.dtype = s->out.grad_dtype = DTYPE_REAL;
    s->node.out = &s->out;
    s->node.forward_work_bytes = s->node.backward_work_bytes = 0;
    n->op->infer(&c->tape, &s->node); // of reals, some sizes are others
    struct copy *y = add(c, n->out);
    if (y == NULL)
        return false;
    s->out.data = y->data;
    s->out.saved = s->out.saved_bytes > 0 ? take(c, s->out.saved_bytes) : NULL;
    int64_t work = s->node.forward_work_bytes, backward_work = s->node.backward_work_bytes;
    work = work > backward_work ? work : backward_work;
    s->node.work = work > 0 ? take(c, work) : NULL;
    return c->trouble == NULL;
}

static void forward(struct copies *c, struct stand_in *s)
{
    s->node.op->forward[c->t->device](&c->tape, &s->node);
}

// The first input of n that has no copy and cannot be copied; copies what can.
static const struct tensor *copy_inputs(struct copies *c, const struct node *n)
{
    for (int i = 0; i < n->in_count && c->trouble == NULL; i++) {
        const struct tensor *x = debug_owner(n->in[i]);
        if (find(c, x) != NULL)
            continue;
        if (!is_there(c->t, x))
            return x;
        struct copy *y = add(c, x);
        for (int64_t k = 0; y != NULL && k < tensor_count(x); k++)
            y->data[k] = array_get(tensor_data(x), k);
    }
    return NULL;
}

// Copies of all inputs of n. A stack of nodes, so that a long chain takes no deep recursion.
static bool provide(struct copies *c, const struct node *n)
{
    const struct node *stack[COPIES_MAX] = {n};
    int count = 1;
    while (count > 0 && c->trouble == NULL) {
        const struct node *m = stack[count - 1];
        const struct tensor *missing = copy_inputs(c, m);
        int maker = missing != NULL ? tape_maker(c->t, missing) : -1;
        struct stand_in s;
        if (missing != NULL && (count == COPIES_MAX || maker < 0))
            c->trouble = "too much would have to be computed again";
        else if (missing != NULL)
            stack[count++] = &c->t->node[maker];
        else if (--count > 0 && c->trouble == NULL && stand_in(c, m, &s))
            forward(c, &s);
    }
    return c->trouble == NULL;
}

// ---- both sides ------------------------------------------------------------------------

// The gradient of the output: the real one, or random numbers. Returns what to call it.
static const char *fill_dy(const struct tape *t, const struct node *n, real *dy)
{
    int64_t count = tensor_count(n->out);
    const real *now = n->out->grad;
    if (t->running == n && t->arena.ledger.phase == PHASE_BACKWARD && n->op->grad != GRAD_PASSES)
        now = n->dy;
    struct array given = array_of(now, n->out->grad_dtype);
    bool finite = now != NULL;
    for (int64_t k = 0; finite && k < count; k++)
        finite = isfinite((double)array_get(given, k));
    for (int64_t k = 0; k < count; k++)
        dy[k] = finite ? array_get(given, k) : (real)rng_normal(rng_key(1, RNG_TEST), (uint64_t)k);
    return finite ? "its gradient now" : "random, since its gradient is not there";
}

// Where dx[i] goes: as in grad.c, but in buffers of our own, which begin with zeros.
static void give_dx(struct copies *c, const struct node *n, struct stand_in *s, int i)
{
    const struct tensor *x = n->in[i], *owner = debug_owner(x);
    int first = first_use(n, i);
    s->node.adds[i] = first < i || tensor_count(x) < tensor_count(owner);
    if (n->op->grad == GRAD_FROM_SAVED) {
        s->node.dx[i] = s->out.saved;
    } else if (first < i) {
        s->node.dx[i] = s->node.dx[first];
    } else {
        real *buffer = take_reals(c, tensor_count(owner));
        s->node.dx[i] = buffer != NULL ? buffer + x->base_offset : NULL;
    }
}

// y = a + b has no backward of its own.
static void pass(struct stand_in *s, const real *dy)
{
    for (int i = 0; i < s->node.in_count; i++)
        for (int64_t k = 0; s->node.dx[i] != NULL && k < tensor_count(&s->out); k++)
            s->node.dx[i][k] += dy[k];
}

static void backward(struct copies *c, const struct node *n, struct stand_in *s, real *dy)
{
    s->node.dy = dy;
    for (int i = 0; i < n->in_count && c->trouble == NULL; i++)
        if (n->in[i]->wants_grad)
            give_dx(c, n, s, i);
    if (c->trouble != NULL)
        return;
    if (n->op->grad == GRAD_PASSES)
        pass(s, dy);
    else
        s->node.op->backward[c->t->device](&c->tape, &s->node);
    if (n->op->grad == GRAD_FROM_SAVED) // what follows runs forward again
        s->out.saved = take(c, s->out.saved_bytes);
}

static double product(struct copies *c, struct stand_in *s, const real *dy)
{
    double sum = 0;
    forward(c, s);
    for (int64_t k = 0; k < tensor_count(&s->out); k++)
        sum += (double)dy[k] * (double)s->out.data[k];
    return sum;
}

static double at(struct copies *c, struct stand_in *s, const real *dy, real *x, double step)
{
    real was = *x;
    *x = (real)((double)was + step);
    double sum = product(c, s, dy);
    *x = was;
    return sum;
}

static double slope(struct copies *c, struct stand_in *s, const real *dy, real *x, double h)
{
    double near = at(c, s, dy, x, h) - at(c, s, dy, x, -h);
    double far = at(c, s, dy, x, 2 * h) - at(c, s, dy, x, -2 * h);
    return (8 * near - far) / (12 * h);
}

// A power of two that is small beside the numbers of x, so that x + h loses little.
static double step_for(const struct tensor *x)
{
    double sum = 0;
    int64_t count = tensor_count(x), cols = x->dim[x->dim_count - 1];
    for (int64_t k = 0; k < count; k++) {
        double v = (double)x->data[debug_offset(x, k / cols, k % cols)];
        sum += v * v;
    }
    double size = sqrt(sum / (double)count);
    return size > 0 && isfinite(size) ? relative_step * exp2(round(log2(size))) : relative_step;
}

// ---- the comparison --------------------------------------------------------------------

// So many elements of each input that a check of a large product takes about a second.
static int64_t pick_count(const struct node *n)
{
    const int64_t flops = 100000000;
    int64_t count = flops / (4 * (n->forward_flops + 1));
    return count < 2 ? 2 : count > PICKS_MAX ? PICKS_MAX : count;
}

static int64_t largest(const struct tensor *x, const real *dx)
{
    int64_t best = 0, cols = x->dim[x->dim_count - 1];
    double most = -1;
    for (int64_t k = 0; k < tensor_count(x); k++) {
        double v = fabs((double)dx[debug_offset(x, k / cols, k % cols)]);
        if (v > most) {
            most = v;
            best = k;
        }
    }
    return best;
}

// The largest element of dx, and others at even distances.
static bool compare(struct copies *c, const struct node *n, struct stand_in *s, const real *dy,
                    int i)
{
    struct tensor *x = s->node.in[i];
    const real *dx = s->node.dx[i];
    int64_t cols = x->dim[x->dim_count - 1], all = tensor_count(x), picks = pick_count(n);
    int64_t first = largest(x, dx);
    double h = step_for(x), error_sum = 0, sum = 0, first_numeric = 0;
    picks = picks < all ? picks : all;
    for (int64_t p = 0; p < picks; p++) {
        int64_t k = (first + p * (all / picks)) % all;
        int64_t offset = debug_offset(x, k / cols, k % cols);
        double analytic = (double)dx[offset], numeric = slope(c, s, dy, &x->data[offset], h);
        first_numeric = p == 0 ? numeric : first_numeric;
        sum += analytic * analytic;
        error_sum += (analytic - numeric) * (analytic - numeric);
    }
    bool ok = sqrt(error_sum) <= tolerance * (sum > 0 ? sqrt(sum) : 1); // false for NaN
    int64_t offset = debug_offset(x, first / cols, first % cols);
    printf("  dx[%d]  %lld element%s of %s: %s; row %lld, column %lld: backward %.4g, "
           "differences %.3g\n",
           i, (long long)picks, picks == 1 ? "" : "s", x->name, ok ? "agree" : "DIFFER",
           (long long)(first / cols), (long long)(first % cols), (double)dx[offset], first_numeric);
    return ok;
}

static void compare_all(struct copies *c, const struct node *n, struct stand_in *s,
                        const char *dy_is, const real *dy)
{
    bool ok = true;
    printf("node %d, %s: %s, differences of sum(dy out), dy %s\n", n->index, n->name,
           n->op->formula, dy_is);
    for (int i = 0; i < n->in_count; i++) {
        if (s->node.dx[i] == NULL)
            printf("  dx[%d]  nobody wants it\n", i);
        else
            ok &= compare(c, n, s, dy, i);
    }
    printf("%s within %g of the norm (%s)\n", ok ? "they agree" : "THEY DIFFER: not", tolerance,
           dtype_name(DTYPE_REAL));
}

void debug_check(const struct tape *t, int index)
{
    if (!debug_has_node(t, index))
        return;
    const struct node *n = &t->node[index];
    static struct copies c; // large
    struct stand_in s;
    c = (struct copies){.t = t, .tape = *t};
    c.tape.activation_dtype = DTYPE_REAL;
    real *dy = NULL;
    if (n->op->grad == GRAD_IS_VIEW)
        c.trouble = "a view computes nothing: its gradient is a part of its input's";
    else if (!n->out->wants_grad)
        c.trouble = "it has no backward: no parameter is upstream, or this is no training";
    if (c.trouble == NULL && provide(&c, n) && stand_in(&c, n, &s))
        dy = take_reals(&c, tensor_count(n->out));
    if (dy != NULL) {
        const char *dy_is = fill_dy(t, n, dy);
        forward(&c, &s);
        backward(&c, n, &s, dy);
        if (c.trouble == NULL)
            compare_all(&c, n, &s, dy_is, dy);
    }
    if (c.trouble != NULL)
        printf("node %d, %s: nothing to check: %s\n", index, n->name, c.trouble);
    fflush(stdout);
}
