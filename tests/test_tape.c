// test_tape.c - a dry run and a real run are the same list of births and deaths, and the real one
// fits in exactly the bytes that the dry one held; steps repeat without leaving anything behind.
#include "tape/ops/ops.h"
#include "tests/params.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { B = 2, T = 5, C = 8, V = 13, HEADS = 2, EVENTS_MAX = 60000, LAPS_MAX = 300 };
enum { TABLE, POSITION, SCALE, QKV, PROJECT, WIDEN, NARROW, HEAD, PARAMS };

static const int64_t shape[PARAMS][2] = {
    [TABLE] = {V, C},   [POSITION] = {T, C},  [SCALE] = {C, 0},      [QKV] = {3 * C, C},
    [PROJECT] = {C, C}, [WIDEN] = {4 * C, C}, [NARROW] = {C, 4 * C}, [HEAD] = {V, C},
};

static struct tape tape;
static struct tensor p[PARAMS];
static const int32_t ids[B * T] = {0, 2, 1, 4, 12, 3, 7, 7, 9, 0};
static const int32_t targets[B * T] = {2, 1, 4, 12, -100, 7, 7, 9, 0, -100};

// ---- a small model, and what a program does with it ----

struct program {
    int policy; // -1: no segments
    bool by_tiles;
    int steps;
    void (*at_lap_end)(struct tape *t, int lap);
    int laps;
};

static struct tensor *attend(struct tape *t, struct tensor *qkv, bool by_tiles)
{
    if (by_tiles)
        return op_attention(t, qkv, HEADS, 0.1, 3);
    tape_enter(t, "written");
    tape_scope_cost(t, COST_ATTENTION);
    struct tensor *q = op_split_heads(t, qkv, HEADS, 0), *k = op_split_heads(t, qkv, HEADS, 1);
    struct tensor *v = op_split_heads(t, qkv, HEADS, 2);
    struct tensor *s = op_scale(t, op_matmul(t, q, k, true, false), 0.5);
    s = op_dropout(t, op_causal_softmax(t, s), 0.1, 3);
    return tape_leave(t, op_merge_heads(t, op_matmul(t, s, v, false, true)));
}

static struct tensor *block(struct tape *t, struct tensor *x, bool by_tiles)
{
    tape_enter(t, "attn");
    struct tensor *n = op_layernorm(t, x, &p[SCALE], NULL);
    struct tensor *a = attend(t, op_linear(t, n, &p[QKV], NULL), by_tiles);
    a = op_dropout(t, op_linear(t, a, &p[PROJECT], NULL), 0.1, 4);
    x = op_add(t, x, tape_leave(t, a));
    tape_enter(t, "mlp");
    n = op_layernorm(t, x, &p[SCALE], NULL);
    n = op_linear(t, op_gelu(t, op_linear(t, n, &p[WIDEN], NULL)), &p[NARROW], NULL);
    return op_add(t, x, tape_leave(t, n));
}

static struct tensor *forward(struct tape *t, const struct program *g)
{
    struct tensor *x = op_embedding(t, &p[TABLE], &p[POSITION], ids, NULL, B, T);
    for (int i = 0; i < 3; i++) {
        if (g->policy >= 0)
            tape_segment_begin(t, (enum tape_policy)g->policy, x, "h.%d", i);
        x = block(t, x, g->by_tiles);
        if (g->policy >= 0)
            x = tape_segment_end(t, x);
    }
    return op_cross_entropy(t, op_linear(t, x, &p[HEAD], NULL), targets);
}

static void lap_ends(struct tape *t, struct program *g)
{
    if (g->at_lap_end != NULL)
        g->at_lap_end(t, g->laps);
    g->laps++;
}

static void train(struct tape *t, struct program *g)
{
    for (int micro = 0; micro < 2; micro++) {
        tape_begin(t, PHASE_FORWARD, micro * B);
        tape_enter(t, "%s", "");
        struct tensor *loss = forward(t, g);
        tape_leave(t, NULL);
        tape_backward(t, loss, (real)0.125);
        lap_ends(t, g);
    }
}

static bool run_program(struct tape *t, void *user, struct error *e)
{
    (void)e;
    struct program *g = user;
    g->laps = 0;
    for (int i = 0; i < PARAMS; i++)
        params_make(t, &p[i], "parameter", true, 50 + (uint64_t)i, shape[i][1] ? 2 : 1, shape[i]);
    for (int step = 0; step < g->steps; step++) {
        for (int i = 0; i < PARAMS; i++)
            tensor_zero_grad(&t->arena, &p[i]);
        train(t, g);
        enum ledger_phase before = ledger_enter_phase(&t->arena.ledger, PHASE_UPDATE);
        tape_scratch_give(t, tape_scratch(t, "update", 1000));
        ledger_enter_phase(&t->arena.ledger, before);
        tape_begin(t, PHASE_EVAL, 0);
        tape_enter(t, "%s", "");
        forward(t, g);
        tape_leave(t, NULL);
        lap_ends(t, g);
    }
    return true;
}

// ---- events one by one ----

struct fact { // an event, and what its row says of it
    int64_t bytes, born, node;
    int phase, category, row_phase;
    char name[LEDGER_NAME_BYTES];
};

struct log {
    struct fact fact[EVENTS_MAX];
    int count, lap_end[LAPS_MAX], laps;
};

static struct log dry_log, wet_log, *log_now;

static void log_lap(struct tape *t, int lap)
{
    const struct ledger *l = &t->arena.ledger;
    for (int64_t i = l->lap_first_event - l->first_event; i < l->event_count; i++) {
        const struct ledger_row *r = &l->row[l->event[i].row];
        assert_true(log_now->count < EVENTS_MAX);
        struct fact *f = &log_now->fact[log_now->count++];
        memset(f, 0, sizeof(*f));
        f->bytes = l->event[i].bytes;
        f->phase = l->event[i].phase;
        f->born = r->born;
        f->node = r->node;
        f->category = (int)r->category;
        f->row_phase = (int)r->phase;
        memcpy(f->name, r->name, strlen(r->name));
    }
    assert_true(lap < LAPS_MAX);
    log_now->lap_end[lap] = log_now->count;
    log_now->laps = lap + 1;
}

static void compare_logs(void)
{
    assert_int_equal(dry_log.laps, wet_log.laps);
    assert_int_equal(dry_log.count, wet_log.count);
    assert_memory_equal(dry_log.lap_end, wet_log.lap_end, sizeof(int) * (size_t)dry_log.laps);
    for (int i = 0; i < dry_log.count; i++)
        if (memcmp(&dry_log.fact[i], &wet_log.fact[i], sizeof(struct fact)) != 0)
            fail_msg("event %d: planned %s %lld, real %s %lld", i, dry_log.fact[i].name,
                     (long long)dry_log.fact[i].bytes, wet_log.fact[i].name,
                     (long long)wet_log.fact[i].bytes);
}

static void compare_counts(const struct ledger_counts *a, const struct ledger_counts *b)
{
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++) {
        assert_int_equal(a->now[i], b->now[i]);
        assert_int_equal(a->peak[i], b->peak[i]);
        assert_int_equal(a->at_peak[i], b->at_peak[i]);
    }
    for (int i = 0; i < PHASE_COUNT; i++)
        assert_int_equal(a->phase_peak[i], b->phase_peak[i]);
    assert_int_equal(a->total_peak, b->total_peak);
    assert_int_equal(a->peak_phase, b->peak_phase);
    assert_int_equal(a->peak_event, b->peak_event);
    assert_string_equal(a->peak_name, b->peak_name);
    assert_int_equal(a->stranded_peak, b->stranded_peak);
    assert_int_equal(a->live_peak, b->live_peak);
}

static void measure(struct program *g, int threads, struct plan *plan)
{
    struct error e;
    if (!tape_measure(&tape, threads, run_program, g, plan, &e))
        fail_msg("%s", e.text);
}

static void check_plan(struct program g, int threads)
{
    struct plan plan;
    log_now = &dry_log;
    g.at_lap_end = NULL;
    measure(&g, threads, &plan);
    tape_close(&tape);
    dry_log.count = wet_log.count = 0;
    g.at_lap_end = log_lap;
    measure(&g, threads, &plan); // both passes were logged: the second is the plan
    int first_pass = dry_log.count / 2;
    memmove(dry_log.fact, dry_log.fact + first_pass, sizeof(struct fact) * (size_t)first_pass);
    dry_log.count = first_pass;
    for (int i = 0; i < dry_log.laps; i++)
        dry_log.lap_end[i] -= first_pass;
    struct ledger_counts counts = tape.arena.ledger.counts;
    int64_t flops[PHASE_COUNT];
    memcpy(flops, tape.flops, sizeof(flops));
    tape_close(&tape);

    log_now = &wet_log;
    struct error e;
    assert_true(tape_open(&tape, &plan, false, threads, &e));
    assert_true(run_program(&tape, &g, &e));
    compare_logs();
    compare_counts(&counts, &tape.arena.ledger.counts);
    assert_memory_equal(flops, tape.flops, sizeof(flops));
    assert_int_equal(tape.arena.ledger.counts.total_peak, tape.arena.cap_bytes);
    assert_int_equal(plan.bytes, tape.arena.cap_bytes);
    struct plan real_plan = tape_plan(&tape); // and every table is as large as it must be
    assert_int_equal(real_plan.row_count, plan.row_count);
    assert_int_equal(real_plan.event_count, plan.event_count);
    assert_int_equal(real_plan.low_count, plan.low_count);
    assert_int_equal(real_plan.high_count, plan.high_count);
    assert_int_equal(real_plan.node_count, plan.node_count);
    assert_int_equal(real_plan.tensor_count, plan.tensor_count);
    assert_int_equal(real_plan.loan_count > 0 ? real_plan.loan_count : 1, plan.loan_count);
    assert_int_equal(real_plan.segment_count > 0 ? real_plan.segment_count : 1, plan.segment_count);
    tape_close(&tape);
}

static void a_plan_is_the_run(void **state)
{
    (void)state;
    for (int policy = -1; policy < POLICY_COUNT; policy++)
        for (int by_tiles = 0; by_tiles < 2; by_tiles++)
            check_plan((struct program){policy, by_tiles, 2, NULL, 0}, 1);
    check_plan((struct program){POLICY_LEAN, true, 2, NULL, 0}, 3); // more scratch
}

// Nothing is stranded when the most is held, under the policies that have a name.
static void nothing_is_stranded_at_the_peak(void **state)
{
    (void)state;
    static const int named[] = {-1, POLICY_NONE, POLICY_LEAN, POLICY_SELECTIVE, POLICY_FULL};
    for (int i = 0; i < COUNT_OF(named); i++)
        for (int by_tiles = 0; by_tiles < 2; by_tiles++) {
            struct program g = {named[i], by_tiles, 1, NULL, 0};
            struct plan plan;
            measure(&g, 1, &plan);
            assert_int_equal(tape.arena.ledger.counts.at_peak[LEDGER_STRANDED], 0);
            tape_close(&tape);
        }
}

// ---- repeated steps ----

static struct {
    int64_t rows, events, live;
    int nodes, tensors;
} at_lap[3];

static void note_lap(struct tape *t, int lap)
{
    const struct ledger *l = &t->arena.ledger;
    int kind = lap % 3;
    if (lap >= 3 && lap < 6) {
        at_lap[kind].rows = l->row_count;
        at_lap[kind].events = l->event_count;
        at_lap[kind].live = l->counts.total_now;
        at_lap[kind].nodes = t->node_count;
        at_lap[kind].tensors = t->tensor_count;
    }
    if (lap < 6)
        return;
    assert_int_equal(l->row_count, at_lap[kind].rows);
    assert_int_equal(l->event_count, at_lap[kind].events);
    assert_int_equal(l->counts.total_now, at_lap[kind].live);
    assert_int_equal(t->node_count, at_lap[kind].nodes);
    assert_int_equal(t->tensor_count, at_lap[kind].tensors);
}

static void steps_leave_nothing_behind(void **state)
{
    (void)state;
    struct program one = {POLICY_FULL, false, 2, NULL, 0}, g = {POLICY_FULL, false, 50, NULL, 0};
    struct plan plan;
    struct error e;
    measure(&one, 1, &plan);
    tape_close(&tape);
    g.at_lap_end = note_lap;
    assert_true(tape_open(&tape, &plan, false, 1, &e)); // what two steps need, fifty need
    assert_true(run_program(&tape, &g, &e));
    assert_int_equal(g.laps, 150);
    tape_close(&tape);
}

// ---- what does not fit, and what is wrong ----

enum { FULL_STATUS = 42 };

static void leave_when_full(struct arena *a, const struct ledger_label *l, int64_t bytes)
{
    (void)a;
    (void)l;
    (void)bytes;
    _exit(FULL_STATUS);
}

// How a child ends that does this: a signal's number, or its status. errors: what it wrote.
static int end_of(void (*act)(void), char *errors, size_t size)
{
    int to_us[2], status = -1;
    assert_int_equal(pipe(to_us), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(to_us[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        act();
        _exit(0);
    }
    close(to_us[1]);
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used + 1 < size; used += got > 0 ? (size_t)got : 0)
        got = read(to_us[0], errors + used, size - 1 - used);
    errors[used] = 0;
    close(to_us[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static struct plan short_plan;

static void run_short_plan(void)
{
    struct program g = {POLICY_FULL, true, 1, NULL, 0};
    if (!tape_open(&tape, &short_plan, false, 1, NULL))
        _exit(FULL_STATUS);
    tape.arena.on_full = leave_when_full;
    run_program(&tape, &g, NULL);
}

static void one_byte_less_does_not_fit(void **state)
{
    (void)state;
    char errors[1000];
    struct program g = {POLICY_FULL, true, 1, NULL, 0};
    measure(&g, 1, &short_plan);
    tape_close(&tape);
    assert_int_equal(end_of(run_short_plan, errors, sizeof(errors)), 0);
    short_plan.bytes--;
    assert_int_equal(end_of(run_short_plan, errors, sizeof(errors)), FULL_STATUS);
}

static void open_params(void)
{
    params_open(&tape, 1 << 22, 1);
    for (int i = 0; i < PARAMS; i++)
        params_make(&tape, &p[i], "parameter", i != TABLE, 50 + (uint64_t)i, shape[i][1] ? 2 : 1,
                    shape[i]);
    tape_begin(&tape, PHASE_FORWARD, 0);
    tape_enter(&tape, "scope");
}

static void loss_of_nothing(void) // no parameter is upstream
{
    open_params();
    struct tensor *x = op_embedding(&tape, &p[TABLE], NULL, ids, NULL, B, T);
    tape_backward(&tape, op_sum_squares(&tape, x), 1);
}

static void walk_twice(void)
{
    open_params();
    struct tensor *loss = op_sum_squares(&tape, &p[HEAD]);
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, 1);
    tape_backward(&tape, loss, 1);
}

static void begin_before_the_walk(void)
{
    open_params();
    op_sum_squares(&tape, &p[HEAD]);
    tape_leave(&tape, NULL);
    tape_begin(&tape, PHASE_FORWARD, 0);
}

static void keep_for_ever(void)
{
    open_params();
    struct tensor *loss = tape_leave(&tape, op_sum_squares(&tape, &p[HEAD]));
    tape_backward(&tape, loss, 1);
    tape_begin(&tape, PHASE_FORWARD, 0);
}

static void read_what_was_taken(void)
{
    open_params();
    struct tensor *x = op_scale(&tape, &p[HEAD], 2);
    op_scale(&tape, x, 3);
    op_gelu(&tape, x);
}

static void read_a_view_as_a_whole(void)
{
    open_params();
    struct tensor *x = op_embedding(&tape, &p[TABLE], NULL, ids, NULL, B, T);
    x = op_linear(&tape, x, &p[QKV], NULL);
    op_gelu(&tape, op_split_heads(&tape, x, HEADS, 1));
}

static void too_many_nodes(void)
{
    open_params();
    tape.cap.node_count = 3;
    for (int i = 0; i < 4; i++)
        op_sum_squares(&tape, &p[HEAD]);
}

static void misuse_stops(void **state)
{
    (void)state;
    static const struct {
        void (*act)(void);
        const char *says;
    } misuse[] = {
        {loss_of_nothing, "CHECK"},
        {walk_twice, "is_walked"},
        {begin_before_the_walk, "is_walked"},
        {keep_for_ever, "scope.sum_squares is still there"},
        {read_what_was_taken, "took over for its output"},
        {read_a_view_as_a_whole, "contiguous"},
        {too_many_nodes, "node_count"},
    };
    char errors[1000];
    for (int i = 0; i < COUNT_OF(misuse); i++) {
        int status = end_of(misuse[i].act, errors, sizeof(errors));
        if (status != SIGABRT || strstr(errors, misuse[i].says) == NULL)
            fail_msg("misuse %d: status %d, '%s'", i, status, errors);
    }
}

static bool run_badly(struct tape *t, void *user, struct error *e)
{
    (void)t;
    return ++*(int *)user == 2 ? refuse(e, "the second time") : true;
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    struct plan plan;
    struct error e;
    int calls = 0;
    assert_false(tape_measure(&tape, 1, run_badly, &calls, &plan, &e));
    assert_string_equal(e.text, "the second time");
    assert_null(tape.arena.base); // closed
    assert_false(tape_open(&tape, NULL, true, 0, &e));
    assert_non_null(strstr(e.text, "0 threads"));
}

// ---- persistent, frozen, named ----

static void frozen_parameters_cost_nothing(void **state)
{
    (void)state;
    params_open(&tape, 1 << 23, 1);
    struct tensor x, w, b;
    params_make(&tape, &x, "x", false, 1, 2, (int64_t[]){4, 512});
    params_make(&tape, &w, "w", false, 2, 2, (int64_t[]){256, 512});
    assert_int_equal(tape.arena.ledger.counts.now[LEDGER_GRADIENTS], 0);
    params_make(&tape, &b, "b", true, 3, 1, (int64_t[]){256});
    assert_int_equal(tape.arena.ledger.counts.now[LEDGER_GRADIENTS], 256 * (int64_t)sizeof(real));
    tape_begin(&tape, PHASE_FORWARD, 0);
    tape_enter(&tape, "test");
    struct tensor *y = op_linear(&tape, &x, &w, &b);
    const struct node *n = &tape.node[0];
    assert_int_equal(n->backward_flops, 4 * 256); // of the bias alone
    tape_leave(&tape, NULL);
    tape_backward(&tape, y, 1);
    assert_null(n->dx[0]);
    assert_null(n->dx[1]);
    assert_ptr_equal(n->dx[2], b.grad);
    assert_null(w.grad);
    assert_true(b.grad[7] == 4);
    tape_close(&tape);
}

static void gradients_add_up_until_cleared(void **state)
{
    (void)state;
    open_params();
    tape_leave(&tape, NULL);
    for (int walk = 1; walk <= 3; walk++) {
        tape_begin(&tape, PHASE_FORWARD, 0);
        tape_enter(&tape, "test");
        struct tensor *y = op_scale(&tape, &p[HEAD], 2);
        tape_leave(&tape, NULL);
        tape_backward(&tape, y, 1);
        assert_true(p[HEAD].grad[0] == 2 * (real)walk);
        assert_int_equal(tape.arena.ledger.phase, PHASE_FORWARD); // the phase before backward
    }
    tensor_zero_grad(&tape.arena, &p[HEAD]);
    assert_true(p[HEAD].grad[V * C - 1] == 0);
    tape_close(&tape);
}

static void nodes_say_who_asked(void **state)
{
    (void)state;
    params_open(&tape, 1 << 20, 1);
    params_make(&tape, &p[HEAD], "head", true, 1, 2, shape[HEAD]);
    tape_begin(&tape, PHASE_FORWARD, 12);
    tape_enter(&tape, "%s", ""); // a root without a name
    tape_enter(&tape, "h.%d", 3);
    tape_enter(&tape, "mlp");
    tape_scope_cost(&tape, COST_GEMM);
    struct tensor *y = op_tanh(&tape, &p[HEAD]);
    int line = __LINE__ - 1;
    const struct node *n = &tape.node[0];
    assert_string_equal(n->name, "h.3.mlp.tanh");
    assert_string_equal(y->name, n->name);
    assert_string_equal(n->file, __FILE__);
    assert_int_equal(n->line, line);
    assert_int_equal(n->first_sample, 12);
    assert_int_equal(n->cost, COST_GEMM);
    tape_leave(&tape, y);
    op_tanh(&tape, &p[HEAD]);
    assert_int_equal(tape.node[1].cost, COST_CHEAP);
    tape_leave(&tape, NULL);
    tape_leave(&tape, NULL);
    tape_backward(&tape, y, 1);
    for (int i = 0; i < POLICY_COUNT; i++)
        assert_non_null(tape_policy_name((enum tape_policy)i));
    tape_close(&tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_the_run),
        cmocka_unit_test(nothing_is_stranded_at_the_peak),
        cmocka_unit_test(steps_leave_nothing_behind),
        cmocka_unit_test(one_byte_less_does_not_fit),
        cmocka_unit_test(misuse_stops),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
        cmocka_unit_test(frozen_parameters_cost_nothing),
        cmocka_unit_test(gradients_add_up_until_cleared),
        cmocka_unit_test(nodes_say_who_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
