// cross_entropy_int.h - the loss of one row of logits and its gradient, for the ops that end in it.
#ifndef TAPE_OPS_CROSS_ENTROPY_INT_H
#define TAPE_OPS_CROSS_ENTROPY_INT_H

#include "tape/array.h"
#include "tape/ops/ops_int.h"

// CHECKs that each target is below cols, or TARGET_IGNORED.
void cross_entropy_check(const int32_t *targets, int64_t count, int64_t cols);

// log(sum exp l) - l[target]; 0 if the target is ignored. d (may be l): its gradient,
// softmax(l) - [v = target], or 0. room: cols reals if l or d is not stored as real.
double cross_entropy_row(struct array l, int64_t cols, int32_t target, struct array d, real *room);

// d *= dloss
void cross_entropy_scale(struct array d, int64_t cols, real dloss);

// The losses of these rows, added in their order.
double cross_entropy_sum(const double *loss, int64_t rows);

#endif
