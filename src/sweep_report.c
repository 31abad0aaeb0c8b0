#include "src/sweep_report.h"

#include "src/system.h"
#include "tape/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(const struct sweep_axis *a)
{
    return a->kind == OPTION_INT || a->kind == OPTION_REAL;
}

// Budgets are, though they are written as texts.
static bool is_bytes(const struct sweep_axis *a)
{
    int64_t bytes;
    bool all = a->kind == OPTION_TEXT;
    for (int i = 0; i < a->list.count; i++)
        all = all && text_to_bytes(a->list.text[i], &bytes);
    return all;
}

static bool is_scale(const struct sweep_axis *a)
{
    return is_number(a) || is_bytes(a);
}

static const char *value_of(const struct sweep *s, int row, int axis)
{
    return s->axis[axis].list.text[s->row[row].at[axis]];
}

int sweep_report_along(const struct sweep *s)
{
    int last = -1;
    for (int k = 0; k < s->axis_count; k++)
        if (s->axis[k].list.count > 1 &&
            (is_scale(&s->axis[k]) || last < 0 || !is_scale(&s->axis[last])))
            last = k;
    return last;
}

// Rows count in mixed radix, the last axis fastest.
static int first_along(const struct sweep *s, int row)
{
    int along = sweep_report_along(s), stride = 1;
    for (int k = s->axis_count - 1; k > along; k--)
        stride *= s->axis[k].list.count;
    return along < 0 ? row : row - s->row[row].at[along] * stride;
}

double sweep_report_ratio(const struct sweep *s, int i)
{
    const struct sweep_row *first = &s->row[first_along(s, i)];
    return sweep_amount(&s->row[i], SWEEP_SAVED_ACTIVATIONS) /
           sweep_amount(first, SWEEP_SAVED_ACTIVATIONS);
}

// ---- a table for people ----------------------------------------------------------------

static const struct { // bytes of what grows are exact; the rest is for reading
    enum sweep_amount amount;
    const char *head;
    bool exact;
} columns[] = {
    {SWEEP_WEIGHTS, "weights", false},
    {SWEEP_GRADIENTS, "gradients", false},
    {SWEEP_OPTIMIZER_STATE, "optimizer", false},
    {SWEEP_SAVED_ACTIVATIONS, "saved activations", true},
    {SWEEP_ACTIVATION_SIDE, "activation side", true},
    {SWEEP_PEAK_BYTES, "peak bytes", true},
    {SWEEP_OVER_BUDGET_BYTES, "over budget", true},
    {SWEEP_MEASURED_PEAK_BYTES, "measured peak", true},
    {SWEEP_FORWARD_FLOPS, "forward", false},
    {SWEEP_BACKWARD_FLOPS, "backward", false},
    {SWEEP_RECOMPUTE_FLOPS, "recompute", false},
    {SWEEP_STEP_SECONDS, "step", false},
    {SWEEP_TOKENS_PER_SECOND, "tokens/s", false},
};

enum { COLUMNS = COUNT_OF(columns) };

static enum plot_unit unit_of(enum sweep_amount a)
{
    static const enum plot_unit unit[] = {[SWEEP_BYTES] = PLOT_BYTES,
                                          [SWEEP_FLOPS] = PLOT_FLOPS,
                                          [SWEEP_SECONDS] = PLOT_SECONDS,
                                          [SWEEP_RATE] = PLOT_RATE};
    return unit[sweep_amount_unit(a)];
}

static char *cell(const struct sweep *s, int row, int column, char out[PLOT_TICK_BYTES])
{
    double v = sweep_amount(&s->row[row], columns[column].amount);
    if (columns[column].exact)
        snprintf(out, PLOT_TICK_BYTES, "%lld",
                 (long long)s->row[row].count[columns[column].amount]);
    else
        plot_format(v, unit_of(columns[column].amount), v, out);
    return out;
}

// What is the same in all rows is said once, so that what varies fits on a screen.
static bool is_shown(const struct sweep *s, int column)
{
    enum sweep_amount a = columns[column].amount;
    if (!sweep_knows(s, a))
        return false;
    bool varies = columns[column].exact || s->row_count == 1;
    for (int i = 1; i < s->row_count; i++)
        varies |= sweep_amount(&s->row[i], a) != sweep_amount(&s->row[0], a);
    return varies;
}

static void say_what_is_the_same(FILE *f, const struct sweep *s)
{
    char text[PLOT_TICK_BYTES];
    bool is_first = true;
    for (int k = 0; k < COLUMNS; k++) {
        if (is_shown(s, k) || !sweep_knows(s, columns[k].amount))
            continue;
        fprintf(f, "%s%s %s", is_first ? "The same in all rows: " : ", ", columns[k].head,
                cell(s, 0, k, text));
        is_first = false;
    }
    if (!is_first)
        fprintf(f, "\n");
}

static int widest(int a, int b)
{
    return a > b ? a : b;
}

static int axis_width(const struct sweep *s, int axis)
{
    int width = (int)strlen(s->axis[axis].name);
    for (int i = 0; i < s->axis[axis].list.count; i++)
        width = widest(width, (int)strlen(s->axis[axis].list.text[i]));
    return width;
}

static void measure_columns(const struct sweep *s, int width[COLUMNS])
{
    char text[PLOT_TICK_BYTES];
    for (int k = 0; k < COLUMNS; k++) {
        width[k] = is_shown(s, k) ? (int)strlen(columns[k].head) : 0;
        for (int i = 0; i < s->row_count && width[k] > 0; i++)
            width[k] = widest(width[k], plot_width(cell(s, i, k, text)));
    }
}

static void cell_of(FILE *f, const char *words, int width)
{
    fprintf(f, "%*s%s  ", width - plot_width(words), "", words);
}

static void table_row(FILE *f, const struct sweep *s, int row, const int width[COLUMNS])
{
    char text[PLOT_TICK_BYTES];
    for (int k = 0; k < s->axis_count; k++)
        if (is_number(&s->axis[k]))
            cell_of(f, row < 0 ? s->axis[k].name : value_of(s, row, k), axis_width(s, k));
        else
            fprintf(f, "%-*s  ", axis_width(s, k), row < 0 ? s->axis[k].name : value_of(s, row, k));
    for (int k = 0; k < COLUMNS; k++) {
        if (width[k] == 0)
            continue;
        cell_of(f, row < 0 ? columns[k].head : cell(s, row, k, text), width[k]);
        if (columns[k].amount == SWEEP_SAVED_ACTIVATIONS && row < 0)
            cell_of(f, "ratio", 6);
        else if (columns[k].amount == SWEEP_SAVED_ACTIVATIONS)
            fprintf(f, "%6.2f  ", sweep_report_ratio(s, row));
    }
    fprintf(f, "%s\n", row < 0 ? "highest in" : ledger_phase_name(s->row[row].peak_phase));
}

void sweep_report_table(FILE *f, const struct sweep *s)
{
    int width[COLUMNS], along = sweep_report_along(s);
    measure_columns(s, width);
    say_what_is_the_same(f, s);
    for (int i = -1; i < s->row_count; i++)
        table_row(f, s, i, width);
    if (along >= 0)
        fprintf(f, "ratio: of saved activations to those at --%s %s, other options alike\n",
                s->axis[along].name, s->axis[along].list.text[0]);
}

// ---- for programs ----------------------------------------------------------------------

static bool fail_csv(const char *path, struct error *e)
{
    return refuse(e, "--csv %s: %s", path, strerror(errno));
}

static bool is_whole(enum sweep_amount a)
{
    return a < SWEEP_STEP_SECONDS;
}

static void csv_row(FILE *f, const struct sweep *s, int row)
{
    char number[TEXT_NUMBER_BYTES];
    for (int k = 0; k < s->axis_count; k++)
        fprintf(f, "%s,", value_of(s, row, k));
    for (int a = 0; a < SWEEP_AMOUNT_COUNT; a++)
        if (!sweep_knows(s, (enum sweep_amount)a))
            continue;
        else if (is_whole((enum sweep_amount)a))
            fprintf(f, "%lld,", (long long)s->row[row].count[a]);
        else
            fprintf(f, "%s,",
                    text_from_double(sweep_amount(&s->row[row], (enum sweep_amount)a), number));
    fprintf(f, "%s,%s\n", ledger_phase_name(s->row[row].peak_phase),
            text_from_double(sweep_report_ratio(s, row), number));
}

bool sweep_report_csv(const struct sweep *s, const char *path, struct error *e)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (f == NULL)
        return fail_csv(path, e);
    for (int k = 0; k < s->axis_count; k++)
        fprintf(f, "%s,", s->axis[k].name);
    for (int a = 0; a < SWEEP_AMOUNT_COUNT; a++)
        if (sweep_knows(s, (enum sweep_amount)a))
            fprintf(f, "%s,", sweep_amount_name((enum sweep_amount)a));
    fprintf(f, "peak_phase,saved_ratio\n");
    for (int i = 0; i < s->row_count; i++)
        csv_row(f, s, i);
    return system_end_file(f, path) || fail_csv(path, e);
}

static void value_json(struct json *j, const char *key, const struct sweep_axis *a,
                       const char *text)
{
    double v;
    if (!is_number(a) || !text_to_double(text, &v))
        json_text(j, key, text);
    else
        json_real(j, key, v);
}

static void row_json(struct json *j, const struct sweep *s, int row)
{
    const struct sweep_row *r = &s->row[row];
    json_object(j, NULL);
    json_object(j, "options");
    for (int k = 0; k < s->axis_count; k++)
        value_json(j, s->axis[k].name, &s->axis[k], value_of(s, row, k));
    json_end(j);
    for (int a = 0; a < SWEEP_AMOUNT_COUNT; a++)
        if (!sweep_knows(s, (enum sweep_amount)a))
            continue;
        else if (is_whole((enum sweep_amount)a))
            json_int(j, sweep_amount_name((enum sweep_amount)a), r->count[a]);
        else
            json_real(j, sweep_amount_name((enum sweep_amount)a),
                      sweep_amount(r, (enum sweep_amount)a));
    json_text(j, "peak_phase", ledger_phase_name(r->peak_phase));
    json_real(j, "saved_ratio", sweep_report_ratio(s, row));
    json_end(j);
}

bool sweep_report_json(const struct sweep *s, const char *path, struct error *e)
{
    struct json j;
    if (!json_open(&j, path, e))
        return false;
    json_object(&j, NULL);
    json_text(&j, "command", s->command);
    json_object(&j, "varied");
    for (int k = 0; k < s->axis_count; k++) {
        json_array(&j, s->axis[k].name);
        for (int i = 0; i < s->axis[k].list.count; i++)
            value_json(&j, NULL, &s->axis[k], s->axis[k].list.text[i]);
        json_end(&j);
    }
    json_end(&j);
    json_array(&j, "rows");
    for (int i = 0; i < s->row_count; i++)
        row_json(&j, s, i);
    json_end(&j);
    json_end(&j);
    return json_close(&j, path, e);
}

// ---- the plot --------------------------------------------------------------------------

bool sweep_report_find_amount(const struct sweep *s, const char *name, enum sweep_amount *a,
                              struct error *e)
{
    char known[512] = "";
    for (int i = 0; i < SWEEP_AMOUNT_COUNT; i++) {
        const char *other = sweep_amount_name((enum sweep_amount)i);
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "", other);
        if (strcmp(other, name) != 0)
            continue;
        *a = (enum sweep_amount)i;
        if (!sweep_knows(s, *a) && *a == SWEEP_OVER_BUDGET_BYTES)
            return refuse(e, "--plot-y %s: there is no budget: add --budget", name);
        return sweep_knows(s, *a) || refuse(e, "--plot-y %s is measured: add --run", name);
    }
    return refuse(e, "--plot-y %s: expected one of %s", name, known);
}

static int by_x(const void *a, const void *b)
{
    const struct plot_tick *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_point_x(const void *a, const void *b)
{
    const struct plot_point *x = a, *y = b;
    return (x->x > y->x) - (x->x < y->x);
}

static double x_of(const struct sweep_axis *a, int i)
{
    double v = i;
    int64_t bytes;
    if (is_number(a))
        CHECK(text_to_double(a->list.text[i], &v)); // options.c took it
    return is_bytes(a) && text_to_bytes(a->list.text[i], &bytes) ? (double)bytes : v;
}

static void fill_x(struct plot *p, const struct sweep_axis *a)
{
    p->has_words = !is_scale(a);
    p->x.unit = is_bytes(a) ? PLOT_BYTES : PLOT_PLAIN;
    p->x_count = a->list.count;
    for (int i = 0; i < a->list.count; i++) {
        p->x_value[i].at = x_of(a, i);
        snprintf(p->x_value[i].text, PLOT_TICK_BYTES, "%s", a->list.text[i]);
    }
    qsort(p->x_value, (size_t)p->x_count, sizeof(*p->x_value), by_x);
    snprintf(p->x.name, sizeof(p->x.name), "%s", a->name);
}

// "attention naive, checkpoint full": all that varies but what the plot goes along.
static void name_series(const struct sweep *s, int row, int along, char name[PLOT_NAME_BYTES])
{
    size_t used = 0;
    name[0] = 0;
    for (int k = 0; k < s->axis_count; k++)
        if (k != along && s->axis[k].list.count > 1 && used < PLOT_NAME_BYTES)
            used += (size_t)snprintf(name + used, PLOT_NAME_BYTES - used, "%s%s %s",
                                     used > 0 ? ", " : "", s->axis[k].name, value_of(s, row, k));
}

// Rows of one line need not follow each other: its first row says which one it is.
static void fill_series(struct plot *p, const struct sweep *s, int along, enum sweep_amount y)
{
    static int line_of[SWEEP_ROWS_MAX]; // of the rows that begin one
    for (int i = 0; i < s->row_count; i++) {
        int first = first_along(s, i);
        if (first == i) {
            line_of[i] = p->series_count++;
            name_series(s, i, along, p->series[line_of[i]].name);
        }
        struct plot_series *l = &p->series[line_of[first]];
        l->point[l->count++] = (struct plot_point){x_of(&s->axis[along], s->row[i].at[along]),
                                                   sweep_amount(&s->row[i], y)};
    }
    for (int k = 0; k < p->series_count; k++)
        qsort(p->series[k].point, (size_t)p->series[k].count, sizeof(struct plot_point),
              by_point_x);
}

// "Saved activations by seq"
static void name_plot(struct plot *p, enum sweep_amount y)
{
    static const char *const unit[] = {[SWEEP_BYTES] = "bytes",
                                       [SWEEP_FLOPS] = "per step",
                                       [SWEEP_SECONDS] = "seconds",
                                       [SWEEP_RATE] = "tokens per second"};
    static const char *const title[SWEEP_AMOUNT_COUNT] = {
        [SWEEP_WEIGHTS] = "Weights",
        [SWEEP_GRADIENTS] = "Gradients",
        [SWEEP_OPTIMIZER_STATE] = "Optimizer state",
        [SWEEP_SAVED_ACTIVATIONS] = "Saved activations",
        [SWEEP_ACTIVATION_SIDE] = "Activations, their gradients and scratch at the peak",
        [SWEEP_PEAK_BYTES] = "Peak memory",
        [SWEEP_FORWARD_FLOPS] = "FLOPs of forward",
        [SWEEP_BACKWARD_FLOPS] = "FLOPs of backward",
        [SWEEP_RECOMPUTE_FLOPS] = "FLOPs of recomputation",
        [SWEEP_OVER_BUDGET_BYTES] = "Bytes over the budget",
        [SWEEP_MEASURED_PEAK_BYTES] = "Measured peak memory",
        [SWEEP_STEP_SECONDS] = "Time of a step",
        [SWEEP_TOKENS_PER_SECOND] = "Rate of training",
    };
    snprintf(p->title, sizeof(p->title), "%s by %.100s", title[y], p->x.name);
    snprintf(p->y.name, sizeof(p->y.name), "%s", unit[sweep_amount_unit(y)]);
    p->y.unit = unit_of(y);
}

bool sweep_report_plot(struct plot *p, const struct sweep *s, enum sweep_amount y, struct error *e)
{
    int along = sweep_report_along(s);
    if (along < 0)
        return refuse(e, "nothing varies: give an option several values, as --seq 32..256*2");
    int lines = s->row_count / s->axis[along].list.count;
    if (lines > PLOT_SERIES_MAX)
        return refuse(e, "%d lines along --%s are too many to tell apart: at most %d", lines,
                      s->axis[along].name, PLOT_SERIES_MAX);
    memset(p, 0, sizeof(*p));
    fill_x(p, &s->axis[along]);
    fill_series(p, s, along, y);
    name_plot(p, y);
    p->footer = s->command;
    plot_layout(p);
    return true;
}
