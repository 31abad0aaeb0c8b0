#include "tape/cpu/adafactor.h"

#include "tape/cpu/vec.h"

#include <math.h>

// eps1 is the resolution of float in every build, d is 1.
static const double eps1 = 0x1p-23, eps2 = 1e-3, decay_power = -0.8;

struct step {
    const struct update *u;
    struct array to; // the weights that are updated
    double rest2;    // 1 - beta2 of this step
    double row_mean; // of a matrix: the mean of its rows' means
    real by;         // what the update is multiplied with in the end
};

// ---- second moments --------------------------------------------------------------------

static double squares(const struct update *u, int64_t from, int64_t count)
{
    double sum = 0;
    real room[ARRAY_PIECE];
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        int64_t n = array_piece(at, count);
        sum += vec_sum_squares(array_read(u->gradient, from + at, n, room), n);
    }
    return sum;
}

static void follow(real *mean, double rest2, double now)
{
    *mean = (real)((1 - rest2) * (double)*mean + rest2 * now);
}

static void moments_of_rows(const struct step *s)
{
    const struct update *u = s->u;
    double scale = u->gradient_scale * u->gradient_scale / (double)u->cols;
    real *row = u->state[0];
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < u->n / u->cols; r++)
        follow(&row[r], s->rest2, scale * squares(u, r * u->cols, u->cols));
}

// Each slice of columns adds up row after row.
static void moments_of_cols(const struct step *s)
{
    enum { SLICE = 64 };
    const struct update *u = s->u;
    const int64_t rows = u->n / u->cols;
    double scale = u->gradient_scale * u->gradient_scale / (double)rows;
    real *col = u->state[1];
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < u->cols; from += SLICE) {
        int64_t count = u->cols - from < SLICE ? u->cols - from : SLICE;
        double sum[SLICE] = {0};
        real room[SLICE];
        for (int64_t r = 0; r < rows; r++) {
            const real *g = array_read(u->gradient, r * u->cols + from, count, room);
            for (int64_t i = 0; i < count; i++)
                sum[i] += (double)g[i] * (double)g[i];
        }
        for (int64_t i = 0; i < count; i++)
            follow(&col[from + i], s->rest2, scale * sum[i]);
    }
}

static void moments_of_vector(const struct step *s)
{
    const struct update *u = s->u;
    real *v = u->state[0];
    for (int64_t at = 0; at < u->n; at += ARRAY_PIECE) {
        int64_t n = array_piece(at, u->n);
        real room[ARRAY_PIECE];
        const real *g = array_read(u->gradient, at, n, room);
        for (int64_t i = 0; i < n; i++) {
            double gi = u->gradient_scale * (double)g[i];
            follow(&v[at + i], s->rest2, gi * gi);
        }
    }
}

static double mean_of_rows(const struct update *u)
{
    const real *row = u->state[0];
    int64_t rows = u->n / u->cols;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += (double)row[r];
    return fmax(sum / (double)rows, eps1);
}

// ---- the update ------------------------------------------------------------------------

// y = g / sqrt(v^) of elements of one row, or of a vector.
static void normalize(const struct step *s, real *y, const real *g, const real *v, real factor,
                      int64_t n)
{
    real scale = (real)s->u->gradient_scale, least = (real)(eps1 * eps1);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real estimate = factor * v[i];
        estimate = estimate > least ? estimate : least;
        y[i] = scale * g[i] / vec_sqrt(estimate);
    }
}

static void normalize_piece(const struct step *s, real *y, int64_t from, int64_t count)
{
    const struct update *u = s->u;
    real room[ARRAY_PIECE];
    const real *g = array_read(u->gradient, from, count, room);
    if (u->cols == 0) {
        normalize(s, y, g, (const real *)u->state[0] + from, 1, count);
        return;
    }
    const real *row = u->state[0], *col = u->state[1];
    for (int64_t at = 0, n; at < count; at += n) {
        int64_t r = (from + at) / u->cols, c = (from + at) % u->cols;
        n = u->cols - c < count - at ? u->cols - c : count - at;
        normalize(s, y + at, g + at, col + c, (real)((double)row[r] / s->row_mean), n);
    }
}

static double squares_of_update(const void *user, int64_t from, int64_t count)
{
    real y[ARRAY_PIECE];
    normalize_piece(user, y, from, count);
    return vec_sum_squares(y, count);
}

static void apply(const struct step *s)
{
    const struct update *u = s->u;
    real keep = (real)u->decay;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < u->n; at += ARRAY_PIECE) {
        int64_t n = array_piece(at, u->n);
        real room[ARRAY_PIECE], y[ARRAY_PIECE], *w = array_open(s->to, at, n, true, room);
        normalize_piece(s, y, at, n);
        for (int64_t i = 0; i < n; i++)
            w[i] = keep * w[i] - s->by * y[i];
        array_close(u->weights, at, n, w);
    }
}

void adafactor_update(const struct update *u)
{
    struct step s = {.u = u, .rest2 = pow((double)u->step, decay_power)};
    s.to = update_target(u);
    double rate = fmin(u->rate, 1 / sqrt((double)u->step));
    rate *= fmax(eps2, sqrt(update_sum_squares(s.to, u->n) / (double)u->n));
    if (u->cols > 0) {
        moments_of_rows(&s);
        moments_of_cols(&s);
        s.row_mean = mean_of_rows(u);
    } else {
        moments_of_vector(&s);
    }
    double size = sqrt(update_sum(u->n, squares_of_update, &s) / (double)u->n);
    s.by = (real)(rate / fmax(1, size));
    apply(&s);
}
