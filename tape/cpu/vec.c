#include "tape/cpu/vec.h"

// The reductions have one form: whole groups of VEC_LANES (the inner loop of fixed length
// becomes a few vector instructions), the remainder in the first lanes, the lanes joined in halves.

real vec_sum(const real *x, int64_t n)
{
    real lane[VEC_LANES] = {0};
    int64_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        for (int l = 0; l < VEC_LANES; l++)
            lane[l] += x[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += x[i + l];
    return vec_join(lane);
}

static inline void dot_lanes(real *lane, const real *a, const real *b, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        for (int l = 0; l < VEC_LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += a[i + l] * b[i + l];
}

real vec_dot(const real *a, const real *b, int64_t n)
{
    real lane[VEC_LANES] = {0};
    dot_lanes(lane, a, b, n);
    return vec_join(lane);
}

void vec_dot_part(real *lane, const real *a, const real *b, int64_t n)
{
    real mine[VEC_LANES]; // that nobody else sees: the compiler keeps them in registers
    for (int l = 0; l < VEC_LANES; l++)
        mine[l] = lane[l];
    dot_lanes(mine, a, b, n);
    memcpy(lane, mine, sizeof(mine));
}

real vec_join(real *lane)
{
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

real vec_max(const real *x, int64_t n)
{
    real lane[VEC_LANES];
    for (int l = 0; l < VEC_LANES; l++)
        lane[l] = -INFINITY;
    int64_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        for (int l = 0; l < VEC_LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; i + l < n; l++)
        lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

real vec_absmax(const real *x, int64_t n)
{
    real lane[VEC_LANES] = {0};
    int64_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        for (int l = 0; l < VEC_LANES; l++) {
            real size = x[i + l] < 0 ? -x[i + l] : x[i + l];
            lane[l] = size > lane[l] ? size : lane[l];
        }
    for (int l = 0; i + l < n; l++) {
        real size = x[i + l] < 0 ? -x[i + l] : x[i + l];
        lane[l] = size > lane[l] ? size : lane[l];
    }
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

static double sum_squares_of_tile(const real *x, int64_t n)
{
    double lane[VEC_LANES] = {0};
    int64_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        for (int l = 0; l < VEC_LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int half = VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

double vec_sum_squares(const real *x, int64_t n)
{
    enum { TILES = 256, SMALLEST = 4096 };
    const int64_t share = (n + TILES - 1) / TILES;
    const int64_t tile = share > SMALLEST ? share : SMALLEST;
    const int64_t tiles = (n + tile - 1) / tile;
    double partial[TILES];
#pragma omp parallel for schedule(static) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t from = t * tile;
        partial[t] = sum_squares_of_tile(x + from, n - from < tile ? n - from : tile);
    }
    double sum = 0;
    for (int64_t t = 0; t < tiles; t++)
        sum += partial[t];
    return sum;
}

void vec_scale(real *x, real a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= a;
}

void vec_pack(bf16 *to, const real *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float f = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        uint32_t nan = bits >> 16 | 0x40; // quiet: its upper half alone might be an infinity
        to[i] = (bf16)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
    }
}

void vec_unpack(real *to, const bf16 *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof(f));
        to[i] = (real)f;
    }
}
