// check_gradients.c - do the gradients that training uses point where the loss really goes?
//
// The gradient is the one that an optimizer step computes: micro-batches, tied table, recompute
// and all. The slope of an element w is measured on the sum L of the losses of the same batch,
//
//   (8 (L(w+h) - L(w-h)) - (L(w+2h) - L(w-2h))) / (12 h)
//
// for the element with the largest gradient of each tensor and a few drawn at random. Only double
// precision can judge: the float program runs the f64 program beside it. A batch of more than two
// sequences is cut to two, since each slope takes four forwards.
//
// A tensor passes if ||gradient - slope|| <= 1e-6 ||gradient|| + rounding, over its sample.
// ||gradient|| counts as no less than the whole tensor's, scaled to the sample: a sample may hit
// elements that move nothing. 1e-6 is ten times what the ops alone are held to (gradcheck.h):
// truncation (h^4 L^(5) / 30) grows with depth. Rounding: L is known to a few times its epsilon.
#include "src/check.h"
#include "src/commands.h"
#include "src/system.h"
#include "tape/rng.h"
#include "tape/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 2, SLOPES = 3 };
static const double step_size = 0x1p-11, tolerance = 1e-6;

// ---- slopes ----------------------------------------------------------------------------

// The gradient of one parameter stays wanted, since a walk back must lead somewhere: with seed 0 it
// adds nothing there. If the last norm's, that is small and near the loss.
static const struct param *last_trained(const struct gpt *g)
{
    const struct param *p = g->lnf_w;
    for (int i = g->params.count - 1; p->is_frozen && i >= 0; i--)
        p = &g->params.param[i];
    return p;
}

static void freeze_all_but(struct gpt *g, const struct param *one)
{
    for (int i = 0; i < g->params.count; i++)
        g->params.param[i].tensor.wants_grad = &g->params.param[i] == one;
}

static double loss_sum(struct run *r)
{
    const struct step_config *c = &r->config->step;
    struct tape *t = &r->tape;
    double sum = 0;
    for (int64_t first = 0; first < c->batch; first += c->micro_batch) {
        int64_t left = c->batch - first, samples = left < c->micro_batch ? left : c->micro_batch;
        tape_begin(t, PHASE_FORWARD, first);
        tape_enter(t, "%s", "");
        struct tensor *loss = gpt_loss(t, &r->gpt, r->step.tokens + first * c->seq,
                                       r->step.targets + first * c->seq, NULL, samples, c->seq);
        for (int64_t i = 0; !tape_is_dry(t) && i < samples; i++)
            sum += (double)loss->data[i];
        tape_leave(t, NULL);
        tape_backward(t, loss, 0);
    }
    return sum;
}

static double loss_at(struct run *r, real *w, double value)
{
    real was = *w;
    *w = (real)value;
    double sum = loss_sum(r);
    *w = was;
    return sum;
}

static double slope(struct run *r, real *w)
{
    double x = (double)*w, h = step_size;
    double near = loss_at(r, w, x + h) - loss_at(r, w, x - h);
    double far = loss_at(r, w, x + 2 * h) - loss_at(r, w, x - 2 * h);
    return (8 * near - far) / (12 * h);
}

// ---- tensors ---------------------------------------------------------------------------

static int64_t place_of(const struct tensor *x, uint64_t key, int64_t i, int64_t count)
{
    int64_t n = tensor_count(x), largest = 0;
    if (count == n)
        return i;
    if (i > 0)
        return rng_below(key, (uint64_t)i, n);
    for (int64_t at = 1; at < n; at++)
        if (fabs((double)x->grad[at]) > fabs((double)x->grad[largest]))
            largest = at;
    return largest;
}

// counted: the gradient is of the mean over so many targets, the slope of their sum.
static struct check_difference compare(struct run *r, const struct tensor *x, uint64_t key,
                                       int64_t slopes, double counted)
{
    int64_t n = tensor_count(x), count = slopes < n ? slopes : n;
    struct check_difference d = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t at = place_of(x, key, i, count);
        check_compare_number(&d, counted * (double)x->grad[at], slope(r, &x->data[at]));
    }
    return d;
}

static bool passes(const struct check_difference *d, const struct tensor *x, double counted,
                   double loss)
{
    double sample = sqrt((double)d->elements / (double)tensor_count(x));
    double whole = counted * check_norm(x->grad, tensor_count(x)) * sample;
    double rounding = 16 * REAL_EPSILON * loss / step_size * sqrt((double)d->elements);
    return d->error_norm <= tolerance * fmax(d->norm, whole) + rounding; // false for NaN
}

static bool calls(struct run *r, void *user, struct error *e)
{
    struct step_result *result = user;
    if (!step_gradients(&r->step, &r->tape, result, e))
        return false;
    freeze_all_but(&r->gpt, last_trained(&r->gpt));
    if (tape_is_dry(&r->tape))
        loss_sum(r);
    return true;
}

static void report(struct check *k, const struct step_result *result,
                   const int64_t flops[PHASE_COUNT], double seconds)
{
    const struct param_list *l = &k->run.gpt.params;
    const struct ledger_counts *counts = &k->run.tape.arena.ledger.counts;
    double loss = result->loss * (double)result->counted, counted = (double)result->counted;
    struct check_variant v = {.name = "the step whose gradients are checked",
                              .planned_bytes = k->run.plan.bytes,
                              .peak_bytes = counts->total_peak,
                              .saved_bytes = counts->kept_bytes,
                              .flops = flops[PHASE_FORWARD] + flops[PHASE_BACKWARD],
                              .recompute_flops = flops[PHASE_RECOMPUTE],
                              .seconds = seconds,
                              .loss = result->loss};
    double worst = 0;
    int wrong = 0, tensors = 0;
    for (int i = 0; i < l->count; i++) {
        struct check_difference *d = &k->difference[i];
        if (l->param[i].is_frozen)
            continue;
        tensors++;
        if (passes(d, &l->param[i].tensor, counted, loss))
            d->differ = 0;
        check_difference_add(&v.total, d);
        wrong += d->differ > 0;
        worst = fmax(worst, check_difference_relative(d));
    }
    snprintf(k->verdict, sizeof(k->verdict),
             "%lld slopes, %d of %d tensors beyond %g of their norm; the worst by %.3g",
             (long long)v.total.elements, wrong, tensors, tolerance, worst);
    check_report_variant(&k->report, &v);
    for (int i = 0; i < l->count; i++)
        if (!l->param[i].is_frozen)
            check_report_tensor(&k->report, l->param[i].name, "slope", &k->difference[i],
                                k->difference[i].differ > 0);
    check_report_variant_end(&k->report);
}

// ---- here, in double -------------------------------------------------------------------

static bool measure(struct check *k, struct error *e)
{
    struct run *r = &k->run;
    struct step_result result;
    int64_t slopes = k->settings.slopes != UNSET_INT ? k->settings.slopes : SLOPES;
    uint64_t key = rng_key(k->config.step.seed, RNG_TEST);
    check_fill(k, r);
    double start = system_seconds();
    if (!calls(r, &result, e))
        return false;
    double seconds = system_seconds() - start;
    int64_t flops[PHASE_COUNT];
    memcpy(flops, r->tape.flops, sizeof(flops)); // those of the slopes come on top
    for (int i = 0; i < r->gpt.params.count; i++) {
        if (system_was_interrupted())
            return refuse(e, "interrupted");
        const struct tensor *x = &r->gpt.params.param[i].tensor;
        k->difference[i] = (struct check_difference){0};
        if (x->grad != NULL)
            k->difference[i] =
                compare(r, x, rng_key(key, (uint64_t)i), slopes, (double)result.counted);
    }
    report(k, &result, flops, seconds);
    return true;
}

static bool gradients_here(struct check *k, struct error *e)
{
    struct step_config *s = &k->config.step;
    struct step_result ignored;
    if (s->batch > ROWS_MAX) {
        s->micro_batch = s->micro_batch < s->batch ? ROWS_MAX - 1 : ROWS_MAX;
        s->batch = ROWS_MAX;
    }
    int64_t split = k->split;
    k->split = split < s->batch ? split : s->batch > 1 ? s->batch - 1 : 1;
    check_report_begin(&k->report, "gradients",
                       "a small change of a weight changes the loss as its gradient says");
    bool ok = run_open_for(&k->run, &k->config, CONFIG_TRAIN, calls, &ignored, e);
    if (ok) {
        check_report_variants(&k->report);
        ok = measure(k, e);
        if (ok)
            check_report_variants_end(&k->report);
        run_close(&k->run);
    }
    k->split = split;
    k->config = k->given;
    return ok;
}

// ---- there -----------------------------------------------------------------------------

static bool find_f64(char path[SYSTEM_PATH_BYTES], struct error *e)
{
    static const char *const places[] = {"build/f64", "../f64"};
    static const char *const options[] = {"",        "-builtin",        "-loops",
                                          "-serial", "-builtin-serial", "-loops-serial"};
    char program[SYSTEM_PATH_BYTES];
    system_program(program);
    char *slash = strrchr(program, '/');
    if (slash == NULL)
        return refuse(e, "this system does not say where the program lies, so the one in double "
                         "precision cannot be found: run build/f64/memtape check gradients");
    *slash = 0;
    for (int i = 0; i < COUNT_OF(places); i++)
        for (int j = 0; j < COUNT_OF(options); j++) {
            int length = snprintf(path, SYSTEM_PATH_BYTES, "%.900s/%s%s/memtape", program,
                                  places[i], options[j]);
            if (length < SYSTEM_PATH_BYTES && access(path, X_OK) == 0)
                return true;
        }
    return refuse(e,
                  "slopes need the program in double precision, and there is no "
                  "%.400s/build/f64/memtape: `make` in memtape's source folder builds it beside "
                  "./memtape",
                  program);
}

struct budget_option {
    const char *name;
    int64_t bytes; // 0: not given
    char value[TEXT_NUMBER_BYTES];
};

// The same command line, but for what is checked, where the JSON goes, and budgets, which are of
// bytes: what a float run fits in, one in double does in twice as many.
static bool run_f64(struct check *k, char *path, char *json, int *status, struct error *e)
{
    enum { ARGUMENTS = 512 };
    static char what[] = "gradients", option[] = "--json";
    struct budget_option budget[] = {
        {.name = "--budget", .bytes = k->budget_bytes},
        {.name = "--activation-budget", .bytes = k->given.activation_budget_bytes}};
    char *argv[ARGUMENTS + 8];
    int count = 0;
    if (k->argc > ARGUMENTS)
        return refuse(e, "more than %d arguments", (int)ARGUMENTS);
    argv[count++] = path;
    for (int i = 0; i < k->argc; i++)
        argv[count++] = k->argv[i] == k->settings.operand ? what : k->argv[i];
    for (int i = 0; i < COUNT_OF(budget); i++)
        if (budget[i].bytes > 0) {
            snprintf(budget[i].value, sizeof(budget[i].value), "%lld",
                     2 * (long long)budget[i].bytes);
            argv[count++] = (char *)budget[i].name;
            argv[count++] = budget[i].value;
        }
    argv[count++] = option;
    argv[count++] = json;
    argv[count] = NULL;
    fflush(NULL);
    return system_run(path, argv, k->report.file == stderr, status, e);
}

// A report that ends with an error, as check_report_close writes it, or none at all.
static bool ended_early(FILE *report)
{
    static const char error[] = "  \"error\": ";
    char line[256];
    bool is_error = report == NULL;
    while (!is_error && fgets(line, sizeof(line), report) != NULL)
        is_error = strncmp(line, error, sizeof(error) - 1) == 0;
    return is_error;
}

static bool gradients_there(struct check *k, char *path, const char *dir, struct error *e)
{
    char json[SYSTEM_PATH_BYTES + 32];
    int status;
    snprintf(json, sizeof(json), "%s/gradients.json", dir);
    if (!run_f64(k, path, json, &status, e))
        return false;
    FILE *f = fopen(json, "r");
    bool is_done = status <= EXIT_REFUSED && !ended_early(f);
    if (is_done && status != EXIT_OK)
        check_report_broken(&k->report, "see what %s says", path);
    if (is_done && k->report.json_path != NULL) {
        rewind(f);
        json_copy(&k->report.json, "f64", f);
    }
    if (f != NULL)
        fclose(f);
    return is_done || refuse(e, "%s could not do it (status %d)", path, status);
}

static bool gradients_elsewhere(struct check *k, struct error *e)
{
    char path[SYSTEM_PATH_BYTES], dir[SYSTEM_PATH_BYTES];
    if (!find_f64(path, e) || !system_make_temporary(dir, e))
        return false;
    check_report_begin(&k->report, "gradients", "in double precision, by the f64 program");
    bool ok = gradients_there(k, path, dir, e);
    system_remove_tree(dir);
    return ok;
}

bool check_gradients(struct check *k, struct error *e)
{
    bool is_double = sizeof(real) == sizeof(double);
    if (!(is_double ? gradients_here(k, e) : gradients_elsewhere(k, e)))
        return false;
    check_report_end(&k->report, is_double ? k->verdict : "double precision finds no fault");
    return true;
}
