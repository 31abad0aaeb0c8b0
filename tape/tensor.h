// tensor.h - a shape, where its bytes are now, and who still wants them.
//
// The first dimension of an activation counts samples (B): sums over samples run in that order.
#ifndef TAPE_TENSOR_H
#define TAPE_TENSOR_H

#include "tape/arena.h"
#include "tape/array.h"

enum { DIM_MAX = LEDGER_DIMS };

struct tensor {
    const char *name; // a parameter's own name, or the scope path of the node that made it
    int index;        // on the tape
    int dim_count;
    int64_t dim[DIM_MAX];
    int64_t stride[DIM_MAX]; // elements; row-major unless this is a view
    enum dtype dtype;        // of data: DTYPE_REAL, or DTYPE_BF16 behind the same pointer
    enum dtype grad_dtype;   // of grad; an activation's is its dtype
    real *data;              // NULL when taken over, given back, or still to be recomputed
    real *saved;             // what its op's forward keeps for backward besides tensors
    int64_t saved_bytes;
    real *grad;          // NULL until backward first writes to it
    struct tensor *base; // a view has no bytes of its own: data and grad are inside base's
    int64_t base_offset; // elements
    bool grad_is_lent;   // grad is someone else's buffer: read it, never write or give it back
    bool wants_grad;     // some parameter upstream does
    bool is_persistent;  // data and grad outlive the step: a parameter, the batch
    bool in_scope;       // an open scope still holds it
    bool is_transient;   // its bytes vanish with the scope; a replay brings them back
    bool redo;           // scratch of a replay
    int holders;         // the open scope, plus one for each node whose backward needs it
};

int64_t tensor_count(const struct tensor *x); // elements
int64_t tensor_bytes(const struct tensor *x); // of the data; 0 for a view
int64_t tensor_grad_bytes(const struct tensor *x);
bool tensor_is_contiguous(const struct tensor *x);

// Its numbers and those of its gradient, as they are stored; at NULL where they are not there.
static inline struct array tensor_data(const struct tensor *x)
{
    return array_of(x->data, x->dtype);
}

static inline struct array tensor_grad(const struct tensor *x)
{
    return array_of(x->grad, x->grad_dtype);
}

// Sets dims and row-major strides. like: those of x.
void tensor_shape(struct tensor *x, int dim_count, const int64_t *dim);
void tensor_like(struct tensor *y, const struct tensor *x);

// Samples (dim 0), rows of one sample (all dims between), columns (the last dim, 1 if there is but
// one). B R C = count.
int64_t tensor_samples(const struct tensor *x);
int64_t tensor_rows(const struct tensor *x);
int64_t tensor_cols(const struct tensor *x);

// A tensor of reals that outlives the step, placed at the low end, and one of another dtype. A
// parameter also gets a gradient there, of its grad_dtype (DTYPE_REAL unless changed in between);
// that gradient is never cleared but by tensor_zero_grad.
void tensor_persistent(struct tensor *x, struct arena *a, const char *name,
                       enum ledger_category category, int dim_count, const int64_t *dim);
void tensor_place(struct tensor *x, struct arena *a, const char *name,
                  enum ledger_category category, enum dtype dtype, int dim_count,
                  const int64_t *dim);
void tensor_add_grad(struct tensor *x, struct arena *a);
void tensor_zero_grad(const struct arena *a, struct tensor *x);

#endif
