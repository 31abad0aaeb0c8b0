// bench_gemm.h - what the BLAS can do at a linear's shapes when nothing but speed counts: one large
// call per thread. The yardstick of `memtape bench`; training never calls it.
#ifndef TAPE_CPU_BENCH_GEMM_H
#define TAPE_CPU_BENCH_GEMM_H

#include "tape/base.h"

struct bench_gemm {
    int64_t rows, in, out;
};

// y = x w^T, dx = y w, dw = y^T x, each cut into `threads` equal parts of its output.
// x, dx (rows, in), w, dw (out, in), y (rows, out).
void bench_gemm(const struct bench_gemm *s, int threads, const real *x, const real *w, real *y,
                real *dx, real *dw);

#endif
