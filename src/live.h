// live.h - what the arena held at the moment of a plan's peak, tensor by tensor, alike ones of all
// layers in one line. Reads the ledger of a dry run, which keeps its whole history.
#ifndef SRC_LIVE_H
#define SRC_LIVE_H

#include "src/json.h"
#include "tape/ledger.h"

enum { LIVE_GROUPS_MAX = 1024 };

struct live_group { // tensors of one category and shape whose names differ in a number
    char name[LEDGER_NAME_BYTES]; // "h.*.mlp.gelu"; of a single one its own
    const struct ledger_row *row; // the first of them
    int64_t count, bytes;         // bytes: of all, padding not included
};

struct live {
    struct live_group group[LIVE_GROUPS_MAX]; // most bytes first
    int count;
};

// Sum of bytes + padding + stranded = the peak.
void live_at_peak(struct live *l, const struct ledger *ledger);

void live_table(FILE *f, const struct live *l, const struct ledger_counts *c, int most);
void live_json(struct json *j, const struct live *l, const struct ledger_counts *c);

#endif
