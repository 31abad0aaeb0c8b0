// op.h - what an op is, and what a recorded use of one is.
//
// An op is one file in tape/ops/: shapes, forward, backward and, at the bottom, a descriptor that
// tells the tape what backward reads. Ops compute; they never place, keep or give back anything.
#ifndef TAPE_OP_H
#define TAPE_OP_H

#include "tape/tensor.h"

struct tape;
struct node;

enum { NODE_IN_MAX = 3, NODE_NAME_BYTES = 48 };

// A descriptor has one function per device. Ops have no CUDA twin yet: that column is NULL, and
// using it is a CHECK that names the op.
enum device { DEVICE_CPU, DEVICE_CUDA, DEVICE_COUNT };

// What backward reads. The tape keeps exactly these alive, for the gradients that somebody wants;
// all else is given back early: a linear whose weights are frozen does not keep its input.
enum op_needs { NEEDS_IN0 = 1, NEEDS_IN1 = 2, NEEDS_IN2 = 4, NEEDS_OUT = 8 };

// What computing the output again would cost; a policy keeps or recomputes by this alone.
enum op_cost { COST_CHEAP, COST_GEMM, COST_ATTENTION, COST_COUNT };

// Forward may overwrite this input, if nothing else wants it: no second buffer, no hole.
enum op_takes { TAKES_NOTHING, TAKES_IN0_AS_OUT, TAKES_IN1_AS_OUT, TAKES_IN0_AS_SAVED };

// How the gradient of the output becomes that of the inputs.
enum op_grad {
    GRAD_WRITES,     // backward writes or adds into dx[i]: see struct node
    GRAD_IN_PLACE,   // the same, but dx[0] may be dy itself
    GRAD_PASSES,     // y = a + b: no arithmetic, buffers change hands
    GRAD_FROM_SAVED, // the saved buffer of the output turns into dx[0]
    GRAD_IS_VIEW,    // the output is a view: its gradient already is inside the input's
};

struct op {
    const char *name;
    const char *formula;
    const char *keeps;           // why backward needs what it needs, for readers
    const char *saved_name;      // of the saved extra, "lse"; NULL if there is none
    unsigned needs[NODE_IN_MAX]; // what dx[i] is made of: OR of enum op_needs for each i
    enum op_cost cost;
    enum op_takes takes;
    enum op_grad grad;
    bool wide_out;     // the output is real however activations are stored: a sum, a loss
    bool reads_views;  // inputs need not be contiguous (their last dim is)
    bool elementwise;  // element i of the output is made of element i of each input
    bool forward_only; // for inference: no backward, and to want a gradient is a CHECK
    // Backward may be called twice: for all inputs but the first, then for the first alone, which
    // does not read in[0]: its bytes are given back before its gradient needs as many.
    bool input_last;
    // Shapes, saved bytes, scratch and FLOPs of n from its inputs and args; must not look at data.
    void (*infer)(struct tape *t, struct node *n);
    void (*forward[DEVICE_COUNT])(struct tape *t,
                                  struct node *n); // may be called again by a replay
    void (*backward[DEVICE_COUNT])(struct tape *t, struct node *n);
};

struct op_args {             // numbers an op needs besides tensors; 0 where an op does not use them
    const int32_t *ids;      // token ids or targets
    const int32_t *slots;    // embedding: the gradient row of each position; NULL: its id
    int64_t samples, length; // embedding: B, T of ids
    int64_t heads, part;     // attention; split_heads: 0 queries, 1 keys, 2 values
    int64_t first, count;    // rows; embedding, cached attention: first position; lora: column
    bool transposed;         // matmul: the second factor is (.., N, K)
    bool heads_inside;       // matmul: the output is stored (B,M,H,N), so that merging is a view
    double rate;             // dropout
    double factor;           // scale, lora
    uint64_t key;            // dropout: seed, step and place in the model; the op adds the sample
};

// One use of an op. Backward is given dy, and for each input i
//   dx[i] == NULL   nobody wants it (frozen, or data)
//   adds[i]         add to what is there: a parameter, or another reader was here before
//   otherwise       the buffer holds rubbish, or is dy itself (GRAD_IN_PLACE): overwrite all of it
struct node {
    int index;
    const struct op *op;
    struct op_args args;
    struct tensor *in[NODE_IN_MAX];
    int in_count;
    struct tensor *out;
    struct tensor *taken;        // the input whose buffer became ours
    unsigned needs;              // what its backward reads: the op's, for gradients that are wanted
    enum op_cost cost;           // the op's, or its scope's
    int64_t first_sample;        // of this micro-batch in the effective batch
    int64_t forward_work_bytes;  // scratch; exists only while the op runs
    int64_t backward_work_bytes; //
    int64_t forward_flops, backward_flops;
    void *work;
    const real *dy;
    real *dx[NODE_IN_MAX];
    bool adds[NODE_IN_MAX];
    bool gave_input;  // in[0] is let go already (input_last)
    const char *file; // who asked
    int line;
    char name[NODE_NAME_BYTES]; // scope path and op: "h.3.mlp.gelu"
};

#endif
