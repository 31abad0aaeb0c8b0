// tiny_gpt.c - a GPT that is planned before it is trained.
//
// tape_measure runs one optimizer step on memory that may not be touched: every placement happens,
// no arithmetic does. Its ledger is the plan. The real run reserves exactly the bytes that the dry
// run held, and never asks for more. The program memtape does the same (src/run.c).
#include "data/batch.h"
#include "nn/step.h"

#include <stdio.h>

enum { STEPS = 100 };

struct training {
    struct gpt gpt;
    struct step step;
    struct dataset data;
    struct step_config config;
    struct gpt_config model;
    double first_loss, last_loss;
};

// What dry run and real run share: all that places a tensor.
static bool train(struct tape *t, void *user, struct error *e)
{
    struct training *r = user;
    const struct batch_shape shape = {.batch = r->config.batch, .seq = r->config.seq, .seed = 1};
    gpt_init(&r->gpt, t, &r->model);
    params_start(&r->gpt.params, t, r->config.seed);
    step_init(&r->step, t, &r->gpt, &r->config, true);
    for (int i = 0; i < (tape_is_dry(t) ? 1 : STEPS); i++) {
        struct step_result result;
        if (!tape_is_dry(t))
            batch_fill(&r->data, &shape, i, r->step.tokens, r->step.targets);
        if (!step_gradients(&r->step, t, &result, e))
            return false;
        step_update(&r->step, t, &result);
        if (i == 0)
            r->first_loss = result.loss;
        r->last_loss = result.loss;
    }
    return true;
}

static bool plan_and_train(struct training *r, struct error *e)
{
    struct tape t;
    struct plan plan;
    if (!tape_measure(&t, 1, train, r, &plan, e))
        return false;
    printf("%lld parameters\n", (long long)params_count(&r->gpt.params));
    struct ledger_counts planned = t.arena.ledger.counts;
    tape_close(&t);
    if (!tape_open(&t, &plan, false, 1, e))
        return false;
    bool ok = train(&t, r, e);
    const struct ledger_counts *run = &t.arena.ledger.counts;

    bool equal = run->total_peak == planned.total_peak && run->total_peak == t.arena.cap_bytes;
    printf("bytes            at the peak    own peak    as planned\n");
    for (int c = 0; ok && c < LEDGER_CATEGORY_COUNT; c++) {
        bool same = run->peak[c] == planned.peak[c] && run->at_peak[c] == planned.at_peak[c];
        equal = equal && same;
        if (run->peak[c] == 0 || c == LEDGER_BOOKKEEPING || c == LEDGER_PADDING)
            continue; // those two depend on how this machine lays out a struct
        printf("%-20s %7lld %11lld    %s\n", ledger_category_name((enum ledger_category)c),
               (long long)run->at_peak[c], (long long)run->peak[c], same ? "yes" : "NO");
    }
    printf("peak in %s, at the birth of %s\n", ledger_phase_name(run->peak_phase), run->peak_name);
    printf("plan, run and reserved range are equal to the byte: %s\n", equal ? "yes" : "NO");
    tape_close(&t);
    return ok;
}

int main(void)
{
    static struct training r;
    struct error e;
    r.config = (struct step_config){
        .batch = 8,
        .micro_batch = 8,
        .seq = 32,
        .seed = 1,
        .optimizer = {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1},
        .schedule = {.rate = 0.003},
    };
    if (!dataset_open(&r.data, DATASET_BUILTIN, TOKENIZER_CHAR, NULL, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    r.model = (struct gpt_config){.layers = 2,
                                  .heads = 2,
                                  .width = 32,
                                  .context = 32,
                                  .vocab = r.data.tokenizer.vocab,
                                  .bias = true,
                                  .tie = true,
                                  .attention = GPT_ATTENTION_TILED};
    bool ok = gpt_config_check(&r.model, &e) && step_config_check(&r.config, &r.model, &e) &&
              plan_and_train(&r, &e);
    if (ok)
        printf("loss %.1f at step 1, %.1f at step %d\n", r.first_loss, r.last_loss, STEPS);
    else
        fprintf(stderr, "%s\n", e.text);
    dataset_close(&r.data);
    return ok ? 0 : 1;
}
