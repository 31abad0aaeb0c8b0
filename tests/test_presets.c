// test_presets.c - for every preset, policy, kind of attention and segment, with and without
// dropout: nothing is stranded at the peak, the peak is the most that was ever live, and the
// gradients of activations never hold more than one block's, however many blocks there are.
#include "src/run.h"
#include "tests/test.h"

static struct settings settings;
static struct config config;
static struct run r;

static const struct ledger_counts *plan(const char *model, enum tape_policy policy, bool half,
                                        enum gpt_attention attention, double dropout,
                                        int64_t layers)
{
    struct error e;
    settings_clear(&settings);
    settings.model = model;
    settings.batch = 4;
    settings.micro_batch = 2;
    settings.sample = 0;
    if (layers > 0)
        settings.layers = layers;
    if (!config_build(&config, &settings, CONFIG_PLAN, &e))
        fail_msg("%s: %s", model, e.text);
    config.model.checkpoint = policy;
    config.model.half_segments = half;
    config.model.attention = attention;
    config.model.dropout = dropout;
    assert_true(run_measure(&r, &config, CONFIG_PLAN, &e));
    return &r.tape.arena.ledger.counts;
}

static void done(void)
{
    run_close(&r);
    config_close(&config);
}

static const enum tape_policy policies[] = {POLICY_NONE, POLICY_LEAN, POLICY_SELECTIVE,
                                            POLICY_FULL};

static void nothing_is_stranded_at_the_peak(void **state)
{
    (void)state;
    for (int m = 0; m < gpt_preset_count; m++)
        for (int k = 0; k < COUNT_OF(policies) * 8; k++) {
            const char *name = gpt_presets[m].name;
            const struct ledger_counts *c =
                plan(name, policies[k / 8], k & 1,
                     k & 2 ? GPT_ATTENTION_NAIVE : GPT_ATTENTION_TILED, k & 4 ? 0.1 : 0, 0);
            if (c->at_peak[LEDGER_STRANDED] != 0 || c->live_peak != c->total_peak)
                fail_msg("%s, choice %d: %lld stranded at a peak of %lld, live at most %lld", name,
                         k, (long long)c->at_peak[LEDGER_STRANDED], (long long)c->total_peak,
                         (long long)c->live_peak);
            done();
        }
}

// The stream's gradient and, at most, what one block makes beside it: 4 C before and after GELU
// with its gradient in place, or q, k, v, T x T scores. The head's gradient is the logits' buffer.
static void gradients_are_of_one_block(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT_OF(policies) * 8; k++) {
        enum gpt_attention attention = k & 2 ? GPT_ATTENTION_NAIVE : GPT_ATTENTION_TILED;
        int64_t peak[2];
        for (int deep = 0; deep < 2; deep++) {
            const struct ledger_counts *c =
                plan("baby", policies[k / 8], k & 1, attention, k & 4 ? 0.1 : 0, deep ? 9 : 2);
            peak[deep] = c->peak[LEDGER_ACTIVATION_GRADIENTS];
            done();
        }
        assert_int_equal(peak[0], peak[1]);
        const struct gpt_config *m = &config.model;
        int64_t token = 2 * config.step.seq * (int64_t)sizeof(real); // one number per token
        int64_t widths = 6 * m->width > m->width + m->vocab ? 6 * m->width : m->width + m->vocab;
        int64_t scores = attention == GPT_ATTENTION_NAIVE ? m->heads * config.step.seq : 0;
        assert_true(peak[0] <= token * (widths + scores));
    }
}

// docs/memory.md: 4 layers, 4 heads, width 128, context 64, vocabulary 65, untied.
static void saved_is_what_backward_reads(void **state)
{
    (void)state;
    int64_t per_sequence = 0;
    for (int64_t batch = 8; batch <= 64; batch *= 2) {
        struct error e;
        settings_clear(&settings);
        settings.vocab = 65;
        settings.tie = 0;
        settings.batch = batch;
        settings.sample = 0;
        assert_true(config_build(&config, &settings, CONFIG_PLAN, &e));
        assert_true(run_measure(&r, &config, CONFIG_PLAN, &e));
        int64_t kept = r.tape.arena.ledger.counts.kept_bytes;
        assert_int_equal(kept % batch, 0);
        if (per_sequence == 0)
            per_sequence = kept / batch;
        assert_int_equal(kept, per_sequence * batch);
        if (batch == 64 && sizeof(real) == 4)
            assert_int_equal(kept, 140034048); // what PyTorch keeps in floats, once per storage
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_stranded_at_the_peak),
                                       cmocka_unit_test(gradients_are_of_one_block),
                                       cmocka_unit_test(saved_is_what_backward_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
