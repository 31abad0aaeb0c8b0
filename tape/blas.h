// blas.h - the one dense product that everything is written in, and the threads it runs on.
//
// Every call is single-threaded. Parallel code calls it from many threads at once, each on its own
// part of the output; the parts depend on shapes alone, so the thread count changes no bit.
#ifndef TAPE_BLAS_H
#define TAPE_BLAS_H

#include "tape/base.h"

enum blas_side { BLAS_AS_IS, BLAS_TRANSPOSED };

// A row-major matrix inside a larger one.
struct blas_matrix {
    real *at;
    int64_t stride; // elements from a row to the next
};

// c (m,n) = alpha op(a) (m,k) op(b) (k,n) + beta c. With beta 0, c is written and never read.
void blas_gemm(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
               real alpha, const real *a, int64_t stride_a, const real *b, int64_t stride_b,
               real beta, real *c, int64_t stride_c);

// The same product of numbers stored as bf16, summed in real. Only where blas_has_bf16: the library
// offers it, and its kernels for this processor are made of bf16 instructions.
bool blas_has_bf16(void);
void blas_gemm_bf16(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                    real alpha, const bf16 *a, int64_t stride_a, const bf16 *b, int64_t stride_b,
                    real beta, real *c, int64_t stride_c);

// The threads of every parallel loop of tape/ from now on (1 without OpenMP). Also makes the BLAS
// itself single-threaded, so that OpenMP threads and BLAS threads never multiply.
void blas_set_threads(int threads);
int blas_max_threads(void); // what the machine offers: the default

// "openblas 0.3.21 (Haswell)", "builtin" or "loops": for reports.
const char *blas_name(void);

#endif
