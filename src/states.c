#include "src/states.h"

#include "src/rules.h"
#include "tape/text.h"

#include <math.h>
#include <string.h>

static const char source[] = "Rajbhandari et al. 2020, arXiv 1910.02054";

bool states_parse(const char *text, int64_t *params, struct error *e)
{
    static const struct {
        char letter;
        double factor;
    } unit[] = {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
    char number[64] = "";
    size_t length = strlen(text);
    double value = 0, factor = 1;
    for (int i = 0; length > 0 && i < COUNT_OF(unit); i++)
        if (text[length - 1] == unit[i].letter)
            factor = unit[i].factor;
    length -= factor > 1;
    if (length < sizeof(number))
        memcpy(number, text, length); // the rest is zeros
    value = text_to_double(number, &value) ? round(value * factor) : 0;
    if (!(value >= 1 && value <= 1e15))
        return refuse(e,
                      "--params %.200s: expected 1 to 1e15 parameters, as 124439808, 350M, 1B "
                      "or 7.5e9",
                      text);
    *params = (int64_t)value;
    return true;
}

// ---- for people ------------------------------------------------------------------------

static const struct {
    const char *name, *words;
    char mark;
} slice[RULES_PART_COUNT] = {
    [RULES_WEIGHTS] = {"weights", "weights, 16-bit", 'w'},
    [RULES_GRADIENTS] = {"gradients", "gradients, 16-bit", 'g'},
    [RULES_MASTER_WEIGHTS] = {"master_weights", "master weights, 32-bit", 'W'},
    [RULES_OPTIMIZER_STATE] = {"m_and_v", "Adam's m and v, 32-bit", 'A'},
};

// "16.0 GB"; what would round to nothing in a smaller unit.
static const char *gb(double bytes, char out[TEXT_NUMBER_BYTES])
{
    if (bytes < 5e7)
        return text_from_bytes((int64_t)bytes, out);
    snprintf(out, TEXT_NUMBER_BYTES, "%.1f GB", bytes / 1e9);
    return out;
}

static void bar(FILE *f)
{
    enum { COLUMNS_PER_BYTE = 4 };
    fprintf(f, "  |");
    for (int i = 0; i < RULES_PART_COUNT; i++) {
        for (int k = 0; k < rules_part_bytes[i] * COLUMNS_PER_BYTE - 1; k++)
            fputc(slice[i].mark, f);
        fputc('|', f);
    }
    fputc('\n', f);
}

static void zero_lines(FILE *f, int64_t params, int64_t shards)
{
    static const char *const shares[RULES_ZERO_STAGES] = {"nothing", "master weights, m and v",
                                                          "and gradients", "and weights"};
    char text[TEXT_NUMBER_BYTES];
    fprintf(f, "Of each of N = %lld devices, by the formula of the ZeRO paper (%s):\n",
            (long long)shards, source);
    for (int stage = 0; stage < RULES_ZERO_STAGES; stage++)
        fprintf(f, "  ZeRO %d %10s   %-9s bytes per parameter; shared: %s\n", stage,
                gb(rules_zero_bytes((double)params, stage, (double)shards), text),
                rules_zero_formula(stage), shares[stage]);
}

void states_table(FILE *f, int64_t params, int64_t shards)
{
    char text[TEXT_NUMBER_BYTES];
    double p = (double)params;
    fprintf(f,
            "%lld parameters. By the rule of thumb, not a dry run: states only, no activations "
            "(--model gives all).\nGB are 1e9 bytes.\n\n"
            "Training, mixed-precision Adam: %s, 2 + 2 + 4 + 8 = %d bytes per parameter (%s)\n",
            (long long)params, gb(RULES_MIXED_BYTES * p, text), RULES_MIXED_BYTES, source);
    bar(f);
    for (int i = 0; i < RULES_PART_COUNT; i++)
        fprintf(f, "  %c %-24s %2d %10s %5.1f%%\n", slice[i].mark, slice[i].words,
                rules_part_bytes[i], gb(rules_part_bytes[i] * p, text),
                100.0 * rules_part_bytes[i] / RULES_MIXED_BYTES);
    fprintf(f, "Training, 32-bit Adam:           %s, 4 + 4 + 8 = %d bytes per parameter\n",
            gb(RULES_FP32_BYTES * p, text), RULES_FP32_BYTES);
    fprintf(f, "Inference, bf16 weights:         %s, %d bytes per parameter\n",
            gb(RULES_INFERENCE_BYTES * p, text), RULES_INFERENCE_BYTES);
    if (shards > 0) {
        fputc('\n', f);
        zero_lines(f, params, shards);
    }
}

// ---- for programs ----------------------------------------------------------------------

void states_json(struct json *j, int64_t params, int64_t shards)
{
    json_object(j, "states");
    json_int(j, "params", params);
    json_text(j, "from", "rule of thumb, not a dry run");
    json_text(j, "source", source);
    json_object(j, "mixed_adam_bytes");
    for (int i = 0; i < RULES_PART_COUNT; i++)
        json_int(j, slice[i].name, rules_part_bytes[i] * params);
    json_int(j, "total", RULES_MIXED_BYTES * params);
    json_end(j);
    json_int(j, "fp32_adam_bytes", RULES_FP32_BYTES * params);
    json_int(j, "bf16_inference_bytes", RULES_INFERENCE_BYTES * params);
    if (shards > 0) {
        json_int(j, "shards", shards);
        json_array(j, "zero");
        for (int stage = 0; stage < RULES_ZERO_STAGES; stage++) {
            json_object(j, NULL);
            json_int(j, "stage", stage);
            json_text(j, "formula", rules_zero_formula(stage));
            json_real(j, "bytes", rules_zero_bytes((double)params, stage, (double)shards));
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
}
