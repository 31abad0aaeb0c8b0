// corpus.h - a text to train on where there is no file: short stories from a small grammar.
//
// A model of characters visibly learns it in stages: letters, words, a/an and singular/plural,
// the shapes of sentences, and last who speaks: each story keeps its two people, its place, its
// animal and its thing. Every word and rule is in corpus.c.
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include "tape/base.h"

enum { CORPUS_SEED = 1, CORPUS_DEFAULT_BYTES = 1 << 20 };

// Fills exactly `bytes` bytes of out (ASCII, no terminating zero) and returns `bytes`. A pure
// function of (seed, bytes); the text of a smaller count is a prefix of that of a larger one.
int64_t corpus_write(uint64_t seed, char *out, int64_t bytes);

#endif
