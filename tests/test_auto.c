// test_auto.c - --checkpoint auto never exceeds its budget, recomputes the least that any choice
// within it could, and never recomputes more when given more.
#include "src/auto.h"
#include "src/run.h"
#include "tests/test.h"

enum { SEGMENTS_MAX = 5, CHOICES_MAX = 16807 }; // 7^5

struct outcome {
    int64_t side_bytes, flops;
};

static struct outcome outcome[CHOICES_MAX];
static struct config config;
static struct settings settings;

static struct outcome measure(struct config *c)
{
    struct run r;
    struct error e;
    assert_true(run_measure(&r, c, CONFIG_PLAN, &e));
    struct outcome o = {ledger_activation_side(&r.tape.arena.ledger.counts),
                        r.tape.flops[PHASE_RECOMPUTE]};
    run_close(&r);
    return o;
}

static void build(const char *layers, const char *attention, const char *segments)
{
    struct error e;
    char *argv[] = {"test",
                    "--model",
                    "tiny",
                    "--layers",
                    (char *)layers,
                    "--vocab",
                    "19",
                    "--batch",
                    "3",
                    "--attention",
                    (char *)attention,
                    "--segments",
                    (char *)segments,
                    "--sample-tokens",
                    "0",
                    "--dropout",
                    "0.1"};
    settings_clear(&settings);
    assert_true(options_parse(&settings, ~0u, false, COUNT_OF(argv), argv, &e));
    assert_true(config_build(&config, &settings, CONFIG_PLAN, &e));
}

// Every assignment of policies to segments, run dry.
static int64_t try_all(int segments)
{
    int64_t count = 1;
    for (int i = 0; i < segments; i++)
        count *= auto_policy_count;
    config.model.policies = config.policies;
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k;
        for (int i = 0; i < segments; i++, rest /= auto_policy_count)
            config.policies[i] = (unsigned char)auto_policies[rest % auto_policy_count];
        outcome[k] = measure(&config);
    }
    return count;
}

static int64_t least_flops(int64_t count, int64_t budget)
{
    int64_t best = INT64_MAX;
    for (int64_t k = 0; k < count; k++)
        if (outcome[k].side_bytes <= budget && outcome[k].flops < best)
            best = outcome[k].flops;
    return best;
}

static void compare(const char *layers, const char *attention, const char *segments, int n)
{
    enum { BUDGETS = 40 };
    struct error e;
    build(layers, attention, segments);
    int64_t count = try_all(n), low = INT64_MAX, high = 0, before = INT64_MAX;
    for (int64_t k = 0; k < count; k++) {
        low = outcome[k].side_bytes < low ? outcome[k].side_bytes : low;
        high = outcome[k].side_bytes > high ? outcome[k].side_bytes : high;
    }
    for (int i = 0; i <= BUDGETS; i++) {
        config.auto_checkpoint = true;
        config.activation_budget_bytes = low + (high - low) * i / BUDGETS;
        if (!auto_choose(&config, &e))
            fail_msg("%d: %s (low %lld, high %lld)", i, e.text, (long long)low, (long long)high);
        struct outcome o = measure(&config);
        assert_true(o.side_bytes <= config.activation_budget_bytes);
        assert_int_equal(o.flops, least_flops(count, config.activation_budget_bytes));
        assert_true(o.flops <= before);
        before = o.flops;
    }
    config.activation_budget_bytes = low - 1;
    assert_false(auto_choose(&config, &e)); // one byte short of the best there is
    assert_non_null(strstr(e.text, "1 more"));
    config_close(&config);
}

static void auto_equals_exhaustive_search(void **state)
{
    (void)state;
    compare("1", "tiled", "block", 1);
    compare("2", "naive", "block", 2);
    compare("3", "tiled", "block", 3);
    compare("2", "tiled", "half", 4);
    if (test_is_long()) {
        compare("4", "naive", "block", 4);
        compare("5", "tiled", "block", 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(auto_equals_exhaustive_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
