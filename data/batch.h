// batch.h - batches as a pure function of (data, shape, step): nothing to save, nothing to resume.
//
// B samples of T tokens, row by row: tokens[b*T + t], and targets[b*T + t] is the token after it.
// A sample depends on (seed, step, its number in the effective batch) alone, so a split into
// micro-batches sees the same samples.
// 1. A training window reads T + 1 tokens of the training split and none behind it.
// 2. The validation windows count each of the split's (tokens - 1) targets exactly once.
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include "data/text_file.h"

enum { BATCH_IGNORE = -100 }; // a target that counts for nothing

enum batch_order {
    BATCH_RANDOM,     // each of the n - T offsets is equally likely, as in nanoGPT
    BATCH_SEQUENTIAL, // the (n - 1) / T windows at stride T, in order, around and around
};

struct batch_shape {
    int64_t batch; // samples per optimizer step, of all micro-batches together
    int64_t seq;   // tokens per sample
    enum batch_order order;
    uint64_t seed; // of BATCH_RANDOM
};

// Is the training split long enough? random: seq + 1 tokens; sequential: batch * seq + 1, so that
// no batch holds a window twice. Everything below asks for data that passed.
bool batch_check(const struct dataset *d, const struct batch_shape *s, struct error *e);

// All samples of a step, or samples [first, first + rows) of it.
void batch_fill(const struct dataset *d, const struct batch_shape *s, int64_t step, int32_t *tokens,
                int32_t *targets);
void batch_fill_rows(const struct dataset *d, const struct batch_shape *s, int64_t step,
                     int64_t first, int64_t rows, int32_t *tokens, int32_t *targets);

// Is there a target to validate on: at least two tokens in the validation split?
bool batch_check_validation(const struct dataset *d, struct error *e);

// How many windows of seq tokens cover the validation split; the last may be partial.
int64_t batch_validation_count(const struct dataset *d, int64_t seq);

// Windows [first, first + rows). What lies behind the split's end, in the last window and in
// windows after it, is token 0 with target BATCH_IGNORE.
void batch_fill_validation(const struct dataset *d, int64_t seq, int64_t first, int64_t rows,
                           int32_t *tokens, int32_t *targets);

// An evaluation of `wanted` batches of `rows` windows, spread evenly over the validation split;
// 0, or more than there are, asks for all. First how many there will be, then the first window of
// number i of that count. With all, each window comes once.
int64_t batch_evaluation_count(const struct dataset *d, int64_t seq, int64_t rows, int64_t wanted);
int64_t batch_evaluation_window(const struct dataset *d, int64_t seq, int64_t rows, int64_t count,
                                int64_t i);

// Sets each target of samples [first, first + rows) to BATCH_IGNORE with probability `fraction`;
// targets points at sample `first`. A pure function of (key, sample, t), whatever the split into
// micro-batches.
void batch_ignore(int32_t *targets, int64_t first, int64_t rows, int64_t seq, double fraction,
                  uint64_t key);

#endif
