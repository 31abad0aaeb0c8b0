// trap.h - which op first made a NaN or an infinity?
//
// A tape with a trap looks at what each op wrote, as soon as it has run: its output, what it saved
// for backward, the gradients of its inputs, replays too. So whoever made the first value that is
// no number is caught before anybody reads it. What no op makes (parameters, optimizer state) the
// caller looks at with trap_values: before the first op, and after each update.
//
// It reads and changes nothing, so a run with a trap is the same run, bit for bit. A tape without
// one pays for a test of a pointer.
#ifndef TAPE_TRAP_H
#define TAPE_TRAP_H

#include "tape/array.h"
#include "tape/op.h"

enum { TRAP_TEXT_BYTES = 4096 };

enum trap_part {
    TRAP_OUTPUT,   // of the node
    TRAP_SAVED,    // what it saved for backward besides tensors
    TRAP_GRADIENT, // that its backward wrote or added to, of input `input`
    TRAP_VALUES,   // of a tensor that no op made
};

struct trap_finding {
    const struct op *op; // NULL: no op was running
    int node;            // index on the tape; -1 without an op
    char node_name[NODE_NAME_BYTES];
    const char *file; // who asked for the node; NULL if unknown
    int line;
    enum ledger_phase phase;
    enum trap_part part;
    int input; // of TRAP_GRADIENT
    char tensor_name[LEDGER_NAME_BYTES];
    int dim_count;
    int64_t dim[DIM_MAX];
    int64_t index;      // of the first element that is no number, row-major
    int64_t bad, count; // elements that are none, and all
    double value;
};

struct trap {
    bool is_sprung; // `first` is filled in; the trap looks no further
    struct trap_finding first;
    char text[TRAP_TEXT_BYTES]; // the finding in words: a line, and a line for each input
    // Called once, right where it happened; may report, or not return. NULL: nobody asked.
    void (*on_found)(struct trap *trap, void *user);
    void *user;
};

// Looks at the elements of x at `at` (its data, or a buffer of the same shape). `suffix` names the
// buffer ("", ".m"), `when` says since when ("before the first op"). True if all are numbers, and
// always on a tape without a trap or one that is dry.
bool trap_values(struct tape *t, const struct tensor *x, struct array at, const char *suffix,
                 const char *when);

// Called when the trap springs, for debuggers only (break here): element `index` of x is the first,
// and n was running (NULL: nobody). The trap's text says the same.
void tape_break_nan(const struct tape *t, const struct node *n, const struct tensor *x,
                    int64_t index);

// For the tape itself, after an op: n has just run forward, or backward, or passed on a gradient by
// adding it to x's. t->trap is not NULL.
void trap_forward(struct tape *t, struct node *n, enum ledger_phase phase);
void trap_backward(struct tape *t, struct node *n);
void trap_added(struct tape *t, struct node *n, struct tensor *x, struct array dx);

#endif
