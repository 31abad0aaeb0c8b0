#include "src/explain.h"

#include "src/rules.h"
#include "tape/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char zero_source[] = "Rajbhandari et al. 2020, arXiv 1910.02054";
static const char layer_source[] = "Korthikanti et al. 2022, arXiv 2205.05198";
static const char kv_source[] = "Kwon et al. 2023, arXiv 2309.06180";

static struct explain_row *add(struct explain *x, struct explain_row row)
{
    CHECK(x->count < EXPLAIN_ROWS_MAX);
    x->row[x->count] = row;
    return &x->row[x->count++];
}

static void because(struct explain_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void because(struct explain_row *row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(row->why, sizeof(row->why), format, args);
    va_end(args);
}

// ---- states ----------------------------------------------------------------------------

static const struct {
    const char *name, *what, *formula;
    enum ledger_category category;
    const char *why;
} parts[RULES_PART_COUNT] = {
    [RULES_WEIGHTS] = {"weights", "weights", "2 P", LEDGER_WEIGHTS,
                       "The formula's weights are 16-bit numbers."},
    [RULES_GRADIENTS] = {"gradients", "gradients", "2 P", LEDGER_GRADIENTS,
                         "The formula's gradients are 16-bit numbers; ours add up a batch."},
    [RULES_MASTER_WEIGHTS] = {"master_weights", "master weights", "4 P", LEDGER_MASTER_WEIGHTS,
                              "Weights of 32 bits need no 32-bit copy."},
    [RULES_OPTIMIZER_STATE] = {"optimizer_state", "m and v", "8 P", LEDGER_OPTIMIZER_STATE,
                               "The formula is of Adam with m and v in 32 bits."},
};

static void add_states(struct explain *x, const struct run *r)
{
    const int64_t *now = r->tape.arena.ledger.counts.now;
    double params = (double)params_count(&r->gpt.params);
    int64_t exact = 0;
    for (int i = 0; i < RULES_PART_COUNT; i++)
        exact += now[parts[i].category];
    struct explain_row *sum = add(x, (struct explain_row){.name = "states",
                                                          .what = "states",
                                                          .formula = "16 P",
                                                          .source = zero_source,
                                                          .rule_bytes = RULES_MIXED_BYTES * params,
                                                          .has_exact = true,
                                                          .exact_bytes = exact});
    int64_t trained = params_trainable(&r->gpt.params);
    bool is_frozen = trained < params_count(&r->gpt.params);
    bool is_sum = exact == RULES_FP32_BYTES * params_count(&r->gpt.params);
    because(sum, "%s",
            !is_sum ? "The formula is of Adam in mixed precision, 2 + 2 + 4 + 8."
            : now[LEDGER_MASTER_WEIGHTS] > 0
                ? "As the formula says."
                : "Adam in 32 bits: the same sum from other parts, 4 + 4 + 0 + 8.");
    if (is_frozen)
        because(sum, "What is frozen has weights alone; %lld numbers are trained.",
                (long long)trained);
    for (int i = 0; i < RULES_PART_COUNT; i++) {
        struct explain_row *row =
            add(x, (struct explain_row){.name = parts[i].name,
                                        .what = parts[i].what,
                                        .formula = parts[i].formula,
                                        .source = zero_source,
                                        .rule_bytes = rules_part_bytes[i] * params,
                                        .has_exact = true,
                                        .exact_bytes = now[parts[i].category]});
        because(row, "%s",
                (double)row->exact_bytes == row->rule_bytes ? "As the formula says."
                                                            : parts[i].why);
        if (is_frozen && i != RULES_WEIGHTS)
            because(row, "What is frozen has none: %lld numbers are trained.", (long long)trained);
    }
}

static void add_zero(struct explain *x, const struct run *r, int64_t shards)
{
    static const char *const name[RULES_ZERO_STAGES] = {"zero_0", "zero_1", "zero_2", "zero_3"};
    static const char *const what[RULES_ZERO_STAGES] = {"ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"};
    double params = (double)params_count(&r->gpt.params);
    for (int stage = 1; stage < RULES_ZERO_STAGES; stage++)
        because(
            add(x, (struct explain_row){.name = name[stage],
                                        .what = what[stage],
                                        .formula = rules_zero_formula(stage),
                                        .source = zero_source,
                                        .rule_bytes =
                                            rules_zero_bytes(params, stage, (double)shards)}),
            "Times P, of each of N = %lld devices; this program is one process and shards nothing.",
            (long long)shards);
}

// ---- activations -----------------------------------------------------------------------

struct measured {          // in a dry run of one micro-batch under one policy
    int64_t layer_bytes;   // kept by one layer
    int64_t working_bytes; // most that one holds beside what it keeps, in backward
    int64_t head_bytes;    // most beside what all layers keep: norm, logits, their gradients
};

static bool measure_policy(const struct run *r, enum tape_policy policy, struct measured *m,
                           struct error *e)
{
    static struct config c; // large
    struct run dry;
    c = *r->config;
    c.step.batch = c.step.micro_batch;
    c.model.policies = NULL;
    c.model.checkpoint = policy;
    c.sample.tokens = c.eval_every = c.budget_bytes = 0;
    if (!run_measure(&dry, &c, CONFIG_PLAN, e))
        return false;
    const struct tape *t = &dry.tape;
    const struct segment *first = &t->segment[0], *last = &t->segment[t->segment_count - 1];
    *m = (struct measured){.layer_bytes =
                               (last->low_after_bytes - first->low_before_bytes) / c.model.layers,
                           .working_bytes = first->backward_peak_bytes - first->low_after_bytes,
                           .head_bytes = last->after_peak_bytes - last->low_after_bytes};
    run_close(&dry);
    return true;
}

static void explain_layer(struct explain_row *row, const struct config *c, enum rules_recompute how)
{
    bool tiled = c->model.attention == GPT_ATTENTION_TILED;
    int bytes = (int)dtype_bytes(precision_dtype(c->model.activations));
    char size[40] = "";
    if (bytes != 2)
        snprintf(size, sizeof(size), "numbers of %d bytes, not 2", bytes);
    if (how == RULES_FULL) {
        because(row, "A layer's input alone%s%s.", bytes != 2 ? ", in " : "", size);
        return;
    }
    because(row, "No dropout masks (they are drawn again)%s%s%s.", bytes != 2 ? "; " : "", size,
            how != RULES_NONE ? ""
            : tiled           ? "; tiled attention keeps no as^2 term"
                              : "; scores and probabilities share one buffer");
}

static void add_left_out(struct explain *x, const struct measured *full,
                         const struct measured *none, const struct rules_layer *l, int64_t vocab)
{
    because(add(x, (struct explain_row){.name = "replayed_layer",
                                        .what = "replayed layer",
                                        .formula = "left out",
                                        .source = layer_source,
                                        .has_exact = true,
                                        .exact_bytes = full->working_bytes}),
            "With full recomputation a layer is whole again in backward, gradients and scratch on "
            "top.");
    because(add(x, (struct explain_row){.name = "logits",
                                        .what = "logits",
                                        .formula = "4 sbv",
                                        .source = layer_source,
                                        .rule_bytes = rules_logits_bytes(l, (double)vocab),
                                        .has_exact = true,
                                        .exact_bytes = none->head_bytes}),
            "Outside the formula of a layer. Here with the final norm's output, statistics and "
            "gradient.");
}

static bool add_layers(struct explain *x, const struct run *r, struct error *e)
{
    static const struct {
        const char *name, *what;
        enum tape_policy policy;
    } mode[RULES_RECOMPUTE_COUNT] = {
        [RULES_NONE] = {"layer_none", "layer, checkpoint none", POLICY_NONE},
        [RULES_SELECTIVE] = {"layer_selective", "layer, selective", POLICY_SELECTIVE},
        [RULES_FULL] = {"layer_full", "layer, full", POLICY_FULL},
    };
    const struct config *c = r->config;
    struct rules_layer l = {.sequence = (double)c->step.seq,
                            .batch = (double)c->step.micro_batch,
                            .width = (double)c->model.width,
                            .heads = (double)c->model.heads};
    struct measured m[RULES_RECOMPUTE_COUNT];
    for (int i = 0; i < RULES_RECOMPUTE_COUNT; i++) {
        enum rules_recompute how = (enum rules_recompute)i;
        if (!measure_policy(r, mode[i].policy, &m[i], e))
            return false;
        explain_layer(add(x, (struct explain_row){.name = mode[i].name,
                                                  .what = mode[i].what,
                                                  .formula = rules_layer_formula(how),
                                                  .source = layer_source,
                                                  .rule_bytes = rules_layer_bytes(&l, how),
                                                  .has_exact = true,
                                                  .exact_bytes = m[i].layer_bytes}),
                      c, how);
    }
    add_left_out(x, &m[RULES_FULL], &m[RULES_NONE], &l, c->model.vocab);
    return true;
}

static void add_kv(struct explain *x, const struct run *r)
{
    const struct gpt_config *m = &r->config->model;
    int64_t exact = r->tape.arena.ledger.counts.peak[LEDGER_KV_CACHE];
    double token = rules_kv_bytes((double)m->layers, (double)m->heads,
                                  (double)(m->width / m->heads), sizeof(uint16_t));
    struct explain_row *row = add(x, (struct explain_row){.name = "kv_cache",
                                                          .what = "keys and values",
                                                          .formula = "4 LaD s",
                                                          .source = kv_source,
                                                          .rule_bytes = token * (double)m->context,
                                                          .has_exact = true,
                                                          .exact_bytes = exact});
    because(
        row,
        "%.0f a token in 16 bits, times a context of %lld. This plan's sample keeps %lld, in %s.",
        token, (long long)m->context, (long long)r->generate.cache_tokens,
        dtype_name(r->tape.activation_dtype));
}

bool explain_make(struct explain *x, const struct run *r, int64_t shards, struct error *e)
{
    x->count = 0;
    add_states(x, r);
    add_zero(x, r, shards);
    if (!add_layers(x, r, e))
        return false;
    add_kv(x, r);
    return true;
}

// ---- telling ---------------------------------------------------------------------------

static void table_line(FILE *f, const struct explain_row *row)
{
    char exact[24] = "-", rule[24] = "-", ratio[24] = "-";
    if (row->rule_bytes > 0)
        snprintf(rule, sizeof(rule), "%.0f", row->rule_bytes);
    if (row->has_exact)
        snprintf(exact, sizeof(exact), "%lld", (long long)row->exact_bytes);
    if (row->has_exact && row->rule_bytes > 0)
        snprintf(ratio, sizeof(ratio), "%.3f", (double)row->exact_bytes / row->rule_bytes);
    fprintf(f, "  %-22s %-16s %17s %17s %8s\n      %s\n", row->what, row->formula, rule, exact,
            ratio, row->why);
}

void explain_table(FILE *f, const struct explain *x)
{
    fprintf(f,
            "Textbook formulas beside this plan, in bytes; none of them went into the plan. P: "
            "parameters,\ns sequence, b micro-batch, h width, a heads, v vocabulary, L layers, D "
            "head size; 16-bit numbers.\n");
    fprintf(f, "  %-22s %-16s %17s %17s %8s\n", "", "formula", "says", "this plan", "ratio");
    for (int i = 0; i < x->count; i++) {
        if (i == 0 || x->row[i].source != x->row[i - 1].source)
            fprintf(f, "%s\n", x->row[i].source);
        table_line(f, &x->row[i]);
    }
}

void explain_json(struct json *j, const struct explain *x)
{
    json_array(j, "explain");
    for (int i = 0; i < x->count; i++) {
        const struct explain_row *row = &x->row[i];
        bool has_ratio = row->has_exact && row->rule_bytes > 0;
        json_object(j, NULL);
        json_text(j, "name", row->name);
        json_text(j, "formula", row->formula);
        json_text(j, "source", row->source);
        json_real(j, "rule_bytes", row->rule_bytes > 0 ? row->rule_bytes : NAN);
        if (row->has_exact)
            json_int(j, "exact_bytes", row->exact_bytes);
        else
            json_null(j, "exact_bytes");
        json_real(j, "ratio", has_ratio ? (double)row->exact_bytes / row->rule_bytes : NAN);
        json_text(j, "why", row->why);
        json_end(j);
    }
    json_end(j);
}
