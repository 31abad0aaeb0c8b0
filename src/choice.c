#include "src/choice.h"

#include "src/auto.h"
#include "src/run.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum tape_policy policy;
} checkpoints[CHECKPOINT_COUNT] = {
    [CHECKPOINT_NONE] = {"none", POLICY_NONE},
    [CHECKPOINT_LEAN] = {"lean", POLICY_LEAN},
    [CHECKPOINT_SELECTIVE] = {"selective", POLICY_SELECTIVE},
    [CHECKPOINT_FULL] = {"full", POLICY_FULL},
    [CHECKPOINT_AUTO] = {"auto", POLICY_NONE},
};

const char *choice_checkpoint_name(enum choice_checkpoint c)
{
    return checkpoints[c].name;
}

struct choice choice_of(const struct config *c)
{
    struct choice choice = {.batch = c->step.batch,
                            .micro_batch = c->step.micro_batch,
                            .seq = c->step.seq,
                            .layers = c->model.layers,
                            .tokens = c->sample.tokens,
                            .checkpoint = c->auto_checkpoint ? CHECKPOINT_AUTO : CHECKPOINT_NONE,
                            .half = c->model.half_segments,
                            .chunked = c->model.chunked_loss,
                            .attention = c->model.attention,
                            .optimizer = c->step.optimizer.kind,
                            .bf16 = c->model.weights == PRECISION_BF16,
                            .lora_rank = c->model.lora.rank};
    for (int i = 0; !c->auto_checkpoint && i < CHECKPOINT_AUTO; i++)
        if (checkpoints[i].policy == c->model.checkpoint)
            choice.checkpoint = (enum choice_checkpoint)i;
    return choice;
}

// ---- dry runs --------------------------------------------------------------------------

// As --precision bf16 and --lora R alone, without what else they could be given.
static void apply_storage(struct config *c, const struct choice *choice)
{
    bool was_bf16 = c->model.weights == PRECISION_BF16;
    if (choice->bf16 && !was_bf16 && DTYPE_REAL == DTYPE_F32)
        c->model.weights = c->model.activations = PRECISION_BF16;
    config_choose_gradients(c);
    if (choice->lora_rank != c->model.lora.rank)
        c->model.lora = (struct lora_config){
            .rank = choice->lora_rank, .alpha = (double)choice->lora_rank, .targets = LORA_QKV};
}

static void apply(struct config *c, const struct choice *choice, int64_t limit_bytes)
{
    c->step.batch = c->shape.batch = choice->batch;
    c->step.micro_batch = choice->micro_batch;
    c->step.seq = c->shape.seq = choice->seq;
    c->step.optimizer.kind = choice->optimizer;
    c->sample.tokens = choice->tokens;
    c->model.layers = choice->layers;
    c->model.half_segments = choice->half;
    c->model.attention = choice->attention;
    c->model.chunked_loss = choice->chunked;
    apply_storage(c, choice);
    c->model.checkpoint = checkpoints[choice->checkpoint].policy;
    c->model.policies = NULL;
    c->auto_checkpoint = choice->checkpoint == CHECKPOINT_AUTO;
    c->budget_bytes = limit_bytes;
}

static void read_cost(const struct run *r, struct cost *cost)
{
    const struct ledger_counts *counts = &r->tape.arena.ledger.counts;
    const struct step_config *c = &r->config->step;
    *cost = (struct cost){.peak_bytes = counts->total_peak,
                          .init_bytes = counts->phase_peak[PHASE_INIT],
                          .recompute_flops = r->tape.flops[PHASE_RECOMPUTE],
                          .passes = (c->batch + c->micro_batch - 1) / c->micro_batch,
                          .params = params_count(&r->gpt.params),
                          .trained = params_trainable(&r->gpt.params)};
    cost->calls = 2 * cost->passes * r->tape.node_count;
    for (int p = PHASE_FORWARD; p <= PHASE_RECOMPUTE; p++)
        for (int k = 0; k < COST_COUNT; k++)
            cost->flops[k] += r->tape.class_flops[p][k];
    for (int k = 0; k < COST_COUNT; k++)
        cost->total_flops += cost->flops[k];
}

// Of equal micro-batches one is run.
static bool measure(struct config *c, enum config_use use, struct cost *cost)
{
    static struct run r;
    struct error e;
    c->lists_all = false;
    if (!gpt_config_check(&c->model, &e) || !step_config_check(&c->step, &c->model, &e) ||
        !auto_choose(c, &e) || !run_measure(&r, c, use, &e))
        return false;
    read_cost(&r, cost);
    run_close(&r);
    return true;
}

bool choice_measure(const struct config *c, const struct choice *choice, enum config_use use,
                    int64_t limit_bytes, struct cost *cost)
{
    static struct config copy; // large; borrows what c holds
    copy = *c;
    apply(&copy, choice, limit_bytes);
    return measure(&copy, use, cost);
}

// ---- options ---------------------------------------------------------------------------

struct writer {
    struct choice_option *option;
    int count;
};

static void add_text(struct writer *w, const char *name, const char *value)
{
    CHECK(w->count < CHOICE_OPTIONS_MAX);
    struct choice_option *o = &w->option[w->count++];
    o->name = name;
    snprintf(o->value, sizeof(o->value), "%s", value);
}

static void add_int(struct writer *w, const char *name, int64_t from, int64_t to)
{
    char value[32];
    snprintf(value, sizeof(value), "%lld", (long long)to);
    if (from != to)
        add_text(w, name, value);
}

int choice_options(const struct settings *s, enum config_use use, const struct choice *from,
                   const struct choice *to, struct choice_option option[CHOICE_OPTIONS_MAX])
{
    struct writer w = {.option = option};
    bool is_eval = use == CONFIG_EVAL; // its batch is its micro-batch
    bool follows = s->micro_batch == UNSET_INT && !is_eval;
    int64_t micro_batch = follows ? to->batch : from->micro_batch;
    add_int(&w, "layers", from->layers, to->layers);
    if (!is_eval)
        add_int(&w, "batch", from->batch, to->batch);
    add_int(&w, "micro-batch", micro_batch, to->micro_batch);
    add_int(&w, "seq", from->seq, to->seq);
    if (from->checkpoint != to->checkpoint)
        add_text(&w, "checkpoint", choice_checkpoint_name(to->checkpoint));
    if (from->half != to->half)
        add_text(&w, "segments", to->half ? "half" : "block");
    if (from->attention != to->attention)
        add_text(&w, "attention", gpt_attention_name(to->attention));
    if (from->optimizer != to->optimizer)
        add_text(&w, "optimizer", optimizer_name(to->optimizer));
    if (from->chunked != to->chunked)
        add_text(&w, "loss", to->chunked ? "chunked" : "plain");
    if (from->bf16 != to->bf16)
        add_text(&w, "precision", to->bf16 ? "bf16" : "f32");
    add_int(&w, "lora", from->lora_rank, to->lora_rank);
    add_int(&w, s->generate != UNSET_INT ? "generate" : "sample-tokens", from->tokens, to->tokens);
    return w.count;
}

char *choice_text(const struct choice_option *option, int count, char out[CHOICE_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < count && used < CHOICE_TEXT_BYTES; i++)
        used += (size_t)snprintf(out + used, CHOICE_TEXT_BYTES - used, "%s--%s %s",
                                 i > 0 ? " " : "", option[i].name, option[i].value);
    return out;
}

bool choice_set(struct settings *s, const struct choice_option *option, int count, struct error *e)
{
    unsigned groups =
        OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_SAMPLE | OPTIONS_EVAL | OPTIONS_PLAN;
    for (int i = 0; i < count; i++)
        if (!options_set(s, groups, option[i].name, option[i].value, e))
            return false;
    return true;
}

bool choice_verify(const struct settings *s, const struct config *c, enum config_use use,
                   const struct choice_option *option, int count, struct cost *cost)
{
    static struct settings said;
    static struct config built;
    char vocab[32];
    struct error e;
    said = *s;
    snprintf(vocab, sizeof(vocab), "%lld", (long long)c->model.vocab);
    if (use == CONFIG_TRAIN)
        use = CONFIG_PLAN; // which needs no text, given a vocabulary
    enum config_use as = s->generate != UNSET_INT ? CONFIG_PLAN : use;
    if (as == CONFIG_PLAN)
        said.data = said.prompt = NULL;
    if (!choice_set(&said, option, count, &e) ||
        (as == CONFIG_PLAN && !options_set(&said, OPTIONS_MODEL, "vocab", vocab, &e)))
        return false;
    if (use == CONFIG_EVAL)
        said.batch = said.micro_batch;
    if (!config_build(&built, &said, as, &e))
        return false;
    built.prompt_count = c->prompt_count;
    if (built.process_budget_bytes > 0) // what is outside was measured once
        built.budget_bytes = c->budget_bytes;
    bool ok = measure(&built, use, cost);
    config_close(&built);
    return ok;
}

// Of the whole batch at once gradients are stored in other bytes than of several micro-batches.
static bool whole_is_apart(const struct config *c)
{
    return !c->says_gradients && c->model.weights != PRECISION_REAL;
}

int choice_middle(const struct config *c, int low, int high)
{
    return whole_is_apart(c) && low == 0 ? 0 : low + (high - low) / 2;
}

bool choice_rounds_differently(const struct config *c, const struct choice *a,
                               const struct choice *b)
{
    bool splits = a->micro_batch < a->batch, other_splits = b->micro_batch < b->batch;
    return a->attention != b->attention || (whole_is_apart(c) && splits != other_splits);
}

int choice_micro_batches(int64_t batch, int64_t size[MICRO_BATCHES_MAX])
{
    int count = 0;
    for (int64_t passes = 1; count < MICRO_BATCHES_MAX; passes++) {
        int64_t least = (batch + passes - 1) / passes;
        if (count >= MICRO_BATCHES_MAX / 2 && size[count - 1] > 1) // thinner from here
            least = size[count - 1] / 2;
        if (count == 0 || least < size[count - 1])
            size[count++] = least;
        if (least <= 1)
            break;
    }
    return count;
}
