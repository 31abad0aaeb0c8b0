#include "tape/cpu/code8.h"

enum { DECADES = 7 };

// Both maps' positive values but 1, ascending. Returns how many.
static int positives(real *value, int first_parts)
{
    static const double decade[DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int count = 0;
    for (int i = 0, parts = first_parts; i < DECADES; i++, parts *= 2)
        for (int k = 0; k < parts; k++)
            value[count++] = (real)(decade[i] * (0.1 + 0.9 * (k + 0.5) / parts));
    return count;
}

void code8_signed_map(real map[CODE8_VALUES])
{
    int count = positives(map + CODE8_SIGNED_ZERO + 1, 1);
    map[CODE8_SIGNED_ZERO] = 0;
    for (int i = 1; i <= count; i++)
        map[CODE8_SIGNED_ZERO - i] = -map[CODE8_SIGNED_ZERO + i];
    map[CODE8_VALUES - 1] = 1;
}

void code8_unsigned_map(real map[CODE8_VALUES])
{
    map[0] = 0;
    positives(map + 1, 2);
    map[CODE8_VALUES - 1] = 1;
}

void code8_unpack(real *x, const uint8_t *code, int64_t n, const real *map, real absmax)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = map[code[i]] * absmax;
}

// The last value below x by halving (eight look-ups and no branch), or the next one.
static inline int nearest(const real *map, real x)
{
    int at = 0;
    for (int step = CODE8_VALUES / 2; step > 0; step /= 2)
        at += map[at + step] < x ? step : 0;
    int next = at + (at < CODE8_VALUES - 1);
    real middle = (map[at] + map[next]) * (real)0.5;
    bool goes_up = x > middle || (x == middle && next % 2 == 0);
    return goes_up ? next : at;
}

void code8_pack_signed(uint8_t *code, const real *x, int64_t n, const real *map, real absmax)
{
    real by = absmax > 0 ? absmax : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        int at = nearest(map, x[i] / by);
        int sign = (x[i] > 0) - (x[i] < 0);
        code[i] = (uint8_t)(at == CODE8_SIGNED_ZERO ? at + sign : at);
    }
}

void code8_pack_unsigned(uint8_t *code, const real *x, int64_t n, const real *map, real absmax)
{
    real by = absmax > 0 ? absmax : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        code[i] = (uint8_t)nearest(map, x[i] / by);
}
