// test_random.c - whatever the configuration, the plan equals the run in every category and phase,
// to the byte, the arena is reserved and filled exactly, and nothing but what stays is left.
//
// Configurations are drawn from a seed: sizes, micro-batches that do not divide the batch, dropout,
// attention, policies, optimizers, adapters, what is frozen, how things are stored. A slice of them
// in make test, 500 in make test-long.
#include "src/auto.h"
#include "src/run.h"
#include "tape/rng.h"
#include "tests/test.h"

enum { SLICE = 40, ALL = 500, STEPS = 2 };

static struct settings settings;
static struct config config;
static struct run planned, real_run;

static int64_t draw(uint64_t key, int which, int64_t low, int64_t high)
{
    return low + rng_below(key, (uint64_t)which, high - low + 1);
}

static const char *one_of(uint64_t key, int which, int count, const char *const *words)
{
    return words[rng_below(key, (uint64_t)which, count)];
}

static void set(const char *name, const char *value)
{
    struct error e;
    if (!options_set(&settings, ~0u, name, value, &e))
        fail_msg("--%s %s: %s", name, value, e.text);
}

enum { NUMBERS = 16, NUMBER_BYTES = 24 };
static char number[NUMBERS][NUMBER_BYTES]; // options point at their text
static int numbers;

static void set_int(const char *name, int64_t value)
{
    snprintf(number[numbers], NUMBER_BYTES, "%lld", (long long)value);
    set(name, number[numbers++]);
}

static void draw_settings(uint64_t key)
{
    static const char *const yes_no[] = {"yes", "no"}, *const attention[] = {"naive", "tiled"};
    static const char *const policy[] = {"none", "lean", "selective", "full"};
    static const char *const segments[] = {"block", "half"}, *const optimizer[] = {
                                                                 "sgd",   "momentum",
                                                                 "adamw", "adamw8bit",
                                                                 "lion",  "adafactor"};
    static const char *const dropout[] = {"0", "0", "0.1", "0.5"};
    static const char *const loss[] = {"plain", "chunked"}, *const precision[] = {"f32", "bf16"};
    settings_clear(&settings);
    numbers = 0;
    int64_t heads = draw(key, 1, 1, 4), context = draw(key, 3, 1, 40), batch = draw(key, 5, 1, 9);
    set_int("layers", draw(key, 0, 1, 4));
    set_int("heads", heads);
    set_int("width", heads * draw(key, 2, 1, 12));
    set_int("context", context);
    set_int("seq", draw(key, 4, 1, context));
    set_int("vocab", draw(key, 6, 62, 200)); // the builtin text has 62 characters
    set_int("batch", batch);
    set_int("micro-batch", draw(key, 7, 1, batch));
    set_int("threads", draw(key, 8, 1, 3));
    set_int("eval-every", draw(key, 9, 0, 2));
    set_int("sample-tokens", draw(key, 10, 0, 30));
    set_int("top-k", draw(key, 11, 0, 9));
    set("tie", one_of(key, 12, 2, yes_no));
    set("kv-cache", one_of(key, 19, 2, yes_no));
    set("bias", one_of(key, 13, 2, yes_no));
    set("attention", one_of(key, 14, 2, attention));
    set("checkpoint", one_of(key, 15, 4, policy));
    set("segments", one_of(key, 16, 2, segments));
    set("optimizer", one_of(key, 17, 6, optimizer));
    set("dropout", one_of(key, 18, 4, dropout));
    set("loss", one_of(key, 20, COUNT_OF(loss), loss));
    set("precision", one_of(key, 21, COUNT_OF(precision), precision));
    set("grad-precision", one_of(key, 22, COUNT_OF(precision), precision));
    set("activation-precision", one_of(key, 23, COUNT_OF(precision), precision));
}

// Adapters for half of them, and patterns for a few; from a key of their own, so that what was
// drawn before stays what it was.
static void draw_frozen(uint64_t key)
{
    static const char *const targets[] = {"q",   "q,v",  "qkv",  "proj,down", "fc",
                                          "all", "k,fc", "head", "all,head"};
    bool chunked = settings.loss != NULL && strcmp(settings.loss, "chunked") == 0;
    static const char *const bias[] = {"none", "all"};
    static const char *const patterns[] = {"wte.*", "wpe.*,h.0.*", "h.*.c_fc.weight", "ln_f.*"};
    int64_t which = draw(key, 0, 0, 9);
    if (which < 5) {
        set_int("lora", draw(key, 1, 1, settings.width < 8 ? settings.width : 8));
        set("lora-targets", one_of(key, 2, COUNT_OF(targets) - (chunked ? 2 : 0), targets));
        set("lora-bias", one_of(key, 3, COUNT_OF(bias), bias));
    } else if (which < 7) {
        set("freeze", one_of(key, 4, COUNT_OF(patterns), patterns));
    }
}

static void ignore_text(void *user, const char *text, int64_t bytes)
{
    (void)user;
    (void)text;
    (void)bytes;
}

// What cmd_train does: steps, a validation after each if there are any, and a sample.
static void train(struct run *r)
{
    struct error e;
    double loss;
    int64_t counted;
    for (int step = 0; step < STEPS; step++) {
        struct step_result result;
        batch_fill(&config.data, &config.shape, step, r->step.tokens, r->step.targets);
        assert_true(step_gradients(&r->step, &r->tape, &result, &e));
        step_update(&r->step, &r->tape, &result);
        if (config.eval_every > 0)
            assert_true(run_validate(r, 2, &loss, &counted, &e));
    }
    run_sample(r, (struct run_text){.out = ignore_text});
}

static void compare(int number_of, const struct ledger_counts *plan,
                    const struct ledger_counts *run)
{
    // A plan validates first, a run last: of two phases as high as each other each names its first.
    bool ties = plan->peak_phase != run->peak_phase &&
                plan->phase_peak[plan->peak_phase] == plan->phase_peak[run->peak_phase];
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        if (plan->peak[i] != run->peak[i] || (!ties && plan->at_peak[i] != run->at_peak[i]))
            fail_msg("configuration %d: %s planned %lld (%lld at the peak), held %lld (%lld)",
                     number_of, ledger_category_name((enum ledger_category)i),
                     (long long)plan->peak[i], (long long)plan->at_peak[i], (long long)run->peak[i],
                     (long long)run->at_peak[i]);
    for (int i = 0; i < PHASE_COUNT; i++)
        if (plan->phase_peak[i] != run->phase_peak[i])
            fail_msg("configuration %d: %s planned %lld, held %lld", number_of,
                     ledger_phase_name((enum ledger_phase)i), (long long)plan->phase_peak[i],
                     (long long)run->phase_peak[i]);
    if (!ties) {
        assert_string_equal(plan->peak_name, run->peak_name);
        assert_int_equal(plan->peak_phase, run->peak_phase);
    }
    assert_int_equal(plan->kept_bytes, run->kept_bytes);
}

static void try_one(int number_of)
{
    struct error e;
    draw_settings(rng_key(rng_key(20, RNG_TEST), (uint64_t)number_of));
    draw_frozen(rng_key(rng_key(21, RNG_TEST), (uint64_t)number_of));
    if (!config_build(&config, &settings, CONFIG_TRAIN, &e))
        fail_msg("configuration %d: %s", number_of, e.text);
    assert_true(run_measure(&planned, &config, CONFIG_TRAIN, &e));
    assert_true(run_open(&real_run, &config, CONFIG_TRAIN, &e));
    int64_t stays = real_run.tape.arena.ledger.counts.total_now;
    train(&real_run);
    const struct ledger_counts *counts = &real_run.tape.arena.ledger.counts;
    compare(number_of, &planned.tape.arena.ledger.counts, counts);
    assert_int_equal(counts->total_peak, real_run.tape.arena.cap_bytes); // filled to the last byte
    assert_int_equal(counts->total_now, stays);
    run_close(&real_run);
    run_close(&planned);
    config_close(&config);
}

static void plan_equals_run(void **state)
{
    (void)state;
    int count = test_is_long() ? ALL : SLICE;
    for (int i = 0; i < count; i++)
        try_one(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_equals_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
