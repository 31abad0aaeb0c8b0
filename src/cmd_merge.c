// cmd_merge.c - memtape merge DIR: adapters, folded into the weights of their base.
#include "src/commands.h"

#include "nn/merge.h"
#include "src/system.h"

#include <stdio.h>

static const struct command command = {
    .name = "merge",
    .summary = "Writes a snapshot of a plain model, --out DIR, that does what the adapters in DIR\n"
               "do with their base. It holds no optimizer state; train --init goes on from it.",
    .operand = "DIR",
    .groups = OPTIONS_COMMON | OPTIONS_BASE | OPTIONS_MERGE};

struct merging {
    struct settings settings;
    struct config config;
    struct run run;
    struct gpt merged;
};

static bool calls(struct run *r, void *user, struct error *e)
{
    struct merging *m = user;
    struct gpt_config c = merge_config(&r->config->model);
    (void)e;
    gpt_init(&m->merged, &r->tape, &c);
    if (!tape_is_dry(&r->tape))
        merge_weights(&m->merged, &r->gpt);
    return true;
}

static bool check(const struct merging *m, struct error *e)
{
    const struct config *c = &m->config;
    const char *out = m->settings.out;
    if (c->model.lora.rank == 0)
        return refuse(e, "%s holds no adapters: there is nothing to merge", c->snapshot_dir);
    if (out == NULL)
        return refuse(e, "where to? --out DIR says where the model goes");
    return (!system_is_same_place(out, c->snapshot_dir) &&
            !system_is_same_place(out, c->base.dir)) ||
           refuse(e, "--out %s is what is merged: expected a directory of its own", out);
}

static bool write(struct merging *m, struct error *e)
{
    static struct snapshot_info info; // large
    info = m->config.snapshot;
    info.model = m->merged.config;
    snprintf(info.optimizer, sizeof(info.optimizer), "none");
    if (!snapshot_write(m->settings.out, &info, &m->merged.params, e))
        return false;
    if (m->settings.quiet <= 0)
        printf("%lld parameters, head %s, in %s\n", (long long)params_count(&m->merged.params),
               info.model.tie ? "tied" : "untied", m->settings.out);
    return true;
}

static bool merge(struct merging *m, struct error *e)
{
    if (!check(m, e) || !run_open_for(&m->run, &m->config, CONFIG_MERGE, calls, m, e))
        return false;
    bool ok = calls(&m->run, m, e) && write(m, e);
    run_close(&m->run);
    return ok;
}

int cmd_merge(int argc, char **argv)
{
    static struct merging m;
    struct error e;
    int status;
    if (!command_begin(&command, &m.settings, argc, argv, &status))
        return status;
    if (!config_build(&m.config, &m.settings, CONFIG_MERGE, &e))
        return command_refuse(command.name, &e);
    bool ok = merge(&m, &e);
    config_close(&m.config);
    return ok ? EXIT_OK : command_refuse(command.name, &e);
}
