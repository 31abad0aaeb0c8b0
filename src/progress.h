// progress.h - what a person sees while training runs: a bar on a terminal, plain lines elsewhere.
#ifndef SRC_PROGRESS_H
#define SRC_PROGRESS_H

#include "tape/base.h"

struct progress {
    bool quiet, is_terminal;
    int64_t first_step, last_step; // steps before this run, and the last one of it
    double started, shown;         // seconds
    double val_loss;               // the latest; NaN before there is one
};

struct progress_step {
    int64_t step;
    double loss, tokens_per_second;
    bool validated;
    double val_loss;
    int64_t now_bytes, peak_bytes;
};

void progress_begin(struct progress *p, bool quiet, int64_t first_step, int64_t last_step);
void progress_show(struct progress *p, const struct progress_step *s);
void progress_end(struct progress *p);

#endif
