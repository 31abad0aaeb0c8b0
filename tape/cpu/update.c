#include "tape/cpu/update.h"

#include "tape/cpu/code8.h"
#include "tape/cpu/vec.h"
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

void update_copy(struct array to, struct array from, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += ARRAY_PIECE)
        array_carry(array_from(to, at), array_from(from, at), array_piece(at, n), false);
}

// ---- sums ------------------------------------------------------------------------------

double update_sum(int64_t n, update_part_fn *part, const void *user)
{
    enum { TILES = 256 };
    const int64_t pieces = (n + ARRAY_PIECE - 1) / ARRAY_PIECE;
    const int64_t tile = (pieces + TILES - 1) / TILES * ARRAY_PIECE;
    const int64_t tiles = (n + tile - 1) / tile;
    double partial[TILES];
#pragma omp parallel for schedule(static) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t end = n - t * tile < tile ? n : (t + 1) * tile;
        partial[t] = 0;
        for (int64_t at = t * tile; at < end; at += ARRAY_PIECE)
            partial[t] += part(user, at, array_piece(at, end));
    }
    double sum = 0;
    for (int64_t t = 0; t < tiles; t++)
        sum += partial[t];
    return sum;
}

static double squares_of_piece(const void *user, int64_t from, int64_t count)
{
    real room[ARRAY_PIECE];
    return vec_sum_squares(array_read(*(const struct array *)user, from, count, room), count);
}

double update_sum_squares(struct array x, int64_t n)
{
    if (x.dtype == DTYPE_REAL)
        return vec_sum_squares(x.at, n);
    return update_sum(n, squares_of_piece, &x);
}

// ---- updates ---------------------------------------------------------------------------

// One piece: n elements from number `at` on. The constants are folded in double and used in real,
// so that the loop is one of plain reals.
typedef void piece_fn(const struct update *u, real *w, const real *g, int64_t at, int64_t n);

static void in_pieces(const struct update *u, piece_fn *update)
{
    struct array to = update_target(u);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < u->n; at += ARRAY_PIECE) {
        int64_t n = array_piece(at, u->n);
        real w_room[ARRAY_PIECE], g_room[ARRAY_PIECE];
        real *w = array_open(to, at, n, true, w_room);
        update(u, w, array_read(u->gradient, at, n, g_room), at, n);
        array_close(u->weights, at, n, w);
    }
}

static void sgd(const struct update *u, real *w, const real *g, int64_t at, int64_t n)
{
    (void)at; // it has no state
    real keep = (real)u->decay, step = (real)(u->rate * u->gradient_scale);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        w[i] = keep * w[i] - step * g[i];
}

static void momentum(const struct update *u, real *w, const real *g, int64_t at, int64_t n)
{
    real *m = (real *)u->state[0] + at;
    real keep = (real)u->decay, step = (real)u->rate, b = (real)u->beta1;
    real scale = (real)u->gradient_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        m[i] = b * m[i] + scale * g[i];
        w[i] = keep * w[i] - step * m[i];
    }
}

static void adamw(const struct update *u, real *w, const real *g, int64_t at, int64_t n)
{
    real *m = (real *)u->state[0] + at, *v = (real *)u->state[1] + at;
    real b1 = (real)u->beta1, b2 = (real)u->beta2, keep = (real)u->decay;
    real rest1 = (real)(1 - u->beta1), rest2 = (real)(1 - u->beta2);
    real scale = (real)u->gradient_scale, eps = (real)u->eps;
    real step = (real)(u->rate / u->correction1), inverse = (real)(1 / sqrt(u->correction2));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real gi = scale * g[i];
        m[i] = b1 * m[i] + rest1 * gi;
        v[i] = b2 * v[i] + rest2 * (gi * gi);
        real deviation = vec_sqrt(v[i]) * inverse + eps;
        w[i] = keep * w[i] - step * m[i] / deviation;
    }
}

static void lion(const struct update *u, real *w, const real *g, int64_t at, int64_t n)
{
    real *m = (real *)u->state[0] + at;
    real b1 = (real)u->beta1, b2 = (real)u->beta2, keep = (real)u->decay, step = (real)u->rate;
    real rest1 = (real)(1 - u->beta1), rest2 = (real)(1 - u->beta2);
    real scale = (real)u->gradient_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real gi = scale * g[i], c = b1 * m[i] + rest1 * gi;
        real sign = (real)((c > 0) - (c < 0));
        m[i] = b2 * m[i] + rest2 * gi;
        w[i] = keep * w[i] - step * sign;
    }
}

// A gradient that is no number clears m and v of its element and leaves the weight alone.
// What v can hold the square of. In a block that holds anything else every number would be lost.
static inline bool is_usable(real g)
{
    real square = g * g;
    return square - square == 0;
}

static void adamw8bit_moments(const struct update *u, real *m, real *v, const real *g, int64_t n)
{
    real b1 = (real)u->beta1, b2 = (real)u->beta2, scale = (real)u->gradient_scale;
    real rest1 = (real)(1 - u->beta1), rest2 = (real)(1 - u->beta2);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        bool is_number = is_usable(scale * g[i]);
        real gi = is_number ? scale * g[i] : 0;
        m[i] = is_number ? b1 * m[i] + rest1 * gi : 0;
        v[i] = is_number ? b2 * v[i] + rest2 * (gi * gi) : 0;
    }
}

static void adamw8bit_weights(const struct update *u, real *w, const real *m, const real *v,
                              const real *g, int64_t n)
{
    double correction = sqrt(u->correction2);
    real step = (real)(u->rate * correction / u->correction1), eps = (real)(u->eps * correction);
    real keep = (real)u->decay, scale = (real)u->gradient_scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real moved = (w[i] - step * (m[i] / (vec_sqrt(v[i]) + eps))) * keep;
        w[i] = is_usable(scale * g[i]) ? moved : w[i];
    }
}

// The weights are updated from m and v as they are before these become codes again.
static void adamw8bit(const struct update *u, real *w, const real *g, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i += CODE8_BLOCK) {
        int64_t block = (at + i) / CODE8_BLOCK, count = n - i < CODE8_BLOCK ? n - i : CODE8_BLOCK;
        uint8_t *m_code = (uint8_t *)u->state[0] + at + i,
                *v_code = (uint8_t *)u->state[1] + at + i;
        real *m_max = (real *)u->state[2] + block, *v_max = (real *)u->state[3] + block;
        real m[CODE8_BLOCK], v[CODE8_BLOCK];
        code8_unpack(m, m_code, count, u->signed_map, *m_max);
        code8_unpack(v, v_code, count, u->unsigned_map, *v_max);
        adamw8bit_moments(u, m, v, g + i, count);
        adamw8bit_weights(u, w + i, m, v, g + i, count);
        *m_max = vec_absmax(m, count);
        *v_max = vec_absmax(v, count);
        code8_pack_signed(m_code, m, count, u->signed_map, *m_max);
        code8_pack_unsigned(v_code, v, count, u->unsigned_map, *v_max);
    }
}

void update_sgd(const struct update *u)
{
    in_pieces(u, sgd);
}

void update_momentum(const struct update *u)
{
    in_pieces(u, momentum);
}

void update_adamw(const struct update *u)
{
    in_pieces(u, adamw);
}

void update_adamw8bit(const struct update *u)
{
    _Static_assert(ARRAY_PIECE % CODE8_BLOCK == 0, "a block is never cut");
    in_pieces(u, adamw8bit);
}

void update_lion(const struct update *u)
{
    in_pieces(u, lion);
}
