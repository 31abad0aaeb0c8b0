// text_file.h - a whole text in memory as tokens, split into training and validation.
//
// A token takes one byte (vocabularies up to 256) or two, so a megabyte of English costs a
// megabyte. text_file.c is the one file of data/ that calls malloc, and only before training.
#ifndef DATA_TEXT_FILE_H
#define DATA_TEXT_FILE_H

#include "data/tokenizer.h"

#define DATASET_BUILTIN "builtin" // in place of a path: the corpus of data/corpus.h

struct dataset {
    int64_t count;       // tokens: [0, train_count) train, [train_count, count) validate
    int64_t train_count; // (int64_t)(count * 0.9), as nanoGPT splits
    int64_t token_bytes; // of one token in memory: 1 or 2
    void *ids;           // owned: uint8_t[count] or uint16_t[count]
    struct tokenizer tokenizer;
};

// Loads a file (or DATASET_BUILTIN) and turns it into tokens with `fixed`, the tokenizer of a
// snapshot, or with one of the given kind made for this text if `fixed` is NULL. Errors: a file
// that is missing, unreadable, a directory or empty; a text that the tokenizer refuses. On
// error nothing is held.
bool dataset_open(struct dataset *d, const char *path, enum tokenizer_kind kind,
                  const struct tokenizer *fixed, struct error *e);

void dataset_close(struct dataset *d); // gives the memory back; again is harmless

// Copies tokens [first, first + count) to out.
void dataset_read(const struct dataset *d, int64_t first, int64_t count, int32_t *out);

#endif
