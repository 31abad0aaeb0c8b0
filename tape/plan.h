// plan.h - what a dry run found: every size that the real run reserves. Nothing in it is computed
// from a formula; each number is the highest count that the dry run reached.
#ifndef TAPE_PLAN_H
#define TAPE_PLAN_H

#include "tape/base.h"

struct plan {
    int64_t bytes;                     // the arena's range
    int64_t row_count, event_count;    // of the ledger, in the longest lap
    int64_t low_count, high_count;     // blocks at each end of the arena
    int64_t node_count, tensor_count;  // on the tape
    int64_t segment_count, loan_count; // checkpoint segments; gradients on loan at one time
};

#endif
