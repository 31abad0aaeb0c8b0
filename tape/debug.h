// debug.h - printers to call from a debugger: `call debug_tape(t)`. They only read.
//
// Each prints to stdout and flushes it. They read the tape, its tensors and the ledger and measure
// nothing again; they write to nothing that a run reads, so a run that was stopped goes on to the
// same bits. tape/debug.gdb and tape/debug.lldb have a short command for each (docs/gdb.md).
//
// A name is a tensor's, as in "h.0.attn.c_attn" (an activation) or "h.0.attn.c_attn.weight"; one
// that several activations share takes a number, "c.mul#2"; a gradient's is its tensor's. t NULL,
// or a name that nothing has: a line that says what to try.
#ifndef TAPE_DEBUG_H
#define TAPE_DEBUG_H

#include "tape/tape.h"

void debug_tape(const struct tape *t);            // every node, and how far it is
void debug_node(const struct tape *t, int index); // formula, inputs, output, what is kept and why

void debug_tensor(const struct tape *t, const char *name); // what it is, and its values
void debug_grad(const struct tape *t, const char *name);   // the same of its gradient
void debug_why(const struct tape *t, const char *name);    // who keeps it alive, who lends it bytes

void debug_ledger(const struct tape *t); // every category: now, own peak, at the peak of the total
void debug_arena(const struct tape *t);  // a map of both ends
void debug_live(const struct tape *t);   // the largest tensors that are there now

// Finite differences of one node's backward, now: its forward and backward run on copies in a
// buffer of debug_check_bytes. What the node reads and is not there any more is computed again on
// copies, too. If the gradient of its output is not there, random numbers stand for it.
void debug_check(const struct tape *t, int index);
extern const int64_t debug_check_bytes;

// One line: "h.0.attn.c_attn f32[12,32,96] 147456 B saved for node 3". The text is overwritten by
// the next call. t may be NULL: then what it is for is left out.
const char *debug_text(const struct tape *t, const struct tensor *x);

// For scripts. The tensor of that name, or NULL after a line that says which names are close; one
// that no node reads (before the first) is a copy that lasts until the next call.
const struct tensor *debug_find(const struct tape *t, const char *name);
// Where element (i, j) is, counted in elements from data or grad: j counts the last dimension, i
// all others. -1 after a line that says how many there are.
int64_t debug_offset(const struct tensor *x, int64_t i, int64_t j);
bool debug_has_node(const struct tape *t, int index); // false after a line that says the range
// Whether x's gradient is there, but the op at work has written none of it yet.
bool debug_is_unwritten(const struct tape *t, const struct tensor *x);

// All of the above, so that a linker that looks for callers leaves them in.
extern void (*const debug_printers[])(void);

#endif
