// test_ops_grad.c - the backward of every registered op is its forward's derivative, for every
// input, however its gradient buffers come about; and a fault of 1 % in any of them is found.
//
// The loss is the sum of w y with random weights w, made by an op of this file. Inputs arrive in
// three ways: parameters themselves; activations (gradients in place, outputs taking over); and
// activations that other ops read before and after (gradients that add to what is there).
#include "tape/gradcheck.h"
#include "tape/ops/ops_int.h"
#include "tests/params.h"
#include "tests/test.h"

enum { IN_MAX = 3, SAMPLES = 2, ELEMENTS_MAX = 1 << 14, ARENA_BYTES = 1 << 25 };
enum { COMPARE_MAX = sizeof(real) == 8 ? 160 : 24, COMPARE_FAULT_MAX = 24 };

// ---- the loss: y = sum of w x, over any strides ----

static int64_t place_of(const struct tensor *x, int64_t i) // of element i in row-major order
{
    int64_t at = 0;
    for (int d = x->dim_count - 1; d >= 0; d--) {
        at += i % x->dim[d] * x->stride[d];
        i /= x->dim[d];
    }
    return at;
}

static void dot_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_shape(n->out, 1, (int64_t[]){1});
}

static double weight(const struct node *n, int64_t i)
{
    return 2 * rng_uniform(n->args.key, (uint64_t)i) - 1;
}

static void dot_forward(struct tape *t, struct node *n)
{
    (void)t;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(n->in[0]); i++)
        sum += weight(n, i) * (double)n->in[0]->data[place_of(n->in[0], i)];
    n->out->data[0] = (real)sum;
}

static void dot_backward(struct tape *t, struct node *n)
{
    (void)t;
    for (int64_t i = 0; i < tensor_count(n->in[0]); i++) {
        real *dx = &n->dx[0][place_of(n->in[0], i)];
        *dx = (n->adds[0] ? *dx : 0) + n->dy[0] * (real)weight(n, i);
    }
}

static const struct op dot_desc = {.name = "dot",
                                   .reads_views = true,
                                   .infer = dot_infer,
                                   .forward = {dot_forward},
                                   .backward = {dot_backward}};

// Claims to read x in backward, so that nobody may take x over.
static const struct op holding_dot_desc = {.name = "holding_dot",
                                           .needs = {NEEDS_IN0},
                                           .reads_views = true,
                                           .infer = dot_infer,
                                           .forward = {dot_forward},
                                           .backward = {dot_backward}};

static struct tensor *dot(struct tape *t, const struct op *op, struct tensor *x, uint64_t key)
{
    struct op_args args = {.key = key};
    return tape_apply(t, op, 1, (struct tensor *[]){x}, &args);
}

// ---- the cases ----

typedef struct tensor *build_fn(struct tape *t, struct tensor *const in[]);

struct grad_case {
    const char *name;
    const struct op *op;
    build_fn *build;
    int in_count;
    int dim_count[IN_MAX];
    int64_t dim[IN_MAX][DIM_MAX];
    enum params_fill fill;
};

enum { T_LONG = 131 }; // three tiles of attention, the last one of three rows

static const int32_t ids[10] = {3, 0, 6, 3, 1, 2, 6, 6, 5, 0};
static const int32_t targets[10] = {4, -100, 0, 6, 6, 1, -100, 3, 2, 6};

#define BUILD(name, expression)                                                                    \
    static struct tensor *name(struct tape *t, struct tensor *const in[])                          \
    {                                                                                              \
        return expression;                                                                         \
    }
BUILD(add, op_add(t, in[0], in[1]))
BUILD(sub, op_sub(t, in[0], in[1]))
BUILD(mul, op_mul(t, in[0], in[1]))
BUILD(add_itself, op_add(t, in[0], in[0]))
BUILD(mul_itself, op_mul(t, in[0], in[0]))
BUILD(scale, op_scale(t, in[0], -1.7))
BUILD(gelu, op_gelu(t, in[0]))
BUILD(relu, op_relu(t, in[0]))
BUILD(tanh_of, op_tanh(t, in[0]))
BUILD(sqrt_of, op_sqrt(t, in[0]))
BUILD(log_of, op_log(t, in[0]))
BUILD(dropout, op_dropout(t, in[0], 0.3, 77))
BUILD(linear, op_linear(t, in[0], in[1], NULL))
BUILD(linear_bias, op_linear(t, in[0], in[1], in[2]))
BUILD(lora, op_lora(t, in[0], in[1], in[2], 0, 0.75))
BUILD(lora_slice, op_lora(t, in[0], in[1], in[2], 3, 2))
BUILD(layernorm, op_layernorm(t, in[0], in[1], NULL))
BUILD(layernorm_shift, op_layernorm(t, in[0], in[1], in[2]))
BUILD(embedding, op_embedding(t, in[0], NULL, ids, NULL, SAMPLES, 5))
BUILD(embedding_position, op_embedding(t, in[0], in[1], ids, NULL, SAMPLES, 5))
BUILD(embedding_late, op_embedding_at(t, in[0], in[1], ids, NULL, SAMPLES, 5, 1))
BUILD(queries, op_split_heads(t, in[0], 3, 0))
BUILD(keys, op_split_heads(t, in[0], 3, 1))
BUILD(values, op_split_heads(t, in[0], 3, 2))
BUILD(matmul, op_matmul(t, in[0], in[1], false, false))
BUILD(matmul_transposed, op_matmul(t, in[0], in[1], true, false))
BUILD(matmul_inside, op_matmul(t, in[0], in[1], false, true))
BUILD(matmul_views,
      op_matmul(t, op_split_heads(t, in[0], 3, 0), op_split_heads(t, in[0], 3, 1), true, false))
BUILD(matmul_value_view, op_matmul(t, in[0], op_split_heads(t, in[1], 3, 2), false, true))
BUILD(merge_heads, op_merge_heads(t, op_matmul(t, in[0], in[1], false, true)))
BUILD(causal_softmax, op_causal_softmax(t, in[0]))
BUILD(attention, op_attention(t, in[0], 3, 0, 0))
BUILD(attention_dropout, op_attention(t, in[0], 2, 0.25, 99))
BUILD(rows, op_rows(t, in[0], 2, 3))
BUILD(last_row, op_rows(t, in[0], 6, 1))
BUILD(cross_entropy, op_cross_entropy(t, in[0], targets))
BUILD(linear_cross_entropy, op_linear_cross_entropy(t, in[0], in[1], targets))
BUILD(sum_squares, op_sum_squares(t, in[0]))

static const struct grad_case cases[] = {
    {"add", &op_add_desc, add, 2, {3, 3}, {{2, 5, 7}, {2, 5, 7}}, 0},
    {"add, one column", &op_add_desc, add, 2, {1, 1}, {{17}, {17}}, 0},
    {"add, x + x", &op_add_desc, add_itself, 1, {3}, {{2, 5, 7}}, 0},
    {"sub", &op_sub_desc, sub, 2, {3, 3}, {{2, 5, 7}, {2, 5, 7}}, 0},
    {"mul", &op_mul_desc, mul, 2, {3, 3}, {{2, 5, 7}, {2, 5, 7}}, 0},
    {"mul, x x", &op_mul_desc, mul_itself, 1, {2}, {{3, 37}}, 0},
    {"scale", &op_scale_desc, scale, 1, {3}, {{2, 5, 7}}, 0},
    {"gelu", &op_gelu_desc, gelu, 1, {3}, {{2, 5, 7}}, 0},
    {"gelu, odd", &op_gelu_desc, gelu, 1, {2}, {{3, 61}}, 0},
    {"relu", &op_relu_desc, relu, 1, {3}, {{2, 5, 7}}, PARAMS_NOT_ZERO},
    {"tanh", &op_tanh_desc, tanh_of, 1, {3}, {{2, 5, 7}}, 0},
    {"sqrt", &op_sqrt_desc, sqrt_of, 1, {3}, {{2, 5, 7}}, PARAMS_POSITIVE},
    {"log", &op_log_desc, log_of, 1, {3}, {{2, 5, 7}}, PARAMS_POSITIVE},
    {"dropout", &op_dropout_desc, dropout, 1, {3}, {{2, 5, 7}}, 0},
    {"dropout, 4 dims", &op_dropout_desc, dropout, 1, {4}, {{2, 3, 5, 5}}, 0},
    {"linear", &op_linear_desc, linear, 2, {3, 2}, {{2, 5, 7}, {3, 7}}, 0},
    {"linear, bias", &op_linear_desc, linear_bias, 3, {3, 2, 1}, {{3, 5, 33}, {19, 33}, {19}}, 0},
    {"linear, tiles", &op_linear_desc, linear_bias, 3, {3, 2, 1}, {{2, 131, 3}, {67, 3}, {67}}, 0},
    {"linear, slices", &op_linear_desc, linear_bias, 3, {3, 2, 1}, {{2, 3, 5}, {133, 5}, {133}}, 0},
    {"linear, wide", &op_linear_desc, linear_bias, 3, {2, 2, 1}, {{3, 133}, {2, 133}, {2}}, 0},
    {"lora", &op_lora_desc, lora, 3, {3, 3, 2}, {{2, 5, 7}, {2, 5, 3}, {7, 3}}, 0},
    {"lora, slice", &op_lora_desc, lora_slice, 3, {3, 3, 2}, {{2, 5, 9}, {2, 5, 2}, {4, 2}}, 0},
    {"lora, tiles", &op_lora_desc, lora_slice, 3, {3, 3, 2}, {{2, 131, 5}, {2, 131, 1}, {2, 1}}, 0},
    {"lora, slices", &op_lora_desc, lora, 3, {3, 3, 2}, {{2, 3, 133}, {2, 3, 2}, {133, 2}}, 0},
    {"layernorm", &op_layernorm_desc, layernorm, 2, {3, 1}, {{2, 5, 7}, {7}}, 0},
    {"layernorm, shift",
     &op_layernorm_desc,
     layernorm_shift,
     3,
     {3, 1, 1},
     {{3, 4, 45}, {45}, {45}},
     0},
    {"embedding", &op_embedding_desc, embedding, 1, {2}, {{7, 37}}, 0},
    {"embedding, position", &op_embedding_desc, embedding_position, 2, {2, 2}, {{7, 5}, {6, 5}}, 0},
    {"embedding, later", &op_embedding_desc, embedding_late, 2, {2, 2}, {{7, 5}, {6, 5}}, 0},
    {"split_heads, q", &op_split_heads_desc, queries, 1, {3}, {{2, 5, 27}}, 0},
    {"split_heads, k", &op_split_heads_desc, keys, 1, {3}, {{2, 5, 27}}, 0},
    {"split_heads, v", &op_split_heads_desc, values, 1, {3}, {{2, 5, 27}}, 0},
    {"merge_heads", &op_merge_heads_desc, merge_heads, 2, {4, 4}, {{2, 3, 5, 4}, {2, 3, 4, 7}}, 0},
    {"matmul", &op_matmul_desc, matmul, 2, {4, 4}, {{2, 3, 5, 4}, {2, 3, 4, 7}}, 0},
    {"matmul, transposed",
     &op_matmul_desc,
     matmul_transposed,
     2,
     {4, 4},
     {{2, 3, 5, 4}, {2, 3, 7, 4}},
     0},
    {"matmul, inside", &op_matmul_desc, matmul_inside, 2, {4, 4}, {{2, 3, 5, 4}, {2, 3, 4, 7}}, 0},
    {"matmul, q k", &op_matmul_desc, matmul_views, 1, {3}, {{2, 5, 27}}, 0},
    {"matmul, p v", &op_matmul_desc, matmul_value_view, 2, {4, 3}, {{2, 3, 5, 5}, {2, 5, 27}}, 0},
    {"causal_softmax", &op_causal_softmax_desc, causal_softmax, 1, {4}, {{2, 2, 9, 9}}, 0},
    {"attention", &op_attention_desc, attention, 1, {3}, {{2, 7, 27}}, 0},
    {"attention, long", &op_attention_desc, attention, 1, {3}, {{1, T_LONG, 9}}, 0},
    {"attention, dropout", &op_attention_desc, attention_dropout, 1, {3}, {{2, 70, 18}}, 0},
    {"rows", &op_rows_desc, rows, 1, {3}, {{2, 7, 5}}, 0},
    {"rows, last", &op_rows_desc, last_row, 1, {3}, {{2, 7, 5}}, 0},
    {"cross_entropy", &op_cross_entropy_desc, cross_entropy, 1, {3}, {{2, 5, 7}}, 0},
    {"linear_cross_entropy",
     &op_linear_cross_entropy_desc,
     linear_cross_entropy,
     2,
     {3, 2},
     {{2, 5, 6}, {7, 6}},
     0},
    {"cross_entropy, wide", &op_cross_entropy_desc, cross_entropy, 1, {3}, {{2, 5, 71}}, 0},
    {"sum_squares", &op_sum_squares_desc, sum_squares, 1, {3}, {{2, 5, 7}}, 0},
    {"sum_squares, odd", &op_sum_squares_desc, sum_squares, 1, {2}, {{3, 67}}, 0},
};

// ---- one case, in one of three ways, with or without a planted fault ----

enum way { WAY_PARAMETERS, WAY_ACTIVATIONS, WAY_READ_AGAIN, WAY_COUNT };

struct check {
    const struct grad_case *c;
    enum way way;
    struct tensor *param;
    int fault; // the input whose gradient is 1 % too large, or -1
};

// The fault in force. The real backward is called; then what it wrote into dx[input] grows by 1 %.
static struct {
    struct op op; // a copy of the descriptor with another backward
    const struct op *real_op;
    int input;
    real before[ELEMENTS_MAX];
} planted;

static void faulty_backward(struct tape *t, struct node *n)
{
    const struct tensor *x = n->in[planted.input];
    real *dx = n->dx[planted.input];
    int64_t count = tensor_count(x);
    assert_true(count <= ELEMENTS_MAX);
    bool adds = n->adds[planted.input];
    for (int64_t i = 0; dx != NULL && i < count; i++)
        planted.before[i] = adds ? dx[place_of(x, i)] : 0;
    if (planted.real_op->grad != GRAD_PASSES)
        planted.real_op->backward[DEVICE_CPU](t, n);
    for (int k = 0; planted.real_op->grad == GRAD_PASSES && k < n->in_count; k++)
        for (int64_t i = 0; n->dx[k] != NULL && i < tensor_count(n->out); i++)
            n->dx[k][i] = (n->adds[k] ? n->dx[k][i] : 0) + n->dy[i];
    for (int64_t i = 0; dx != NULL && i < count; i++) {
        real *at = &dx[place_of(x, i)];
        *at = planted.before[i] + (real)1.01 * (*at - planted.before[i]);
    }
}

static void plant(struct node *n, int input)
{
    planted.real_op = n->op;
    planted.input = input;
    planted.op = *n->op;
    planted.op.backward[DEVICE_CPU] = faulty_backward;
    if (n->op->grad == GRAD_PASSES)
        planted.op.grad = GRAD_WRITES;
    n->op = &planted.op;
}

// A view has no backward: what is wrong by 1 % is then the gradient that its reader writes.
static void plant_fault(struct tape *t, const struct check *k, int first, int end)
{
    for (int i = first; i < end; i++) {
        struct node *n = &t->node[i];
        if (n->op != k->c->op)
            continue;
        if (n->op->grad != GRAD_IS_VIEW) {
            plant(n, k->fault);
            return;
        }
        for (int j = i + 1; j < t->node_count; j++)
            if (t->node[j].in[0] == n->out) {
                plant(&t->node[j], 0);
                return;
            }
    }
    fail_msg("there is no node to plant the fault in");
}

static struct tensor *loss_of(struct tape *t, void *user)
{
    const struct check *k = user;
    struct tensor *in[IN_MAX] = {NULL}, *sum = NULL;
    for (int i = 0; i < k->c->in_count; i++) {
        in[i] = &k->param[i];
        if (k->way == WAY_PARAMETERS)
            continue;
        in[i] = op_scale(t, in[i], 1.25);
        if (k->way == WAY_READ_AGAIN) {
            struct tensor *part = dot(t, &holding_dot_desc, in[i], 200 + (uint64_t)i);
            sum = sum == NULL ? part : op_add(t, sum, part);
        }
    }
    int first = t->node_count;
    struct tensor *y = k->c->build(t, in);
    int end = t->node_count;
    y = dot(t, &dot_desc, y, 100);
    for (int i = 0; k->way == WAY_READ_AGAIN && i < k->c->in_count; i++)
        y = op_add(t, y, dot(t, &dot_desc, in[i], 300 + (uint64_t)i));
    if (k->fault >= 0)
        plant_fault(t, k, first, end);
    return sum != NULL ? op_add(t, sum, y) : y;
}

static void open_case(struct tape *t, const struct grad_case *c, struct tensor *param)
{
    params_open(t, ARENA_BYTES, 2);
    for (int i = 0; i < c->in_count; i++) {
        params_make(t, &param[i], "in", true, 0, c->dim_count[i], c->dim[i]);
        params_fill(t, &param[i], c->fill, 10 + (uint64_t)i);
    }
}

static void report(const struct grad_case *c, enum way way, int input, const struct gradcheck *g)
{
    print_error("%s, way %d, input %d: ||analytic|| %g, ||error|| %g; worst at %lld: %.12g, "
                "numeric %.12g\n",
                c->name, (int)way, input, g->analytic_norm, g->error_norm, (long long)g->worst,
                g->worst_analytic, g->worst_numeric);
}

static void check_case(const struct grad_case *c, enum way way)
{
    struct tape t;
    struct tensor param[IN_MAX];
    open_case(&t, c, param);
    struct check k = {.c = c, .way = way, .param = param, .fault = -1};
    int64_t live = params_live_bytes(&t);
    gradcheck_run(&t, loss_of, &k);
    bool ok = true;
    for (int i = 0; i < c->in_count; i++) {
        struct gradcheck g = gradcheck_compare(&t, loss_of, &k, &param[i], COMPARE_MAX);
        if (gradcheck_passes(&g, GRADCHECK_TOLERANCE) && g.analytic_norm > 0)
            continue;
        report(c, way, i, &g);
        ok = false;
    }
    assert_int_equal(params_live_bytes(&t), live);
    assert_int_equal(t.loan_count, 0);
    tape_close(&t);
    assert_true(ok);
}

static void gradients(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++)
        for (int way = 0; way < WAY_COUNT; way++)
            check_case(&cases[i], (enum way)way);
}

static void check_fault(const struct grad_case *c, enum way way, int input)
{
    struct tape t;
    struct tensor param[IN_MAX];
    open_case(&t, c, param);
    struct check k = {.c = c, .way = way, .param = param, .fault = input};
    gradcheck_run(&t, loss_of, &k);
    k.fault = -1; // the slopes to compare with are those of the forward, which is right
    bool found = false;
    for (int i = 0; i < c->in_count; i++) {
        struct gradcheck g = gradcheck_compare(&t, loss_of, &k, &param[i], COMPARE_FAULT_MAX);
        found |= !gradcheck_passes(&g, GRADCHECK_TOLERANCE / (sizeof(real) == 8 ? 1 : 2));
    }
    tape_close(&t);
    if (!found)
        fail_msg("%s, way %d, input %d: a fault of 1 %% goes unnoticed", c->name, (int)way, input);
}

static void a_fault_of_one_percent_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        bool is_inner = cases[i].build == matmul_views || cases[i].op->grad == GRAD_IS_VIEW;
        int faults = is_inner ? 1 : cases[i].in_count;
        for (int way = 0; way < (sizeof(real) == 8 ? WAY_COUNT : 1); way++)
            for (int input = 0; input < faults; input++)
                check_fault(&cases[i], (enum way)way, input);
    }
}

static void every_registered_op_has_a_case(void **state)
{
    (void)state;
    assert_true(op_registry_count > 0);
    for (int i = 0; i < op_registry_count; i++) {
        int found = op_registry[i]->forward_only; // which the tape refuses to differentiate
        for (int j = 0; j < COUNT_OF(cases); j++)
            found += cases[j].op == op_registry[i];
        if (found == 0)
            fail_msg("no gradient case for op %s", op_registry[i]->name);
    }
}

// ---- what the table can't say ----

static struct tensor *slotted(struct tape *t, void *user)
{
    struct tensor *param = user;
    static const int32_t slots[10] = {2, 0, 1, 2, 3, 4, 1, 1, 5, 0};
    return op_embedding(t, &param[0], NULL, ids, slots, SAMPLES, 5);
}

static struct tensor *slotless(struct tape *t, void *user)
{
    struct tensor *param = user;
    return op_embedding(t, &param[0], NULL, ids, NULL, SAMPLES, 5);
}

// The gradient of the row of an id is in the row of its slot, bit for bit.
static void slots_choose_the_row(void **state)
{
    (void)state;
    static const int32_t slot_of_id[7] = {0, 3, 4, 2, -1, 5, 1};
    struct tape t;
    struct tensor param[1];
    real by_id[7 * 5];
    params_open(&t, ARENA_BYTES, 2);
    params_make(&t, &param[0], "token", true, 3, 2, (int64_t[]){7, 5});
    gradcheck_run(&t, slotless, param);
    memcpy(by_id, param[0].grad, sizeof(by_id));
    tensor_zero_grad(&t.arena, &param[0]);
    gradcheck_run(&t, slotted, param);
    for (int id = 0; id < 7; id++)
        for (int j = 0; slot_of_id[id] >= 0 && j < 5; j++)
            assert_true(by_id[id * 5 + j] == param[0].grad[slot_of_id[id] * 5 + j]);
    assert_true(by_id[3 * 5] != 0);
    tape_close(&t);
}

static struct tensor *unseen_row(struct tape *t, void *user)
{
    struct tensor *param = user; // row 4 of the table is never read
    return op_gelu(t, op_embedding(t, &param[0], NULL, ids, NULL, SAMPLES, 5));
}

// What does not reach the loss has a gradient of exactly 0.
static void no_influence_is_exactly_zero(void **state)
{
    (void)state;
    struct tape t;
    struct tensor param[2];
    params_open(&t, ARENA_BYTES, 2);
    params_make(&t, &param[0], "token", true, 3, 2, (int64_t[]){7, 5});
    params_make(&t, &param[1], "unused", true, 4, 2, (int64_t[]){7, 5});
    gradcheck_run(&t, unseen_row, param);
    for (int j = 0; j < 5; j++)
        assert_true(param[0].grad[4 * 5 + j] == 0);
    struct gradcheck g = gradcheck_compare(&t, unseen_row, param, &param[1], 10);
    assert_true(g.analytic_norm == 0 && g.numeric_norm == 0);
    assert_true(gradcheck_passes(&g, GRADCHECK_TOLERANCE));
    param[1].grad[0] = (real)1e-3; // and a gradient where there is no influence does not pass
    g = gradcheck_compare(&t, unseen_row, param, &param[1], 10);
    assert_false(gradcheck_passes(&g, GRADCHECK_TOLERANCE));
    param[1].grad[0] = (real)NAN;
    g = gradcheck_compare(&t, unseen_row, param, &param[1], 10);
    assert_false(gradcheck_passes(&g, GRADCHECK_TOLERANCE));
    tape_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_registered_op_has_a_case),  cmocka_unit_test(gradients),
        cmocka_unit_test(a_fault_of_one_percent_is_found), cmocka_unit_test(slots_choose_the_row),
        cmocka_unit_test(no_influence_is_exactly_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
