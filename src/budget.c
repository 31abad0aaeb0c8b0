#include "src/budget.h"

#include "src/commands.h"
#include "src/describe.h"
#include "src/outside.h"
#include "src/suggest.h"
#include "tape/text.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 5 };

bool budget_of_process(struct config *c, struct error *e)
{
    if (c->process_budget_bytes == 0)
        return true;
    if (!outside_measure(c, e))
        return false;
    int64_t left = c->process_budget_bytes - c->outside_bytes;
    if (left <= 0)
        return refuse(
            e, "--budget-process %lld: the process holds %lld bytes before the arena has any",
            (long long)c->process_budget_bytes, (long long)c->outside_bytes);
    if (c->budget_bytes == 0 || left < c->budget_bytes)
        c->budget_bytes = left;
    return true;
}

int64_t budget_limit(const struct config *c)
{
    return c->budget_bytes;
}

bool budget_holds(const struct run *r)
{
    int64_t limit = budget_limit(r->config);
    return limit == 0 || r->tape.arena.ledger.counts.total_peak <= limit;
}

// ---- what is in the way ----------------------------------------------------------------

struct newborn { // what does not fit
    const char *name, *suffix;
    int dim_count;
    const int64_t *dim;
    enum ledger_phase phase;
    int64_t bytes, left_bytes;
};

static void newborn_line(FILE *f, const struct newborn *n)
{
    char shape[DESCRIBE_BYTES];
    fprintf(f, "  does not fit: %s%s %s, born in %s: %lld bytes, %lld are left\n", n->name,
            n->suffix != NULL ? n->suffix : "", describe_shape(n->dim_count, n->dim, shape),
            ledger_phase_name(n->phase), (long long)n->bytes, (long long)n->left_bytes);
}

// The largest row that lives after this event and comes after `before` in the order of the table.
static const struct ledger_row *next_largest(const struct ledger *l, int64_t event,
                                             const struct ledger_row *before)
{
    const struct ledger_row *best = NULL;
    for (int64_t i = 0; i < l->row_count; i++) {
        const struct ledger_row *r = &l->row[i];
        if (r->born > event || r->died <= event)
            continue;
        if (before != NULL &&
            (r->bytes > before->bytes || (r->bytes == before->bytes && r <= before)))
            continue;
        if (best == NULL || r->bytes > best->bytes)
            best = r;
    }
    return best;
}

static void largest_table(FILE *f, const struct ledger *l, int64_t event, int64_t held_bytes)
{
    const struct ledger_row *r = NULL;
    char shape[DESCRIBE_BYTES];
    fprintf(f, "  the largest of the %lld bytes held then:\n", (long long)held_bytes);
    for (int i = 0; i < LARGEST && (r = next_largest(l, event, r)) != NULL; i++)
        fprintf(f, "  %15lld %5.1f%%  %-20s %s %s\n", (long long)r->bytes,
                100 * (double)r->bytes / (double)held_bytes, ledger_category_name(r->category),
                r->name, describe_shape(r->dim_count, r->dim, shape));
}

// ---- before a run ----------------------------------------------------------------------

static void overrun(FILE *f, const struct ledger *l, int64_t limit)
{
    const struct ledger_event *event = &l->event[l->over_event - l->first_event];
    const struct ledger_row *row = &l->row[event->row];
    int64_t left = limit - (l->over_bytes - event->bytes);
    newborn_line(f, &(struct newborn){.name = row->name,
                                      .dim_count = row->dim_count,
                                      .dim = row->dim,
                                      .phase = (enum ledger_phase)event->phase,
                                      .bytes = row->bytes,
                                      .left_bytes = left > 0 ? left : 0});
    largest_table(f, l, l->over_event, l->over_bytes);
}

static void suggestions(FILE *f, const struct run *r, const struct settings *s)
{
    static struct suggestion list[SUGGESTIONS];
    int count = suggest(list, r->config, s, r->use, budget_limit(r->config));
    if (count > 0)
        fprintf(f, "  what would fit, cheapest first, as options to append:\n");
    suggest_print(f, list, count);
    if (count == 0 && r->use == CONFIG_GENERATE)
        fprintf(f, "  not even a shorter text would fit: try a smaller model\n");
    else if (count == 0)
        fprintf(f, "  neither micro-batches nor recomputation nor a smaller batch or seq would "
                   "fit: try a smaller model\n");
}

void budget_explain(FILE *f, const struct run *r, const struct settings *s)
{
    const struct ledger *l = &r->tape.arena.ledger;
    const struct ledger_counts *c = &l->counts;
    int64_t limit = budget_limit(r->config);
    char budget[TEXT_NUMBER_BYTES], peak[TEXT_NUMBER_BYTES];
    fprintf(
        f, "memtape %s: --budget%s %lld (%s) is %lld bytes too few: the peak is %lld (%s), in %s\n",
        s->command, r->config->process_budget_bytes > 0 ? "-process leaves the arena" : "",
        (long long)limit, text_from_bytes(limit, budget), (long long)(c->total_peak - limit),
        (long long)c->total_peak, text_from_bytes(c->total_peak, peak),
        ledger_phase_name(c->peak_phase));
    if (r->config->auto_checkpoint)
        fprintf(f, "  even with the best choice of what to recompute\n");
    overrun(f, l, limit);
    if (c->phase_peak[PHASE_INIT] > limit)
        fprintf(f, "  what stays (weights%s) takes %lld: no saving of activations helps\n",
                run_trains(r) ? ", gradients, optimizer state" : "",
                (long long)c->phase_peak[PHASE_INIT]);
    suggestions(f, r, s);
}

// ---- during a run ----------------------------------------------------------------------

static void on_full(struct arena *a, const struct ledger_label *label, int64_t bytes)
{
    const struct ledger *l = &a->ledger;
    int64_t left = a->cap_bytes - l->counts.total_now;
    fflush(stdout);
    fprintf(stderr,
            "memtape: the arena of %lld bytes is full, %lld too few: the plan was wrong, which is "
            "a fault of memtape\n",
            (long long)a->cap_bytes, (long long)(bytes - left));
    newborn_line(stderr, &(struct newborn){.name = label->name,
                                           .suffix = label->suffix,
                                           .dim_count = label->dim_count,
                                           .dim = label->dim,
                                           .phase = l->phase,
                                           .bytes = bytes,
                                           .left_bytes = left});
    largest_table(stderr, l, l->first_event + l->event_count - 1, l->counts.total_now);
    exit(EXIT_REFUSED);
}

void budget_guard(struct run *r)
{
    r->on_full = on_full;
}
