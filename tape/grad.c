// grad.c - who owns the gradient of an activation, and when a buffer may change hands.
//
// Rules:
//   1. The first to write x's gradient gets a buffer at the high end and overwrites it; others add.
//      The loss's own goes low.
//   2. y = a + b: y's buffer becomes a's if a has none yet, and b borrows it (reads only).
//      So a residual stream has one gradient buffer from the loss to the embedding.
//   3. Before anyone adds to a borrowed buffer, the borrower gets its own copy. In a block whose
//      branch is computed right before the sum this never happens.
//   4. If the owner is done before the borrower, the borrower inherits the buffer.
//   5. An in-place op turns dy into dx if y owns dy and x has none yet (rule 3 saves borrowers).
//   6. A gradient that leaves a segment, or that attention is about to read, slides over dead
//   bytes.
//   7. The gradient of a view is a part of its base's, which is zeroed when the part is not all.
#include "tape/tape_int.h"
#include "tape/trap.h"

#include <string.h>

static bool grad_is_borrowed_by_others(const struct tape *t, const struct tensor *x)
{
    for (int i = 0; i < t->loan_count; i++)
        if (t->loan[i] != x && t->loan[i]->grad == x->grad)
            return true;
    return false;
}

static void forget_loan(struct tape *t, struct tensor *b)
{
    int i = 0;
    while (t->loan[i] != b)
        i++;
    t->loan[i] = t->loan[--t->loan_count];
    b->grad_is_lent = false;
}

static void borrow(struct tape *t, struct tensor *b, real *grad)
{
    CHECK(t->loan_count < t->cap.loan_count);
    b->grad = grad;
    b->grad_is_lent = true;
    t->loan[t->loan_count++] = b;
    if (t->loan_count > t->max.loan_count)
        t->max.loan_count = t->loan_count;
}

static real *push_grad(struct tape *t, struct tensor *x, enum arena_end end)
{
    struct ledger_label label = tape_label(x, ".grad", LEDGER_ACTIVATION_GRADIENTS, NULL);
    label.dtype = x->grad_dtype;
    return arena_push(&t->arena, end, tensor_grad_bytes(x), &label);
}

static void own_copy(struct tape *t, struct tensor *b)
{
    const real *from = b->grad;
    b->grad = push_grad(t, b, ARENA_HIGH);
    if (!t->arena.dry)
        memcpy(b->grad, from, (size_t)tensor_grad_bytes(b));
    forget_loan(t, b);
}

// After this, x's buffer is x's alone and may be written.
static void make_writable(struct tape *t, struct tensor *x)
{
    if (x->grad_is_lent)
        own_copy(t, x);
    for (int i = t->loan_count - 1; i >= 0; i--)
        if (t->loan[i]->grad == x->grad)
            own_copy(t, t->loan[i]);
}

// Where to write x's gradient, or NULL if nobody wants it; *adds if others have written before.
static real *target(struct tape *t, struct tensor *x, bool *adds)
{
    *adds = false;
    if (!x->wants_grad)
        return NULL;
    struct tensor *owner = tensor_owner(x);
    if (owner->grad != NULL) {
        *adds = true;
        make_writable(t, owner);
        return tensor_at(owner->grad, owner->grad_dtype, x->base_offset);
    }
    CHECK(!owner->is_persistent); // a parameter's gradient is made once, before training
    owner->grad = push_grad(t, owner, ARENA_HIGH);
    *adds = tensor_count(x) < tensor_count(owner);
    if (*adds && !t->arena.dry)
        memset(owner->grad, 0, (size_t)tensor_grad_bytes(owner));
    return tensor_at(owner->grad, owner->grad_dtype, x->base_offset);
}

void grad_sink(struct tape *t, struct tensor *x)
{
    if (x->grad != NULL && !x->grad_is_lent && !grad_is_borrowed_by_others(t, x))
        x->grad = arena_sink(&t->arena, x->grad);
}

// The loss's own gradient goes low: it dies with the first node, and high it would lie under the
// gradient that this node makes.
void grad_seed(struct tape *t, struct tensor *loss, real seed)
{
    CHECK(loss->wants_grad); // a loss that no parameter reaches has no gradient
    struct tensor *owner = tensor_owner(loss);
    CHECK(owner->grad == NULL);
    owner->grad = push_grad(t, owner, ARENA_LOW);
    bool is_part = tensor_count(loss) < tensor_count(owner);
    if (is_part && !t->arena.dry)
        memset(owner->grad, 0, (size_t)tensor_grad_bytes(owner));
    struct array dloss = array_from(tensor_grad(owner), loss->base_offset);
    for (int64_t i = 0; !t->arena.dry && i < tensor_count(loss); i++) {
        real room[1], *at = array_open(dloss, i, 1, false, room);
        *at = seed;
        array_close(dloss, i, 1, at);
    }
    trap_values(t, loss, dloss, ".grad", "when backward began");
    if (!t->arena.dry)
        tape_break_grad(t, NULL, loss);
}

void grad_give(struct tape *t, struct tensor *x)
{
    if (x->grad == NULL)
        return;
    if (x->grad_is_lent)
        forget_loan(t, x);
    else {
        int heir = 0;
        while (heir < t->loan_count && t->loan[heir]->grad != x->grad)
            heir++;
        if (heir < t->loan_count)
            forget_loan(t, t->loan[heir]);
        else
            arena_give(&t->arena, x->grad);
    }
    x->grad = NULL;
}

// dx += dy, or dx = dy, which is stored as `dtype`.
static void add(struct tape *t, struct node *n, struct tensor *x, const real *dy, enum dtype dtype)
{
    bool adds;
    CHECK(tensor_is_contiguous(x));
    struct array dx = array_of(target(t, x, &adds), x->grad_dtype);
    int64_t count = dx.at != NULL && !t->arena.dry ? tensor_count(x) : 0;
    array_carry(dx, array_of(dy, dtype), count, adds);
    if (t->trap != NULL && count > 0)
        trap_added(t, n, x, dx);
}

// y's gradient may become x's: the same bytes, and nobody else has written any.
static bool may_take(const struct tensor *y, const struct tensor *x)
{
    return x->wants_grad && !x->is_persistent && x->base == NULL && x->grad == NULL &&
           x->grad_dtype == y->grad_dtype;
}

static bool may_move(const struct tensor *y, const struct tensor *x)
{
    return may_take(y, x) && !y->grad_is_lent;
}

// The gradients of n's inputs have changed: all of them (dx NULL), or those with a dx.
static void tell(struct tape *t, const struct node *n, real *const dx[])
{
    for (int i = 0; !t->arena.dry && i < n->in_count; i++)
        if (n->in[i]->wants_grad && (dx == NULL || dx[i] != NULL))
            tape_break_grad(t, n, n->in[i]);
}

// y = a + b. See rules 2 to 4.
static void pass(struct tape *t, struct node *n)
{
    struct tensor *y = n->out, *a = n->in[0], *b = n->in[1];
    real *dy = y->grad;
    t->running = n;
    if (!t->arena.dry)
        tape_break(t, n, PHASE_BACKWARD);
    if (may_move(y, a)) {
        a->grad = dy;
        y->grad = NULL;
    } else {
        add(t, n, a, dy, y->grad_dtype);
        dy = y->grad; // if a's buffer was lent to y, y just got a copy of it
    }
    if (may_take(y, b))
        borrow(t, b, dy); // if y still owns it, b inherits it at once, by rule 4
    else
        add(t, n, b, dy, y->grad_dtype);
    tell(t, n, NULL);
    t->running = NULL;
}

// The saved buffer will hold dx: it becomes x's gradient if x has none yet.
static void take_saved(struct tape *t, struct node *n)
{
    struct tensor *x = n->in[0], *y = n->out;
    x->grad = y->saved;
    y->saved = NULL;
    struct ledger_label label = tape_label(x, ".grad", LEDGER_ACTIVATION_GRADIENTS, n);
    label.dtype = x->dtype;
    arena_relabel(&t->arena, x->grad, &label);
}

static void run_backward(struct tape *t, struct node *n)
{
    tape_push_work(t, n, n->backward_work_bytes);
    if (!t->arena.dry) {
        tape_bind(n);
        t->running = n;
        tape_break(t, n, PHASE_BACKWARD);
        CHECK(n->op->backward[t->device] != NULL);
        n->op->backward[t->device](t, n);
        if (t->trap != NULL)
            trap_backward(t, n);
        t->running = NULL;
    }
    tape_give_work(t, n);
}

// Cross-entropy: the saved buffer turns into dx. Only the loss reads logits, as a rule; if somebody
// else does, or they are a parameter, dx is added to what is there.
static void from_saved(struct tape *t, struct node *n)
{
    struct tensor *x = n->in[0], *y = n->out;
    CHECK(y->saved != NULL);
    n->dx[0] = x->wants_grad ? y->saved : NULL;
    n->adds[0] = false;
    n->dy = y->grad;
    bool takes = may_take(x, x) && x->grad_dtype == x->dtype;
    if (takes)
        take_saved(t, n);
    run_backward(t, n);
    if (x->wants_grad && !takes)
        add(t, n, x, y->saved, x->dtype);
    tell(t, n, NULL);
}

// The gradients of parameters first; then in[0] is let go, and its gradient takes no more than what
// that gave back.
static void others_first(struct tape *t, struct node *n)
{
    for (int i = 1; i < n->in_count; i++)
        n->dx[i] = target(t, n->in[i], &n->adds[i]);
    n->dx[0] = NULL;
    n->dy = n->out->grad;
    run_backward(t, n);
    tape_let_go(t, n->in[0]);
    n->gave_input = true;
    tell(t, n, n->dx);
    for (int i = 1; i < n->in_count; i++)
        n->dx[i] = NULL;
    n->dx[0] = target(t, n->in[0], &n->adds[0]);
    n->dy = n->out->grad;
    run_backward(t, n);
    tell(t, n, n->dx);
}

// Worth it if there are others, and if in[0] then makes room: this node is its last reader, and
// nothing lies on it.
static bool others_come_first(const struct tape *t, const struct node *n)
{
    const struct tensor *x = n->in[0];
    bool has_others = false, holds = n->needs & NEEDS_IN0;
    for (int i = 1; i < n->in_count; i++)
        has_others |= n->in[i]->wants_grad && n->in[i] != x;
    return n->op->input_last && x->wants_grad && has_others && holds && !x->is_persistent &&
           x->base == NULL && x->holders == 1 && arena_is_on_top(&t->arena, x->data);
}

void grad_backward_node(struct tape *t, struct node *n)
{
    struct tensor *y = n->out, *x = n->in[0];
    if (y->grad == NULL) // the loss does not depend on this node, or it is a view
        return;
    if (n->op->grad == GRAD_PASSES) {
        pass(t, n);
        return;
    }
    t->flops[PHASE_BACKWARD] += n->backward_flops;
    t->class_flops[PHASE_BACKWARD][n->cost] += n->backward_flops;
    if (n->op->grad == GRAD_FROM_SAVED) {
        from_saved(t, n);
        return;
    }
    if (n->cost == COST_ATTENTION)
        grad_sink(t, y); // what comes on top may be T x T
    if (others_come_first(t, n)) {
        others_first(t, n);
        return;
    }
    bool in_place = n->op->grad == GRAD_IN_PLACE && may_move(y, x);
    if (in_place) {
        x->grad = y->grad;
        y->grad = NULL;
    }
    for (int i = 0; i < n->in_count; i++) // who borrowed dy gets a copy here
        n->dx[i] = target(t, n->in[i], &n->adds[i]);
    if (in_place)
        n->adds[0] = false;
    n->dy = in_place ? n->dx[0] : y->grad; // the latter may just have become a copy of a loan
    run_backward(t, n);
    tell(t, n, n->dx);
}
