// dropout_int.h - which elements dropout zeroes: the one rule that the dropout op and the tiled
// attention share, so that written-out and tiled attention draw the same mask.
#ifndef TAPE_OPS_DROPOUT_INT_H
#define TAPE_OPS_DROPOUT_INT_H

#include "tape/ops/ops_int.h"
#include "tape/rng.h"

// Random numbers below this drop their element.
static inline uint32_t dropout_threshold(double rate)
{
    return (uint32_t)(rate * 0x1p32);
}

static inline real dropout_factor(double rate)
{
    return (real)(1 / (1 - rate));
}

// row counts the rows of one sample: t for (B,T,C), h T + i for (B,H,T,T).
static inline uint64_t dropout_row_key(uint64_t key, int64_t sample, int64_t row)
{
    return rng_key(rng_key(key, (uint64_t)sample), (uint64_t)row);
}

#endif
