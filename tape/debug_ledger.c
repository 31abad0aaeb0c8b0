#include "tape/debug_int.h"

#include <stdio.h>

// ---- the ledger ------------------------------------------------------------------------

void debug_ledger(const struct tape *t)
{
    if (!debug_has_tape(t))
        return;
    const struct ledger *l = &t->arena.ledger;
    const struct ledger_counts *c = &l->counts;
    printf("%-21s %12s %12s %12s\n", "bytes", "now", "own peak", "at the peak");
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        if (c->peak[i] > 0)
            printf("%-21s %12lld %12lld %12lld\n", ledger_category_name((enum ledger_category)i),
                   (long long)c->now[i], (long long)c->peak[i], (long long)c->at_peak[i]);
    printf("%-21s %12lld %12lld %12lld\n", "total", (long long)c->total_now,
           (long long)c->total_peak, (long long)c->total_peak);
    printf("in %s now; the peak so far was in %s, at the birth of %s\n",
           ledger_phase_name(l->phase), ledger_phase_name(c->peak_phase), c->peak_name);
    fflush(stdout);
}

// ---- what is there ---------------------------------------------------------------------

// The largest live row after `last` in the order of size, then of the table.
static const struct ledger_row *next_largest(const struct ledger *l, const struct ledger_row *last)
{
    const struct ledger_row *best = NULL;
    for (int64_t i = 0; i < l->row_count; i++) {
        const struct ledger_row *r = &l->row[i];
        bool is_left =
            last == NULL || r->bytes < last->bytes || (r->bytes == last->bytes && r > last);
        if (r->died == LEDGER_LIVE && is_left && (best == NULL || r->bytes > best->bytes))
            best = r;
    }
    return best;
}

void debug_live(const struct tape *t)
{
    enum { SHOWN = 12 };
    if (!debug_has_tape(t))
        return;
    const struct ledger *l = &t->arena.ledger;
    int64_t rest_bytes = l->counts.total_now;
    const struct ledger_row *r = NULL;
    int count = 0;
    while (count < SHOWN && (r = next_largest(l, r)) != NULL) {
        printf("%10lld B  %-20s %s%s%s\n", (long long)r->bytes, ledger_category_name(r->category),
               r->name, r->op[0] != 0 ? ", by " : "", r->op);
        rest_bytes -= r->bytes;
        count++;
    }
    printf("%10lld B  in %lld more, padding and stranded; %lld B in all\n", (long long)rest_bytes,
           (long long)(l->live_row_count - count), (long long)l->counts.total_now);
    fflush(stdout);
}

// ---- the map ---------------------------------------------------------------------------

enum { CELLS = 72 };

static const char letters[LEDGER_CATEGORY_COUNT] = {
    [LEDGER_WEIGHTS] = 'W',
    [LEDGER_GRADIENTS] = 'G',
    [LEDGER_MASTER_WEIGHTS] = 'M',
    [LEDGER_OPTIMIZER_STATE] = 'O',
    [LEDGER_SAVED_ACTIVATIONS] = 's',
    [LEDGER_RECOMPUTED] = 'r',
    [LEDGER_ACTIVATION_GRADIENTS] = 'g',
    [LEDGER_WORKSPACE] = 'w',
    [LEDGER_BATCH] = 'b',
    [LEDGER_KV_CACHE] = 'k',
    [LEDGER_COMMUNICATION] = 'c',
    [LEDGER_BOOKKEEPING] = 'B',
    [LEDGER_PADDING] = 'p',
    [LEDGER_STRANDED] = 'x',
};

// How many bytes of each category lie between two offsets. A block is its category's, padding and
// all; a dead one is stranded.
static void count_bytes(const struct tape *t, int64_t from, int64_t to,
                        int64_t bytes[LEDGER_CATEGORY_COUNT])
{
    for (int end = 0; end < ARENA_END_COUNT; end++)
        for (int64_t i = 0; i < t->arena.stack[end].count; i++) {
            const struct arena_block *b = &t->arena.stack[end].block[i];
            int64_t first = b->offset_bytes > from ? b->offset_bytes : from;
            int64_t last = b->offset_bytes + b->bytes < to ? b->offset_bytes + b->bytes : to;
            if (last > first)
                bytes[b->live ? t->arena.ledger.row[b->row].category : LEDGER_STRANDED] +=
                    last - first;
        }
}

// The letter of what fills most of the cell; '.' if that is nothing.
static char cell(const struct tape *t, int64_t from, int64_t to, bool used[LEDGER_CATEGORY_COUNT])
{
    int64_t bytes[LEDGER_CATEGORY_COUNT] = {0}, most = 0, held = 0;
    int best = 0;
    count_bytes(t, from, to, bytes);
    for (int c = 0; c < LEDGER_CATEGORY_COUNT; c++) {
        held += bytes[c];
        if (bytes[c] > most) {
            most = bytes[c];
            best = c;
        }
    }
    if (to - from - held > most)
        return '.';
    used[best] = true;
    return letters[best];
}

void debug_arena(const struct tape *t)
{
    if (!debug_has_tape(t))
        return;
    const struct arena *a = &t->arena;
    bool used[LEDGER_CATEGORY_COUNT] = {false};
    char map[CELLS + 1] = "";
    int64_t step = (a->cap_bytes + CELLS - 1) / CELLS;
    for (int i = 0; i < CELLS; i++)
        map[i] =
            cell(t, i * step, (i + 1) * step < a->cap_bytes ? (i + 1) * step : a->cap_bytes, used);
    int64_t low = a->stack[ARENA_LOW].bytes, high = a->stack[ARENA_HIGH].bytes;
    printf("low |%s| high\n", map);
    printf("%lld B of blocks at the low end, %lld at the high end, %lld free of %lld; stranded "
           "%lld; a letter is %lld B\n",
           (long long)low, (long long)high, (long long)(a->cap_bytes - low - high),
           (long long)a->cap_bytes, (long long)a->stranded_bytes, (long long)step);
    for (int c = 0; c < LEDGER_CATEGORY_COUNT; c++)
        if (used[c])
            printf("%c %s  ", letters[c], ledger_category_name((enum ledger_category)c));
    printf(". free\n");
    fflush(stdout);
}
