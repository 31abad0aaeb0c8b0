// test_bf16_products.c - ops that sum (products, norms, attention, embeddings, losses) give the
// same within the rounding of what is stored, whatever of it is bf16: values and gradients; and no
// bit of that depends on the thread count.
#include "tape/array.h"
#include "tape/blas.h"
#include "tape/cpu/vec.h"
#include "tests/params.h"
#include "tests/test.h"

enum { IN_MAX = 3, SAMPLES = 2, BYTES = 1 << 28, COUNT_MAX = 1 << 21 };

static const int32_t ids[10] = {3, 0, 6, 3, 1, 2, 6, 6, 5, 0};
static const int32_t targets[10] = {4, -100, 0, 6, 6, 1, -100, 3, 2, 6};

typedef struct tensor *build_fn(struct tape *t, struct tensor *const in[]);

#define BUILD(name, expression)                                                                    \
    static struct tensor *name(struct tape *t, struct tensor *const in[])                          \
    {                                                                                              \
        return expression;                                                                         \
    }
BUILD(linear, op_linear(t, in[0], in[1], NULL))
BUILD(linear_bias, op_linear(t, in[0], in[1], in[2]))
BUILD(layernorm, op_layernorm(t, in[0], in[1], in[2]))
BUILD(norm_without_shift, op_layernorm(t, in[0], in[1], NULL))
BUILD(embedding, op_embedding(t, in[0], in[1], ids, NULL, SAMPLES, 5))
BUILD(embedding_late, op_embedding_at(t, in[0], in[1], ids, NULL, SAMPLES, 5, 1))
BUILD(attention, op_attention(t, in[0], 3, 0.25, 99))
BUILD(matmul_transposed, op_matmul(t, in[0], in[1], true, false))
BUILD(matmul_itself, op_matmul(t, in[0], in[0], true, false))
BUILD(matmul_views,
      op_matmul(t, op_split_heads(t, in[0], 3, 0), op_split_heads(t, in[0], 3, 1), true, false))
BUILD(cross_entropy, op_cross_entropy(t, in[0], targets))
BUILD(chunked, op_linear_cross_entropy(t, in[0], in[1], targets))

static const struct product_case {
    const char *name;
    build_fn *build;
    int in_count;
    int dim_count[IN_MAX];
    int64_t dim[IN_MAX][DIM_MAX];
} cases[] = {
    {"linear", linear, 2, {3, 2}, {{2, 5, 7}, {9, 7}}},
    {"linear, deep sums and a bias", linear_bias, 3, {3, 2, 1}, {{2, 130, 600}, {530, 600}, {530}}},
    {"linear, several panels", linear, 2, {3, 2}, {{2, 3, 1300}, {1500, 1300}}},
    {"layernorm", layernorm, 3, {3, 1, 1}, {{2, 40, 70}, {70}, {70}}},
    {"layernorm without shift", norm_without_shift, 2, {3, 1}, {{2, 300, 33}, {33}}},
    {"embedding", embedding, 2, {2, 2}, {{7, 1100}, {6, 1100}}},
    {"embedding, later", embedding_late, 2, {2, 2}, {{7, 40}, {6, 40}}},
    {"attention", attention, 1, {3}, {{2, 131, 36}}},
    {"matmul", matmul_transposed, 2, {4, 4}, {{2, 3, 9, 5}, {2, 3, 8, 5}}},
    {"matmul of a and a", matmul_itself, 1, {4}, {{2, 3, 9, 5}}},
    {"matmul of views", matmul_views, 1, {3}, {{2, 9, 36}}},
    {"cross_entropy", cross_entropy, 1, {3}, {{2, 5, 7}}},
    {"linear_cross_entropy", chunked, 2, {3, 2}, {{2, 5, 6}, {7, 6}}},
};

struct storage { // which tensors are bf16
    bool data, gradients, activations;
};

struct outcome {
    real y[COUNT_MAX], dx[IN_MAX][COUNT_MAX];
    int64_t y_count, count[IN_MAX];
};

static void make(struct tape *t, struct tensor *x, const struct product_case *c, int i,
                 const struct storage *s, bool rounded)
{
    tensor_place(x, &t->arena, "x", LEDGER_WEIGHTS, s->data ? DTYPE_BF16 : DTYPE_REAL,
                 c->dim_count[i], c->dim[i]);
    x->grad_dtype = s->gradients ? DTYPE_BF16 : DTYPE_REAL;
    tensor_add_grad(x, &t->arena);
    for (int64_t k = 0; k < tensor_count(x); k++) {
        real value = (real)params_value(PARAMS_NORMAL, (uint64_t)i, k) / 4;
        bf16 stored;
        vec_pack(&stored, &value, 1);
        if (rounded)
            vec_unpack(&value, &stored, 1); // both runs see what bf16 can hold
        array_write(array_of(x->data, x->dtype), k, 1, &value);
    }
}

static void read_all(real *to, struct array from, int64_t count)
{
    assert_true(count <= COUNT_MAX);
    for (int64_t k = 0; k < count; k++)
        to[k] = array_get(from, k);
}

static void run(struct outcome *o, const struct product_case *c, const struct storage *s,
                int threads)
{
    static struct tape tape;
    struct tensor x[IN_MAX], *in[IN_MAX];
    blas_set_threads(threads);
    params_open(&tape, BYTES, threads);
    tape.activation_dtype = s->activations ? DTYPE_BF16 : DTYPE_REAL;
    for (int i = 0; i < c->in_count; i++) {
        make(&tape, &x[i], c, i, s, true);
        in[i] = &x[i];
    }
    tape_begin(&tape, PHASE_FORWARD, 0);
    tape_enter(&tape, "test");
    bool twice = c->dim_count[0] == 3 && c->build != cross_entropy; // dx[0] is added to
    struct tensor *a = twice ? op_scale(&tape, in[0], 1) : in[0], *first = in[0];
    in[0] = a;
    struct tensor *y = c->build(&tape, in);
    struct tensor *loss = y->dim_count > 1 ? op_sum_squares(&tape, y) : y;
    if (twice) {
        struct tensor *other = op_sum_squares(&tape, a);
        loss = op_add(&tape, loss, other);
    }
    in[0] = first;
    o->y_count = tensor_count(y);
    if (y->data != NULL && tensor_is_contiguous(y))
        read_all(o->y, array_of(y->data, y->dtype), o->y_count);
    else
        o->y_count = 0;
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, (real)0.5);
    for (int i = 0; i < c->in_count; i++) {
        o->count[i] = tensor_count(&x[i]);
        read_all(o->dx[i], array_of(x[i].grad, x[i].grad_dtype), o->count[i]);
    }
    tape_close(&tape);
}

static void expect_close(const char *name, const char *what, const real *a, const real *b,
                         int64_t count, double tolerance)
{
    double error = 0, norm = 0;
    for (int64_t k = 0; k < count; k++) {
        error += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
        norm += (double)b[k] * (double)b[k];
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        fail_msg("%s: %s is off by %g of its norm", name, what, sqrt(error / norm));
}

static void within_the_rounding_of_what_is_stored(void **state)
{
    (void)state;
    static struct outcome exact, stored, threaded;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const struct product_case *c = &cases[i];
        run(&exact, c, &(struct storage){0}, 2);
        for (int mix = 1; mix < 8; mix++) {
            struct storage s = {mix & 1, mix & 2, mix & 4};
            run(&stored, c, &s, 1);
            expect_close(c->name, "y", stored.y, exact.y, exact.y_count, 0.003);
            for (int k = 0; k < c->in_count; k++)
                expect_close(c->name, "a gradient", stored.dx[k], exact.dx[k], exact.count[k],
                             0.01);
            run(&threaded, c, &s, 3);
            assert_memory_equal(stored.y, threaded.y, (size_t)stored.y_count * sizeof(real));
            for (int k = 0; k < c->in_count; k++)
                assert_memory_equal(stored.dx[k], threaded.dx[k],
                                    (size_t)stored.count[k] * sizeof(real));
        }
    }
}

// A sum over the rows of a micro-batch is kept in real: 512 ones are 512, not the 256 at which
// adding 1 stops changing a bf16.
static void a_gradient_is_rounded_once(void **state)
{
    (void)state;
    struct tape tape;
    struct tensor x, w;
    params_open(&tape, 1 << 20, 1);
    tensor_place(&x, &tape.arena, "x", LEDGER_WEIGHTS, DTYPE_BF16, 3, (int64_t[]){1, 512, 1});
    tensor_place(&w, &tape.arena, "w", LEDGER_WEIGHTS, DTYPE_BF16, 2, (int64_t[]){1, 1});
    w.grad_dtype = DTYPE_BF16;
    tensor_add_grad(&w, &tape.arena);
    real one = 1;
    for (int64_t i = 0; i < 512; i++)
        array_write(array_of(x.data, x.dtype), i, 1, &one);
    array_write(array_of(w.data, w.dtype), 0, 1, &one);
    for (int micro_batch = 1; micro_batch <= 2; micro_batch++) {
        tape_begin(&tape, PHASE_FORWARD, 0);
        tape_enter(&tape, "test");
        struct tensor *y = op_linear(&tape, &x, &w, NULL);
        tape_leave(&tape, NULL);
        tape_backward(&tape, y, 1);
        assert_near(array_get(array_of(w.grad, w.grad_dtype), 0), 512 * micro_batch, 0);
    }
    tape_close(&tape);
}

// 512 micro-batches of 1 are not 512: each one's sum is rounded into the gradient.
static void many_small_micro_batches_stall(void **state)
{
    (void)state;
    bf16 stored[2] = {0};
    for (int i = 0; i < 512; i++) {
        real room, *sum = array_open(array_of(stored, DTYPE_BF16), 0, 1, true, &room);
        *sum += 1;
        array_close(array_of(stored, DTYPE_BF16), 0, 1, sum);
    }
    assert_near(array_get(array_of(stored, DTYPE_BF16), 0), 256, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_rounding_of_what_is_stored),
        cmocka_unit_test(a_gradient_is_rounded_once),
        cmocka_unit_test(many_small_micro_batches_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
