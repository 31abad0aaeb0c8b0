// cmd_sweep.c - memtape sweep: plans for several values of options, as table, files and plot.
#include "src/sweep_report.h"
#include "src/system.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "sweep",
    .summary =
        "Takes train's options, any number of them with several values, and plans every\n"
        "combination; the first option varies slowest. Values: 8,16,32  4..8  1..9+2  32..256*2",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE | OPTIONS_SWEEP};

enum { TERMINAL_COLUMNS = 80 };

// What holds for the whole sweep, found out before anything takes time.
static bool check_reports(const struct sweep *s, struct error *e)
{
    const struct settings *o = &s->settings;
    enum sweep_amount y;
    static struct plot p;
    if (json_is_stdout(o->json) + json_is_stdout(o->csv) + json_is_stdout(o->plot) > 1)
        return refuse(e, "--json, --csv and --plot cannot share standard output: give files");
    if (o->plot_y != NULL && !sweep_report_find_amount(s, o->plot_y, &y, e))
        return false;
    struct error inner;
    if (o->plot != NULL && !sweep_report_plot(&p, s, SWEEP_WEIGHTS, &inner))
        return refuse(e, "--plot %.200s: %.600s", o->plot, inner.text);
    return true;
}

// The ordinary parse of row i's command line. False: *status is the exit status.
static bool parse(struct sweep *s, int i, int *status)
{
    sweep_choose(s, i);
    if (!command_begin(&command, &s->settings, s->arg_count, s->arg, status))
        return false;
    s->has_runs = s->settings.run > 0;
    s->has_budget |= s->settings.budget != NULL || s->settings.budget_process != NULL;
    if (s->settings.steps == UNSET_INT)
        s->settings.steps = 3; // memory is the same after the first
    return true;
}

// Where a person waits, says which combination takes so long.
static void show_progress(const struct sweep *s, int i)
{
    char values[256];
    if (s->settings.quiet <= 0 && system_is_terminal(2))
        fprintf(stderr, "\r\033[K%d of %d: %.60s", i + 1, s->row_count,
                sweep_describe(s, i, -1, values));
}

static void hide_progress(const struct sweep *s)
{
    if (s->settings.quiet <= 0 && system_is_terminal(2))
        fprintf(stderr, "\r\033[K");
}

// All plans first: what cannot be is said before anything runs.
static bool work(struct sweep *s, int *status)
{
    struct error e;
    bool ok = true;
    for (int runs = 0; ok && runs <= (int)s->has_runs; runs++)
        for (int i = 0; ok && i < s->row_count; i++) {
            if (!parse(s, i, status))
                return false;
            if (runs == 0 && i == 0 && !check_reports(s, &e)) {
                ok = false;
                break;
            }
            if (runs > 0)
                show_progress(s, i);
            ok = runs > 0 ? sweep_run(s, i, &e) : sweep_plan(s, i, &e);
        }
    hide_progress(s);
    if (!ok)
        *status = command_refuse(command.name, &e);
    return ok;
}

static bool write_svg(const struct plot *p, const char *path, struct error *e)
{
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return refuse(e, "--plot %s: %s", path, strerror(errno));
    plot_svg(f, p);
    return system_end_file(f, path) || refuse(e, "--plot %s: %s", path, strerror(errno));
}

static bool plot(const struct sweep *s, struct error *e)
{
    static struct plot p;
    const struct settings *o = &s->settings;
    enum sweep_amount y = SWEEP_SAVED_ACTIVATIONS;
    bool words = o->quiet <= 0 && !json_is_stdout(o->json) && !json_is_stdout(o->csv);
    if (o->plot == NULL && !(words && s->row_count > 1 && system_is_terminal(1)))
        return true;
    if (o->plot_y != NULL)
        CHECK(sweep_report_find_amount(s, o->plot_y, &y, e));
    if (!sweep_report_plot(&p, s, y, e)) {
        if (o->plot == NULL)
            printf("no plot: %s\n", e->text);
        return o->plot == NULL;
    }
    if (o->plot != NULL && !json_is_stdout(o->plot))
        return write_svg(&p, o->plot, e);
    int columns = system_terminal_columns(1);
    if (words)
        printf("\n");
    plot_text(stdout, &p, columns < TERMINAL_COLUMNS ? columns : TERMINAL_COLUMNS);
    return true;
}

static bool report(const struct sweep *s, struct error *e)
{
    const struct settings *o = &s->settings;
    if (o->quiet <= 0 && !json_is_stdout(o->json) && !json_is_stdout(o->csv))
        sweep_report_table(stdout, s);
    return (o->csv == NULL || sweep_report_csv(s, o->csv, e)) &&
           (o->json == NULL || sweep_report_json(s, o->json, e)) && plot(s, e);
}

int cmd_sweep(int argc, char **argv)
{
    static struct sweep s; // large: every row is in it
    struct error e;
    int status = EXIT_OK;
    if (!sweep_read(&s, command.groups, argc, argv, &e))
        return command_refuse(command.name, &e);
    if (!work(&s, &status))
        return status;
    return report(&s, &e) ? EXIT_OK : command_refuse(command.name, &e);
}
