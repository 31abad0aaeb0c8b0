// cmd_ops.c - memtape ops: every op there is, from the registry that the gradient tests walk.
#include "src/commands.h"
#include "src/describe.h"
#include "tape/ops/ops.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "ops",
    .summary = "Lists all ops: formula, what backward reads and why, cost class, which input's\n"
               "buffer is taken over, and how the gradient passes.",
    .groups = OPTIONS_REPORT};

static void table(FILE *f)
{
    char needs[DESCRIBE_BYTES];
    fprintf(f, "%-14s %-50s %-15s %-9s %-12s %s\n", "op", "formula", "backward reads", "cost",
            "takes over", "gradient");
    for (int i = 0; i < op_registry_count; i++) {
        const struct op *o = op_registry[i];
        fprintf(f, "%-14s %-50s %-15s %-9s %-12s %s\n", o->name, o->formula,
                describe_needs(o, needs), describe_cost(o), describe_takes(o),
                describe_gradient(o));
        fprintf(f, "%-14s keeps %s\n", "", o->keeps);
    }
    fprintf(f, "%d ops. Takes over: only an input that nothing else wants.\n", op_registry_count);
}

static bool report_json(const char *path, struct error *e)
{
    char needs[DESCRIBE_BYTES];
    struct json j;
    if (!json_open(&j, path, e))
        return false;
    json_object(&j, NULL);
    json_array(&j, "ops");
    for (int i = 0; i < op_registry_count; i++) {
        const struct op *o = op_registry[i];
        json_object(&j, NULL);
        json_text(&j, "name", o->name);
        json_text(&j, "formula", o->formula);
        json_text(&j, "needs", describe_needs(o, needs));
        json_text(&j, "saved", o->saved_name != NULL ? o->saved_name : "");
        json_text(&j, "keeps", o->keeps);
        json_text(&j, "cost", describe_cost(o));
        json_text(&j, "takes", describe_takes(o));
        json_text(&j, "gradient", describe_gradient(o));
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    return json_close(&j, path, e);
}

int cmd_ops(int argc, char **argv)
{
    static struct settings s;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    if (s.quiet <= 0 && !json_is_stdout(s.json))
        table(stdout);
    if (s.json != NULL && !report_json(s.json, &e))
        return command_refuse(command.name, &e);
    return EXIT_OK;
}
