#include "tape/cpu/update.h"

#include "tape/rng.h"

#include <math.h>

void update_fill(struct array x, int64_t n, real value)
{
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, n);
        real room[ARRAY_PIECE], *to = array_open(x, at, count, false, room);
        for (int64_t i = 0; i < count; i++)
            to[i] = value;
        array_close(x, at, count, to);
    }
}

void update_fill_normal(struct array x, int64_t n, uint64_t key, double deviation)
{
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, n);
        real room[ARRAY_PIECE], *to = array_open(x, at, count, false, room);
        for (int64_t i = 0; i < count; i++)
            to[i] = (real)(deviation * rng_normal(key, (uint64_t)(at + i)));
        array_close(x, at, count, to);
    }
}

void update_fill_uniform(struct array x, int64_t n, uint64_t key, double largest)
{
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, n);
        real room[ARRAY_PIECE], *to = array_open(x, at, count, false, room);
        for (int64_t i = 0; i < count; i++)
            to[i] = (real)(largest * (2 * rng_uniform(key, (uint64_t)(at + i)) - 1));
        array_close(x, at, count, to);
    }
}

// The constants are folded in double and used in real, so that the loop is one of plain reals.
void update_adamw(const struct update_adamw *u, real *w, real *m, real *v, const real *g, int64_t n)
{
    real b1 = (real)u->beta1, b2 = (real)u->beta2, keep = (real)u->decay;
    real rest1 = (real)(1 - u->beta1), rest2 = (real)(1 - u->beta2);
    real scale = (real)u->gradient_scale, eps = (real)u->eps;
    real step = (real)(u->rate / u->correction1), root = (real)(1 / sqrt(u->correction2));
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) {
        real gi = scale * g[i];
        m[i] = b1 * m[i] + rest1 * gi;
        v[i] = b2 * v[i] + rest2 * (gi * gi);
#ifdef TAPE_F64
        real deviation = sqrt(v[i]) * root + eps;
#else
        real deviation = sqrtf(v[i]) * root + eps;
#endif
        w[i] = keep * w[i] - step * m[i] / deviation;
    }
}

void update_sgd(real *w, const real *g, int64_t n, double rate, double decay, double scale)
{
    real keep = (real)decay, step = (real)(rate * scale);
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++)
        w[i] = keep * w[i] - step * g[i];
}
