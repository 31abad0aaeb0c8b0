// test_pitfalls.c - what real trainers have got wrong, each as its smallest case, is right here.
//
// Where each pitfall is tested (functions without a file are below):
//
//   mean of means               mean_of_means; test_ops: no_mean_of_means; test_check.sh: --naive
//   the label the shift drops   label_the_shift_drops; test_data: validation_rows_after_the_end_...
//   incomplete last window      incomplete_last_window; test_cli_train.sh: --micro-batch 5
//   schedule per micro-batch    schedule_per_micro_batch; test_golden: all
//   clipping per micro-batch    clipping_per_micro_batch; test_check.sh: --naive
//   zeroing in the wrong place  zeroing_in_the_wrong_place
//   empty micro-batch           empty_micro_batch; test_ops: none_counted_is_no_gradient
//   uninitialised accumulator   uninitialised_accumulator; test_pitfalls.sh: MALLOC_PERTURB_
//   bad targets                 bad_targets; test_ops: bad_numbers_stop; test_check.sh: 255
//   log(0)                      test_ops: loss_of_the_improbable_is_finite
//   fast-math                   fast_math, in the release build by test_pitfalls.sh; test_cpu
//   gradient check in float     gradient_check_in_float; test_ops_grad: a_fault_of_one_percent_...
//   threads change sums         test_pitfalls.sh: OMP_NUM_THREADS; test_check.sh: threads
//   oversubscription            test_pitfalls.sh: threads of the BLAS
//   dropout on recompute        dropout_on_recompute; test_stream; test_check.sh: checkpoint
//   frozen base                 test_lora: steps_move_b_then_a_in_every_way
//   no saving                   no_saving; test_stream: a_segment_more_costs_its_input
//   lost under accumulation     lost_under_accumulation; test_cli_train.sh: 497759232
//   tied weights                test_cli_train.sh: known numbers
//   bytes per parameter         test_ladder.sh: 1991036928, 2239916544; test_rules: states_are_...
//   untouched pages             test_arena: touching_reaches_every_page; test_process.sh
//   second run in one process   second_run_in_one_process
//   one byte short              test_budget.sh; test_tape: one_byte_less_does_not_fit
//   frozen parameters           test_lora: a_linear_of_512_to_256, one_alone_has_the_gradient_...;
//                               test_tape: frozen_parameters_cost_nothing; test_stream: frozen
//   history                     history; test_tape: steps_leave_nothing_behind
//   bf16 without master         test_optimizer: without_a_master_small_updates_are_lost; the master
//                               in a file: test_states: a_resumed_run_has_the_same_bits
//   Adam's step count           adams_step_count; test_cli_resume.sh: 4 + 6 steps
//   "8-bit" that is not         test_optimizer: eight_bits_are_eight_bits
//   LoRA scale                  test_lora: the_scale_is_alpha_over_rank, merged_weights_give_...
//   value used twice            test_stream: a_value_used_twice
//   second backward             second_backward; test_tape: misuse_stops
//   depth                       test_stream: a_long_chain_on_a_small_stack
//   end of data                 test_data: batch_sequential_ends_..., batch_random_needs_one_window
//   id >= V                     id_beyond_the_vocabulary; test_ops: bad_numbers_stop
//   T beyond the position table beyond_the_position_table; test_cli_errors.sh: seq 17
//   resume                      test_cli_resume.sh; test_check.sh: resume
//   hostile safetensors         test_safetensors: hostile_...
//   truncation                  test_snapshot, test_safetensors: every_prefix_...
//   foreign magic               test_cli_errors.sh: the optimizer as the model, a text as the model
//   kill while saving           test_snapshot: a_kill_leaves_...; test_cli_resume.sh: kill -9
//   Ctrl-C                      test_cli_resume.sh: Ctrl-C
//   locale                      locale; test_snapshot, test_safetensors: a_comma_locale_...
//   paths                       cli.sh: every shell test; test_pitfalls.sh: a checkout
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "src/json.h"
#include "src/run.h"
#include "src/run_log.h"
#include "tape/gradcheck.h"
#include "tests/test.h"

#include <locale.h>
#include <sys/wait.h>
#include <unistd.h>

enum { V = 4, ARENA_BYTES = 1 << 23, BITS_MAX = 1 << 13, NO = TARGET_IGNORED };

// ---- a small model, and its gradients as one list of numbers ----

static struct model {
    struct tape tape;
    struct gpt gpt;
    struct step step;
} m;
static int rubbish; // what the arena holds before anybody writes to it

static const struct gpt_config plain = {.layers = 2,
                                        .heads = 2,
                                        .width = 8,
                                        .context = 16,
                                        .vocab = V,
                                        .bias = true,
                                        .attention = GPT_ATTENTION_TILED};

static struct step_config steps_of(int64_t batch, int64_t micro_batch, int64_t seq)
{
    return (struct step_config){
        .batch = batch,
        .micro_batch = micro_batch,
        .seq = seq,
        .seed = 3,
        .optimizer = {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .schedule = {.rate = 1e-3},
    };
}

static void tape_start(void)
{
    struct plan plan = tape_plan_small(ARENA_BYTES);
    struct error e;
    if (!tape_open(&m.tape, &plan, false, 1, &e))
        fail_msg("%s", e.text);
    if (rubbish != 0)
        memset(m.tape.arena.base + m.tape.arena.stack[ARENA_LOW].bytes, rubbish,
               (size_t)(m.tape.arena.cap_bytes - arena_held_bytes(&m.tape.arena)));
}

static void model_open(const struct gpt_config *g, struct step_config c)
{
    struct error e;
    tape_start();
    if (!step_config_check(&c, g, &e))
        fail_msg("%s", e.text);
    gpt_init(&m.gpt, &m.tape, g);
    params_start(&m.gpt.params, &m.tape, 3);
    step_init(&m.step, &m.tape, &m.gpt, &c, true);
    for (int64_t i = 0; i < c.batch * c.seq; i++) {
        m.step.tokens[i] = (int32_t)(i * 7 % 5 % g->vocab);
        m.step.targets[i] = (int32_t)(i * 3 % 7 % g->vocab);
    }
}

// Logits of zeros: every loss is ln V, every slope of a logit the same.
static void model_flatten(void)
{
    struct tensor *head = &m.gpt.head->tensor;
    memset(head->data, 0, (size_t)tensor_bytes(head));
    for (int64_t i = 0; i < m.gpt.config.width; i++) { // what the head sees is a one everywhere
        m.gpt.lnf_w->tensor.data[i] = 0;
        m.gpt.lnf_b->tensor.data[i] = 1;
    }
}

static void targets_are(const int32_t *targets, int64_t count)
{
    memcpy(m.step.targets, targets, (size_t)count * sizeof(*targets));
}

static struct step_result gradients(void)
{
    struct step_result r;
    struct error e;
    if (!step_gradients(&m.step, &m.tape, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static int copy(bool of_gradients, real *out)
{
    int count = 0;
    for (int i = 0; i < m.gpt.params.count; i++) {
        const struct tensor *x = &m.gpt.params.param[i].tensor;
        assert_true(count + tensor_count(x) <= BITS_MAX);
        memcpy(out + count, of_gradients ? x->grad : x->data, (size_t)tensor_bytes(x));
        count += (int)tensor_count(x);
    }
    return count;
}

static void same_numbers(const real *a, const real *b, int count) // 0 and -0 are the same
{
    double size = 0;
    for (int i = 0; i < count; i++) {
        if (a[i] != b[i])
            fail_msg("number %d is %.17g, expected %.17g", i, (double)a[i], (double)b[i]);
        size += fabs((double)a[i]);
    }
    assert_true(size > 0 && isfinite(size)); // something was compared
}

static void same_bits(const real *a, const real *b, int count)
{
    same_numbers(a, b, count);
    assert_memory_equal(a, b, (size_t)count * sizeof(real));
}

static real bits[2][BITS_MAX];

// ---- accumulation and loss ----

// The mean of the rows' means has the same loss; its slopes are those of [1] twice too large.
static void mean_of_means(void **state)
{
    (void)state;
    static const int32_t targets[8] = {1, NO, NO, NO, 2, 3, 0, NO};
    for (int64_t micro = 1; micro <= 2; micro++) {
        model_open(&plain, steps_of(2, micro, 4));
        model_flatten();
        targets_are(targets, 8);
        struct step_result r = gradients();
        assert_int_equal(r.counted, 4);
        assert_near(r.loss, 1.386294, 1e-6);
        for (int i = 0; i < V * 8; i++) // -0.1875 + 3 x 0.0625, not -0.375 + 3 x 0.041667
            assert_near(m.gpt.head->tensor.grad[i], 0, 1e-7);
        tape_close(&m.tape);
    }
}

static void label_the_shift_drops(void **state)
{
    (void)state;
    static const int32_t targets[10] = {1, 1, 1, 1, NO, 1, 1, 1, 1, NO};
    model_open(&plain, steps_of(2, 2, 5));
    model_flatten();
    targets_are(targets, 10);
    struct step_result r = gradients();
    assert_int_equal(r.counted, 8);
    assert_near(r.loss, log(V), 1e-6); // divided by 10 it were 4/5 of that
    for (int i = 0; i < V * 8; i++)
        assert_near(m.gpt.head->tensor.grad[i], i / 8 == 1 ? -0.75 : 0.25, 1e-6);
    tape_close(&m.tape);
}

// Five micro-batches of one window, four of which make a step: the fifth is a step of its own, and
// in a step of five, 4 + 1, it weighs what its targets weigh.
static void incomplete_last_window(void **state)
{
    (void)state;
    enum { T = 6 };
    int count = 0;
    for (int alone = 0; alone < 2; alone++) {
        model_open(&plain, alone ? steps_of(1, 1, T) : steps_of(5, 4, T));
        for (int i = 0; i < 4 * T && !alone; i++)
            m.step.targets[i] = NO;
        int32_t *at = m.step.targets + (alone ? 0 : 4 * T);
        for (int i = 0; i < T; i++) {
            (m.step.tokens + (at - m.step.targets))[i] = i % V;
            at[i] = (i + 2) % V;
        }
        assert_int_equal(gradients().counted, T);
        count = copy(true, bits[alone]);
        tape_close(&m.tape);
    }
    same_numbers(bits[0], bits[1], count);
    struct error e;
    struct step_config c = steps_of(5, 8, T);
    assert_false(step_config_check(&c, &plain, &e));
    assert_non_null(strstr(e.text, "micro-batch 8: expected 1 to batch 5"));
    c.micro_batch = 0;
    assert_false(step_config_check(&c, &plain, &e));
    assert_non_null(strstr(e.text, "micro-batch 0"));
}

static void schedule_per_micro_batch(void **state)
{
    (void)state;
    static const double rates[] = {0.5e-3, 1e-3}; // of steps 1 and 2; micro-batches would reach 8
    struct step_config c = steps_of(4, 1, 4);
    c.schedule.warmup_steps = 2;
    model_open(&plain, c);
    for (int i = 0; i < 2; i++) {
        struct step_result r = gradients();
        step_update(&m.step, &m.tape, &r);
        assert_true(r.rate == rates[i]);
        assert_int_equal(m.step.steps_done, i + 1);
    }
    tape_close(&m.tape);
}

// One parameter of two numbers, 0 at first, trained by whatever gradients a test gives.
static struct param_list two;

static void two_open(const struct optimizer_config *c)
{
    tape_start();
    params_open(&two, &m.tape, 1);
    param_add(&two, &m.tape, 0, 2, PARAM_ZEROS, 0, "two");
    params_start(&two, &m.tape, 0);
    params_add_grads(&two, &m.tape);
    params_zero_grads(&two, &m.tape);
    optimizer_init(c, &two, &m.tape);
}

// A micro-batch whose gradient is seed x (a, b).
static void two_backward(real seed, real a, real b)
{
    struct tensor by;
    struct tape *t = &m.tape;
    tensor_persistent(&by, &t->arena, "by", LEDGER_BATCH, 1, (int64_t[]){2});
    by.data[0] = a;
    by.data[1] = b;
    tape_begin(t, PHASE_FORWARD, 0);
    tape_enter(t, "test");
    struct tensor *y = op_mul(t, &two.param[0].tensor, &by);
    tape_leave(t, NULL);
    tape_backward(t, y, seed);
}

static void clipping_per_micro_batch(void **state)
{
    (void)state;
    struct optimizer_config c = {.kind = OPTIMIZER_SGD, .clip = 1};
    two_open(&c);
    two_backward(1, 2, 0);
    two_backward(1, 0, 2);
    double norm = optimizer_gradient_norm(&two);
    assert_near(norm, sqrt(8), 1e-7);
    optimizer_update(&c, &two, &m.tape, 1, 1, norm);
    for (int i = 0; i < 2; i++) // clipped each by itself they would be 0.447214 and 0.894427
        assert_near(-two.param[0].tensor.data[i], 0.707107, 1e-6);
    tape_close(&m.tape);
}

static void zeroing_in_the_wrong_place(void **state)
{
    (void)state;
    struct optimizer_config c = {.kind = OPTIMIZER_SGD};
    two_open(&c);
    for (int window = 0; window < 2; window++) {
        params_zero_grads(&two, &m.tape);
        for (int i = 1; i <= 4; i *= 2)
            two_backward((real)i, 1, -1);
        assert_true(two.param[0].tensor.grad[0] == 7);
        assert_true(two.param[0].tensor.grad[1] == -7);
    }
    tape_close(&m.tape);
    struct gpt_config tied = plain;
    for (int tie = 0; tie < 2; tie++) { // and where a step does it
        tied.tie = tie > 0;
        model_open(&tied, steps_of(3, 3, 4));
        gradients();
        int count = copy(true, bits[0]);
        tape_close(&m.tape);
        model_open(&tied, steps_of(3, 1, 4));
        for (int window = 0; window < 2; window++) {
            gradients();
            copy(true, bits[1]);
            same_bits(bits[1], bits[0], count);
        }
        tape_close(&m.tape);
    }
}

static void empty_micro_batch(void **state)
{
    (void)state;
    static const int32_t some[12] = {1, 0, 2, 3, NO, NO, NO, NO, NO, 2, 3, NO};
    static const int32_t fewer[8] = {1, 0, 2, 3, NO, 2, 3, NO};
    static const int32_t tokens[12] = {0, 1, 2, 3, 3, 3, 3, 3, 2, 0, 1, 1};
    int count = 0;
    for (int without = 0; without < 2; without++) {
        int rows = without ? 2 : 3;
        model_open(&plain, steps_of(rows, 1, 4));
        targets_are(without ? fewer : some, rows * 4);
        for (int i = 0; i < rows * 4; i++)
            m.step.tokens[i] = tokens[without && i >= 4 ? i + 4 : i];
        assert_int_equal(gradients().counted, 6);
        count = copy(true, bits[without]);
        tape_close(&m.tape);
    }
    same_numbers(bits[0], bits[1], count);

    model_open(&plain, steps_of(2, 1, 4)); // (0, 0)
    for (int i = 0; i < 8; i++)
        m.step.targets[i] = NO;
    struct step_result r;
    struct error e;
    copy(false, bits[0]);
    assert_false(step_gradients(&m.step, &m.tape, &r, &e));
    assert_non_null(strstr(e.text, "no target of this batch counts: all 8 are ignored"));
    assert_int_equal(m.step.steps_done, 0);
    copy(false, bits[1]);
    same_bits(bits[0], bits[1], count);
    tape_close(&m.tape);
}

static void uninitialised_accumulator(void **state)
{
    (void)state;
    static const int bytes[] = {0, 0xa5, 0xff}; // nothing, small numbers, none at all
    int count = 0;
    for (int tie = 0; tie < 2; tie++)
        for (int i = 0; i < COUNT_OF(bytes); i++) {
            struct gpt_config g = plain;
            g.tie = tie > 0;
            g.dropout = 0.1;
            g.checkpoint = POLICY_FULL;
            rubbish = bytes[i];
            model_open(&g, steps_of(3, 2, 4));
            rubbish = 0;
            for (int step = 0; step < 2; step++) {
                struct step_result r = gradients();
                step_update(&m.step, &m.tape, &r);
            }
            count = copy(false, bits[i > 0]);
            tape_close(&m.tape);
            if (i > 0)
                same_bits(bits[1], bits[0], count);
        }
}

static void assert_refused(int32_t *at, int32_t value, const char *said)
{
    struct step_result r;
    struct error e;
    int32_t before = *at;
    *at = value;
    assert_false(step_gradients(&m.step, &m.tape, &r, &e));
    if (strstr(e.text, said) == NULL)
        fail_msg("'%s' does not say '%s'", e.text, said);
    *at = before;
}

static void bad_targets(void **state)
{
    (void)state;
    struct gpt_config g = plain;
    g.vocab = 5;
    model_open(&g, steps_of(2, 1, 4));
    assert_refused(&m.step.targets[0], -4, "target -4 at row 0, position 0: expected 0 to 4");
    assert_refused(&m.step.targets[3], 5, "target 5 at row 0, position 3: expected 0 to 4");
    assert_refused(&m.step.targets[6], 255, "target 255 at row 1, position 2: expected 0 to 4");
    gradients();
    tape_close(&m.tape);
}

// ---- numerics ----

static void fast_math(void **state)
{
    (void)state;
    static const double at[] = {-100, 0, 1, 100}, slope[] = {0, 0.5, 1.082964, 1};
    volatile double zero = 0;
    volatile real small_zero = 0;
    assert_true(isnan(zero / zero) && isnan(small_zero / small_zero));
    assert_true(isinf(1 / zero) && !isfinite(1 / small_zero));
    assert_true(signbit(-zero) && zero - zero != zero / zero);
    for (int i = 0; i < COUNT_OF(at); i++) {
        struct optimizer_config c = {.kind = OPTIMIZER_SGD};
        two_open(&c);
        two.param[0].tensor.data[0] = (real)at[i];
        tape_begin(&m.tape, PHASE_FORWARD, 0);
        tape_enter(&m.tape, "test");
        struct tensor *y = op_gelu(&m.tape, &two.param[0].tensor);
        tape_leave(&m.tape, NULL);
        tape_backward(&m.tape, y, 1);
        assert_near(two.param[0].tensor.grad[0], slope[i], 1e-6);
        tape_close(&m.tape);
    }
}

static struct tensor *cube(struct tape *t, void *user)
{
    (void)user;
    struct tensor *x = &two.param[0].tensor;
    return op_mul(t, op_mul(t, x, x), x);
}

// In float a central difference of x^3 at 1 is 2.95 with h = 1e-6 and 0 with 1e-8.
static void gradient_check_in_float(void **state)
{
    (void)state;
    struct optimizer_config c = {.kind = OPTIMIZER_SGD};
    two_open(&c);
    struct tensor *x = &two.param[0].tensor;
    x->data[0] = x->data[1] = 1;
    gradcheck_run(&m.tape, cube, NULL);
    assert_true(x->grad[0] == 3);
    struct gradcheck k = gradcheck_compare(&m.tape, cube, NULL, x, 2);
    assert_true(gradcheck_passes(&k, GRADCHECK_TOLERANCE));
    x->grad[0] *= (real)1.01;
    x->grad[1] *= (real)1.01;
    k = gradcheck_compare(&m.tape, cube, NULL, x, 2);
    assert_false(gradcheck_passes(&k, GRADCHECK_TOLERANCE));
    tape_close(&m.tape);
}

// ---- checkpoint segments ----

static void dropout_on_recompute(void **state)
{
    (void)state;
    static real first[BITS_MAX], plain_bits[2][BITS_MAX];
    struct gpt_config g = plain;
    g.dropout = 0.5;
    for (int policy = 0; policy < POLICY_COUNT; policy++)
        for (int64_t micro = 2; micro >= 1; micro--) {
            g.checkpoint = (enum tape_policy)policy;
            model_open(&g, steps_of(2, micro, 5));
            for (int step = 0; step < 2; step++) {
                struct step_result r = gradients();
                int count = copy(true, first);
                if (policy == 0 && micro == 2)
                    memcpy(plain_bits[step], first, sizeof(first));
                same_bits(first, plain_bits[step], count);
                step_update(&m.step, &m.tape, &r);
            }
            tape_close(&m.tape);
        }
    assert_memory_not_equal(plain_bits[0], plain_bits[1], sizeof(first));
}

// Two micro-batches of the same row have different masks, and so have two steps.
static void masks_differ(void **state)
{
    (void)state;
    struct gpt_config g = plain;
    real loss[3];
    g.dropout = 0.5;
    model_open(&g, steps_of(2, 1, 5));
    for (int i = 0; i < 3; i++) {
        m.gpt.dropout_key = (uint64_t)(i / 2);
        tape_begin(&m.tape, PHASE_FORWARD, i % 2);
        tape_enter(&m.tape, "test");
        struct tensor *y = gpt_loss(&m.tape, &m.gpt, m.step.tokens, m.step.targets, NULL, 1, 5);
        loss[i] = y->data[0];
        tape_leave(&m.tape, NULL);
        tape_backward(&m.tape, y, 1);
    }
    assert_true(loss[0] != loss[1] && loss[0] != loss[2] && loss[1] != loss[2]);
    double first = gradients().loss; // of the same weights, but for the step
    assert_true(gradients().loss == first);
    m.step.steps_done++;
    assert_true(gradients().loss != first);
    tape_close(&m.tape);
}

// ---- runs of the whole program, in this process ----

static struct settings settings;
static struct config config;
static struct run run;

static void configure(const char *const *options) // name, value, ..., NULL
{
    struct error e;
    settings_clear(&settings);
    for (; *options != NULL; options += 2)
        if (!options_set(&settings, ~0u, options[0], options[1], &e))
            fail_msg("--%s %s: %s", options[0], options[1], e.text);
    if (!config_build(&config, &settings, CONFIG_TRAIN, &e))
        fail_msg("%s", e.text);
}

static void run_start(const char *const *options)
{
    struct error e;
    configure(options);
    if (!run_open(&run, &config, CONFIG_TRAIN, &e))
        fail_msg("%s", e.text);
}

static struct step_result one_step(void)
{
    struct step_result r;
    struct error e;
    batch_fill(&config.data, &config.shape, run.step.steps_done, run.step.tokens, run.step.targets);
    if (!step_gradients(&run.step, &run.tape, &r, &e))
        fail_msg("%s", e.text);
    step_update(&run.step, &run.tape, &r);
    return r;
}

static void run_end(void)
{
    run_close(&run);
    assert_int_equal(run.tape.arena.ledger.counts.total_now, 0);
    assert_null(run.tape.arena.base);
    config_close(&config);
}

// A model of one block and nothing else: all that its backward reads is there at the peak, made
// again. 16 C + H + 4 numbers for each token.
static void no_saving(void **state)
{
    (void)state;
    enum { WIDTH = 64, HEADS = 2, TOKENS = 12 * 64 };
    struct error e;
    configure((const char *[]){"layers", "1", "heads", "2", "width", "64", "context", "64", "vocab",
                               "64", "batch", "12", "sample-tokens", "0", "checkpoint", "full",
                               "threads", "1", NULL});
    assert_true(run_measure(&run, &config, CONFIG_PLAN, &e));
    const struct ledger_counts *c = &run.tape.arena.ledger.counts;
    assert_int_equal(c->peak_phase, PHASE_RECOMPUTE);
    assert_int_equal(c->at_peak[LEDGER_RECOMPUTED] + c->at_peak[LEDGER_SAVED_ACTIVATIONS],
                     (16 * WIDTH + HEADS + 4) * TOKENS * (int64_t)sizeof(real));
    assert_int_equal(c->phase_peak[PHASE_RECOMPUTE], c->total_peak);
    run_end();
}

static void lost_under_accumulation(void **state)
{
    (void)state;
    for (int64_t micro = 4; micro >= 1; micro /= 2) {
        model_open(&plain, steps_of(4, micro, 4));
        int64_t bytes = params_count(&m.gpt.params) * (int64_t)sizeof(real);
        gradients();
        assert_int_equal(m.tape.arena.ledger.counts.now[LEDGER_GRADIENTS], bytes);
        assert_int_equal(m.tape.arena.ledger.counts.peak[LEDGER_GRADIENTS], bytes);
        assert_int_equal(m.tape.arena.ledger.counts.now[LEDGER_OPTIMIZER_STATE], 2 * bytes);
        tape_close(&m.tape);
    }
}

static const char *const run_x[] = {"model",  "tiny",       "batch",      "5",       "dropout",
                                    "0.1",    "checkpoint", "auto",       "threads", "1",
                                    "budget", "1000000",    "eval-every", "1",       NULL};
static const char *const run_y[] = {"layers",  "2", "heads",     "2",     "width",     "12",
                                    "context", "9", "batch",     "3",     "optimizer", "sgd",
                                    "threads", "1", "attention", "naive", NULL};

struct seen { // of a run of two steps
    struct ledger_counts counts;
    double loss[2];
    int64_t flops[PHASE_COUNT];
};

static struct seen seen_of(const char *const *options)
{
    struct seen s;
    memset(&s, 0, sizeof(s)); // padding is compared as well
    run_start(options);
    for (int i = 0; i < 2; i++)
        s.loss[i] = one_step().loss;
    memcpy(&s.counts, &run.tape.arena.ledger.counts, sizeof(s.counts));
    memcpy(s.flops, run.tape.flops, sizeof(s.flops));
    run_end();
    return s;
}

static const char *program;

static void second_run_in_one_process(void **state)
{
    (void)state;
    int to_us[2], status = -1;
    struct seen fresh, second;
    assert_int_equal(pipe(to_us), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(to_us[1], STDOUT_FILENO);
        execl(program, program, "fresh", (char *)NULL);
        _exit(4);
    }
    close(to_us[1]);
    size_t got = 0;
    for (ssize_t n = 1; n > 0 && got<sizeof(fresh); got += n> 0 ? (size_t)n : 0)
        n = read(to_us[0], (char *)&fresh + got, sizeof(fresh) - got);
    close(to_us[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(got, sizeof(fresh));
    second = seen_of(run_x);
    assert_true(second.counts.total_peak != fresh.counts.total_peak);
    second = seen_of(run_y);
    assert_int_equal(second.counts.total_peak, fresh.counts.total_peak);
    assert_true(second.loss[1] == fresh.loss[1]);
    assert_memory_equal(&second, &fresh, sizeof(fresh));
}

static char directory[] = "/tmp/memtape pitfalls XXXXXX";

static const char *path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", directory, name);
    return path;
}

// 50 steps with a log and validations hold what the second one held.
static void history(void **state)
{
    (void)state;
    struct run_log log;
    struct error e;
    char path[128];
    int64_t held[4] = {0}, counted;
    double loss;
    run_start((const char *[]){"layers", "2", "heads", "2", "width", "16", "context", "8", "batch",
                               "3", "micro-batch", "2", "checkpoint", "full", "eval-every", "1",
                               "threads", "1", NULL});
    assert_true(run_log_open(&log, directory, 0, &e));
    for (int step = 1; step <= 50; step++) {
        struct step_result r = one_step();
        const struct ledger *l = &run.tape.arena.ledger;
        int64_t now[4] = {l->counts.total_now, run.tape.node_count, l->row_count, l->event_count};
        assert_true(run_validate(&run, 1, &loss, &counted, &e));
        run_log_write(&log, step, &r, &loss, 1, 1);
        if (step == 2)
            memcpy(held, now, sizeof(held));
        if (step > 2)
            assert_memory_equal(now, held, sizeof(held));
    }
    assert_true(held[0] > 0 && held[1] > 0);
    assert_true(run_log_close(&log, &e));
    run_end();
    assert_int_equal(unlink(path_of("log.jsonl", path)), 0);
}

// ---- optimizer ----

// g = 0.5 in four micro-batches. Four counts would make the first update 0.00058113.
static void adams_step_count(void **state)
{
    (void)state;
    struct optimizer_config c = {
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    two_open(&c);
    for (int i = 0; i < 4; i++)
        two_backward((real)0.125, 1, 1);
    assert_true(two.param[0].tensor.grad[0] == (real)0.5);
    optimizer_update(&c, &two, &m.tape, 1, 1e-3, 0.5);
    assert_near(-two.param[0].tensor.data[0] * 1000, 0.99999998, 1e-7);
    tape_close(&m.tape);

    model_open(&plain, steps_of(4, 1, 4)); // and a step of four counts as one
    struct tensor *wte = &m.gpt.head->tensor;
    int64_t at = 0;
    struct step_result r = gradients();
    for (int64_t i = 0; i < tensor_count(wte); i++)
        at = fabs((double)wte->grad[i]) > fabs((double)wte->grad[at]) ? i : at;
    double before = (double)wte->data[at];
    step_update(&m.step, &m.tape, &r);
    assert_near(fabs((double)wte->data[at] - before) * 1000, 1, 1e-4);
    tape_close(&m.tape);
}

// ---- tape ----

static void second_backward(void **state)
{
    (void)state;
    model_open(&plain, steps_of(2, 2, 4));
    for (int walk = 0; walk < 2; walk++) { // the same tape twice is a CHECK: test_tape
        params_zero_grads(&m.gpt.params, &m.tape);
        tape_begin(&m.tape, PHASE_FORWARD, 0);
        tape_enter(&m.tape, "test");
        struct tensor *y = gpt_loss(&m.tape, &m.gpt, m.step.tokens, m.step.targets, NULL, 2, 4);
        tape_leave(&m.tape, NULL);
        tape_backward(&m.tape, y, 1);
        int count = copy(true, bits[walk]);
        if (walk > 0)
            same_bits(bits[1], bits[0], count);
    }
    tape_close(&m.tape);
}

// ---- tokens and files ----

static void id_beyond_the_vocabulary(void **state)
{
    (void)state;
    struct gpt_config g = {.layers = 1,
                           .heads = 1,
                           .width = 2,
                           .context = 4,
                           .vocab = 50257,
                           .tie = true,
                           .attention = GPT_ATTENTION_NAIVE};
    model_open(&g, steps_of(2, 2, 4));
    m.step.tokens[5] = m.step.targets[4] = 50256;
    assert_refused(&m.step.tokens[6], 50257,
                   "token 50257 at row 1, position 2: expected 0 to 50256");
    assert_refused(&m.step.tokens[1], 65535,
                   "token 65535 at row 0, position 1: expected 0 to 50256");
    assert_refused(&m.step.tokens[7], -1, "token -1 at row 1, position 3: expected 0 to 50256");
    assert_refused(&m.step.tokens[7], NO, "token -100 at row 1, position 3: expected 0 to 50256");
    assert_true(isfinite(gradients().loss));
    tape_close(&m.tape);
}

static void beyond_the_position_table(void **state)
{
    (void)state;
    enum { BLOCK = 16, MADE = 40 };
    struct error e;
    struct step_config c = steps_of(1, 1, BLOCK);
    assert_true(step_config_check(&c, &plain, &e));
    c.seq = BLOCK + 1;
    assert_false(step_config_check(&c, &plain, &e));
    assert_non_null(strstr(e.text, "seq 17: expected 1 to context 16"));

    model_open(&plain, steps_of(1, 1, BLOCK)); // what is generated goes through the window
    struct generate g;
    int32_t text[1 + MADE] = {1};
    generate_init(&g, &m.tape, &m.gpt, &(struct generate_config){.tokens = MADE, .temperature = 1},
                  1);
    generate_prompt(&g, &m.tape, text);
    for (int i = 1; i <= MADE; i++) {
        text[i] = generate_next(&g, &m.tape);
        int64_t half = BLOCK / 2; // the older one goes when there is no room
        assert_int_equal(g.length, i < BLOCK ? i + 1 : half + 1 + (i - BLOCK) % half);
    }
    assert_memory_equal(g.window, text + 1 + MADE - g.length, g.length * sizeof(int32_t));
    generate_close(&g, &m.tape);
    tape_close(&m.tape);
}

// A program that has a comma locale, and uses ours: options, reports and files have points.
static void locale(void **state)
{
    (void)state;
    if (!test_set_comma_locale())
        skip();
    char path[128], line[64] = "";
    snprintf(line, sizeof(line), "%.1f", 0.5);
    assert_string_equal(line, "0,5"); // it is in force
    struct error e;
    settings_clear(&settings);
    assert_true(options_set(&settings, ~0u, "lr", "0.001", &e));
    assert_true(settings.lr == 0.001);
    assert_false(options_set(&settings, ~0u, "lr", "0,001", &e));
    FILE *f = fopen(path_of("line", path), "w+");
    assert_non_null(f);
    struct json j = {.file = f, .in_line = true};
    json_object(&j, NULL);
    json_real(&j, "x", 0.125);
    json_end(&j);
    rewind(f);
    assert_non_null(fgets(line, sizeof(line), f));
    assert_string_equal(line, "{\"x\": 0.125}");
    fclose(f);
    assert_int_equal(unlink(path), 0);

    struct gpt_config g = plain;
    g.dropout = 0.125;
    model_open(&g, steps_of(1, 1, 4));
    struct snapshot_info info = {.model = g, .optimizer = "adamw", .tokenizer = "byte"}, back;
    path_of("snapshot", path);
    if (!snapshot_write(path, &info, &m.gpt.params, &e) || !snapshot_read_info(path, &back, &e))
        fail_msg("%s", e.text);
    assert_true(back.model.dropout == 0.125);
    tape_close(&m.tape);
    setlocale(LC_ALL, "C");
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", directory);
    return system(command);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "fresh") == 0) {
        struct seen s = seen_of(run_y);
        return fwrite(&s, sizeof(s), 1, stdout) != 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_of_means),
        cmocka_unit_test(label_the_shift_drops),
        cmocka_unit_test(incomplete_last_window),
        cmocka_unit_test(schedule_per_micro_batch),
        cmocka_unit_test(clipping_per_micro_batch),
        cmocka_unit_test(zeroing_in_the_wrong_place),
        cmocka_unit_test(empty_micro_batch),
        cmocka_unit_test(uninitialised_accumulator),
        cmocka_unit_test(bad_targets),
        cmocka_unit_test(fast_math),
        cmocka_unit_test(gradient_check_in_float),
        cmocka_unit_test(dropout_on_recompute),
        cmocka_unit_test(masks_differ),
        cmocka_unit_test(no_saving),
        cmocka_unit_test(lost_under_accumulation),
        cmocka_unit_test(second_run_in_one_process),
        cmocka_unit_test(history),
        cmocka_unit_test(adams_step_count),
        cmocka_unit_test(second_backward),
        cmocka_unit_test(id_beyond_the_vocabulary),
        cmocka_unit_test(beyond_the_position_table),
        cmocka_unit_test(locale),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
