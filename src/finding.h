// finding.h - what a plan means, one sentence each: weights against the whole, the largest part,
// and what twice the batch or the sequence would need, from dry runs of just that.
#ifndef SRC_FINDING_H
#define SRC_FINDING_H

#include "src/run.h"

enum { FINDINGS_MAX = 4, FINDING_BYTES = 400 };

struct finding {
    const char *name; // "weights_alone", "largest_part", "double_batch", "double_sequence"
    int64_t bytes;    // weights; the part; the doubled run's peak
    double times;     // peak / weights; part / peak; doubled peak / peak
    char text[FINDING_BYTES];
};

struct findings {
    struct finding item[FINDINGS_MAX];
    int count;
};

// r: measured, its history there. A doubling that no plan can hold is left out.
void findings_make(struct findings *f, const struct run *r);

#endif
