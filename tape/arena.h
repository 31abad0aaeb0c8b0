// arena.h - one reserved range, two bump stacks that grow towards each other.
//
// Placement rules are the tape's; this file only bumps, gives back and slides. Invariants, checked
// after every event when TAPE_LAW is defined:
//   1. low + high = what the ledger holds (live rows + padding + stranded) <= cap_bytes
//   2. the top block of each end is live: a dead one is popped the moment it comes to the top
//   3. a live block never moves, except the one that arena_sink is asked to move
#ifndef TAPE_ARENA_H
#define TAPE_ARENA_H

#include "tape/ledger.h"
#include "tape/plan.h"

enum { ARENA_ALIGN_BYTES = 64 };

enum arena_end { ARENA_LOW, ARENA_HIGH, ARENA_END_COUNT };

struct arena_block {
    int64_t offset_bytes; // of its first byte, from the base, at either end
    int64_t bytes;        // rounded up
    int32_t row;          // of the ledger
    bool live;
};

struct arena_stack {
    struct arena_block *block; // in the order pushed
    int64_t count, cap, max;
    int64_t bytes; // live and stranded
};

struct arena {
    char *base;
    int64_t cap_bytes;
    bool dry; // addresses are real and distinct, but reading or writing one faults
    struct ledger ledger;
    struct arena_stack stack[ARENA_END_COUNT];
    int64_t stranded_bytes;
    char *side; // a dry arena's tables: they must be written
    int64_t side_bytes, side_used_bytes;
    // Called when a push does not fit, before the CHECK that follows; may report, or not return.
    void (*on_full)(struct arena *a, const struct ledger_label *label, int64_t bytes);
    void *on_full_user;
};

// What a dry run may need before anybody knows: address space, not memory.
extern const struct plan arena_boundless;

// Reserves plan->bytes. dry: the range may not be touched, and plan NULL asks for arena_boundless,
// or the largest range below it that the system grants (it costs nothing until written).
bool arena_open(struct arena *a, const struct plan *plan, bool dry, struct error *e);
void arena_close(struct arena *a);

// Writes one byte per page now, so that no step pays for fresh pages later.
void arena_touch(struct arena *a);

void *arena_push(struct arena *a, enum arena_end end, int64_t bytes,
                 const struct ledger_label *label);
void arena_give(struct arena *a, void *address);

// The same bytes under another name: one row dies and another is born in its place.
void arena_relabel(struct arena *a, void *address, const struct ledger_label *label);

// If the block is on top of its end with dead ones under it, slides it over them.
// Returns where the block is now. One memmove; nothing happens when nothing is stranded there.
void *arena_sink(struct arena *a, void *address);

// Whether giving this block back would leave nothing stranded.
bool arena_is_on_top(const struct arena *a, const void *address);

// A zeroed table for bookkeeping at the low end: count items, kept until arena_close. A dry arena
// accounts for it there, and returns memory beside the range that may be written.
void *arena_table(struct arena *a, const char *name, int64_t count, int64_t item_bytes);

// Forgets dead rows of the ledger (see ledger_lap).
void arena_lap(struct arena *a);

int64_t arena_held_bytes(const struct arena *a);

// A door: an empty function for debuggers to break on. Called after each event of the ledger, with
// the row that was born (bytes > 0, padding included) or has died (bytes < 0); never by a dry run.
void arena_break(const struct arena *a, const struct ledger_row *row, int64_t bytes);

#endif
