// cmd_ladder.c - memtape ladder: what each way to store less does to one model, side by side.
//
// A rung is a few options more on the command line. Each goes through the same parsing, checking
// and dry run as `memtape plan` with these options, once plain and once with --checkpoint full.
#include "src/commands.h"
#include "tape/text.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONS_MAX = 4, RUNGS = 14, GROUPS = OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN };

static const struct command command = {
    .name = "ladder",
    .summary = "Plans one model with each way to store less: bf16 weights with f32 masters, other\n"
               "optimizers, adapters, inference. Takes train's options but those (--batch: 4).",
    .groups = OPTIONS_COMMON | GROUPS};

struct rung {
    const char *name;
    struct {
        const char *option, *value;
    } set[OPTIONS_MAX];
    bool infers; // generates as many tokens as the context holds, without training
};

static const struct rung rungs[RUNGS] = {
    {"f32, AdamW", {{0}}, false},
    {"bf16 with f32 masters", {{"precision", "bf16"}, {"grad-precision", "bf16"}}, false},
    {"bf16, f32 gradients", {{"precision", "bf16"}, {"grad-precision", "f32"}}, false},
    {"adamw8bit", {{"optimizer", "adamw8bit"}}, false},
    {"lion", {{"optimizer", "lion"}}, false},
    {"momentum", {{"optimizer", "momentum"}}, false},
    {"adafactor", {{"optimizer", "adafactor"}}, false},
    {"sgd", {{"optimizer", "sgd"}}, false},
    {"LoRA r=8", {{"lora", "8"}}, false},
    {"bf16, adamw8bit",
     {{"precision", "bf16"}, {"grad-precision", "bf16"}, {"optimizer", "adamw8bit"}},
     false},
    {"bf16, adamw8bit, chunked loss",
     {{"precision", "bf16"},
      {"grad-precision", "bf16"},
      {"optimizer", "adamw8bit"},
      {"loss", "chunked"}},
     false},
    {"bf16, LoRA r=8", {{"precision", "bf16"}, {"lora", "8"}}, false},
    {"inference, f32", {{0}}, true},
    {"inference, bf16", {{"precision", "bf16"}}, true},
};

static const enum ledger_category states[] = {LEDGER_WEIGHTS, LEDGER_GRADIENTS,
                                              LEDGER_MASTER_WEIGHTS, LEDGER_OPTIMIZER_STATE,
                                              LEDGER_KV_CACHE};

struct planned { // of one rung
    int64_t params, trained;
    int64_t bytes[COUNT_OF(states)];
    int64_t peak_bytes, checkpointed_bytes; // the second 0 if there is no backward
    char options[256];
};

struct ladder {
    struct settings settings; // as given
    struct config config;     // of the rung at work
    struct run run;
    struct planned rung[RUNGS];
};

// ---- planning --------------------------------------------------------------------------

static bool check_free(const struct settings *s, struct error *e)
{
    const struct {
        const char *name, *value;
    } own[] = {{"precision", s->precision},
               {"grad-precision", s->grad_precision},
               {"optimizer", s->optimizer},
               {"lora", s->lora},
               {"lora-targets", s->lora_targets},
               {"lora-bias", s->lora_bias},
               {"loss", s->loss},
               {"checkpoint", s->checkpoint}};
    for (int i = 0; i < COUNT_OF(own); i++)
        if (own[i].value != NULL)
            return refuse(e, "--%s: the rungs differ in that: leave it out", own[i].name);
    return true;
}

static bool climb(struct settings *s, const struct rung *r, bool checkpoints, struct error *e)
{
    if (s->batch == UNSET_INT)
        s->batch = 4;
    for (int i = 0; i < OPTIONS_MAX && r->set[i].option != NULL; i++)
        if (!options_set(s, command.groups, r->set[i].option, r->set[i].value, e))
            return false;
    return !checkpoints || options_set(s, command.groups, "checkpoint", "full", e);
}

// The dry run of one rung; its tape stays open.
static bool measure(struct ladder *l, const struct rung *r, bool checkpoints, struct error *e)
{
    struct settings s = l->settings;
    enum config_use use = r->infers ? CONFIG_GENERATE : CONFIG_PLAN;
    if (!climb(&s, r, checkpoints, e) ||
        !config_build(&l->config, &s, r->infers ? CONFIG_PLAN : use, e))
        return false;
    l->config.sample.tokens = r->infers ? l->config.model.context : 0;
    bool ok = run_measure(&l->run, &l->config, use, e);
    if (!ok)
        config_close(&l->config);
    return ok;
}

static void close_rung(struct ladder *l)
{
    run_close(&l->run);
    config_close(&l->config);
}

static bool plan(struct ladder *l, int i, struct error *e)
{
    const struct rung *r = &rungs[i];
    struct planned *p = &l->rung[i];
    const struct ledger_counts *c = &l->run.tape.arena.ledger.counts;
    size_t used = 0;
    for (int k = 0; k < OPTIONS_MAX && r->set[k].option != NULL; k++) {
        used = text_append(p->options, sizeof(p->options), used, k > 0 ? " --" : "--");
        used = text_append(p->options, sizeof(p->options), used, r->set[k].option);
        used = text_append(p->options, sizeof(p->options), used, " ");
        used = text_append(p->options, sizeof(p->options), used, r->set[k].value);
    }
    if (!measure(l, r, false, e))
        return false;
    p->params = params_count(&l->run.gpt.params);
    p->trained = r->infers ? 0 : params_trainable(&l->run.gpt.params);
    for (int k = 0; k < COUNT_OF(states); k++)
        p->bytes[k] = c->peak[states[k]];
    p->peak_bytes = c->total_peak;
    close_rung(l);
    if (r->infers)
        return true;
    if (!measure(l, r, true, e))
        return false;
    p->checkpointed_bytes = c->total_peak;
    close_rung(l);
    return true;
}

// ---- reports ---------------------------------------------------------------------------

// Weights, gradients, masters and optimizer state, for each number of the model.
static double per_param(const struct planned *p)
{
    double sum = 0;
    for (int k = 0; k < COUNT_OF(states); k++)
        sum += states[k] == LEDGER_KV_CACHE ? 0 : (double)p->bytes[k];
    return sum / (double)p->params;
}

static void print_bytes(int64_t bytes, int width)
{
    if (bytes > 0)
        printf(" %*lld", width, (long long)bytes);
    else
        printf(" %*s", width, "-");
}

static void tell(const struct ladder *l)
{
    const struct settings *s = &l->settings;
    printf("%-30s %12s %12s %12s %12s %12s %8s %13s %13s\n", "bytes", "weights", "gradients",
           "masters", "state", "KV cache", "B/param", "peak", "checkpointed");
    for (int i = 0; i < RUNGS; i++) {
        const struct planned *p = &l->rung[i];
        printf("%-30s", rungs[i].name);
        for (int k = 0; k < COUNT_OF(states); k++)
            print_bytes(p->bytes[k], 12);
        printf(" %8.3f", per_param(p));
        print_bytes(p->peak_bytes, 13);
        print_bytes(p->checkpointed_bytes, 13);
        printf("\n");
    }
    printf("%lld parameters. Peaks: a training step of %lld sequences, without and with "
           "--checkpoint full;\nof inference, as many tokens as the context holds. Each rung is "
           "`memtape plan` with its options:\n",
           (long long)l->rung[0].params, (long long)(s->batch == UNSET_INT ? 4 : s->batch));
    for (int i = 0; i < RUNGS; i++)
        if (l->rung[i].options[0] != 0)
            printf("  %-30s %s\n", rungs[i].name, l->rung[i].options);
}

static void rung_json(struct json *j, const struct rung *r, const struct planned *p)
{
    json_object(j, NULL);
    json_text(j, "name", r->name);
    json_text(j, "options", p->options);
    json_bool(j, "infers", r->infers);
    json_int(j, "parameters", p->params);
    json_int(j, "trained", p->trained);
    for (int k = 0; k < COUNT_OF(states); k++)
        json_int(j, ledger_category_name(states[k]), p->bytes[k]);
    json_real(j, "bytes_per_parameter", per_param(p));
    json_int(j, "peak_bytes", p->peak_bytes);
    if (r->infers)
        json_null(j, "checkpointed_peak_bytes");
    else
        json_int(j, "checkpointed_peak_bytes", p->checkpointed_bytes);
    json_end(j);
}

static bool write_json(const struct ladder *l, struct error *e)
{
    struct json j;
    if (!json_open(&j, l->settings.json, e))
        return false;
    json_object(&j, NULL);
    json_array(&j, "rungs");
    for (int i = 0; i < RUNGS; i++)
        rung_json(&j, &rungs[i], &l->rung[i]);
    json_end(&j);
    json_end(&j);
    return json_close(&j, l->settings.json, e);
}

int cmd_ladder(int argc, char **argv)
{
    static struct ladder l; // large
    struct error e;
    int status;
    if (!command_begin(&command, &l.settings, argc, argv, &status))
        return status;
    bool ok = check_free(&l.settings, &e);
    for (int i = 0; ok && i < RUNGS; i++)
        ok = plan(&l, i, &e);
    if (ok && l.settings.quiet <= 0 && !json_is_stdout(l.settings.json))
        tell(&l);
    ok = ok && (l.settings.json == NULL || write_json(&l, &e));
    return ok ? EXIT_OK : command_refuse(command.name, &e);
}
