// cmd_check.c - memtape check WHAT: are the laws of exactness kept on this configuration?
#include "src/check.h"
#include "src/commands.h"
#include "src/system.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "check",
    .summary =
        "Takes a few steps of training in several ways that must not differ in a single bit, and\n"
        "says whether they do. WHAT is one of\n"
        "  accumulate   the batch at once, or in micro-batches\n"
        "  checkpoint   what backward needs kept, or recomputed\n"
        "  threads      1, 2, 3, 4, 8\n"
        "  resume       at once, or through a snapshot\n"
        "  gradients    against slopes measured in double precision (no bits: 1e-6)\n"
        "  against      against another program's gradients, --against FILE (no bits: 1e-5)\n"
        "  all          all of them (against: if there is a FILE)\n"
        "Ends with status 1 if a law is broken.",
    .operand = "WHAT",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_CHECK};

static const struct {
    const char *name;
    bool (*run)(struct check *k, struct error *e);
} checks[] = {{"accumulate", check_accumulate}, {"checkpoint", check_checkpoint},
              {"threads", check_threads},       {"resume", check_resume},
              {"gradients", check_gradients},   {"against", check_against}};

static bool is_wanted(const struct check *k, int i)
{
    const char *what = k->settings.operand;
    bool is_possible = checks[i].run != check_against || k->settings.against != NULL;
    return strcmp(what, checks[i].name) == 0 || (strcmp(what, "all") == 0 && is_possible);
}

static bool check_what(const struct check *k, struct error *e)
{
    if (strcmp(k->settings.operand, "against") == 0 && k->settings.against == NULL)
        return refuse(e, "against what? --against FILE names the other program's gradients");
    for (int i = 0; i < COUNT_OF(checks); i++)
        if (is_wanted(k, i))
            return true;
    return refuse(e,
                  "%s: expected accumulate, checkpoint, threads, resume, gradients, against or all",
                  k->settings.operand);
}

static bool check_config(const struct check *k, struct error *e)
{
    return k->settings.against == NULL || k->given.model.dropout == 0 ||
           refuse(e, "--against: no other program draws our dropout masks: add --dropout 0");
}

// Of a batch in two or more parts, the last one smaller than the others where that is possible.
static int64_t uneven_split(int64_t batch)
{
    for (int64_t samples = (batch - 1) / 2; samples > 1; samples--)
        if (batch % samples != 0)
            return samples;
    return batch > 1 ? batch - 1 : 1;
}

// What no check needs is not planned.
static void choose(struct check *k)
{
    struct config *c = &k->given;
    c->sample.tokens = 0;
    c->eval_every = 0;
    k->budget_bytes = c->budget_bytes;
    c->budget_bytes = 0;
    k->split =
        c->step.micro_batch < c->step.batch ? c->step.micro_batch : uneven_split(c->step.batch);
    int64_t steps = k->settings.steps != UNSET_INT ? k->settings.steps : CHECK_STEPS;
    k->steps = steps < CHECK_STEPS_MAX ? steps : CHECK_STEPS_MAX;
    k->config = *c;
}

// Reals of each subject, then of each spare.
static void count_kept(const struct check *k, int64_t *count)
{
    const struct param_list *l = &k->run.gpt.params;
    for (int s = 0; s < CHECK_SUBJECTS; s++) {
        count[s] = 0;
        for (int i = 0; i < l->count; i++) {
            int64_t n;
            check_subject(&l->param[i], (enum check_subject)s, &n);
            count[s] += n;
        }
    }
    for (int i = 0; i < COUNT_OF(k->spare); i++)
        count[CHECK_SUBJECTS + i] = k->settings.naive > 0 ? k->element_count : 0;
}

static bool open_store(struct check *k, struct error *e)
{
    const struct step_config *s = &k->given.step;
    if (!run_measure(&k->run, &k->given, CONFIG_PLAN, e))
        return false;
    check_report_model(&k->report, &k->given, &k->run.gpt);
    k->param_count = k->run.gpt.params.count;
    k->element_count = params_count(&k->run.gpt.params);
    int64_t count[CHECK_SUBJECTS + COUNT_OF(k->spare)], all = 0;
    count_kept(k, count);
    for (int i = 0; i < COUNT_OF(count); i++)
        all += count[i];
    run_close(&k->run);
    int64_t row = CHECK_SUBJECTS * (int64_t)sizeof(struct check_difference);
    int64_t norms = k->param_count * (int64_t)sizeof(double);
    int64_t bytes = all * (int64_t)sizeof(real) + k->param_count * row + 2 * norms +
                    2 * s->batch * s->seq * (int64_t)sizeof(int32_t) +
                    (COUNT_OF(count) + 5) * ARENA_ALIGN_BYTES;
    struct plan plan = tape_plan_small(bytes);
    if (!tape_open(&k->store, &plan, false, k->given.threads, e))
        return false;
    for (int i = 0; i < COUNT_OF(count); i++) {
        int64_t kept = count[i] * (int64_t)sizeof(real);
        real *at = kept > 0 ? tape_scratch(&k->store, "check.kept", kept) : NULL;
        if (i < CHECK_SUBJECTS)
            k->kept[i] = at;
        else
            k->spare[i - CHECK_SUBJECTS] = at;
    }
    k->difference = tape_scratch(&k->store, "check.differences", k->param_count * row);
    for (int i = 0; i < COUNT_OF(k->sum_norms); i++)
        k->sum_norms[i] = tape_scratch(&k->store, "check.norms", norms);
    return true;
}

static bool run_checks(struct check *k, struct error *e)
{
    if (!open_store(k, e))
        return false;
    bool ok = check_tokens_read(k, e);
    for (int i = 0; ok && i < COUNT_OF(checks); i++)
        if (is_wanted(k, i))
            ok = checks[i].run(k, e);
    tape_close(&k->store);
    return ok;
}

static int status_of(const struct check *k, bool ok)
{
    if (system_was_interrupted())
        return EXIT_INTERRUPTED;
    return ok && !k->report.is_any_broken ? EXIT_OK : EXIT_REFUSED;
}

int cmd_check(int argc, char **argv)
{
    static struct check k; // large: two configurations
    struct error e, inner;
    int status;
    if (!command_begin(&command, &k.settings, argc, argv, &status))
        return status;
    k.argc = argc;
    k.argv = argv;
    if (!check_what(&k, &e) || !check_tokens_shape(&k, &e) ||
        !command_config(&k.given, &k.settings, CONFIG_TRAIN, &e))
        return command_refuse(command.name, &e);
    if (!check_config(&k, &e)) {
        config_close(&k.given);
        return command_refuse(command.name, &e);
    }
    choose(&k);
    system_catch_interrupt();
    bool ok = check_report_open(&k.report, &k.settings, &e);
    if (ok) {
        ok = run_checks(&k, &e);
        if (!check_report_close(&k.report, ok ? NULL : &e, &inner) && ok) {
            e = inner;
            ok = false;
        }
    }
    config_close(&k.given);
    if (!ok)
        command_refuse(command.name, &e);
    return status_of(&k, ok);
}
