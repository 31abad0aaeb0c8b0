#include "tape/gradcheck.h"

#include <math.h>

// A power of two, so that x + h loses little. The optimum is near the fifth root of epsilon.
#ifdef TAPE_F64
static const double step = 0x1p-10;
#else
static const double step = 0x1p-5;
#endif

// Seed 0 sends exact zeros through the backward: the tape is used up, no gradient changes.
static double run(struct tape *t, gradcheck_fn *loss, void *user, real seed)
{
    tape_begin(t, PHASE_FORWARD, 0);
    tape_enter(t, "gradcheck");
    struct tensor *y = loss(t, user);
    double sum = 0;
    for (int64_t i = 0; !tape_is_dry(t) && i < tensor_count(y); i++)
        sum += (double)y->data[i];
    tape_leave(t, NULL);
    tape_backward(t, y, seed);
    return sum;
}

double gradcheck_run(struct tape *t, gradcheck_fn *loss, void *user)
{
    return run(t, loss, user, 1);
}

static double run_at(struct tape *t, gradcheck_fn *loss, void *user, real *at, double value)
{
    real was = *at;
    *at = (real)value;
    double sum = run(t, loss, user, 0);
    *at = was;
    return sum;
}

static double slope(struct tape *t, gradcheck_fn *loss, void *user, real *at)
{
    double x = (double)*at;
    double near = run_at(t, loss, user, at, x + step) - run_at(t, loss, user, at, x - step);
    double far = run_at(t, loss, user, at, x + 2 * step) - run_at(t, loss, user, at, x - 2 * step);
    return (8 * near - far) / (12 * step);
}

struct gradcheck gradcheck_compare(struct tape *t, gradcheck_fn *loss, void *user, struct tensor *x,
                                   int64_t count_max)
{
    CHECK(x->is_persistent && x->wants_grad && count_max > 0);
    if (tape_is_dry(t)) { // the same events as a real comparison of one element
        for (int i = 0; i < 4; i++)
            run(t, loss, user, 0);
        return (struct gradcheck){0};
    }
    struct gradcheck c = {.count = tensor_count(x)};
    int64_t all = c.count;
    if (c.count > count_max)
        c.count = count_max;
    double analytic_sum = 0, numeric_sum = 0, error_sum = 0, worst = -1;
    for (int64_t k = 0; k < c.count; k++) {
        int64_t i = all / c.count * k + all % c.count * k / c.count; // all * k / count
        double analytic = (double)x->grad[i], numeric = slope(t, loss, user, &x->data[i]);
        double error = analytic - numeric;
        analytic_sum += analytic * analytic;
        numeric_sum += numeric * numeric;
        error_sum += error * error;
        if (!(fabs(error) <= worst)) { // NaN is the worst
            worst = fabs(error);
            c.worst = i;
            c.worst_analytic = analytic;
            c.worst_numeric = numeric;
        }
    }
    c.analytic_norm = sqrt(analytic_sum);
    c.numeric_norm = sqrt(numeric_sum);
    c.error_norm = sqrt(error_sum);
    return c;
}

bool gradcheck_passes(const struct gradcheck *c, double tolerance)
{
    double scale = c->analytic_norm > 0 ? c->analytic_norm : 1;
    return c->count > 0 && c->error_norm <= tolerance * scale; // false for NaN
}
