// cmd_plan.c - memtape plan: what train would hold, from a dry run of the same calls.
#include "src/commands.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "plan",
    .summary = "Takes train's options and says what it would hold, to the byte, without training.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE};

static bool report(const struct run *r, const struct settings *s, struct error *e)
{
    const struct ledger_counts *counts = &r->tape.arena.ledger.counts;
    if (s->quiet <= 0 && (s->json == NULL || strcmp(s->json, "-") != 0)) {
        report_model_line(stdout, r->config, &r->gpt);
        report_memory_table(stdout, counts, NULL);
    }
    if (s->json == NULL)
        return true;
    struct json j;
    if (!json_open(&j, s->json, e))
        return false;
    json_object(&j, NULL);
    report_model_json(&j, r->config, &r->gpt);
    report_flops_json(&j, &r->tape);
    report_memory_json(&j, counts, NULL);
    json_end(&j);
    return json_close(&j, s->json, e);
}

int cmd_plan(int argc, char **argv)
{
    static struct settings s;
    static struct config c;
    static struct run r;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    if (!command_config(&c, &s, CONFIG_PLAN, &e))
        return command_refuse(command.name, &e);
    if (!run_measure(&r, &c, CONFIG_PLAN, &e)) {
        config_close(&c);
        return command_refuse(command.name, &e);
    }
    status = report(&r, &s, &e) ? EXIT_OK : command_refuse(command.name, &e);
    run_close(&r);
    config_close(&c);
    return status;
}
