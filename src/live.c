#include "src/live.h"

#include "src/describe.h"
#include "tape/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// "h.12.mlp.gelu" -> "h.*.mlp.gelu": the first part that is a number.
static void stem_of(const char *name, char out[LEDGER_NAME_BYTES])
{
    const char *at = name;
    while ((at = strchr(at, '.')) != NULL) {
        size_t digits = strspn(++at, "0123456789");
        if (digits > 0 && (at[digits] == '.' || at[digits] == 0)) {
            snprintf(out, LEDGER_NAME_BYTES, "%.*s*%s", (int)(at - name), name, at + digits);
            return;
        }
    }
    snprintf(out, LEDGER_NAME_BYTES, "%s", name);
}

static bool is_alike(const struct live_group *g, const struct ledger_row *r, const char *stem)
{
    return g->row->category == r->category && g->row->bytes == r->bytes &&
           strcmp(g->name, stem) == 0;
}

static void add(struct live *l, const struct ledger_row *r)
{
    char stem[LEDGER_NAME_BYTES];
    int i = 0;
    stem_of(r->name, stem);
    while (i < l->count && !is_alike(&l->group[i], r, stem))
        i++;
    CHECK(i < LIVE_GROUPS_MAX);
    struct live_group *g = &l->group[i];
    if (i == l->count) {
        *g = (struct live_group){.row = r};
        memcpy(g->name, stem, sizeof(stem));
        l->count++;
    }
    g->count++;
    g->bytes += r->bytes;
}

// Largest first; equals as they were born.
static int by_bytes(const void *a, const void *b)
{
    const struct live_group *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->row->born > y->row->born ? 1 : -1;
}

void live_at_peak(struct live *l, const struct ledger *ledger)
{
    int64_t peak = ledger->counts.peak_event;
    CHECK(ledger->keeps_history);
    l->count = 0;
    for (int64_t i = 0; i < ledger->row_count; i++)
        if (ledger->row[i].born <= peak && ledger->row[i].died > peak)
            add(l, &ledger->row[i]);
    for (int i = 0; i < l->count; i++)
        if (l->group[i].count == 1)
            memcpy(l->group[i].name, l->group[i].row->name, LEDGER_NAME_BYTES);
    qsort(l->group, (size_t)l->count, sizeof(l->group[0]), by_bytes);
}

static double share(int64_t bytes, const struct ledger_counts *c)
{
    return c->total_peak > 0 ? (double)bytes / (double)c->total_peak : 0;
}

void live_table(FILE *f, const struct live *l, const struct ledger_counts *c, int most)
{
    char shape[DESCRIBE_BYTES], readable[TEXT_NUMBER_BYTES];
    int shown = l->count < most ? l->count : most;
    int64_t rest = 0;
    fprintf(f, "Live at that moment, largest first; * stands for the number of a layer:\n");
    for (int i = 0; i < shown; i++) {
        const struct live_group *g = &l->group[i];
        fprintf(f, "  %-34s %-20s x %-4lld %15lld %10s %5.1f%%  %s\n", g->name,
                describe_shape(g->row->dim_count, g->row->dim, shape), (long long)g->count,
                (long long)g->bytes, text_from_bytes(g->bytes, readable), 100 * share(g->bytes, c),
                ledger_category_name(g->row->category));
    }
    for (int i = shown; i < l->count; i++)
        rest += l->group[i].bytes;
    if (shown < l->count)
        fprintf(f, "  %-34s %-20s %-6s %15lld %10s %5.1f%%\n", "all others", "", "",
                (long long)rest, text_from_bytes(rest, readable), 100 * share(rest, c));
}

void live_json(struct json *j, const struct live *l, const struct ledger_counts *c)
{
    json_array(j, "live_at_peak");
    for (int i = 0; i < l->count; i++) {
        const struct live_group *g = &l->group[i];
        bool was_in_line = j->in_line;
        json_object(j, NULL);
        j->in_line = true;
        json_text(j, "name", g->name);
        json_text(j, "category", ledger_category_name(g->row->category));
        json_text(j, "dtype", dtype_name(g->row->dtype));
        describe_shape_json(j, "shape", g->row->dim_count, g->row->dim);
        json_text(j, "op", g->row->op);
        json_text(j, "phase", ledger_phase_name(g->row->phase));
        json_int(j, "count", g->count);
        json_int(j, "bytes", g->bytes);
        json_real(j, "share", share(g->bytes, c));
        json_end(j);
        j->in_line = was_in_line;
    }
    json_end(j);
}
