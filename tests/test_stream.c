// test_stream.c - gradients that share buffers are right in every order of use, in and out of
// segments and under every policy; and recomputing changes no bit and computes nothing in vain.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "tape/gradcheck.h"
#include "tape/ops/ops.h"
#include "tests/params.h"
#include "tests/test.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { B = 2, T = 3, C = 4, V = 5, HEADS = 2, ARENA_BYTES = 1 << 24, BITS_MAX = 1024 };
enum { W0, W1, QKV, SCALE, SHIFT, TABLE, HEAD, PARAMS };

static struct tape tape;
static struct tensor p[PARAMS];
static const int32_t ids[B * T] = {0, 2, 1, 4, 4, 3}, targets[B * T] = {1, 3, -100, 0, 2, 4};

static const int64_t shape[PARAMS][2] = {
    [W0] = {C, C},    [W1] = {C, C},    [QKV] = {3 * C, C}, [SCALE] = {C, 0},
    [SHIFT] = {C, 0}, [TABLE] = {V, C}, [HEAD] = {V, C},
};

static void open_stream(bool frozen_table)
{
    params_open(&tape, ARENA_BYTES, 1);
    for (int i = 0; i < PARAMS; i++)
        params_make(&tape, &p[i], "p", !(frozen_table && i == TABLE), 40 + (uint64_t)i,
                    shape[i][1] ? 2 : 1, shape[i]);
}

// ---- graphs in which buffers could be mixed up ----

#define f(x) op_linear(t, (x), &p[W0], NULL)
#define g(x) op_gelu(t, op_linear(t, (x), &p[W1], NULL))
#define drop(x) op_dropout(t, (x), 0.4, 7)
#define plus(a, b) op_add(t, (a), (b))
#define norm(x) op_layernorm(t, (x), &p[SCALE], &p[SHIFT])

// e is a second tensor from outside of all segments, which every segment reads.
typedef struct tensor *graph_fn(struct tape *t, struct tensor *x, struct tensor *e);

#define GRAPH(name) static struct tensor *name(struct tape *t, struct tensor *x, struct tensor *e)
#define RETURN(y)                                                                                  \
    (void)e;                                                                                       \
    return y

GRAPH(branch_right_before)
{
    RETURN(plus(x, f(x)));
}
GRAPH(branch_ends_elementwise)
{
    RETURN(plus(x, g(x)));
}
GRAPH(dropped_branch)
{
    RETURN(plus(x, drop(g(x))));
}
GRAPH(branch_first)
{
    RETURN(plus(f(x), x));
}

GRAPH(twice_the_same)
{
    struct tensor *y = f(x);
    RETURN(plus(y, y));
}

GRAPH(branch_made_early)
{
    struct tensor *b = f(x), *c = g(x); // c's backward adds to x while b still borrows
    RETURN(plus(plus(x, b), c));
}

GRAPH(owner_done_first)
{
    struct tensor *b = g(x), *a = f(x); // a, the owner, is walked before b, the borrower
    RETURN(plus(a, b));
}

GRAPH(elementwise_owner)
{
    struct tensor *b = f(x), *a = op_gelu(t, x); // a may not work in place: b borrows
    RETURN(plus(a, b));
}

GRAPH(parallel_block)
{
    struct tensor *n = op_gelu(t, x), *a = f(n), *m = g(n);
    RETURN(plus(plus(x, a), m));
}

GRAPH(stream_used_after)
{
    struct tensor *y = plus(x, g(x)), *z = plus(y, f(y));
    RETURN(plus(z, f(op_gelu(t, y)))); // y again, after z
}

GRAPH(borrower_reads_lender)
{
    struct tensor *a = f(x);
    RETURN(plus(a, op_gelu(t, a))); // gelu's backward reads a loan from the buffer it adds to
}

GRAPH(
    sum_lent_by_its_own_term) // the gradient of a + b is a loan of a's, to which its backward adds
{
    struct tensor *a = f(x), *b = g(x);
    RETURN(plus(a, plus(a, b)));
}

GRAPH(sum_lent_by_its_branch)
{
    struct tensor *a = f(x), *b = op_tanh(t, g(x)); // tanh reads its output: nobody takes it over
    RETURN(plus(b, plus(a, b)));
}

GRAPH(sums_of_sums)
{
    struct tensor *a = f(x), *s = plus(a, g(x)), *u = plus(s, f(x));
    struct tensor *v = plus(a, u);
    RETURN(plus(s, v));
}

GRAPH(in_place_on_a_loan)
{
    struct tensor *a = f(x), *b = op_tanh(t, g(x)), *c = drop(f(b));
    struct tensor *l = plus(a, c), *r = plus(a, b);
    RETURN(plus(l, r));
}

GRAPH(norm_nobody_needs)
{
    RETURN(plus(x, norm(x)));
}
GRAPH(norm_taken_over)
{
    RETURN(plus(x, drop(norm(f(x)))));
}

GRAPH(branch_needed_by_another)
{
    struct tensor *b = f(x);
    RETURN(plus(op_gelu(t, b), b)); // the sum may not take b over
}

GRAPH(doubled_input)
{
    struct tensor *d = plus(x, x); // nor this one x: a replay reads it
    RETURN(plus(d, g(d)));
}

GRAPH(product_with_itself)
{
    struct tensor *a = f(x), *b = op_mul(t, a, a);
    RETURN(op_sub(t, b, op_mul(t, b, a)));
}

GRAPH(both_from_outside) // at the end of the segment e owns the gradient that x borrows
{
    RETURN(f(op_gelu(t, plus(e, x))));
}

GRAPH(input_first_dropped) // a replay of the difference reads x again: nobody may take it over
{
    RETURN(f(op_gelu(t, op_sub(t, drop(x), e))));
}

GRAPH(outside_stream)
{
    struct tensor *s = plus(e, g(x));
    RETURN(plus(s, op_mul(t, s, e)));
}

GRAPH(nested_scopes)
{
    tape_enter(t, "outer");
    struct tensor *n = norm(x);
    tape_enter(t, "inner");
    struct tensor *y = tape_leave(t, op_tanh(t, g(n)));
    tape_enter(t, "other");
    struct tensor *z = tape_leave(t, plus(n, f(op_gelu(t, y))));
    RETURN(tape_leave(t, plus(x, drop(z))));
}

GRAPH(attention_written_out)
{
    struct tensor *qkv = op_linear(t, norm(x), &p[QKV], NULL);
    struct tensor *q = op_split_heads(t, qkv, HEADS, 0), *k = op_split_heads(t, qkv, HEADS, 1);
    struct tensor *v = op_split_heads(t, qkv, HEADS, 2);
    struct tensor *s = op_causal_softmax(t, op_scale(t, op_matmul(t, q, k, true, false), 0.7));
    struct tensor *y = op_merge_heads(t, op_matmul(t, drop(s), v, false, true));
    RETURN(plus(x, f(y)));
}

GRAPH(attention_scopes) // views and what they look into leave a scope
{
    tape_enter(t, "qkv");
    struct tensor *qkv = tape_leave(t, op_linear(t, norm(x), &p[QKV], NULL));
    tape_enter(t, "heads");
    struct tensor *q = op_split_heads(t, qkv, HEADS, 0), *k = op_split_heads(t, qkv, HEADS, 1);
    struct tensor *s = op_causal_softmax(t, op_matmul(t, q, k, true, false));
    struct tensor *v = op_split_heads(t, qkv, HEADS, 2);
    struct tensor *y = op_merge_heads(t, op_matmul(t, s, v, false, true));
    RETURN(plus(x, f(tape_leave(t, y))));
}

GRAPH(attention_tiled)
{
    struct tensor *qkv = op_linear(t, norm(x), &p[QKV], NULL);
    RETURN(plus(x, f(op_attention(t, qkv, HEADS, 0.3, 11))));
}

GRAPH(view_and_whole) // qkv as a whole and a part of it
{
    struct tensor *qkv = op_linear(t, x, &p[QKV], NULL);
    struct tensor *a = op_attention(t, qkv, HEADS, 0, 0), *v = op_split_heads(t, qkv, HEADS, 2);
    struct tensor *k = op_split_heads(t, qkv, HEADS, 1);
    struct tensor *s = op_matmul(t, k, k, true, false);
    struct tensor *y = op_merge_heads(t, op_matmul(t, s, v, false, true));
    RETURN(plus(plus(x, a), op_scale(t, f(y), 0.1)));
}

GRAPH(result_needed_inside) // the segment's result is an input of its own backward
{
    struct tensor *y = op_tanh(t, f(x));
    struct tensor *unused = op_gelu(t, y);
    (void)unused; // no gradient comes back through it
    RETURN(y);
}

GRAPH(result_not_last)
{
    struct tensor *y = plus(x, f(x)), *z = op_mul(t, y, y);
    (void)z;
    RETURN(y);
}

GRAPH(loss_inside) // probabilities are saved, or made again, inside the segment
{
    struct tensor *n = norm(x), *logits = op_linear(t, n, &p[HEAD], NULL);
    struct tensor *loss = op_cross_entropy(t, logits, targets), *s = op_sum_squares(t, g(n));
    (void)loss;
    (void)s;
    RETURN(plus(x, f(n)));
}

static graph_fn *const graph[] = {
    branch_right_before,   branch_ends_elementwise, dropped_branch,
    branch_first,          twice_the_same,          branch_made_early,
    owner_done_first,      elementwise_owner,       parallel_block,
    stream_used_after,     borrower_reads_lender,   sum_lent_by_its_own_term,
    sums_of_sums,          sum_lent_by_its_branch,  in_place_on_a_loan,
    norm_nobody_needs,     norm_taken_over,         branch_needed_by_another,
    doubled_input,         product_with_itself,     both_from_outside,
    input_first_dropped,   outside_stream,          nested_scopes,
    attention_written_out, attention_scopes,        attention_tiled,
    view_and_whole,        result_needed_inside,    result_not_last,
    loss_inside,
};

// ---- losses ----

typedef struct tensor *loss_fn(struct tape *t, struct tensor *x);

static struct tensor *loss_alone(struct tape *t, struct tensor *x)
{
    return op_cross_entropy(t, op_linear(t, x, &p[HEAD], NULL), targets);
}

static struct tensor *result_taken_over(struct tape *t, struct tensor *x)
{
    return loss_alone(t, drop(x)); // dropout writes over what the last segment made
}

static struct tensor *logits_read_before(struct tape *t, struct tensor *x)
{
    struct tensor *logits = op_linear(t, x, &p[HEAD], NULL);
    struct tensor *squares = op_sum_squares(t, logits);
    return plus(squares, op_cross_entropy(t, logits, targets));
}

static struct tensor *logits_read_after(struct tape *t, struct tensor *x)
{
    struct tensor *logits = op_linear(t, x, &p[HEAD], NULL), *u = op_gelu(t, logits);
    struct tensor *loss = op_cross_entropy(t, logits, targets);
    return plus(plus(loss, op_sum_squares(t, logits)), op_sum_squares(t, u));
}

static struct tensor *two_losses(struct tape *t, struct tensor *x)
{
    struct tensor *logits = op_linear(t, x, &p[HEAD], NULL), *u = op_gelu(t, logits);
    struct tensor *one = op_cross_entropy(t, logits, targets);
    return plus(plus(one, op_cross_entropy(t, logits, targets)), op_sum_squares(t, u));
}

static struct tensor *loss_in_a_segment(struct tape *t, struct tensor *x)
{
    tape_segment_begin(t, POLICY_FULL, x, "loss");
    return tape_segment_end(t, loss_alone(t, norm(x)));
}

static loss_fn *const losses[] = {loss_alone,        result_taken_over, logits_read_before,
                                  logits_read_after, two_losses,        loss_in_a_segment};

// ---- every graph, in and out of segments ----

struct run {
    graph_fn *graph;
    loss_fn *loss;
    int policy; // -1: no segments
};

static struct tensor *record(struct tape *t, void *user)
{
    const struct run *r = user;
    struct tensor *x = op_embedding(t, &p[TABLE], NULL, ids, NULL, B, T);
    struct tensor *e = op_gelu(t, op_linear(t, x, &p[W1], NULL));
    for (int i = 0; i < 2; i++) {
        if (r->policy >= 0)
            tape_segment_begin(t, (enum tape_policy)r->policy, x, "segment %d", i);
        x = r->graph(t, x, e);
        if (r->policy >= 0)
            x = tape_segment_end(t, x);
    }
    return r->loss(t, x);
}

// Loss and all gradients; returns how many numbers.
static int bits_of(struct run *r, real *out)
{
    int64_t live = params_live_bytes(&tape);
    for (int i = 0; i < PARAMS; i++)
        tensor_zero_grad(&tape.arena, &p[i]);
    out[0] = (real)gradcheck_run(&tape, record, r);
    int count = 1;
    for (int i = 0; i < PARAMS; i++)
        for (int64_t j = 0; p[i].wants_grad && j < tensor_count(&p[i]); j++)
            out[count++] = p[i].grad[j];
    assert_true(count <= BITS_MAX);
    assert_int_equal(params_live_bytes(&tape), live);
    assert_int_equal(tape.loan_count, 0);
    return count;
}

static void compare_slopes(struct run *r, int which, int loss)
{
    for (int i = 0; i < PARAMS; i++) {
        if (!p[i].wants_grad)
            continue;
        struct gradcheck c = gradcheck_compare(&tape, record, r, &p[i], 12);
        if (!gradcheck_passes(&c, GRADCHECK_TOLERANCE))
            fail_msg("graph %d, loss %d, policy %d, parameter %d: ||analytic|| %g, ||error|| %g",
                     which, loss, r->policy, i, c.analytic_norm, c.error_norm);
    }
}

static void check_graph(int which, int loss)
{
    static real plain[BITS_MAX], bits[BITS_MAX];
    struct run r = {.graph = graph[which], .loss = losses[loss], .policy = -1};
    int count = bits_of(&r, plain);
    if (sizeof(real) == 8)
        compare_slopes(&r, which, loss);
    for (r.policy = 0; r.policy < POLICY_COUNT; r.policy++) {
        assert_int_equal(bits_of(&r, bits), count);
        for (int i = 0; i < count; i++)
            if (memcmp(&bits[i], &plain[i], sizeof(real)) != 0)
                fail_msg("graph %d, loss %d, policy %d: number %d is %.17g, without segments %.17g",
                         which, loss, r.policy, i, (double)bits[i], (double)plain[i]);
    }
}

static void graphs_in_and_out_of_segments(void **state)
{
    (void)state;
    open_stream(false);
    for (int which = 0; which < COUNT_OF(graph); which++)
        check_graph(which, 0);
    for (int loss = 1; loss < COUNT_OF(losses); loss++) {
        check_graph(1, loss);
        check_graph(11, loss);
    }
    tape_close(&tape);
}

// The first segment's input then has no gradient, and nor has some of what is made from it; a
// replay needs it all the same.
static void graphs_on_a_frozen_table(void **state)
{
    (void)state;
    open_stream(true);
    for (int which = 0; which < COUNT_OF(graph); which++)
        check_graph(which, 0);
    tape_close(&tape);
}

static struct tensor *frozen_norm(struct tape *t, void *user)
{
    const int *policy = user;
    struct tensor *x = op_embedding(t, &p[TABLE], NULL, ids, NULL, B, T);
    if (*policy >= 0)
        tape_segment_begin(t, (enum tape_policy) * policy, x, "segment");
    struct tensor *n = op_layernorm(t, x, &p[TABLE + 1], NULL); // nobody wants its gradient
    struct tensor *y = op_mul(t, op_gelu(t, n), op_linear(t, n, &p[W0], NULL));
    if (*policy >= 0)
        y = tape_segment_end(t, y);
    return y;
}

static void a_replay_goes_through_what_is_frozen(void **state)
{
    (void)state;
    real dw[C * C];
    params_open(&tape, ARENA_BYTES, 1);
    params_make(&tape, &p[W0], "w", true, 1, 2, (int64_t[]){C, C});
    params_make(&tape, &p[TABLE], "table", false, 2, 2, (int64_t[]){V, C});
    params_make(&tape, &p[TABLE + 1], "scale", false, 3, 1, (int64_t[]){C});
    for (int policy = -1; policy < POLICY_COUNT; policy++) {
        tensor_zero_grad(&tape.arena, &p[W0]);
        gradcheck_run(&tape, frozen_norm, &policy);
        if (policy < 0)
            memcpy(dw, p[W0].grad, sizeof(dw));
        assert_memory_equal(dw, p[W0].grad, sizeof(dw));
        assert_true(dw[0] != 0);
    }
    tape_close(&tape);
}

// ---- what a replay computes, and what a chain of segments holds ----

// x -> linear -> gelu -> linear -> + x: backward reads gelu's input and output, which takes one
// linear and one gelu, if the policy did not keep them. The last linear and the sum are not made
// again under any policy.
static void a_replay_computes_nothing_in_vain(void **state)
{
    (void)state;
    open_stream(false);
    for (int policy = 0; policy < POLICY_COUNT; policy++) {
        tape_begin(&tape, PHASE_FORWARD, 0);
        tape_enter(&tape, "test");
        struct tape *t = &tape;
        struct tensor *x = op_embedding(t, &p[TABLE], NULL, ids, NULL, B, T);
        tape_segment_begin(t, (enum tape_policy)policy, x, "segment");
        int first = tape.node_count;
        struct tensor *y = tape_segment_end(t, plus(x, f(g(x))));
        int64_t linear = tape.node[first].forward_flops, gelu = tape.node[first + 1].forward_flops;
        int64_t needed = (policy >> COST_GEMM & 1) * linear + (policy >> COST_CHEAP & 1) * gelu;
        tape_leave(t, NULL);
        int64_t before = tape.flops[PHASE_RECOMPUTE];
        tape_backward(t, y, 1);
        assert_true(linear > 0 && gelu > 0);
        assert_int_equal(tape.flops[PHASE_RECOMPUTE] - before, needed);
    }
    tape_close(&tape);
}

// Peak bytes above what was there, of a chain without a residual stream.
static int64_t chain_bytes(int depth, enum ledger_phase phase)
{
    struct tape *t = &tape;
    int64_t before = params_live_bytes(t);
    ledger_reset_peak(&t->arena.ledger);
    tape_begin(t, phase, 0);
    tape_enter(t, "test");
    struct tensor *x = op_embedding(t, &p[TABLE], NULL, ids, NULL, B, T);
    for (int i = 0; i < depth; i++) {
        tape_segment_begin(t, POLICY_FULL, x, "segment");
        x = tape_segment_end(t, f(op_gelu(t, f(x))));
    }
    struct tensor *loss = loss_alone(t, x);
    tape_leave(t, NULL);
    if (phase == PHASE_FORWARD)
        tape_backward(t, loss, 1);
    assert_int_equal(params_live_bytes(t), before);
    return ledger_peak(&t->arena.ledger) - before;
}

// One more segment costs its kept input, without a byte stranded; forward only, it costs nothing.
static void a_segment_more_costs_its_input(void **state)
{
    (void)state;
    enum { DEEP = 40 };
    open_stream(false);
    int64_t input = B * T * C * (int64_t)sizeof(real);
    input = (input + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
    int64_t shallow = chain_bytes(2, PHASE_FORWARD), deep = chain_bytes(DEEP, PHASE_FORWARD);
    assert_int_equal(deep, shallow + (DEEP - 2) * input);
    assert_int_equal(chain_bytes(2, PHASE_EVAL), chain_bytes(DEEP, PHASE_EVAL));
    tape_close(&tape);
}

// ---- pitfalls ----

// x = 2: y = 3 x; c = 2 y + 5 y: dc/dx = 21.
static void a_value_used_twice(void **state)
{
    (void)state;
    struct tensor x, three, two, five;
    const int64_t one[] = {1};
    struct tape *t = &tape;
    params_open(t, ARENA_BYTES, 1);
    params_make(t, &x, "x", true, 0, 1, one);
    params_make(t, &two, "two", false, 0, 1, one);
    params_make(t, &three, "three", false, 0, 1, one);
    params_make(t, &five, "five", false, 0, 1, one);
    x.data[0] = 2, two.data[0] = 2, three.data[0] = 3, five.data[0] = 5;
    for (int walk = 1; walk <= 2; walk++) { // and gradients add up until somebody clears them
        tape_begin(t, PHASE_FORWARD, 0);
        tape_enter(t, "test");
        struct tensor *y = op_mul(t, &x, &three);
        struct tensor *c = plus(op_mul(t, y, &two), op_mul(t, y, &five));
        assert_true(c->data[0] == 42);
        tape_leave(t, NULL);
        tape_backward(t, c, 1);
        assert_true(x.grad[0] == 21 * (real)walk);
    }
    tape_close(t);
}

enum { DEPTH = 100000, STACK_BYTES = 256 << 10 };

static int chain_of_adds(void)
{
    struct plan plan = {.bytes = INT64_C(1) << 30,
                        .row_count = 6 * DEPTH,
                        .event_count = 12 * DEPTH,
                        .low_count = 2 * DEPTH,
                        .high_count = 2 * DEPTH,
                        .node_count = DEPTH + 10,
                        .tensor_count = DEPTH + 10,
                        .segment_count = 1,
                        .loan_count = 10};
    struct tape *t = &tape;
    struct tensor x, step;
    for (int order = 0; order < 2; order++) { // the sum takes its branch over, or does not
        if (!tape_open(t, &plan, false, 1, NULL))
            return 2;
        params_make(t, &x, "x", true, 1, 1, (int64_t[]){1});
        params_make(t, &step, "step", true, 2, 1, (int64_t[]){1});
        tape_begin(t, PHASE_FORWARD, 0);
        tape_enter(t, "chain");
        struct tensor *y = &x;
        for (int i = 0; i < DEPTH; i++)
            y = order == 0 ? plus(&step, y) : plus(y, &step);
        tape_leave(t, NULL);
        tape_backward(t, y, 1);
        if (x.grad[0] != 1 || step.grad[0] != DEPTH)
            return 3;
        tape_close(t);
    }
    return 0;
}

static const char *program;

static void a_long_chain_on_a_small_stack(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {STACK_BYTES, STACK_BYTES};
        if (setrlimit(RLIMIT_STACK, &limit) == 0)
            execl(program, program, "chain", (char *)NULL);
        _exit(4);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "chain") == 0)
        return chain_of_adds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_in_and_out_of_segments),
        cmocka_unit_test(graphs_on_a_frozen_table),
        cmocka_unit_test(a_replay_goes_through_what_is_frozen),
        cmocka_unit_test(a_replay_computes_nothing_in_vain),
        cmocka_unit_test(a_segment_more_costs_its_input),
        cmocka_unit_test(a_value_used_twice),
        cmocka_unit_test(a_long_chain_on_a_small_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
