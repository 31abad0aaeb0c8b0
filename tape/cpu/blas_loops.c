// blas_loops.c - tape/blas.h as the formula is written: three loops to step through.
//
//     c[i][j] = alpha * sum over p of a[i][p] * b[p][j]  +  beta * c[i][j]
//
// Slow, and meant for a debugger: stop in a linear's backward, step in, and watch one element of dw
// being summed. a and b may be stored transposed; then a[i][p] lies where row p, column i would.
#include "tape/cpu/blas_int.h"

void blas_gemm(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
               real alpha, const real *a, int64_t stride_a, const real *b, int64_t stride_b,
               real beta, real *c, int64_t stride_c)
{
    blas_check(side_a, side_b, m, n, k, stride_a, stride_b, stride_c);
    for (int64_t i = 0; i < m; i++) {     // each row of a and c
        for (int64_t j = 0; j < n; j++) { // each column of b and c
            real sum = 0;
            for (int64_t p = 0; p < k; p++) { // along the row of a and down the column of b
                real aip = side_a == BLAS_AS_IS ? a[i * stride_a + p] : a[p * stride_a + i];
                real bpj = side_b == BLAS_AS_IS ? b[p * stride_b + j] : b[j * stride_b + p];
                sum += aip * bpj;
            }
            real *cij = &c[i * stride_c + j];
            *cij = alpha * sum + (beta == 0 ? 0 : beta * *cij); // with beta 0, c may hold rubbish
        }
    }
}

void blas_set_threads(int threads)
{
    omp_threads_set(threads);
}

int blas_max_threads(void)
{
    return omp_threads_offered();
}

const char *blas_name(void)
{
    return "loops";
}
