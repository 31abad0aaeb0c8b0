// tape.h - the tape records which ops made which tensors, and walks back through them.
//
// A call of an op appends one node and computes it at once. tape_backward() walks the nodes from
// the last to the first. Nothing else in the program places step memory.
//
// Where bytes go:
//   1. An op's output goes low if it is kept, high if it will be recomputed; its saved extras go
//      just before it, at the same end (they die later).
//   2. An op that takes an input over (op.takes) uses that input's buffer, wherever it is.
//   3. Gradients of activations and scratch go high: the gradient first, the scratch last.
//   4. In a replay everything that is missing goes low.
//   5. A view (split_heads) places nothing: it reads and writes inside its base.
#ifndef TAPE_TAPE_H
#define TAPE_TAPE_H

#include "tape/op.h"

enum { SCOPES_MAX = 16, SCOPE_NAME_BYTES = 24 };

// Which cost classes (enum op_cost, a bit each) a checkpoint segment recomputes: it does not keep
// such an output, and computes it again just before a backward that reads it. All eight sets are
// policies; four have names of their own.
enum tape_policy {
    POLICY_NONE = 0,                        // no checkpointing
    POLICY_LEAN = 1 << COST_CHEAP,          // recompute norms, gelu, dropout
    POLICY_SELECTIVE = 1 << COST_ATTENTION, // recompute the inside of attention
    POLICY_FULL = (1 << COST_COUNT) - 1,    // keep the segment's input alone
    POLICY_COUNT,
};

// "none", "lean", "selective", "full"; the others by what they recompute: "gemm", "cheap+gemm", ...
const char *tape_policy_name(enum tape_policy p);

// A range of nodes. Nothing is recorded twice and no function of the model is called twice: a
// replay runs `forward` of the nodes whose bytes are missing and wanted.
struct segment {
    int first_node, end_node;
    int first_tensor;
    enum tape_policy policy;
    bool is_replayed; // a gradient may come back through its result
    struct tensor *in;
    int64_t low_before_bytes, low_after_bytes; // of the low end, before and after its forward
    int64_t forward_peak_bytes;                // most that the arena held during its forward
    int64_t backward_peak_bytes;               // and during its backward, replays included
    int64_t after_peak_bytes;                  // between the two; of the last one: the head's
    int64_t recompute_flops;                   // of its replays
};

struct scope {
    char name[SCOPE_NAME_BYTES];
    bool has_cost; // its ops are of this class, whatever they are elsewhere
    enum op_cost cost;
    int first_tensor; // tensors made before this index belong to outer scopes
};

struct tape {
    struct arena arena;
    enum device device;
    int threads;                 // of parallel loops; scratch is sized by it
    enum dtype activation_dtype; // of what ops make: DTYPE_REAL, or DTYPE_BF16
    bool eval;                   // forward only: no gradient is wanted, nothing is kept
    bool is_walked;              // backward has been through
    int64_t first_sample;        // of this micro-batch in the effective batch
    int64_t begin_bytes;         // that the arena held when this tape began
    struct node *node;
    struct tensor *tensor;
    struct segment *segment;
    struct tensor **loan; // tensors whose grad_is_lent
    int node_count, tensor_count, segment_count, loan_count;
    struct plan cap, max; // of the tables: their sizes, and the highest counts so far
    struct scope scope[SCOPES_MAX];
    int scope_count;
    const char *next_name; // of the next node; NULL: its op's
    const char *file;      // who asks
    int line;
    struct trap *trap;          // looks for NaN after every op (tape/trap.h); NULL: nobody does
    struct segment *open;       // the segment being recorded
    int walked_count;           // nodes that backward is done with
    const struct node *running; // whose op is at work; NULL between ops
    int64_t flops[PHASE_COUNT]; // done so far, as the ops count them
    int64_t class_flops[PHASE_COUNT][COST_COUNT]; // the same, by what they cost
};

// Opens an arena and the tape's tables in it. plan NULL and dry: boundless. A plan from a dry run,
// or tape_plan_small for a program that only wants to try something.
bool tape_open(struct tape *t, const struct plan *plan, bool dry, int threads, struct error *e);
void tape_close(struct tape *t);

// All that a real run of the same calls will reserve. Ask after a dry run.
struct plan tape_plan(const struct tape *t);
struct plan tape_plan_small(int64_t bytes); // a few thousand nodes, and `bytes` for tensors

// Runs fn twice on memory that may not be touched: once to count what the tables need, once with
// tables of that size. Leaves t open and dry, for a look at its ledger; close it when done.
// fn makes parameters and takes steps through t, exactly as the real run will. If addresses run out
// (tens of TB), fn is left where it is and the measurement refused: fn holds nothing but through t.
typedef bool tape_run_fn(struct tape *t, void *user, struct error *e);
bool tape_measure(struct tape *t, int threads, tape_run_fn *fn, void *user, struct plan *plan,
                  struct error *e);

// Starts an empty tape; what the last one made must be gone. The phase says what for: FORWARD
// records for a backward, EVAL and GENERATE keep nothing. first_sample: of this micro-batch in the
// effective batch, so that dropout draws the same numbers however the batch is split.
void tape_begin(struct tape *t, enum ledger_phase phase, int64_t first_sample);

// Records a node and computes its output. Ops wrap it: tape/ops/ops.h.
struct tensor *tape_apply(struct tape *t, const struct op *op, int in_count,
                          struct tensor *const in[], const struct op_args *args);

// d(sum of seed * loss[i]) into every parameter's gradient. The loss may be a vector (one number
// per sample). The tape is used up by it: a second walk is a CHECK.
void tape_backward(struct tape *t, struct tensor *loss, real seed);

// A scope is a name and a lifetime: leaving it lets go of every tensor made inside but `keep`,
// which slides over what stays dead under it.
void tape_enter(struct tape *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct tensor *tape_leave(struct tape *t, struct tensor *keep);

// From here to the end of the scope, ops are of this cost class: the scale, softmax and dropout of
// written-out attention are kept or recomputed with its products.
void tape_scope_cost(struct tape *t, enum op_cost cost);

// A scope that is a checkpoint segment. Its result ends up low whatever the policy, and slides over
// what the segment left dead; so does, on the way back, the gradient that leaves it.
// `in` is the segment's: no op after it may read `in` again.
void tape_segment_begin(struct tape *t, enum tape_policy policy, struct tensor *in,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
struct tensor *tape_segment_end(struct tape *t, struct tensor *y);

// Names the next node: "c_fc" rather than its op's "linear". The text must live until then.
void tape_name(struct tape *t, const char *name);

// Remembers who asks next, and returns t: the wrappers in tape/ops/ops.h call it.
struct tape *tape_at(struct tape *t, const char *file, int line);

// Scratch at the high end that lives until given back; for code that is not an op (the update).
void *tape_scratch(struct tape *t, const char *name, int64_t bytes);
void tape_scratch_give(struct tape *t, void *scratch);

// Doors: empty functions for debuggers to break on (docs/gdb.md). A dry run calls none of them.
// Before every op, in both directions and in replays; views and scratch are there.
void tape_break(const struct tape *t, const struct node *n, enum ledger_phase phase);
// After x's gradient was written, added to, moved, lent or cleared. n: by whose backward; NULL: by
// what is not an op (the seed, clearing, joining the gradients of a tied table).
void tape_break_grad(const struct tape *t, const struct node *n, const struct tensor *x);

bool tape_is_dry(const struct tape *t);

// The index of the node whose output is x; -1 if none made it.
int tape_maker(const struct tape *t, const struct tensor *x);

#endif
