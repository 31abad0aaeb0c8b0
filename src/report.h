// report.h - the ledger as tables and JSON: read, never measured again. Only what the process holds
// beside the arena, and what the machine has left, is asked of the system here.
#ifndef SRC_REPORT_H
#define SRC_REPORT_H

#include "src/json.h"
#include "src/run.h"

// What the process holds beside the arena: code, libc, thread stacks, BLAS buffers.
struct report_outside {
    int64_t now_bytes, peak_bytes;
};

struct report_outside report_measure_outside(const struct run *r);

// "process": what the run will hold resident in all, and what this machine has available now.
void report_process_json(struct json *j, int64_t arena_bytes, int64_t outside_bytes);
void report_process_line(FILE *f, int64_t arena_bytes, int64_t outside_bytes);

// "memory": peak, its categories and phases. outside may be NULL: zeros.
void report_memory_json(struct json *j, const struct ledger_counts *c,
                        const struct report_outside *outside);
void report_model_json(struct json *j, const struct config *c, const struct gpt *g);
// The same of a model that is not there. name: NULL if not known; params: elements of all weights.
void report_gpt_json(struct json *j, const char *name, const struct gpt_config *m, int64_t params,
                     int64_t trainable);
void report_flops_json(struct json *j, const struct tape *t);

// The cache of keys and values of the text that r has generated, or would. "kv_cache".
void report_cache_json(struct json *j, const struct run *r);
void report_cache_line(FILE *f, const struct run *r);

void report_memory_table(FILE *f, const struct ledger_counts *c,
                         const struct report_outside *outside);
void report_model_line(FILE *f, const struct config *c, const struct gpt *g);

#endif
