// text.h - numbers to text and back, the same in every locale: a point, never a comma.
#ifndef TAPE_TEXT_H
#define TAPE_TEXT_H

#include "tape/base.h"

enum { TEXT_NUMBER_BYTES = 40 };

// Writes v with the fewest digits that read back as the same double. JSON's spelling; a value
// that is not finite becomes "null", which JSON has and it has not. Returns out.
char *text_from_double(double v, char out[TEXT_NUMBER_BYTES]);

// "1.50 MB" (1e6) for people; exact bytes belong beside it wherever they matter. Returns out.
char *text_from_bytes(int64_t bytes, char out[TEXT_NUMBER_BYTES]);

// Appends to the `used` bytes of a text in out, as far as there is room; returns how many are used
// then. A birth costs a name, and printf costs more than the rest of a dry run.
size_t text_append(char *out, size_t bytes, size_t used, const char *text);

// How far two names are apart: single letters put in, left out or changed (Levenshtein). a: its
// first a_length bytes. Of a b of 64 bytes and more only a bound from above.
int text_distance(const char *a, size_t a_length, const char *b);

// Whole text or nothing: false if anything follows the number, or if it does not fit.
bool text_to_double(const char *text, double *v);
bool text_to_int64(const char *text, int64_t *v);

// "262144", "256KiB", "1.5 GB", "8GiB": bytes. B, KB, MB, GB, TB are powers of 1000; KiB, MiB, GiB,
// TiB of 1024 (K, M, G, T alone too).
bool text_to_bytes(const char *text, int64_t *bytes);

#endif
