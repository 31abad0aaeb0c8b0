// vec.h - exp, tanh and sums for hot loops, with bits that depend on values and counts only.
//
// The functions of one number have no branches and no tables, so that `#pragma omp simd` makes
// vectors of them; an element has the same bits in the vector part of a loop and in its remainder.
// The reductions give element i to lane i % VEC_LANES, whatever the address, the vector width and
// the thread count are, and join the lanes in one fixed order.
//
// FMA is used where the target has it, always by name: builds with and without it may differ in
// the last bit, parts of a loop never do.
#ifndef TAPE_CPU_VEC_H
#define TAPE_CPU_VEC_H

#include "tape/base.h"

#include <math.h>
#include <string.h>

enum { VEC_LANES = 32 }; // enough sums in flight to hide the latency of an addition

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define VEC_FMA 1
#else
#define VEC_FMA 0
#endif

// a b + c: rounded once where that is one instruction, twice elsewhere.
static inline real vec_fma(real a, real b, real c)
{
#if !VEC_FMA
    return a * b + c;
#elif defined(TAPE_F64)
    return fma(a, b, c);
#else
    return fmaf(a, b, c);
#endif
}

static inline real vec_sqrt(real x)
{
#ifdef TAPE_F64
    return sqrt(x);
#else
    return sqrtf(x);
#endif
}

#ifdef TAPE_F64

// The f64 build exists for gradient checks: accurate matters, fast does not.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" // a simd loop around libm stays a loop
#endif
static inline real vec_exp(real x)
{
    return exp(x);
}

static inline real vec_tanh(real x)
{
    return tanh(x);
}

#else

static inline float vec_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t vec_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// x = n ln 2 + r with |r| <= ln(2) / 2, for |x| < 2^14. Returns r, and n as the low bits of a
// float. ln 2 is split into 15 bits, whose product with n is exact, and the rest.
static inline float vec_reduce(float x, uint32_t *n_bits)
{
    const float shift = 0x1.8p23f; // adding it leaves the integer nearest to x in the low bits
    const float shifted = vec_fma(x, 0x1.715476p+0f, shift);
    const float n = shifted - shift;
    *n_bits = vec_to_bits(shifted) - vec_to_bits(shift);
    return vec_fma(n, -0x1.7f7d1cp-20f, vec_fma(n, -0x1.62e4p-1f, x));
}

// exp(r) - 1 for |r| <= ln(2) / 2, as r + r^2 q(r). q is of degree 4: Remez exchange in 40 digits
// on (exp(r) - 1 - r) / r^2, weighted by r^2 / (exp(r) - 1) to even out the relative error of
// exp(r) - 1, coefficients rounded to float.
static inline float vec_expm1_small(float r)
{
    float q = 0x1.6bf492p-10f;
    q = vec_fma(q, r, 0x1.122714p-7f);
    q = vec_fma(q, r, 0x1.555666p-5f);
    q = vec_fma(q, r, 0x1.5554bp-3f);
    q = vec_fma(q, r, 0x1.fffffep-2f);
    return vec_fma(q * r, r, r);
}

// e^x within 1.1 ulp, denormal results included; 0 and infinity beyond, NaN for NaN. (All floats
// tried, against double precision; so is tanh.)
static inline real vec_exp(real x)
{
    x = x > 89.0f ? 89.0f : x;     // e^89 overflows
    x = x < -104.0f ? -104.0f : x; // e^-104 is less than half the smallest float
    uint32_t n;
    const float r = vec_reduce(x, &n);
    // 2^n does not always fit a float. The halves do, and only the last product can be inexact.
    const uint32_t half = (uint32_t)((int32_t)n >> 1);
    const float scale_1 = vec_from_bits((half + 127) << 23);
    const float scale_2 = vec_from_bits((n - half + 127) << 23);
    return (1.0f + vec_expm1_small(r)) * scale_1 * scale_2;
}

// tanh(x) within 1.8 ulp; keeps the sign of zero, NaN for NaN. With e = exp(2 |x|) - 1 it is
// e / (e + 2), written as a small correction to something exact so that the roundings of e, e + 2
// and the quotient hardly count: |x| + (e - 2 |x| - |x| e) / (e + 2), or 1 - 2 / (e + 2).
static inline real vec_tanh(real x)
{
    const uint32_t sign = vec_to_bits(x) & 0x80000000u;
    float a = vec_from_bits(vec_to_bits(x) ^ sign);
    a = a > 10.0f ? 10.0f : a; // tanh(10) rounds to 1
    uint32_t n;
    const float r = vec_reduce(2 * a, &n);
    const float scale = vec_from_bits((n + 127) << 23);
    const float e = vec_fma(vec_expm1_small(r), scale, scale - 1.0f); // 2^n (exp(r) - 1) + 2^n - 1
    const float start = a < 0.55f ? a : 1.0f;
    const float rest = a < 0.55f ? vec_fma(-a, e, e - 2 * a) : -2.0f;
    return vec_from_bits(vec_to_bits(start + rest / (e + 2.0f)) | sign);
}

#endif

real vec_sum(const real *x, int64_t n);
real vec_dot(const real *a, const real *b, int64_t n);
real vec_max(const real *x, int64_t n);    // of the elements that are numbers; -infinity if none is
real vec_absmax(const real *x, int64_t n); // of |x|, likewise; 0 if none is

// vec_dot of numbers that come in parts, all but the last of them whole groups of VEC_LANES: lanes
// that start as 0, a call for each part, and the join.
void vec_dot_part(real *lane, const real *a, const real *b, int64_t n);
real vec_join(real *lane);

// The sum of x^2 in double, for norms of gradients. Parallel over tiles whose size depends on n
// alone, joined in order.
double vec_sum_squares(const real *x, int64_t n);

void vec_scale(real *x, real a, int64_t n); // x *= a

// To bf16 and back. Round to nearest, ties to even; NaN stays NaN, infinities stay, and what rounds
// beyond the largest number is infinite.
void vec_pack(bf16 *to, const real *x, int64_t n);
void vec_unpack(real *to, const bf16 *x, int64_t n);

#endif
