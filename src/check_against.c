// check_against.c - our gradients beside those that another program computed, from the same weights
// (--init) and the same tokens.
//
// --tokens FILE   safetensors: "tokens" and "targets", int32, (samples, length); a target of -100
//                 does not count
// --against FILE  safetensors: a gradient for each of our parameters, by its name, F32 or F64; may
//                 hold "loss", one number, and tokens and targets as above (--tokens then names
//                 this file by default)
//
// A tensor passes if ||ours - theirs|| <= tolerance ||theirs||. Two correct programs in float agree
// to 1e-7 .. 1e-6; a wrong divisor, a mask too many or a forgotten term is off by 1e-3 and more.
#include "src/check.h"
#include "src/system.h"

#include "nn/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double default_tolerance = 1e-5;

// ---- tokens ----------------------------------------------------------------------------

static const struct safetensors_tensor *find_ids(const struct safetensors *f, const char *name,
                                                 const char *path, struct error *e)
{
    const struct safetensors_tensor *t = safetensors_find(f, name);
    if (t != NULL && t->dtype == DTYPE_I32 && t->dim_count == 2 && t->dim[0] > 0 && t->dim[1] > 0)
        return t;
    refuse(e, "%s: expected \"tokens\" and \"targets\", int32, (samples, length); %s is %s", path,
           name, t == NULL ? "missing" : "something else");
    return NULL;
}

static bool says_otherwise(int64_t *setting, const char *name, int64_t value, const char *path,
                           struct error *e)
{
    if (*setting != UNSET_INT && *setting != value) {
        refuse(e, "--%s %lld: %s holds %lld", name, (long long)*setting, path, (long long)value);
        return true;
    }
    *setting = value;
    return false;
}

static bool take_shape(struct settings *s, const struct safetensors *f, struct error *e)
{
    if (s->tokens == NULL && safetensors_find(f, "tokens") == NULL)
        return true; // gradients of a batch of the data's
    if (s->tokens == NULL)
        s->tokens = s->against;
    const struct safetensors_tensor *tokens = find_ids(f, "tokens", s->tokens, e);
    const struct safetensors_tensor *targets = find_ids(f, "targets", s->tokens, e);
    if (tokens == NULL || targets == NULL)
        return false;
    if (tokens->dim[0] != targets->dim[0] || tokens->dim[1] != targets->dim[1])
        return refuse(e, "%s: tokens and targets are of two shapes", s->tokens);
    return !says_otherwise(&s->batch, "batch", tokens->dim[0], s->tokens, e) &&
           !says_otherwise(&s->seq, "seq", tokens->dim[1], s->tokens, e);
}

bool check_tokens_shape(struct check *k, struct error *e)
{
    struct settings *s = &k->settings;
    const char *path = s->tokens != NULL ? s->tokens : s->against;
    struct safetensors f;
    if (path == NULL)
        return true;
    bool ok = safetensors_open(&f, path, e) && take_shape(s, &f, e);
    safetensors_close(&f);
    return ok;
}

static bool read_ids(struct check *k, const struct safetensors *f, const char *name, int32_t **ids,
                     struct error *e)
{
    const struct safetensors_tensor *t = find_ids(f, name, k->settings.tokens, e);
    const struct step_config *s = &k->given.step;
    if (t == NULL)
        return false;
    if (t->dim[0] != s->batch || t->dim[1] != s->seq)
        return refuse(e, "%s changed while it was read", k->settings.tokens);
    *ids = tape_scratch(&k->store, name, t->end - t->begin);
    return safetensors_read_bytes(f, t, *ids, e);
}

bool check_tokens_read(struct check *k, struct error *e)
{
    struct safetensors f;
    if (k->settings.tokens == NULL)
        return true;
    bool ok = safetensors_open(&f, k->settings.tokens, e) &&
              read_ids(k, &f, "tokens", &k->tokens, e) &&
              read_ids(k, &f, "targets", &k->targets, e);
    safetensors_close(&f);
    return ok;
}

// ---- gradients -------------------------------------------------------------------------

// All of theirs into k->kept, before anything runs.
static bool read_gradients(struct check *k, const struct safetensors *f, struct error *e)
{
    const struct param_list *l = &k->run.gpt.params;
    char shown[SAFETENSORS_SHOWN_BYTES];
    real *to = k->kept[CHECK_GRADIENT];
    for (int i = 0; i < l->count; i++) {
        const struct tensor *x = &l->param[i].tensor;
        const struct safetensors_tensor *t = safetensors_find(f, l->param[i].name);
        if (l->param[i].is_frozen)
            continue;
        if (t == NULL)
            return refuse(e, "%s has no gradient for %s", k->settings.against, l->param[i].name);
        if (t->dim_count != x->dim_count ||
            memcmp(t->dim, x->dim, (size_t)x->dim_count * sizeof(int64_t)) != 0)
            return refuse(e, "%s: %s is %s; expected the shape that it has in this model",
                          k->settings.against, l->param[i].name,
                          safetensors_shape_text(t->dim_count, t->dim, shown));
        if (!safetensors_read(f, t, to, e))
            return false;
        to += tensor_count(x);
    }
    return true;
}

static bool refuse_unknown(struct check *k, const struct safetensors *f, struct error *e)
{
    static const char *const known[] = {"tokens", "targets", "loss"};
    char shown[SAFETENSORS_SHOWN_BYTES];
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const char *name = f->tensor[i].name;
        bool is_known = param_find(&k->run.gpt.params, name) != NULL;
        for (int j = 0; j < COUNT_OF(known); j++)
            is_known |= strcmp(name, known[j]) == 0;
        if (!is_known)
            return refuse(e, "%s holds %s, which this model has not", k->settings.against,
                          safetensors_shown(name, shown));
    }
    return true;
}

static bool read_loss(const struct safetensors *f, double *loss, struct error *e)
{
    const struct safetensors_tensor *t = safetensors_find(f, "loss");
    real value;
    *loss = NAN;
    if (t == NULL)
        return true;
    if (safetensors_count(t) != 1)
        return refuse(e, "%s: loss is not one number", f->path);
    if (!safetensors_read(f, t, &value, e))
        return false;
    *loss = (double)value;
    return true;
}

static void report(struct check *k, const struct step_result *result, double loss, double seconds)
{
    const struct param_list *l = &k->run.gpt.params;
    const struct ledger_counts *counts = &k->run.tape.arena.ledger.counts;
    double allowed = isnan(k->settings.tolerance) ? default_tolerance : k->settings.tolerance;
    double worst = 0;
    int wrong = 0, tensors = 0;
    struct check_variant v = {.name = "ours",
                              .planned_bytes = k->run.plan.bytes,
                              .peak_bytes = counts->total_peak,
                              .saved_bytes = counts->kept_bytes,
                              .seconds = seconds,
                              .loss = result->loss};
    for (int i = 0; i < l->count; i++)
        check_difference_add(&v.total, &k->difference[i]);
    check_report_variant(&k->report, &v);
    for (int i = 0; i < l->count; i++) {
        const struct check_difference *d = &k->difference[i];
        if (l->param[i].is_frozen)
            continue;
        tensors++;
        double relative = check_difference_relative(d);
        bool is_wrong = !(relative <= allowed);
        wrong += is_wrong;
        worst = relative <= worst ? worst : relative;
        check_report_tensor(&k->report, l->param[i].name, "gradient", d, is_wrong);
    }
    check_report_variant_end(&k->report);
    if (!isnan(loss) && !(fabs(loss - result->loss) <= allowed * fabs(loss)))
        check_report_broken(&k->report, "our loss is %.9g, theirs %.9g", result->loss, loss);
    snprintf(k->verdict, sizeof(k->verdict),
             "%d of %d tensors beyond %g of their norm; the worst by %.3g; loss %.9g%s", wrong,
             tensors, allowed, worst, result->loss, isnan(loss) ? "" : ", as theirs");
}

static bool compare(struct check *k, const struct safetensors *f, struct error *e)
{
    struct run *r = &k->run;
    struct step_result result;
    double loss;
    if (!refuse_unknown(k, f, e) || !read_gradients(k, f, e) || !read_loss(f, &loss, e))
        return false;
    check_fill(k, r);
    double start = system_seconds();
    if (!step_gradients(&r->step, &r->tape, &result, e))
        return false;
    double seconds = system_seconds() - start;
    const real *theirs = k->kept[CHECK_GRADIENT];
    for (int i = 0; i < r->gpt.params.count; i++) {
        const struct tensor *x = &r->gpt.params.param[i].tensor;
        k->difference[i] = (struct check_difference){0};
        if (x->grad == NULL)
            continue;
        k->difference[i] = check_compare(tensor_grad(x), theirs, tensor_count(x));
        theirs += tensor_count(x);
    }
    report(k, &result, loss, seconds);
    return true;
}

bool check_against(struct check *k, struct error *e)
{
    struct safetensors f;
    check_report_begin(&k->report, "against", "another program's gradients are ours");
    check_report_variants(&k->report);
    bool ok = safetensors_open(&f, k->settings.against, e);
    if (ok && run_open(&k->run, &k->config, CONFIG_TRAIN, e)) {
        ok = compare(k, &f, e);
        run_close(&k->run);
    } else {
        ok = false;
    }
    safetensors_close(&f);
    if (!ok)
        return false;
    check_report_variants_end(&k->report);
    check_report_end(&k->report, k->verdict);
    return true;
}
