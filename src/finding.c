#include "src/finding.h"

#include "tape/text.h"

#include <stdarg.h>
#include <stdio.h>

static void say(struct findings *f, const char *name, int64_t bytes, double times,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void say(struct findings *f, const char *name, int64_t bytes, double times,
                const char *format, ...)
{
    CHECK(f->count < FINDINGS_MAX);
    struct finding *item = &f->item[f->count++];
    *item = (struct finding){.name = name, .bytes = bytes, .times = times};
    va_list args;
    va_start(args, format);
    vsnprintf(item->text, sizeof(item->text), format, args);
    va_end(args);
}

static double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 0;
}

static void weights_alone(struct findings *f, const struct ledger_counts *c)
{
    char weights[TEXT_NUMBER_BYTES], peak[TEXT_NUMBER_BYTES];
    int64_t bytes = c->now[LEDGER_WEIGHTS];
    double times = ratio(c->total_peak, bytes);
    say(f, "weights_alone", bytes, times,
        "Weights alone suggest %s, the run needs %s (%.2f times).", text_from_bytes(bytes, weights),
        text_from_bytes(c->total_peak, peak), times);
}

static void largest_part(struct findings *f, const struct ledger_counts *c)
{
    char name[32], part[TEXT_NUMBER_BYTES];
    int largest = 0;
    for (int i = 1; i < LEDGER_CATEGORY_COUNT; i++)
        if (c->at_peak[i] > c->at_peak[largest])
            largest = i;
    int64_t bytes = c->at_peak[largest];
    double share = ratio(bytes, c->total_peak);
    snprintf(name, sizeof(name), "%s", ledger_category_name((enum ledger_category)largest));
    for (char *at = name; *at != 0; at++)
        *at = *at == '_' ? ' ' : *at;
    say(f, "largest_part", bytes, share, "The largest part of the peak is %s: %s (%.1f %%).", name,
        text_from_bytes(bytes, part), 100 * share);
}

static void pass_adds(struct findings *f, const struct ledger_counts *c)
{
    char side[TEXT_NUMBER_BYTES];
    int64_t bytes = ledger_activation_side(c);
    double share = ratio(bytes, c->total_peak);
    say(f, "pass_adds", bytes, share,
        "A pass adds %s to what stays (%.1f %%): activations, their gradients, scratch. %s",
        text_from_bytes(bytes, side), 100 * share,
        share > 0.5 ? "--checkpoint or a smaller --micro-batch cuts that."
                    : "--checkpoint or a smaller --micro-batch can save no more than that.");
}

// ---- doubling --------------------------------------------------------------------------

static bool peak_of(struct config *c, struct ledger_counts *counts)
{
    struct run r;
    struct error e;
    c->budget_bytes = 0; // what is asked is how much, not whether
    if (!gpt_config_check(&c->model, &e) || !step_config_check(&c->step, &c->model, &e) ||
        !generate_config_check(&c->sample, &c->model, &e) || !run_measure(&r, c, CONFIG_PLAN, &e))
        return false;
    *counts = r.tape.arena.ledger.counts;
    run_close(&r);
    return true;
}

static void doubled(struct findings *f, const char *name, const char *what,
                    const struct ledger_counts *c, const struct ledger_counts *d)
{
    char peak[TEXT_NUMBER_BYTES], before[TEXT_NUMBER_BYTES], after[TEXT_NUMBER_BYTES];
    double times = ratio(d->total_peak, c->total_peak);
    int64_t side = ledger_activation_side(c), more = ledger_activation_side(d);
    say(f, name, d->total_peak, times,
        "%s would need %s (%.2f times); what a pass adds goes from %s to %s (%.2f times).", what,
        text_from_bytes(d->total_peak, peak), times, text_from_bytes(side, before),
        text_from_bytes(more, after), ratio(more, side));
}

static void double_batch(struct findings *f, const struct run *r)
{
    static struct config c; // large
    struct ledger_counts counts;
    char what[128];
    c = *r->config;
    bool in_one = c.step.micro_batch == c.step.batch;
    c.step.batch *= 2;
    if (in_one)
        c.step.micro_batch = c.step.batch;
    if (!peak_of(&c, &counts))
        return;
    snprintf(what, sizeof(what), "Twice the batch (%lld sequences, %s%lld at a time)",
             (long long)c.step.batch, in_one ? "" : "still ", (long long)c.step.micro_batch);
    doubled(f, "double_batch", what, &r->tape.arena.ledger.counts, &counts);
}

static void double_sequence(struct findings *f, const struct run *r)
{
    static struct config c; // large
    struct ledger_counts counts;
    char what[128];
    c = *r->config;
    c.step.seq *= 2;
    bool grows = c.step.seq > c.model.context;
    if (grows)
        c.model.context = c.step.seq;
    if (!peak_of(&c, &counts))
        return;
    snprintf(what, sizeof(what), "Twice the sequence (%lld tokens%s)", (long long)c.step.seq,
             grows ? ", and a context of as many" : "");
    doubled(f, "double_sequence", what, &r->tape.arena.ledger.counts, &counts);
}

void findings_make(struct findings *f, const struct run *r)
{
    const struct ledger_counts *c = &r->tape.arena.ledger.counts;
    f->count = 0;
    weights_alone(f, c);
    largest_part(f, c);
    pass_adds(f, c);
    double_batch(f, r);
    double_sequence(f, r);
}
