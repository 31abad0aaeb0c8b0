// run_log.h - DIR/log.jsonl: one JSON object per optimizer step.
#ifndef SRC_RUN_LOG_H
#define SRC_RUN_LOG_H

#include "nn/step.h"

#include <stdio.h>

struct run_log {
    FILE *file; // NULL: no log
};

// Opens dir/log.jsonl for appending; lines of steps after `steps_done` are dropped first, so that a
// resumed run leaves the log of an uninterrupted one.
bool run_log_open(struct run_log *l, const char *dir, int64_t steps_done, struct error *e);
void run_log_write(struct run_log *l, int64_t step, const struct step_result *r,
                   const double *val_loss, double seconds, double tokens_per_second);
bool run_log_close(struct run_log *l, struct error *e);

#endif
