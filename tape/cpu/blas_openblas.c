// blas_openblas.c - tape/blas.h on OpenBLAS.
//
// OpenBLAS packs both operands before it multiplies, so the address of a buffer does not change
// a bit of the product; which of its kernels runs depends on shapes and on the processor.
#include "tape/cpu/blas_int.h"

#include <cblas.h>
#include <stdio.h>

static blasint to_blas(int64_t n)
{
    CHECK(n <= INT32_MAX);
    return (blasint)n;
}

static CBLAS_TRANSPOSE to_cblas(enum blas_side side)
{
    return side == BLAS_TRANSPOSED ? CblasTrans : CblasNoTrans;
}

void blas_gemm(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
               real alpha, const real *a, int64_t stride_a, const real *b, int64_t stride_b,
               real beta, real *c, int64_t stride_c)
{
    blas_check(side_a, side_b, m, n, k, stride_a, stride_b, stride_c);
    if (blas_without_product(m, n, k, beta, c, stride_c))
        return;
#ifdef TAPE_F64
    cblas_dgemm(
#else
    cblas_sgemm(
#endif
        CblasRowMajor, to_cblas(side_a), to_cblas(side_b), to_blas(m), to_blas(n), to_blas(k), alpha,
        a, to_blas(stride_a), b, to_blas(stride_b), beta, c, to_blas(stride_c));
}

void blas_set_threads(int threads)
{
    omp_threads_set(threads);
    openblas_set_num_threads(1);
}

int blas_max_threads(void)
{
    return omp_threads_offered();
}

const char *blas_name(void)
{
    static char name[96];
    char version[32] = "";
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
    sscanf(openblas_get_config(), "OpenBLAS %31s", version);
    snprintf(name, sizeof name, "openblas %s (%s)", version, openblas_get_corename());
    return name;
}
