// ops_int.h - what the files of tape/ops share: descriptors, and how a loop is cut into tiles.
//
// Tiles depend on shapes alone, never cross a sample, and sums over samples run in sample order.
// That is why no bit depends on the thread count or on the split into micro-batches.
#ifndef TAPE_OPS_OPS_INT_H
#define TAPE_OPS_OPS_INT_H

#include "tape/array.h"
#include "tape/cpu/vec.h"
#include "tape/ops/ops.h"

#ifdef _OPENMP
#include <omp.h>
#endif

extern const struct op op_add_desc, op_sub_desc, op_mul_desc, op_scale_desc, op_gelu_desc;
extern const struct op op_relu_desc, op_tanh_desc, op_sqrt_desc, op_log_desc, op_dropout_desc;
extern const struct op op_linear_desc, op_lora_desc, op_layernorm_desc, op_embedding_desc;
extern const struct op op_split_heads_desc, op_merge_heads_desc, op_matmul_desc;
extern const struct op op_causal_softmax_desc, op_attention_desc, op_rows_desc;
extern const struct op op_linear_cross_entropy_desc, op_cached_attention_desc;
extern const struct op op_cross_entropy_desc, op_sum_squares_desc;

enum {
    PARALLEL_MIN = 1 << 13, // elements below which a loop is not worth a team of threads
    COLUMN_TILE = 32,       // columns of a sum over rows: two cache lines, never shared
};

struct tile {
    int64_t from, count;
};

static inline int64_t tile_count(int64_t total, int64_t size)
{
    return (total + size - 1) / size;
}

static inline struct tile tile_at(int64_t index, int64_t total, int64_t size)
{
    int64_t from = index * size;
    return (struct tile){from, total - from < size ? total - from : size};
}

// The numbers of dy and of dx[i], as they are stored.
static inline struct array op_dy(const struct node *n)
{
    return array_of(n->dy, n->out->grad_dtype);
}

static inline struct array op_dx(const struct node *n, int i)
{
    return array_of(n->dx[i], n->in[i]->grad_dtype);
}

// For a backward that only ever adds to dx[i]: clears it if it holds rubbish.
static inline void op_start_sum(struct node *n, int i)
{
    if (n->dx[i] != NULL && !n->adds[i])
        memset(n->dx[i], 0, (size_t)tensor_grad_bytes(n->in[i]));
}

// A part of a room that may not be there: all is real, and nobody reads it.
static inline real *op_part(real *room, int64_t from)
{
    return room != NULL ? room + from : NULL;
}

static inline int op_thread(void) // which part of scratch is mine
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

#endif
