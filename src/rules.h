// rules.h - what textbooks say that training takes: closed formulas, each with its source.
//
// Only `plan --explain` and `plan --params` print them, beside or instead of exact numbers, and
// always labelled. No plan is computed from one. Bytes are doubles: many are fractions, or exceed
// what 64-bit integers hold.
#ifndef SRC_RULES_H
#define SRC_RULES_H

#include "tape/base.h"

// ---- states: Rajbhandari et al. 2020 (ZeRO), section 3.1 ----

// Bytes per parameter, mixed-precision Adam: 16-bit weights and gradients, and in 32 bits a master
// copy, m and v. 16 in all.
enum rules_part {
    RULES_WEIGHTS,
    RULES_GRADIENTS,
    RULES_MASTER_WEIGHTS,
    RULES_OPTIMIZER_STATE,
    RULES_PART_COUNT,
};

extern const int rules_part_bytes[RULES_PART_COUNT]; // 2, 2, 4, 8

enum {
    RULES_MIXED_BYTES = 16,
    RULES_FP32_BYTES = 16,     // 4 weights, 4 gradients, 8 m and v
    RULES_INFERENCE_BYTES = 2, // 16-bit weights alone
    RULES_ADAM_16_BYTES = 12,  // 2 weights, 2 gradients, 8 m and v, no master copy
};

// Of one device when `shards` devices share: stage 0 nothing: 16, 1 the optimizer's 12 (master
// weights, m, v): 4 + 12/N, 2 gradients too: 2 + 14/N, 3 weights too: 16/N. Times `params`.
enum { RULES_ZERO_STAGES = 4 };
double rules_zero_bytes(double params, int stage, double shards);
const char *rules_zero_formula(int stage); // "4 + 12/N"

// ---- activations: Korthikanti et al. 2022, arXiv 2205.05198, table 2 ----

struct rules_layer { // s, b, h, a of the paper; 16-bit, dropout masks of one byte
    double sequence, batch, width, heads;
    double tensor_parallel; // t; 0 or 1: none
    bool sequence_parallel;
};

enum rules_recompute { RULES_NONE, RULES_SELECTIVE, RULES_FULL, RULES_RECOMPUTE_COUNT };

// Kept for backward by one layer. None: sbh (34 + 5as/h); selective: 34 sbh; full: 2 sbh. With t:
// sbh (10 + 24/t + 5as/ht), sbh (10 + 24/t); with sequence parallelism all terms over t.
double rules_layer_bytes(const struct rules_layer *l, enum rules_recompute r);
const char *rules_layer_formula(enum rules_recompute r);

// 4 sbv: 32-bit logits.
double rules_logits_bytes(const struct rules_layer *l, double vocab);

// What selective recomputation saves of the activations, and adds to a model's FLOPs; fractions.
// 5as/h / (34 + 5as/h); (1 + s/3h + v/12hL) / (1 + s/6h + v/12hL) - 1.
double rules_selective_saving(double five_as_over_h);
double rules_selective_overhead(double sequence, double width, double vocab, double layers);

// ---- models ----

// h (v + s) + L (12 h^2 + 13 h) + 2 h: GPT-2 with a tied head (Ultra-Scale Playbook).
double rules_params(double width, double layers, double vocab, double context);

// Of one token: 2 x layers x heads x head size x bytes of a number. The heads are those of keys and
// values (Kwon et al. 2023, arXiv 2309.06180, section 3).
double rules_kv_bytes(double layers, double heads, double head_size, double number_bytes);

// Trainable: layers x matrices x 2 d r for square ones (Hu et al. 2021, arXiv 2106.09685).
double rules_lora_params(double layers, double matrices, double width, double rank);

// Bits per parameter that quantizing the 32-bit constants of blocks of 64 saves: 32/64 - (8/64 +
// 32/(64 x 256)) (Dettmers et al. 2023, arXiv 2305.14314).
double rules_double_quantization_bits(void);

#endif
