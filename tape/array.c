#include "tape/array.h"

#include "tape/cpu/vec.h"

struct array array_from(struct array a, int64_t from)
{
    char *at = a.at;
    return (struct array){at != NULL ? at + from * dtype_bytes(a.dtype) : NULL, a.dtype};
}

const real *array_read(struct array a, int64_t from, int64_t count, real *room)
{
    if (a.dtype == DTYPE_REAL)
        return (const real *)a.at + from;
    vec_unpack(room, (const bf16 *)a.at + from, count);
    return room;
}

real *array_open(struct array a, int64_t from, int64_t count, bool keeps, real *room)
{
    if (a.dtype == DTYPE_REAL)
        return (real *)a.at + from;
    if (keeps)
        vec_unpack(room, (const bf16 *)a.at + from, count);
    return room;
}

void array_close(struct array a, int64_t from, int64_t count, const real *room)
{
    if (a.dtype != DTYPE_REAL)
        vec_pack((bf16 *)a.at + from, room, count);
}

void array_write(struct array a, int64_t from, int64_t count, const real *x)
{
    if (a.dtype == DTYPE_REAL)
        memcpy((real *)a.at + from, x, (size_t)count * sizeof(real));
    else
        vec_pack((bf16 *)a.at + from, x, count);
}

void array_carry(struct array to, struct array from, int64_t n, bool adds)
{
    for (int64_t at = 0; at < n; at += ARRAY_PIECE) {
        int64_t count = array_piece(at, n);
        real room[2][ARRAY_PIECE];
        const real *x = array_read(from, at, count, room[0]);
        real *y = array_open(to, at, count, adds, room[1]);
        for (int64_t i = 0; i < count; i++)
            y[i] = adds ? y[i] + x[i] : x[i];
        array_close(to, at, count, y);
    }
}

const real *array_read_rows(struct array a, int64_t from, int64_t rows, int64_t count,
                            int64_t stride, real *room, int64_t *room_stride)
{
    return array_open_rows(a, from, rows, count, stride, true, room, room_stride);
}

real *array_open_rows(struct array a, int64_t from, int64_t rows, int64_t count, int64_t stride,
                      bool keeps, real *room, int64_t *room_stride)
{
    *room_stride = a.dtype == DTYPE_REAL ? stride : count;
    if (a.dtype == DTYPE_REAL)
        return (real *)a.at + from;
    for (int64_t i = 0; keeps && i < rows; i++)
        vec_unpack(room + i * count, (const bf16 *)a.at + from + i * stride, count);
    return room;
}

void array_close_rows(struct array a, int64_t from, int64_t rows, int64_t count, int64_t stride,
                      const real *room)
{
    for (int64_t i = 0; a.dtype != DTYPE_REAL && i < rows; i++)
        vec_pack((bf16 *)a.at + from + i * stride, room + i * count, count);
}

real array_get(struct array a, int64_t i)
{
    real room;
    return *array_read(a, i, 1, &room);
}
