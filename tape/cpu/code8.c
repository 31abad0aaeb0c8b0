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

// Which of the ascending values 0 = value[0], ... is nearest to a >= 0; of a midpoint between two
// the index of this parity. `parts` is how many the last decade has, `first` the index of its
// first. Within a decade, values are the middles of equal parts: the part in which a lies is the
// answer, or next to it where decades meet or the division rounds. No branch, and three loads
// beside each other, where a search by halving has eight in a row.
static inline int nearest(const real *value, real a, int parts, int first, int parity)
{
    real scaled = a, n = (real)parts;
    for (int i = 1; i < DECADES; i++) {
        bool is_below = scaled < (real)0.1;
        scaled = is_below ? scaled * 10 : scaled;
        n = is_below ? n * (real)0.5 : n;
    }
    real part = (scaled - (real)0.1) * (n / (real)0.9);
    part = part > 0 ? part : 0; // NaN, too
    part = part < n - 1 ? part : n - 1;
    int at = (int)n - (parts - first) + (int)part;
    real low = (value[at - 1] + value[at]) * (real)0.5,
         high = (value[at] + value[at + 1]) * (real)0.5;
    int is_other = (at & 1) ^ parity;
    int up = (a > high) | ((a == high) & is_other), down = (a < low) | ((a == low) & is_other);
    return at + up - down;
}

void code8_pack_signed(uint8_t *code, const real *x, int64_t n, const real *map, real absmax)
{
    enum { PARTS = 64, FIRST = 64, MOST = CODE8_SIGNED_ZERO };
    const real *value = map + CODE8_SIGNED_ZERO;
    real by = absmax > 0 ? absmax : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        int sign = (x[i] > 0) - (x[i] < 0);
        int at = nearest(value, (x[i] < 0 ? -x[i] : x[i]) / by, PARTS, FIRST, 1);
        at = at < 1 ? 1 : at;
        at = sign < 0 && at > MOST ? MOST : at; // there is no -1
        code[i] = (uint8_t)(CODE8_SIGNED_ZERO + sign * at);
    }
}

void code8_pack_unsigned(uint8_t *code, const real *x, int64_t n, const real *map, real absmax)
{
    enum { PARTS = 128, FIRST = 127 };
    real by = absmax > 0 ? absmax : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        code[i] = (uint8_t)nearest(map, x[i] / by, PARTS, FIRST, 0);
}
