#include "nn/step.h"

#include "tape/rng.h"

#include <string.h>

bool step_config_check(const struct step_config *c, const struct gpt_config *model, struct error *e)
{
    enum { BATCH_MAX = 1 << 24 };
    if (c->batch < 1 || c->batch > BATCH_MAX)
        return refuse(e, "batch %lld: expected 1 to %d", (long long)c->batch, BATCH_MAX);
    if (c->micro_batch < 1 || c->micro_batch > c->batch)
        return refuse(e, "micro-batch %lld: expected 1 to batch %lld", (long long)c->micro_batch,
                      (long long)c->batch);
    if (c->seq < 1 || c->seq > model->context)
        return refuse(e, "seq %lld: expected 1 to context %lld (a longer one needs --context)",
                      (long long)c->seq, (long long)model->context);
    return gpt_pass_check(model, c->micro_batch, c->batch, c->seq, c->seq, e) &&
           optimizer_check(&c->optimizer, e) && schedule_check(&c->schedule, e);
}

// ---- what a run holds ------------------------------------------------------------------

static int32_t *push_ids(struct tape *t, enum arena_end end, const char *name,
                         enum ledger_category category, int64_t rows, int64_t cols)
{
    struct ledger_label label = {.name = name,
                                 .category = category,
                                 .dtype = DTYPE_I32,
                                 .dim_count = 2,
                                 .dim = (int64_t[]){rows, cols},
                                 .node = -1};
    return arena_push(&t->arena, end, rows * cols * (int64_t)sizeof(int32_t), &label);
}

void step_init(struct step *s, struct tape *t, struct gpt *g, const struct step_config *c,
               bool trains)
{
    *s = (struct step){.config = *c, .gpt = g};
    if (trains) {
        g->params.gradients = c->gradients;
        params_add_grads(&g->params, t);
        optimizer_init(&c->optimizer, &g->params, t);
    }
    s->tokens = push_ids(t, ARENA_LOW, "batch.tokens", LEDGER_BATCH, c->batch, c->seq);
    s->targets = push_ids(t, ARENA_LOW, "batch.targets", LEDGER_BATCH, c->batch, c->seq);
}

// ---- the batch -------------------------------------------------------------------------

static bool check_ids(const char *what, const int32_t *ids, int64_t samples, int64_t seq,
                      int64_t vocab, struct error *e)
{
    bool targets = what[1] == 'a';
    for (int64_t i = 0; i < samples * seq; i++) {
        if ((ids[i] >= 0 && ids[i] < vocab) || (targets && ids[i] == TARGET_IGNORED))
            continue;
        return refuse(e, "%s %d at row %lld, position %lld: expected 0 to %lld%s", what, ids[i],
                      (long long)(i / seq), (long long)(i % seq), (long long)(vocab - 1),
                      targets ? ", or -100 for one that does not count" : "");
    }
    return true;
}

static int64_t count_targets(const int32_t *targets, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += targets[i] != TARGET_IGNORED;
    return counted;
}

static bool check_batch(struct step *s, struct step_result *r, struct error *e)
{
    const struct step_config *c = &s->config;
    int64_t vocab = s->gpt->config.vocab;
    if (!check_ids("token", s->tokens, c->batch, c->seq, vocab, e) ||
        !check_ids("target", s->targets, c->batch, c->seq, vocab, e))
        return false;
    r->counted = count_targets(s->targets, c->batch * c->seq);
    return r->counted > 0 || refuse(e,
                                    "no target of this batch counts: all %lld are ignored, so "
                                    "there is no gradient and no update",
                                    (long long)(c->batch * c->seq));
}

// ---- the token table has a gradient of its own -----------------------------------------

// Slots are given to the ids that occur, in the order of the ids. `at` is scratch of vocab numbers.
static void assign_slots(struct step *s, int32_t *at)
{
    int64_t count = s->config.batch * s->config.seq, vocab = s->gpt->config.vocab;
    memset(at, 0, (size_t)vocab * sizeof(*at));
    for (int64_t i = 0; i < count; i++)
        at[s->tokens[i]] = 1;
    s->slot_count = 0;
    for (int32_t id = 0; id < vocab; id++)
        if (at[id] != 0) {
            s->slot_ids[s->slot_count] = id;
            at[id] = s->slot_count++;
        }
    for (int64_t i = 0; i < count; i++)
        s->slots[i] = at[s->tokens[i]];
}

// If the head is wte, head and embedding both add to its gradient. In one accumulator the split
// into micro-batches would decide how their sums interleave; so the embedding has its own until the
// batch is done, of reals, with a row for each id, or for each position if those are fewer. A
// gradient stored as bf16 is then also rounded once, and not at each occurrence of an id.
static bool embedding_is_apart(const struct step *s)
{
    const struct tensor *wte = &s->gpt->wte->tensor;
    return wte->wants_grad && (s->gpt->config.tie || wte->grad_dtype != DTYPE_REAL);
}

static void open_embedding_gradient(struct step *s, struct tape *t)
{
    struct tensor *wte = &s->gpt->wte->tensor;
    int64_t positions = s->config.batch * s->config.seq, vocab = s->gpt->config.vocab;
    int64_t rows = positions < vocab ? positions : vocab;
    s->slots = s->slot_ids = NULL;
    if (rows < vocab) {
        s->slots = push_ids(t, ARENA_LOW, "wte.weight.slots", LEDGER_WORKSPACE, s->config.batch,
                            s->config.seq);
        s->slot_ids = push_ids(t, ARENA_LOW, "wte.weight.slot_ids", LEDGER_WORKSPACE, rows, 1);
        int32_t *at = push_ids(t, ARENA_HIGH, "wte.weight.slot_of", LEDGER_WORKSPACE, vocab, 1);
        if (!tape_is_dry(t))
            assign_slots(s, at);
        arena_give(&t->arena, at);
    }
    s->embedding = *wte;
    s->embedding.grad_dtype = DTYPE_REAL;
    struct ledger_label label = {.name = "wte.weight.grad.embedding",
                                 .category = LEDGER_WORKSPACE,
                                 .dtype = DTYPE_REAL,
                                 .dim_count = 2,
                                 .dim = (int64_t[]){rows, wte->dim[1]},
                                 .node = -1};
    int64_t bytes = rows * wte->dim[1] * (int64_t)sizeof(real);
    s->embedding.grad = arena_push(&t->arena, ARENA_LOW, bytes, &label);
    if (!tape_is_dry(t)) {
        memset(s->embedding.grad, 0, (size_t)bytes);
        tape_break_grad(t, NULL, &s->embedding);
    }
    s->gpt->token_table = &s->embedding;
}

static void join_embedding_gradient(struct step *s, struct tape *t)
{
    struct tensor *wte = &s->gpt->wte->tensor;
    int64_t cols = wte->dim[1];
    int64_t rows = s->slots != NULL ? s->slot_count : wte->dim[0];
    for (int64_t i = 0; !tape_is_dry(t) && i < rows; i++) {
        int64_t id = s->slots != NULL ? s->slot_ids[i] : i;
        array_carry(array_from(tensor_grad(wte), id * cols),
                    array_from(tensor_grad(&s->embedding), i * cols), cols, true);
    }
    if (!tape_is_dry(t))
        tape_break_grad(t, NULL, wte);
    arena_give(&t->arena, s->embedding.grad);
    if (s->slots != NULL) {
        arena_give(&t->arena, s->slot_ids);
        arena_give(&t->arena, s->slots);
    }
    s->slots = s->slot_ids = NULL;
    s->gpt->token_table = wte;
}

// ---- the step --------------------------------------------------------------------------

// Losses are added sample by sample, so that the sum has one order whatever the split.
static double add_losses(const struct tape *t, const struct tensor *loss, double sum)
{
    for (int64_t b = 0; !tape_is_dry(t) && b < loss->dim[0]; b++)
        sum += (double)loss->data[b];
    return sum;
}

static void micro_batch(struct step *s, struct tape *t, int64_t first, int64_t samples,
                        struct step_result *r)
{
    int64_t at = first * s->config.seq;
    tape_begin(t, PHASE_FORWARD, first);
    tape_enter(t, "%s", "");
    struct tensor *loss = gpt_loss(t, s->gpt, s->tokens + at, s->targets + at,
                                   s->slots != NULL ? s->slots + at : NULL, samples, s->config.seq);
    r->loss = add_losses(t, loss, r->loss);
    tape_leave(t, NULL);
    tape_backward(t, loss, r->counted > 0 ? (real)(1 / (double)r->counted) : 0);
}

// A micro-batch leaves the arena as it found it, so one of the same size makes the same events: a
// sketch counts the FLOPs of those that it leaves out, and its peaks are a whole step's.
static int64_t repeats(const struct step *s, const struct tape *t)
{
    const struct step_config *c = &s->config;
    CHECK(!c->is_sketch || tape_is_dry(t));
    return c->is_sketch ? c->batch / c->micro_batch : 1;
}

static void count_again(struct tape *t, int64_t before[PHASE_COUNT][COST_COUNT], int64_t times)
{
    for (int p = 0; p < PHASE_COUNT; p++)
        for (int k = 0; k < COST_COUNT; k++) {
            int64_t more = (times - 1) * (t->class_flops[p][k] - before[p][k]);
            t->class_flops[p][k] += more;
            t->flops[p] += more;
        }
}

static void tell_sums(const struct step *s, const struct tape *t)
{
    if (s->on_sums != NULL && !tape_is_dry(t))
        s->on_sums(s, s->on_sums_user);
}

bool step_gradients(struct step *s, struct tape *t, struct step_result *r, struct error *e)
{
    const struct step_config *c = &s->config;
    *r = (struct step_result){0};
    if (!tape_is_dry(t) && !check_batch(s, r, e))
        return false;
    arena_lap(&t->arena); // every step starts with the same rows in the ledger
    ledger_enter_phase(&t->arena.ledger, PHASE_FORWARD);
    s->gpt->dropout_key = rng_key(rng_key(c->seed, RNG_DROPOUT), (uint64_t)(s->steps_done + 1));
    params_zero_grads(&s->gpt->params, t);
    bool apart = embedding_is_apart(s);
    if (apart)
        open_embedding_gradient(s, t);
    for (int64_t first = 0, times = repeats(s, t); first < c->batch; times = 1) {
        int64_t before[PHASE_COUNT][COST_COUNT];
        int64_t last = first + (times - 1) * c->micro_batch, left = c->batch - last;
        memcpy(before, t->class_flops, sizeof(before));
        micro_batch(s, t, last, left < c->micro_batch ? left : c->micro_batch, r);
        count_again(t, before, times);
        tell_sums(s, t);
        first += times * c->micro_batch;
    }
    if (apart) {
        join_embedding_gradient(s, t);
        tell_sums(s, t);
    }
    r->loss = r->counted > 0 ? r->loss / (double)r->counted : 0;
    return true;
}

void step_update(struct step *s, struct tape *t, struct step_result *r)
{
    const struct step_config *c = &s->config;
    enum ledger_phase before = ledger_enter_phase(&t->arena.ledger, PHASE_UPDATE);
    int64_t step = ++s->steps_done;
    r->rate = schedule_rate(&c->schedule, step);
    if (!tape_is_dry(t))
        r->gradient_norm = optimizer_gradient_norm(&s->gpt->params);
    optimizer_update(&c->optimizer, &s->gpt->params, t, step, r->rate, r->gradient_norm);
    ledger_enter_phase(&t->arena.ledger, before);
}

bool step_evaluate(struct step *s, struct tape *t, const int32_t *tokens, const int32_t *targets,
                   int64_t samples, double *loss_sum, int64_t *counted, struct error *e)
{
    int64_t seq = s->config.seq, vocab = s->gpt->config.vocab;
    CHECK(samples <= s->config.micro_batch);
    if (!tape_is_dry(t) && (!check_ids("token", tokens, samples, seq, vocab, e) ||
                            !check_ids("target", targets, samples, seq, vocab, e)))
        return false;
    tape_begin(t, PHASE_EVAL, 0);
    tape_enter(t, "%s", "");
    struct tensor *loss = gpt_loss(t, s->gpt, tokens, targets, NULL, samples, seq);
    *loss_sum = add_losses(t, loss, *loss_sum);
    *counted += tape_is_dry(t) ? samples * seq : count_targets(targets, samples * seq);
    tape_leave(t, NULL);
    return true;
}
