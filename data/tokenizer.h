// tokenizer.h - text to integers and back: one token per byte, or one per character.
//
// A character tokenizer is the sorted set of the Unicode characters of its text: token i is the
// i-th smallest code point (as in nanoGPT's prepare.py). Its text must be UTF-8 without zero
// bytes; anything else is binary and needs the byte tokenizer. A tokenizer is one plain struct:
// copy it by assignment.
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H

#include "tape/base.h"

enum tokenizer_kind { TOKENIZER_BYTE, TOKENIZER_CHAR };

enum {
    TOKENIZER_VOCAB_MAX = 4096, // characters
    TOKENIZER_TOKEN_BYTES = 4,  // the longest UTF-8 character
    TOKENIZER_TEXT_BYTES = 5 + TOKENIZER_TOKEN_BYTES * TOKENIZER_VOCAB_MAX + 1,
};

struct tokenizer {
    enum tokenizer_kind kind;
    int32_t vocab;                           // tokens are 0 .. vocab - 1
    int32_t code_point[TOKENIZER_VOCAB_MAX]; // TOKENIZER_CHAR: of each token, ascending
};

// The tokenizer of a text: 256 bytes, or the characters that occur in it. Refuses what is not
// UTF-8 (naming the offset) and more than TOKENIZER_VOCAB_MAX characters.
bool tokenizer_build(struct tokenizer *k, enum tokenizer_kind kind, const char *text, int64_t bytes,
                     struct error *e);

// The token at text[*at], and moves *at behind it; 0 <= *at < bytes. A character that the
// tokenizer has not is an error that names it and its offset.
bool tokenizer_next(const struct tokenizer *k, const char *text, int64_t bytes, int64_t *at,
                    int32_t *id, struct error *e);

// How many tokens the text has, then the tokens, into a buffer of that many.
bool tokenizer_count(const struct tokenizer *k, const char *text, int64_t bytes, int64_t *count,
                     struct error *e);
bool tokenizer_encode(const struct tokenizer *k, const char *text, int64_t bytes, int32_t *ids,
                      struct error *e);

// Writes the bytes of one token (no terminating zero) and returns how many: 1 to 4.
int64_t tokenizer_decode(const struct tokenizer *k, int32_t id, char out[TOKENIZER_TOKEN_BYTES]);

// "byte", or "char:" and the characters in order, for a snapshot's metadata. Control characters,
// '"', '\' and '%' are written as %0A (two hexadecimal digits), so that the text may stand between
// the quotes of a JSON string as it is. Returns its length; a zero follows.
int64_t tokenizer_to_text(const struct tokenizer *k, char out[TOKENIZER_TEXT_BYTES]);
bool tokenizer_from_text(struct tokenizer *k, const char *text, struct error *e);

#endif
