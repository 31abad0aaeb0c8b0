// cmd_plan.c - memtape plan: what train would hold, or generate, from a dry run of the same calls.
#include "src/commands.h"

#include "src/explain.h"
#include "src/finding.h"
#include "src/live.h"
#include "src/outside.h"
#include "src/states.h"
#include "tape/text.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "plan",
    .summary =
        "Takes train's options and says what it would hold, to the byte, without training; with\n"
        "--generate, what generating so many tokens would hold.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE | OPTIONS_PLAN};

enum { LIVE_SHOWN = 10 };

struct planned { // what is told, all of it read from dry runs
    const struct run *run;
    const struct ledger_counts *counts;
    struct live live;
    struct findings findings;
    struct explain explain;
};

// Where the preset is not what its paper prints; NULL.
static const char *note_of(const struct config *c)
{
    for (int i = 0; i < gpt_preset_count; i++) {
        const struct gpt_config *p = &gpt_presets[i].config;
        if (strcmp(gpt_presets[i].name, c->model_name) == 0 && p->heads == c->model.heads &&
            p->width == c->model.width)
            return gpt_presets[i].note;
    }
    return NULL;
}

// ---- for people ------------------------------------------------------------------------

static void flops_line(FILE *f, const struct tape *t)
{
    double total = 0;
    for (int i = PHASE_FORWARD; i <= PHASE_RECOMPUTE; i++)
        total += (double)t->flops[i];
    fprintf(f, "FLOPs of a step:");
    for (int i = PHASE_FORWARD; i <= PHASE_RECOMPUTE; i++)
        fprintf(f, "  %s %.4g (%.1f%%)", ledger_phase_name((enum ledger_phase)i),
                (double)t->flops[i], 100 * (double)t->flops[i] / total);
    fprintf(f, "  together %.4g\n", total);
}

// The model, its memory and what lives at the peak: of a training or of an inference.
static void tell_memory(const struct planned *p)
{
    const struct run *r = p->run;
    const char *note = note_of(r->config);
    report_model_line(stdout, r->config, &r->gpt);
    if (note != NULL)
        printf("  (%s)\n", note);
    report_memory_table(stdout, p->counts, NULL);
    report_process_line(stdout, p->counts->total_peak, r->config->outside_bytes);
    if (r->config->sample.tokens > 0)
        report_cache_line(stdout, r);
    live_table(stdout, &p->live, p->counts, LIVE_SHOWN);
}

static void tell(const struct planned *p, const struct settings *s)
{
    const struct run *r = p->run;
    tell_memory(p);
    if (r->use == CONFIG_GENERATE)
        return;
    flops_line(stdout, &r->tape);
    for (int i = 0; i < p->findings.count; i++)
        printf("* %s\n", p->findings.item[i].text);
    if (s->explain > 0) {
        printf("\n");
        explain_table(stdout, &p->explain);
    }
}

// ---- for programs ----------------------------------------------------------------------

static void findings_json(struct json *j, const struct findings *f)
{
    json_array(j, "findings");
    for (int i = 0; i < f->count; i++) {
        json_object(j, NULL);
        json_text(j, "name", f->item[i].name);
        json_int(j, "bytes", f->item[i].bytes);
        json_real(j, "times", f->item[i].times);
        json_text(j, "text", f->item[i].text);
        json_end(j);
    }
    json_end(j);
}

static bool write_json(const struct planned *p, const struct settings *s, struct error *e)
{
    const struct run *r = p->run;
    const char *note = note_of(r->config);
    bool trains = r->use != CONFIG_GENERATE;
    struct json j;
    if (!json_open(&j, s->json, e))
        return false;
    json_object(&j, NULL);
    report_model_json(&j, r->config, &r->gpt);
    if (note != NULL)
        json_text(&j, "note", note);
    if (trains)
        report_flops_json(&j, &r->tape);
    int64_t outside = r->config->outside_bytes;
    report_memory_json(&j, p->counts,
                       &(struct report_outside){.now_bytes = outside, .peak_bytes = outside});
    report_process_json(&j, p->counts->total_peak, outside);
    report_cache_json(&j, r);
    live_json(&j, &p->live, p->counts);
    if (trains)
        findings_json(&j, &p->findings);
    if (s->explain > 0)
        explain_json(&j, &p->explain);
    json_end(&j);
    return json_close(&j, s->json, e);
}

// ---- the command -----------------------------------------------------------------------

static bool report(const struct run *r, const struct settings *s, struct error *e)
{
    static struct planned p; // large
    int64_t shards = s->shards != UNSET_INT ? s->shards : EXPLAIN_SHARDS;
    p.run = r;
    p.counts = &r->tape.arena.ledger.counts;
    live_at_peak(&p.live, &r->tape.arena.ledger);
    if (r->use != CONFIG_GENERATE)
        findings_make(&p.findings, r);
    if (s->explain > 0 && !explain_make(&p.explain, r, shards, e))
        return false;
    if (s->quiet <= 0 && !json_is_stdout(s->json))
        tell(&p, s);
    return s->json == NULL || write_json(&p, s, e);
}

// --params: no model, no plan.
static bool report_states(const struct settings *s, struct error *e)
{
    char others[256];
    int64_t params, shards = s->shards != UNSET_INT ? s->shards : 0;
    struct json j;
    options_command(s, command.groups & ~(OPTIONS_COMMON | OPTIONS_PLAN), others, sizeof(others));
    if (others[0] != 0 || s->explain > 0 || s->generate != UNSET_INT)
        return refuse(e, "--params is for states alone, without a model: leave out%s",
                      others[0] != 0   ? others
                      : s->explain > 0 ? " --explain"
                                       : " --generate");
    if (!states_parse(s->params, &params, e))
        return false;
    if (s->quiet <= 0 && !json_is_stdout(s->json))
        states_table(stdout, params, shards);
    if (s->json == NULL)
        return true;
    if (!json_open(&j, s->json, e))
        return false;
    json_object(&j, NULL);
    states_json(&j, params, shards);
    json_end(&j);
    return json_close(&j, s->json, e);
}

// --generate: weights, keys and values, a window and scratch. Options of a training would do
// nothing.
static bool check_inference(const struct settings *s, struct error *e)
{
    static struct settings other; // large
    char words[256];
    if (s->generate == UNSET_INT && s->prompt_tokens != UNSET_INT)
        return refuse(e, "--prompt-tokens is for --generate: train's sample has a --prompt");
    if (s->generate == UNSET_INT)
        return true;
    other = *s;
    other.seed = UNSET_INT; // draws the text, too
    options_command(&other, OPTIONS_TRAIN, words, sizeof(words));
    if (words[0] != 0 || s->explain > 0 || s->activation_budget != NULL ||
        (s->checkpoint != NULL && strcmp(s->checkpoint, "auto") == 0))
        return refuse(e, "--generate plans an inference, without training: leave out%s",
                      words[0] != 0                  ? words
                      : s->explain > 0               ? " --explain"
                      : s->activation_budget != NULL ? " --activation-budget"
                                                     : " --checkpoint auto");
    if (s->sample != UNSET_INT)
        return refuse(e, "--generate and --sample-tokens both say how many tokens: give one");
    if (s->prompt != NULL && s->prompt_tokens != UNSET_INT)
        return refuse(e, "--prompt and --prompt-tokens both say how long the prompt is: give one");
    return true;
}

static bool plan(struct settings *s, struct error *e)
{
    static struct config c;
    static struct run r;
    enum config_use use = s->generate != UNSET_INT ? CONFIG_GENERATE : CONFIG_PLAN;
    if (s->params != NULL)
        return report_states(s, e);
    if (s->shards != UNSET_INT && s->explain <= 0)
        return refuse(e, "--shards is for --explain and --params: this program shards nothing");
    if (!check_inference(s, e) || !command_config(&c, s, CONFIG_PLAN, e))
        return false;
    bool ok = outside_measure(&c, e) && // before the dry run's tables are there
              command_measure(&r, &c, s, use, e);
    if (ok) {
        ok = report(&r, s, e);
        run_close(&r);
    }
    config_close(&c);
    return ok;
}

int cmd_plan(int argc, char **argv)
{
    static struct settings s;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    return plan(&s, &e) ? EXIT_OK : command_refuse(command.name, &e);
}
