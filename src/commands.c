#include "src/commands.h"

#include "src/auto.h"

#include <stdio.h>

int command_refuse(const char *command, const struct error *e)
{
    fprintf(stderr, "memtape %s: %s\n", command, e->text);
    return EXIT_REFUSED;
}

bool command_begin(const struct command *c, struct settings *s, int argc, char **argv, int *status)
{
    struct error e;
    settings_clear(s);
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
    if (c->operand == NULL || s->operand != NULL)
        return true;
    refuse(&e, "which %s? usage: memtape %s %s [--option value ...]", c->operand, c->name,
           c->operand);
    *status = command_refuse(c->name, &e);
    return false;
}

bool command_config(struct config *c, struct settings *s, enum config_use use, struct error *e)
{
    if (!config_build(c, s, use, e))
        return false;
    if (auto_choose(c, e))
        return true;
    config_close(c);
    return false;
}
