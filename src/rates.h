// rates.h - how fast this machine computes, for estimates of time: measured in a fraction of a
// second with the ops themselves at a model's shapes, and kept in a file.
//
// Cost classes have a rate each, in FLOPs as the ops count them: products, attention, and what is
// cheap and bound by memory. A step's estimate is its FLOPs over these rates, a constant time per
// op called, and the update's time per weight. Rates are those of one thread, times the threads.
// The estimate leaves out what such a rate cannot know: caches that a larger micro-batch overflows,
// memory that threads share, other programs.
#ifndef SRC_RATES_H
#define SRC_RATES_H

#include "src/choice.h"

struct rates {
    double flops_per_second[COST_COUNT];
    double update_seconds[OPTIMIZER_COUNT]; // per weight
    double call_seconds;                    // per op, forward or backward, beside its work
    double measured_seconds;                // what measuring took
    bool is_cached;                         // read from the file
    char path[CONFIG_PATH_BYTES];           // of the file; "" if there is none
    char machine[256];                      // processor, threads, BLAS: the file's key, with shapes
};

// use_cache: read the file if it knows this machine and these shapes, else measure and add them to
// it. A file that cannot be written is no error.
bool rates_get(struct rates *r, const struct config *c, bool use_cache, struct error *e);

double rates_seconds(const struct rates *r, const struct cost *cost, enum optimizer_kind optimizer);

#endif
