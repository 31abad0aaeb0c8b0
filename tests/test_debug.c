// test_debug.c - no printer of tape/debug.h changes a byte of the range, of the tape or of a
// tensor; finite differences agree with every op's backward, and not with a wrong one.
#define _DEFAULT_SOURCE // fileno
#include "nn/step.h"
#include "tape/array.h"
#include "tape/debug.h"
#include "tests/test.h"

#include <unistd.h>

enum { BATCH = 2, SEQ = 6, OUTPUT_BYTES = 1 << 18 };

static struct tape tape;
static struct gpt gpt;
static const int32_t ids[BATCH * SEQ] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
static const int32_t targets[BATCH * SEQ] = {1, 4, 1, 5, 9, 2, 6, -100, 3, 5, 8, 9};

// ---- what a printer says ----

static FILE *said;
static int real_stdout;

static void listen(void)
{
    fflush(stdout);
    said = tmpfile();
    real_stdout = dup(STDOUT_FILENO);
    assert_non_null(said);
    assert_true(dup2(fileno(said), STDOUT_FILENO) >= 0);
}

static const char *heard(void)
{
    static char text[OUTPUT_BYTES];
    fflush(stdout);
    dup2(real_stdout, STDOUT_FILENO);
    close(real_stdout);
    rewind(said);
    size_t length = fread(text, 1, sizeof(text) - 1, said);
    text[length] = 0;
    fclose(said);
    return text;
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected to read \"%s\" in:\n%s", part, text);
}

static void assert_silent_about(const char *text, const char *part)
{
    if (strstr(text, part) != NULL)
        fail_msg("did not expect to read \"%s\" in:\n%s", part, text);
}

// ---- a model with a forward behind it ----

static struct tensor *open_model(enum gpt_attention attention, enum tape_policy checkpoint,
                                 enum dtype activations)
{
    struct error e;
    struct plan plan = tape_plan_small(4 << 20);
    const struct gpt_config c = {.layers = 1,
                                 .heads = 2,
                                 .width = 8,
                                 .context = SEQ,
                                 .vocab = 10,
                                 .bias = true,
                                 .tie = false,
                                 .dropout = 0.2,
                                 .attention = attention,
                                 .checkpoint = checkpoint};
    assert_true(tape_open(&tape, &plan, false, 1, &e));
    gpt_init(&gpt, &tape, &c);
    params_start(&gpt.params, &tape, 1);
    for (int i = 0; i < gpt.params.count; i++) { // larger than at the start of training
        struct tensor *w = &gpt.params.param[i].tensor;
        for (int64_t k = 0; k < tensor_count(w); k++)
            w->data[k] += (real)((k * 7 + i) % 11 - 5) / 20;
    }
    params_add_grads(&gpt.params, &tape);
    tape.activation_dtype = activations;
    tape_begin(&tape, PHASE_FORWARD, 0);
    tape_enter(&tape, "%s", "");
    struct tensor *loss = gpt_loss(&tape, &gpt, ids, targets, NULL, BATCH, SEQ);
    tape_leave(&tape, NULL);
    return loss;
}

static void print_everything(void)
{
    debug_tape(&tape);
    debug_ledger(&tape);
    debug_arena(&tape);
    debug_live(&tape);
    for (int i = -1; i <= tape.node_count; i++) {
        debug_node(&tape, i);
        debug_check(&tape, i);
    }
    for (int i = 0; i < tape.tensor_count; i++) {
        debug_tensor(&tape, tape.tensor[i].name);
        debug_grad(&tape, tape.tensor[i].name);
        debug_why(&tape, tape.tensor[i].name);
    }
    for (int i = 0; i < gpt.params.count; i++) {
        debug_tensor(&tape, gpt.params.param[i].name);
        debug_grad(&tape, gpt.params.param[i].name);
        debug_why(&tape, gpt.params.param[i].name);
    }
    debug_find(&tape, "nothing.of.that.name");
}

static void expect_no_change(void)
{
    size_t bytes = (size_t)tape.arena.cap_bytes;
    char *before = malloc(bytes);
    struct tape tape_before = tape;
    assert_non_null(before);
    memcpy(before, tape.arena.base, bytes);
    listen();
    print_everything();
    const char *text = heard();
    assert_memory_equal(before, tape.arena.base, bytes);
    assert_memory_equal(&tape_before, &tape, sizeof(tape));
    assert_silent_about(text, "DIFFER");
    free(before);
}

static void expect_checks_agree(void)
{
    for (int i = 0; i < tape.node_count; i++) {
        listen();
        debug_check(&tape, i);
        const char *text = heard();
        if (tape.node[i].op->grad == GRAD_IS_VIEW)
            assert_says(text, "nothing to check");
        else
            assert_says(text, "they agree");
    }
}

static void expect_printers_only_read(enum dtype activations)
{
    static const enum tape_policy policies[] = {POLICY_NONE, POLICY_FULL};
    for (int a = 0; a < GPT_ATTENTION_COUNT; a++)
        for (int p = 0; p < COUNT_OF(policies); p++) {
            struct tensor *loss = open_model((enum gpt_attention)a, policies[p], activations);
            expect_no_change();
            expect_checks_agree(); // before backward, on a random dy
            tape_backward(&tape, loss, 1);
            expect_no_change();
            expect_checks_agree(); // all is given back: computed again from the weights
            tape_close(&tape);
        }
}

static void test_printers_only_read(void **state)
{
    (void)state;
    expect_printers_only_read(DTYPE_REAL);
}

static void test_bf16_is_read_as_numbers(void **state)
{
    (void)state;
    expect_printers_only_read(DTYPE_BF16);
    open_model(GPT_ATTENTION_TILED, POLICY_NONE, DTYPE_BF16);
    const struct tensor *x = debug_find(&tape, "h.0.attn.c_attn");
    assert_non_null(x);
    assert_says(debug_text(&tape, x), "h.0.attn.c_attn bf16[2,6,24] 576 B saved for node");
    listen();
    debug_tensor(&tape, x->name);
    char expected[40];
    snprintf(expected, sizeof(expected), "     [0,0] %10.4g",
             (double)array_get(array_of(x->data, x->dtype), 0));
    assert_says(heard(), expected);
    tape_close(&tape);
}

// ---- an op whose backward is wrong ----

static void twice_infer(struct tape *t, struct node *n)
{
    (void)t;
    tensor_like(n->out, n->in[0]);
}

static void twice_forward(struct tape *t, struct node *n)
{
    (void)t;
    for (int64_t i = 0; i < tensor_count(n->out); i++)
        n->out->data[i] = 2 * n->in[0]->data[i];
}

static void wrong_backward(struct tape *t, struct node *n)
{
    (void)t;
    for (int64_t i = 0; i < tensor_count(n->out); i++)
        n->dx[0][i] = (real)2.1 * n->dy[i];
}

static const struct op wrong = {.name = "wrong",
                                .formula = "y = 2 x",
                                .keeps = "nothing",
                                .infer = twice_infer,
                                .forward = {twice_forward},
                                .backward = {wrong_backward}};

// A tape that begins with one parameter, (2,3).
static void open_with(struct tensor *x)
{
    struct error e;
    struct plan plan = tape_plan_small(4096);
    assert_true(tape_open(&tape, &plan, false, 1, &e));
    tensor_persistent(x, &tape.arena, "x", LEDGER_WEIGHTS, 2, (int64_t[]){2, 3});
    tensor_add_grad(x, &tape.arena);
    for (int i = 0; i < 6; i++)
        x->data[i] = (real)(i + 1);
    tape_begin(&tape, PHASE_FORWARD, 0);
    tape_enter(&tape, "model");
}

static void test_a_wrong_backward_is_seen(void **state)
{
    (void)state;
    struct tensor x;
    open_with(&x);
    tape_apply(&tape, &wrong, 1, (struct tensor *[]){&x}, NULL);
    listen();
    debug_check(&tape, 0);
    const char *text = heard();
    assert_says(text, "THEY DIFFER");
    tape_close(&tape);
}

// An input that is read twice has one gradient.
static void test_x_and_x(void **state)
{
    (void)state;
    struct tensor x;
    open_with(&x);
    op_add(&tape, &x, &x);
    op_mul(&tape, &x, &x);
    expect_checks_agree();
    tape_close(&tape);
}

// ---- words ----

static void test_words(void **state)
{
    (void)state;
    open_model(GPT_ATTENTION_NAIVE, POLICY_NONE, DTYPE_REAL);
    const struct tensor *x = debug_find(&tape, "h.0.attn.c_attn");
    char expected[200];
    snprintf(expected, sizeof(expected), "h.0.attn.c_attn %s[2,6,24] %d B saved for nodes ",
             dtype_name(DTYPE_REAL), 288 * (int)sizeof(real));
    assert_non_null(x);
    assert_says(debug_text(&tape, x), expected);
    assert_string_equal(debug_text(NULL, NULL), "(no tensor)");
    assert_int_equal(debug_offset(x, 1, 2), 26);

    const struct tensor *view = debug_find(&tape, "h.0.attn.core.split_heads#4");
    assert_non_null(view);
    assert_says(debug_text(&tape, view), "a view of h.0.attn.c_attn");
    assert_int_equal(debug_offset(view, SEQ + 1, 2), view->stride[1] + view->stride[2] + 2);

    listen();
    assert_null(debug_find(&tape, "h.0.attn.cattn"));
    assert_says(heard(), "no tensor is called h.0.attn.cattn; close: h.0.attn.c_attn");
    listen();
    assert_null(debug_find(&tape, "h.0.attn.core.split_heads"));
    assert_says(heard(), "say which, h.0.attn.core.split_heads#4 or");
    listen();
    debug_node(&tape, 99);
    assert_says(heard(), "node 99: this tape has nodes 0 to ");
    listen();
    assert_int_equal(debug_offset(x, 12, 0), -1);
    assert_says(heard(), "has rows 0 to 11 and columns 0 to 23");
    listen();
    debug_tape(NULL);
    assert_says(heard(), "no tape here");
    tape_close(&tape);
}

// Before a node reads it, a parameter is found in the ledger.
static void test_parameters_are_found_early(void **state)
{
    (void)state;
    struct error e;
    struct plan plan = tape_plan_small(4096);
    struct tensor x;
    assert_true(tape_open(&tape, &plan, false, 1, &e));
    tensor_persistent(&x, &tape.arena, "x", LEDGER_WEIGHTS, 2, (int64_t[]){2, 2});
    tensor_add_grad(&x, &tape.arena);
    const struct tensor *found = debug_find(&tape, "x");
    assert_non_null(found);
    assert_ptr_equal(found->data, x.data);
    assert_ptr_equal(found->grad, x.grad);
    assert_int_equal(tensor_count(found), 4);
    tape_close(&tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printers_only_read),
        cmocka_unit_test(test_bf16_is_read_as_numbers),
        cmocka_unit_test(test_a_wrong_backward_is_seen),
        cmocka_unit_test(test_x_and_x),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_parameters_are_found_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
