#include "tape/cpu/scan.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 4096,            // elements between two looks at the answer
    PARALLEL_BLOCKS = 1 << 4 // below, a team of threads costs more than it saves
};

// NaN and infinity are what has every bit of the exponent set; compared as integers, because a sum
// that is infinite need not have an infinite term.
#ifdef TAPE_F64
typedef uint64_t bits;
static const bits exponent = UINT64_C(0x7ff) << 52;
#else
typedef uint32_t bits;
static const bits exponent = UINT32_C(0xff) << 23;
#endif

static bool block_is_bad(const real *x, int64_t n)
{
    bits any = 0;
    for (int64_t i = 0; i < n; i++) {
        bits b;
        memcpy(&b, x + i, sizeof(b));
        any |= (bits)((b & exponent) == exponent);
    }
    return any != 0;
}

static int64_t first_in_block(const real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return -1;
}

int64_t scan_first_bad(struct array x, int64_t n)
{
    int64_t blocks = (n + BLOCK - 1) / BLOCK, first = blocks;
#pragma omp parallel for schedule(static) reduction(min : first) if (blocks > PARALLEL_BLOCKS)
    for (int64_t k = 0; k < blocks; k++) {
        int64_t from = k * BLOCK, count = n - from < BLOCK ? n - from : BLOCK;
        real room[BLOCK];
        if (k < first && block_is_bad(array_read(x, from, count, room), count))
            first = k;
    }
    if (first == blocks)
        return -1;
    int64_t from = first * BLOCK, count = n - from < BLOCK ? n - from : BLOCK;
    real room[BLOCK];
    return from + first_in_block(array_read(x, from, count, room), count);
}

void scan_range(struct scan_range *r, struct array x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        real value = array_get(x, i);
        if (!isfinite(value)) {
            r->bad++;
            continue;
        }
        r->low = r->finite == 0 || value < r->low ? value : r->low;
        r->high = r->finite == 0 || value > r->high ? value : r->high;
        r->finite++;
    }
}
