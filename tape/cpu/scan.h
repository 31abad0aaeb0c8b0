// scan.h - is everything a number? Looks for NaN and infinity in buffers of any size.
//
// The usual answer is no finding, and that takes one pass at the speed of memory. No answer depends
// on the thread count.
#ifndef TAPE_CPU_SCAN_H
#define TAPE_CPU_SCAN_H

#include "tape/array.h"

// Index of the first element that is NaN or infinite; -1 if there is none.
int64_t scan_first_bad(struct array x, int64_t n);

struct scan_range {
    real low, high; // of the finite elements; meaningless if there is none
    int64_t finite, bad;
};

// Adds n elements to what r has seen. Begin with a zeroed range.
void scan_range(struct scan_range *r, struct array x, int64_t n);

#endif
