// value_list.h - the several values of one option: "8,16,32", "32..256*2", "1..9+2", "4..8".
//
// Items stand between commas. An item of numbers may be a range: FIRST..LAST in steps of 1,
// FIRST..LAST+STEP, or FIRST..LAST*FACTOR; LAST belongs to it if a step meets it.
#ifndef SRC_VALUE_LIST_H
#define SRC_VALUE_LIST_H

#include "tape/base.h"

enum { VALUE_LIST_MAX = 64, VALUE_LIST_BYTES = 32 }; // how many, and of the text of each

struct value_list {
    int count;
    char text[VALUE_LIST_MAX][VALUE_LIST_BYTES];
};

// Does the text stand for several values? ("8..8" does, though they are one.)
bool value_list_is_one(const char *text, bool is_number);

// Refused: items that are missing, too long, twice there, or ranges that do not go up.
bool value_list_read(struct value_list *l, const char *text, bool is_number, struct error *e);

#endif
