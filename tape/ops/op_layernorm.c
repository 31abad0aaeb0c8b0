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

// Rooms for what is stored as bf16: scale and shift once, `rows` rows for each thread.
static int64_t room_bytes(const struct tape *t, const struct node *n, int64_t rows)
{
    int64_t count = 0;
    if (n->in[1]->dtype != DTYPE_REAL || (n->in_count == 3 && n->in[2]->dtype != DTYPE_REAL))
        count += 2;
    if (n->in[0]->dtype != DTYPE_REAL || n->in[0]->grad_dtype != DTYPE_REAL ||
        n->out->dtype != DTYPE_REAL)
        count = 2 + t->threads * rows;
    return count * tensor_cols(n->out) * (int64_t)sizeof(real);
}

static real *row_room(const struct node *n, int64_t rows)
{
    return op_part(n->work, (2 + op_thread() * rows) * tensor_cols(n->out));
}

enum { FORWARD_ROWS = 2, BACKWARD_ROWS = 3 };

static void layernorm_infer(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[0];
    CHECK(tensor_count(n->in[1]) == tensor_cols(x));
    CHECK(n->in_count == 2 || tensor_count(n->in[2]) == tensor_cols(x));
    tensor_like(n->out, x);
    n->out->saved_bytes = 2 * tensor_samples(x) * tensor_rows(x) * (int64_t)sizeof(real);
    n->forward_work_bytes = room_bytes(t, n, FORWARD_ROWS);
    n->backward_work_bytes = room_bytes(t, n, BACKWARD_ROWS);
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

// y = (x - m) r scale + shift. Saves m and r.
static void row_forward(const real *x, const real *scale, const real *shift, int64_t cols, real *y,
                        real *saved)
{
    real m = vec_sum(x, cols) / (real)cols;
    real r = (real)(1 / sqrt((double)spread(x, m, cols) / (double)cols + eps));
    for (int64_t j = 0; j < cols; j++)
        y[j] = (x[j] - m) * r * scale[j] + (shift != NULL ? shift[j] : 0);
    saved[0] = m;
    saved[1] = r;
}

static void layernorm_forward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
    const real *scale = array_read(tensor_data(n->in[1]), 0, cols, n->work), *shift = NULL;
    if (n->in_count == 3)
        shift = array_read(tensor_data(n->in[2]), 0, cols, op_part(n->work, cols));
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        real *room = row_room(n, FORWARD_ROWS);
        const real *x = array_read(tensor_data(n->in[0]), i * cols, cols, room);
        real *y = array_open(tensor_data(n->out), i * cols, cols, false, op_part(room, cols));
        row_forward(x, scale, shift, cols, y, n->out->saved + 2 * i);
        array_close(tensor_data(n->out), i * cols, cols, y);
    }
}

static void parameter_gradients(const struct node *n, int64_t rows, int64_t cols)
{
    const real *saved = n->out->saved;
    struct array ds = op_dx(n, 1), dc = n->in_count == 3 ? op_dx(n, 2) : array_of(NULL, DTYPE_REAL);
    int64_t tiles = tile_count(cols, COLUMN_TILE);
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t k = 0; k < tiles; k++) {
        struct tile c = tile_at(k, cols, COLUMN_TILE);
        real room_s[COLUMN_TILE], room_c[COLUMN_TILE], room_x[COLUMN_TILE], room_dy[COLUMN_TILE];
        real sum_s[COLUMN_TILE] = {0}, sum_c[COLUMN_TILE] = {0};
        const size_t bytes = (size_t)c.count * sizeof(real);
        if (ds.at != NULL)
            memcpy(sum_s, array_read(ds, c.from, c.count, room_s), bytes);
        if (dc.at != NULL)
            memcpy(sum_c, array_read(dc, c.from, c.count, room_c), bytes);
        for (int64_t i = 0; i < rows; i++) {
            const real *dy = array_read(op_dy(n), i * cols + c.from, c.count, room_dy);
            // forward: y[j] = (x[j] - m) * r * scale[j] + (shift != NULL ? shift[j] : 0)
            for (int64_t j = 0; j < c.count; j++)
                sum_c[j] += dy[j];
            if (ds.at == NULL)
                continue; // a shift alone reads no x, so that nobody may have kept it
            const real *x = array_read(tensor_data(n->in[0]), i * cols + c.from, c.count, room_x);
            real m = saved[2 * i], r = saved[2 * i + 1];
            for (int64_t j = 0; j < c.count; j++)
                sum_s[j] += dy[j] * ((x[j] - m) * r);
        }
        if (ds.at != NULL)
            array_write(ds, c.from, c.count, sum_s);
        if (dc.at != NULL)
            array_write(dc, c.from, c.count, sum_c);
    }
}

static void row_backward(const real *x, const real *scale, real m, real r, int64_t cols,
                         const real *dy, real *dx, bool adds)
{
    real lane_g[VEC_LANES] = {0}, lane_gh[VEC_LANES] = {0};
    for (int64_t j = 0; j < cols; j += VEC_LANES) {
        int64_t count = cols - j < VEC_LANES ? cols - j : VEC_LANES;
        for (int64_t k = 0; k < count; k++) {
            real g = dy[j + k] * scale[j + k];
            lane_g[k] += g;
            lane_gh[k] += g * ((x[j + k] - m) * r);
        }
    }
    real mean_g = vec_sum(lane_g, VEC_LANES) / (real)cols;
    real mean_gh = vec_sum(lane_gh, VEC_LANES) / (real)cols;
    // forward: y[j] = (x[j] - m) * r * scale[j] + (shift != NULL ? shift[j] : 0)
    for (int64_t j = 0; j < cols; j++) {
        real step = r * (dy[j] * scale[j] - mean_g - (x[j] - m) * r * mean_gh);
        dx[j] = (adds ? dx[j] : 0) + step;
    }
}

static void layernorm_backward(struct tape *t, struct node *n)
{
    (void)t;
    int64_t cols = tensor_cols(n->out), rows = tensor_count(n->out) / cols;
    const real *saved = n->out->saved;
    struct array dx = op_dx(n, 0);
    for (int i = 1; i < n->in_count; i++)
        op_start_sum(n, i);
    if (n->dx[1] != NULL || (n->in_count == 3 && n->dx[2] != NULL))
        parameter_gradients(n, rows, cols);
    if (dx.at == NULL)
        return;
    const real *scale = array_read(tensor_data(n->in[1]), 0, cols, n->work);
#pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        real *room = row_room(n, BACKWARD_ROWS);
        const real *x = array_read(tensor_data(n->in[0]), i * cols, cols, room);
        const real *dy = array_read(op_dy(n), i * cols, cols, op_part(room, cols));
        real *to = array_open(dx, i * cols, cols, n->adds[0], op_part(room, 2 * cols));
        row_backward(x, scale, saved[2 * i], saved[2 * i + 1], cols, dy, to, n->adds[0]);
        array_close(dx, i * cols, cols, to);
    }
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
