#include "src/sweep.h"

#include "src/system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum sweep_unit unit;
} amounts[SWEEP_AMOUNT_COUNT] = {
    [SWEEP_WEIGHTS] = {"weights", SWEEP_BYTES},
    [SWEEP_GRADIENTS] = {"gradients", SWEEP_BYTES},
    [SWEEP_OPTIMIZER_STATE] = {"optimizer_state", SWEEP_BYTES},
    [SWEEP_SAVED_ACTIVATIONS] = {"saved_activations", SWEEP_BYTES},
    [SWEEP_ACTIVATION_SIDE] = {"activation_side", SWEEP_BYTES},
    [SWEEP_PEAK_BYTES] = {"peak_bytes", SWEEP_BYTES},
    [SWEEP_FORWARD_FLOPS] = {"forward_flops", SWEEP_FLOPS},
    [SWEEP_BACKWARD_FLOPS] = {"backward_flops", SWEEP_FLOPS},
    [SWEEP_RECOMPUTE_FLOPS] = {"recompute_flops", SWEEP_FLOPS},
    [SWEEP_OVER_BUDGET_BYTES] = {"over_budget_bytes", SWEEP_BYTES},
    [SWEEP_MEASURED_PEAK_BYTES] = {"measured_peak_bytes", SWEEP_BYTES},
    [SWEEP_STEP_SECONDS] = {"step_seconds", SWEEP_SECONDS},
    [SWEEP_TOKENS_PER_SECOND] = {"tokens_per_second", SWEEP_RATE},
};

const char *sweep_amount_name(enum sweep_amount a)
{
    return amounts[a].name;
}

enum sweep_unit sweep_amount_unit(enum sweep_amount a)
{
    return amounts[a].unit;
}

bool sweep_knows(const struct sweep *s, enum sweep_amount a)
{
    return (a < SWEEP_MEASURED_PEAK_BYTES || s->has_runs) &&
           (a != SWEEP_OVER_BUDGET_BYTES || s->has_budget);
}

double sweep_amount(const struct sweep_row *r, enum sweep_amount a)
{
    CHECK(a < SWEEP_AMOUNT_COUNT);
    if (a == SWEEP_STEP_SECONDS)
        return r->step_seconds;
    return a == SWEEP_TOKENS_PER_SECOND ? r->tokens_per_second : (double)r->count[a];
}

// ---- the command line ------------------------------------------------------------------

struct said { // one option on the command line
    const char *name, *value;
    size_t name_length;
    int arg_count; // one or two
    bool is_known;
    struct option_form form;
};

static struct said read_option(unsigned groups, int argc, char **argv, int i)
{
    struct said o = {.name = argv[i] + 2, .arg_count = 1};
    const char *equals = strchr(o.name, '=');
    o.name_length = equals != NULL ? (size_t)(equals - o.name) : strlen(o.name);
    o.is_known = options_find(groups, o.name, o.name_length, &o.form);
    if (equals != NULL)
        o.value = equals + 1;
    else if (o.is_known && o.form.kind != OPTION_FLAG && i + 1 < argc) {
        o.value = argv[i + 1];
        o.arg_count = 2;
    }
    return o;
}

static bool may_have_several(const struct said *o)
{
    // What the reports are called and how much is said are of the whole sweep.
    const unsigned of_a_run =
        OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_SAMPLE | OPTIONS_COMMON;
    struct option_form form;
    return o->is_known && o->form.is_word && o->value != NULL &&
           options_find(of_a_run, o->name, o->name_length, &form) &&
           !options_find(OPTIONS_REPORT, o->name, o->name_length, &form);
}

static bool add_axis(struct sweep *s, const struct said *o, struct error *e)
{
    struct error inner;
    if (s->axis_count == SWEEP_AXES_MAX)
        return refuse(e, "more than %d options have several values", SWEEP_AXES_MAX);
    struct sweep_axis *a = &s->axis[s->axis_count++];
    snprintf(a->name, sizeof(a->name), "%.*s", (int)o->name_length, o->name);
    a->kind = o->form.kind;
    bool is_number = a->kind == OPTION_INT || a->kind == OPTION_REAL;
    if (!value_list_read(&a->list, o->value, is_number, &inner))
        return refuse(e, "--%s %.200s: %.600s", a->name, o->value, inner.text);
    s->arg[s->arg_count++] = a->arg;
    return true;
}

// What changes no number and what names files is not.
static bool is_worth_remembering(const struct said *o)
{
    bool is_quiet = o->is_known && o->name_length == 5 && memcmp(o->name, "quiet", 5) == 0;
    bool is_flag = o->is_known && o->form.kind == OPTION_FLAG;
    return !is_quiet && (!o->is_known || is_flag || may_have_several(o));
}

static void remember(struct sweep *s, const char *arg)
{
    size_t used = strlen(s->command);
    snprintf(s->command + used, sizeof(s->command) - used, " %s", arg);
}

static bool read_one(struct sweep *s, unsigned groups, int argc, char **argv, int *i,
                     struct error *e)
{
    struct said o = {.arg_count = 1};
    if (strncmp(argv[*i], "--", 2) == 0 && argv[*i][2] != 0)
        o = read_option(groups, argc, argv, *i);
    for (int k = 0; k < o.arg_count && is_worth_remembering(&o); k++)
        remember(s, argv[*i + k]);
    bool is_number = o.form.kind == OPTION_INT || o.form.kind == OPTION_REAL;
    if (may_have_several(&o) && value_list_is_one(o.value, is_number)) {
        *i += o.arg_count;
        return add_axis(s, &o, e);
    }
    for (int k = 0; k < o.arg_count; k++)
        s->arg[s->arg_count++] = argv[(*i)++];
    return true;
}

// The last one of an option wins, so a list that is not the only one would multiply for nothing.
static bool check_once(const struct sweep *s, unsigned groups, int argc, char **argv,
                       struct error *e)
{
    for (int k = 0; k < s->axis_count; k++) {
        const char *name = s->axis[k].name;
        int times = 0;
        for (int i = 1; i < argc; i++) {
            if (strncmp(argv[i], "--", 2) != 0)
                continue;
            struct said o = read_option(groups, argc, argv, i);
            int skip = strncmp(o.name, "no-", 3) == 0 && !o.is_known ? 3 : 0;
            size_t length = o.name_length - (size_t)skip;
            times += length == strlen(name) && memcmp(o.name + skip, name, length) == 0;
            i += o.arg_count - 1;
        }
        if (times > 1)
            return refuse(e, "--%s has several values and is given %d times: give it once", name,
                          times);
    }
    return true;
}

static bool count_rows(struct sweep *s, struct error *e)
{
    int64_t count = 1;
    char factors[256] = "";
    for (int k = 0; k < s->axis_count; k++) {
        size_t used = strlen(factors);
        snprintf(factors + used, sizeof(factors) - used, "%s%d of --%s", k > 0 ? " x " : "",
                 s->axis[k].list.count, s->axis[k].name);
        count *= s->axis[k].list.count; // at most 64 to the power of 8
    }
    if (count > SWEEP_ROWS_MAX)
        return refuse(e, "%s: %lld combinations; expected at most %d", factors, (long long)count,
                      SWEEP_ROWS_MAX);
    s->row_count = (int)count;
    for (int i = 0; i < s->row_count; i++)
        for (int k = s->axis_count - 1, rest = i; k >= 0; k--) {
            s->row[i].at[k] = rest % s->axis[k].list.count;
            rest /= s->axis[k].list.count;
        }
    return true;
}

bool sweep_read(struct sweep *s, unsigned groups, int argc, char **argv, struct error *e)
{
    memset(s, 0, sizeof(*s));
    if (argc > SWEEP_ARGS_MAX)
        return refuse(e, "%d arguments: expected at most %d", argc - 1, SWEEP_ARGS_MAX - 1);
    s->arg[s->arg_count++] = argv[0];
    snprintf(s->command, sizeof(s->command), "memtape sweep");
    for (int i = 1; i < argc;)
        if (!read_one(s, groups, argc, argv, &i, e))
            return false;
    return check_once(s, groups, argc, argv, e) && count_rows(s, e);
}

void sweep_choose(struct sweep *s, int i)
{
    for (int k = 0; k < s->axis_count; k++) {
        struct sweep_axis *a = &s->axis[k];
        char arg[sizeof(a->arg)]; // of its own: the compiler cannot see that nothing overlaps
        snprintf(arg, sizeof(arg), "--%s=%s", a->name, a->list.text[s->row[i].at[k]]);
        memcpy(a->arg, arg, sizeof(arg));
    }
}

char *sweep_describe(const struct sweep *s, int i, int but, char out[256])
{
    size_t used = 0;
    out[0] = 0;
    for (int k = 0; k < s->axis_count; k++)
        if (k != but && used < 256)
            used += (size_t)snprintf(out + used, 256 - used, "%s--%s %s", used > 0 ? " " : "",
                                     s->axis[k].name, s->axis[k].list.text[s->row[i].at[k]]);
    return out;
}

// ---- one combination -------------------------------------------------------------------

// Says which combination it was that something is wrong with.
static bool blame(const struct sweep *s, int i, const struct error *inner, struct error *e)
{
    char values[256];
    size_t length = strlen(sweep_describe(s, i, -1, values));
    if (strncmp(inner->text, values, length) == 0) // it says so itself, or there is nothing to say
        return refuse(e, "%s", inner->text);
    return refuse(e, "%s: %.700s", values, inner->text[0] != 0 ? inner->text : "see above");
}

static void note_plan(struct sweep_row *r, const struct run *run)
{
    static const enum ledger_category stays[] = {[SWEEP_WEIGHTS] = LEDGER_WEIGHTS,
                                                 [SWEEP_GRADIENTS] = LEDGER_GRADIENTS,
                                                 [SWEEP_OPTIMIZER_STATE] = LEDGER_OPTIMIZER_STATE,
                                                 [SWEEP_SAVED_ACTIVATIONS] =
                                                     LEDGER_SAVED_ACTIVATIONS};
    const struct ledger_counts *c = &run->tape.arena.ledger.counts;
    for (int a = 0; a < COUNT_OF(stays); a++)
        r->count[a] = c->peak[stays[a]];
    r->count[SWEEP_ACTIVATION_SIDE] = ledger_activation_side(c);
    r->count[SWEEP_PEAK_BYTES] = c->total_peak;
    r->count[SWEEP_FORWARD_FLOPS] = run->tape.flops[PHASE_FORWARD];
    r->count[SWEEP_BACKWARD_FLOPS] = run->tape.flops[PHASE_BACKWARD];
    r->count[SWEEP_RECOMPUTE_FLOPS] = run->tape.flops[PHASE_RECOMPUTE];
    int64_t budget = run->config->budget_bytes;
    r->count[SWEEP_OVER_BUDGET_BYTES] =
        budget > 0 && c->total_peak > budget ? c->total_peak - budget : 0;
    r->peak_phase = c->peak_phase;
}

bool sweep_plan(struct sweep *s, int i, struct error *e)
{
    struct error inner;
    if (!command_config(&s->config, &s->settings, CONFIG_PLAN, &inner))
        return blame(s, i, &inner, e);
    bool ok = run_measure(&s->run, &s->config, CONFIG_PLAN, &inner);
    if (ok) {
        note_plan(&s->row[i], &s->run);
        run_close(&s->run);
    }
    config_close(&s->config);
    return ok || blame(s, i, &inner, e);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// All that train does with these options, in fewer steps; so its peak is the plan's.
static bool take_steps(struct sweep *s, double *median, struct error *e)
{
    static double seconds[SWEEP_STEPS_MAX];
    struct run *r = &s->run;
    const struct config *c = &s->config;
    struct step_result result;
    double loss;
    int64_t counted;
    for (int64_t k = 0; k < c->steps; k++) {
        double start = system_seconds();
        batch_fill(&c->data, &c->shape, r->step.steps_done, r->step.tokens, r->step.targets);
        if (!step_gradients(&r->step, &r->tape, &result, e))
            return false;
        step_update(&r->step, &r->tape, &result);
        seconds[k] = system_seconds() - start;
    }
    qsort(seconds, (size_t)c->steps, sizeof(*seconds), by_value);
    *median = seconds[c->steps / 2];
    if (c->eval_every > 0 && !run_validate(r, 1, &loss, &counted, e))
        return false;
    run_sample(r, (struct run_text){0});
    return true;
}

static bool run_and_note(struct sweep *s, struct sweep_row *row, struct error *e)
{
    const struct step_config *c = &s->config.step;
    if (s->config.steps > SWEEP_STEPS_MAX)
        return refuse(e, "--steps %lld: expected at most %d with --run", (long long)s->config.steps,
                      SWEEP_STEPS_MAX);
    if (row->count[SWEEP_OVER_BUDGET_BYTES] > 0)
        return refuse(e, "%lld bytes over the budget: planned, but not run",
                      (long long)row->count[SWEEP_OVER_BUDGET_BYTES]);
    if (!command_open(&s->run, &s->config, &s->settings, CONFIG_TRAIN, e))
        return false;
    bool ok = take_steps(s, &row->step_seconds, e);
    int64_t plan = row->count[SWEEP_PEAK_BYTES];
    int64_t peak = s->run.tape.arena.ledger.counts.total_peak;
    run_close(&s->run);
    row->tokens_per_second = (double)(c->batch * c->seq) / row->step_seconds;
    row->count[SWEEP_MEASURED_PEAK_BYTES] = peak;
    if (ok && peak != plan)
        return refuse(e, "the run held %lld bytes, the plan said %lld: a fault of memtape",
                      (long long)peak, (long long)plan);
    return ok;
}

bool sweep_run(struct sweep *s, int i, struct error *e)
{
    struct error inner;
    if (!command_config(&s->config, &s->settings, CONFIG_TRAIN, &inner))
        return blame(s, i, &inner, e);
    bool ok = run_and_note(s, &s->row[i], &inner);
    config_close(&s->config);
    return ok || blame(s, i, &inner, e);
}
