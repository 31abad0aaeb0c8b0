// op_layernorm.c - each row to mean 0 and variance 1, then scaled and shifted (shift may be NULL).
//
//   h = (x - m) r,  r = 1/sqrt(var + eps),  y = h s + c
//   g = dy s:  dx += r (g - mean(g) - h mean(g h)),  ds += sum dy h,  dc += sum dy
//
// Keeps m and r (2 numbers a row) as extras of the output; they live and vanish with it.
// A row of dx needs two sums over the row of dy, then dy[i] once more: so dx may be dy. ds and dc
// need dy too, so they come first. The sums over rows run in row order, columns in parallel.
#include "tape/ops/ops_int.h"

static const double eps = 1e-5;

static void layernorm_infer(struct tape *t, struct node *n)
{
    (void)t;
    const struct tensor *x = n->in[0];
    CHECK(tensor_count(n->in[1]) == tensor_cols(x));
    CHECK(n->in_count == 2 || tensor_count(n->in[2]) == tensor_cols(x));
    tensor_like(n->out, x);
    n->out->saved_bytes = 2 * tensor_samples(x) * tensor_rows(x) * (int64_t)sizeof(real);
    n->forward_flops = 8 * tensor_count(x);
    n->backward_flops = 14 * tensor_count(x);
}

// Sum of (x - m)^2 with fixed lanes.
static real spread(const real *x, real m, int64_t cols)
{
    real lane[VEC_LANES] = {0};
    int64_t whole = cols / VEC_LANES * VEC_LANES;
    for (int64_t j = 0; j < whole; j += VEC_LANES)
        for (int k = 0; k < VEC_LANES; k++)
            lane[k] += (x[j + k] - m) * (x[j + k] - m);
    for (int64_t j = whole; j < cols; j++)
        lane[j - whole] += (x[j] - m) * (x[j] - m);
    return vec_sum(lane, VEC_LANES);
}

static void layernorm_forward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
    const real *scale = n->in[1]->data, *shift = n->in_count == 3 ? n->in[2]->data : NULL;
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        const real *x = n->in[0]->data + i * cols;
        real *y = n->out->data + i * cols;
        real m = vec_sum(x, cols) / (real)cols;
        real r = (real)(1 / sqrt((double)spread(x, m, cols) / (double)cols + eps));
        for (int64_t j = 0; j < cols; j++)
            y[j] = (x[j] - m) * r * scale[j] + (shift != NULL ? shift[j] : 0);
        n->out->saved[2 * i] = m;
        n->out->saved[2 * i + 1] = r;
    }
}

static void parameter_gradients(const struct node *n, int64_t rows, int64_t cols, real *ds,
                                real *dc)
{
    const real *x = n->in[0]->data, *dy = n->dy, *saved = n->out->saved;
    int64_t tiles = tile_count(cols, COLUMN_TILE);
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t k = 0; k < tiles; k++) {
        struct tile c = tile_at(k, cols, COLUMN_TILE);
        real sum_s[COLUMN_TILE] = {0}, sum_c[COLUMN_TILE] = {0};
        for (int64_t j = 0; j < c.count; j++) {
            sum_s[j] = ds != NULL ? ds[c.from + j] : 0;
            sum_c[j] = dc != NULL ? dc[c.from + j] : 0;
        }
        for (int64_t i = 0; i < rows; i++) {
            const real *xi = x + i * cols + c.from, *dyi = dy + i * cols + c.from;
            real m = saved[2 * i], r = saved[2 * i + 1];
            for (int64_t j = 0; j < c.count; j++) {
                sum_s[j] += dyi[j] * ((xi[j] - m) * r);
                sum_c[j] += dyi[j];
            }
        }
        for (int64_t j = 0; j < c.count; j++) {
            if (ds != NULL)
                ds[c.from + j] = sum_s[j];
            if (dc != NULL)
                dc[c.from + j] = sum_c[j];
        }
    }
}

static void row_backward(const real *x, const real *s, real m, real r, int64_t cols, const real *dy,
                         real *dx, bool adds)
{
    real lane_g[VEC_LANES] = {0}, lane_gh[VEC_LANES] = {0};
    for (int64_t j = 0; j < cols; j += VEC_LANES) {
        int64_t count = cols - j < VEC_LANES ? cols - j : VEC_LANES;
        for (int64_t k = 0; k < count; k++) {
            real g = dy[j + k] * s[j + k];
            lane_g[k] += g;
            lane_gh[k] += g * ((x[j + k] - m) * r);
        }
    }
    real mean_g = vec_sum(lane_g, VEC_LANES) / (real)cols;
    real mean_gh = vec_sum(lane_gh, VEC_LANES) / (real)cols;
    for (int64_t j = 0; j < cols; j++) {
        real step = r * (dy[j] * s[j] - mean_g - (x[j] - m) * r * mean_gh);
        dx[j] = (adds ? dx[j] : 0) + step;
    }
}

static void layernorm_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
    real *dx = n->dx[0], *dc = n->in_count == 3 ? n->dx[2] : NULL;
    const real *saved = n->out->saved;
    for (int i = 1; i < n->in_count; i++)
        op_start_sum(n, i);
    if (n->dx[1] != NULL || dc != NULL)
        parameter_gradients(n, rows, cols, n->dx[1], dc);
    if (dx == NULL)
        return;
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++)
        row_backward(n->in[0]->data + i * cols, n->in[1]->data, saved[2 * i], saved[2 * i + 1],
                     cols, n->dy + i * cols, dx + i * cols, n->adds[0]);
}

const struct op op_layernorm_desc = {
    .name = "layernorm",
    .formula = "y = (x - mean) / sqrt(var + 1e-5) * scale + shift",
    .keeps = "x, scale, and each row's mean and 1/deviation",
    .saved_name = "mean, 1/deviation",
    .needs = {NEEDS_IN0 | NEEDS_IN1, NEEDS_IN0},
    .grad = GRAD_IN_PLACE,
    .infer = layernorm_infer,
    .forward = {layernorm_forward},
    .backward = {layernorm_backward},
};

struct tensor *(op_layernorm)(struct tape *t, struct tensor *x, struct tensor *scale,
                              struct tensor *shift)
{
    struct tensor *in[] = {x, scale, shift};
    return tape_apply(t, &op_layernorm_desc, shift != NULL ? 3 : 2, in, NULL);
}
