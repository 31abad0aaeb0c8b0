#include "src/rules.h"

const int rules_part_bytes[RULES_PART_COUNT] = {
    [RULES_WEIGHTS] = 2,
    [RULES_GRADIENTS] = 2,
    [RULES_MASTER_WEIGHTS] = 4,
    [RULES_OPTIMIZER_STATE] = 8,
};

double rules_zero_bytes(double params, int stage, double shards)
{
    double weights = rules_part_bytes[RULES_WEIGHTS];
    double gradients = rules_part_bytes[RULES_GRADIENTS];
    double optimizer =
        rules_part_bytes[RULES_MASTER_WEIGHTS] + rules_part_bytes[RULES_OPTIMIZER_STATE];
    CHECK(stage >= 0 && stage < RULES_ZERO_STAGES && shards >= 1);
    if (stage >= 1)
        optimizer /= shards;
    if (stage >= 2)
        gradients /= shards;
    if (stage >= 3)
        weights /= shards;
    return (weights + gradients + optimizer) * params;
}

const char *rules_zero_formula(int stage)
{
    static const char *const formula[RULES_ZERO_STAGES] = {"16", "4 + 12/N", "2 + 14/N", "16/N"};
    CHECK(stage >= 0 && stage < RULES_ZERO_STAGES);
    return formula[stage];
}

double rules_layer_bytes(const struct rules_layer *l, enum rules_recompute r)
{
    double t = l->tensor_parallel > 1 ? l->tensor_parallel : 1;
    double sbh = l->sequence * l->batch * l->width;
    double linear = l->sequence_parallel ? 34 / t : 10 + 24 / t;
    double square = 5 * l->heads * l->sequence / l->width / t;
    switch (r) {
    case RULES_NONE: return sbh * (linear + square);
    case RULES_SELECTIVE: return sbh * linear;
    default: return 2 * sbh;
    }
}

const char *rules_layer_formula(enum rules_recompute r)
{
    static const char *const formula[RULES_RECOMPUTE_COUNT] = {
        [RULES_NONE] = "sbh (34 + 5as/h)",
        [RULES_SELECTIVE] = "34 sbh",
        [RULES_FULL] = "2 sbh",
    };
    return formula[r];
}

double rules_logits_bytes(const struct rules_layer *l, double vocab)
{
    return 4 * l->sequence * l->batch * vocab;
}

double rules_selective_saving(double five_as_over_h)
{
    return five_as_over_h / (34 + five_as_over_h);
}

double rules_selective_overhead(double sequence, double width, double vocab, double layers)
{
    double head = vocab / (12 * width * layers), scores = sequence / (6 * width);
    return (1 + 2 * scores + head) / (1 + scores + head) - 1;
}

double rules_params(double width, double layers, double vocab, double context)
{
    return width * (vocab + context) + layers * (12 * width * width + 13 * width) + 2 * width;
}

double rules_kv_bytes(double layers, double heads, double head_size, double number_bytes)
{
    return 2 * layers * heads * head_size * number_bytes;
}

double rules_lora_params(double layers, double matrices, double width, double rank)
{
    return layers * matrices * 2 * width * rank;
}

double rules_double_quantization_bits(void)
{
    return 32.0 / 64 - (8.0 / 64 + 32.0 / (64 * 256));
}
