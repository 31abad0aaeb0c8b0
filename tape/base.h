// base.h - the few things every file may use: number types, and the two ways to say no.
//
// refuse()   the outside world is wrong (a size, a file, an option): the caller gets one line and
//          decides. Functions that can fail return bool and take a struct error last.
// CHECK()  this program is wrong: it aborts, so that a debugger stops on the line. Never
//          compiled out.
#ifndef TAPE_BASE_H
#define TAPE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TAPE_F64
typedef double real; // the gradient checks run the same code in double
#define REAL_EPSILON 2.220446049250313e-16
#define DTYPE_REAL DTYPE_F64
#else
typedef float real;
#define REAL_EPSILON 1.1920928955078125e-7
#define DTYPE_REAL DTYPE_F32
#endif

// The upper half of a float: 8 bits of mantissa, one of them implied. Storage only: arithmetic is
// done in real (tape/array.h).
typedef uint16_t bf16;

enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_I32, DTYPE_U8, DTYPE_COUNT };

int64_t dtype_bytes(enum dtype d);    // of one element
const char *dtype_name(enum dtype d); // "f32", as reports spell it

// What went wrong, in one line: what, which value, what was expected, what to try.
struct error {
    char text[1024];
};

// Fills e (which may be NULL) and returns false, so that a caller can `return refuse(e, ...)`.
bool refuse(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

void check_failed(const char *text, const char *file, int line) __attribute__((noreturn));

// A door: an empty function for debuggers to break on. Called with the line that refuse() made, and
// with the condition of a CHECK that failed, just before it aborts.
void error_break(const char *text);

#define CHECK(c) ((c) ? (void)0 : check_failed(#c, __FILE__, __LINE__))
#define COUNT_OF(a) ((int)(sizeof(a) / sizeof((a)[0])))

#endif
