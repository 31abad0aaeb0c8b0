// suggest.h - what would make a run fit: the cheapest changes, each tried by a dry run of exactly
// the options that it prints.
//
// First what keeps the training's mathematics (micro-batch, recomputation, tiled attention), by
// extra compute; then what changes it (sgd, a smaller batch or sequence).
#ifndef SRC_SUGGEST_H
#define SRC_SUGGEST_H

#include "src/choice.h"

#include <stdio.h>

enum { SUGGESTIONS = 3 };

struct suggestion {
    struct choice choice;
    struct cost cost;
    double compute_percent;  // FLOPs more than without it
    bool rounds_differently; // the same mathematics, but other last bits
    const char *changes;     // "changes the training: ..."; "" if it does not
    char options[CHOICE_TEXT_BYTES];
};

// c is the configuration that holds more than limit_bytes, and s what was said. Returns how many.
int suggest(struct suggestion list[SUGGESTIONS], const struct config *c, const struct settings *s,
            enum config_use use, int64_t limit_bytes);

// A line each.
void suggest_print(FILE *f, const struct suggestion *list, int count);

#endif
