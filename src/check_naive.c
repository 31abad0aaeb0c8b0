// check_naive.c - the classic mistakes of gradient accumulation, beside ours on the same data.
//
//   ours              sum of all gradients / targets counted in the whole batch, clipped once
//   mean of means     each micro-batch's own mean, averaged: targets in a micro-batch with few
//                     counted ones weigh more; one without any is 0 / 0
//   clip too early    the sum so far is clipped after every micro-batch
//   unscaled          the micro-batches' means are added: as many times too large as there are
//
// The loss beside each is what such a trainer prints: the mean of the micro-batches' means, or, if
// only its clipping is wrong, ours.
#include "src/check.h"

#include <math.h>
#include <string.h>

struct naive {
    struct check *check;
    int64_t micro_batches, counted; // counted: targets, of the batch
    double loss, mean_of_losses;
    real *ours, *means, *clipped; // gradients of all parameters; means: their sum
};

static void add_gradients(const struct param_list *l, double scale, real *sum)
{
    for (int i = 0; i < l->count; i++) {
        const struct tensor *x = &l->param[i].tensor;
        int64_t n = tensor_count(x);
        for (int64_t at = 0; x->grad != NULL && at < n; at++)
            sum[at] += (real)(scale * (double)array_get(tensor_grad(x), at));
        sum += n;
    }
}

static void clip(real *x, int64_t n, double largest)
{
    double norm = check_norm(x, n);
    for (int64_t i = 0; largest > 0 && norm > largest && i < n; i++)
        x[i] = (real)((double)x[i] * largest / norm);
}

static int64_t counted_of(const int32_t *targets, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += targets[i] != BATCH_IGNORE;
    return counted;
}

// Leaves the sum over a micro-batch's targets in the parameters' gradients.
static void one_micro_batch(struct naive *n, struct run *r, int64_t first, int64_t samples)
{
    struct tape *t = &r->tape;
    int64_t at = first * r->config->step.seq;
    double sum = 0;
    params_zero_grads(&r->gpt.params, t);
    tape_begin(t, PHASE_FORWARD, first);
    tape_enter(t, "%s", "");
    struct tensor *loss = gpt_loss(t, &r->gpt, r->step.tokens + at, r->step.targets + at, NULL,
                                   samples, r->config->step.seq);
    for (int64_t i = 0; !tape_is_dry(t) && i < samples; i++)
        sum += (double)loss->data[i];
    tape_leave(t, NULL);
    tape_backward(t, loss, 1);
    if (tape_is_dry(t))
        return;
    int64_t counted = counted_of(r->step.targets + at, samples * r->config->step.seq);
    n->micro_batches++;
    n->mean_of_losses += sum / (double)counted;
    add_gradients(&r->gpt.params, 1 / (double)counted, n->means);
    add_gradients(&r->gpt.params, 1 / (double)n->counted, n->clipped);
    clip(n->clipped, n->check->element_count, r->config->step.optimizer.clip);
}

// Ours first: it also draws the step's key for dropout.
static bool naive_calls(struct run *r, void *user, struct error *e)
{
    struct naive *n = user;
    const struct step_config *c = &r->config->step;
    struct step_result result;
    if (!step_gradients(&r->step, &r->tape, &result, e))
        return false;
    if (!tape_is_dry(&r->tape)) {
        n->loss = result.loss;
        n->counted = result.counted;
        add_gradients(&r->gpt.params, 1, n->ours);
    }
    for (int64_t first = 0; first < c->batch; first += c->micro_batch) {
        int64_t left = c->batch - first;
        one_micro_batch(n, r, first, left < c->micro_batch ? left : c->micro_batch);
    }
    if (!tape_is_dry(&r->tape))
        n->mean_of_losses /= (double)n->micro_batches;
    return true;
}

static void scale(real *x, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (real)(by * (double)x[i]);
}

static void report(struct naive *n)
{
    struct check *k = n->check;
    int64_t count = k->element_count;
    const struct optimizer_config *o = &k->config.step.optimizer;
    struct check_difference d = check_compare(array_of(n->ours, DTYPE_REAL), n->ours, count);
    check_report_mistakes(&k->report, n->micro_batches);
    check_report_mistake(&k->report, "ours", &d, n->loss, n->loss);
    scale(n->means, count, 1 / (double)n->micro_batches);
    d = check_compare(array_of(n->means, DTYPE_REAL), n->ours, count);
    check_report_mistake(&k->report, "mean of means", &d, n->mean_of_losses, n->loss);
    scale(n->means, count, (double)n->micro_batches);
    d = check_compare(array_of(n->means, DTYPE_REAL), n->ours, count);
    check_report_mistake(&k->report, "unscaled", &d, n->mean_of_losses, n->loss);
    if (o->clip > 0) {
        clip(n->ours, count, o->clip);
        d = check_compare(array_of(n->ours, DTYPE_REAL), n->ours, count);
        check_report_mistake(&k->report, "ours, clipped", &d, n->loss, n->loss);
        d = check_compare(array_of(n->clipped, DTYPE_REAL), n->ours, count);
        check_report_mistake(&k->report, "clipped too early", &d, n->loss, n->loss);
    }
    check_report_mistakes_end(&k->report);
}

bool check_naive(struct check *k, struct error *e)
{
    struct naive n = {
        .check = k, .ours = k->kept[CHECK_GRADIENT], .means = k->spare[0], .clipped = k->spare[1]};
    k->config.step.micro_batch = k->split;
    bool ok = run_open_for(&k->run, &k->config, CONFIG_TRAIN, naive_calls, &n, e);
    if (ok) {
        real *const sum[] = {n.ours, n.means, n.clipped};
        for (int i = 0; i < COUNT_OF(sum); i++)
            memset(sum[i], 0, (size_t)k->element_count * sizeof(real));
        check_fill(k, &k->run);
        ok = naive_calls(&k->run, &n, e);
        run_close(&k->run);
    }
    k->config = k->given;
    if (ok)
        report(&n);
    return ok;
}
