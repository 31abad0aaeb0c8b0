#include "src/rates.h"

#include "src/system.h"
#include "tape/blas.h"
#include "tape/cpu/update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double rates_seconds(const struct rates *r, const struct cost *cost, enum optimizer_kind optimizer)
{
    double seconds = (double)cost->trained * r->update_seconds[optimizer];
    for (int k = 0; k < COST_COUNT; k++)
        seconds += (double)cost->flops[k] / r->flops_per_second[k];
    return seconds + (double)cost->calls * r->call_seconds;
}

// ---- measuring -------------------------------------------------------------------------

enum { ROUNDS_MIN = 4, ROUNDS_MAX = 60, CHAIN = 64 };

// One thread, timed by its own clock: other programs then disturb little, while threads that wait
// for each other on a busy machine can seem thirty times slower than they are.
static const double round_flops = 1.5e8;  // of one round, at most: a few milliseconds
static const double trial_seconds = 0.03; // spent on repeating it
static const int64_t elements_max = 1 << 19;
static const int64_t update_elements = 1 << 22; // more than caches hold

struct sizes {
    int64_t samples, rows, cols; // of x
    int64_t w_rows, w_cols;      // w_rows 0: a vector
};

struct update_trial {
    struct param_list params; // one matrix
    int64_t rows, cols;
    struct optimizer_config optimizer;
    bool is_open;
};

struct trial { // a small model of one kind of op
    struct tape tape;
    struct tensor x, w;
    struct sizes sizes;
    int64_t heads;
    struct tensor *(*forward)(struct trial *t);
};

static struct tensor *products(struct trial *t)
{
    return op_linear(&t->tape, &t->x, &t->w, NULL);
}

static struct tensor *tiled_attention(struct trial *t)
{
    return op_attention(&t->tape, &t->x, t->heads, 0, 0);
}

static struct tensor *naive_attention(struct trial *t)
{
    struct tensor *q = op_split_heads(&t->tape, &t->x, t->heads, 0);
    struct tensor *k = op_split_heads(&t->tape, &t->x, t->heads, 1);
    struct tensor *v = op_split_heads(&t->tape, &t->x, t->heads, 2);
    struct tensor *p = op_scale(&t->tape, op_matmul(&t->tape, q, k, true, false), 0.125);
    p = op_causal_softmax(&t->tape, p);
    return op_merge_heads(&t->tape, op_matmul(&t->tape, p, v, false, true));
}

static struct tensor *norm(struct trial *t)
{
    return op_layernorm(&t->tape, &t->x, &t->w, NULL);
}

static struct tensor *gelu(struct trial *t)
{
    return op_gelu(&t->tape, &t->x);
}

static struct tensor *chain(struct trial *t)
{
    struct tensor *y = &t->x;
    for (int i = 0; i < CHAIN; i++)
        y = op_scale(&t->tape, y, 1);
    return y;
}

static void fill(struct tensor *x)
{
    for (int64_t i = 0; i < tensor_count(x); i++)
        x->data[i] = (real)0.01 * (real)(i % 13 - 6);
}

static void once(struct trial *t)
{
    tape_begin(&t->tape, PHASE_FORWARD, 0);
    tape_enter(&t->tape, "%s", "");
    struct tensor *y = t->forward(t);
    tape_leave(&t->tape, NULL);
    tape_backward(&t->tape, y, 1);
}

struct sum {
    double flops, seconds;
};

// The fastest of several rounds: what disturbs only slows.
static void time_rounds(struct trial *t, struct sum *sum)
{
    double best = INFINITY, start = system_thread_seconds();
    int64_t before = 0, flops = 0;
    for (int i = 0;
         i < ROUNDS_MAX && (i < ROUNDS_MIN || system_thread_seconds() - start < trial_seconds);
         i++) {
        double from = system_thread_seconds();
        once(t);
        double seconds = system_thread_seconds() - from;
        best = seconds < best ? seconds : best;
        int64_t all = t->tape.flops[PHASE_FORWARD] + t->tape.flops[PHASE_BACKWARD];
        flops = all - before;
        before = all;
    }
    sum->flops += (double)flops;
    sum->seconds += best;
}

static void make_tensors(struct trial *t)
{
    const struct sizes *s = &t->sizes;
    struct arena *a = &t->tape.arena;
    const int64_t x[] = {s->samples, s->rows, s->cols}, w[] = {s->w_rows, s->w_cols};
    bool is_vector = s->w_rows == 0;
    tensor_persistent(&t->x, a, "x", LEDGER_WEIGHTS, 3, x);
    tensor_add_grad(&t->x, a);
    tensor_persistent(&t->w, a, "w", LEDGER_WEIGHTS, is_vector ? 1 : 2, is_vector ? w + 1 : w);
    tensor_add_grad(&t->w, a);
}

static bool measured_calls(struct tape *tape, void *user, struct error *e)
{
    struct trial *t = user;
    (void)tape; // the trial's
    (void)e;
    make_tensors(t);
    once(t);
    return true;
}

static bool run_trial(struct trial *t, const struct sizes *s, struct sum *sum, struct error *e)
{
    struct plan plan;
    t->sizes = *s;
    if (!tape_measure(&t->tape, 1, measured_calls, t, &plan, e))
        return false;
    tape_close(&t->tape);
    if (!tape_open(&t->tape, &plan, false, 1, e))
        return false;
    make_tensors(t);
    fill(&t->x);
    fill(&t->w);
    time_rounds(t, sum);
    tape_close(&t->tape);
    return true;
}

static int64_t at_most(int64_t value, double most)
{
    int64_t limit = most < 1 ? 1 : (int64_t)most;
    return value < limit ? value : limit;
}

static bool measure_classes(struct rates *r, const struct config *c, struct error *e)
{
    static struct trial t;
    int64_t width = c->model.width, seq = c->step.seq, heads = c->model.heads;
    int64_t rows = at_most(seq, 64);
    int64_t out = at_most(4 * width, round_flops / (6 * (double)rows * (double)width));
    int64_t some = at_most(heads, 2), part = some * (width / heads); // heads are alike
    int64_t time = at_most(seq, sqrt(round_flops / (14 * (double)part)));
    int64_t wide = at_most(seq, (double)elements_max / (4 * (double)width));
    struct sum sum[COST_COUNT] = {0};
    t.heads = some;
    t.forward = products;
    bool ok = run_trial(&t, &(struct sizes){1, rows, width, out, width}, &sum[COST_GEMM], e);
    t.forward = c->model.attention == GPT_ATTENTION_NAIVE ? naive_attention : tiled_attention;
    ok = ok && run_trial(&t, &(struct sizes){1, time, 3 * part, 0, 1}, &sum[COST_ATTENTION], e);
    t.forward = norm;
    ok = ok && run_trial(&t, &(struct sizes){1, wide, width, 0, width}, &sum[COST_CHEAP], e);
    t.forward = gelu;
    ok = ok && run_trial(&t, &(struct sizes){1, wide, 4 * width, 0, 1}, &sum[COST_CHEAP], e);
    struct sum calls = {0};
    t.forward = chain;
    ok = ok && run_trial(&t, &(struct sizes){1, 1, 16, 0, 1}, &calls, e);
    for (int k = 0; k < COST_COUNT; k++)
        r->flops_per_second[k] = c->threads * sum[k].flops / sum[k].seconds;
    r->call_seconds = calls.seconds / (2 * CHAIN);
    return ok;
}

// Clears the gradients of a matrix and updates it, as a step does.
static bool update_calls(struct tape *t, void *user, struct error *e)
{
    struct update_trial *u = user;
    struct param_list *l = &u->params;
    (void)e;
    if (u->is_open) {
        arena_lap(&t->arena);
        struct tensor *x = &l->param[0].tensor;
        if (!tape_is_dry(t)) // as clearing it does, and then with numbers in it
            update_fill(tensor_grad(x), tensor_count(x), (real)0.01);
        double norm = tape_is_dry(t) ? 0 : optimizer_gradient_norm(l);
        optimizer_update(&u->optimizer, l, t, 1, 1e-3, norm);
        return true;
    }
    params_open(l, t, 1);
    param_add(l, t, u->rows, u->cols, PARAM_ONES, 0, "update");
    params_add_grads(l, t);
    optimizer_init(&u->optimizer, l, t);
    params_start(l, t, 1);
    return true;
}

static bool update_opens_and_calls(struct tape *t, void *user, struct error *e)
{
    struct update_trial *u = user;
    u->is_open = false;
    update_calls(t, u, e);
    u->is_open = true;
    return update_calls(t, u, e);
}

// Per weight: clearing its gradient, the norm, and the update.
static bool time_update(struct update_trial *u, double *seconds, struct error *e)
{
    struct tape tape;
    struct plan plan;
    if (!tape_measure(&tape, 1, update_opens_and_calls, u, &plan, e))
        return false;
    tape_close(&tape);
    if (!tape_open(&tape, &plan, false, 1, e))
        return false;
    update_opens_and_calls(&tape, u, e);
    *seconds = INFINITY;
    for (int i = 0; i < ROUNDS_MIN; i++) {
        double from = system_thread_seconds();
        update_calls(&tape, u, e);
        *seconds = fmin(*seconds, system_thread_seconds() - from);
    }
    tape_close(&tape);
    return true;
}

static bool measure_update(struct rates *r, const struct config *c, struct error *e)
{
    const struct gpt_config *m = &c->model;
    struct update_trial u = {.cols = m->width};
    u.rows = at_most(12 * m->layers * m->width, (double)update_elements / (double)m->width);
    for (int k = 0; k < OPTIMIZER_COUNT; k++) {
        double seconds;
        u.optimizer = (struct optimizer_config){
            .kind = (enum optimizer_kind)k, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};
        if (!time_update(&u, &seconds, e))
            return false;
        r->update_seconds[k] = seconds / (double)(u.rows * u.cols) / c->threads;
    }
    return true;
}

// ---- the file --------------------------------------------------------------------------

enum { KEY_BYTES = 400, VALUES = COST_COUNT + OPTIMIZER_COUNT + 2 };

static void value_list_of(struct rates *r, double *value[VALUES])
{
    for (int k = 0; k < COST_COUNT; k++)
        *value++ = &r->flops_per_second[k];
    for (int k = 0; k < OPTIMIZER_COUNT; k++)
        *value++ = &r->update_seconds[k];
    *value++ = &r->call_seconds;
    *value = &r->measured_seconds;
}

static void find_path(struct rates *r, char dir[CONFIG_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    dir[0] = r->path[0] = 0;
    if (cache != NULL && cache[0] == '/')
        length = snprintf(dir, CONFIG_PATH_BYTES - 16, "%s/memtape", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(dir, CONFIG_PATH_BYTES - 16, "%s/.cache/memtape", home);
    if (length > 0 && length < CONFIG_PATH_BYTES - 16)
        snprintf(r->path, sizeof(r->path), "%.4070s/rates.txt", dir);
}

static bool read_values(struct rates *r, const char *text)
{
    double *value[VALUES];
    value_list_of(r, value);
    for (int i = 0; i < VALUES; i++) {
        char *end;
        *value[i] = strtod(text, &end);
        if (end == text || !isfinite(*value[i]) || *value[i] <= 0)
            return false;
        text = end;
    }
    return true;
}

static bool read_file(struct rates *r, const char *key)
{
    char line[1024];
    bool found = false;
    size_t length = strlen(key);
    FILE *f = r->path[0] != 0 ? fopen(r->path, "r") : NULL;
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), f) != NULL)
        found = strncmp(line, key, length) == 0 && line[length] == '\t' &&
                read_values(r, line + length + 1);
    fclose(f);
    return found;
}

static void add_to_file(struct rates *r, const char *key, const char *dir)
{
    double *value[VALUES];
    struct error ignored;
    value_list_of(r, value);
    FILE *f = NULL;
    if (r->path[0] != 0 && system_make_directory(dir, &ignored))
        f = fopen(r->path, "a");
    if (f == NULL) {
        r->path[0] = 0;
        return;
    }
    fprintf(f, "%s\t", key);
    for (int i = 0; i < VALUES; i++)
        fprintf(f, "%.9g%c", *value[i], i + 1 < VALUES ? ' ' : '\n');
    if (fclose(f) != 0)
        r->path[0] = 0;
}

bool rates_get(struct rates *r, const struct config *c, bool use_cache, struct error *e)
{
    char dir[CONFIG_PATH_BYTES], key[KEY_BYTES], cpu[96];
    memset(r, 0, sizeof(*r));
    system_cpu_name(cpu, sizeof(cpu));
    snprintf(r->machine, sizeof(r->machine), "%s, %d thread%s, %.80s, %s", cpu, c->threads,
             c->threads == 1 ? "" : "s", blas_name(), dtype_name(DTYPE_REAL));
    snprintf(key, sizeof(key), "%s, %s attention, width %lld, heads %lld, seq %lld", r->machine,
             gpt_attention_name(c->model.attention), (long long)c->model.width,
             (long long)c->model.heads, (long long)c->step.seq);
    if (use_cache)
        find_path(r, dir);
    if (use_cache && read_file(r, key)) {
        r->is_cached = true;
        return true;
    }
    double start = system_seconds();
    bool ok = measure_classes(r, c, e) && measure_update(r, c, e);
    blas_set_threads(c->threads);
    if (!ok)
        return false;
    r->measured_seconds = system_seconds() - start;
    if (use_cache)
        add_to_file(r, key, dir);
    return true;
}
