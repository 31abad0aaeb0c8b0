// ledger.h - what every byte is for. The arena says where bytes are; the ledger says why.
//
// One row per tensor ever placed, one event per birth and death. Every table, plot and debugger
// printer reads this; nothing else measures memory.
//
// Invariants, checked after every event when TAPE_LAW is defined:
//   1. the sum of now[] over all categories is total_now, and equals the bytes the arena holds
//   2. the categories at the peak add up to total_peak
//   3. a row is live exactly while died is LEDGER_LIVE
#ifndef TAPE_LEDGER_H
#define TAPE_LEDGER_H

#include "tape/base.h"

enum ledger_category {
    LEDGER_WEIGHTS,
    LEDGER_GRADIENTS, // of parameters: kept over the micro-batches of a step
    LEDGER_MASTER_WEIGHTS,
    LEDGER_OPTIMIZER_STATE,
    LEDGER_SAVED_ACTIVATIONS, // what forward keeps for backward
    LEDGER_RECOMPUTED,        // made again in backward because forward did not keep it
    LEDGER_ACTIVATION_GRADIENTS,
    LEDGER_WORKSPACE, // scratch of ops, and forward values that nothing keeps
    LEDGER_BATCH,
    LEDGER_KV_CACHE,
    LEDGER_COMMUNICATION,
    LEDGER_BOOKKEEPING, // nodes, tensors, these rows
    LEDGER_PADDING,     // what rounding up to ARENA_ALIGN_BYTES adds
    LEDGER_STRANDED,    // dead bytes under live ones: the arena can't use them yet
    LEDGER_CATEGORY_COUNT,
};

enum ledger_phase {
    PHASE_INIT,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_RECOMPUTE, // inside backward: a checkpoint segment computes again
    PHASE_UPDATE,
    PHASE_EVAL,
    PHASE_GENERATE,
    PHASE_COUNT,
};

const char *ledger_category_name(enum ledger_category c); // "saved_activations"
const char *ledger_phase_name(enum ledger_phase p);       // "forward"

enum { LEDGER_NAME_BYTES = 56, LEDGER_DIMS = 4 };
#define LEDGER_LIVE INT64_MAX

struct ledger_row {
    char name[LEDGER_NAME_BYTES]; // "h.3.mlp.gelu"
    const char *op;               // the op that asked; "" for what no op made
    enum ledger_category category;
    enum dtype dtype;
    int dim_count;
    int64_t dim[LEDGER_DIMS];
    int64_t bytes;           // the tensor's own
    int64_t padding_bytes;   // up to the next block
    enum ledger_phase phase; // in which it was born
    int64_t born, died;      // numbers of the two events
    int node;                // on the tape, or -1
};

struct ledger_event {
    int32_t row;   // index into row[]
    int32_t phase; // enum ledger_phase
    int64_t bytes; // > 0 born, < 0 died; padding included
};

struct ledger_counts { // bytes
    int64_t now[LEDGER_CATEGORY_COUNT];
    int64_t peak[LEDGER_CATEGORY_COUNT];    // highest that each ever was
    int64_t at_peak[LEDGER_CATEGORY_COUNT]; // at the moment when the total was highest
    int64_t total_now, total_peak;
    int64_t phase_peak[PHASE_COUNT]; // of the total
    enum ledger_phase peak_phase;
    int64_t peak_event;                // number of the event that made the peak
    char peak_name[LEDGER_NAME_BYTES]; // the tensor whose birth it was
    int64_t stranded_peak, live_peak;  // live: without stranded
    int64_t kept_bytes;                // saved activations when backward begins, at most
    int64_t watch_peak;                // of the total since the last ledger_watch
};

struct ledger {
    struct ledger_counts counts;
    enum ledger_phase phase; // now
    struct ledger_row *row;
    int64_t row_count, row_cap, row_max; // max: most rows that one lap ever had
    int64_t live_row_count;
    struct ledger_event *event;
    int64_t event_count, event_cap, event_max;
    int64_t first_event;          // number of event[0]
    int64_t lap_rows, lap_events; // so far in this lap; rows that live on from earlier included
    int64_t lap_first_event;      // its number
    bool keeps_history;           // a plan keeps every lap; a run keeps the last
    int64_t limit_bytes;          // watched, not enforced; 0: none
    bool is_over;                 // the total was above it ...
    int64_t over_event;           // ... first after this event,
    int64_t over_bytes;           // and was this
};

struct ledger_label {          // what a birth says of itself
    const char *name, *suffix; // joined; suffix may be NULL
    const char *op;
    enum ledger_category category;
    enum dtype dtype;
    int dim_count;
    const int64_t *dim;
    int node;
};

// Used by the arena only: births, deaths, and the bytes stranded after them.
int32_t ledger_born(struct ledger *l, const struct ledger_label *label, int64_t bytes,
                    int64_t padding_bytes);
void ledger_died(struct ledger *l, int32_t row);
void ledger_settle(struct ledger *l, int64_t stranded_bytes);

// A lap is one pass over the tape. Rows of dead tensors are dropped (by a run, not by a plan);
// `moved` is told each row's new index so that the arena can follow.
void ledger_lap(struct ledger *l, void (*moved)(void *user, int32_t from, int32_t to), void *user);

// Everything that happens from now on belongs to this phase. Returns the one before.
enum ledger_phase ledger_enter_phase(struct ledger *l, enum ledger_phase phase);

// What a step adds to what stays (weights, gradients, optimizer state, batch, bookkeeping ...), at
// the peak: activations saved and recomputed, their gradients, scratch, padding, stranded. Bytes.
int64_t ledger_activation_side(const struct ledger_counts *c);

// Backward begins: what forward has saved is now just what some backward reads.
void ledger_backward_begins(struct ledger *l);

// Starts watching the total anew; returns the highest it was since the last call.
int64_t ledger_watch(struct ledger *l);

// Peaks in bytes since the start or the last reset.
int64_t ledger_peak(const struct ledger *l);
// Peaks become what is held now. A plan taken afterwards (tape_plan) is of what follows only.
void ledger_reset_peak(struct ledger *l);

#endif
