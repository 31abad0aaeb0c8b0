#define _DEFAULT_SOURCE
#include "tape/arena.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

const struct plan arena_boundless = {.bytes = INT64_C(1) << 45,
                                     .row_count = 1 << 21,
                                     .event_count = 1 << 23,
                                     .low_count = 1 << 20,
                                     .high_count = 1 << 20,
                                     .node_count = 1 << 20,
                                     .tensor_count = 1 << 20,
                                     .segment_count = 1 << 16,
                                     .loan_count = 1 << 10};

static const int64_t side_bytes_max = INT64_C(1) << 32;

static int64_t round_up(int64_t bytes)
{
    return (bytes + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
}

int64_t arena_held_bytes(const struct arena *a)
{
    return a->stack[ARENA_LOW].bytes + a->stack[ARENA_HIGH].bytes;
}

static void check_law(const struct arena *a)
{
#ifdef TAPE_LAW
    enum { SCAN_MAX = 4096 };
    int64_t dead = 0;
    bool whole = a->stack[0].count + a->stack[1].count <= SCAN_MAX;
    for (int end = 0; end < ARENA_END_COUNT; end++) {
        const struct arena_stack *s = &a->stack[end];
        for (int64_t i = 0; whole && i < s->count; i++)
            dead += s->block[i].live ? 0 : s->block[i].bytes;
        CHECK(s->count == 0 || s->block[s->count - 1].live);
    }
    CHECK(!whole || dead == a->stranded_bytes);
    CHECK(arena_held_bytes(a) == a->ledger.counts.total_now);
    CHECK(arena_held_bytes(a) <= a->cap_bytes);
#else
    (void)a;
#endif
}

static void settle(struct arena *a)
{
    ledger_settle(&a->ledger, a->stranded_bytes);
    check_law(a);
}

__attribute__((noinline)) void arena_break(const struct arena *a, const struct ledger_row *row,
                                           int64_t bytes)
{
    __asm__ volatile("" : : "r"(a), "r"(row), "r"(bytes)); // keep the call and its arguments
}

static void tell(const struct arena *a, int32_t row, int sign)
{
    const struct ledger_row *r = &a->ledger.row[row];
    if (!a->dry)
        arena_break(a, r, sign * (r->bytes + r->padding_bytes));
}

// Fresh and returned bytes are NaN in test builds: a late or early read shows in the next loss.
static void poison(const struct arena *a, const struct arena_block *b)
{
#ifdef TAPE_POISON
    if (!a->dry)
        memset(a->base + b->offset_bytes, 0xff, (size_t)b->bytes);
#else
    (void)a;
    (void)b;
#endif
}

// ---- opening ---------------------------------------------------------------------------

static void *reserve(int64_t bytes, bool may_touch)
{
    int access = may_touch ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *at =
        mmap(NULL, (size_t)bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void *push_table(struct arena *a, const char *name, int64_t count, int64_t item_bytes)
{
    struct ledger_label label = {.name = name,
                                 .category = LEDGER_BOOKKEEPING,
                                 .dtype = DTYPE_U8,
                                 .dim_count = 2,
                                 .dim = (int64_t[]){count, item_bytes},
                                 .node = -1};
    // Whole blocks, so that the padding of a run does not depend on how many rows its tables have.
    return arena_push(a, ARENA_LOW, round_up(count * item_bytes), &label); // fresh pages are zero
}

static void *side_table(struct arena *a, int64_t bytes)
{
    void *at = a->side + a->side_used_bytes;
    a->side_used_bytes += round_up(bytes);
    CHECK(a->side_used_bytes <= a->side_bytes);
    return at;
}

// The tables that the arena itself needs. They are the first blocks of the low end, so their
// addresses are known before there is a table to record them in. A dry run keeps its whole history:
// its own tables are boundless, whatever it accounts for.
static void open_tables(struct arena *a, const struct plan *p)
{
    static const char *const name[] = {"ledger.rows", "ledger.events", "arena.low", "arena.high"};
    const int64_t count[] = {p->row_count, p->event_count, p->low_count, p->high_count};
    const int64_t most[] = {arena_boundless.row_count, arena_boundless.event_count,
                            arena_boundless.low_count, arena_boundless.high_count};
    const int64_t item[] = {sizeof(struct ledger_row), sizeof(struct ledger_event),
                            sizeof(struct arena_block), sizeof(struct arena_block)};
    const int64_t *cap = a->dry ? most : count;
    char *at = a->base;
    void *table[4];
    for (int i = 0; i < 4; i++) {
        table[i] = a->dry ? side_table(a, cap[i] * item[i]) : at;
        at += round_up(count[i] * item[i]);
    }
    a->ledger.row = table[0];
    a->ledger.row_cap = cap[0];
    a->ledger.event = table[1];
    a->ledger.event_cap = cap[1];
    a->stack[ARENA_LOW].block = table[2];
    a->stack[ARENA_LOW].cap = cap[2];
    a->stack[ARENA_HIGH].block = table[3];
    a->stack[ARENA_HIGH].cap = cap[3];
    for (int i = 0; i < 4; i++) {
        void *placed = push_table(a, name[i], count[i], item[i]);
        CHECK(a->dry || placed == table[i]);
    }
}

bool arena_open(struct arena *a, const struct plan *plan, bool dry, struct error *e)
{
    const struct plan *p = plan != NULL ? plan : &arena_boundless;
    CHECK(plan != NULL || dry);
    memset(a, 0, sizeof(*a));
    a->dry = dry;
    a->ledger.keeps_history = dry;
    a->cap_bytes = p->bytes / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES; // never more than asked
    a->base = reserve(a->cap_bytes, !dry);
    while (a->base == NULL && plan == NULL && a->cap_bytes > side_bytes_max) {
        a->cap_bytes /= 2;
        a->base = reserve(a->cap_bytes, false);
    }
    if (a->base == NULL)
        return refuse(e, "the system refused a range of %lld bytes: ask for a smaller run",
                      (long long)a->cap_bytes);
    if (dry) {
        a->side_bytes = side_bytes_max;
        a->side = reserve(a->side_bytes, true);
        if (a->side == NULL) {
            arena_close(a);
            return refuse(e, "the system refused %lld bytes of addresses for a plan's tables",
                          (long long)side_bytes_max);
        }
    }
    open_tables(a, p);
    return true;
}

void arena_close(struct arena *a)
{
    if (a->base != NULL)
        munmap(a->base, (size_t)a->cap_bytes);
    if (a->side != NULL)
        munmap(a->side, (size_t)a->side_bytes);
    memset(a, 0, sizeof(*a));
}

void arena_touch(struct arena *a)
{
    int64_t page = sysconf(_SC_PAGESIZE), at = a->stack[ARENA_LOW].bytes;
    int64_t end = a->cap_bytes - a->stack[ARENA_HIGH].bytes;
#ifdef MADV_HUGEPAGE
    (void)madvise(a->base, (size_t)a->cap_bytes, MADV_HUGEPAGE);
#endif
    for (; at < end; at += page)
        ((volatile char *)a->base)[at] = 0;
    if (a->stack[ARENA_LOW].bytes < end) // the last page begins anywhere
        ((volatile char *)a->base)[end - 1] = 0;
}

// ---- push, give, sink ------------------------------------------------------------------

static void insist_on_room(struct arena *a, const struct ledger_label *label, int64_t need)
{
    int64_t left = a->cap_bytes - arena_held_bytes(a);
    if (need <= left)
        return;
    if (a->on_full != NULL)
        a->on_full(a, label, need);
    fprintf(stderr, "arena: %s%s wants %lld bytes, %lld are left of %lld\n", label->name,
            label->suffix ? label->suffix : "", (long long)need, (long long)left,
            (long long)a->cap_bytes);
    CHECK(need <= left);
}

void *arena_push(struct arena *a, enum arena_end end, int64_t bytes,
                 const struct ledger_label *label)
{
    CHECK(bytes >= 0 && bytes <= INT64_MAX / 2);
    struct arena_stack *s = &a->stack[end];
    CHECK(s->count < s->cap);
    int64_t need = round_up(bytes > 0 ? bytes : 1); // every block has an address of its own
    insist_on_room(a, label, need);
    int64_t offset = end == ARENA_LOW ? s->bytes : a->cap_bytes - s->bytes - need;
    int32_t row = ledger_born(&a->ledger, label, bytes, need - bytes);
    s->block[s->count++] = (struct arena_block){offset, need, row, true};
    s->max = s->count > s->max ? s->count : s->max;
    s->bytes += need;
    if (label->category != LEDGER_BOOKKEEPING)
        poison(a, &s->block[s->count - 1]);
    settle(a);
    tell(a, row, 1);
    return a->base + offset;
}

static enum arena_end end_of(const struct arena *a, const void *address)
{
    int64_t offset = (const char *)address - a->base;
    return offset < a->stack[ARENA_LOW].bytes ? ARENA_LOW : ARENA_HIGH;
}

// What is looked for is nearly always at or near the top.
static struct arena_block *find(struct arena *a, const void *address)
{
    int64_t offset = (const char *)address - a->base;
    struct arena_stack *s = &a->stack[end_of(a, address)];
    for (int64_t i = s->count - 1; i >= 0; i--)
        if (s->block[i].offset_bytes == offset && s->block[i].live)
            return &s->block[i];
    bool address_is_of_a_live_block = false;
    CHECK(address_is_of_a_live_block);
    return NULL;
}

void arena_give(struct arena *a, void *address)
{
    struct arena_stack *s = &a->stack[end_of(a, address)];
    struct arena_block *b = find(a, address);
    int32_t row = b->row;
    poison(a, b);
    b->live = false;
    a->stranded_bytes += b->bytes;
    ledger_died(&a->ledger, row);
    for (; s->count > 0 && !s->block[s->count - 1].live; s->count--) {
        s->bytes -= s->block[s->count - 1].bytes;
        a->stranded_bytes -= s->block[s->count - 1].bytes;
    }
    settle(a);
    tell(a, row, -1);
}

void arena_relabel(struct arena *a, void *address, const struct ledger_label *label)
{
    struct arena_block *b = find(a, address);
    int32_t old_row = b->row;
    const struct ledger_row old = a->ledger.row[old_row];
    ledger_died(&a->ledger, old_row);
    b->row = ledger_born(&a->ledger, label, old.bytes, old.padding_bytes);
    settle(a);
    tell(a, old_row, -1);
    tell(a, b->row, 1);
}

bool arena_is_on_top(const struct arena *a, const void *address)
{
    const struct arena_stack *s = &a->stack[end_of(a, address)];
    return s->count > 0 && a->base + s->block[s->count - 1].offset_bytes == (const char *)address;
}

void *arena_sink(struct arena *a, void *address)
{
    enum arena_end end = end_of(a, address);
    struct arena_stack *s = &a->stack[end];
    int64_t top = s->count - 1, to = top;
    if (s->count == 0 || a->base + s->block[top].offset_bytes != (char *)address)
        return address;
    while (to > 0 && !s->block[to - 1].live)
        to--;
    if (to == top)
        return address;
    struct arena_block b = s->block[top];
    for (int64_t i = to; i < top; i++) {
        s->bytes -= s->block[i].bytes;
        a->stranded_bytes -= s->block[i].bytes;
        b.offset_bytes += end == ARENA_LOW ? -s->block[i].bytes : s->block[i].bytes;
    }
    if (!a->dry)
        memmove(a->base + b.offset_bytes, address, (size_t)b.bytes);
    s->block[to] = b;
    s->count = to + 1;
    settle(a);
    return a->base + b.offset_bytes;
}

// ---- tables and laps -------------------------------------------------------------------

void *arena_table(struct arena *a, const char *name, int64_t count, int64_t item_bytes)
{
    void *at = push_table(a, name, count, item_bytes);
    return a->dry ? side_table(a, count * item_bytes) : at;
}

static void follow_row(void *user, int32_t from, int32_t to)
{
    struct arena *a = user;
    for (int end = 0; end < ARENA_END_COUNT; end++)
        for (int64_t i = 0; i < a->stack[end].count; i++)
            if (a->stack[end].block[i].live && a->stack[end].block[i].row == from) {
                a->stack[end].block[i].row = to;
                return;
            }
    bool live_row_has_a_block = false;
    CHECK(live_row_has_a_block);
}

void arena_lap(struct arena *a)
{
    ledger_lap(&a->ledger, follow_row, a);
}
