// blas_builtin.c - tape/blas.h without a library: one gemm, meant to be read.
//
// c is cut into blocks of BLOCK_ROWS x PANEL columns, the sum over k into stretches of DEPTH. For
// each stretch the rows of op(a) and the columns of op(b) are copied ("packed") side by side, so
// that the tile loop in the middle reads both in order:
//
//     packed a: strips of STRIP rows     packed[p * STRIP + i] = op(a)[i][p]
//     packed b: a panel of PANEL columns packed[p * PANEL + j] = op(b)[p][j]
//
// Strips and panels that stick out are filled with zeros, so the tile loop has one size only. A
// tile of STRIP x PANEL sums stays in registers over the whole stretch.
//
// Every element of c is one sum over p = 0, 1, ... in that order, per stretch: the bits depend on
// the values and on k, not on tile sizes, addresses or vector width. (A target without FMA gives
// other bits, and so does a single row times a transposed b, which is a dot product in lanes.)
// About 100 KiB of stack.
#include "tape/cpu/blas_int.h"
#include "tape/cpu/vec.h"

// A vector register of the target: REGISTER_BYTES wide, REGISTERS of them. FMA_LANES is a b + c
// of whole registers, rounded as vec_fma rounds.
#if defined(__AVX512F__)
#include <immintrin.h>
#define REGISTER_BYTES 64
#define REGISTERS 32
#ifdef TAPE_F64
#define FMA_LANES(a, b, c) ((lanes)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#else
#define FMA_LANES(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#endif
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define REGISTER_BYTES 32
#define REGISTERS 16
#ifdef TAPE_F64
#define FMA_LANES(a, b, c) ((lanes)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#else
#define FMA_LANES(a, b, c) ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#define REGISTER_BYTES 16
#define REGISTERS 32
#ifdef TAPE_F64
#define FMA_LANES(a, b, c) ((lanes)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#else
#define FMA_LANES(a, b, c) ((lanes)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#endif
#else // any C compiler with vector types: plain multiply and add
#define REGISTER_BYTES 16
#define REGISTERS 16
#define FMA_LANES(a, b, c) ((a) * (b) + (c))
#endif

typedef real lanes __attribute__((vector_size(REGISTER_BYTES)));

enum {
    LANES = REGISTER_BYTES / (int)sizeof(real),
#if REGISTERS >= 32
    STRIP = 8, // 16 registers of sums
#else
    STRIP = 6, // 12, and the other 4 hold two vectors of b and a broadcast of a
#endif
    PANEL = 2 * LANES,
    STRIPS = (64 + STRIP - 1) / STRIP,
    BLOCK_ROWS = STRIPS * STRIP,      // 64 rows or a little more
    DEPTH = 1024 / (int)sizeof(real), // a panel of b is at most 32 KiB: it stays in the L1 cache
};

// packed[p * width + i] = from[i * step_across + p * step_along], zero where i >= count.
static void pack(real *packed, int width, int64_t count, int64_t depth, const real *from,
                 int64_t step_across, int64_t step_along)
{
    if (count < width)
        memset(packed, 0, (size_t)(depth * width) * sizeof(real));
    if (step_across == 1) {
        for (int64_t p = 0; p < depth; p++)
            for (int64_t i = 0; i < count; i++)
                packed[p * width + i] = from[p * step_along + i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t p = 0; p < depth; p++)
            packed[p * width + i] = from[i * step_across + p * step_along];
}

// sums[i * PANEL + j] = sum over p of a[p * STRIP + i] b[p * PANEL + j].
static inline void multiply_tile(real *sums, int64_t depth, const real *a, const real *b)
{
    lanes s[STRIP][2] = {0};
    for (int64_t p = 0; p < depth; p++, a += STRIP, b += PANEL) {
        lanes left, right;
        memcpy(&left, b, sizeof left);
        memcpy(&right, b + LANES, sizeof right);
        for (int i = 0; i < STRIP; i++) {
            const lanes row = a[i] - (lanes){0}; // a[i] in every lane
            s[i][0] = FMA_LANES(row, left, s[i][0]);
            s[i][1] = FMA_LANES(row, right, s[i][1]);
        }
    }
    memcpy(sums, s, sizeof s);
}

// c = alpha sums + beta c, on the part of the tile that is in c. Each element in the same way,
// whether its tile is whole or not.
static void store_tile(const real *sums, int64_t rows, int64_t columns, real alpha, real beta,
                       real *c, int64_t stride_c)
{
    for (int64_t i = 0; i < rows; i++) {
        const real *sum = sums + i * PANEL;
        real *out = c + i * stride_c;
        if (beta == 0)
            for (int64_t j = 0; j < columns; j++)
                out[j] = alpha * sum[j];
        else
            for (int64_t j = 0; j < columns; j++)
                out[j] = alpha * sum[j] + beta * out[j];
    }
}

static int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

// One stretch of k for one block of rows: c (m,n) = alpha a (m,k) b (k,n) + beta c, with
// m <= BLOCK_ROWS and k <= DEPTH; an element of op(b) is at b[p * b_down + j * b_right].
static void multiply_block(int64_t m, int64_t n, int64_t k, real alpha, const real *a,
                           int64_t a_down, int64_t a_right, const real *b, int64_t b_down,
                           int64_t b_right, real beta, real *c, int64_t stride_c)
{
    _Alignas(64) real packed_a[BLOCK_ROWS * DEPTH];
    _Alignas(64) real packed_b[DEPTH * PANEL];
    for (int64_t i = 0; i < m; i += STRIP)
        pack(packed_a + i * k, STRIP, at_most(m - i, STRIP), k, a + i * a_down, a_down, a_right);
    for (int64_t j = 0; j < n; j += PANEL) {
        const int64_t columns = at_most(n - j, PANEL);
        pack(packed_b, PANEL, columns, k, b + j * b_right, b_right, b_down);
        for (int64_t i = 0; i < m; i += STRIP) {
            _Alignas(64) real sums[STRIP * PANEL];
            multiply_tile(sums, k, packed_a + i * k, packed_b);
            store_tile(sums, at_most(m - i, STRIP), columns, alpha, beta, c + i * stride_c + j,
                       stride_c);
        }
    }
}

// One row against rows of b: nothing would be read twice, so nothing is packed.
static void multiply_row(int64_t n, int64_t k, real alpha, const real *a, const real *b,
                         int64_t stride_b, real beta, real *c)
{
    for (int64_t j = 0; j < n; j++) {
        const real product = alpha * vec_dot(a, b + j * stride_b, k);
        c[j] = beta == 0 ? product : product + beta * c[j];
    }
}

void blas_gemm(enum blas_side side_a, enum blas_side side_b, int64_t m, int64_t n, int64_t k,
               real alpha, const real *a, int64_t stride_a, const real *b, int64_t stride_b,
               real beta, real *c, int64_t stride_c)
{
    blas_check(side_a, side_b, m, n, k, stride_a, stride_b, stride_c);
    if (blas_without_product(m, n, k, beta, c, stride_c))
        return;
    if (m == 1 && side_a == BLAS_AS_IS && side_b == BLAS_TRANSPOSED) {
        multiply_row(n, k, alpha, a, b, stride_b, beta, c);
        return;
    }
    const int64_t a_down = side_a == BLAS_AS_IS ? stride_a : 1;
    const int64_t a_right = side_a == BLAS_AS_IS ? 1 : stride_a;
    const int64_t b_down = side_b == BLAS_AS_IS ? stride_b : 1;
    const int64_t b_right = side_b == BLAS_AS_IS ? 1 : stride_b;
    for (int64_t p = 0; p < k; p += DEPTH)
        for (int64_t i = 0; i < m; i += BLOCK_ROWS)
            multiply_block(at_most(m - i, BLOCK_ROWS), n, at_most(k - p, DEPTH), alpha,
                           a + i * a_down + p * a_right, a_down, a_right, b + p * b_down, b_down,
                           b_right, p == 0 ? beta : 1, c + i * stride_c, stride_c);
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
    return "builtin";
}
