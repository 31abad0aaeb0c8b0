// test_cpu.c - products, exp, tanh and sums are right for every shape, and their bits do not depend
// on where a buffer lies, on the thread count, or on which part of a loop meets an element.
#include "tape/array.h"
#include "tape/blas.h"
#include "tape/cpu/vec.h"
#include "tape/rng.h"
#include "tests/test.h"

enum { ROOM = 150000, CASES = 400 };

// Offsets in elements from a 64-byte boundary.
static const int places[] = {0, 1, 5, 15};

static real *numbers(int64_t n)
{
    const size_t bytes = (size_t)(n + 64) * sizeof(real);
    real *x = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(x);
    return x;
}

static void fill(real *x, int64_t n, uint64_t stream)
{
    const uint64_t key = rng_key(RNG_TEST, stream);
    for (int64_t i = 0; i < n; i++)
        x[i] = (real)(2 * rng_uniform(key, (uint64_t)i) - 1);
}

// ---- gemm ----

struct product {
    enum blas_side side_a, side_b;
    int64_t m, n, k;
    int64_t rows_a, rows_b; // as they lie in memory
    int64_t stride_a, stride_b, stride_c;
    real alpha, beta;
};

static struct product draw_product(uint64_t number)
{
    const uint64_t key = rng_key(rng_key(RNG_TEST, 99), number);
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 70, 130, 257};
    struct product p = {
        .side_a = number & 1 ? BLAS_TRANSPOSED : BLAS_AS_IS,
        .side_b = number & 2 ? BLAS_TRANSPOSED : BLAS_AS_IS,
        .m = sizes[rng_below(key, 0, COUNT_OF(sizes))],
        .n = sizes[rng_below(key, 1, COUNT_OF(sizes))],
        .k = sizes[rng_below(key, 2, COUNT_OF(sizes))],
        .alpha = number & 4 ? (real)1 : (real)-0.375,
        .beta = number % 3 == 0   ? (real)0
                : number % 3 == 1 ? (real)1
                                  : (real)0.5,
    };
    p.rows_a = p.side_a == BLAS_AS_IS ? p.m : p.k;
    p.rows_b = p.side_b == BLAS_AS_IS ? p.k : p.n;
    p.stride_a = (p.side_a == BLAS_AS_IS ? p.k : p.m) + (number & 8 ? rng_below(key, 3, 40) : 0);
    p.stride_b = (p.side_b == BLAS_AS_IS ? p.n : p.k) + (number & 8 ? rng_below(key, 4, 40) : 0);
    p.stride_c = p.n + (number & 8 ? rng_below(key, 5, 40) : 0);
    return p;
}

static void multiply(const struct product *p, const real *a, const real *b, real *c)
{
    blas_gemm(p->side_a, p->side_b, p->m, p->n, p->k, p->alpha, a, p->stride_a, b, p->stride_b,
              p->beta, c, p->stride_c);
}

// One element, in double, and the sum of the sizes of its terms.
static double element(const struct product *p, const real *a, const real *b, real c, int64_t i,
                      int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t q = 0; q < p->k; q++) {
        const double left = a[p->side_a == BLAS_AS_IS ? i * p->stride_a + q : q * p->stride_a + i];
        const double right = b[p->side_b == BLAS_AS_IS ? q * p->stride_b + j : j * p->stride_b + q];
        sum += left * right;
        *size += fabs(left * right);
    }
    if (p->beta == 0)
        return (double)p->alpha * sum;
    *size += fabs((double)c);
    return (double)p->alpha * sum + (double)p->beta * (double)c;
}

static void check_product(const struct product *p, const real *a, const real *b, const real *before,
                          const real *after, uint64_t number)
{
    const double relative = REAL_EPSILON * (4 + 2 * sqrt((double)p->k));
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->stride_c; j++) {
            const int64_t at = i * p->stride_c + j;
            if (j >= p->n) { // between the rows of c
                assert_memory_equal(after + at, before + at, sizeof(real));
                continue;
            }
            double size;
            const double expected = element(p, a, b, before[at], i, j, &size);
            if (!(fabs((double)after[at] - expected) <= relative * size))
                fail_msg("product %d (%d,%d,%d) at %d,%d: %.9g, expected %.9g", (int)number,
                         (int)p->m, (int)p->n, (int)p->k, (int)i, (int)j, (double)after[at],
                         expected);
        }
}

static void gemm_is_the_naive_product(void **state)
{
    (void)state;
    real *a = numbers(ROOM), *b = numbers(ROOM), *before = numbers(ROOM), *after = numbers(ROOM);
    for (uint64_t number = 0; number < CASES; number++) {
        const struct product p = draw_product(number);
        fill(a, p.rows_a * p.stride_a, number);
        fill(b, p.rows_b * p.stride_b, number + CASES);
        fill(before, p.m * p.stride_c, number + 2 * CASES);
        if (p.beta == 0)
            for (int64_t i = 0; i < p.m * p.stride_c; i++)
                before[i] = (real)NAN;
        memcpy(after, before, (size_t)(p.m * p.stride_c) * sizeof(real));
        multiply(&p, a, b, after);
        check_product(&p, a, b, before, after, number);
    }
    free(a), free(b), free(before), free(after);
}

static void gemm_of_nothing_scales_c(void **state)
{
    (void)state;
    real c[] = {1, 2, 3, 4, (real)NAN, 6};
    const real x = 0;
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, 2, 2, 0, 1, &x, 1, &x, 2, (real)0.5, c, 2);
    assert_true(c[0] == (real)0.5 && c[1] == 1 && c[2] == (real)1.5 && c[3] == 2);
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, 1, 1, 0, 1, &x, 1, &x, 1, 0, c + 4, 1);
    assert_true(c[4] == 0 && c[5] == 6);
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, 0, 2, 3, 1, &x, 3, &x, 2, 0, c, 2);
    blas_gemm(BLAS_AS_IS, BLAS_AS_IS, 2, 0, 3, 1, &x, 3, &x, 1, 0, c, 1);
    assert_true(c[0] == (real)0.5);
}

static void gemm_does_not_see_addresses(void **state)
{
    (void)state;
    real *a = numbers(ROOM), *b = numbers(ROOM), *c = numbers(ROOM), *first = numbers(ROOM);
    for (uint64_t number = 0; number < CASES; number++) {
        const struct product p = draw_product(number);
        const size_t bytes_c = (size_t)(p.m * p.stride_c) * sizeof(real);
        for (int place = 0; place < COUNT_OF(places); place++) {
            real *moved_a = a + places[place], *moved_b = b + places[(place + 1) % 4];
            real *moved_c = c + places[(place + 2) % 4];
            fill(moved_a, p.rows_a * p.stride_a, number);
            fill(moved_b, p.rows_b * p.stride_b, number + CASES);
            fill(moved_c, p.m * p.stride_c, number + 2 * CASES);
            multiply(&p, moved_a, moved_b, moved_c);
            if (place == 0)
                memcpy(first, moved_c, bytes_c);
            else
                assert_memory_equal(moved_c, first, bytes_c);
        }
    }
    free(a), free(b), free(c), free(first);
}

// Of bf16 numbers that lie anywhere, as of the same numbers widened.
static void gemm_of_bf16_is_the_naive_product(void **state)
{
    (void)state;
    if (!blas_has_bf16()) {
        print_message("%s has no product of bf16 here\n", blas_name());
        skip();
    }
    real *a = numbers(ROOM), *b = numbers(ROOM), *before = numbers(ROOM), *after = numbers(ROOM);
    bf16 *packed_a = (bf16 *)numbers(ROOM), *packed_b = (bf16 *)numbers(ROOM);
    real *first = numbers(ROOM);
    for (uint64_t number = 0; number < CASES; number++) {
        const struct product p = draw_product(number);
        const int64_t count_a = p.rows_a * p.stride_a, count_b = p.rows_b * p.stride_b;
        const size_t bytes_c = (size_t)(p.m * p.stride_c) * sizeof(real);
        fill(a, count_a, number);
        fill(b, count_b, number + CASES);
        fill(before, p.m * p.stride_c, number + 2 * CASES);
        for (int64_t i = 0; p.beta == 0 && i < p.m * p.stride_c; i++)
            before[i] = (real)NAN;
        for (int place = 0; place < COUNT_OF(places); place++) {
            bf16 *at_a = packed_a + places[place], *at_b = packed_b + places[(place + 1) % 4];
            real *at_c = after + places[(place + 2) % 4];
            vec_pack(at_a, a, count_a), vec_unpack(a, at_a, count_a);
            vec_pack(at_b, b, count_b), vec_unpack(b, at_b, count_b);
            memcpy(at_c, before, bytes_c);
            blas_gemm_bf16(p.side_a, p.side_b, p.m, p.n, p.k, p.alpha, at_a, p.stride_a, at_b,
                           p.stride_b, p.beta, at_c, p.stride_c);
            if (place == 0)
                memcpy(first, at_c, bytes_c);
            assert_memory_equal(at_c, first, bytes_c);
        }
        check_product(&p, a, b, before, first, number);
    }
    free(a), free(b), free(before), free(after), free(packed_a), free(packed_b), free(first);
}

// ---- exp and tanh ----

#ifndef TAPE_F64 // in double they are libm's

// The distance of neighbouring floats at y, or of the last two before infinity.
static double spacing(double y)
{
    int exponent;
    frexp(y, &exponent);
    exponent = exponent < -125 ? -125 : exponent > 128 ? 128 : exponent;
    return ldexp(1, exponent - 24);
}

static double error_of(float got, double expected)
{
    if (isnan(expected))
        return isnan(got) ? 0 : INFINITY;
    if (isinf((float)expected))
        return got == (float)expected ? 0 : INFINITY;
    return fabs((double)got - expected) / spacing(expected);
}

struct worst {
    double exp, tanh; // errors in units of the last place
    float exp_at, tanh_at;
    int64_t wrong_signs;
};

enum { CHUNK = 4096 };

// All floats whose bits are from + i step, i < CHUNK, in one simd loop.
static void measure_chunk(uint32_t from, uint32_t step, struct worst *w)
{
    float x[CHUNK], e[CHUNK], t[CHUNK];
    for (uint32_t i = 0; i < CHUNK; i++)
        x[i] = vec_from_bits(from + i * step);
#pragma omp simd
    for (int i = 0; i < CHUNK; i++)
        e[i] = vec_exp(x[i]);
#pragma omp simd
    for (int i = 0; i < CHUNK; i++)
        t[i] = vec_tanh(x[i]);
    for (int i = 0; i < CHUNK; i++) {
        const double error_exp = error_of(e[i], exp((double)x[i]));
        const double error_tanh = error_of(t[i], tanh((double)x[i]));
        if (error_exp > w->exp)
            w->exp = error_exp, w->exp_at = x[i];
        if (error_tanh > w->tanh)
            w->tanh = error_tanh, w->tanh_at = x[i];
        w->wrong_signs += !isnan(x[i]) && (signbit(t[i]) != signbit(x[i]) || signbit(e[i]));
    }
}

static void check_worst(const struct worst *w)
{
    print_message("exp %.3f ulp at %a, tanh %.3f ulp at %a\n", w->exp, (double)w->exp_at, w->tanh,
                  (double)w->tanh_at);
    assert_int_equal(w->wrong_signs, 0);
    assert_true(w->exp <= 1.1); // what vec.h promises
    assert_true(w->tanh <= 1.8);
}

static void exp_and_tanh_are_close(void **state)
{
    (void)state;
    struct worst w = {0};
    const uint32_t step = test_is_long() ? 1 : 4001; // a sample meets all exponents, both signs
    const uint64_t chunks =
        ((UINT64_C(1) << 32) + (uint64_t)CHUNK * step - 1) / ((uint64_t)CHUNK * step);
    for (uint64_t chunk = 0; chunk < chunks; chunk++)
        measure_chunk((uint32_t)(chunk * CHUNK * step), step, &w);
    check_worst(&w);
}

static void exp_and_tanh_at_the_edges(void **state)
{
    (void)state;
    static const float edges[] = {0,      -0.0f,   0x1p-149f, -0x1p-126f, INFINITY, -INFINITY,
                                  88.7f,  88.722f, 88.723f,   88.73f,     89,       1e30f,
                                  -87.3f, -87.4f,  -103.9f,   -103.98f,   -104,     -1e30f,
                                  0.55f,  0.549f,  9,         9.1f,       10,       10.1f};
    struct worst w = {0};
    for (int i = 0; i < COUNT_OF(edges); i++) {
        const uint32_t bits = vec_to_bits(edges[i]);
        measure_chunk(bits - CHUNK / 2, 1, &w); // the edge and 2048 floats on either side
    }
    check_worst(&w);
    assert_true(vec_exp(0.0f) == 1);
    assert_true(vec_exp(-0.0f) == 1);
    assert_true(isinf(vec_exp(INFINITY)));
    assert_true(vec_exp(-INFINITY) == 0);
    assert_true(vec_tanh(INFINITY) == 1);
    assert_true(vec_tanh(-INFINITY) == -1);
    assert_true(signbit(vec_tanh(-0.0f)) && !signbit(vec_tanh(0.0f)));
    assert_true(isnan(vec_exp(NAN)) && isnan(vec_tanh(NAN)));
}

#endif

static real exp_plus_tanh(real x)
{
    return vec_exp(x) + vec_tanh(x);
}

static void a_loop_and_its_remainder_agree(void **state)
{
    (void)state;
    enum { N = 133 };
    real *x = numbers(2 * N), *y = numbers(2 * N);
    fill(x, 2 * N, 7);
    for (int from = 0; from < N; from++) {
#pragma omp simd
        for (int i = from; i < N; i++)
            y[i] = vec_exp(8 * x[i]) + vec_tanh(8 * x[i]);
        for (int i = from; i < N; i++) {
            const real alone = exp_plus_tanh(8 * x[i]);
            assert_memory_equal(&y[i], &alone, sizeof alone);
        }
    }
    free(x), free(y);
}

// ---- reductions and vector updates ----

static const int64_t lengths[] = {0, 1, 2, 15, 16, 31, 32, 33, 64, 100, 127, 1000, 4097};

static void reductions_are_right(void **state)
{
    (void)state;
    real *a = numbers(5000), *b = numbers(5000);
    fill(a, 5000, 1);
    fill(b, 5000, 2);
    for (int t = 0; t < COUNT_OF(lengths); t++) {
        const int64_t n = lengths[t];
        double sum = 0, dot = 0, squares = 0, max = -INFINITY, absmax = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)a[i];
            dot += (double)a[i] * (double)b[i];
            squares += (double)a[i] * (double)a[i];
            max = fmax(max, (double)a[i]);
            absmax = fmax(absmax, fabs((double)a[i]));
        }
        assert_near(vec_sum(a, n), sum, 100 * REAL_EPSILON);
        assert_near(vec_dot(a, b, n), dot, 100 * REAL_EPSILON);
        assert_near(vec_sum_squares(a, n), squares, 1e-13);
        assert_true((double)vec_max(a, n) == max);
        assert_true((double)vec_absmax(a, n) == absmax);
    }
    for (int64_t i = 0; i < 40; i++) { // every position is looked at
        a[i] = 2;
        assert_true(vec_max(a, 40) == 2);
        a[i] = -3;
        assert_true(vec_absmax(a, 40) == 3);
        a[i] = (real)NAN;
        assert_true(vec_max(a, 40) < 2 && vec_absmax(a, 40) < 3); // a NaN is passed over
        assert_true(isnan(vec_sum(a, 40)));
    }
    free(a), free(b);
}

static void reductions_do_not_see_addresses(void **state)
{
    (void)state;
    real *a = numbers(5000), *b = numbers(5000);
    for (int t = 0; t < COUNT_OF(lengths); t++) {
        const int64_t n = lengths[t];
        real first[3] = {0};
        double first_squares = 0;
        for (int place = 0; place < COUNT_OF(places); place++) {
            real *moved_a = a + places[place], *moved_b = b + places[(place + 1) % 4];
            fill(moved_a, n, 1);
            fill(moved_b, n, 2);
            const real got[3] = {vec_sum(moved_a, n), vec_dot(moved_a, moved_b, n),
                                 vec_max(moved_a, n)};
            const double squares = vec_sum_squares(moved_a, n);
            if (place == 0) {
                memcpy(first, got, sizeof got);
                first_squares = squares;
            }
            assert_memory_equal(got, first, sizeof got);
            assert_memory_equal(&squares, &first_squares, sizeof squares);
        }
    }
    free(a), free(b);
}

static void sum_squares_does_not_see_threads(void **state)
{
    (void)state;
    static const int64_t counts[] = {4096, 4097, 100000, 1048576, 1500001};
    real *x = numbers(1500001);
    fill(x, 1500001, 3);
    for (int c = 0; c < COUNT_OF(counts); c++) {
        double first = 0;
        for (int threads = 1; threads <= 5; threads++) {
            blas_set_threads(threads);
            const double sum = vec_sum_squares(x, counts[c]);
            if (threads == 1)
                first = sum;
            assert_memory_equal(&sum, &first, sizeof sum);
        }
        assert_near(first, (double)counts[c] / 3, 0.05);
    }
    blas_set_threads(blas_max_threads());
    free(x);
}

static void vector_updates_are_element_by_element(void **state)
{
    (void)state;
    enum { N = 100 };
    real *x = numbers(N), *y = numbers(N), *before = numbers(N);
    fill(x, N, 5);
    for (int from = 0; from < 20; from++) {
        fill(before, N, 6);
        memcpy(y, before, N * sizeof(real));
        array_carry(array_of(y + from, DTYPE_REAL), array_of(x + from, DTYPE_REAL), N - from - 1,
                    true);
        vec_scale(y + from, (real)-1.7, N - from - 1);
        for (int i = 0; i < N; i++) {
            const bool inside = i >= from && i < N - 1;
            const real expected = inside ? (before[i] + x[i]) * (real)-1.7 : before[i];
            assert_memory_equal(&y[i], &expected, sizeof expected);
        }
    }
    free(x), free(y), free(before);
}

static void the_library_has_a_name(void **state)
{
    (void)state;
    assert_true(strncmp(blas_name(), "openblas ", 9) == 0 || strcmp(blas_name(), "builtin") == 0 ||
                strcmp(blas_name(), "loops") == 0);
    assert_true(blas_max_threads() >= 1);
    print_message("%s, %d threads\n", blas_name(), blas_max_threads());
}

// ---- bf16 ----

static bf16 packed(uint32_t bits)
{
    float f;
    bf16 out;
    memcpy(&f, &bits, sizeof(f));
    real x = (real)f;
    vec_pack(&out, &x, 1);
    return out;
}

static double value_of(bf16 b)
{
    real x;
    vec_unpack(&x, &b, 1);
    return (double)x;
}

static void bf16_keeps_what_it_can_hold(void **state)
{
    (void)state;
    for (uint32_t b = 0; b <= 0xffff; b++) {
        bool is_nan = (b & 0x7fff) > 0x7f80;
        bf16 back = packed(b << 16);
        if (is_nan)
            assert_true((back & 0x7fff) > 0x7f80);
        else
            assert_int_equal(back, b);
    }
}

// The nearest of the two neighbours; of two equally near the one whose last bit is 0.
static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(packed(0x3e89ccd5), 0x3e8a);
    assert_int_equal(packed(0x3f808000), 0x3f80); // a tie: down to even
    assert_int_equal(packed(0x3f818000), 0x3f82); // a tie: up to even
    assert_int_equal(packed(0x7f7fffff), 0x7f80); // the largest float is beyond the largest bf16
    assert_true((packed(0x7f800001) & 0x7fff) > 0x7f80); // NaN whose upper half is an infinity
    assert_true((packed(0xffffffff) & 0x7fff) > 0x7f80);
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t bits = rng_u32(rng_key(RNG_TEST, 7), (uint32_t)i);
        uint32_t below = bits >> 16, above = below + 1;
        if ((below & 0x7fff) >= 0x7f7f)
            continue;
        float f;
        memcpy(&f, &bits, sizeof(f));
        double down = fabs((double)f - value_of((bf16)below));
        double up = fabs((double)f - value_of((bf16)above));
        uint32_t expected = down < up || (down == up && below % 2 == 0) ? below : above;
        assert_int_equal(packed(bits), expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_keeps_what_it_can_hold),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(the_library_has_a_name),
        cmocka_unit_test(gemm_is_the_naive_product),
        cmocka_unit_test(gemm_of_nothing_scales_c),
        cmocka_unit_test(gemm_does_not_see_addresses),
        cmocka_unit_test(gemm_of_bf16_is_the_naive_product),
#ifndef TAPE_F64
        cmocka_unit_test(exp_and_tanh_are_close),
        cmocka_unit_test(exp_and_tanh_at_the_edges),
#endif
        cmocka_unit_test(a_loop_and_its_remainder_agree),
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(reductions_do_not_see_addresses),
        cmocka_unit_test(sum_squares_does_not_see_threads),
        cmocka_unit_test(vector_updates_are_element_by_element),
    };
    blas_set_threads(blas_max_threads());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
