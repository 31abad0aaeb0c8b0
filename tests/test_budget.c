// test_budget.c - a sketch of a step costs what the whole step does; a ledger notices the first
// event beyond its limit; and a run whose plan was too small ends with status 1 and says what did
// not fit.
#define _DEFAULT_SOURCE
#include "src/budget.h"
#include "src/choice.h"
#include "src/run.h"
#include "tests/test.h"

#include <sys/wait.h>
#include <unistd.h>

static struct settings settings;
static struct config config;
static struct run run;

static void build(int count, char *const option[])
{
    struct error e;
    char *argv[40] = {"test", "--model",   "tiny", "--vocab",      "19", "--seq",
                      "12",   "--lr",      "0.01", "--eval-every", "1",  "--sample-tokens",
                      "4",    "--dropout", "0.1"};
    memcpy(argv + 15, option, (size_t)count * sizeof(*option));
    settings_clear(&settings);
    assert_true(options_parse(&settings, ~0u, false, 15 + count, argv, &e));
    assert_true(config_build(&config, &settings, CONFIG_PLAN, &e));
}

// ---- a sketch --------------------------------------------------------------------------

struct seen {
    struct ledger_counts counts;
    int64_t flops[PHASE_COUNT];
    int64_t class_flops[PHASE_COUNT][COST_COUNT];
    struct plan plan;
};

static struct seen measure(bool is_sketch)
{
    struct error e;
    config.step.is_sketch = is_sketch;
    assert_true(run_measure(&run, &config, CONFIG_PLAN, &e));
    struct seen s = {.counts = run.tape.arena.ledger.counts, .plan = run.plan};
    memcpy(s.flops, run.tape.flops, sizeof(s.flops));
    memcpy(s.class_flops, run.tape.class_flops, sizeof(s.class_flops));
    run_close(&run);
    return s;
}

static void test_a_sketch_is_the_whole_step(void **state)
{
    (void)state;
    static char *const micro_batch[] = {"1", "2", "3", "5", "7", "13"};
    static char *const policy[] = {"none", "lean", "selective", "full"};
    for (int m = 0; m < COUNT_OF(micro_batch); m++)
        for (int p = 0; p < COUNT_OF(policy); p++) {
            build(8, (char *[]){"--batch", "13", "--micro-batch", micro_batch[m], "--checkpoint",
                                policy[p], "--attention", p % 2 ? "naive" : "tiled"});
            struct seen whole = measure(false), sketch = measure(true);
            assert_int_equal(sketch.counts.total_peak, whole.counts.total_peak);
            assert_int_equal(sketch.counts.peak_phase, whole.counts.peak_phase);
            assert_memory_equal(sketch.counts.peak, whole.counts.peak, sizeof(whole.counts.peak));
            assert_memory_equal(sketch.counts.phase_peak, whole.counts.phase_peak,
                                sizeof(whole.counts.phase_peak));
            assert_memory_equal(&sketch.plan, &whole.plan, sizeof(whole.plan));
            for (int i = PHASE_FORWARD; i <= PHASE_RECOMPUTE; i++) {
                int64_t sum = 0;
                assert_int_equal(sketch.flops[i], whole.flops[i]);
                for (int k = 0; k < COST_COUNT; k++) {
                    assert_int_equal(sketch.class_flops[i][k], whole.class_flops[i][k]);
                    sum += whole.class_flops[i][k];
                }
                assert_int_equal(sum, whole.flops[i]);
            }
        }
}

static void test_micro_batches_fall_to_one_and_each_saves_a_pass(void **state)
{
    (void)state;
    static const int64_t batch[] = {1, 2, 12, 64, 1000, 1 << 24};
    for (int b = 0; b < COUNT_OF(batch); b++) {
        int64_t size[MICRO_BATCHES_MAX];
        int count = choice_micro_batches(batch[b], size);
        assert_true(count >= 1 && count <= MICRO_BATCHES_MAX);
        assert_int_equal(size[0], batch[b]);
        assert_int_equal(size[count - 1], 1);
        for (int i = 1; i < count; i++)
            assert_true(size[i] < size[i - 1]);
    }
    int64_t size[MICRO_BATCHES_MAX];
    static const int64_t twelve[] = {12, 6, 4, 3, 2, 1};
    assert_int_equal(choice_micro_batches(12, size), COUNT_OF(twelve));
    assert_memory_equal(size, twelve, sizeof(twelve));
}

// ---- a limit ---------------------------------------------------------------------------

// The bytes held after each event, from the history alone; nothing is stranded here.
static void test_the_ledger_notices_the_first_event_beyond_its_limit(void **state)
{
    (void)state;
    struct error e;
    build(2, (char *[]){"--batch", "3"});
    assert_true(run_measure(&run, &config, CONFIG_PLAN, &e));
    int64_t peak = run.tape.arena.ledger.counts.total_peak;
    assert_false(run.tape.arena.ledger.is_over);
    run_close(&run);
    for (int64_t limit = peak; limit > peak / 2; limit -= peak / 23 + 1) {
        config.budget_bytes = limit;
        assert_true(run_measure(&run, &config, CONFIG_PLAN, &e));
        const struct ledger *l = &run.tape.arena.ledger;
        assert_int_equal(l->counts.total_peak, peak);
        assert_int_equal(budget_holds(&run), limit == peak);
        assert_int_equal(l->is_over, limit < peak);
        int64_t held = 0, first = -1;
        for (int64_t i = 0; i < l->event_count && first < 0; i++) {
            held += l->event[i].bytes;
            first = held > limit ? i : -1;
        }
        if (limit < peak) {
            assert_int_equal(l->over_event, first);
            assert_int_equal(l->over_bytes, held);
            assert_true(l->event[first].bytes > 0);
        }
        run_close(&run);
    }
}

// ---- a plan that lies ------------------------------------------------------------------

// In a process of its own: one step in an arena that is `less` bytes smaller than planned.
static int step_in(int64_t less, FILE *words)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct error e;
        struct step_result result;
        double sum = 0;
        int64_t counted = 0;
        dup2(fileno(words), STDERR_FILENO);
        config.sample.tokens = 0;
        if (!run_measure(&run, &config, CONFIG_PLAN, &e))
            _exit(2);
        run.plan.bytes -= less;
        budget_guard(&run);
        if (!run_reserve(&run, &e))
            _exit(3);
        int64_t count = config.step.batch * config.step.seq;
        memset(run.step.tokens, 0, (size_t)count * sizeof(int32_t));
        memset(run.step.targets, 0, (size_t)count * sizeof(int32_t));
        (void)step_evaluate(&run.step, &run.tape, run.step.tokens, run.step.targets, 1, &sum,
                            &counted, &e);
        if (!step_gradients(&run.step, &run.tape, &result, &e))
            _exit(4);
        run_close(&run);
        _exit(0);
    }
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_plan_that_was_too_small_ends_with_a_table(void **state)
{
    (void)state;
    static char said[1 << 14];
    build(4, (char *[]){"--batch", "4", "--micro-batch", "4"});
    FILE *words = tmpfile();
    assert_non_null(words);
    assert_int_equal(step_in(0, words), 0);
    assert_int_equal(ftell(words), 0);
    for (int64_t less = 64; less < 1 << 20; less *= 4) {
        rewind(words);
        assert_int_equal(ftruncate(fileno(words), 0), 0);
        assert_int_equal(step_in(less, words), 1);
        rewind(words);
        said[fread(said, 1, sizeof(said) - 1, words)] = 0;
        static const char *const wanted[] = {"memtape: the arena of ", "too few",
                                             "does not fit: ",         "born in ",
                                             "the largest of the ",    "%  "};
        for (int i = 0; i < COUNT_OF(wanted); i++)
            if (strstr(said, wanted[i]) == NULL)
                fail_msg("'%s' is not in:\n%s", wanted[i], said);
        assert_null(strstr(said, "CHECK"));
    }
    fclose(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sketch_is_the_whole_step),
        cmocka_unit_test(test_micro_batches_fall_to_one_and_each_saves_a_pass),
        cmocka_unit_test(test_the_ledger_notices_the_first_event_beyond_its_limit),
        cmocka_unit_test(test_a_plan_that_was_too_small_ends_with_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
