// test_rules.c - the textbook formulas give the figures that their sources print.
#include "src/rules.h"
#include "tests/test.h"

static const double gib = 0x1p30, gb = 1e9;

// Within `tolerance` of what the source prints, as a number.
#define assert_printed(a, b, tolerance) printed((a), (b), (tolerance), __FILE__, __LINE__)

static void printed(double a, double b, double tolerance, const char *file, int line)
{
    if (fabs(a - b) <= tolerance)
        return;
    print_error("%s:%d: %.17g, printed as %.17g\n", file, line, a, b);
    _fail(file, line);
}

// Rajbhandari et al. 2020, arXiv 1910.02054, table 1: GB of 1e9 bytes. The columns of 128e9 and
// 1e12 parameters are cut, not rounded.
static void zero_table_1(void **state)
{
    (void)state;
    static const struct {
        double params;
        int stage;
        double shards, gb, tolerance;
    } row[] = {
        {7.5e+09, 1, 1, 120, 0.06},     {7.5e+09, 2, 1, 120, 0.06},
        {7.5e+09, 3, 1, 120, 0.06},     {7.5e+09, 1, 4, 52.5, 0.06},
        {7.5e+09, 2, 4, 41.3, 0.06},    {7.5e+09, 3, 4, 30, 0.06},
        {7.5e+09, 1, 64, 31.4, 0.06},   {7.5e+09, 2, 64, 16.6, 0.06},
        {7.5e+09, 3, 64, 1.88, 0.06},   {7.5e+09, 1, 1024, 30.1, 0.06},
        {7.5e+09, 2, 1024, 15.1, 0.06}, {7.5e+09, 3, 1024, 0.12, 0.06},
        {1.28e+11, 1, 1, 2048, 0.9},    {1.28e+11, 2, 1, 2048, 0.9},
        {1.28e+11, 3, 1, 2048, 0.9},    {1.28e+11, 1, 4, 896, 0.9},
        {1.28e+11, 2, 4, 704, 0.9},     {1.28e+11, 3, 4, 512, 0.9},
        {1.28e+11, 1, 64, 536, 0.9},    {1.28e+11, 2, 64, 284, 0.9},
        {1.28e+11, 3, 64, 32, 0.9},     {1.28e+11, 1, 1024, 513, 0.9},
        {1.28e+11, 2, 1024, 257, 0.9},  {1.28e+11, 3, 1024, 2, 0.9},
        {1e+12, 1, 1, 16000, 0.9},      {1e+12, 2, 1, 16000, 0.9},
        {1e+12, 3, 1, 16000, 0.9},      {1e+12, 1, 4, 7000, 0.9},
        {1e+12, 2, 4, 5500, 0.9},       {1e+12, 3, 4, 4000, 0.9},
        {1e+12, 1, 64, 4187, 0.9},      {1e+12, 2, 64, 2218, 0.9},
        {1e+12, 3, 64, 250, 0.9},       {1e+12, 1, 1024, 4011, 0.9},
        {1e+12, 2, 1024, 2013, 0.9},    {1e+12, 3, 1024, 15.6, 0.9},
    };
    for (int i = 0; i < COUNT_OF(row); i++) {
        double bytes = rules_zero_bytes(row[i].params, row[i].stage, row[i].shards);
        assert_printed(bytes / gb, row[i].gb, row[i].tolerance);
        assert_true(bytes <= rules_zero_bytes(row[i].params, 0, row[i].shards));
    }
    // Figure 1: 7.5e9 parameters on 64 devices.
    static const double figure[RULES_ZERO_STAGES] = {120, 31.4, 16.6, 1.9};
    for (int stage = 0; stage < RULES_ZERO_STAGES; stage++)
        assert_printed(rules_zero_bytes(7.5e9, stage, 64) / gb, figure[stage], 0.05);
}

static void states_are_sixteen_bytes(void **state)
{
    (void)state;
    int sum = 0;
    for (int i = 0; i < RULES_PART_COUNT; i++)
        sum += rules_part_bytes[i];
    assert_int_equal(sum, RULES_MIXED_BYTES);
    assert_printed(rules_zero_bytes(1e9, 0, 1) / gb, 16, 0);
    assert_printed(RULES_MIXED_BYTES * 350e6 / gb, 5.6, 1e-9);
    assert_printed(RULES_INFERENCE_BYTES * 350e6 / gb, 0.7, 1e-9);
    // QLoRA, arXiv 2305.14314: 65e9 parameters in 16 bits take more than 780 GB.
    assert_printed(RULES_ADAM_16_BYTES * 65e9 / gb, 780, 0);
}

// Ultra-Scale Playbook (nanotron), the data of its plots "memory-recomputation" and
// "memusage_activations": GiB, one sample, all layers, and a byte for each element of the
// embedding's dropout mask.
static void playbook_activations(void **state)
{
    (void)state;
    static const struct {
        double width, layers, heads, sequence;
        enum rules_recompute recompute;
        double gib;
    } row[] = {
        {2048, 16, 32, 1024, RULES_NONE, 3.564453125},
        {2048, 16, 32, 4096, RULES_NONE, 44.2578125},
        {2048, 16, 32, 2048, RULES_SELECTIVE, 2.12890625},
        {2048, 16, 32, 8192, RULES_SELECTIVE, 8.515625},
        {2048, 16, 32, 1024, RULES_FULL, 0.064453125},
        {2048, 16, 32, 4096, RULES_FULL, 0.2578125},
        {3072, 28, 24, 1024, RULES_NONE, 6.0732421875},
        {3072, 28, 24, 2048, RULES_NONE, 18.708984375},
        {3072, 28, 24, 4096, RULES_NONE, 63.66796875},
        {3072, 28, 24, 8192, RULES_NONE, 232.3359375},
        {3072, 28, 24, 1024, RULES_SELECTIVE, 2.7919921875},
        {3072, 28, 24, 4096, RULES_SELECTIVE, 11.16796875},
        {3072, 28, 24, 1024, RULES_FULL, 0.1669921875},
        {3072, 28, 24, 2048, RULES_FULL, 0.333984375},
        {3072, 28, 24, 4096, RULES_FULL, 0.66796875},
        {3072, 28, 24, 8192, RULES_FULL, 1.3359375},
        {4096, 32, 32, 2048, RULES_NONE, 28.5078125},
        {4096, 32, 32, 8192, RULES_NONE, 354.03125},
        {4096, 32, 32, 1024, RULES_SELECTIVE, 4.25390625},
        {4096, 32, 32, 2048, RULES_SELECTIVE, 8.5078125},
        {4096, 32, 32, 4096, RULES_SELECTIVE, 17.015625},
        {4096, 32, 32, 8192, RULES_SELECTIVE, 34.03125},
        {4096, 32, 32, 2048, RULES_FULL, 0.5078125},
        {4096, 32, 32, 8192, RULES_FULL, 2.03125},
        {8192, 80, 64, 1024, RULES_NONE, 46.2578125},
        {8192, 80, 64, 4096, RULES_NONE, 485.03125},
        {8192, 80, 64, 2048, RULES_SELECTIVE, 42.515625},
        {8192, 80, 64, 8192, RULES_SELECTIVE, 170.0625},
        {8192, 80, 64, 1024, RULES_FULL, 1.2578125},
        {8192, 80, 64, 4096, RULES_FULL, 5.03125},
        {16384, 126, 128, 1024, RULES_NONE, 145.703125},
        {16384, 126, 128, 2048, RULES_NONE, 448.90625},
        {16384, 126, 128, 4096, RULES_NONE, 1527.8125},
        {16384, 126, 128, 8192, RULES_NONE, 5575.625},
        {16384, 126, 128, 1024, RULES_SELECTIVE, 66.953125},
        {16384, 126, 128, 4096, RULES_SELECTIVE, 267.8125},
        {16384, 126, 128, 1024, RULES_FULL, 3.953125},
        {16384, 126, 128, 2048, RULES_FULL, 7.90625},
        {16384, 126, 128, 4096, RULES_FULL, 15.8125},
        {16384, 126, 128, 8192, RULES_FULL, 31.625},
    };
    for (int i = 0; i < COUNT_OF(row); i++) {
        struct rules_layer l = {
            .sequence = row[i].sequence, .batch = 1, .width = row[i].width, .heads = row[i].heads};
        double bytes = row[i].layers * rules_layer_bytes(&l, row[i].recompute);
        assert_printed((bytes + l.sequence * l.width) / gib, row[i].gib, 1e-9);
    }
}

// The same source: weights in 32 bits, context 1024; and its plots of tensor parallelism, where
// attention's squares are recomputed (70B: width 8192, 80 layers).
static void playbook_models(void **state)
{
    (void)state;
    static const struct {
        double width, layers, gib;
    } model[] = {{2048, 16, 3.9879302978515625},
                 {4096, 32, 25.979034423828125},
                 {8192, 80, 243.97711181640625}};
    for (int i = 0; i < COUNT_OF(model); i++)
        assert_printed(4 * rules_params(model[i].width, model[i].layers, 128256, 1024) / gib,
                       model[i].gib, 1e-6);
    static const struct {
        double sequence, tensor_parallel;
        bool sequence_parallel;
        double gib;
    } split[] = {{1024, 8, false, 8.125},    {4096, 8, false, 32.5},   {16384, 8, false, 130},
                 {1024, 16, true, 1.328125}, {4096, 16, true, 5.3125}, {16384, 16, true, 21.25}};
    for (int i = 0; i < COUNT_OF(split); i++) {
        struct rules_layer l = {.sequence = split[i].sequence,
                                .batch = 1,
                                .width = 8192,
                                .heads = 64,
                                .tensor_parallel = split[i].tensor_parallel,
                                .sequence_parallel = split[i].sequence_parallel};
        assert_printed(80 * rules_layer_bytes(&l, RULES_SELECTIVE) / gib, split[i].gib, 1e-9);
    }
}

// Korthikanti et al. 2022, arXiv 2205.05198, section 5: what selective recomputation saves, and
// costs. 2048 tokens, vocabulary 51200; GPT-3 175B and MT-NLG 530B of their table 3.
static void korthikanti_selective(void **state)
{
    (void)state;
    static const struct {
        double heads, width, layers, five_as_over_h, saved_percent, overhead_percent;
    } row[] = {{96, 12288, 96, 80, 70, 2.7}, {128, 20480, 105, 64, 65, 1.6}};
    for (int i = 0; i < COUNT_OF(row); i++) {
        struct rules_layer l = {
            .sequence = 2048, .batch = 1, .width = row[i].width, .heads = row[i].heads};
        double none = rules_layer_bytes(&l, RULES_NONE);
        double saving = rules_selective_saving(row[i].five_as_over_h);
        assert_printed(5 * l.heads * l.sequence / l.width, row[i].five_as_over_h, 0);
        assert_printed(100 * saving, row[i].saved_percent, 0.6);
        assert_printed(1 - rules_layer_bytes(&l, RULES_SELECTIVE) / none, saving, 1e-12);
        assert_printed(100 * rules_selective_overhead(l.sequence, l.width, 51200, row[i].layers),
                       row[i].overhead_percent, 0.6);
    }
    // Table 5: seconds of an iteration with full recomputation, and with selective and sequence
    // parallelism; how much more is done in the same time.
    static const struct {
        double full, present, percent;
    } time[] = {{1.42, 1.10, 29.0}, {18.13, 13.75, 31.8}, {49.05, 37.83, 29.7}};
    for (int i = 0; i < COUNT_OF(time); i++)
        assert_printed(100 * (time[i].full / time[i].present - 1), time[i].percent, 0.15);
}

static void kv_cache(void **state)
{
    (void)state;
    // OPT-13B: Kwon et al. 2023, arXiv 2309.06180, section 3: 800 KB a token, 1.6 GB for 2048.
    assert_printed(rules_kv_bytes(40, 40, 128, 2), 819200, 0);
    assert_printed(2048 * rules_kv_bytes(40, 40, 128, 2), 1677721600, 0);
    // Llama 3.1 8B, 8 heads of keys and values: ml-engineering (S. Bekman), inference: 17.2 GB.
    assert_printed(131072 * rules_kv_bytes(32, 8, 128, 2) / gb, 17.2, 0.05);
    // Llama 2 7B: torchedup.dev.
    assert_printed(rules_kv_bytes(32, 32, 128, 2), 524288, 0);
}

static void low_rank_and_quantized(void **state)
{
    (void)state;
    // LoRA on two matrices of each of GPT-3's layers: 37.7M at rank 8; 35 MB in 16 bits at rank 4.
    assert_printed(rules_lora_params(96, 2, 12288, 8), 37748736, 0);
    assert_printed(2 * rules_lora_params(96, 2, 12288, 4), 37748736, 0);
    // Llama 13B, rank 8: "trainable params: 6,553,600" (meta-llama/llama-cookbook, issue 16).
    assert_printed(rules_lora_params(40, 2, 5120, 8), 6553600, 0);
    // QLoRA: 0.373 bits a parameter, 3 GB for 65e9.
    assert_printed(rules_double_quantization_bits(), 0.373, 0.0005);
    assert_printed(rules_double_quantization_bits() / 8 * 65e9 / gb, 3.0, 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_table_1),          cmocka_unit_test(states_are_sixteen_bytes),
        cmocka_unit_test(playbook_activations),  cmocka_unit_test(playbook_models),
        cmocka_unit_test(korthikanti_selective), cmocka_unit_test(kv_cache),
        cmocka_unit_test(low_rank_and_quantized)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
