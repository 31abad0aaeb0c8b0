#include "src/run.h"

#include <stdio.h>

// data/ and nn/ do not know each other, and mean the same targets.
_Static_assert((int)BATCH_IGNORE == (int)TARGET_IGNORED, "ignored targets");

// ---- the calls that a plan and a run share ---------------------------------------------

bool run_trains(const struct run *r)
{
    return r->use == CONFIG_TRAIN || r->use == CONFIG_PLAN;
}

// What no file brings.
static void start_weights(struct run *r, struct tape *t)
{
    const struct config *c = r->config;
    struct param_list *l = &r->gpt.params;
    bool adapts = c->model.lora.rank > 0;
    if (adapts ? c->base.dir[0] == 0 : c->snapshot_dir[0] == 0)
        params_start(l, t, adapts ? c->base.seed : c->step.seed);
    else if (adapts)
        params_start_adapters(l, t, c->step.seed);
}

static bool make_model(struct run *r, struct tape *t, struct error *e)
{
    const struct config *c = r->config;
    gpt_init(&r->gpt, t, &c->model);
    if (run_trains(r) && c->freeze != NULL && !params_freeze(&r->gpt.params, c->freeze, e))
        return false;
    if (r->use != CONFIG_GENERATE && r->use != CONFIG_MERGE)
        step_init(&r->step, t, &r->gpt, &c->step, run_trains(r));
    start_weights(r, t);
    r->step.config.is_sketch = tape_is_dry(t) && !c->lists_all;
    return true;
}

// A batch is one of training's, in as many forwards: --micro-batch changes nothing but memory.
static bool validate_batch(struct run *r, int64_t first, double *sum, int64_t *counted,
                           struct error *e)
{
    const struct step_config *c = &r->step.config;
    for (int64_t at = 0; at < c->batch; at += c->micro_batch) {
        int64_t rows = c->batch - at < c->micro_batch ? c->batch - at : c->micro_batch;
        if (c->is_sketch && at > 0 && rows == c->micro_batch)
            continue; // the same bytes again
        if (!tape_is_dry(&r->tape))
            batch_fill_validation(&r->config->data, c->seq, first + at, rows, r->step.tokens,
                                  r->step.targets);
        if (!step_evaluate(&r->step, &r->tape, r->step.tokens, r->step.targets, rows, sum, counted,
                           e))
            return false;
    }
    return true;
}

static bool measured_calls(struct tape *t, void *user, struct error *e)
{
    struct run *r = user;
    const struct config *c = r->config;
    double loss = 0;
    int64_t counted = 0;
    struct step_result result;
    bool trains = run_trains(r);
    t->arena.ledger.limit_bytes = c->budget_bytes;
    if (!make_model(r, t, e))
        return false;
    if (r->calls != NULL)
        return r->calls(r, r->calls_user, e);
    bool validates = r->use == CONFIG_EVAL || (trains && c->eval_every > 0);
    if (validates && !validate_batch(r, 0, &loss, &counted, e))
        return false;
    if (c->sample.tokens > 0 && r->use != CONFIG_EVAL) {
        generate_init(&r->generate, t, &r->gpt, &c->sample, c->prompt_count);
        generate_longest(&r->generate, t);
        generate_close(&r->generate, t);
    }
    if (!trains)
        return true;
    if (!step_gradients(&r->step, t, &result, e))
        return false;
    step_update(&r->step, t, &result);
    return true;
}

static bool measure(struct run *r, const struct config *c, enum config_use use, run_calls_fn *calls,
                    void *user, struct error *e)
{
    *r = (struct run){.config = c, .use = use, .calls = calls, .calls_user = user};
    return tape_measure(&r->tape, c->threads, measured_calls, r, &r->plan, e);
}

bool run_measure(struct run *r, const struct config *c, enum config_use use, struct error *e)
{
    return measure(r, c, use, NULL, NULL, e);
}

// ---- the run ---------------------------------------------------------------------------

static bool load_snapshot(struct run *r, struct error *e)
{
    const struct config *c = r->config;
    if (c->base.dir[0] != 0 && !snapshot_read_base(c->base.dir, &r->gpt.params, e))
        return false;
    if (c->snapshot_dir[0] == 0)
        return true;
    if (!snapshot_read_weights(c->snapshot_dir, &r->gpt.params, e))
        return false;
    if (!c->resumes)
        return true;
    r->step.steps_done = c->snapshot.step;
    return snapshot_read_optimizer(c->snapshot_dir, &r->gpt.params, c->snapshot.step,
                                   optimizer_name(c->step.optimizer.kind), e);
}

bool run_reserve(struct run *r, struct error *e)
{
    tape_close(&r->tape);
    if (!tape_open(&r->tape, &r->plan, false, r->config->threads, e))
        return false;
    r->tape.arena.on_full = r->on_full;
    arena_touch(&r->tape.arena);
    if (make_model(r, &r->tape, e) && load_snapshot(r, e))
        return true;
    run_close(r);
    return false;
}

bool run_open(struct run *r, const struct config *c, enum config_use use, struct error *e)
{
    return run_measure(r, c, use, e) && run_reserve(r, e);
}

bool run_open_for(struct run *r, const struct config *c, enum config_use use, run_calls_fn *calls,
                  void *user, struct error *e)
{
    return measure(r, c, use, calls, user, e) && run_reserve(r, e);
}

bool run_save(const struct run *r, const char *dir, struct error *e)
{
    struct snapshot_info info = {
        .model = r->config->model, .base = r->config->base, .step = r->step.steps_done};
    snprintf(info.optimizer, sizeof(info.optimizer), "%s",
             optimizer_name(r->config->step.optimizer.kind));
    tokenizer_to_text(&r->config->data.tokenizer, info.tokenizer);
    return snapshot_write(dir, &info, &r->gpt.params, e);
}

void run_close(struct run *r)
{
    tape_close(&r->tape);
}

bool run_validate(struct run *r, int64_t batches, double *loss, int64_t *counted, struct error *e)
{
    const struct config *c = r->config;
    int64_t rows = c->step.batch, seq = c->step.seq;
    int64_t count = batch_evaluation_count(&c->data, seq, rows, batches);
    double sum = 0;
    *counted = 0;
    for (int64_t i = 0; i < count; i++)
        if (!validate_batch(r, batch_evaluation_window(&c->data, seq, rows, count, i), &sum,
                            counted, e))
            return false;
    *loss = sum / (double)*counted;
    return true;
}

void run_sample(struct run *r, struct run_text text)
{
    const struct config *c = r->config;
    const struct tokenizer *k = &c->data.tokenizer;
    char bytes[TOKENIZER_TOKEN_BYTES];
    if (c->sample.tokens < 1)
        return;
    generate_init(&r->generate, &r->tape, &r->gpt, &c->sample, c->prompt_count);
    generate_prompt(&r->generate, &r->tape, c->prompt);
    for (int64_t i = 0; i < c->sample.tokens; i++) {
        int32_t id = generate_next(&r->generate, &r->tape);
        if (text.out != NULL && id < k->vocab) // a model may know more tokens than its text had
            text.out(text.user, bytes, tokenizer_decode(k, id, bytes));
    }
    generate_close(&r->generate, &r->tape);
}
