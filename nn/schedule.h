// schedule.h - the learning rate of an optimizer step. Steps count from 1 and are optimizer steps:
// micro-batches do not move it.
#ifndef NN_SCHEDULE_H
#define NN_SCHEDULE_H

#include "tape/base.h"

struct schedule {
    double rate, min_rate;
    int64_t warmup_steps; // linear from 0; 0: none
    int64_t decay_steps;  // cosine from rate to min_rate, reached at this step; 0: constant
};

bool schedule_check(const struct schedule *s, struct error *e);
double schedule_rate(const struct schedule *s, int64_t step);

#endif
