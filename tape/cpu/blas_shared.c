// blas_shared.c - argument checks, empty products and OpenMP's thread count.
#include "tape/cpu/blas_int.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void blas_check(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                int64_t stride_a, int64_t stride_b, int64_t stride_c)
{
    CHECK(m >= 0);
    CHECK(n >= 0);
    CHECK(k >= 0);
    CHECK(stride_a >= (side_a == BLAS_AS_IS ? k : m));
    CHECK(stride_b >= (side_b == BLAS_AS_IS ? n : k));
    CHECK(stride_c >= n);
}

void blas_scale(int64_t m, int64_t n, real beta, real *c, int64_t stride_c)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * stride_c + j] = beta == 0 ? 0 : beta * c[i * stride_c + j];
}

bool blas_without_product(int64_t m, int64_t n, int64_t k, real beta, real *c, int64_t stride_c)
{
    if (m > 0 && n > 0 && k > 0)
        return false;
    blas_scale(m, n, beta, c, stride_c);
    return true;
}

#ifndef BLAS_BF16
bool blas_has_bf16(void)
{
    return false;
}

void blas_gemm_bf16(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
                    real alpha, const bf16 *a, int64_t stride_a, const bf16 *b, int64_t stride_b,
                    real beta, real *c, int64_t stride_c)
{
    (void)side_a, (void)side_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)stride_a;
    (void)b, (void)stride_b, (void)beta, (void)c, (void)stride_c;
    CHECK(blas_has_bf16());
}
#endif

// The first answer is kept, because OpenMP forgets it when a count is set.
int omp_threads_offered(void)
{
    static int offered;
#ifdef _OPENMP
    if (!offered)
        offered = omp_get_max_threads(); // OMP_NUM_THREADS, or the processors we may use
#else
    offered = 1;
#endif
    return offered;
}

void omp_threads_set(int threads)
{
    CHECK(threads >= 1);
    (void)omp_threads_offered();
#ifdef _OPENMP
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
#endif
}
