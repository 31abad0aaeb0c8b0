// test_lora.c - adapters train what they should and nothing else, cost what they should and nothing
// else, change no law of the step, and merge into weights that do the same.
#include "nn/block_int.h"
#include "nn/merge.h"
#include "nn/step.h"
#include "tape/ops/ops_int.h"
#include "tape/rng.h"
#include "tests/test.h"

enum { ARENA_BYTES = 1 << 24, BATCH = 5, T = 9, VOCAB = 11, NUMBERS_MAX = 1 << 15, STEPS = 3 };

static struct model {
    struct tape tape;
    struct gpt gpt;
    struct step step;
} m;

static const struct gpt_config plain = {.layers = 2,
                                        .heads = 2,
                                        .width = 8,
                                        .context = 16,
                                        .vocab = VOCAB,
                                        .bias = true,
                                        .tie = true,
                                        .dropout = 0.1,
                                        .attention = GPT_ATTENTION_TILED};

static void open_tape(struct tape *t, int threads)
{
    struct plan plan = tape_plan_small(ARENA_BYTES);
    struct error e;
    if (!tape_open(t, &plan, false, threads, &e))
        fail_msg("%s", e.text);
}

static struct gpt_config adapted(unsigned targets)
{
    struct gpt_config c = plain;
    c.lora = (struct lora_config){.rank = 4, .alpha = 8, .targets = targets};
    return c;
}

// ---- what it costs ---------------------------------------------------------------------

struct cost {
    int64_t trainable, gradients, state;
};

// A linear 512 -> 256 and its optimizer: only adapters (and a trained bias) have gradients.
static struct cost cost_of(bool trains_bias)
{
    struct lora_config c = {
        .rank = 8, .alpha = 8, .targets = LORA_PROJ, .trains_bias = trains_bias};
    struct optimizer_config o = {.kind = OPTIMIZER_ADAMW};
    struct param_list l;
    struct lora lora = {.count = 0};
    struct tape t;
    open_tape(&t, 1);
    params_open(&l, &t, 4);
    param_add(&l, &t, 256, 512, PARAM_NORMAL, 0.02, "l.weight");
    param_add(&l, &t, 0, 256, PARAM_ZEROS, 0, "l.bias");
    lora_freeze(&l, &c);
    lora_add(&lora, &t, &l, &c, &(struct lora_linear){"l", 256, 512, LORA_PROJ, 1});
    params_add_grads(&l, &t);
    optimizer_init(&o, &l, &t);
    assert_null(l.param[0].tensor.grad);
    assert_false(l.param[0].tensor.wants_grad);
    assert_string_equal(l.param[2].name, "l.lora_A.weight");
    const int64_t *now = t.arena.ledger.counts.now;
    struct cost cost = {params_trainable(&l), now[LEDGER_GRADIENTS], now[LEDGER_OPTIMIZER_STATE]};
    assert_int_equal(params_count(&l), 512 * 256 + 256 + 8 * (512 + 256));
    tape_close(&t);
    return cost;
}

static void a_linear_of_512_to_256(void **state)
{
    (void)state;
    int64_t wider = sizeof(real) / 4; // the figures are those of 32-bit numbers
    struct cost with = cost_of(true), without = cost_of(false);
    assert_int_equal(with.trainable, 6400);
    assert_int_equal(with.gradients, 25600 * wider);
    assert_int_equal(with.state, 51200 * wider);
    assert_int_equal(without.trainable, 6144);
    assert_int_equal(without.gradients, 24576 * wider);
    assert_int_equal(without.state, 49152 * wider);
}

// ---- what it computes ------------------------------------------------------------------

// Base 0, A and B ones, rank 8, alpha 16, x 1: 16 / 8 times a sum of 8 ones.
static void the_scale_is_alpha_over_rank(void **state)
{
    (void)state;
    struct lora_config c = {.rank = 8, .alpha = 16, .targets = LORA_PROJ};
    struct param_list l;
    struct lora lora = {.count = 0};
    struct tape t;
    struct tensor x;
    open_tape(&t, 1);
    params_open(&l, &t, 3);
    struct param *w = param_add(&l, &t, 1, 1, PARAM_ZEROS, 0, "l.weight");
    lora_freeze(&l, &c);
    lora_add(&lora, &t, &l, &c, &(struct lora_linear){"l", 1, 1, LORA_PROJ, 1});
    params_start(&l, &t, 1);
    for (int i = 0; i < 8; i++)
        lora.part[0].a->tensor.data[i] = lora.part[0].b->tensor.data[i] = 1;
    tensor_persistent(&x, &t.arena, "x", LEDGER_BATCH, 2, (int64_t[]){1, 1});
    x.data[0] = 1;
    tape_begin(&t, PHASE_EVAL, 0);
    tape_enter(&t, "%s", "");
    struct tensor *y = block_linear(&t, "l", &x, w, NULL, &lora);
    assert_true(y->data[0] == 16);
    tape_leave(&t, NULL);
    lora_merge(&lora, &w->tensor);
    assert_true(w->tensor.data[0] == 16);
    tape_close(&t);
}

// A uniform in +-1/sqrt(in), B zeros; the base starts as it does without adapters.
static void what_adapters_start_from(void **state)
{
    (void)state;
    struct gpt_config with = adapted(LORA_Q | LORA_V | LORA_FC), without = plain;
    struct gpt other;
    open_tape(&m.tape, 1);
    gpt_init(&m.gpt, &m.tape, &with);
    params_start(&m.gpt.params, &m.tape, 7);
    gpt_init(&other, &m.tape, &without);
    params_start(&other.params, &m.tape, 7);
    for (int i = 0; i < other.params.count; i++) {
        const struct tensor *x = &m.gpt.params.param[i].tensor, *y = &other.params.param[i].tensor;
        assert_memory_equal(x->data, y->data, (size_t)tensor_bytes(x));
    }
    assert_int_equal(m.gpt.params.count, other.params.count + 2 * 3 * 2);
    double largest = 0, sum = 0;
    int64_t count = 0;
    for (int i = other.params.count; i < m.gpt.params.count; i++) {
        const struct param *p = &m.gpt.params.param[i];
        bool is_a = strstr(p->name, "lora_A") != NULL;
        for (int64_t j = 0; j < tensor_count(&p->tensor); j++) {
            assert_true(is_a || p->tensor.data[j] == 0);
            largest = fmax(largest, fabs((double)p->tensor.data[j]));
            sum += (double)p->tensor.data[j];
            count += is_a;
        }
    }
    double most = 1 / sqrt(8);
    assert_true(largest <= most && largest > 0.9 * most);
    assert_true(fabs(sum / (double)count) < 4 * most / sqrt(3.0 * (double)count));
    assert_non_null(param_find(&m.gpt.params, "h.1.attn.c_attn.v.lora_B.weight"));
    assert_non_null(param_find(&m.gpt.params, "h.0.mlp.c_fc.lora_A.weight"));
    tape_close(&m.tape);
}

// ---- steps -----------------------------------------------------------------------------

struct way { // to take the same steps
    enum tape_policy policy;
    bool halves;
    int64_t micro_batch;
    int threads;
};

static int alone = -1; // the parameter that is trained; -1: what the configuration says

static void open_model(const struct gpt_config *g, const struct way *w)
{
    struct gpt_config c = *g;
    c.checkpoint = w->policy;
    c.half_segments = w->halves;
    struct step_config s = {
        .batch = BATCH,
        .micro_batch = w->micro_batch,
        .seq = T,
        .seed = 3,
        .optimizer = {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .schedule = {.rate = 1e-2},
    };
    open_tape(&m.tape, w->threads);
    gpt_init(&m.gpt, &m.tape, &c);
    for (int i = 0; alone >= 0 && i < m.gpt.params.count; i++)
        m.gpt.params.param[i].is_frozen = i != alone;
    params_start(&m.gpt.params, &m.tape, 3);
    step_init(&m.step, &m.tape, &m.gpt, &s, true);
    for (int64_t i = 0; i < BATCH * T; i++) {
        m.step.tokens[i] = (int32_t)(i * 7 % 5);
        m.step.targets[i] = (int32_t)(i * 3 % 7);
    }
}

static void take_step(void)
{
    struct step_result r;
    struct error e;
    if (!step_gradients(&m.step, &m.tape, &r, &e))
        fail_msg("%s", e.text);
    step_update(&m.step, &m.tape, &r);
}

static int copy(real *out)
{
    int count = 0;
    for (int i = 0; i < m.gpt.params.count; i++) {
        const struct tensor *x = &m.gpt.params.param[i].tensor;
        assert_true(count + tensor_count(x) <= NUMBERS_MAX);
        memcpy(out + count, x->data, (size_t)tensor_bytes(x));
        count += (int)tensor_count(x);
    }
    return count;
}

static real weights[STEPS + 1][NUMBERS_MAX];

static const struct way ways[] = {
    {POLICY_NONE, false, BATCH, 1}, {POLICY_FULL, false, BATCH, 1},
    {POLICY_LEAN, true, BATCH, 1},  {POLICY_SELECTIVE, false, BATCH, 1},
    {POLICY_FULL, true, 2, 2},      {POLICY_NONE, false, 1, 3},
};

// Step 1 moves every B and no A (B is zero, so A has no slope), step 2 every A; the base never.
static void check_step(int step)
{
    const real *before = weights[step - 1], *after = weights[step];
    for (int i = 0, at = 0; i < m.gpt.params.count; i++) {
        const struct param *p = &m.gpt.params.param[i];
        bool is_a = strstr(p->name, "lora_A") != NULL;
        bool moves = p->is_adapter && (!is_a || step > 1);
        int64_t n = tensor_count(&p->tensor), moved = 0;
        for (int64_t j = 0; j < n; j++, at++)
            moved += before[at] != after[at];
        if (moved != (moves ? n : 0))
            fail_msg("step %d moves %lld of %lld of %s", step, (long long)moved, (long long)n,
                     p->name);
    }
}

static void check_steps(const struct gpt_config *c)
{
    static real other[NUMBERS_MAX];
    open_model(c, &ways[0]);
    int count = copy(weights[0]);
    for (int step = 1; step <= STEPS; step++) {
        take_step();
        copy(weights[step]);
        check_step(step);
    }
    tape_close(&m.tape);
    for (int i = 1; i < COUNT_OF(ways); i++) {
        open_model(c, &ways[i]);
        for (int step = 0; step < STEPS; step++)
            take_step();
        copy(other);
        for (int j = 0; j < count; j++)
            if (memcmp(&other[j], &weights[STEPS][j], sizeof(real)) != 0)
                fail_msg("way %d, number %d: %.17g, expected %.17g", i, j, (double)other[j],
                         (double)weights[STEPS][j]);
        tape_close(&m.tape);
    }
}

static void steps_move_b_then_a_in_every_way(void **state)
{
    (void)state;
    static const unsigned targets[] = {LORA_ALL | LORA_HEAD, LORA_Q | LORA_V, LORA_HEAD, LORA_DOWN};
    for (int i = 0; i < 2 * COUNT_OF(targets); i++) {
        struct gpt_config c = adapted(targets[i / 2]);
        c.tie = i % 2 == 0;
        c.attention = i % 2 == 0 ? GPT_ATTENTION_TILED : GPT_ATTENTION_NAIVE;
        check_steps(&c);
    }
}

// ---- what is kept ----------------------------------------------------------------------

static int64_t kept_bytes(const struct gpt_config *c)
{
    open_model(c, &ways[0]);
    take_step();
    int64_t bytes = m.tape.arena.ledger.counts.kept_bytes;
    tape_close(&m.tape);
    return bytes;
}

// Gradients flow through what is frozen: adapters everywhere keep what training all keeps, and
// their own h; but not what only frozen weights read, the head's input, nor the first norm's
// statistics, since nobody wants a gradient before it. Below an adapted head nothing is kept.
static void adapters_do_not_reduce_what_is_kept(void **state)
{
    (void)state;
    struct gpt_config all = adapted(LORA_ALL), down = adapted(LORA_DOWN), head = adapted(LORA_HEAD);
    all.dropout = down.dropout = head.dropout = 0;
    struct gpt_config full = plain;
    full.dropout = 0;
    int64_t rows = BATCH * T * (int64_t)sizeof(real), x = rows * plain.width, h = rows * 4;
    assert_int_equal(kept_bytes(&all), kept_bytes(&full) + 8 * h - x - 2 * rows);
    assert_true(kept_bytes(&down) < kept_bytes(&full));
    assert_true(kept_bytes(&head) < kept_bytes(&full) / 4);
}

// A frozen table has one use that matters less than none: no accumulator of its own.
static void a_frozen_table_needs_no_second_gradient(void **state)
{
    (void)state;
    struct gpt_config c = adapted(LORA_QKV);
    open_model(&c, &ways[0]);
    take_step();
    assert_null(m.step.embedding.grad);
    assert_null(m.gpt.wte->tensor.grad);
    tape_close(&m.tape);
    open_model(&plain, &ways[0]);
    take_step();
    assert_non_null(m.step.embedding.data); // it had one
    tape_close(&m.tape);
}

// ---- merging ---------------------------------------------------------------------------

static double largest_difference(const struct gpt_config *c, double *largest)
{
    static real logits[2][BATCH * T * VOCAB];
    static int32_t ids[BATCH * T];
    struct gpt_config without = merge_config(c);
    struct gpt merged;
    open_model(c, &ways[0]);
    for (int step = 0; step < STEPS; step++)
        take_step();
    gpt_init(&merged, &m.tape, &without);
    merge_weights(&merged, &m.gpt);
    assert_int_equal(merged.params.count, (c->tie && !without.tie ? 1 : 0) + 28);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < BATCH * T; i++)
            ids[i] = i * 5 % VOCAB;
        struct gpt *g = k == 0 ? &m.gpt : &merged;
        tape_begin(&m.tape, PHASE_EVAL, 0);
        tape_enter(&m.tape, "%s", "");
        struct tensor *y = gpt_logits(&m.tape, g, gpt_hidden(&m.tape, g, ids, NULL, BATCH, T));
        memcpy(logits[k], y->data, sizeof(logits[k]));
        tape_leave(&m.tape, NULL);
    }
    double difference = 0;
    *largest = 0;
    for (int i = 0; i < BATCH * T * VOCAB; i++) {
        difference = fmax(difference, fabs((double)logits[0][i] - (double)logits[1][i]));
        *largest = fmax(*largest, fabs((double)logits[0][i]));
    }
    tape_close(&m.tape);
    return difference;
}

// Within 32 roundings of the largest logit: the order of sums is another.
static void merged_weights_give_the_same_logits(void **state)
{
    (void)state;
    static const unsigned targets[] = {LORA_ALL, LORA_Q | LORA_K, LORA_HEAD | LORA_V};
    for (int i = 0; i < COUNT_OF(targets); i++) {
        struct gpt_config c = adapted(targets[i]);
        double largest, d = largest_difference(&c, &largest);
        if (!(d <= 32 * REAL_EPSILON * largest) || largest == 0)
            fail_msg("targets %u: logits of at most %g differ by %g", targets[i], largest, d);
    }
}

// ---- targets and patterns --------------------------------------------------------------

static void targets_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned targets;
    } good[] = {{"q,v", LORA_Q | LORA_V},
                {"all", LORA_ALL},
                {"all,head", LORA_ALL | LORA_HEAD},
                {"down", LORA_DOWN}};
    struct error e;
    unsigned targets, back;
    char text[LORA_TARGETS_BYTES];
    for (int i = 0; i < COUNT_OF(good); i++) {
        assert_true(lora_read_targets(good[i].text, &targets, &e));
        assert_int_equal(targets, good[i].targets);
        assert_true(lora_read_targets(lora_write_targets(targets, text), &back, &e));
        assert_int_equal(back, targets);
    }
    assert_false(lora_read_targets("q,query", &targets, &e));
    assert_non_null(strstr(e.text, "'query': expected q, k, v, qkv, proj, fc, down, head, or all"));
    assert_false(lora_read_targets("q,", &targets, &e));
    assert_false(lora_read_targets("", &targets, &e));
    assert_false(lora_read_targets("all,q", &targets, &e));
    assert_non_null(strstr(e.text, "parts of qkv"));
    struct lora_config c = {.rank = 9, .alpha = 1, .targets = LORA_Q};
    assert_false(lora_config_check(&c, 8, &e));
    assert_non_null(strstr(e.text, "rank 9: expected 1 to width 8"));
    c = (struct lora_config){.rank = 8, .alpha = NAN, .targets = LORA_Q};
    assert_false(lora_config_check(&c, 8, &e));
}

static void patterns_freeze_what_they_fit(void **state)
{
    (void)state;
    struct error e;
    open_tape(&m.tape, 1);
    gpt_init(&m.gpt, &m.tape, &plain);
    struct param_list *l = &m.gpt.params;
    int64_t all = params_count(l);
    assert_int_equal(params_trainable(l), all);
    assert_true(params_freeze(l, "wte.*,h.0.ln_?.bias", &e));
    assert_int_equal(params_trainable(l), all - VOCAB * 8 - 2 * 8);
    assert_true(m.gpt.wte->is_frozen && m.gpt.layer[0].ln2_b->is_frozen);
    assert_false(m.gpt.layer[1].ln2_b->is_frozen);
    assert_false(params_freeze(l, "h.0.*,h.7.*", &e));
    assert_non_null(strstr(e.text, "'h.7.*' fits no parameter: there are wte.weight, wpe.weight"));
    assert_false(params_freeze(l, "*", &e));
    assert_non_null(strstr(e.text, "nothing to train"));
    tape_close(&m.tape);
}

static void take_gradients(void)
{
    struct step_result r;
    struct error e;
    if (!step_gradients(&m.step, &m.tape, &r, &e))
        fail_msg("%s", e.text);
}

// A backward that reads what only a gradient of something frozen needs finds it given back.
static void check_alone(const struct gpt_config *c, const struct way *w)
{
    static real all[NUMBERS_MAX];
    int64_t count = 0;
    open_model(c, w);
    take_gradients();
    int params = m.gpt.params.count;
    for (int i = 0; i < params; i++) {
        const struct tensor *x = &m.gpt.params.param[i].tensor;
        assert_true(count + tensor_count(x) <= NUMBERS_MAX);
        memcpy(all + count, x->grad, (size_t)tensor_count(x) * sizeof(real));
        count += tensor_count(x);
    }
    tape_close(&m.tape);
    for (int64_t at = 0; ++alone < params;) {
        open_model(c, w);
        take_gradients();
        const struct param *p = &m.gpt.params.param[alone];
        int64_t n = tensor_count(&p->tensor);
        if (memcmp(p->tensor.grad, all + at, (size_t)n * sizeof(real)) != 0)
            fail_msg("%s has another gradient when it is trained alone", p->name);
        at += n;
        tape_close(&m.tape);
    }
    alone = -1;
}

static void one_alone_has_the_gradient_it_has_among_all(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(ways); i++) {
        struct gpt_config c = plain;
        c.tie = i % 2 == 0;
        c.attention = i % 3 == 0 ? GPT_ATTENTION_TILED : GPT_ATTENTION_NAIVE;
        c.chunked_loss = i % 4 >= 2;
        check_alone(&c, &ways[i]);
    }
}

// ---- numbers of 16 bits ----------------------------------------------------------------

enum { ROWS = 131, COLS = 7, RANK = 3, OUT = 4, FIRST = 2, SAMPLES = 2 };

static struct store { // bf16 or real
    real base[SAMPLES * ROWS * COLS], h[SAMPLES * ROWS * RANK], b[OUT * RANK];
    real y[SAMPLES * ROWS * COLS], dy[SAMPLES * ROWS * COLS];
    real dbase[SAMPLES * ROWS * COLS], dh[SAMPLES * ROWS * RANK], db[OUT * RANK];
} stored[2];

static void fill(real *at, int64_t n, uint64_t key, enum dtype dtype) // numbers that bf16 holds
{
    struct array x = array_of(at, dtype);
    for (int64_t i = 0; i < n; i++) {
        real room, *to = array_open(x, i, 1, false, &room);
        *to = (real)((double)rng_below(key, (uint64_t)i, 255) / 128 - 1);
        array_close(x, i, 1, to);
    }
}

static void run_node(struct store *s, enum dtype dtype)
{
    struct tensor base = {.data = s->base, .dtype = dtype, .grad_dtype = dtype, .wants_grad = true};
    struct tensor h = base, b = base, y = base;
    tensor_shape(&base, 3, (int64_t[]){SAMPLES, ROWS, COLS});
    tensor_shape(&h, 3, (int64_t[]){SAMPLES, ROWS, RANK});
    tensor_shape(&b, 2, (int64_t[]){OUT, RANK});
    h.data = s->h;
    b.data = s->b;
    y.data = s->y;
    fill(s->base, tensor_count(&base), 1, dtype);
    fill(s->h, tensor_count(&h), 2, dtype);
    fill(s->b, tensor_count(&b), 3, dtype);
    fill(s->dy, tensor_count(&base), 4, dtype);
    fill(s->db, tensor_count(&b), 5, dtype); // and is added to
    struct node n = {.args = {.first = FIRST, .factor = 0.5},
                     .in = {&base, &h, &b},
                     .in_count = 3,
                     .out = &y,
                     .dy = s->dy,
                     .dx = {s->dbase, s->dh, s->db},
                     .adds = {false, false, true}};
    op_lora_desc.infer(&m.tape, &n);
    assert_int_equal(n.forward_work_bytes > 0, dtype != DTYPE_REAL);
    void *scratch = tape_scratch(&m.tape, "work", n.forward_work_bytes + 1);
    n.work = n.forward_work_bytes > 0 ? scratch : NULL;
    op_lora_desc.forward[DEVICE_CPU](&m.tape, &n);
    op_lora_desc.backward[DEVICE_CPU](&m.tape, &n);
    tape_scratch_give(&m.tape, scratch);
}

static void compare(const char *what, const real *at, const real *reference, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)array_get(array_of(at, DTYPE_BF16), i), y = (double)reference[i];
        if (!(fabs(x - y) <= 0x1p-8 * fabs(y) + 1e-6))
            fail_msg("%s, %lld: %g, expected %g to 8 bits", what, (long long)i, x, y);
    }
}

// Sums are made in reals and rounded once: half a unit of the 8th bit.
static void bf16_differs_by_one_rounding(void **state)
{
    (void)state;
    open_tape(&m.tape, 2);
    run_node(&stored[0], DTYPE_REAL);
    run_node(&stored[1], DTYPE_BF16);
    tape_close(&m.tape);
    compare("y", stored[1].y, stored[0].y, SAMPLES * ROWS * COLS);
    compare("dbase", stored[1].dbase, stored[0].dbase, SAMPLES * ROWS * COLS);
    compare("dh", stored[1].dh, stored[0].dh, SAMPLES * ROWS * RANK);
    compare("db", stored[1].db, stored[0].db, OUT * RANK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_of_512_to_256),
        cmocka_unit_test(the_scale_is_alpha_over_rank),
        cmocka_unit_test(what_adapters_start_from),
        cmocka_unit_test(steps_move_b_then_a_in_every_way),
        cmocka_unit_test(adapters_do_not_reduce_what_is_kept),
        cmocka_unit_test(a_frozen_table_needs_no_second_gradient),
        cmocka_unit_test(merged_weights_give_the_same_logits),
        cmocka_unit_test(targets_have_names),
        cmocka_unit_test(patterns_freeze_what_they_fit),
        cmocka_unit_test(one_alone_has_the_gradient_it_has_among_all),
        cmocka_unit_test(bf16_differs_by_one_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
