// code8.h - a number as one byte: an index into a map of 256 values from 0 to 1, which are dense
// near 0 and sparse near 1 (the dynamic data type of Dettmers et al. 2021, arXiv 2110.02861, with
// the maps of bitsandbytes). A block of numbers is stored as codes and its largest size, absmax:
// x is about map[code] absmax.
//
// For i = 0 ... 6 a map has the middles of n_i equal parts of [0.1, 1], times 10^(i - 6):
//   unsigned  n_i = 2^(i + 1), 0 and 1
//   signed    n_i = 2^i, with both signs, 0 and 1. There is no -1: a block's extreme, if it is
//             negative, comes back as -0.993 absmax
#ifndef TAPE_CPU_CODE8_H
#define TAPE_CPU_CODE8_H

#include "tape/base.h"

enum { CODE8_VALUES = 256, CODE8_BLOCK = 256, CODE8_SIGNED_ZERO = 127 };

// Ascending. map[0] of an unsigned map is 0, map[CODE8_SIGNED_ZERO] of a signed one.
void code8_signed_map(real map[CODE8_VALUES]);
void code8_unsigned_map(real map[CODE8_VALUES]);

void code8_unpack(real *x, const uint8_t *code, int64_t n, const real *map, real absmax);

// The nearest code; of a midpoint between two the even one. What is not 0 keeps its sign in a
// signed map, if need be as the smallest value of that sign. absmax 0: all are 0.
void code8_pack_signed(uint8_t *code, const real *x, int64_t n, const real *map, real absmax);
void code8_pack_unsigned(uint8_t *code, const real *x, int64_t n, const real *map, real absmax);

#endif
