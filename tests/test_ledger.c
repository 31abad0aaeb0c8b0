// test_ledger.c - the ledger's counts follow from its events alone: whoever replays them finds the
// same peak, the same phase peaks and the same categories at the peak, in a plan and in a run.
#include "tape/arena.h"
#include "tape/rng.h"
#include "tests/test.h"

enum { LIVE_MAX = 48, ROWS_MAX = 20000, SPACE = 1 << 16 };

static struct arena arena;
static uint64_t key, drawn;

static int64_t draw(int64_t below)
{
    return rng_below(key, drawn++, below);
}

static void open_arena(bool dry)
{
    struct plan p = {.row_count = 1000, .event_count = 4000, .low_count = 200, .high_count = 200};
    p.bytes = p.row_count * (int64_t)sizeof(struct ledger_row) +
              p.event_count * (int64_t)sizeof(struct ledger_event) +
              (p.low_count + p.high_count) * (int64_t)sizeof(struct arena_block) + SPACE;
    struct error e;
    if (!arena_open(&arena, &p, dry, &e))
        fail_msg("%s", e.text);
    key = 7, drawn = 0;
}

static struct ledger_label label(const char *name, enum ledger_category category)
{
    static const int64_t dim[] = {2, 3};
    return (struct ledger_label){.name = name,
                                 .suffix = ".x",
                                 .op = "op",
                                 .category = category,
                                 .dtype = DTYPE_F32,
                                 .dim_count = 2,
                                 .dim = dim,
                                 .node = 5};
}

static bool has_room(void) // dead blocks take room, too
{
    return arena.cap_bytes - arena_held_bytes(&arena) > 512 && arena.stack[0].count < 190 &&
           arena.stack[1].count < 190;
}

static void *push(enum arena_end end, int64_t bytes, enum ledger_category category)
{
    struct ledger_label l = label("block", category);
    return arena_push(&arena, end, bytes, &l);
}

// ---- a second account, kept by the test from what it asks for ----

struct account {
    int64_t now[LEDGER_CATEGORY_COUNT], at_peak[LEDGER_CATEGORY_COUNT];
    int64_t peak, phase_peak[PHASE_COUNT];
};

static void account_settle(struct account *a)
{
    int64_t total = 0;
    a->now[LEDGER_STRANDED] = arena.stranded_bytes;
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        total += a->now[i];
    assert_int_equal(total, arena_held_bytes(&arena));
    int phase = (int)arena.ledger.phase;
    if (total > a->phase_peak[phase])
        a->phase_peak[phase] = total;
    if (total > a->peak) {
        a->peak = total;
        memcpy(a->at_peak, a->now, sizeof(a->at_peak));
    }
}

static void account_add(struct account *a, enum ledger_category category, int64_t bytes, int sign)
{
    int64_t whole = bytes > 0 ? (bytes + 63) / 64 * 64 : 64;
    a->now[category] += sign * bytes;
    a->now[LEDGER_PADDING] += sign * (whole - bytes);
}

struct held {
    void *at;
    int64_t bytes;
    enum ledger_category category;
};

static enum ledger_category draw_category(void)
{
    return (enum ledger_category)draw(LEDGER_BOOKKEEPING);
}

// One random event; the account hears of it.
static void act(struct held *held, int *count, struct account *a)
{
    ledger_enter_phase(&arena.ledger, (enum ledger_phase)draw(PHASE_COUNT));
    account_settle(a);
    int64_t what = draw(10);
    if (*count == 0 || (what < 6 && *count < LIVE_MAX && has_room())) {
        struct held h = {.bytes = draw(400), .category = draw_category()};
        h.at = push((enum arena_end)draw(2), h.bytes, h.category);
        held[(*count)++] = h;
        account_add(a, h.category, h.bytes, 1);
    } else if (what == 6) {
        struct held *h = &held[draw(*count)];
        struct ledger_label l = label("other", draw_category());
        arena_relabel(&arena, h->at, &l);
        account_add(a, h->category, h->bytes, -1);
        account_add(a, l.category, h->bytes, 1);
        h->category = l.category;
    } else if (what == 7) {
        struct held *h = &held[*count - 1];
        h->at = arena_sink(&arena, h->at);
    } else {
        struct held *h = &held[draw(*count)];
        arena_give(&arena, h->at);
        account_add(a, h->category, h->bytes, -1);
        *h = held[--*count];
    }
    account_settle(a);
}

static void start_account(struct account *a)
{
    *a = (struct account){0};
    memcpy(a->now, arena.ledger.counts.now, sizeof(a->now));
    memcpy(a->phase_peak, arena.ledger.counts.phase_peak, sizeof(a->phase_peak));
    account_settle(a);
}

static void compare(const struct account *a)
{
    const struct ledger_counts *c = &arena.ledger.counts;
    assert_int_equal(c->total_peak, a->peak);
    assert_int_equal(ledger_peak(&arena.ledger), a->peak);
    int64_t sum = 0;
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++) {
        assert_int_equal(c->now[i], a->now[i]);
        assert_int_equal(c->at_peak[i], a->at_peak[i]);
        assert_true(c->peak[i] >= c->at_peak[i] && c->peak[i] >= c->now[i]);
        sum += c->at_peak[i];
    }
    assert_int_equal(sum, c->total_peak);
    for (int i = 0; i < PHASE_COUNT; i++)
        assert_int_equal(c->phase_peak[i], a->phase_peak[i]);
}

static void give_all(struct held *held, int *count)
{
    while (*count > 0)
        arena_give(&arena, held[--*count].at);
}

static void counts_follow_from_what_was_asked(void **state)
{
    (void)state;
    static struct held held[LIVE_MAX];
    for (int dry = 0; dry < 2; dry++) {
        int count = 0;
        struct account a;
        open_arena(dry);
        start_account(&a);
        for (int lap = 0; lap < 20; lap++) {
            arena_lap(&arena);
            for (int i = 0; i < 200; i++)
                act(held, &count, &a);
            compare(&a);
        }
        give_all(held, &count);
        arena_close(&arena);
    }
}

// ---- replaying the events ----

// Without slides and relabels, the ends of the rows are all that the events do not say.
static void replayed_events_give_the_same_peaks(void **state)
{
    (void)state;
    static unsigned char end_of_row[ROWS_MAX];
    static struct held held[LIVE_MAX];
    int count = 0;
    open_arena(true);
    int64_t first = arena.ledger.event_count;
    int64_t before = arena_held_bytes(&arena), peak = 0, phase_peak[PHASE_COUNT] = {0};
    ledger_reset_peak(&arena.ledger);
    for (int i = 0; i < 3000; i++) {
        ledger_enter_phase(&arena.ledger, (enum ledger_phase)draw(PHASE_COUNT));
        if (count < LIVE_MAX && has_room() && draw(5) < 3) {
            enum arena_end end = (enum arena_end)draw(2);
            held[count++].at = push(end, draw(400), LEDGER_WORKSPACE);
            assert_true(arena.ledger.row_count <= ROWS_MAX);
            end_of_row[arena.ledger.row_count - 1] = (unsigned char)end;
        } else if (count > 0) {
            int64_t k = draw(count);
            arena_give(&arena, held[k].at);
            held[k] = held[--count];
        }
    }
    static struct {
        int32_t row;
        int64_t bytes;
        bool live;
    } stack[2][LIVE_MAX * 40];
    int height[2] = {0};
    int64_t total = before;
    for (int64_t i = first; i < arena.ledger.event_count; i++) {
        const struct ledger_event *e = &arena.ledger.event[i];
        int end = end_of_row[e->row], at = height[end];
        phase_peak[e->phase] = total > phase_peak[e->phase] ? total : phase_peak[e->phase];
        if (e->bytes > 0) {
            stack[end][at].row = e->row;
            stack[end][at].bytes = e->bytes;
            stack[end][at].live = true;
            height[end]++;
            total += e->bytes;
        } else {
            while (stack[end][--at].row != e->row)
                continue;
            assert_int_equal(stack[end][at].bytes, -e->bytes);
            stack[end][at].live = false;
            while (height[end] > 0 && !stack[end][height[end] - 1].live)
                total -= stack[end][--height[end]].bytes;
        }
        peak = total > peak ? total : peak;
        phase_peak[e->phase] = total > phase_peak[e->phase] ? total : phase_peak[e->phase];
    }
    assert_int_equal(total, arena.ledger.counts.total_now);
    assert_int_equal(peak, ledger_peak(&arena.ledger));
    for (int i = 1; i < PHASE_COUNT; i++)
        assert_int_equal(phase_peak[i], arena.ledger.counts.phase_peak[i]);
    give_all(held, &count);
    arena_close(&arena);
}

// Rows say when they were born and died, in the numbers of the events.
static void rows_and_events_agree(void **state)
{
    (void)state;
    open_arena(true);
    void *a = push(ARENA_LOW, 10, LEDGER_WEIGHTS), *b = push(ARENA_HIGH, 70, LEDGER_WORKSPACE);
    struct ledger *l = &arena.ledger;
    int64_t of_a = l->row_count - 2, of_b = l->row_count - 1, at = l->event_count;
    arena_give(&arena, b);
    assert_int_equal(l->row[of_a].born, at - 2);
    assert_int_equal(l->row[of_b].born, at - 1);
    assert_int_equal(l->row[of_b].died, at);
    assert_true(l->row[of_a].died == LEDGER_LIVE);
    assert_int_equal(l->event[at].bytes, -128);
    assert_int_equal(l->row[of_b].bytes, 70);
    assert_int_equal(l->row[of_b].padding_bytes, 58);
    assert_string_equal(l->row[of_a].name, "block.x");
    assert_string_equal(l->row[of_a].op, "op");
    assert_int_equal(l->row[of_a].node, 5);
    assert_int_equal(l->row[of_a].dim[1], 3);
    arena_give(&arena, a);
    arena_close(&arena);
}

// ---- laps ----

static void a_lap_keeps_live_rows(void **state)
{
    (void)state;
    void *at[6];
    char name[6][16];
    open_arena(false);
    int64_t rows = arena.ledger.row_count;
    for (int i = 0; i < 6; i++) {
        snprintf(name[i], sizeof(name[i]), "row%d", i);
        struct ledger_label l = label(name[i], LEDGER_WEIGHTS);
        at[i] = arena_push(&arena, (enum arena_end)(i % 2), 10 + i, &l);
    }
    arena_give(&arena, at[0]);
    arena_give(&arena, at[3]);
    int64_t events = arena.ledger.first_event + arena.ledger.event_count;
    arena_lap(&arena);
    assert_int_equal(arena.ledger.row_count, rows + 4);
    assert_int_equal(arena.ledger.live_row_count, rows + 4);
    assert_int_equal(arena.ledger.event_count, 0);
    assert_int_equal(arena.ledger.first_event, events);
    static const int left[] = {1, 2, 4, 5};
    for (int i = 0; i < 4; i++) {
        const struct ledger_row *r = &arena.ledger.row[rows + i];
        snprintf(name[0], sizeof(name[0]), "row%d.x", left[i]);
        assert_string_equal(r->name, name[0]);
        arena_give(&arena, at[left[i]]); // the block still knows its row
        assert_int_equal(r->died, events + i);
    }
    assert_int_equal(arena.ledger.live_row_count, rows);
    arena_close(&arena);
}

// A plan keeps every lap, a run the last: the same counts, the same most of a lap.
static void a_plan_and_a_run_agree(void **state)
{
    (void)state;
    static struct held held[LIVE_MAX];
    struct ledger_counts counts[2];
    int64_t most[2][2], all[2], last[2];
    for (int dry = 0; dry < 2; dry++) {
        int count = 0;
        struct account a;
        open_arena(dry);
        start_account(&a);
        for (int lap = 0; lap < 10; lap++) {
            arena_lap(&arena);
            for (int i = 0; i < 50 + 10 * (lap % 3); i++)
                act(held, &count, &a);
        }
        memcpy(&counts[dry], &arena.ledger.counts, sizeof(counts[dry]));
        most[dry][0] = arena.ledger.row_max;
        most[dry][1] = arena.ledger.event_max;
        all[dry] = arena.ledger.first_event + arena.ledger.event_count;
        last[dry] = arena.ledger.lap_first_event;
        if (dry)
            assert_int_equal(arena.ledger.first_event, 0);
        else
            assert_int_equal(arena.ledger.first_event, arena.ledger.lap_first_event);
        give_all(held, &count);
        arena_close(&arena);
    }
    assert_memory_equal(&counts[0], &counts[1], sizeof(counts[0]));
    assert_memory_equal(most[0], most[1], sizeof(most[0]));
    assert_int_equal(all[0], all[1]);
    assert_int_equal(last[0], last[1]);
}

// What a lap needs is what lived on from before it and what it made.
static void the_longest_lap_sets_the_size(void **state)
{
    (void)state;
    open_arena(false);
    int64_t rows = arena.ledger.row_count;
    arena_lap(&arena);
    for (int i = 0; i < 5; i++)
        push(ARENA_LOW, 1, LEDGER_WEIGHTS);
    arena_lap(&arena);
    for (int i = 0; i < 7; i++)
        arena_give(&arena, push(ARENA_HIGH, 1, LEDGER_WORKSPACE));
    arena_lap(&arena);
    push(ARENA_LOW, 1, LEDGER_WEIGHTS);
    assert_int_equal(arena.ledger.row_max, rows + 5 + 7);
    assert_int_equal(arena.ledger.event_max, 14);
    arena_close(&arena);
}

// ---- peaks ----

static void a_reset_peak_starts_from_now(void **state)
{
    (void)state;
    open_arena(false);
    void *a = push(ARENA_LOW, 640, LEDGER_WEIGHTS), *b = push(ARENA_HIGH, 6400, LEDGER_WORKSPACE);
    arena_give(&arena, b);
    ledger_enter_phase(&arena.ledger, PHASE_UPDATE);
    ledger_reset_peak(&arena.ledger);
    const struct ledger_counts *c = &arena.ledger.counts;
    int64_t now = c->total_now;
    assert_int_equal(c->total_peak, now);
    assert_int_equal(c->peak[LEDGER_WORKSPACE], 0);
    assert_int_equal(c->at_peak[LEDGER_WEIGHTS], 640);
    assert_int_equal(c->phase_peak[PHASE_INIT], 0);
    assert_int_equal(c->phase_peak[PHASE_UPDATE], now);
    b = push(ARENA_LOW, 64, LEDGER_BATCH);
    assert_int_equal(c->total_peak, now + 64);
    assert_int_equal(c->peak_phase, PHASE_UPDATE);
    assert_string_equal(c->peak_name, "block.x");
    arena_give(&arena, a); // strands 640 bytes: no new peak, but a peak of stranded bytes
    assert_int_equal(c->stranded_peak, 640);
    assert_int_equal(c->now[LEDGER_STRANDED], 640);
    assert_int_equal(c->live_peak, now + 64);
    arena_give(&arena, b);
    assert_int_equal(c->total_peak, now + 64);
    arena_close(&arena);
}

static void a_relabel_moves_bytes_without_a_peak(void **state)
{
    (void)state;
    open_arena(false);
    const struct ledger_counts *c = &arena.ledger.counts;
    void *a = push(ARENA_LOW, 1000, LEDGER_SAVED_ACTIVATIONS);
    push(ARENA_LOW, 64, LEDGER_WORKSPACE); // a is not on top
    int64_t peak = c->total_peak, peak_event = c->peak_event, held = arena_held_bytes(&arena);
    struct ledger_label l = label("grad", LEDGER_ACTIVATION_GRADIENTS);
    arena_relabel(&arena, a, &l);
    assert_int_equal(c->now[LEDGER_SAVED_ACTIVATIONS], 0);
    assert_int_equal(c->now[LEDGER_ACTIVATION_GRADIENTS], 1000);
    assert_int_equal(c->peak[LEDGER_ACTIVATION_GRADIENTS], 1000);
    assert_int_equal(c->at_peak[LEDGER_ACTIVATION_GRADIENTS], 0);
    assert_int_equal(c->at_peak[LEDGER_SAVED_ACTIVATIONS], 1000);
    assert_int_equal(c->total_peak, peak);
    assert_int_equal(c->peak_event, peak_event);
    assert_int_equal(arena_held_bytes(&arena), held);
    assert_string_equal(arena.ledger.row[arena.ledger.row_count - 1].name, "grad.x");
    arena_close(&arena);
}

static void phases_count_what_was_held_in_them(void **state)
{
    (void)state;
    open_arena(false);
    const struct ledger_counts *c = &arena.ledger.counts;
    void *a = push(ARENA_LOW, 640, LEDGER_WEIGHTS);
    int64_t held = c->total_now;
    assert_int_equal(ledger_enter_phase(&arena.ledger, PHASE_EVAL), PHASE_INIT);
    assert_int_equal(c->phase_peak[PHASE_EVAL], held); // before any event
    arena_give(&arena, a);
    assert_int_equal(c->phase_peak[PHASE_EVAL], held);
    assert_int_equal(ledger_enter_phase(&arena.ledger, PHASE_UPDATE), PHASE_EVAL);
    assert_int_equal(c->phase_peak[PHASE_UPDATE], held - 640);
    arena_close(&arena);
}

static void a_watch_sees_the_highest_since(void **state)
{
    (void)state;
    open_arena(false);
    ledger_watch(&arena.ledger);
    int64_t now = arena.ledger.counts.total_now;
    arena_give(&arena, push(ARENA_LOW, 640, LEDGER_WORKSPACE));
    assert_int_equal(ledger_watch(&arena.ledger), now + 640);
    arena_give(&arena, push(ARENA_LOW, 64, LEDGER_WORKSPACE));
    assert_int_equal(ledger_watch(&arena.ledger), now + 64);
    assert_int_equal(ledger_watch(&arena.ledger), now);
    arena_close(&arena);
}

static void names_are_all_different(void **state)
{
    (void)state;
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(ledger_category_name((enum ledger_category)i),
                                    ledger_category_name((enum ledger_category)j));
    for (int i = 0; i < PHASE_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(ledger_phase_name((enum ledger_phase)i),
                                    ledger_phase_name((enum ledger_phase)j));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_follow_from_what_was_asked),
        cmocka_unit_test(replayed_events_give_the_same_peaks),
        cmocka_unit_test(rows_and_events_agree),
        cmocka_unit_test(a_lap_keeps_live_rows),
        cmocka_unit_test(a_plan_and_a_run_agree),
        cmocka_unit_test(the_longest_lap_sets_the_size),
        cmocka_unit_test(a_reset_peak_starts_from_now),
        cmocka_unit_test(a_relabel_moves_bytes_without_a_peak),
        cmocka_unit_test(phases_count_what_was_held_in_them),
        cmocka_unit_test(a_watch_sees_the_highest_since),
        cmocka_unit_test(names_are_all_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
