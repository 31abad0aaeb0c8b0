#include "tape/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4},   //
    [DTYPE_F64] = {"f64", 8},   //
    [DTYPE_BF16] = {"bf16", 2}, //
    [DTYPE_I32] = {"i32", 4},   //
    [DTYPE_U8] = {"u8", 1},
};

int64_t dtype_bytes(enum dtype d)
{
    return dtypes[d].bytes;
}

const char *dtype_name(enum dtype d)
{
    return dtypes[d].name;
}

__attribute__((noinline)) void error_break(const char *text)
{
    __asm__ volatile("" : : "r"(text)); // keep the call and its argument
}

bool refuse(struct error *e, const char *format, ...)
{
    if (e == NULL)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    error_break(e->text);
    return false;
}

void check_failed(const char *text, const char *file, int line)
{
    fprintf(stderr, "%s:%d: CHECK(%s) failed\n", file, line, text);
    error_break(text);
    abort();
}
