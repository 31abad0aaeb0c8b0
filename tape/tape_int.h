// tape_int.h - what tape.c, grad.c, segment.c and trap.c share. No other file includes this.
#ifndef TAPE_TAPE_INT_H
#define TAPE_TAPE_INT_H

#include "tape/array.h"
#include "tape/tape.h"

// Whose bytes x's are: its base if it is a view.
static inline struct tensor *tensor_owner(struct tensor *x)
{
    return x->base != NULL ? x->base : x;
}

// Element `from` of what is behind a pointer, NULL behind NULL.
static inline real *tensor_at(real *data, enum dtype dtype, int64_t from)
{
    return array_from(array_of(data, dtype), from).at;
}

static inline bool tensor_is_missing(struct tensor *x)
{
    return tensor_owner(x)->data == NULL;
}

// tape.c
void tape_let_go(struct tape *t, struct tensor *x);
void tape_call_saved(struct tape *t, struct tensor *x); // before x is held for the first time
void tape_give_data(struct tape *t, struct tensor *x);
void tape_give_saved(struct tape *t, struct tensor *x);
void tape_compute(struct tape *t, struct node *n, enum arena_end end, enum ledger_phase phase);
void tape_bind(struct node *n); // points the views among n's tensors into their bases
struct ledger_label tape_label(const struct tensor *x, const char *suffix,
                               enum ledger_category category, const struct node *n);
void tape_push_work(struct tape *t, struct node *n, int64_t bytes);
void tape_give_work(struct tape *t, struct node *n);

// segment.c
bool segment_keeps(enum tape_policy policy, enum op_cost cost);
void segment_replay_for(struct tape *t, struct segment *s, struct node *n);
void segment_close(struct tape *t, struct segment *s);

// grad.c
void grad_backward_node(struct tape *t, struct node *n);
void grad_give(struct tape *t, struct tensor *x);
void grad_sink(struct tape *t, struct tensor *x);
void grad_seed(struct tape *t, struct tensor *loss, real seed);

#endif
