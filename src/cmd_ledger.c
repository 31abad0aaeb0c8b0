// cmd_ledger.c - memtape ledger: every tensor of one training step, from the ledger of a dry run.
//
// Rows are those of init, forward, backward, recompute and update. A validation or a sample that
// the run would make is measured too, but its rows are not of the step.
#include "src/commands.h"
#include "src/describe.h"
#include "src/system.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
    .name = "ledger",
    .summary =
        "Takes train's options and lists every tensor of one training step, without training:\n"
        "what it is for, its shape and bytes, and the events at which it was born and died.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE | OPTIONS_TABLE};

enum { ROWS_MAX = 1 << 21, TABLE_COLUMNS = 120 };

struct key {
    int64_t bytes;
    const struct ledger_row *row;
};

struct listing {
    const struct ledger *ledger;
    struct key *key;
    int64_t count, shown; // tensors of the step, and how many of them are listed
    int64_t bytes;        // of all of them
};

static bool is_of_the_step(const struct ledger_row *r)
{
    return r->phase != PHASE_EVAL && r->phase != PHASE_GENERATE;
}

// Largest first; equals in tape order.
static int by_bytes(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->row->born > y->row->born ? 1 : -1;
}

static struct listing list(const struct ledger *l, const struct settings *s)
{
    static struct key key[ROWS_MAX]; // costs what is written
    struct listing t = {.ledger = l, .key = key};
    CHECK(l->row_count <= ROWS_MAX);
    for (int64_t i = 0; i < l->row_count; i++) {
        if (!is_of_the_step(&l->row[i]))
            continue;
        key[t.count++] = (struct key){l->row[i].bytes, &l->row[i]};
        t.bytes += l->row[i].bytes;
    }
    if (s->sort != NULL && strcmp(s->sort, "bytes") == 0)
        qsort(key, (size_t)t.count, sizeof(*key), by_bytes);
    t.shown = s->top > 0 && s->top < t.count ? s->top : t.count;
    return t;
}

// ---- a table for people ----------------------------------------------------------------

struct widths {
    int name, category, shape, bytes, op, born;
};

static void widen(int *width, int length)
{
    *width = *width < length ? length : *width;
}

static struct widths measure(const struct listing *t)
{
    char text[DESCRIBE_BYTES];
    struct widths w = {6, 8, 5, 5, 2, 5};
    for (int64_t i = 0; i < t->shown; i++) {
        const struct ledger_row *r = t->key[i].row;
        widen(&w.name, (int)strlen(r->name));
        widen(&w.category, (int)strlen(ledger_category_name(r->category)));
        widen(&w.shape, (int)strlen(describe_shape(r->dim_count, r->dim, text)));
        widen(&w.bytes, snprintf(text, sizeof(text), "%lld", (long long)r->bytes));
        widen(&w.op, (int)strlen(r->op));
        widen(&w.born, snprintf(text, sizeof(text), "%lld", (long long)r->born));
    }
    int rest = w.category + w.shape + w.bytes + w.op + 2 * w.born + 3 + 9 + 8;
    if (w.name > TABLE_COLUMNS - rest) // cut at the front: the end tells tensors apart
        w.name = TABLE_COLUMNS - rest;
    return w;
}

static void table_line(const struct widths *w, const struct ledger_row *r)
{
    char shape[DESCRIBE_BYTES], died[24] = "-";
    int length = (int)strlen(r->name), cut = length > w->name ? length - w->name + 1 : 0;
    if (r->died != LEDGER_LIVE)
        snprintf(died, sizeof(died), "%lld", (long long)r->died);
    printf("%s%-*s %-*s %-3s %-*s %*lld %-*s %-9s %*lld %*s\n", cut > 0 ? "~" : "",
           cut > 0 ? w->name - 1 : w->name, r->name + cut, w->category,
           ledger_category_name(r->category), dtype_name(r->dtype), w->shape,
           describe_shape(r->dim_count, r->dim, shape), w->bytes, (long long)r->bytes, w->op, r->op,
           ledger_phase_name(r->phase), w->born, (long long)r->born, w->born, died);
}

// Padding and stranded bytes included, as in a plan.
static int64_t step_peak(const struct ledger_counts *c)
{
    int64_t peak = 0;
    for (int i = 0; i < PHASE_COUNT; i++)
        if (i != PHASE_EVAL && i != PHASE_GENERATE && c->phase_peak[i] > peak)
            peak = c->phase_peak[i];
    return peak;
}

static void table(const struct listing *t)
{
    struct widths w = measure(t);
    printf("%-*s %-*s %-3s %-*s %*s %-*s %-9s %*s %*s\n", w.name, "tensor", w.category, "category",
           "", w.shape, "shape", w.bytes, "bytes", w.op, "op", "phase", w.born, "born", w.born,
           "died");
    for (int64_t i = 0; i < t->shown; i++)
        table_line(&w, t->key[i].row);
    if (t->shown < t->count)
        printf("... and %lld more\n", (long long)(t->count - t->shown));
    printf("total: %lld tensors, %lld bytes added up; at most %lld bytes held at one time\n",
           (long long)t->count, (long long)t->bytes, (long long)step_peak(&t->ledger->counts));
}

// ---- for programs ----------------------------------------------------------------------

static bool fail_csv(const char *path, struct error *e)
{
    return refuse(e, "--csv %s: %s", path, strerror(errno));
}

// Names hold no comma, quote or line break; a shape is written 12x64.
static void csv_line(FILE *f, const struct ledger_row *r)
{
    fprintf(f, "%s,%s,%s,", r->name, ledger_category_name(r->category), dtype_name(r->dtype));
    for (int i = 0; i < r->dim_count; i++)
        fprintf(f, "%s%lld", i > 0 ? "x" : "", (long long)r->dim[i]);
    fprintf(f, ",%lld,%s,%s,%lld,", (long long)r->bytes, r->op, ledger_phase_name(r->phase),
            (long long)r->born);
    if (r->died != LEDGER_LIVE)
        fprintf(f, "%lld", (long long)r->died);
    fputc('\n', f);
}

static bool write_csv(const struct listing *t, const char *path, struct error *e)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (f == NULL)
        return fail_csv(path, e);
    fprintf(f, "name,category,dtype,shape,bytes,op,phase,born,died\n");
    for (int64_t i = 0; i < t->shown; i++)
        csv_line(f, t->key[i].row);
    return system_end_file(f, path) || fail_csv(path, e);
}

static void row_json(struct json *j, const struct ledger_row *r)
{
    json_object(j, NULL);
    json_text(j, "name", r->name);
    json_text(j, "category", ledger_category_name(r->category));
    json_text(j, "dtype", dtype_name(r->dtype));
    describe_shape_json(j, "shape", r->dim_count, r->dim);
    json_int(j, "bytes", r->bytes);
    json_text(j, "op", r->op);
    json_text(j, "phase", ledger_phase_name(r->phase));
    json_int(j, "born", r->born);
    if (r->died != LEDGER_LIVE)
        json_int(j, "died", r->died);
    else
        json_null(j, "died");
    json_end(j);
}

static bool write_json(const struct listing *t, const struct run *r, const char *path,
                       struct error *e)
{
    struct json j;
    if (!json_open(&j, path, e))
        return false;
    json_object(&j, NULL);
    report_model_json(&j, r->config, &r->gpt);
    json_array(&j, "tensors");
    for (int64_t i = 0; i < t->shown; i++)
        row_json(&j, t->key[i].row);
    json_end(&j);
    json_object(&j, "total");
    json_int(&j, "tensors", t->count);
    json_int(&j, "bytes", t->bytes);
    json_int(&j, "peak_bytes", step_peak(&t->ledger->counts));
    json_end(&j);
    report_memory_json(&j, &t->ledger->counts, NULL);
    json_end(&j);
    return json_close(&j, path, e);
}

// ---- the command -----------------------------------------------------------------------

static bool report(const struct run *r, const struct settings *s, struct error *e)
{
    struct listing t = list(&r->tape.arena.ledger, s);
    if (json_is_stdout(s->json) && json_is_stdout(s->csv))
        return refuse(e, "--json - and --csv - both want standard output: give one a file");
    if (s->quiet <= 0 && !json_is_stdout(s->json) && !json_is_stdout(s->csv)) {
        report_model_line(stdout, r->config, &r->gpt);
        table(&t);
    }
    return (s->csv == NULL || write_csv(&t, s->csv, e)) &&
           (s->json == NULL || write_json(&t, r, s->json, e));
}

// Once more with every micro-batch, unless there is but one.
static bool measure_all(struct run *r, struct config *c, const struct settings *s, struct error *e)
{
    if (!command_measure(r, c, s, CONFIG_PLAN, e))
        return false;
    int64_t count = (c->step.batch - 1) / c->step.micro_batch + 1, rows = r->plan.row_count;
    if (count == 1)
        return true;
    run_close(r);
    if (count > ROWS_MAX / 4 / rows)
        return refuse(e,
                      "%lld micro-batches of %lld tensors are too many to list: try a larger "
                      "--micro-batch",
                      (long long)count, (long long)rows);
    c->lists_all = true;
    return command_measure(r, c, s, CONFIG_PLAN, e);
}

int cmd_ledger(int argc, char **argv)
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
    if (!measure_all(&r, &c, &s, &e)) {
        config_close(&c);
        return command_refuse(command.name, &e);
    }
    status = report(&r, &s, &e) ? EXIT_OK : command_refuse(command.name, &e);
    run_close(&r);
    config_close(&c);
    return status;
}
