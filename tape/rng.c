#include "tape/rng.h"

#include <math.h>

double rng_uniform(uint64_t key, uint64_t index)
{
    return (double)(rng_u64(key, index) >> 11) * 0x1p-53;
}

// Box and Muller's transform (1958) of two uniforms; the first is kept away from 0.
double rng_normal(uint64_t key, uint64_t index)
{
    double u = ((double)(rng_u64(key, 2 * index) >> 11) + 0.5) * 0x1p-53;
    double v = rng_uniform(key, 2 * index + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

// The high half of a 64 x 32 bit product; the bias is below bound / 2^32 per value.
int64_t rng_below(uint64_t key, uint64_t index, int64_t bound)
{
    CHECK(bound > 0);
    uint64_t z = rng_u64(key, index);
    if (bound <= INT32_MAX)
        return (int64_t)(((z >> 32) * (uint64_t)bound) >> 32);
    return (int64_t)(z % (uint64_t)bound);
}
