// blas_int.h - what the implementations of tape/blas.h share.
#ifndef TAPE_CPU_BLAS_INT_H
#define TAPE_CPU_BLAS_INT_H

#include "tape/blas.h"

// TAPE_SBGEMM: the Makefile could link it. Its sums are floats.
#if defined(TAPE_SBGEMM) && !defined(TAPE_F64)
#define BLAS_BF16
#endif

// CHECKs what an implementation might pass over in silence: negative sizes, a stride too short.
void blas_check(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                int64_t stride_a, int64_t stride_b, int64_t stride_c);

// c (m,n) = beta c. With beta 0, c is written and never read.
void blas_scale(int64_t m, int64_t n, real beta, real *c, int64_t stride_c);

// True if there is no product to add (m, n or k is 0): c = beta c is then done here.
bool blas_without_product(int64_t m, int64_t n, int64_t k, real beta, real *c, int64_t stride_c);

// OpenMP's side of blas_set_threads and blas_max_threads.
void omp_threads_set(int threads);
int omp_threads_offered(void);

#endif
