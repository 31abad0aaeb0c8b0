#include "src/check.h"

#include "src/system.h"
#include "tape/cpu/update.h"
#include "tape/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *subject_name(const struct param *p, enum check_subject s)
{
    static const char *const name[CHECK_STATE] = {"gradient", "weight", "master"};
    return s < CHECK_STATE ? name[s] : p->state[s - CHECK_STATE].name + 1; // without the point
}

// ---- comparing -------------------------------------------------------------------------

double check_norm(const real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// Two numbers that differ in a bit: NaN is the largest difference, 0 and -0 have none.
static void note(struct check_difference *d, double a, double b)
{
    double error = fabs(a - b), relative = error == 0 ? 0 : error / fmax(fabs(a), fabs(b));
    d->differ++;
    d->error_norm = hypot(d->error_norm, error);
    if (!(error <= d->largest_absolute))
        d->largest_absolute = error;
    if (!(relative <= d->largest_relative))
        d->largest_relative = relative;
}

static void copy_out(real *to, struct array x, int64_t from, int64_t count)
{
    real room[ARRAY_PIECE];
    if (x.dtype == DTYPE_U8)
        for (int64_t i = 0; i < count; i++)
            to[i] = (real)((const uint8_t *)x.at)[from + i];
    else
        memcpy(to, array_read(x, from, count, room), (size_t)count * sizeof(real));
}

struct check_difference check_compare(struct array x, const real *reference, int64_t n)
{
    struct check_difference d = {.elements = n, .reference_norm = check_norm(reference, n)};
    double sum = 0;
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        real y[ARRAY_PIECE];
        int64_t count = array_piece(at, n);
        copy_out(y, x, at, count);
        for (int64_t i = 0; i < count; i++) {
            sum += (double)y[i] * (double)y[i];
            if (memcmp(&y[i], &reference[at + i], sizeof(real)) != 0)
                note(&d, (double)y[i], (double)reference[at + i]);
        }
    }
    d.norm = sqrt(sum);
    return d;
}

void check_compare_number(struct check_difference *d, double x, double reference)
{
    d->elements++;
    d->norm = hypot(d->norm, x);
    d->reference_norm = hypot(d->reference_norm, reference);
    if (memcmp(&x, &reference, sizeof(x)) != 0)
        note(d, x, reference);
}

struct array check_subject(const struct param *p, enum check_subject s, int64_t *count)
{
    const struct tensor *x = s <= CHECK_WEIGHT   ? &p->tensor
                             : s == CHECK_MASTER ? &p->master
                                                 : &p->state[s - CHECK_STATE];
    if (s == CHECK_GRADIENT) {
        *count = tensor_count(x);
        return tensor_grad(x);
    }
    *count = x->data != NULL ? tensor_count(x) : 0;
    return tensor_data(x);
}

// One subject of all parameters: kept, or compared with what was kept.
static void visit(struct check *k, enum check_subject s, bool keeps)
{
    const struct param_list *l = &k->run.gpt.params;
    int64_t at = 0;
    for (int i = 0; i < l->count; i++) {
        int64_t n;
        struct array x = check_subject(&l->param[i], s, &n);
        for (int64_t j = 0; x.at != NULL && keeps && j < n; j += ARRAY_PIECE)
            copy_out(k->kept[s] + at + j, x, j, array_piece(j, n));
        if (x.at != NULL && !keeps)
            k->difference[i * CHECK_SUBJECTS + s] = check_compare(x, k->kept[s] + at, n);
        at += n;
    }
}

// ---- running ---------------------------------------------------------------------------

void check_fill(const struct check *k, struct run *r)
{
    const struct config *c = r->config;
    int64_t step = r->step.steps_done, batch = c->step.batch, seq = c->step.seq;
    int32_t *targets = r->step.targets;
    if (k->tokens != NULL) {
        memcpy(r->step.tokens, k->tokens, (size_t)(batch * seq) * sizeof(int32_t));
        memcpy(targets, k->targets, (size_t)(batch * seq) * sizeof(int32_t));
    } else {
        batch_fill_rows(&c->data, &c->shape, step, 0, batch, r->step.tokens, targets);
    }
    uint64_t key = rng_key(rng_key(c->step.seed, RNG_TEST), (uint64_t)step);
    if (k->settings.ignore > 0)
        batch_ignore(targets, 0, batch, seq, k->settings.ignore, key);
    int64_t first = (batch - 1) / k->split * k->split; // of the last micro-batch
    for (int64_t i = first * seq; k->settings.empty_micro_batch > 0 && i < batch * seq; i++)
        targets[i] = BATCH_IGNORE;
}

struct outcome { // of the steps of one part
    struct check_difference numbers;
    double seconds, loss;
};

static bool one_step(struct check *k, const struct check_part *p, struct outcome *o,
                     struct error *e)
{
    struct run *r = &k->run;
    struct step_result result;
    int64_t i = r->step.steps_done;
    if (system_was_interrupted())
        return refuse(e, "interrupted");
    check_fill(k, r);
    double start = system_seconds();
    if (!step_gradients(&r->step, &r->tape, &result, e))
        return false;
    double seconds = system_seconds() - start;
    if (i == 0)
        visit(k, CHECK_GRADIENT, p->is_reference);
    start = system_seconds();
    step_update(&r->step, &r->tape, &result);
    seconds += system_seconds() - start;
    o->seconds = i == p->first || seconds < o->seconds ? seconds : o->seconds;
    o->loss = result.loss;
    if (p->is_reference) {
        k->kept_loss[i] = result.loss;
        k->kept_norm[i] = result.gradient_norm;
        return true;
    }
    check_compare_number(&o->numbers, result.loss, k->kept_loss[i]);
    if (!k->rounds)
        check_compare_number(&o->numbers, result.gradient_norm, k->kept_norm[i]);
    return true;
}

// ---- gradients that are rounded --------------------------------------------------------

// A bf16 has 8 bits: storing the sum so far rounds it by at most 2^-8 of it. A micro-batch stores
// every sum once (a loss by chunks the head's once for each), joining a table's two gradients once
// more.
static void add_norms(const struct step *s, void *user)
{
    double *sum = user;
    const struct param_list *l = &s->gpt->params;
    for (int i = 0; i < l->count; i++) {
        const struct tensor *x = &l->param[i].tensor;
        if (x->grad != NULL)
            sum[i] += sqrt(update_sum_squares(tensor_grad(x), tensor_count(x)));
    }
}

static void watch_sums(struct check *k, bool is_reference)
{
    double *sum = k->sum_norms[is_reference ? 0 : 1];
    memset(sum, 0, (size_t)k->param_count * sizeof(*sum));
    k->run.step.on_sums = k->rounds ? add_norms : NULL;
    k->run.step.on_sums_user = sum;
}

static bool beyond_rounding(struct check *k, int param, const struct check_difference *d)
{
    double bound = (k->sum_norms[0][param] + k->sum_norms[1][param]) / 256;
    double relative = check_difference_relative(d), share = bound > 0 ? d->error_norm / bound : 0;
    k->worst_relative = relative > k->worst_relative ? relative : k->worst_relative;
    k->worst_share = share > k->worst_share ? share : k->worst_share;
    return !(d->error_norm <= bound);
}

static void report_tensors(struct check *k, const struct outcome *o)
{
    const struct param_list *l = &k->run.gpt.params;
    check_report_tensor(&k->report, "loss and gradient norm", "", &o->numbers,
                        o->numbers.differ > 0);
    for (int i = 0; i < l->count; i++)
        for (int s = 0; s < CHECK_SUBJECTS; s++) {
            const struct check_difference *d = &k->difference[i * CHECK_SUBJECTS + s];
            bool is_wrong = k->rounds ? beyond_rounding(k, i, d) : d->differ > 0;
            if (d->elements > 0)
                check_report_tensor(&k->report, l->param[i].name,
                                    subject_name(&l->param[i], (enum check_subject)s), d, is_wrong);
        }
}

static void report(struct check *k, const struct check_part *p, const struct outcome *o)
{
    const struct ledger_counts *counts = &k->run.tape.arena.ledger.counts;
    struct check_variant v = {.name = p->name,
                              .planned_bytes = k->run.plan.bytes,
                              .peak_bytes = counts->total_peak,
                              .saved_bytes = counts->kept_bytes,
                              .activation_side_bytes = ledger_activation_side(counts),
                              .resident_bytes = system_resident_bytes(),
                              .seconds = o->seconds,
                              .loss = o->loss,
                              .is_reference = p->is_reference,
                              .total = o->numbers};
    const int64_t *flops = k->run.tape.flops;
    v.recompute_flops = flops[PHASE_RECOMPUTE] / (p->last - p->first);
    v.flops = (flops[PHASE_FORWARD] + flops[PHASE_BACKWARD]) / (p->last - p->first);
    if (p->is_reference)
        k->reference_seconds = o->seconds;
    v.time_ratio = o->seconds / k->reference_seconds;
    for (int64_t i = 0; i < k->param_count * CHECK_SUBJECTS; i++)
        check_difference_add(&v.total, &k->difference[i]);
    check_report_variant(&k->report, &v);
    if (!p->is_reference)
        report_tensors(k, o);
    check_report_variant_end(&k->report);
}

bool check_run(struct check *k, const struct check_part *p, struct error *e)
{
    struct outcome o = {.seconds = 0};
    CHECK(p->steps <= CHECK_STEPS_MAX);
    memset(k->difference, 0,
           (size_t)(k->param_count * CHECK_SUBJECTS) * sizeof(struct check_difference));
    if (!run_open(&k->run, &k->config, CONFIG_TRAIN, e))
        return false;
    bool ok = true;
    watch_sums(k, p->is_reference);
    CHECK(k->run.step.steps_done == p->first);
    while (ok && k->run.step.steps_done < p->last)
        ok = one_step(k, p, &o, e);
    bool ends = p->last == p->steps && !k->rounds;
    for (int s = CHECK_WEIGHT; ok && ends && s < CHECK_SUBJECTS; s++)
        visit(k, (enum check_subject)s, p->is_reference);
    if (ok)
        report(k, p, &o);
    if (ok && p->save_to != NULL)
        ok = run_save(&k->run, p->save_to, e);
    run_close(&k->run);
    return ok;
}

// ---- checks that are a list of variants ------------------------------------------------

// Two steps as k->config says; then k->config is as given again.
static bool variant(struct check *k, const char *name, bool is_reference, struct error *e)
{
    struct check_part p = {
        .name = name, .last = k->steps, .steps = k->steps, .is_reference = is_reference};
    bool ok = check_run(k, &p, e);
    k->config = k->given;
    return ok;
}

static bool micro_batches(struct check *k, int64_t samples, struct error *e)
{
    char name[64];
    int64_t batch = k->given.step.batch, left = batch % samples;
    if (samples == batch)
        snprintf(name, sizeof(name), "all %lld at once", (long long)batch);
    else if (left == 0)
        snprintf(name, sizeof(name), "micro-batches of %lld", (long long)samples);
    else
        snprintf(name, sizeof(name), "micro-batches of %lld, the last of %lld", (long long)samples,
                 (long long)left);
    k->config.step.micro_batch = samples;
    k->config.step.gradients = k->given.step.gradients;
    k->rounds = k->given.step.gradients != PRECISION_REAL;
    int64_t steps = k->steps;
    k->steps = k->rounds ? 1 : steps;
    bool ok = variant(k, name, samples == batch, e);
    k->steps = steps;
    return ok;
}

bool check_accumulate(struct check *k, struct error *e)
{
    int64_t batch = k->given.step.batch;
    bool is_given = k->given.step.micro_batch < batch;
    enum precision as_given = k->given.step.gradients;
    if (k->settings.grad_precision == NULL)
        k->given.step.gradients = PRECISION_REAL; // the default of a batch in parts
    bool rounds = k->given.step.gradients == PRECISION_BF16;
    check_report_begin(&k->report, "accumulate",
                       rounds ? "a batch in parts rounds a bf16 gradient once for each part"
                              : "a batch in parts leaves the bits of the batch at once");
    check_report_variants(&k->report);
    k->worst_relative = k->worst_share = 0;
    if (!micro_batches(k, batch, e) || (batch > 1 && !micro_batches(k, k->split, e)) ||
        (!is_given && k->split > 1 && !micro_batches(k, 1, e)))
        return false;
    check_report_variants_end(&k->report);
    if (k->settings.naive > 0 && !check_naive(k, e))
        return false;
    snprintf(
        k->verdict, sizeof(k->verdict),
        "no gradient is off by more than %.2g of its norm, or %.2g of what rounding each sum by "
        "2^-8 may add up to. Without --grad-precision bf16 no bit would differ",
        k->worst_relative, k->worst_share);
    check_report_end(&k->report, batch == 1 ? "a batch of 1 has no parts"
                                 : rounds   ? k->verdict
                                            : NULL);
    k->given.step.gradients = as_given;
    k->config = k->given;
    k->rounds = false;
    return true;
}

static bool policy(struct check *k, enum tape_policy p, bool halves, struct error *e)
{
    char name[64];
    snprintf(name, sizeof(name), "--checkpoint %s%s", tape_policy_name(p),
             halves ? " --segments half" : "");
    k->config.model.policies = NULL;
    k->config.model.checkpoint = p;
    k->config.model.half_segments = halves;
    return variant(k, name, p == POLICY_NONE, e);
}

bool check_checkpoint(struct check *k, struct error *e)
{
    static const enum tape_policy policies[] = {POLICY_NONE, POLICY_LEAN, POLICY_SELECTIVE,
                                                POLICY_FULL};
    bool halves = k->given.model.half_segments;
    check_report_begin(&k->report, "checkpoint",
                       "what backward recomputes has the bits of what "
                       "forward had");
    check_report_variants(&k->report);
    for (int i = 0; i < COUNT_OF(policies); i++)
        if (!policy(k, policies[i], halves, e))
            return false;
    if (!policy(k, POLICY_SELECTIVE, !halves, e) || !policy(k, POLICY_FULL, !halves, e))
        return false;
    if (k->given.model.policies != NULL && !variant(k, "--checkpoint auto, as given", false, e))
        return false;
    check_report_variants_end(&k->report);
    check_report_end(&k->report, NULL);
    return true;
}

bool check_threads(struct check *k, struct error *e)
{
    int threads[] = {1, 2, 3, 4, 8, k->given.threads};
    check_report_begin(&k->report, "threads", "any number of threads leaves the same bits");
    check_report_variants(&k->report);
    for (int i = 0; i < COUNT_OF(threads); i++) {
        char name[32];
        bool is_new = true;
        for (int j = 0; j < i; j++)
            is_new &= threads[j] != threads[i];
        k->config.threads = threads[i];
        snprintf(name, sizeof(name), "--threads %d", threads[i]);
        if (is_new && !variant(k, name, i == 0, e))
            return false;
    }
    k->config = k->given;
    check_report_variants_end(&k->report);
    check_report_end(&k->report, NULL);
    return true;
}
