// blas_openblas.c - tape/blas.h on OpenBLAS.
//
// Which of OpenBLAS's kernels runs depends on shapes and on the processor, not on addresses
// (tests/test_cpu.c checks that). Its first call in a thread takes a packing buffer from the system
// and keeps it.
#include "tape/cpu/blas_int.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

static blasint to_blas(int64_t n)
{
    CHECK(n <= INT32_MAX);
    return (blasint)n;
}

static CBLAS_TRANSPOSE to_cblas(enum blas_side side)
{
    return side == BLAS_TRANSPOSED ? CblasTrans : CblasNoTrans;
}

// One row: c (n) += alpha op(b)^T a, as a matrix-vector product. About five times as fast as a
// matrix product of one row (768 x 768: 49 against 9 GFLOP/s), which matters when text is
// generated.
static void multiply_row(enum blas_side side_b, int64_t n, int64_t k, real alpha, const real *a,
                         int64_t step_a, const real *b, int64_t stride_b, real *c)
{
    const bool as_is = side_b == BLAS_AS_IS;
#ifdef TAPE_F64
    cblas_dgemv(
#else
    cblas_sgemv(
#endif
        CblasRowMajor, as_is ? CblasTrans : CblasNoTrans, to_blas(as_is ? k : n),
        to_blas(as_is ? n : k), alpha, b, to_blas(stride_b), a, to_blas(step_a), 1, c, 1);
}

void blas_gemm(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
               real alpha, const real *a, int64_t stride_a, const real *b, int64_t stride_b,
               real beta, real *c, int64_t stride_c)
{
    blas_check(side_a, side_b, m, n, k, stride_a, stride_b, stride_c);
    if (blas_without_product(m, n, k, beta, c, stride_c))
        return;
    if (m == 1) {
        blas_scale(m, n, beta, c, stride_c);
        multiply_row(side_b, n, k, alpha, a, side_a == BLAS_AS_IS ? 1 : stride_a, b, stride_b, c);
        return;
    }
#ifdef TAPE_F64
    cblas_dgemm(
#else
    cblas_sgemm(
#endif
        CblasRowMajor, to_cblas(side_a), to_cblas(side_b), to_blas(m), to_blas(n), to_blas(k),
        alpha, a, to_blas(stride_a), b, to_blas(stride_b), beta, c, to_blas(stride_c));
}

#ifdef BLAS_BF16
// By the kernels that the library chose, not by the processor: those it has for others are plain C.
bool blas_has_bf16(void)
{
    static const char *const cores[] = {"Cooperlake", "COOPERLAKE"};
    for (int i = 0; i < COUNT_OF(cores); i++)
        if (strcmp(openblas_get_corename(), cores[i]) == 0)
            return true;
    return false;
}

void blas_gemm_bf16(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                    real alpha, const bf16 *a, int64_t stride_a, const bf16 *b, int64_t stride_b,
                    real beta, real *c, int64_t stride_c)
{
    CHECK(blas_has_bf16());
    blas_check(side_a, side_b, m, n, k, stride_a, stride_b, stride_c);
    if (blas_without_product(m, n, k, beta, c, stride_c))
        return;
    // When text is generated. For b as it is, 0.3.21 sums wrongly if n is 16 more than some 32.
    if (m == 1 && side_a == BLAS_AS_IS && side_b == BLAS_TRANSPOSED) {
        blas_scale(m, n, beta, c, stride_c);
        cblas_sbgemv(CblasRowMajor, CblasNoTrans, to_blas(n), to_blas(k), alpha, b,
                     to_blas(stride_b), a, 1, 1, c, 1);
        return;
    }
    cblas_sbgemm(CblasRowMajor, to_cblas(side_a), to_cblas(side_b), to_blas(m), to_blas(n),
                 to_blas(k), alpha, a, to_blas(stride_a), b, to_blas(stride_b), beta, c,
                 to_blas(stride_c));
}
#endif

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
