// segment.c - recompute instead of keep (elsewhere called activation checkpointing).
//
//   forward    transient outputs go high and vanish with their scope; the result is hoisted low
//   backward   before each node: what it reads and is missing is computed again, low, in tape
//              order, from what is there; after the last node the outside inputs are let go
//
// Kept outputs are simply there: no call is matched with an earlier call. What nobody needs is
// not recomputed (the last linear of a block only feeds the residual sum). Recomputing at the
// last moment keeps the low end a stack: a value recomputed early would sit on top of kept ones
// that backward gives back first.
#include "tape/tape_int.h"

#include <string.h>

bool segment_keeps(enum tape_policy policy, enum op_cost cost)
{
    return ((unsigned)policy >> cost & 1) == 0;
}

static real *hoisted(struct tape *t, real *from, int64_t bytes, const struct ledger_label *label)
{
    if (from == NULL)
        return NULL;
    real *to = arena_push(&t->arena, ARENA_LOW, bytes, label);
    if (!t->arena.dry)
        memcpy(to, from, (size_t)bytes);
    arena_give(&t->arena, from);
    return to;
}

// The result of a segment is kept. If it was made high it is copied: one pass over one tensor.
static void hoist(struct tape *t, struct tensor *y)
{
    if (!y->is_transient)
        return;
    enum ledger_category category = y->wants_grad ? LEDGER_SAVED_ACTIVATIONS : LEDGER_WORKSPACE;
    struct ledger_label label = tape_label(y, NULL, category, NULL);
    struct ledger_label saved = tape_label(y, ".saved", category, NULL);
    y->saved = hoisted(t, y->saved, y->saved_bytes, &saved);
    y->data = hoisted(t, y->data, tensor_bytes(y), &label);
    y->is_transient = false;
}

static bool is_outside(const struct segment *s, const struct tensor *x)
{
    return !x->is_persistent && x->index < s->first_tensor;
}

struct tensor *tape_segment_end(struct tape *t, struct tensor *y)
{
    struct segment *s = t->open;
    CHECK(s != NULL && t->node_count > s->first_node);
    CHECK(!is_outside(s, y) && y->base == NULL);
    s->end_node = t->node_count;
    s->forward_peak_bytes = ledger_watch(&t->arena.ledger);
    s->is_replayed = y->wants_grad;
    for (int i = s->first_node; i < s->end_node; i++)
        for (int j = 0; s->is_replayed && j < t->node[i].in_count; j++)
            if (is_outside(s, t->node[i].in[j])) { // a replay reads it
                tape_call_saved(t, t->node[i].in[j]);
                t->node[i].in[j]->holders++;
            }
    hoist(t, y);
    s->in->in_scope = false;
    tape_let_go(t, s->in);
    t->open = NULL;
    y = tape_leave(t, y);
    s->low_after_bytes = t->arena.stack[ARENA_LOW].bytes;
    return y;
}

static bool mark(struct tensor *x)
{
    struct tensor *owner = tensor_owner(x);
    owner->redo |= owner->data == NULL;
    return owner->redo;
}

// Marks what backward of n reads and has not got, then what computing that takes. False: nothing.
static bool mark_missing(struct tape *t, const struct segment *s, struct node *n)
{
    bool any = false;
    for (int j = 0; j < n->in_count; j++)
        if (n->needs & (1u << j))
            any |= mark(n->in[j]);
    if (n->needs & NEEDS_OUT)
        any |= mark(n->out);
    n->out->redo |= n->out->saved_bytes > 0 && n->out->saved == NULL;
    any |= n->out->redo;
    for (int i = n->index; i >= s->first_node; i--) {
        struct node *m = &t->node[i];
        for (int j = 0; m->out->redo && j < m->in_count; j++)
            mark(m->in[j]);
    }
    return any;
}

void segment_replay_for(struct tape *t, struct segment *s, struct node *n)
{
    if (!mark_missing(t, s, n))
        return;
    enum ledger_phase before = ledger_enter_phase(&t->arena.ledger, PHASE_RECOMPUTE);
    int64_t flops = t->flops[PHASE_RECOMPUTE];
    for (int i = s->first_node; i <= n->index; i++) {
        struct node *m = &t->node[i];
        if (m->out->redo)
            tape_compute(t, m, ARENA_LOW, PHASE_RECOMPUTE);
    }
    for (int i = n->index; i >= s->first_node; i--) {
        struct tensor *y = t->node[i].out;
        if (y->redo && y->holders == 0) // only another recomputation wanted it
            tape_give_data(t, y);
        y->redo = false;
    }
    s->recompute_flops += t->flops[PHASE_RECOMPUTE] - flops;
    ledger_enter_phase(&t->arena.ledger, before);
}

void segment_close(struct tape *t, struct segment *s)
{
    for (int i = s->end_node - 1; i >= s->first_node; i--)
        for (int j = 0; j < t->node[i].in_count; j++) {
            struct tensor *x = t->node[i].in[j];
            if (!is_outside(s, x) || !s->is_replayed)
                continue;
            grad_sink(t, x); // over what the segment left stranded; in a residual stream, nothing
            tape_let_go(t, x);
        }
    s->backward_peak_bytes = ledger_watch(&t->arena.ledger);
}
