// finding.h - what a plan means, a line each: weights against the whole, the largest part, what a
// pass adds, and what twice the batch or the sequence would need, from dry runs of just that.
#ifndef SRC_FINDING_H
#define SRC_FINDING_H

#include "src/run.h"

enum { FINDINGS_MAX = 5, FINDING_BYTES = 400 };

struct finding {
    // "weights_alone", "largest_part", "pass_adds", "double_batch", "double_sequence"
    const char *name;
    int64_t bytes; // weights; the part; what a pass adds; the doubled run's peak
    double times;  // peak / weights; bytes / peak
    char text[FINDING_BYTES];
};

struct findings {
    struct finding item[FINDINGS_MAX];
    int count;
};

// r: measured, its history there. A doubling that no plan can hold is left out.
void findings_make(struct findings *f, const struct run *r);

#endif
