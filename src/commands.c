#include "src/commands.h"

#include "src/auto.h"
#include "src/budget.h"
#include "src/system.h"

#include <stdio.h>
#include <string.h>
#include <errno.h>

int command_refuse(const char *command, const struct error *e)
{
    if (e->text[0] != 0)
        fprintf(stderr, "memtape %s: %s\n", command, e->text);
    return EXIT_REFUSED;
}

// Before any work is done: could what it ends in be written?
static bool can_report(const struct settings *s, struct error *e)
{
    const struct {
        const char *name, *path;
    } place[] = {{"json", s->json}, {"csv", s->csv}, {"save-gradients", s->save_gradients}};
    for (int i = 0; i < COUNT_OF(place); i++)
        if (place[i].path != NULL && strcmp(place[i].path, "-") != 0 &&
            !system_can_write(place[i].path))
            return refuse(e, "--%s %s: %s", place[i].name, place[i].path, strerror(errno));
    return true;
}

bool command_begin(const struct command *c, struct settings *s, int argc, char **argv, int *status)
{
    struct error e;
    settings_clear(s);
    s->command = c->name;
    *status = EXIT_OK;
    if (!options_parse(s, c->groups, c->operand != NULL, argc, argv, &e)) {
        *status = command_refuse(c->name, &e);
        return false;
    }
    if (s->help > 0) {
        printf("usage: memtape %s%s%s [--option value ...]\n%s\n\n", c->name,
               c->operand != NULL ? " " : "", c->operand != NULL ? c->operand : "", c->summary);
        options_help(c->groups);
        return false;
    }
    if (!can_report(s, &e)) {
        *status = command_refuse(c->name, &e);
        return false;
    }
    if (c->operand == NULL || s->operand != NULL)
        return true;
    refuse(&e, "which %s? usage: memtape %s %s [--option value ...]", c->operand, c->name,
           c->operand);
    *status = command_refuse(c->name, &e);
    return false;
}

bool command_measure(struct run *r, struct config *c, const struct settings *s, enum config_use use,
                     struct error *e)
{
    if (!run_measure(r, c, use, e))
        return false;
    budget_guard(r);
    if (budget_holds(r))
        return true;
    budget_explain(stderr, r, s);
    run_close(r);
    e->text[0] = 0;
    return false;
}

bool command_open(struct run *r, struct config *c, const struct settings *s, enum config_use use,
                  struct error *e)
{
    return command_measure(r, c, s, use, e) && run_reserve(r, e);
}

bool command_config(struct config *c, struct settings *s, enum config_use use, struct error *e)
{
    if (!config_build(c, s, use, e))
        return false;
    if (!budget_of_process(c, e)) {
        config_close(c);
        return false;
    }
    if (auto_choose(c, e))
        return true;
    static struct run least; // what auto_choose leaves in c then is the least that it could do
    struct error ignored;
    if (c->budget_bytes > 0 && c->activation_budget_bytes == 0 &&
        run_measure(&least, c, use, &ignored)) {
        if (!budget_holds(&least)) {
            budget_explain(stderr, &least, s);
            e->text[0] = 0;
        }
        run_close(&least);
    }
    config_close(c);
    return false;
}
