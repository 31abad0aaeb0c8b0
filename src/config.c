#define _DEFAULT_SOURCE
#include "src/config.h"

#include "tape/blas.h"
#include "tape/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int64_t int_or(int64_t value, int64_t otherwise)
{
    return value != UNSET_INT ? value : otherwise;
}

static double real_or(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static const char *text_or(const char *value, const char *otherwise)
{
    return value != NULL ? value : otherwise;
}

// ---- snapshots -------------------------------------------------------------------------

static bool is_snapshot(const char *dir)
{
    char model[SNAPSHOT_PATH_BYTES];
    return snapshot_path(dir, SNAPSHOT_MODEL, model, NULL) && access(model, F_OK) == 0;
}

bool config_find_snapshot(const char *dir, char found[CONFIG_PATH_BYTES], struct error *e)
{
    static const char *const inside[] = {"", "/snapshot"};
    for (int i = 0; i < COUNT_OF(inside); i++)
        if (snprintf(found, CONFIG_PATH_BYTES, "%s%s", dir, inside[i]) < CONFIG_PATH_BYTES &&
            is_snapshot(found))
            return true;
    return refuse(e, "%.400s holds no snapshot (no model.safetensors there or in %.400s/snapshot)",
                  dir, dir);
}

static bool reads_operand(enum config_use use)
{
    return use == CONFIG_EVAL || use == CONFIG_GENERATE || use == CONFIG_MERGE;
}

static bool read_snapshot(struct config *c, struct settings *s, enum config_use use,
                          struct error *e)
{
    const char *dir = s->resume != NULL ? s->resume : s->init;
    if (reads_operand(use))
        dir = s->operand;
    if (dir == NULL)
        return true;
    if (!config_find_snapshot(dir, c->snapshot_dir, e) ||
        !snapshot_read_info(c->snapshot_dir, &c->snapshot, e))
        return false;
    bool has_adapters = c->snapshot.model.lora.rank > 0;
    if (s->init != NULL && dir != s->init && !has_adapters)
        return refuse(e,
                      "%s%s is a whole model, and --init says where weights come from, too: "
                      "give one",
                      s->resume != NULL ? "--resume " : "", dir);
    c->resumes = s->resume != NULL;
    if (c->resumes && strcmp(c->snapshot_dir, dir) == 0 && s->out == s->resume)
        return refuse(e,
                      "--resume %s is a snapshot, not a run's directory: give the one that "
                      "holds it, or say with --out where to go on",
                      dir);
    return true;
}

// A run writes its options beside its snapshot; resuming it brings them back.
static bool read_run_options(struct settings *s, struct error *e)
{
    char path[CONFIG_PATH_BYTES];
    if (s->resume == NULL)
        return true;
    snprintf(path, sizeof(path), "%s/config.txt", s->resume);
    if (s->out == NULL)
        s->out = s->resume;
    return access(path, F_OK) != 0 ||
           options_read_file(
               s, OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_SAMPLE | OPTIONS_RUN, path,
               e);
}

// ---- the model -------------------------------------------------------------------------

static bool find_preset(struct config *c, const char *name, struct error *e)
{
    char known[512] = "";
    for (int i = 0; i < gpt_preset_count; i++) {
        if (strcmp(gpt_presets[i].name, name) == 0) {
            c->model = gpt_presets[i].config;
            snprintf(c->model_name, sizeof(c->model_name), "%s", name);
            return true;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                 gpt_presets[i].name);
    }
    return refuse(e, "--model %s: expected one of %s", name, known);
}

// The double precision build is there to judge formulas: it stores everything as it computes.
static enum precision precision_of(const char *text, enum precision otherwise)
{
    if (DTYPE_REAL == DTYPE_F64)
        return PRECISION_REAL;
    if (text == NULL)
        return otherwise;
    return strcmp(text, "bf16") == 0 ? PRECISION_BF16 : PRECISION_REAL;
}

static void override_model(struct gpt_config *m, const struct settings *s)
{
    m->layers = int_or(s->layers, m->layers);
    m->heads = int_or(s->heads, m->heads);
    m->width = int_or(s->width, m->width);
    m->context = int_or(s->context, m->context);
    m->vocab = int_or(s->vocab, m->vocab);
    m->bias = s->bias >= 0 ? s->bias != 0 : m->bias;
    m->tie = s->tie >= 0 ? s->tie != 0 : m->tie;
    m->dropout = real_or(s->dropout, m->dropout);
    if (s->attention != NULL)
        m->attention =
            strcmp(s->attention, "naive") == 0 ? GPT_ATTENTION_NAIVE : GPT_ATTENTION_TILED;
    m->chunked_loss = s->loss != NULL ? strcmp(s->loss, "chunked") == 0 : m->chunked_loss;
    m->weights = precision_of(s->precision, m->weights);
    m->activations = precision_of(s->activation_precision, m->weights);
    for (int p = 0; s->checkpoint != NULL && p < POLICY_COUNT; p++)
        if (strcmp(s->checkpoint, tape_policy_name((enum tape_policy)p)) == 0)
            m->checkpoint = (enum tape_policy)p;
}

// ---- adapters --------------------------------------------------------------------------

static bool read_rank(struct lora_config *l, const char *text, struct error *e)
{
    char rank[32] = "";
    size_t length = strcspn(text, ":");
    if (length < sizeof(rank))
        memcpy(rank, text, length); // the rest is zeros
    bool ok = text_to_int64(rank, &l->rank) && l->rank >= 0;
    l->alpha = (double)l->rank;
    if (ok && text[length] == ':')
        ok = text_to_double(text + length + 1, &l->alpha);
    return ok || refuse(e, "--lora %.100s: expected a rank, or rank:alpha, as 8 or 8:16", text);
}

// An unset option says nothing about what a snapshot holds.
static bool choose_adapters(struct config *c, const struct settings *s, struct error *e)
{
    struct lora_config *l = &c->model.lora;
    const struct lora_config held = *l;
    if (s->lora != NULL && !read_rank(l, s->lora, e))
        return false;
    if (l->rank == 0 && (s->lora_targets != NULL || s->lora_bias != NULL) && s->lora == NULL)
        return refuse(e, "--%s is of adapters: add --lora R",
                      s->lora_targets != NULL ? "lora-targets" : "lora-bias");
    if (held.rank == 0)
        l->targets = LORA_QKV;
    if (s->lora_targets != NULL && !lora_read_targets(s->lora_targets, &l->targets, e))
        return false;
    if (s->lora_bias != NULL)
        l->trains_bias = strcmp(s->lora_bias, "all") == 0;
    if (l->rank == 0)
        *l = (struct lora_config){.rank = 0};
    struct error inner;
    if (held.rank > 0 && !snapshot_same_adapters(&held, l, &inner))
        return refuse(e, "%s holds other adapters: %s; `memtape merge` makes a model of them",
                      c->snapshot_dir, inner.text);
    if (l->rank > 0 && held.rank == 0 && c->resumes)
        return refuse(e,
                      "--resume %s goes on with what it trained, all weights: for --lora, start "
                      "anew from --init",
                      s->resume);
    return true;
}

static bool check_base(const struct config *c, const char *dir, struct error *e)
{
    static struct snapshot_info info; // large
    struct error inner;
    if (!snapshot_read_info(dir, &info, e))
        return false;
    if (info.model.lora.rank > 0)
        return refuse(e, "%s holds adapters, no base: `memtape merge` makes a model of them", dir);
    return snapshot_same_model(&info.model, &c->model, &inner) ||
           refuse(e, "%s is not the base of %s: %s", dir, c->snapshot_dir, inner.text);
}

// New adapters: of the snapshot that was given, or of fresh weights. Trained ones: of the base that
// they name, or that --init names now.
static bool find_base(struct config *c, const struct settings *s, enum config_use use,
                      struct error *e)
{
    char dir[CONFIG_PATH_BYTES];
    bool are_new = c->snapshot.model.lora.rank == 0;
    if (c->model.lora.rank == 0)
        return true;
    if (are_new) {
        c->base.seed = (uint64_t)int_or(s->seed, 1);
        if (c->snapshot_dir[0] != 0 && !snapshot_find_base(c->snapshot_dir, &c->base, e))
            return false;
        c->snapshot_dir[0] = 0; // no adapters there
        return true;
    }
    const struct snapshot_base *named = &c->snapshot.base;
    bool is_given = s->init != NULL && (s->resume != NULL || reads_operand(use));
    const char *at = is_given ? s->init : named->dir;
    c->base = *named;
    if (!is_given && named->dir[0] == 0)
        return true;
    struct error inner;
    if (!config_find_snapshot(at, dir, &inner))
        return refuse(e, "the base of %s is missing: %.500s; --init DIR says where it is",
                      c->snapshot_dir, inner.text);
    if (!check_base(c, dir, e) || !snapshot_find_base(dir, &c->base, e))
        return false;
    return c->base.hash == named->hash ||
           refuse(
               e,
               "%s is not the base that %s was trained on: its weights hash to %016llx, expected "
               "%016llx",
               dir, c->snapshot_dir, (unsigned long long)c->base.hash,
               (unsigned long long)named->hash);
}

// ---- budgets ---------------------------------------------------------------------------

static bool read_bytes(const char *name, const char *text, int64_t *bytes, struct error *e)
{
    *bytes = 0;
    if (text == NULL || (text_to_bytes(text, bytes) && *bytes > 0))
        return true;
    return refuse(e, "--%s %s: expected bytes above 0, as 268435456, 256MiB or 1.5GB", name, text);
}

static bool choose_budget(struct config *c, const struct settings *s, struct error *e)
{
    c->auto_checkpoint = s->checkpoint != NULL && strcmp(s->checkpoint, "auto") == 0;
    c->model.half_segments = s->segments != NULL && strcmp(s->segments, "half") == 0;
    if (!read_bytes("budget", s->budget, &c->budget_bytes, e) ||
        !read_bytes("budget-process", s->budget_process, &c->process_budget_bytes, e) ||
        !read_bytes("activation-budget", s->activation_budget, &c->activation_budget_bytes, e))
        return false;
    bool has_budget =
        c->budget_bytes > 0 || c->activation_budget_bytes > 0 || c->process_budget_bytes > 0;
    if (c->auto_checkpoint && !has_budget)
        return refuse(e, "--checkpoint auto needs to know how much memory there is: add --budget "
                         "or --activation-budget");
    if (!c->auto_checkpoint && c->activation_budget_bytes > 0)
        return refuse(e, "--activation-budget is for --checkpoint auto; --budget bounds the whole");
    return true;
}

// What goes on with a snapshot stores weights as it does. A training that starts from one says
// itself how, and merged weights are not rounded a second time.
static bool keeps_precision(const struct config *c, const struct settings *s, enum config_use use)
{
    bool generates = use == CONFIG_GENERATE || s->generate != UNSET_INT;
    return c->resumes || use == CONFIG_EVAL || generates;
}

static bool choose_model(struct config *c, const struct settings *s, enum config_use use,
                         struct error *e)
{
    bool from_snapshot = c->snapshot_dir[0] != 0;
    if (from_snapshot) {
        c->model = c->snapshot.model;
        if (keeps_precision(c, s, use))
            c->model.weights = precision_of(NULL, c->snapshot.weights);
        snprintf(c->model_name, sizeof(c->model_name), "custom");
    }
    if (!from_snapshot || s->model != NULL) {
        if (!find_preset(c, text_or(s->model, "nano"), e))
            return false;
        if (from_snapshot && c->model.vocab == 0)
            c->model.vocab = c->snapshot.model.vocab;
    }
    override_model(&c->model, s);
    struct error inner;
    if (from_snapshot && !snapshot_same_model(&c->snapshot.model, &c->model, &inner))
        return refuse(e, "%s holds another model: %s", c->snapshot_dir, inner.text);
    return true;
}

// ---- data ------------------------------------------------------------------------------

static bool open_data(struct config *c, const struct settings *s, enum config_use use,
                      struct error *e)
{
    struct tokenizer fixed;
    bool has_tokenizer = c->snapshot.tokenizer[0] != 0;
    if (has_tokenizer && !tokenizer_from_text(&fixed, c->snapshot.tokenizer, e))
        return false;
    if (use == CONFIG_GENERATE) {
        if (!has_tokenizer)
            return refuse(e, "%s does not say what its tokens mean: it has no tokenizer",
                          c->snapshot_dir);
        c->data.tokenizer = fixed;
        return true;
    }
    enum tokenizer_kind kind =
        strcmp(text_or(s->tokenizer, "char"), "byte") == 0 ? TOKENIZER_BYTE : TOKENIZER_CHAR;
    const char *path = text_or(s->data, DATASET_BUILTIN);
    if (!dataset_open(&c->data, path, kind, has_tokenizer ? &fixed : NULL, e))
        return false;
    c->has_data = true;
    int64_t vocab = c->data.tokenizer.vocab;
    if (c->model.vocab == 0)
        c->model.vocab = vocab;
    if (c->model.vocab < vocab)
        return refuse(e, "vocab %lld is less than the tokenizer's %lld: try --vocab %lld",
                      (long long)c->model.vocab, (long long)vocab, (long long)vocab);
    return true;
}

static bool encode_prompt(struct config *c, const struct settings *s, struct error *e)
{
    const char *prompt = text_or(s->prompt, "\n");
    int64_t bytes = (int64_t)strlen(prompt), count;
    const struct tokenizer *k = &c->data.tokenizer;
    if (s->prompt == NULL || bytes == 0) { // a text need not have line breaks
        if (!tokenizer_encode(k, "\n", 1, c->prompt, NULL))
            c->prompt[0] = 0;
        c->prompt_count = 1;
        return true;
    }
    if (!tokenizer_count(k, prompt, bytes, &count, e))
        return false;
    if (count > CONFIG_PROMPT_MAX)
        return refuse(e, "--prompt has %lld tokens: expected at most %d", (long long)count,
                      CONFIG_PROMPT_MAX);
    c->prompt_count = count;
    return tokenizer_encode(k, prompt, bytes, c->prompt, e);
}

// ---- training --------------------------------------------------------------------------

// Rounded once per micro-batch, a sum over many of them would stop growing.
void config_choose_gradients(struct config *c)
{
    bool splits = c->step.micro_batch < c->step.batch;
    if (!c->says_gradients)
        c->step.gradients = splits ? PRECISION_REAL : c->model.weights;
}

static void choose_training(struct config *c, const struct settings *s)
{
    int64_t batch = int_or(s->batch, 12);
    c->steps = int_or(s->steps, 200);
    c->eval_every = int_or(s->eval_every, 0);
    c->eval_batches = int_or(s->eval_batches, 20);
    c->save_every = int_or(s->save_every, 0);
    double lr = real_or(s->lr, 1e-3);
    enum optimizer_kind optimizer = OPTIMIZER_ADAMW;
    CHECK(s->optimizer == NULL || optimizer_find(s->optimizer, &optimizer));
    c->step = (struct step_config){.batch = batch,
                                   .micro_batch = int_or(s->micro_batch, batch),
                                   .seq = int_or(s->seq, c->model.context),
                                   .seed = (uint64_t)int_or(s->seed, 1),
                                   .optimizer = {.kind = optimizer,
                                                 .weight_decay = real_or(s->weight_decay, 0.1),
                                                 .beta1 = real_or(s->beta1, 0.9),
                                                 .beta2 = real_or(s->beta2, 0.99),
                                                 .eps = 1e-8,
                                                 .clip = real_or(s->clip, 1)},
                                   .schedule = {.rate = lr,
                                                .min_rate = real_or(s->min_lr, lr / 10),
                                                .warmup_steps = int_or(s->warmup, 0),
                                                .decay_steps = int_or(s->decay_steps, c->steps)}};
    c->says_gradients = s->grad_precision != NULL;
    c->step.gradients = precision_of(s->grad_precision, c->model.weights);
    config_choose_gradients(c);
    if (s->decay_steps == UNSET_INT && c->step.schedule.warmup_steps > c->steps)
        c->step.schedule.decay_steps = 0;
    c->shape = (struct batch_shape){.batch = batch,
                                    .seq = c->step.seq,
                                    .order = strcmp(text_or(s->order, "random"), "sequential") == 0
                                                 ? BATCH_SEQUENTIAL
                                                 : BATCH_RANDOM,
                                    .seed = c->step.seed};
}

static void choose_sample(struct config *c, const struct settings *s)
{
    int64_t tokens = int_or(s->generate, int_or(s->sample, 200));
    c->sample = (struct generate_config){.tokens = tokens,
                                         .temperature = real_or(s->temperature, 0.8),
                                         .top_k = int_or(s->top_k, 0),
                                         .seed = (uint64_t)int_or(s->seed, 1),
                                         .kv_cache = s->kv_cache != 0};
}

bool config_build(struct config *c, struct settings *s, enum config_use use, struct error *e)
{
    memset(c, 0, sizeof(*c));
    c->threads = (int)int_or(s->threads, blas_max_threads());
    if (!read_run_options(s, e) || !read_snapshot(c, s, use, e) || !choose_model(c, s, use, e) ||
        !choose_adapters(c, s, e) || !find_base(c, s, use, e) || !choose_budget(c, s, e))
        return false;
    c->freeze = s->freeze;
    bool needs_data = (use != CONFIG_PLAN && use != CONFIG_MERGE) || c->model.vocab == 0 ||
                      s->data != NULL || s->prompt != NULL;
    if (needs_data && !open_data(c, s, use, e)) {
        config_close(c); // open, and then refused for its vocabulary
        return false;
    }
    choose_training(c, s);
    choose_sample(c, s);
    c->prompt_count = 1;
    bool ok = gpt_config_check(&c->model, e) && step_config_check(&c->step, &c->model, e) &&
              generate_config_check(&c->sample, &c->model, e);
    if (ok && use == CONFIG_TRAIN)
        ok = batch_check(&c->data, &c->shape, e) &&
             (c->eval_every == 0 || batch_check_validation(&c->data, e));
    if (ok && use == CONFIG_EVAL)
        ok = batch_check_validation(&c->data, e);
    if (ok && needs_data)
        ok = encode_prompt(c, s, e);
    c->prompt_count = int_or(s->prompt_tokens, c->prompt_count);
    if (!ok)
        config_close(c);
    return ok;
}

void config_close(struct config *c)
{
    if (c->has_data)
        dataset_close(&c->data);
    c->has_data = false;
}
