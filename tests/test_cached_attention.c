// test_cached_attention.c - attention over a cache is causal attention over the whole text, however
// it is cut into passes and as whatever dtype it is stored; it writes the rows of its own positions
// and no others, reads none beyond them, and wants no gradient. Threads change no bit.
#include "tape/array.h"
#include "tape/cpu/vec.h"
#include "tape/ops/ops.h"
#include "tests/params.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T_MAX = 140, C_MAX = 40, ROOM = 3, PASSES_MAX = T_MAX };

struct text {
    int64_t time, heads, size; // T, H, D
    int64_t pass[PASSES_MAX];  // positions of each pass; the last one repeats
    enum dtype dtype;
};

static struct tape tape;
static real qkv[T_MAX * 3 * C_MAX], y[T_MAX * C_MAX], again[T_MAX * C_MAX];
static double expected[T_MAX * C_MAX];

static real *row(int64_t t, int64_t part, int64_t h, const struct text *x)
{
    return qkv + (t * 3 + part) * x->heads * x->size + h * x->size;
}

static void reference_row(const struct text *x, int64_t t, int64_t h)
{
    double p[T_MAX], sum = 0, max = -INFINITY;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < x->size; d++)
            p[j] += (double)row(t, 0, h, x)[d] * (double)row(j, 1, h, x)[d];
        p[j] /= sqrt((double)x->size);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t d = 0; d < x->size; d++) {
        double *out = &expected[(t * x->heads + h) * x->size + d];
        *out = 0;
        for (int64_t j = 0; j <= t; j++)
            *out += p[j] / sum * (double)row(j, 2, h, x)[d];
    }
}

// Numbers that the dtype can hold, and what attention makes of them. Large: a maximum is not where
// the last one was.
static void make_text(const struct text *x)
{
    int64_t n = x->time * 3 * x->heads * x->size;
    static bf16 packed[T_MAX * 3 * C_MAX];
    for (int64_t i = 0; i < n; i++)
        qkv[i] = 3 * (real)params_value(PARAMS_NORMAL, 7, i);
    if (x->dtype == DTYPE_BF16) {
        vec_pack(packed, qkv, n);
        vec_unpack(qkv, packed, n);
    }
    for (int64_t t = 0; t < x->time; t++)
        for (int64_t h = 0; h < x->heads; h++)
            reference_row(x, t, h);
}

static void store(struct tensor *to, const real *from)
{
    struct array a = array_of(to->data, to->dtype);
    for (int64_t i = 0; i < tensor_count(to); i++) {
        real room[1], *at = array_open(a, i, 1, false, room);
        *at = from[i];
        array_close(a, i, 1, at);
    }
}

static void one_pass(const struct text *x, struct tensor *keys, struct tensor *values,
                     int64_t first, int64_t count, real *out)
{
    int64_t width = x->heads * x->size;
    struct tensor in;
    tensor_place(&in, &tape.arena, "qkv", LEDGER_BATCH, x->dtype, 3,
                 (int64_t[]){1, count, 3 * width});
    store(&in, qkv + first * 3 * width);
    tape_begin(&tape, PHASE_GENERATE, 0);
    tape_enter(&tape, "test");
    struct tensor *made = op_cached_attention(&tape, &in, keys, values, x->heads, first);
    assert_int_equal(made->dtype, x->dtype);
    for (int64_t i = 0; i < count * width; i++)
        out[first * width + i] = array_get(array_of(made->data, made->dtype), i);
    tape_leave(&tape, NULL);
    arena_give(&tape.arena, in.data);
}

// A row of the cache holds the key or value of its position, or what was there: not a number.
static void check_cache(const struct text *x, const struct tensor *cache, int part, int64_t filled)
{
    for (int64_t t = 0; t < x->time + ROOM; t++)
        for (int64_t i = 0; i < x->heads * x->size; i++) {
            struct array a = array_of(cache->data, cache->dtype);
            real got = array_get(a, t * x->heads * x->size + i);
            if (t < filled ? got != row(t, part, 0, x)[i] : got == got)
                fail_msg("row %lld of part %d, %lld filled: %g", (long long)t, part,
                         (long long)filled, (double)got);
        }
}

static void run(const struct text *x, int threads, real *out)
{
    struct tensor keys, values;
    int64_t dim[] = {x->time + ROOM, x->heads * x->size};
    params_open(&tape, 1 << 24, threads);
    tape.activation_dtype = x->dtype;
    tensor_place(&keys, &tape.arena, "keys", LEDGER_KV_CACHE, x->dtype, 2, dim);
    tensor_place(&values, &tape.arena, "values", LEDGER_KV_CACHE, x->dtype, 2, dim);
    memset(keys.data, 0xff, (size_t)tensor_bytes(&keys));
    memset(values.data, 0xff, (size_t)tensor_bytes(&values));
    int64_t first = 0;
    for (int i = 0; first < x->time;) {
        int64_t count = x->pass[i] < x->time - first ? x->pass[i] : x->time - first;
        one_pass(x, &keys, &values, first, count, out);
        first += count;
        check_cache(x, &keys, 1, first);
        check_cache(x, &values, 2, first);
        i += x->pass[i + 1] > 0;
    }
    tape_close(&tape);
}

static void is_attention(void **state)
{
    (void)state;
    static const struct text text[] = {
        {1, 1, 1, {1}, DTYPE_REAL},         {9, 3, 5, {1}, DTYPE_REAL},
        {9, 3, 5, {9}, DTYPE_REAL},         {70, 2, 7, {1}, DTYPE_REAL},
        {140, 4, 10, {63, 1}, DTYPE_REAL},  {140, 5, 8, {65, 2, 64, 1}, DTYPE_REAL},
        {131, 1, 13, {130, 1}, DTYPE_REAL}, {129, 2, 3, {1, 1, 100, 27}, DTYPE_REAL},
        {9, 3, 5, {4, 1}, DTYPE_BF16},      {140, 4, 10, {63, 1}, DTYPE_BF16},
        {131, 2, 13, {66, 1}, DTYPE_BF16},  {70, 1, 40, {1, 69}, DTYPE_BF16},
    };
    for (int i = 0; i < COUNT_OF(text); i++) {
        const struct text *x = &text[i];
        double within = x->dtype == DTYPE_BF16 ? 1.0 / 256 : sizeof(real) == 8 ? 1e-12 : 2e-5;
        int64_t n = x->time * x->heads * x->size;
        make_text(x);
        run(x, 1, y);
        for (int64_t j = 0; j < n; j++)
            assert_near(y[j], expected[j], within);
        for (int threads = 2; threads < 4; threads++) {
            run(x, threads, again);
            assert_memory_equal(again, y, n * (int64_t)sizeof(real));
        }
    }
}

// Bytes of scratch do not depend on how much text there is.
static void scratch_does_not_grow(void **state)
{
    (void)state;
    int64_t bytes[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct tensor in, keys, values;
        params_open(&tape, 1 << 24, 2);
        params_make(&tape, &in, "qkv", false, 1, 3, (int64_t[]){1, 1, 3 * 12});
        params_make(&tape, &keys, "keys", false, 2, 2, (int64_t[]){1000, 12});
        params_make(&tape, &values, "values", false, 3, 2, (int64_t[]){1000, 12});
        tape_begin(&tape, PHASE_GENERATE, 0);
        tape_enter(&tape, "test");
        op_cached_attention(&tape, &in, &keys, &values, 3, i == 0 ? 0 : 999);
        bytes[i] = tape.arena.ledger.counts.peak[LEDGER_WORKSPACE];
        tape_leave(&tape, NULL);
        tape_close(&tape);
    }
    assert_true(bytes[0] > 0);
    assert_int_equal(bytes[0], bytes[1]);
}

// ---- what is refused: in a child, a CHECK stops it ----

struct wrong {
    enum ledger_phase phase;
    bool wants_grad;
    int64_t first, samples;
};

static void apply(const struct wrong *w)
{
    struct tensor in, keys, values;
    params_open(&tape, 1 << 22, 1);
    params_make(&tape, &in, "qkv", w->wants_grad, 1, 3, (int64_t[]){w->samples, 2, 3 * 4});
    params_make(&tape, &keys, "keys", false, 2, 2, (int64_t[]){5, 4});
    params_make(&tape, &values, "values", false, 3, 2, (int64_t[]){5, 4});
    tape_begin(&tape, w->phase, 0);
    tape_enter(&tape, "test");
    op_cached_attention(&tape, &in, &keys, &values, 2, w->first);
}

static bool stops(const struct wrong *w)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        signal(SIGABRT, SIG_DFL);
        apply(w);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

static void refuses(void **state)
{
    (void)state;
    assert_false(stops(&(struct wrong){PHASE_GENERATE, true, 3, 1}));
    assert_false(stops(&(struct wrong){PHASE_FORWARD, false, 0, 1}));
    assert_true(stops(&(struct wrong){PHASE_FORWARD, true, 3, 1}));   // a gradient
    assert_true(stops(&(struct wrong){PHASE_GENERATE, true, 4, 1}));  // a full cache
    assert_true(stops(&(struct wrong){PHASE_GENERATE, true, -1, 1})); // before the text
    assert_true(stops(&(struct wrong){PHASE_GENERATE, true, 0, 2}));  // two texts
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_attention), cmocka_unit_test(scratch_does_not_grow),
        cmocka_unit_test(refuses), // forks: last
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
