// explain.h - textbook formulas beside what a plan found, each with its source, the ratio, and why
// they differ.
#ifndef SRC_EXPLAIN_H
#define SRC_EXPLAIN_H

#include "src/json.h"
#include "src/run.h"

enum { EXPLAIN_ROWS_MAX = 24, EXPLAIN_WHY_BYTES = 200, EXPLAIN_SHARDS = 64 };

struct explain_row {
    const char *name;    // "states", "layer_none" ...
    const char *what;    // in words
    const char *formula; // of bytes, as its source writes it
    const char *source;
    double rule_bytes; // 0: the formula leaves it out
    bool has_exact;    // one process shards nothing
    int64_t exact_bytes;
    char why[EXPLAIN_WHY_BYTES];
};

struct explain {
    struct explain_row row[EXPLAIN_ROWS_MAX];
    int count;
};

// r: a measured plan. What one layer keeps under each policy is measured too, in dry runs of one
// micro-batch. shards: N of ZeRO's formulas.
bool explain_make(struct explain *x, const struct run *r, int64_t shards, struct error *e);
void explain_table(FILE *f, const struct explain *x);
void explain_json(struct json *j, const struct explain *x);

#endif
