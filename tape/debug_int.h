// debug_int.h - what the debug_*.c share. No other file includes this.
#ifndef TAPE_DEBUG_INT_H
#define TAPE_DEBUG_INT_H

#include "tape/debug.h"

enum { DEBUG_TEXT_BYTES = 4096 };

// The ledger's row of the live block at this address; NULL if there is none.
const struct ledger_row *debug_row_at(const struct tape *t, const void *address);

// Whose bytes x's are: its base if it is a view.
static inline const struct tensor *debug_owner(const struct tensor *x)
{
    return x->base != NULL ? x->base : x;
}

bool debug_has_tape(const struct tape *t); // false after a line that says so

// Nodes from here on are done with backward.
int debug_first_done(const struct tape *t);

// Appends as printf does, as far as there is room; returns how many bytes are used then.
size_t debug_append(char *out, size_t used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
