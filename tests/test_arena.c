// test_arena.c - whatever the order of pushes, gives, slides and relabels, a live block keeps its
// bytes, the ends never cross, and an arena with nothing live holds nothing.
#include "tape/arena.h"
#include "tape/rng.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIVE_MAX = 64, TABLE_COUNT = 100, SPACE = 1 << 16 };

static struct arena arena;

static struct plan plan_of(int64_t bytes)
{
    struct plan p = {.row_count = 2000, .event_count = 8000, .low_count = 200, .high_count = 200};
    int64_t tables = p.row_count * (int64_t)sizeof(struct ledger_row) +
                     p.event_count * (int64_t)sizeof(struct ledger_event) +
                     (p.low_count + p.high_count) * (int64_t)sizeof(struct arena_block);
    p.bytes = (tables + bytes + 4 * ARENA_ALIGN_BYTES) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
    return p;
}

static void open_arena(int64_t bytes, bool dry)
{
    struct plan plan = plan_of(bytes);
    struct error e;
    if (!arena_open(&arena, &plan, dry, &e))
        fail_msg("%s", e.text);
}

static struct ledger_label label(const char *name)
{
    static const int64_t dim[] = {1};
    return (struct ledger_label){.name = name,
                                 .category = LEDGER_WORKSPACE,
                                 .dtype = DTYPE_U8,
                                 .dim_count = 1,
                                 .dim = dim,
                                 .node = -1};
}

static void *push(enum arena_end end, int64_t bytes)
{
    struct ledger_label l = label("block");
    return arena_push(&arena, end, bytes, &l);
}

// ---- random histories ----

struct held {
    unsigned char *at;
    int64_t bytes;
    unsigned char fill;
};

static uint64_t key, drawn;

static int64_t draw(int64_t below)
{
    return rng_below(key, drawn++, below);
}

static void check_fill(const struct held *h)
{
    for (int64_t i = 0; i < h->bytes; i++)
        assert_int_equal(h->at[i], h->fill);
}

// The ends do not cross, and blocks of one end follow each other.
static void check_ends(void)
{
    const struct arena_stack *low = &arena.stack[ARENA_LOW], *high = &arena.stack[ARENA_HIGH];
    int64_t at = 0;
    for (int64_t i = 0; i < low->count; at += low->block[i++].bytes)
        assert_int_equal(low->block[i].offset_bytes, at);
    assert_int_equal(at, low->bytes);
    at = arena.cap_bytes;
    for (int64_t i = 0; i < high->count; i++) {
        at -= high->block[i].bytes;
        assert_int_equal(high->block[i].offset_bytes, at);
    }
    assert_int_equal(arena.cap_bytes - at, high->bytes);
    assert_true(low->bytes + high->bytes <= arena.cap_bytes);
}

// A block with a fill of its own, if there is room.
static void push_one(struct held *h, int *count)
{
    int64_t bytes = draw(300), free = arena.cap_bytes - arena_held_bytes(&arena);
    if (*count == LIVE_MAX || free < bytes + ARENA_ALIGN_BYTES)
        return;
    h += (*count)++;
    h->bytes = bytes;
    h->fill = (unsigned char)draw(255);
    h->at = push((enum arena_end)draw(2), h->bytes);
    assert_int_equal((h->at - (unsigned char *)arena.base) % ARENA_ALIGN_BYTES, 0);
    memset(h->at, h->fill, (size_t)h->bytes);
}

static void change_one(struct held *held, int *count)
{
    struct held *h = &held[draw(*count)];
    struct ledger_label other = label("relabelled");
    check_fill(h);
    switch (draw(6)) {
    case 0: h->at = arena_sink(&arena, h->at); break;
    case 1: arena_relabel(&arena, h->at, &other); break;
    default:
        arena_give(&arena, h->at);
        *h = held[--*count];
        return;
    }
    check_fill(h);
}

static void random_histories_keep_live_bytes(void **state)
{
    (void)state;
    static struct held held[LIVE_MAX];
    open_arena(6000, false);
    int64_t empty = arena_held_bytes(&arena);
    for (key = 1; key <= 300; key++) {
        int count = 0;
        arena_lap(&arena);
        for (int i = 0; i < 150; i++) {
            if (draw(5) < 3)
                push_one(held, &count);
            else if (count > 0)
                change_one(held, &count);
            check_ends();
        }
        while (count > 0) {
            check_fill(&held[--count]);
            arena_give(&arena, held[count].at);
        }
        assert_int_equal(arena_held_bytes(&arena), empty);
        assert_int_equal(arena.stranded_bytes, 0);
        assert_int_equal(arena.stack[ARENA_HIGH].count, 0);
    }
    arena_close(&arena);
}

// ---- the rules, one by one ----

static void dead_bytes_strand_until_they_are_on_top(void **state)
{
    (void)state;
    open_arena(SPACE, false);
    for (int end = 0; end < ARENA_END_COUNT; end++) {
        int64_t before = arena_held_bytes(&arena);
        char *a = push((enum arena_end)end, 64), *b = push((enum arena_end)end, 100);
        char *c = push((enum arena_end)end, 1);
        arena_give(&arena, a);
        assert_int_equal(arena.stranded_bytes, 64);
        arena_give(&arena, b);
        assert_int_equal(arena.stranded_bytes, 64 + 128);
        assert_int_equal(arena_held_bytes(&arena) - before, 64 + 128 + 64);
        *c = 7;
        char *sunk = arena_sink(&arena, c);
        assert_ptr_equal(sunk, a); // c is as large as a was
        assert_int_equal(*sunk, 7);
        assert_int_equal(arena.stranded_bytes, 0);
        assert_int_equal(arena_held_bytes(&arena) - before, 64);
        assert_ptr_equal(arena_sink(&arena, sunk), sunk);
        arena_give(&arena, sunk);
        assert_int_equal(arena_held_bytes(&arena), before);
    }
    arena_close(&arena);
}

static void only_what_is_on_top_slides(void **state)
{
    (void)state;
    open_arena(SPACE, false);
    char *a = push(ARENA_LOW, 64), *b = push(ARENA_LOW, 64), *c = push(ARENA_LOW, 64);
    arena_give(&arena, a);
    assert_ptr_equal(arena_sink(&arena, b), b); // c is above it
    assert_ptr_equal(arena_sink(&arena, c), c); // b is live and right under it
    arena_give(&arena, b);
    assert_ptr_equal(arena_sink(&arena, c), a);
    arena_close(&arena);
}

static void empty_blocks_have_addresses(void **state)
{
    (void)state;
    open_arena(SPACE, false);
    void *a = push(ARENA_HIGH, 0), *b = push(ARENA_HIGH, 0);
    assert_ptr_not_equal(a, b);
    arena_give(&arena, a);
    arena_give(&arena, b);
    assert_int_equal(arena.stack[ARENA_HIGH].bytes, 0);
    arena_close(&arena);
}

static void tables_are_zero_and_survive(void **state)
{
    (void)state;
    for (int dry = 0; dry < 2; dry++) {
        open_arena(SPACE, dry);
        int64_t before = arena_held_bytes(&arena);
        int64_t *table = arena_table(&arena, "numbers", TABLE_COUNT, sizeof(int64_t));
        int64_t *second = arena_table(&arena, "more", TABLE_COUNT, sizeof(int64_t));
        assert_int_equal(arena_held_bytes(&arena) - before, 2 * 832);
        for (int i = 0; i < TABLE_COUNT; i++) {
            assert_int_equal(table[i], 0);
            table[i] = i;
        }
        for (int lap = 0; lap < 3; lap++) {
            arena_lap(&arena);
            void *a = push(ARENA_LOW, 500), *b = push(ARENA_LOW, 50);
            arena_give(&arena, a);
            arena_give(&arena, b);
        }
        for (int i = 0; i < TABLE_COUNT; i++) {
            assert_int_equal(table[i], i);
            assert_int_equal(second[i], 0);
        }
        arena_close(&arena);
    }
}

#ifdef TAPE_POISON
static void what_is_not_live_is_not_a_number(void **state)
{
    (void)state;
    open_arena(SPACE, false);
    real *below = push(ARENA_LOW, 8 * sizeof(real)), *above = push(ARENA_LOW, 64);
    assert_true(isnan((double)below[0]) && isnan((double)below[7]));
    below[3] = 1;
    arena_give(&arena, below);
    assert_true(isnan((double)below[3]));
    arena_give(&arena, above);
    arena_close(&arena);
}
#endif

// ---- dry arenas ----

// Offsets of a fixed history of pushes, gives and slides.
static int history(int64_t *offset)
{
    void *held[8];
    int count = 0;
    key = 99, drawn = 0;
    for (int i = 0; i < 8; i++) {
        held[i] = push((enum arena_end)draw(2), draw(1000));
        offset[count++] = (char *)held[i] - arena.base;
    }
    for (int i = 0; i < 6; i++) {
        arena_give(&arena, held[(i * 5) % 8]);
        held[7] = arena_sink(&arena, held[7]);
        held[6] = arena_sink(&arena, held[6]);
        offset[count++] = (char *)held[7] - arena.base;
        offset[count++] = (char *)held[6] - arena.base;
        if ((i + 1) * 5 % 8 >= 6)
            break;
    }
    offset[count++] = arena_held_bytes(&arena);
    return count;
}

static void a_dry_arena_places_the_same(void **state)
{
    (void)state;
    int64_t wet[64], dry[64];
    open_arena(SPACE, false);
    int count = history(wet);
    arena_close(&arena);
    open_arena(SPACE, true);
    assert_int_equal(history(dry), count);
    arena_close(&arena);
    for (int i = 0; i < count; i++)
        assert_int_equal(dry[i], wet[i]);
}

static void boundless_is_larger_than_memory(void **state)
{
    (void)state;
    struct error e;
    assert_true(arena_open(&arena, NULL, true, &e));
    char *a = push(ARENA_LOW, INT64_C(500) << 30), *b = push(ARENA_HIGH, INT64_C(500) << 30);
    assert_true(b - a >= INT64_C(500) << 30);
    arena_close(&arena);
}

// How the process of a child ends that does this; 0: it returned.
static int signal_of(void (*act)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        act();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static volatile int seen;

static void read_dry(void)
{
    open_arena(SPACE, true);
    seen = *(volatile char *)push(ARENA_LOW, 10);
}

static void write_dry(void)
{
    open_arena(SPACE, true);
    *(volatile char *)push(ARENA_HIGH, 10) = 1;
}

static void touching_dry_memory_faults(void **state)
{
    (void)state;
    int read = signal_of(read_dry), write = signal_of(write_dry);
    assert_true(read == SIGSEGV || read == SIGBUS);
    assert_true(write == SIGSEGV || write == SIGBUS);
}

// ---- full, and wrong ----

enum { FULL_STATUS = 42 };

static void leave_when_full(struct arena *a, const struct ledger_label *l, int64_t bytes)
{
    _exit(a == &arena && strcmp(l->name, "block") == 0 && bytes == 128 ? FULL_STATUS : 1);
}

static void overfill(void)
{
    open_arena(0, false);
    arena.on_full = leave_when_full;
    int64_t left = arena.cap_bytes - arena_held_bytes(&arena);
    push(ARENA_LOW, left - 64);
    push(ARENA_HIGH, 64); // fits to the byte
    if (arena_held_bytes(&arena) == arena.cap_bytes)
        push(ARENA_HIGH, 65);
}

static void overfill_without_a_reporter(void)
{
    open_arena(0, false);
    push(ARENA_LOW, arena.cap_bytes);
}

static void give_twice(void)
{
    open_arena(SPACE, false);
    void *a = push(ARENA_LOW, 10);
    push(ARENA_LOW, 10);
    arena_give(&arena, a);
    arena_give(&arena, a);
}

static void give_the_middle(void)
{
    open_arena(SPACE, false);
    arena_give(&arena, (char *)push(ARENA_LOW, 256) + 64);
}

static void a_full_arena_says_so(void **state)
{
    (void)state;
    assert_int_equal(signal_of(overfill), FULL_STATUS);
    assert_int_equal(signal_of(overfill_without_a_reporter), SIGABRT);
}

static void wrong_addresses_stop(void **state)
{
    (void)state;
    assert_int_equal(signal_of(give_twice), SIGABRT);
    assert_int_equal(signal_of(give_the_middle), SIGABRT);
}

static void a_range_is_never_more_than_asked(void **state)
{
    (void)state;
    struct plan plan = plan_of(SPACE);
    struct error e;
    plan.bytes += 63;
    assert_true(arena_open(&arena, &plan, false, &e));
    assert_true(arena.cap_bytes <= plan.bytes && plan.bytes - arena.cap_bytes < 64);
    arena_close(&arena);
    plan.bytes = INT64_MAX / 2; // refused, or given by a system with such a range
    if (!arena_open(&arena, &plan, false, &e))
        assert_non_null(strstr(e.text, "4611686018427387"));
    else
        arena_close(&arena);
}

// Every page between the ends is written once: an untouched one would be zero-filled by a step.
static int64_t pages_missed(const char *from, const char *to)
{
    int64_t page = sysconf(_SC_PAGESIZE), missed = 0;
    for (const char *at = from; at < to;) {
        const char *end = arena.base + ((at - arena.base) / page + 1) * page;
        bool zero = false;
        for (; at < end && at < to; at++)
            zero |= *at == 0;
        missed += !zero;
    }
    return missed;
}

static void touching_reaches_every_page(void **state)
{
    (void)state;
    for (int64_t bytes = 64; bytes <= 4096; bytes += 448) { // begins and ends anywhere in a page
        open_arena(1 << 17, false);
        push(ARENA_LOW, bytes);
        char *high = push(ARENA_HIGH, 4096 + 64);
        high[0] = 5;
        char *from = arena.base + arena.stack[ARENA_LOW].bytes;
        memset(from, 1, (size_t)(high - from));
        arena_touch(&arena);
        assert_int_equal(pages_missed(from, high), 0);
        assert_int_equal(high[0], 5);
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_keep_live_bytes),
        cmocka_unit_test(dead_bytes_strand_until_they_are_on_top),
        cmocka_unit_test(only_what_is_on_top_slides),
        cmocka_unit_test(empty_blocks_have_addresses),
        cmocka_unit_test(tables_are_zero_and_survive),
#ifdef TAPE_POISON
        cmocka_unit_test(what_is_not_live_is_not_a_number),
#endif
        cmocka_unit_test(a_dry_arena_places_the_same),
        cmocka_unit_test(boundless_is_larger_than_memory),
        cmocka_unit_test(touching_dry_memory_faults),
        cmocka_unit_test(a_full_arena_says_so),
        cmocka_unit_test(wrong_addresses_stop),
        cmocka_unit_test(a_range_is_never_more_than_asked),
        cmocka_unit_test(touching_reaches_every_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
