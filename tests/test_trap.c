// test_trap.c - a trap names the op that made the first NaN or infinity, forward, in a replay or in
// backward, and what it made it from.
#include "tape/blas.h"
#include "tape/cpu/scan.h"
#include "tape/trap.h"
#include "tests/params.h"
#include "tests/test.h"

static struct tape tape;
static struct trap trap;
static struct tensor a, b;
static int springs;

static void count_spring(struct trap *p, void *user)
{
    assert_ptr_equal(p, &trap);
    assert_ptr_equal(user, &springs);
    springs++;
}

static struct tape *open_trapped(void)
{
    params_open(&tape, 1 << 22, 2);
    springs = 0;
    trap = (struct trap){.on_found = count_spring, .user = &springs};
    tape.trap = &trap;
    return &tape;
}

// A parameter of one dimension with these elements.
static struct tensor *vector(struct tape *t, struct tensor *x, const char *name, int64_t count,
                             const double *value)
{
    params_make(t, x, name, true, 1, 1, &count);
    for (int64_t i = 0; i < count; i++)
        x->data[i] = (real)value[i];
    return x;
}

#define VECTOR(t, x, ...)                                                                          \
    vector((t), &(x), #x, COUNT_OF(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static void record(struct tape *t)
{
    tape_begin(t, PHASE_FORWARD, 0);
    tape_enter(t, "net");
}

static const struct trap_finding *finding(const char *op, enum trap_part part, int64_t index)
{
    const struct trap_finding *f = &trap.first;
    if (!trap.is_sprung)
        fail_msg("nothing was found, expected %s", op);
    assert_string_equal(f->op != NULL ? f->op->name : "nobody", op);
    assert_int_equal(f->part, part);
    assert_int_equal(f->index, index);
    assert_int_equal(springs, 1);
    return f;
}

static void says(const char *part)
{
    if (strstr(trap.text, part) == NULL)
        fail_msg("expected `%s` in:\n%s", part, trap.text);
}

// ---- forward ---------------------------------------------------------------------------

static void names_the_inner_sqrt(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 6, 1, 3);
    VECTOR(t, b, 2, 2, 2);
    record(t);
    struct tensor *d = op_sub(t, &a, &b);
    tape_name(t, "inner");
    struct tensor *y = op_sqrt(t, d);
    int line = __LINE__ - 1;
    assert_ptr_equal(t->node[1].taken, d); // so what it read is overwritten
    tape_name(t, "outer");
    op_sqrt(t, y);
    const struct trap_finding *f = finding("sqrt", TRAP_OUTPUT, 1);
    assert_string_equal(f->node_name, "net.inner");
    assert_string_equal(f->tensor_name, "net.inner");
    assert_int_equal(f->node, 1);
    assert_int_equal(f->line, line);
    assert_non_null(strstr(f->file, "test_trap.c"));
    assert_int_equal(f->phase, PHASE_FORWARD);
    assert_int_equal(f->bad, 1);
    assert_int_equal(f->count, 3);
    assert_true(isnan(f->value));
    says("sqrt made a NaN in forward: net.inner[1] is nan, the first of 1 among 3\n");
    says("node 1, net.inner, asked for at ");
    says("y = sqrt(x)\n");
    says("in[0] net.sub f");
    says("[3] from -1 to 4; [1] is -1");
    assert_true((double)y->data[0] == 2 && isnan(y->data[1]) && (double)y->data[2] == 1);
    tape_close(t);
}

// Three ops in one buffer: they run again, and leave what they left the first time.
static void looks_through_a_chain_of_taken_buffers(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    double big = sizeof(real) == 8 ? 1e308 : 3e38;
    VECTOR(t, a, 8, 4, 2);
    VECTOR(t, b, 4, 4, 1);
    record(t);
    struct tensor *y = op_scale(t, op_scale(t, op_sub(t, &a, &b), 2), -0.25); // -2 0 -0.5
    assert_false(trap.is_sprung);
    y = op_scale(t, y, big);
    for (int i = 1; i < 4; i++)
        assert_ptr_equal(t->node[i].taken, t->node[i - 1].out);
    assert_null(t->node[3].taken->data);
    const struct trap_finding *f = finding("scale", TRAP_OUTPUT, 0);
    assert_true(f->value < 0 && f->bad == 1);
    assert_true(isinf(y->data[0]) && (double)y->data[2] < -big / 3);
    says("in[0] net.scale f");
    says("[3] from -2 to -0; [0] is -2");
    tape_close(t);
}

static void a_loss_of_log_is_caught(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, -1, 0);
    record(t);
    struct tensor *loss = op_log(t, &a);
    finding("log", TRAP_OUTPUT, 0);
    says("in[0] a f");
    says("[2] from -1 to 0; [0] is -1");
    assert_int_equal(trap.first.bad, 2);
    tape_leave(t, NULL);
    tape_backward(t, loss, 1); // 1 / 0: more of it, and no word
    assert_int_equal(springs, 1);
    assert_int_equal(trap.first.phase, PHASE_FORWARD);
    tape_close(t);
}

static void both_inputs_are_shown(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    double big = sizeof(real) == 8 ? 1e200 : 1e30;
    VECTOR(t, a, 1, 1, big);
    VECTOR(t, b, 1, 2, -big);
    record(t);
    op_mul(t, &a, &b);
    assert_true(finding("mul", TRAP_OUTPUT, 2)->value < 0);
    says("mul made an infinity in forward: net.mul[2] is -inf");
    says("in[0] a f");
    says("in[1] b f");
    tape_close(t);
}

// ---- ops that only tests have ----------------------------------------------------------

static int calls, bad_call;

static void twin_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
    n->out->saved_bytes = 3 * (int64_t)sizeof(real);
}

static void twin_forward(struct tape *t, struct node *n)
{
    (void)t;
    for (int64_t i = 0; i < tensor_count(n->out); i++)
        n->out->data[i] = n->in[0]->data[i];
    for (int i = 0; i < 3; i++)
        n->out->saved[i] = i == 2 && ++calls == bad_call ? (real)INFINITY : 1;
}

static void twin_backward(struct tape *t, struct node *n)
{
    (void)t;
    for (int64_t i = 0; n->dx[0] != NULL && i < tensor_count(n->out); i++)
        n->dx[0][i] = (n->adds[0] ? n->dx[0][i] : 0) + n->dy[i];
}

static const struct op twin = {.name = "twin",
                               .formula = "y = x",
                               .saved_name = "three numbers",
                               .infer = twin_infer,
                               .forward = {twin_forward},
                               .backward = {twin_backward}};

static void what_is_saved_counts(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 1, 2);
    record(t);
    calls = 0;
    bad_call = 1;
    tape_apply(t, &twin, 1, (struct tensor *[]){&a}, NULL);
    finding("twin", TRAP_SAVED, 2);
    says("net.twin.saved[2] is inf, the first of 1 among 3 (three numbers, saved for backward)");
    tape_close(t);
}

static void a_replay_counts(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 1, 2);
    VECTOR(t, b, 3, 4);
    tape_begin(t, PHASE_FORWARD, 0);
    tape_enter(t, "%s", "");
    calls = 0;
    bad_call = 2;
    struct tensor *x = op_mul(t, &a, &b);
    tape_segment_begin(t, POLICY_FULL, x, "h.0");
    x = tape_apply(t, &twin, 1, &x, NULL);
    x = tape_segment_end(t, op_mul(t, x, x));
    tape_leave(t, NULL);
    assert_false(trap.is_sprung);
    tape_backward(t, x, 1);
    assert_int_equal(finding("twin", TRAP_SAVED, 2)->phase, PHASE_RECOMPUTE);
    says("in recompute: h.0.twin.saved[2]");
    tape_close(t);
}

// ---- backward --------------------------------------------------------------------------

static void the_slope_of_sqrt_at_zero_is_caught(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 4, 9, 0);
    record(t);
    struct tensor *y = op_sqrt(t, &a);
    tape_leave(t, NULL);
    tape_backward(t, y, 1);
    const struct trap_finding *f = finding("sqrt", TRAP_GRADIENT, 2);
    assert_int_equal(f->phase, PHASE_BACKWARD);
    assert_int_equal(f->input, 0);
    assert_string_equal(f->tensor_name, "a.grad");
    assert_true(isinf(f->value));
    says("sqrt made an infinity in backward: a.grad[2] is inf, the first of 1 among 3, in the "
         "gradient of in[0], which was added to what it held\n");
    says("out net.sqrt f");
    says("[3] from 0 to 3; [2] is 0");
    says("dy net.sqrt f");
    tape_close(t);
}

// x + x adds dy to dx twice, and no op's backward runs: a buffer that is added to counts too.
static void a_sum_of_gradients_is_caught(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 1, 2);
    record(t);
    struct tensor *y = op_add(t, &a, &a);
    tape_leave(t, NULL);
    tape_backward(t, y, sizeof(real) == 8 ? (real)1e308 : (real)3e38);
    finding("add", TRAP_GRADIENT, 0);
    says("a.grad[0] is inf, the first of 2 among 2");
    tape_close(t);
}

// The gradient of a view lies in its base's; its index is the view's own.
static void the_gradient_of_a_view_has_its_own_index(void **state)
{
    (void)state;
    enum { T = 4, C = 6, HEADS = 2 };
    struct tape *t = open_trapped();
    params_make(t, &a, "qkv", true, 3, 3, (int64_t[]){2, T, 3 * C});
    double big = sizeof(real) == 8 ? 1e250 : 1e25;
    a.data[(T + 2) * 3 * C + C + 4] = (real)big; // sample 1, row 2, key 4: head 1, element 1
    record(t);
    struct tensor *q = op_split_heads(t, &a, HEADS, 0), *k = op_split_heads(t, &a, HEADS, 1);
    struct tensor *y = op_matmul(t, q, k, true, false);
    tape_leave(t, NULL);
    tape_backward(t, y, (real)big);
    // dq[b][h][i] = sum over j of dy k[j]: of head 1 of sample 1, the element 1 of every row
    const struct trap_finding *f = finding("matmul", TRAP_GRADIENT, ((1 * 2 + 1) * T + 0) * 3 + 1);
    assert_int_equal(f->input, 0);
    assert_int_equal(f->bad, T);
    says("net.split_heads.grad[1,1,0,1] is inf");
    tape_close(t);
}

// A compact gradient has no row for most ids: none of those bytes is looked at.
static void a_compact_gradient_ends_at_its_last_slot(void **state)
{
    (void)state;
    enum { V = 50, C = 3 };
    static const int32_t ids[] = {40, 7, 40, 9}, slots[] = {2, 0, 2, 1};
    struct tape *t = open_trapped();
    params_make(t, &a, "table", true, 5, 2, (int64_t[]){V, C});
    real *whole = a.grad;
    for (int i = 0; i < V * C; i++)
        whole[i] = i < 3 * C ? 0 : (real)NAN;
    record(t);
    struct tensor *y = op_embedding(t, &a, NULL, ids, slots, 1, 4);
    tape_leave(t, NULL);
    tape_backward(t, y, 1);
    assert_false(trap.is_sprung);
    record(t);
    y = op_embedding(t, &a, NULL, ids, slots, 1, 4);
    tape_leave(t, NULL);
    tape_backward(t, y, sizeof(real) == 8 ? (real)1e308 : (real)3e38); // 40 occurs twice
    finding("embedding", TRAP_GRADIENT, 40 * C);
    says("table.grad[40,0] is inf, the first of 3 among 9");
    tape_close(t);
}

// ---- what no op makes ------------------------------------------------------------------

static void a_weight_is_blamed_before_its_reader(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    params_make(t, &a, "x", false, 3, 2, (int64_t[]){2, 4});
    params_make(t, &b, "w.weight", true, 4, 2, (int64_t[]){5, 4});
    assert_true(trap_values(t, &b, array_of(b.data, DTYPE_REAL), "", "before the first op"));
    b.data[3 * 4 + 1] = (real)NAN;
    record(t);
    op_linear(t, &a, &b, NULL);
    const struct trap_finding *f = finding("linear", TRAP_VALUES, 3 * 4 + 1);
    assert_string_equal(f->tensor_name, "w.weight");
    says("w.weight[3,1] is nan before any op (1 of 20 are not finite); linear is the first to read "
         "it\n");
    tape_close(t);
}

static void values_are_looked_at_on_request(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    params_make(t, &b, "w.weight", true, 4, 2, (int64_t[]){5, 4});
    b.grad[7] = -(real)INFINITY;
    assert_true(trap_values(t, &b, array_of(b.data, DTYPE_REAL), "", "before the first op"));
    assert_false(trap_values(t, &b, array_of(b.grad, DTYPE_REAL), ".grad", "before the first op"));
    finding("nobody", TRAP_VALUES, 7);
    assert_string_equal(trap.text,
                        "w.weight.grad[1,3] is -inf before the first op (1 of 20 are not finite)");
    assert_true(
        trap_values(t, &b, array_of(b.grad, DTYPE_REAL), ".grad", "again")); // once is enough
    tape.trap = NULL;
    assert_true(trap_values(t, &b, array_of(b.grad, DTYPE_REAL), ".grad", "untrapped"));
    tape_close(t);
}

// Whoever reads the seed first did not make it.
static void a_seed_that_is_no_number_is_nobodys(void **state)
{
    (void)state;
    struct tape *t = open_trapped();
    VECTOR(t, a, 1, 2);
    record(t);
    struct tensor *y = op_tanh(t, &a);
    tape_leave(t, NULL);
    tape_backward(t, y, (real)NAN);
    finding("nobody", TRAP_VALUES, 0);
    says("net.tanh.grad[0] is nan when backward began (2 of 2 are not finite)");
    tape_close(t);
}

// Dry memory faults when it is read.
static void a_dry_run_is_never_looked_at(void **state)
{
    (void)state;
    struct error e;
    trap = (struct trap){0};
    assert_true(tape_open(&tape, NULL, true, 1, &e));
    tape.trap = &trap;
    params_make(&tape, &a, "a", true, 4, 2, (int64_t[]){5, 4});
    assert_true(trap_values(&tape, &a, array_of(a.data, DTYPE_REAL), "", "never"));
    record(&tape);
    struct tensor *y = op_add(&tape, op_mul(&tape, &a, &a), &a);
    tape_leave(&tape, NULL);
    tape_backward(&tape, y, 1);
    assert_false(trap.is_sprung);
    tape_close(&tape);
}

// ---- the scan --------------------------------------------------------------------------

static void finds_the_first_of_any_size(void **state)
{
    (void)state;
    enum { N = 200003 };
    static real x[N];
    static const int64_t at[] = {0, 1, 4095, 4096, 4097, 65535, 131072, N - 1};
    const real bad[] = {(real)NAN, -(real)NAN, (real)INFINITY, -(real)INFINITY};
    for (int threads = 1; threads <= 3; threads += 2) {
        blas_set_threads(threads);
        for (int i = 0; i < N; i++) // the largest, the smallest, and nothing
            x[i] = i % 3 == 0 ? (real)(sizeof(real) == 8 ? 1.7e308 : 3.4e38) : i % 3 == 1 ? 0 : -1;
        x[5] = (real)(sizeof(real) == 8 ? 5e-324 : 1e-45);
        assert_int_equal(scan_first_bad(array_of(x, DTYPE_REAL), N), -1);
        assert_int_equal(scan_first_bad(array_of(x, DTYPE_REAL), 0), -1);
        for (int i = COUNT_OF(at) - 1; i >= 0; i--) {
            x[at[i]] = bad[i % COUNT_OF(bad)];
            assert_int_equal(scan_first_bad(array_of(x, DTYPE_REAL), N), at[i]);
            assert_int_equal(scan_first_bad(array_of(x, DTYPE_REAL), at[i]), -1);
            assert_int_equal(scan_first_bad(array_of(x, DTYPE_REAL), at[i] + 1), at[i]);
        }
    }
}

static void a_range_is_of_what_is_finite(void **state)
{
    (void)state;
    const real x[] = {(real)NAN, 3, -2, (real)INFINITY, 5}, y[] = {-7, (real)NAN};
    struct scan_range r = {0};
    scan_range(&r, array_of(x, DTYPE_REAL), COUNT_OF(x));
    assert_true((double)r.low == -2 && (double)r.high == 5 && r.finite == 3 && r.bad == 2);
    scan_range(&r, array_of(y, DTYPE_REAL), COUNT_OF(y));
    assert_true((double)r.low == -7 && (double)r.high == 5 && r.finite == 4 && r.bad == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_inner_sqrt),
        cmocka_unit_test(looks_through_a_chain_of_taken_buffers),
        cmocka_unit_test(a_loss_of_log_is_caught),
        cmocka_unit_test(both_inputs_are_shown),
        cmocka_unit_test(what_is_saved_counts),
        cmocka_unit_test(a_replay_counts),
        cmocka_unit_test(the_slope_of_sqrt_at_zero_is_caught),
        cmocka_unit_test(a_sum_of_gradients_is_caught),
        cmocka_unit_test(the_gradient_of_a_view_has_its_own_index),
        cmocka_unit_test(a_compact_gradient_ends_at_its_last_slot),
        cmocka_unit_test(a_weight_is_blamed_before_its_reader),
        cmocka_unit_test(values_are_looked_at_on_request),
        cmocka_unit_test(a_seed_that_is_no_number_is_nobodys),
        cmocka_unit_test(a_dry_run_is_never_looked_at),
        cmocka_unit_test(finds_the_first_of_any_size),
        cmocka_unit_test(a_range_is_of_what_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
