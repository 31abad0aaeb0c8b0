#include "tape/ops/ops_int.h"

const struct op *const op_registry[] = {
    &op_embedding_desc,
    &op_linear_desc,
    &op_lora_desc,
    &op_layernorm_desc,
    &op_gelu_desc,
    &op_relu_desc,
    &op_tanh_desc,
    &op_sqrt_desc,
    &op_log_desc,
    &op_add_desc,
    &op_sub_desc,
    &op_mul_desc,
    &op_scale_desc,
    &op_dropout_desc,
    &op_split_heads_desc,
    &op_merge_heads_desc,
    &op_matmul_desc,
    &op_causal_softmax_desc,
    &op_attention_desc,
    &op_cached_attention_desc,
    &op_rows_desc,
    &op_cross_entropy_desc,
    &op_linear_cross_entropy_desc,
    &op_sum_squares_desc,
};
const int op_registry_count = COUNT_OF(op_registry);
