// array.h - numbers as they are stored, read and written as reals, a piece at a time.
//
// Ops compute in real. What is stored as real is handed out where it is; what is stored as bf16
// goes through `room`, a caller's buffer of `count` reals: widened before a loop, rounded to
// nearest once after it. So a sum that a loop keeps in its room is rounded once.
#ifndef TAPE_ARRAY_H
#define TAPE_ARRAY_H

#include "tape/base.h"

enum { ARRAY_PIECE = 1024 }; // reals of room in a loop over elements: 4 KiB of stack

struct array {
    void *at; // NULL: there is none
    enum dtype dtype;
};

static inline struct array array_of(const void *at, enum dtype dtype)
{
    return (struct array){(void *)(uintptr_t)at, dtype};
}

// How many of n elements the piece that starts at `at` has.
static inline int64_t array_piece(int64_t at, int64_t n)
{
    return n - at < ARRAY_PIECE ? n - at : ARRAY_PIECE;
}

// The elements from number `from` on; of none, none.
struct array array_from(struct array a, int64_t from);

// Elements a[from], ... as reals, to read.
const real *array_read(struct array a, int64_t from, int64_t count, real *room);

// Where to write a[from], ...: array_close puts it there. keeps: holds what is there now.
real *array_open(struct array a, int64_t from, int64_t count, bool keeps, real *room);
void array_close(struct array a, int64_t from, int64_t count, const real *room);

// Puts reals there, wherever they are.
void array_write(struct array a, int64_t from, int64_t count, const real *x);

// to = from, or to += from where `adds`: n elements, stored as they may be. to may be from.
void array_carry(struct array to, struct array from, int64_t n, bool adds);

// `rows` rows of `count` elements, `stride` apart in a. As reals they are *room_stride apart: in
// place, or packed in room.
const real *array_read_rows(struct array a, int64_t from, int64_t rows, int64_t count,
                            int64_t stride, real *room, int64_t *room_stride);
real *array_open_rows(struct array a, int64_t from, int64_t rows, int64_t count, int64_t stride,
                      bool keeps, real *room, int64_t *room_stride);
void array_close_rows(struct array a, int64_t from, int64_t rows, int64_t count, int64_t stride,
                      const real *room);

// One element, for readers that are not loops.
real array_get(struct array a, int64_t i);

#endif
