// test_trap_run.c - a healthy training springs no trap and is the same training, bit for bit, for
// every checkpoint policy, both attentions, with dropout and uneven micro-batches.
#include "nn/step.h"
#include "tape/ops/ops.h"
#include "tape/trap.h"
#include "tests/test.h"

static struct tape tape;

enum { STEPS = 3, RUN_BYTES = 1 << 23 };

struct training {
    struct gpt_config model;
    struct step_config step;
};

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t weights; // a hash
};

static void fill_batch(struct step *s, int step)
{
    const struct step_config *c = &s->config;
    for (int64_t i = 0; i < c->batch * c->seq; i++) {
        s->tokens[i] = (int32_t)((i * 7 + i / 5 + step) % s->gpt->config.vocab);
        s->targets[i] = i % 6 == 1 ? TARGET_IGNORED : (int32_t)((i * 3 + 1) % 11);
    }
}

static struct outcome train(const struct training *g, bool is_trapped)
{
    static struct gpt gpt;
    static struct step step;
    struct outcome out = {.weights = 1469598103934665603u};
    struct error e;
    struct plan plan = tape_plan_small(RUN_BYTES);
    struct trap trap = {0};
    struct tape *t = &tape;
    if (!tape_open(t, &plan, false, 2, &e))
        fail_msg("%s", e.text);
    t->trap = is_trapped ? &trap : NULL;
    gpt_init(&gpt, t, &g->model);
    params_start(&gpt.params, t, 1);
    step_init(&step, t, &gpt, &g->step, true);
    for (int i = 0; i < STEPS; i++) {
        struct step_result r;
        fill_batch(&step, i);
        if (!step_gradients(&step, t, &r, &e))
            fail_msg("%s", e.text);
        step_update(&step, t, &r);
        out.loss[i] = r.loss;
        out.norm[i] = r.gradient_norm;
    }
    for (int i = 0; i < gpt.params.count; i++) {
        const struct tensor *x = &gpt.params.param[i].tensor;
        const unsigned char *at = (const unsigned char *)x->data;
        for (int64_t k = 0; k < tensor_bytes(x); k++)
            out.weights = (out.weights ^ at[k]) * 1099511628211u;
    }
    if (trap.is_sprung)
        print_error("%s\n", trap.text);
    assert_false(trap.is_sprung);
    tape_close(t);
    return out;
}

static void same_with_and_without(const struct training *g)
{
    struct outcome plain = train(g, false), trapped = train(g, true);
    assert_memory_equal(plain.loss, trapped.loss, sizeof(plain.loss));
    assert_memory_equal(plain.norm, trapped.norm, sizeof(plain.norm));
    assert_true(plain.weights == trapped.weights);
    assert_true(plain.loss[0] > 1 && plain.loss[2] != plain.loss[0]);
}

static struct training healthy(void)
{
    return (struct training){
        .model = {.layers = 2,
                  .heads = 2,
                  .width = 16,
                  .context = 12,
                  .vocab = 19,
                  .bias = true,
                  .tie = true,
                  .dropout = 0.1},
        .step = {.batch = 5,
                 .micro_batch = 2, // 2 + 2 + 1
                 .seq = 12,
                 .seed = 3,
                 .optimizer = {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                 .schedule = {.rate = 1e-2}}};
}

static void a_healthy_run_is_the_same_run(void **state)
{
    (void)state;
    for (int policy = 0; policy < POLICY_COUNT; policy++)
        for (int k = 0; k < 4; k++) {
            struct training g = healthy();
            g.model.checkpoint = (enum tape_policy)policy;
            g.model.attention = k % 2 == 0 ? GPT_ATTENTION_TILED : GPT_ATTENTION_NAIVE;
            g.model.half_segments = k / 2 != 0;
            same_with_and_without(&g);
        }
    struct training g = healthy();
    g.model.vocab = 100; // more than there are positions: a compact gradient
    same_with_and_without(&g);
    g.model.tie = g.model.bias = false;
    g.step.micro_batch = 5;
    same_with_and_without(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_run_is_the_same_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
