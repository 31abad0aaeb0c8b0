// test_generate.c - a cache of keys and values changes what a token costs and nothing else: logits
// are those of the whole window, the text is the same, whatever the threads. What it holds is
// 2 x layers x width x tokens numbers, there is nothing else but weights, window and scratch, none
// of it grows with the tokens made, and the plan equals the run to the byte.
#include "src/run.h"
#include "tape/array.h"
#include "tape/rng.h"
#include "tests/test.h"

enum { VOCAB_MAX = 101, MADE_MAX = 800, ARENA_BYTES = 1 << 25 };

struct model {
    struct tape tape;
    struct gpt gpt;
};

// Weights large enough for attention to look somewhere, and for the text to be more than one word.
static void open_model(struct model *m, const struct gpt_config *c, int threads)
{
    struct plan plan = tape_plan_small(ARENA_BYTES);
    struct error e;
    assert_true(tape_open(&m->tape, &plan, false, threads, &e));
    gpt_init(&m->gpt, &m->tape, c);
    params_start(&m->gpt.params, &m->tape, 5);
    for (int i = 0; i < m->gpt.params.count; i++) {
        struct tensor *w = &m->gpt.params.param[i].tensor;
        struct array a = array_of(w->data, w->dtype);
        for (int64_t j = 0; j < tensor_count(w); j++) {
            real room[1], *at = array_open(a, j, 1, true, room);
            *at *= w->dim_count == 2 ? 8 : 1;
            array_close(a, j, 1, at);
        }
    }
}

static void begin(struct generate *s, struct model *m, const struct generate_config *c,
                  const int32_t *prompt, int64_t count)
{
    generate_init(s, &m->tape, &m->gpt, c, count);
    generate_prompt(s, &m->tape, prompt);
}

static const int32_t *prompt_of(int64_t count, int64_t vocab)
{
    static int32_t ids[1 << 10];
    assert_true(count <= COUNT_OF(ids));
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)rng_below(rng_key(3, RNG_TEST), (uint64_t)i, vocab);
    return ids;
}

static double furthest(const real *a, const real *b, int64_t n)
{
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        largest = fmax(largest, fabs((double)b[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
    }
    return difference / largest;
}

// ---- with and without -----------------------------------------------------------------

static struct model with, without;
static real logits[2][VOCAB_MAX];

// Both continue the cached one's text.
static void compare_logits(const struct gpt_config *c, int64_t prompt_count, int64_t tokens)
{
    bool is_short = c->activations == PRECISION_BF16; // a sum rounds the other way, rarely
    const double within = is_short ? 8.0 / 256 : sizeof(real) == 8 ? 1e-12 : 1e-5;
    struct generate_config cached = {.tokens = tokens, .temperature = 1, .kv_cache = true};
    struct generate_config whole = {.tokens = tokens, .temperature = 1};
    struct generate a, b;
    const int32_t *prompt = prompt_of(prompt_count, c->vocab);
    begin(&a, &with, &cached, prompt, prompt_count);
    begin(&b, &without, &whole, prompt, prompt_count);
    a.logits = logits[0];
    b.logits = logits[1];
    for (int64_t i = 0; i < tokens; i++) {
        int32_t id = generate_next(&a, &with.tape);
        generate_next(&b, &without.tape);
        double far = furthest(logits[0], logits[1], c->vocab);
        if (!(far <= within))
            fail_msg("context %lld, prompt %lld, token %lld: logits differ by %g of the largest",
                     (long long)c->context, (long long)prompt_count, (long long)i, far);
        assert_int_equal(a.length, b.length);
        b.window[b.length - 1] = id;
        assert_memory_equal(a.window, b.window, a.length * (int64_t)sizeof(int32_t));
        assert_int_equal(b.cached, 0);
        assert_true(a.cached == 0 || a.cached == a.length - 1);
    }
    generate_close(&b, &without.tape);
    generate_close(&a, &with.tape);
}

static const struct gpt_config models[] = {
    {.layers = 2, .heads = 2, .width = 16, .context = 12, .vocab = 31, .bias = true, .tie = true},
    {.layers = 1, .heads = 3, .width = 21, .context = 7, .vocab = 101, .attention = 1},
    {.layers = 3, .heads = 1, .width = 13, .context = 1, .vocab = 5, .bias = true, .attention = 1},
    {.layers = 1, .heads = 5, .width = 15, .context = 2, .vocab = 7, .dropout = 0.5},
    {.layers = 2,
     .heads = 4,
     .width = 36,
     .context = 77,
     .vocab = 40,
     .bias = true,
     .attention = 1,
     .checkpoint = POLICY_FULL,
     .half_segments = true},
    {.layers = 2, .heads = 2, .width = 10, .context = 33, .vocab = 64, .checkpoint = POLICY_LEAN},
    {.layers = 1,
     .heads = 2,
     .width = 24,
     .context = 150,
     .vocab = 11,
     .tie = true,
     .attention = 1},
    {.layers = 2,
     .heads = 2,
     .width = 22,
     .context = 40,
     .vocab = 30,
     .tie = true,
     .weights = PRECISION_BF16,
     .activations = PRECISION_BF16},
};

static void logits_are_those_without(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(models); i++) {
        const struct gpt_config *c = &models[i];
        open_model(&with, c, 1);
        open_model(&without, c, 1);
        int64_t step = c->context < 20 || test_is_long() ? 1 : c->context / 2;
        for (int64_t count = 1; count <= c->context + 3; count += step)
            compare_logits(c, count, 2 * c->context + 2); // full three times or more
        compare_logits(c, c->context, 4);
        tape_close(&without.tape);
        tape_close(&with.tape);
    }
}

static void make_text(struct model *m, const struct gpt_config *c, const struct generate_config *g,
                      int32_t *text)
{
    struct generate s;
    begin(&s, m, g, prompt_of(3, c->vocab), 3);
    for (int64_t i = 0; i < g->tokens; i++)
        text[i] = generate_next(&s, &m->tape);
    generate_close(&s, &m->tape);
}

static void the_text_is_the_same(void **state)
{
    (void)state;
    static int32_t text[2][MADE_MAX];
    for (int i = 0; i < COUNT_OF(models) - 1; i++) { // the last one rounds coarsely
        const struct gpt_config *c = &models[i];
        struct generate_config g = {.tokens = 2 * c->context + 30};
        for (int sampled = 0; sampled < 2; sampled++) {
            g.temperature = sampled;
            g.top_k = sampled ? 4 : 0;
            open_model(&with, c, 1);
            make_text(&with, c, &g, text[0]);
            g.kv_cache = true;
            make_text(&with, c, &g, text[1]);
            g.kv_cache = false;
            tape_close(&with.tape);
            assert_memory_equal(text[0], text[1], g.tokens * (int64_t)sizeof(int32_t));
        }
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static real seen[3][MADE_MAX][40];
    const struct gpt_config *c = &models[4];
    enum { TOKENS = 160 };
    struct generate_config g = {.tokens = TOKENS, .temperature = 1, .kv_cache = true};
    for (int threads = 1; threads <= 3; threads++) {
        struct generate s;
        open_model(&with, c, threads);
        begin(&s, &with, &g, prompt_of(70, c->vocab), 70);
        for (int i = 0; i < TOKENS; i++) {
            s.logits = seen[threads - 1][i];
            generate_next(&s, &with.tape);
        }
        generate_close(&s, &with.tape);
        tape_close(&with.tape);
    }
    assert_memory_equal(seen[0], seen[1], TOKENS * sizeof(seen[0][0]));
    assert_memory_equal(seen[0], seen[2], TOKENS * sizeof(seen[0][0]));
}

// The newest half stays; an odd one out goes.
static void a_full_context_drops_its_older_half(void **state)
{
    (void)state;
    enum { MADE = 200 };
    static int32_t text[MADE + 1] = {1};
    for (int i = 0; i < COUNT_OF(models); i++)
        for (int cached = 0; cached < 2; cached++) {
            const struct gpt_config *c = &models[i];
            struct generate_config g = {.tokens = MADE, .temperature = 1, .kv_cache = cached};
            struct generate s;
            open_model(&with, c, 1);
            begin(&s, &with, &g, text, 1);
            int64_t length = 1;
            for (int made = 1; made <= MADE; made++) {
                text[made] = generate_next(&s, &with.tape);
                length = length == c->context ? c->context / 2 + 1 : length + 1;
                assert_int_equal(s.length, length);
                assert_memory_equal(s.window, text + 1 + made - length,
                                    length * (int64_t)sizeof(int32_t));
            }
            generate_close(&s, &with.tape);
            tape_close(&with.tape);
        }
}

// ---- bytes -----------------------------------------------------------------------------

// Of the cache that a model would have; nothing of it is there, the memory may not be touched.
static int64_t cache_bytes(const struct gpt_config *c, enum dtype dtype, int64_t prompt_count,
                           int64_t tokens)
{
    struct error e;
    struct generate s;
    struct generate_config g = {.tokens = tokens, .kv_cache = true};
    assert_true(tape_open(&with.tape, NULL, true, 1, &e));
    gpt_init(&with.gpt, &with.tape, c);
    with.tape.activation_dtype = dtype;
    generate_init(&s, &with.tape, &with.gpt, &g, prompt_count);
    int64_t bytes = with.tape.arena.ledger.counts.now[LEDGER_KV_CACHE];
    assert_int_equal(bytes % s.cache_tokens, 0);
    generate_close(&s, &with.tape);
    assert_int_equal(with.tape.arena.ledger.counts.now[LEDGER_KV_CACHE], 0);
    tape_close(&with.tape);
    return bytes;
}

static const struct gpt_config *preset(const char *name)
{
    static struct gpt_config c;
    for (int i = 0; i < gpt_preset_count; i++)
        if (strcmp(gpt_presets[i].name, name) == 0)
            c = gpt_presets[i].config;
    return &c;
}

static void bytes_are_the_formula(void **state)
{
    (void)state;
    const int64_t f32 = sizeof(real);
    const struct gpt_config *gpt2 = preset("gpt2");
    assert_int_equal(cache_bytes(gpt2, DTYPE_REAL, 1, 1023), 1024 * 73728 * f32 / 4);
    assert_int_equal(cache_bytes(gpt2, DTYPE_REAL, 1, 1023) / f32, (72 << 20) / 4);
    assert_int_equal(cache_bytes(gpt2, DTYPE_REAL, 1, 1), 2 * 73728 * f32 / 4);
    assert_int_equal(cache_bytes(gpt2, DTYPE_REAL, 1000, 1000000), 1024 * 73728 * f32 / 4);
    assert_int_equal(cache_bytes(gpt2, DTYPE_BF16, 1000, 10), 1010 * 73728 / 2);
    assert_int_equal(cache_bytes(gpt2, DTYPE_BF16, 5000, 10), 1024 * 73728 / 2);
    const struct gpt_config *gpt3_13b = preset("gpt3-13b"); // 40 layers of 5120, as OPT 13B
    assert_int_equal(cache_bytes(gpt3_13b, DTYPE_BF16, 1, 2047), 2048 * INT64_C(819200));
    const struct gpt_config *gpt3 = preset("gpt3");
    assert_int_equal(cache_bytes(gpt3, DTYPE_BF16, 1, 2047), 2048 * INT64_C(4718592));
    assert_int_equal(cache_bytes(gpt3, DTYPE_REAL, 1, 2047) / f32, 2048 * INT64_C(2359296));
}

static struct settings settings;
static struct config config;
static struct run planned, real_run;

static int64_t draw(uint64_t key, int which, int64_t low, int64_t high)
{
    return low + rng_below(key, (uint64_t)which, high - low + 1);
}

static void draw_config(uint64_t key)
{
    struct error e;
    settings_clear(&settings);
    settings.heads = draw(key, 0, 1, 4);
    settings.width = settings.heads * draw(key, 1, 1, 12);
    settings.layers = draw(key, 2, 1, 4);
    settings.context = draw(key, 3, 1, 90);
    settings.vocab = draw(key, 4, 1, 150);
    settings.sample = draw(key, 5, 1, draw(key, 16, 0, 1) ? 230 : 30);
    settings.threads = draw(key, 6, 1, 3);
    settings.top_k = draw(key, 7, 0, 1) * draw(key, 8, 0, settings.vocab);
    settings.kv_cache = (int)draw(key, 9, 0, 2) > 0; // more often than not
    settings.tie = (int)draw(key, 10, 0, 1);
    settings.bias = (int)draw(key, 11, 0, 1);
    settings.attention = draw(key, 12, 0, 1) ? "naive" : "tiled";
    settings.checkpoint = draw(key, 13, 0, 1) ? "none" : "full";
    settings.temperature = (double)draw(key, 14, 0, 1);
    settings.precision = draw(key, 17, 0, 1) ? "bf16" : "f32";
    settings.activation_precision = draw(key, 18, 0, 2) ? NULL : "bf16";
    if (!config_build(&config, &settings, CONFIG_PLAN, &e))
        fail_msg("%s", e.text);
    config.prompt_count = draw(key, 15, 1, settings.context + 4);
    memset(config.prompt, 0, sizeof(config.prompt));
}

static void compare(int number, const struct ledger_counts *plan, const struct ledger_counts *run)
{
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        if (plan->peak[i] != run->peak[i] || plan->at_peak[i] != run->at_peak[i])
            fail_msg("configuration %d: %s planned %lld (%lld at the peak), held %lld (%lld)",
                     number, ledger_category_name((enum ledger_category)i),
                     (long long)plan->peak[i], (long long)plan->at_peak[i], (long long)run->peak[i],
                     (long long)run->at_peak[i]);
    assert_int_equal(plan->total_peak, run->total_peak);
    assert_int_equal(plan->phase_peak[PHASE_GENERATE], run->phase_peak[PHASE_GENERATE]);
    assert_string_equal(plan->peak_name, run->peak_name);
}

// Returns whether the context was never full.
static bool check_held(const struct ledger_counts *c)
{
    static const bool may[LEDGER_CATEGORY_COUNT] = {
        [LEDGER_WEIGHTS] = true,     [LEDGER_WORKSPACE] = true, [LEDGER_BATCH] = true,
        [LEDGER_BOOKKEEPING] = true, [LEDGER_PADDING] = true,   [LEDGER_STRANDED] = true};
    const struct gpt_config *m = &config.model;
    int64_t tokens = config.prompt_count + config.sample.tokens;
    tokens = tokens < m->context ? tokens : m->context;
    int64_t number = dtype_bytes(precision_dtype(m->activations));
    assert_int_equal(c->peak[LEDGER_KV_CACHE],
                     config.sample.kv_cache ? 2 * m->layers * m->width * tokens * number : 0);
    assert_int_equal(c->peak[LEDGER_BATCH], m->context * sizeof(int32_t));
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        if (!may[i] && i != LEDGER_KV_CACHE && c->peak[i] != 0)
            fail_msg("%s: %lld bytes", ledger_category_name((enum ledger_category)i),
                     (long long)c->peak[i]);
    return tokens < m->context;
}

static void the_plan_is_the_run(void **state)
{
    (void)state;
    int count = test_is_long() ? 1000 : 50, roomy = 0;
    for (int i = 0; i < count; i++) {
        struct error e;
        draw_config(rng_key(rng_key(21, RNG_TEST), (uint64_t)i));
        assert_true(run_measure(&planned, &config, CONFIG_GENERATE, &e));
        assert_true(run_open(&real_run, &config, CONFIG_GENERATE, &e));
        const struct ledger_counts *counts = &real_run.tape.arena.ledger.counts;
        int64_t stays = counts->total_now;
        run_sample(&real_run, (struct run_text){.out = NULL});
        compare(i, &planned.tape.arena.ledger.counts, counts);
        roomy += check_held(counts);
        assert_int_equal(counts->total_peak, real_run.tape.arena.cap_bytes);
        assert_int_equal(counts->total_now, stays);
        run_close(&real_run);
        run_close(&planned);
        config_close(&config);
    }
    assert_true(roomy > count / 20 && roomy < count / 2);
}

// From a prompt of one token, ten tokens and a whole context hold the same beside the cache.
static void nothing_else_grows(void **state)
{
    (void)state;
    int64_t rest[2];
    for (int i = 0; i < 2; i++) {
        struct error e;
        settings_clear(&settings);
        settings.model = "gpt2";
        settings.sample = i == 0 ? 10 : 512; // the context is not full: no second prefill
        assert_true(config_build(&config, &settings, CONFIG_PLAN, &e));
        assert_true(run_measure(&planned, &config, CONFIG_GENERATE, &e));
        const struct ledger_counts *c = &planned.tape.arena.ledger.counts;
        int64_t tables = c->peak[LEDGER_BOOKKEEPING];
        rest[i] = c->total_peak - c->peak[LEDGER_KV_CACHE] - tables;
        assert_true(c->peak[LEDGER_KV_CACHE] > 0);
        run_close(&planned);
        config_close(&config);
    }
    assert_int_equal(rest[0], rest[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_without),
        cmocka_unit_test(the_text_is_the_same),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(a_full_context_drops_its_older_half),
        cmocka_unit_test(bytes_are_the_formula),
        cmocka_unit_test(the_plan_is_the_run),
        cmocka_unit_test(nothing_else_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
