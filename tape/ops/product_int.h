// product_int.h - y = x w^T + b and its gradients on stored arrays, tile by tile.
//
//   dx += dy w        (R,O)(O,I)    for each sample
//   dw += dy^T x      (O,R)(R,I)    sample after sample
//   db += sum over rows of dy       row after row
//
// R rows of one sample, I inputs, O outputs. Every product is cut into tiles whose shape depends on
// R, I and O alone: at most PRODUCT_ROWS rows of one sample by a slice of about 96 columns for y
// and dx; a slice of outputs by a slice of inputs for dw, whose tile adds all rows in order,
// PRODUCT_ROWS at a time. A tile is a few single-threaded BLAS calls; tiles run in parallel. What
// that costs against one threaded call over all rows, and why these sizes: docs/decisions.md.
//
// What is stored as bf16 is widened on its way into a tile: a panel of weight slices once per
// product, shared by all rows; x and dy by each tile. A tile is rounded when it is done. The panel
// is at most 2^20 numbers, or one slice, so there never is a wide copy of all weights. Where the
// BLAS multiplies bf16 (blas_has_bf16), a product of two such operands takes them as they are
// stored.
#ifndef TAPE_OPS_PRODUCT_INT_H
#define TAPE_OPS_PRODUCT_INT_H

#include "tape/array.h"
#include "tape/ops/ops_int.h"

enum { PRODUCT_ROWS = 128 }; // of a tile

struct product {
    int64_t samples, rows, in, out;
    struct array x, w, b; // b.at NULL: no bias
    struct array y;
    struct array dy, dx, dw, db; // of the gradients: at NULL where nobody wants it
    bool adds;                   // to dx, instead of overwriting it; dw and db are always added to
    int threads;
    real *work; // scratch; NULL if it takes none
};

// Bytes of work for product_forward, and for product_input_gradient and product_weight_gradient; 0
// if all is stored as real. Reads shapes and dtypes only.
int64_t product_forward_work_bytes(const struct product *p);
int64_t product_backward_work_bytes(const struct product *p);

void product_forward(const struct product *p);
void product_input_gradient(const struct product *p);
void product_weight_gradient(const struct product *p);

#endif
