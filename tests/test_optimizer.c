// test_optimizer.c - every optimizer does what an independent implementation does, keeps the bytes
// that it says, and leaves the same bits on any number of threads, whatever weights and gradients
// are stored as.
#include "nn/optimizer.h"

#include "nn/safetensors.h"
#include "tape/blas.h"
#include "tape/cpu/code8.h"
#include "tape/cpu/update.h"
#include "tape/rng.h"
#include "tests/test.h"
#include "tests/updated.h"

enum { STEPS = 50, MOST = 1 << 14 };

// ---- other implementations ----

static const struct optimizer_config golden_config = {
    .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};
static const double golden_rate = 0.02;

static struct safetensors golden;

static void read_golden(const char *kind, const char *param, const char *state, real *out,
                        int64_t n)
{
    char name[64];
    struct error e;
    snprintf(name, sizeof(name), "%s.%s%s", kind, param, state);
    const struct safetensors_tensor *t = safetensors_find(&golden, name);
    if (t == NULL || safetensors_count(t) != n)
        fail_msg("%s: none of %lld elements", name, (long long)n);
    if (!safetensors_read(&golden, t, out, &e))
        fail_msg("%s", e.text);
}

static double distance(const real *a, const real *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

// Weights by how far they went, states by their norm.
static void compare(const char *kind, const struct param *p, int stream, const struct tensor *x,
                    double tolerance)
{
    static real expected[MOST], from[MOST];
    int64_t n = tensor_count(x);
    bool is_weight = x == &p->tensor;
    memset(from, 0, sizeof(from));
    if (is_weight)
        updated_fill(array_of(from, DTYPE_REAL), n, 1000 + stream, 0x1p-18);
    read_golden(kind, p->name, is_weight ? "" : x->name, expected, n);
    double error = distance(x->data, expected, n) / distance(expected, from, n);
    if (!(error <= tolerance))
        fail_msg("%s: %s%s is off by %.3g, expected at most %.3g", kind, p->name,
                 is_weight ? "" : x->name, error, tolerance);
}

static void steps_are_those_of_others(void **state)
{
    (void)state;
    static const enum optimizer_kind kinds[] = {OPTIMIZER_SGD, OPTIMIZER_MOMENTUM, OPTIMIZER_ADAMW,
                                                OPTIMIZER_LION, OPTIMIZER_ADAFACTOR};
    static struct updated m;
    const double tolerance = sizeof(real) == 8 ? 3e-6 : 3e-5; // the file is of floats
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        m.config = golden_config;
        m.config.kind = kinds[k];
        updated_open(&m, updated_shapes, 2, PRECISION_REAL, PRECISION_REAL);
        for (int64_t step = 1; step <= STEPS; step++)
            updated_step(&m, step, golden_rate, 2);
        for (int i = 0; i < 2; i++) {
            const struct param *p = &m.params.param[i];
            compare(optimizer_name(kinds[k]), p, i, &p->tensor, tolerance);
            for (int j = 0; j < PARAM_STATES; j++)
                if (p->state[j].data != NULL)
                    compare(optimizer_name(kinds[k]), p, i, &p->state[j], tolerance);
        }
        tape_close(&m.tape);
    }
}

// A code more or less where a rounding decides; so few that weights hardly show it.
static void compare_codes(const struct param *p, int state)
{
    static uint8_t expected[MOST];
    struct error e;
    char name[64];
    snprintf(name, sizeof(name), "adamw8bit.%s%s", p->name, p->state[state].name);
    const struct safetensors_tensor *t = safetensors_find(&golden, name);
    assert_non_null(t);
    assert_true(safetensors_read_bytes(&golden, t, expected, &e));
    const uint8_t *code = (const uint8_t *)p->state[state].data;
    int64_t n = tensor_count(&p->tensor), others = 0;
    assert_int_equal(p->state[state].dtype, DTYPE_U8);
    for (int64_t i = 0; i < n; i++) {
        others += code[i] != expected[i];
        if (abs(code[i] - expected[i]) > 1)
            fail_msg("%s[%lld]: %d, expected %d", name, (long long)i, code[i], expected[i]);
    }
    if (others > n / 500)
        fail_msg("%s: %lld of %lld codes differ", name, (long long)others, (long long)n);
}

static void eight_bits_are_those_of_others(void **state)
{
    (void)state;
    static struct updated m;
    m.config = golden_config;
    m.config.kind = OPTIMIZER_ADAMW8BIT;
    updated_open(&m, updated_shapes, 3, PRECISION_REAL, PRECISION_REAL);
    for (int64_t step = 1; step <= STEPS; step++)
        updated_step(&m, step, golden_rate, 2);
    const struct param *p = &m.params.param[2];
    compare("adamw8bit", p, 2, &p->tensor, 1e-3);
    compare("adamw8bit", p, 2, &p->state[2], 1e-3);
    compare("adamw8bit", p, 2, &p->state[3], 1e-3);
    compare_codes(p, 0);
    compare_codes(p, 1);
    for (int i = 0; i < 2; i++) // fewer than 4096 weights: adamw's state and update
        for (int j = 0; j < PARAM_STATES; j++) {
            p = &m.params.param[i];
            compare("adamw", p, i, &p->tensor, sizeof(real) == 8 ? 3e-6 : 3e-5);
            assert_true(j < 2 ? p->state[j].dtype == DTYPE_REAL : p->state[j].data == NULL);
        }
    tape_close(&m.tape);
}

// ---- 8 bits ----

static void maps_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        bool is_signed;
        int code;
        double value;
    } known[] = {{true, 0, -0.99296874}, {true, 126, -5.5e-7},    {true, 127, 0},
                 {true, 128, 5.5e-7},    {true, 129, 3.25e-6},    {true, 254, 0.99296874},
                 {true, 255, 1},         {false, 0, 0},           {false, 1, 3.25e-7},
                 {false, 2, 7.75e-7},    {false, 254, 0.9964844}, {false, 255, 1}};
    real map[2][CODE8_VALUES], built[CODE8_VALUES];
    code8_unsigned_map(map[0]);
    code8_signed_map(map[1]);
    for (int i = 0; i < COUNT_OF(known); i++)
        if (fabs((double)map[known[i].is_signed][known[i].code] - known[i].value) >
            1e-7 * fabs(known[i].value))
            fail_msg("map %d [%d] is %.9g", known[i].is_signed, known[i].code,
                     (double)map[known[i].is_signed][known[i].code]);
    for (int s = 0; s < 2; s++) {
        read_golden("map", s > 0 ? "signed" : "unsigned", "", built, CODE8_VALUES);
        for (int i = 0; i < CODE8_VALUES; i++) {
            assert_true(i == 0 || map[s][i] > map[s][i - 1]);
            assert_true(fabs((double)(map[s][i] - built[i])) <= 2e-7 * fabs((double)built[i]));
        }
    }
}

// Of a random number of any size, beside those that are nearest to it by trying them all.
static void expect_nearest(const real *map, bool is_signed, int64_t i)
{
    uint64_t key = rng_key(rng_key(7, RNG_TEST), (uint64_t)i);
    real x = (real)exp2(-26 * rng_uniform(key, 0) * rng_uniform(key, 1)), least = 2;
    uint8_t code;
    x = is_signed && i % 2 > 0 ? -x : x;
    (is_signed ? code8_pack_signed : code8_pack_unsigned)(&code, &x, 1, map, 1);
    for (int k = 0; k < CODE8_VALUES; k++) {
        bool has_sign = !is_signed || (x > 0 ? map[k] > 0 : map[k] < 0);
        if (has_sign && fabs((double)(map[k] - x)) < (double)least)
            least = (real)fabs((double)(map[k] - x));
    }
    double error = fabs((double)map[code] - (double)x);
    if (error > (double)least * (1 + 1e-4))
        fail_msg("%.9g becomes %.9g, off by %.3g; expected %.3g", (double)x, (double)map[code],
                 error, (double)least);
}

static void a_code_is_the_nearest(void **state)
{
    (void)state;
    real map[2][CODE8_VALUES], x[CODE8_BLOCK], back[CODE8_BLOCK];
    uint8_t code[CODE8_BLOCK];
    code8_unsigned_map(map[0]);
    code8_signed_map(map[1]);
    for (int s = 0; s < 2; s++) {
        const real *by = map[s];
        for (int i = 0; i + 1 < CODE8_VALUES; i++) // midpoints go to the even code, but keep signs
            x[i] = (by[i] + by[i + 1]) * (real)0.5;
        x[CODE8_VALUES - 1] = 1;
        (s > 0 ? code8_pack_signed : code8_pack_unsigned)(code, x, CODE8_BLOCK, by, 1);
        for (int i = 0; i + 1 < CODE8_VALUES; i++) {
            int even = i + i % 2;
            bool lost = s > 0 && (i == 126 || i == 127);
            assert_int_equal(code[i], lost ? 126 + 2 * (i - 126) : even);
        }
        assert_int_equal(code[CODE8_VALUES - 1], CODE8_VALUES - 1);
        code8_unpack(back, code, CODE8_BLOCK, by, (real)0.25);
        for (int i = 0; i < CODE8_VALUES; i++)
            assert_true(back[i] == by[code[i]] / 4);
    }
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < 400000; i++)
            expect_nearest(map[s], s > 0, i);
    const real odd[] = {-1, 0, (real)-0.0, (real)1e-9, (real)-1e-9, (real)0.3};
    const int expected[] = {0, 127, 127, 128, 126, 222};
    code8_pack_signed(code, odd, COUNT_OF(odd), map[1], 1);
    for (int i = 0; i < COUNT_OF(odd) - 1; i++)
        assert_int_equal(code[i], expected[i]);
    const real zeros[3] = {0};
    code8_pack_signed(code, zeros, 3, map[1], 0);
    code8_unpack(back, code, 3, map[1], 0);
    assert_true(code[0] == 127 && back[0] == 0 && back[2] == 0);
}

// The errors that bitsandbytes' own tests allow, of blocks of random numbers.
static void errors_are_as_small_as_published(void **state)
{
    (void)state;
    static const struct {
        bool is_signed, is_normal;
        double absolute, relative;
    } known[] = {
        {true, true, 0.011, 0.018}, {true, false, 0.0036, 0.015}, {false, false, 0.0023, 0.012}};
    enum { BLOCKS = 512 };
    for (int k = 0; k < COUNT_OF(known); k++) {
        real map[CODE8_VALUES];
        double absolute = 0, relative = 0;
        bool is_signed = known[k].is_signed;
        (is_signed ? code8_signed_map : code8_unsigned_map)(map);
        for (int b = 0; b < BLOCKS; b++) {
            uint64_t key = rng_key(rng_key(8, RNG_TEST), (uint64_t)b);
            real x[CODE8_BLOCK], y[CODE8_BLOCK], most = 0;
            uint8_t code[CODE8_BLOCK];
            for (int i = 0; i < CODE8_BLOCK; i++) {
                x[i] = (real)(known[k].is_normal ? rng_normal(key, (uint64_t)i)
                                                 : rng_uniform(key, (uint64_t)i));
                most = (real)fmax((double)most, fabs((double)x[i]));
            }
            (is_signed ? code8_pack_signed : code8_pack_unsigned)(code, x, CODE8_BLOCK, map, most);
            code8_unpack(y, code, CODE8_BLOCK, map, most);
            for (int i = 0; i < CODE8_BLOCK; i++) {
                double error = fabs((double)(y[i] - x[i]));
                absolute += error / (BLOCKS * CODE8_BLOCK);
                relative += error / (fabs((double)x[i]) + 1e-8) / (BLOCKS * CODE8_BLOCK);
            }
        }
        if (absolute >= known[k].absolute || relative >= known[k].relative)
            fail_msg("case %d: mean errors %.4g and %.4g", k, absolute, relative);
    }
}

// Both take each step from the same weights; what differs is what their states have become.
static void a_step_is_nearly_that_of_32_bits(void **state)
{
    (void)state;
    static struct updated eight, plain;
    const struct updated_shape one = {"w", 256, 64, false};
    eight.config = (struct optimizer_config){
        .kind = OPTIMIZER_ADAMW8BIT, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    plain.config = eight.config;
    plain.config.kind = OPTIMIZER_ADAMW;
    updated_open(&eight, &one, 1, PRECISION_REAL, PRECISION_REAL);
    updated_open(&plain, &one, 1, PRECISION_REAL, PRECISION_REAL);
    struct param *a = &eight.params.param[0], *b = &plain.params.param[0];
    const int64_t n = tensor_count(&a->tensor);
    double absolute = 0, relative = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        update_copy(updated_weights(b), updated_weights(a), n);
        for (int64_t i = 0; i < n; i++)
            a->tensor.grad[i] = b->tensor.grad[i] =
                (real)(0.01 *
                       rng_normal(rng_key(rng_key(9, RNG_TEST), (uint64_t)step), (uint64_t)i));
        optimizer_update(&eight.config, &eight.params, &eight.tape, step, 1e-3, 0);
        optimizer_update(&plain.config, &plain.params, &plain.tape, step, 1e-3, 0);
        for (int64_t i = 0; i < n; i++) {
            double error = fabs((double)(a->tensor.data[i] - b->tensor.data[i]));
            absolute += error / (double)(n * STEPS);
            relative += error / (fabs((double)b->tensor.data[i]) + 1e-9) / (double)(n * STEPS);
        }
    }
    if (absolute >= 6e-5 || !(absolute > 0) || relative >= 6e-4)
        fail_msg("mean difference %.3g, relative %.3g", absolute, relative);
    real map[CODE8_VALUES], m[CODE8_BLOCK];
    int misses = 0;
    code8_signed_map(map);
    for (int64_t at = 0; at < n; at += CODE8_BLOCK) {
        code8_unpack(m, (const uint8_t *)a->state[0].data + at, CODE8_BLOCK, map,
                     a->state[2].data[at / CODE8_BLOCK]);
        for (int i = 0; i < CODE8_BLOCK; i++)
            misses += !(fabs((double)(m[i] - b->state[0].data[at + i])) <= 3e-3);
    }
    assert_true(misses < 20);
    tape_close(&eight.tape);
    tape_close(&plain.tape);
}

static void a_zero_gradient_leaves_a_weight(void **state)
{
    (void)state;
    static struct updated m;
    const struct updated_shape one = {"w", 64, 64, false};
    enum { AT = 777, OFTEN = 500 };
    m.config = (struct optimizer_config){
        .kind = OPTIMIZER_ADAMW8BIT, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (int sign = 1; sign >= -1; sign -= 2) {
        updated_open(&m, &one, 1, PRECISION_REAL, PRECISION_REAL);
        struct tensor *w = &m.params.param[0].tensor;
        const real before = w->data[AT];
        for (int64_t step = 1; step <= OFTEN; step++) {
            for (int64_t i = 0; i < tensor_count(w); i++)
                w->grad[i] = i == AT ? (real)(sign * 0.0) : 1;
            optimizer_update(&m.config, &m.params, &m.tape, step, 1e-3, 0);
        }
        assert_memory_equal(&w->data[AT], &before, sizeof(real));
        assert_true(w->data[AT + 1] < updated_number(1000, AT + 1, 0x1p-18) - (real)0.4);
        tape_close(&m.tape);
    }
}

static void what_is_no_number_is_skipped(void **state)
{
    (void)state;
    static struct updated m;
    const struct updated_shape one = {"w", 64, 64, false};
    const real odd[] = {(real)NAN, (real)INFINITY, (real)-INFINITY,
                        sizeof(real) == 4 ? (real)1e20 : (real)1e200};
    m.config = (struct optimizer_config){
        .kind = OPTIMIZER_ADAMW8BIT, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    updated_open(&m, &one, 1, PRECISION_REAL, PRECISION_REAL);
    struct tensor *w = &m.params.param[0].tensor;
    for (int64_t step = 1; step <= 2; step++) {
        updated_fill(array_of(w->grad, DTYPE_REAL), tensor_count(w), step, 0x1p-20);
        for (int i = 0; i < 4 && step == 2; i++)
            w->grad[300 * i] = odd[i];
        real held[4] = {w->data[0], w->data[300], w->data[600], w->data[900]};
        optimizer_update(&m.config, &m.params, &m.tape, step, 1e-3, 0);
        for (int i = 0; i < 4; i++)
            assert_true((w->data[300 * i] == held[i]) == (step == 2));
    }
    const struct param *p = &m.params.param[0];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(((const uint8_t *)p->state[0].data)[300 * i], CODE8_SIGNED_ZERO);
        assert_int_equal(((const uint8_t *)p->state[1].data)[300 * i], 0);
    }
    for (int64_t i = 0; i < tensor_count(w); i++)
        assert_true(isfinite(w->data[i]));
    tape_close(&m.tape);
}

// ---- bf16 ----

static void without_a_master_small_updates_are_lost(void **state)
{
    (void)state;
    static struct updated m;
    const struct updated_shape one = {"w", 0, 3, false};
    m.config = (struct optimizer_config){
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (int lacks = 0; lacks < 2; lacks++) {
        m.config.no_master = lacks > 0;
        updated_open(&m, &one, 1, PRECISION_BF16, PRECISION_BF16);
        struct param *p = &m.params.param[0];
        struct array w = updated_weights(p), g = array_of(p->tensor.grad, p->tensor.grad_dtype);
        assert_true((p->master.data == NULL) == (lacks > 0));
        update_fill(w, 3, 1);
        if (lacks == 0)
            update_fill(array_of(p->master.data, DTYPE_REAL), 3, 1);
        update_fill(g, 3, 1);
        for (int64_t step = 1; step <= 100; step++)
            optimizer_update(&m.config, &m.params, &m.tape, step, 1e-3, 0);
        assert_true(array_get(w, 2) == (lacks > 0 ? (real)1 : (real)0.8984375));
        if (lacks == 0)
            assert_near(p->master.data[2], 0.900001, 1e-6);
        tape_close(&m.tape);
    }
}

static void a_master_starts_from_the_draws(void **state)
{
    (void)state;
    static struct updated m;
    const struct updated_shape one = {"w", 40, 50, false};
    m.config = (struct optimizer_config){.kind = OPTIMIZER_ADAMW};
    updated_open(&m, &one, 1, PRECISION_BF16, PRECISION_REAL);
    struct param *p = &m.params.param[0];
    p->start = PARAM_NORMAL;
    p->deviation = 0.02;
    params_start(&m.params, &m.tape, 5);
    for (int64_t i = 0; i < tensor_count(&p->tensor); i++) {
        uint64_t key = rng_key(rng_key(5, RNG_INIT), 0);
        real drawn = (real)(0.02 * rng_normal(key, (uint64_t)i)), back;
        bf16 rounded;
        update_copy(array_of(&rounded, DTYPE_BF16), array_of(&drawn, DTYPE_REAL), 1);
        back = array_get(array_of(&rounded, DTYPE_BF16), 0);
        assert_true(p->master.data[i] == drawn);
        assert_true(array_get(updated_weights(p), i) == back);
    }
    tape_close(&m.tape);
}

// bf16 weights with a master take the steps of f32 weights, if gradients are the same.
static void a_master_takes_the_same_steps(void **state)
{
    (void)state;
    static struct updated plain, mixed;
    for (int k = 0; k < OPTIMIZER_COUNT; k++) {
        plain.config = golden_config;
        plain.config.kind = (enum optimizer_kind)k;
        mixed.config = plain.config;
        updated_open(&plain, updated_shapes, 3, PRECISION_REAL, PRECISION_REAL);
        updated_open(&mixed, updated_shapes, 3, PRECISION_BF16, PRECISION_REAL);
        for (int64_t step = 1; step <= 5; step++) {
            updated_step(&plain, step, 0.01, 2);
            updated_step(&mixed, step, 0.01, 2);
        }
        for (int i = 0; i < 3; i++) {
            const struct param *a = &plain.params.param[i], *b = &mixed.params.param[i];
            int64_t n = tensor_count(&a->tensor);
            assert_memory_equal(a->tensor.data, b->master.data, (size_t)n * sizeof(real));
            static bf16 rounded[MOST];
            update_copy(array_of(rounded, DTYPE_BF16), updated_weights(a), n);
            assert_memory_equal(rounded, b->tensor.data, (size_t)n * sizeof(bf16));
        }
        tape_close(&plain.tape);
        tape_close(&mixed.tape);
    }
}

// ---- bytes ----

static int64_t held(const struct updated *m, enum ledger_category c)
{
    return m->tape.arena.ledger.counts.now[c];
}

static void states_have_their_bytes(void **state)
{
    (void)state;
    // 9 x 150, 70 and 65 x 70 weights: 5970; the last are 18 blocks
    static const int64_t reals[OPTIMIZER_COUNT] = {
        [OPTIMIZER_SGD] = 0,          [OPTIMIZER_MOMENTUM] = 5970,
        [OPTIMIZER_ADAMW] = 2 * 5970, [OPTIMIZER_ADAMW8BIT] = 2 * (1350 + 70) + 2 * 18,
        [OPTIMIZER_LION] = 5970,      [OPTIMIZER_ADAFACTOR] = 9 + 150 + 70 + 65 + 70};
    static struct updated m;
    for (int k = 0; k < OPTIMIZER_COUNT; k++)
        for (int mixed = 0; mixed < 2; mixed++) {
            const struct updated_shape all[] = {
                updated_shapes[0], updated_shapes[1], updated_shapes[2], {"frozen", 90, 90, true}};
            enum precision p = mixed > 0 ? PRECISION_BF16 : PRECISION_REAL;
            m.config = golden_config;
            m.config.kind = (enum optimizer_kind)k;
            updated_open(&m, all, 4, p, p);
            int64_t codes = k == OPTIMIZER_ADAMW8BIT ? 2 * 4550 : 0;
            assert_int_equal(held(&m, LEDGER_OPTIMIZER_STATE),
                             reals[k] * (int64_t)sizeof(real) + codes);
            assert_int_equal(held(&m, LEDGER_MASTER_WEIGHTS), mixed * 5970 * (int64_t)sizeof(real));
            updated_step(&m, 1, 0.01, 0); // the frozen one is left as it is
            for (int64_t i = 0; i < 8100; i++)
                assert_true(array_get(updated_weights(&m.params.param[3]), i) ==
                                updated_number(1003, i, 0x1p-18) ||
                            mixed > 0);
            tape_close(&m.tape);
        }
}

// Real 8 bits: no hidden copy, and beside the state only the two maps during the update.
static void eight_bits_are_eight_bits(void **state)
{
    (void)state;
    static struct updated m;
    const struct updated_shape one = {"w", 64, 64, false};
    m.config = golden_config;
    m.config.kind = OPTIMIZER_ADAMW8BIT;
    updated_open(&m, &one, 1, PRECISION_REAL, PRECISION_REAL);
    assert_int_equal(held(&m, LEDGER_OPTIMIZER_STATE), 8192 + 32 * (int64_t)sizeof(real));
    assert_true(sizeof(real) == 8 || held(&m, LEDGER_OPTIMIZER_STATE) == 8320);
    const struct ledger_counts *c = &m.tape.arena.ledger.counts;
    int64_t before = c->total_now;
    updated_step(&m, 1, 0.01, 0);
    assert_int_equal(c->total_peak - before, 512 * (int64_t)sizeof(real));
    assert_int_equal(c->total_now, before);
    tape_close(&m.tape);
}

static bool dry_calls(struct tape *t, void *user, struct error *e)
{
    struct updated *m = user;
    (void)e;
    updated_make(m, t, updated_shapes, 3, PRECISION_BF16, PRECISION_BF16);
    optimizer_update(&m->config, &m->params, t, 1, 0.01, 0);
    return true;
}

static void a_plan_is_the_update(void **state)
{
    (void)state;
    static struct updated dry, m;
    struct error e;
    for (int k = 0; k < OPTIMIZER_COUNT; k++) {
        struct plan plan;
        dry.config = golden_config;
        dry.config.kind = (enum optimizer_kind)k;
        m.config = dry.config;
        assert_true(tape_measure(&dry.tape, 1, dry_calls, &dry, &plan, &e));
        tape_close(&dry.tape);
        assert_true(tape_open(&m.tape, &plan, false, 1, &e));
        assert_true(dry_calls(&m.tape, &m, &e));
        assert_int_equal(m.tape.arena.ledger.counts.total_peak, plan.bytes);
        tape_close(&m.tape);
    }
}

// ---- threads ----

static double part_of_series(const void *user, int64_t from, int64_t count)
{
    double sum = 0;
    (void)user;
    for (int64_t i = 0; i < count; i++)
        sum += 1 / (double)(1 + from + i);
    return sum;
}

static void threads_add_up_in_one_order(void **state)
{
    (void)state;
    double expected = 0;
    for (int threads = 1; threads <= 8; threads++) {
        blas_set_threads(threads);
        double sum = update_sum(300000, part_of_series, NULL);
        expected = threads == 1 ? sum : expected;
        assert_true(sum == expected);
    }
    assert_near(expected, 13.188755, 1e-6);
    blas_set_threads(blas_max_threads());
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static struct updated m;
    static char expected[UPDATED_BYTES], got[UPDATED_BYTES];
    for (int k = 0; k < OPTIMIZER_COUNT; k++)
        for (int mixed = 0; mixed < 2; mixed++) {
            enum precision p = mixed > 0 ? PRECISION_BF16 : PRECISION_REAL;
            int64_t bytes = 0, count;
            for (int threads = 1; threads <= 8; threads += threads < 4 ? 1 : 4) {
                blas_set_threads(threads);
                m.config = golden_config;
                m.config.kind = (enum optimizer_kind)k;
                m.config.clip = 1e-3; // so that the sum of all squares counts
                updated_open(&m, updated_shapes, 3, p, p);
                for (int64_t step = 1; step <= 3; step++)
                    updated_step(&m, step, 0.01, optimizer_gradient_norm(&m.params));
                updated_copy(&m, threads == 1 ? expected : got, &count);
                tape_close(&m.tape);
                bytes = threads == 1 ? count : bytes;
                assert_int_equal(count, bytes);
                if (threads > 1 && memcmp(expected, got, (size_t)bytes) != 0)
                    fail_msg("%s, %s: %d threads leave other bits",
                             optimizer_name((enum optimizer_kind)k), precision_name(p), threads);
            }
        }
    blas_set_threads(blas_max_threads());
}

static int open_golden(void **state)
{
    struct error e;
    (void)state;
    if (safetensors_open(&golden, "tests/golden/optimizers.safetensors", &e))
        return 0;
    print_error("%s (tests run from the top folder)\n", e.text);
    return 1;
}

static int close_golden(void **state)
{
    (void)state;
    safetensors_close(&golden);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_others),
        cmocka_unit_test(eight_bits_are_those_of_others),
        cmocka_unit_test(maps_are_the_published_ones),
        cmocka_unit_test(a_code_is_the_nearest),
        cmocka_unit_test(errors_are_as_small_as_published),
        cmocka_unit_test(a_step_is_nearly_that_of_32_bits),
        cmocka_unit_test(a_zero_gradient_leaves_a_weight),
        cmocka_unit_test(what_is_no_number_is_skipped),
        cmocka_unit_test(without_a_master_small_updates_are_lost),
        cmocka_unit_test(a_master_starts_from_the_draws),
        cmocka_unit_test(a_master_takes_the_same_steps),
        cmocka_unit_test(states_have_their_bytes),
        cmocka_unit_test(eight_bits_are_eight_bits),
        cmocka_unit_test(a_plan_is_the_update),
        cmocka_unit_test(threads_add_up_in_one_order),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
