#include "tape/ledger.h"

#include "tape/text.h"

#include <string.h>

static const char *const category_names[LEDGER_CATEGORY_COUNT] = {
    [LEDGER_WEIGHTS] = "weights",
    [LEDGER_GRADIENTS] = "gradients",
    [LEDGER_MASTER_WEIGHTS] = "master_weights",
    [LEDGER_OPTIMIZER_STATE] = "optimizer_state",
    [LEDGER_SAVED_ACTIVATIONS] = "saved_activations",
    [LEDGER_RECOMPUTED] = "recomputed",
    [LEDGER_ACTIVATION_GRADIENTS] = "activation_gradients",
    [LEDGER_WORKSPACE] = "workspace",
    [LEDGER_BATCH] = "batch",
    [LEDGER_KV_CACHE] = "kv_cache",
    [LEDGER_COMMUNICATION] = "communication",
    [LEDGER_BOOKKEEPING] = "bookkeeping",
    [LEDGER_PADDING] = "padding",
    [LEDGER_STRANDED] = "stranded",
};

static const char *const phase_names[PHASE_COUNT] = {
    [PHASE_INIT] = "init",           [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward",
    [PHASE_RECOMPUTE] = "recompute", [PHASE_UPDATE] = "update",   [PHASE_EVAL] = "eval",
    [PHASE_GENERATE] = "generate",
};

const char *ledger_category_name(enum ledger_category c)
{
    return category_names[c];
}

const char *ledger_phase_name(enum ledger_phase p)
{
    return phase_names[p];
}

static void post(struct ledger *l, enum ledger_category c, int64_t bytes)
{
    l->counts.now[c] += bytes;
    l->counts.total_now += bytes;
    CHECK(l->counts.now[c] >= 0);
}

static void record_event(struct ledger *l, int32_t row, int64_t bytes)
{
    CHECK(l->event_count < l->event_cap);
    l->event[l->event_count++] = (struct ledger_event){row, (int32_t)l->phase, bytes};
    l->lap_events++;
    if (l->lap_events > l->event_max)
        l->event_max = l->lap_events;
}

static int64_t next_event(const struct ledger *l)
{
    return l->first_event + l->event_count;
}

int32_t ledger_born(struct ledger *l, const struct ledger_label *label, int64_t bytes,
                    int64_t padding_bytes)
{
    CHECK(l->row_count < l->row_cap && label->dim_count <= LEDGER_DIMS);
    int32_t index = (int32_t)l->row_count++;
    l->live_row_count++;
    l->lap_rows++;
    if (l->lap_rows > l->row_max)
        l->row_max = l->lap_rows;
    struct ledger_row *r = &l->row[index];
    *r = (struct ledger_row){.op = label->op ? label->op : "",
                             .category = label->category,
                             .dtype = label->dtype,
                             .dim_count = label->dim_count,
                             .bytes = bytes,
                             .padding_bytes = padding_bytes,
                             .phase = l->phase,
                             .born = next_event(l),
                             .died = LEDGER_LIVE,
                             .node = label->node};
    size_t used = text_append(r->name, sizeof(r->name), 0, label->name);
    text_append(r->name, sizeof(r->name), used, label->suffix != NULL ? label->suffix : "");
    for (int i = 0; i < label->dim_count; i++)
        r->dim[i] = label->dim[i];
    record_event(l, index, bytes + padding_bytes);
    post(l, r->category, bytes);
    post(l, LEDGER_PADDING, padding_bytes);
    return index;
}

void ledger_died(struct ledger *l, int32_t row)
{
    struct ledger_row *r = &l->row[row];
    CHECK(r->died == LEDGER_LIVE);
    r->died = next_event(l);
    l->live_row_count--;
    record_event(l, row, -(r->bytes + r->padding_bytes));
    post(l, r->category, -r->bytes);
    post(l, LEDGER_PADDING, -r->padding_bytes);
}

static int64_t highest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void check_law(const struct ledger_counts *c)
{
#ifdef TAPE_LAW
    int64_t now = 0, at_peak = 0;
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++) {
        now += c->now[i];
        at_peak += c->at_peak[i];
    }
    CHECK(now == c->total_now);
    CHECK(at_peak == c->total_peak);
#else
    (void)c;
#endif
}

void ledger_settle(struct ledger *l, int64_t stranded_bytes)
{
    struct ledger_counts *c = &l->counts;
    post(l, LEDGER_STRANDED, stranded_bytes - c->now[LEDGER_STRANDED]);
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        c->peak[i] = highest(c->peak[i], c->now[i]);
    c->phase_peak[l->phase] = highest(c->phase_peak[l->phase], c->total_now);
    c->stranded_peak = highest(c->stranded_peak, stranded_bytes);
    c->live_peak = highest(c->live_peak, c->total_now - stranded_bytes);
    c->watch_peak = highest(c->watch_peak, c->total_now);
    if (l->limit_bytes > 0 && c->total_now > l->limit_bytes && !l->is_over) {
        l->is_over = true;
        l->over_event = next_event(l) - 1;
        l->over_bytes = c->total_now;
    }
    if (c->total_now > c->total_peak) {
        c->total_peak = c->total_now;
        memcpy(c->at_peak, c->now, sizeof(c->at_peak));
        c->peak_phase = l->phase;
        c->peak_event = next_event(l) - 1;
        const struct ledger_event *last = &l->event[l->event_count - 1];
        memcpy(c->peak_name, l->row[last->row].name, sizeof(c->peak_name));
    }
    check_law(c);
}

// Live rows move to the front, in order; the dead ones are forgotten.
static void drop_dead_rows(struct ledger *l, void (*moved)(void *, int32_t, int32_t), void *user)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < l->row_count; i++) {
        if (l->row[i].died != LEDGER_LIVE)
            continue;
        if (i != kept) {
            l->row[kept] = l->row[i];
            moved(user, i, kept);
        }
        kept++;
    }
    l->row_count = kept;
    l->first_event += l->event_count;
    l->event_count = 0;
}

void ledger_lap(struct ledger *l, void (*moved)(void *, int32_t, int32_t), void *user)
{
    l->lap_events = 0;
    l->lap_first_event = next_event(l);
    l->lap_rows = l->live_row_count;
    if (!l->keeps_history)
        drop_dead_rows(l, moved, user);
}

enum ledger_phase ledger_enter_phase(struct ledger *l, enum ledger_phase phase)
{
    enum ledger_phase before = l->phase;
    l->phase = phase;
    l->counts.phase_peak[phase] = highest(l->counts.phase_peak[phase], l->counts.total_now);
    return before;
}

void ledger_backward_begins(struct ledger *l)
{
    struct ledger_counts *c = &l->counts;
    c->kept_bytes = highest(c->kept_bytes, c->now[LEDGER_SAVED_ACTIVATIONS]);
}

int64_t ledger_activation_side(const struct ledger_counts *c)
{
    static const enum ledger_category side[] = {
        LEDGER_SAVED_ACTIVATIONS, LEDGER_RECOMPUTED, LEDGER_ACTIVATION_GRADIENTS,
        LEDGER_WORKSPACE,         LEDGER_PADDING,    LEDGER_STRANDED};
    int64_t bytes = 0;
    for (int i = 0; i < COUNT_OF(side); i++)
        bytes += c->at_peak[side[i]];
    return bytes;
}

int64_t ledger_watch(struct ledger *l)
{
    int64_t highest_since = l->counts.watch_peak;
    l->counts.watch_peak = l->counts.total_now;
    return highest_since;
}

int64_t ledger_peak(const struct ledger *l)
{
    return l->counts.total_peak;
}

void ledger_reset_peak(struct ledger *l)
{
    struct ledger_counts *c = &l->counts;
    memcpy(c->peak, c->now, sizeof(c->peak));
    memcpy(c->at_peak, c->now, sizeof(c->at_peak));
    memset(c->phase_peak, 0, sizeof(c->phase_peak));
    c->phase_peak[l->phase] = c->total_now;
    c->total_peak = c->total_now;
    c->peak_phase = l->phase;
    c->peak_event = next_event(l) - 1;
    c->stranded_peak = c->now[LEDGER_STRANDED];
    c->live_peak = c->total_now - c->now[LEDGER_STRANDED];
    c->peak_name[0] = 0;
    c->kept_bytes = 0;
}
