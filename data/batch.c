#include "data/batch.h"

#include "tape/rng.h"

#include <inttypes.h>

static bool check_range(const char *flag, int64_t value, struct error *e)
{
    return (value >= 1 && value <= INT32_MAX) ||
           refuse(e, "%s %" PRId64 " is out of range, expected 1 to %d; try %s 8", flag, value,
                  INT32_MAX, flag);
}

bool batch_check(const struct dataset *d, const struct batch_shape *s, struct error *e)
{
    if (!check_range("--seq", s->seq, e) || !check_range("--batch", s->batch, e))
        return false;
    bool random = s->order == BATCH_RANDOM;
    int64_t needed = (random ? 1 : s->batch) * s->seq + 1;
    if (d->train_count >= needed)
        return true;
    if (random)
        return refuse(e,
                      "the training split has %" PRId64 " tokens (of %" PRId64 "), expected at "
                      "least %" PRId64 " for --seq %" PRId64 "; try a shorter --seq or more data",
                      d->train_count, d->count, needed, s->seq);
    return refuse(e,
                  "the training split has %" PRId64 " tokens (of %" PRId64 "), expected at least "
                  "%" PRId64 " for sequential --batch %" PRId64 " of --seq %" PRId64 "; try a "
                  "shorter --seq, a smaller --batch or more data",
                  d->train_count, d->count, needed, s->batch, s->seq);
}

static int64_t window_count(const struct dataset *d, const struct batch_shape *s)
{
    return (d->train_count - 1) / s->seq;
}

static int64_t sample_offset(const struct dataset *d, const struct batch_shape *s, int64_t step,
                             int64_t sample)
{
    if (s->order == BATCH_SEQUENTIAL) {
        int64_t windows = window_count(d, s);
        return (step % windows * s->batch + sample) % windows * s->seq;
    }
    uint64_t key = rng_key(rng_key(s->seed, RNG_BATCH), (uint64_t)step);
    return rng_below(rng_key(key, (uint64_t)sample), 0, d->train_count - s->seq);
}

void batch_fill_rows(const struct dataset *d, const struct batch_shape *s, int64_t step,
                     int64_t first, int64_t rows, int32_t *tokens, int32_t *targets)
{
    CHECK(d->train_count > s->seq);
    CHECK(step >= 0);
    CHECK(first >= 0);
    CHECK(rows <= s->batch - first);
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = sample_offset(d, s, step, first + row);
        dataset_read(d, offset, s->seq, tokens + row * s->seq);
        dataset_read(d, offset + 1, s->seq, targets + row * s->seq);
    }
}

void batch_fill(const struct dataset *d, const struct batch_shape *s, int64_t step, int32_t *tokens,
                int32_t *targets)
{
    batch_fill_rows(d, s, step, 0, s->batch, tokens, targets);
}

static int64_t validation_targets(const struct dataset *d)
{
    int64_t tokens = d->count - d->train_count;
    return tokens > 0 ? tokens - 1 : 0;
}

bool batch_check_validation(const struct dataset *d, struct error *e)
{
    return validation_targets(d) > 0 || refuse(e,
                                               "the validation split has %" PRId64 " of %" PRId64
                                               " tokens, expected at least 2; "
                                               "try more data",
                                               d->count - d->train_count, d->count);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t batch_validation_count(const struct dataset *d, int64_t seq)
{
    return divide_up(validation_targets(d), seq);
}

// How many of a window's seq targets lie inside the split.
static int64_t targets_inside(const struct dataset *d, int64_t seq, int64_t window)
{
    int64_t left = validation_targets(d) - window * seq;
    return left < 0 ? 0 : left < seq ? left : seq;
}

void batch_fill_validation(const struct dataset *d, int64_t seq, int64_t first, int64_t rows,
                           int32_t *tokens, int32_t *targets)
{
    CHECK(first >= 0);
    for (int64_t row = 0; row < rows; row++, tokens += seq, targets += seq) {
        int64_t inside = targets_inside(d, seq, first + row);
        int64_t offset = d->train_count + (first + row) * seq;
        if (inside > 0) {
            dataset_read(d, offset, inside, tokens);
            dataset_read(d, offset + 1, inside, targets);
        }
        for (int64_t t = inside; t < seq; t++) {
            tokens[t] = 0;
            targets[t] = BATCH_IGNORE;
        }
    }
}

static int64_t evaluation_total(const struct dataset *d, int64_t seq, int64_t rows)
{
    return divide_up(batch_validation_count(d, seq), rows);
}

int64_t batch_evaluation_count(const struct dataset *d, int64_t seq, int64_t rows, int64_t wanted)
{
    int64_t total = evaluation_total(d, seq, rows);
    return wanted > 0 && wanted < total ? wanted : total;
}

int64_t batch_evaluation_window(const struct dataset *d, int64_t seq, int64_t rows, int64_t count,
                                int64_t i)
{
    CHECK(i >= 0);
    CHECK(i < count);
    return i * evaluation_total(d, seq, rows) / count * rows;
}

void batch_ignore(int32_t *targets, int64_t first, int64_t rows, int64_t seq, double fraction,
                  uint64_t key)
{
    for (int64_t row = 0; row < rows; row++) {
        uint64_t sample = rng_key(key, (uint64_t)(first + row));
        for (int64_t t = 0; t < seq; t++)
            if (rng_uniform(sample, (uint64_t)t) < fraction)
                targets[row * seq + t] = BATCH_IGNORE;
    }
}
