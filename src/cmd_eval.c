// cmd_eval.c - memtape eval DIR: the loss of a snapshot's model over a whole validation split.
#include "src/commands.h"
#include "src/hunt.h"
#include "src/system.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "eval",
    .summary = "Loss of a snapshot's model over the whole validation split (the last tenth) of a\n"
               "text. The text must be written in the characters of the snapshot's tokenizer. "
               "--micro-batch\nis how many sequences a forward takes (default 12); the loss does "
               "not depend on it.",
    .operand = "DIR",
    .groups = OPTIONS_COMMON | OPTIONS_BASE | OPTIONS_EVAL};

struct evaluation {
    double loss, seconds;
    int64_t targets;
};

static bool report(const struct run *r, const struct settings *s, const struct evaluation *v,
                   struct error *e)
{
    const struct ledger_counts *counts = &r->tape.arena.ledger.counts;
    struct report_outside outside = report_measure_outside(r);
    double rate = v->seconds > 0 ? (double)v->targets / v->seconds : 0;
    if (!json_is_stdout(s->json)) {
        printf("validation loss %.6f over %lld targets\n", v->loss, (long long)v->targets);
        if (s->quiet <= 0)
            report_memory_table(stdout, counts, &outside);
    }
    if (s->json == NULL)
        return true;
    struct json j;
    if (!json_open(&j, s->json, e))
        return false;
    json_object(&j, NULL);
    json_real(&j, "val_loss", v->loss);
    json_int(&j, "targets", v->targets);
    json_real(&j, "tokens_per_second", rate);
    report_model_json(&j, r->config, &r->gpt);
    report_memory_json(&j, counts, &outside);
    json_end(&j);
    return json_close(&j, s->json, e);
}

static bool evaluate(struct run *r, const struct settings *s, struct error *e)
{
    struct evaluation v = {0};
    if (s->quiet <= 0)
        report_model_line(stderr, r->config, &r->gpt);
    static struct hunt hunt;
    hunt.command = command.name;
    if (s->trap_nan > 0)
        hunt_begin(&hunt, r);
    double start = system_seconds();
    if (!run_validate(r, 0, &v.loss, &v.targets, e))
        return false;
    v.seconds = system_seconds() - start;
    return report(r, s, &v, e);
}

int cmd_eval(int argc, char **argv)
{
    static struct settings s;
    static struct config c;
    static struct run r;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    s.batch = s.micro_batch; // there is no optimizer step to split
    if (!config_build(&c, &s, CONFIG_EVAL, &e))
        return command_refuse(command.name, &e);
    if (command_open(&r, &c, &s, CONFIG_EVAL, &e)) {
        status = evaluate(&r, &s, &e) ? EXIT_OK : command_refuse(command.name, &e);
        run_close(&r);
    } else {
        status = command_refuse(command.name, &e);
    }
    config_close(&c);
    return status;
}
