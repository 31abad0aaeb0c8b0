// ops.h - every op a model may call. To add one: write tape/ops/op_<name>.c, then add its lines
// here and one line in registry.c. The gradient test fails until it has a case (or is forward
// only).
//
// Shapes: B samples, T positions, C width, H heads, D = C / H, V vocabulary. "(B,..,C)" is any
// tensor whose first dimension counts samples. Wrong shapes are a CHECK: configurations are
// checked where they enter, in nn/.
#ifndef TAPE_OPS_OPS_H
#define TAPE_OPS_OPS_H

#include "tape/tape.h"

enum { TARGET_IGNORED = -100 }; // a target that counts for nothing, as in PyTorch

struct tensor *op_add(struct tape *t, struct tensor *stream, struct tensor *branch); // same shape
struct tensor *op_sub(struct tape *t, struct tensor *a, struct tensor *b);
struct tensor *op_mul(struct tape *t, struct tensor *a, struct tensor *b); // element by element
struct tensor *op_scale(struct tape *t, struct tensor *x, double factor);
struct tensor *op_gelu(struct tape *t, struct tensor *x);
struct tensor *op_relu(struct tape *t, struct tensor *x);
struct tensor *op_tanh(struct tape *t, struct tensor *x);
struct tensor *op_sqrt(struct tape *t, struct tensor *x);
struct tensor *op_log(struct tape *t, struct tensor *x);

// Zeroes each element with probability rate and divides the rest by 1 - rate. key: see op_args.
struct tensor *op_dropout(struct tape *t, struct tensor *x, double rate, uint64_t key);

// (B,..,I), (O,I), (O) or NULL -> (B,..,O)
struct tensor *op_linear(struct tape *t, struct tensor *x, struct tensor *w, struct tensor *b);
// (B,..,C), (B,..,K), (O,K) -> (B,..,C): base, with factor h b^T added to columns first .. first +
// O - 1. Takes base over.
struct tensor *op_lora(struct tape *t, struct tensor *base, struct tensor *h, struct tensor *b,
                       int64_t first, double factor);

// (B,..,C), (C), (C) or NULL -> (B,..,C)
struct tensor *op_layernorm(struct tape *t, struct tensor *x, struct tensor *scale,
                            struct tensor *shift);

// ids (samples * length), (V,C), (>= length, C) or NULL -> (B,T,C). slots: the row of token's
// gradient that each position adds to, NULL if that is its id.
struct tensor *op_embedding(struct tape *t, struct tensor *token, struct tensor *position,
                            const int32_t *ids, const int32_t *slots, int64_t samples,
                            int64_t length);
// The same with positions first, first + 1, ...
struct tensor *op_embedding_at(struct tape *t, struct tensor *token, struct tensor *position,
                               const int32_t *ids, const int32_t *slots, int64_t samples,
                               int64_t length, int64_t first);

// (B,T,3C) -> a view (B,H,T,D) of the queries (part 0), keys (1) or values (2)
struct tensor *op_split_heads(struct tape *t, struct tensor *qkv, int64_t heads, int64_t part);
// (B,H,T,D) stored with heads inside -> a view (B,T,C)
struct tensor *op_merge_heads(struct tape *t, struct tensor *x);
// (B,H,M,K), (B,H,K,N) or transposed (B,H,N,K) -> (B,H,M,N)
struct tensor *op_matmul(struct tape *t, struct tensor *a, struct tensor *b, bool transposed,
                         bool heads_inside);
// (B,H,T,T) -> each row over the columns up to the diagonal, 0 beyond
struct tensor *op_causal_softmax(struct tape *t, struct tensor *x);
// (B,T,3C) -> (B,T,C), softmax(q k^T / sqrt(D), causal) v; no T x T matrix exists. Dropout of the
// probabilities with rate and key; 0: none.
struct tensor *op_attention(struct tape *t, struct tensor *qkv, int64_t heads, double rate,
                            uint64_t key);
// (1,T,3C) -> (1,T,C), the same for positions first .. first + T - 1 of a text: reads keys and
// values of earlier ones in two caches, (>= first + T, C) each, and writes its own there. Forward
// only.
struct tensor *op_cached_attention(struct tape *t, struct tensor *qkv, struct tensor *keys,
                                   struct tensor *values, int64_t heads, int64_t first);

// (B,T,C) -> (B,count,C): rows first .. first + count - 1 of each sample
struct tensor *op_rows(struct tape *t, struct tensor *x, int64_t first, int64_t count);

// (B,..,V) -> (B): for each sample the sum over its rows of logsumexp(row) - row[target].
struct tensor *op_cross_entropy(struct tape *t, struct tensor *logits, const int32_t *targets);
// The same of logits x w^T, (B,..,C) and (V,C), which never exist whole.
struct tensor *op_linear_cross_entropy(struct tape *t, struct tensor *x, struct tensor *w,
                                       const int32_t *targets);
// (B,..) -> (B): for each sample the sum of its elements squared
struct tensor *op_sum_squares(struct tape *t, struct tensor *x);

extern const struct op *const op_registry[];
extern const int op_registry_count;

// A call remembers who asked: the node's file and line.
#define OPS_HERE(t) tape_at((t), __FILE__, __LINE__)
#define op_add(t, ...) (op_add)(OPS_HERE(t), __VA_ARGS__)
#define op_sub(t, ...) (op_sub)(OPS_HERE(t), __VA_ARGS__)
#define op_mul(t, ...) (op_mul)(OPS_HERE(t), __VA_ARGS__)
#define op_scale(t, ...) (op_scale)(OPS_HERE(t), __VA_ARGS__)
#define op_gelu(t, ...) (op_gelu)(OPS_HERE(t), __VA_ARGS__)
#define op_relu(t, ...) (op_relu)(OPS_HERE(t), __VA_ARGS__)
#define op_tanh(t, ...) (op_tanh)(OPS_HERE(t), __VA_ARGS__)
#define op_sqrt(t, ...) (op_sqrt)(OPS_HERE(t), __VA_ARGS__)
#define op_log(t, ...) (op_log)(OPS_HERE(t), __VA_ARGS__)
#define op_dropout(t, ...) (op_dropout)(OPS_HERE(t), __VA_ARGS__)
#define op_linear(t, ...) (op_linear)(OPS_HERE(t), __VA_ARGS__)
#define op_lora(t, ...) (op_lora)(OPS_HERE(t), __VA_ARGS__)
#define op_layernorm(t, ...) (op_layernorm)(OPS_HERE(t), __VA_ARGS__)
#define op_embedding(t, ...) (op_embedding)(OPS_HERE(t), __VA_ARGS__)
#define op_embedding_at(t, ...) (op_embedding_at)(OPS_HERE(t), __VA_ARGS__)
#define op_split_heads(t, ...) (op_split_heads)(OPS_HERE(t), __VA_ARGS__)
#define op_merge_heads(t, ...) (op_merge_heads)(OPS_HERE(t), __VA_ARGS__)
#define op_matmul(t, ...) (op_matmul)(OPS_HERE(t), __VA_ARGS__)
#define op_causal_softmax(t, ...) (op_causal_softmax)(OPS_HERE(t), __VA_ARGS__)
#define op_attention(t, ...) (op_attention)(OPS_HERE(t), __VA_ARGS__)
#define op_cached_attention(t, ...) (op_cached_attention)(OPS_HERE(t), __VA_ARGS__)
#define op_rows(t, ...) (op_rows)(OPS_HERE(t), __VA_ARGS__)
#define op_cross_entropy(t, ...) (op_cross_entropy)(OPS_HERE(t), __VA_ARGS__)
#define op_linear_cross_entropy(t, ...) (op_linear_cross_entropy)(OPS_HERE(t), __VA_ARGS__)
#define op_sum_squares(t, ...) (op_sum_squares)(OPS_HERE(t), __VA_ARGS__)

#endif
