// test_states.c - what an optimizer keeps, and masters, come back from a snapshot bit for bit, so
// that a run that stopped in the middle leaves the bits of one that did not; weights of another
// dtype are rounded or widened, and what does not fit is refused in one line.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // mkdtemp
#endif
#include "nn/safetensors.h"
#include "nn/snapshot.h"
#include "tests/test.h"
#include "tests/updated.h"

#include <unistd.h>

enum { SHAPES = COUNT_OF(updated_shapes), BEFORE = 3, STEPS = 6 };

static char directory[] = "/tmp/memtape states XXXXXX";
static char snapshot[64], model_file[96], optimizer_file[96];

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(snapshot, sizeof(snapshot), "%s/snap", directory);
    snprintf(model_file, sizeof(model_file), "%s/model.safetensors", snapshot);
    snprintf(optimizer_file, sizeof(optimizer_file), "%s/optimizer.safetensors", snapshot);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(model_file);
    unlink(optimizer_file);
    rmdir(snapshot);
    return rmdir(directory);
}

// ---- models ----

static const struct optimizer_config plain = {
    .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};

static void open_model(struct updated *x, enum optimizer_kind kind, enum precision weights)
{
    x->config = plain;
    x->config.kind = kind;
    updated_open(x, updated_shapes, SHAPES, weights, PRECISION_REAL);
}

static void take_steps(struct updated *x, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++)
        updated_step(x, step, 0.02, 2);
}

// Everything that is stored becomes 0xa5, so that what is not read shows.
static void spoil(struct updated *x)
{
    for (int i = 0; i < x->params.count; i++) {
        struct param *p = &x->params.param[i];
        struct tensor *const all[] = {&p->tensor,   &p->master,   &p->state[0],
                                      &p->state[1], &p->state[2], &p->state[3]};
        for (int j = 0; j < COUNT_OF(all); j++)
            if (all[j]->data != NULL)
                memset(all[j]->data, 0xa5, (size_t)tensor_bytes(all[j]));
    }
}

static void save(const struct updated *x, int64_t step)
{
    struct error e;
    static struct snapshot_info info;
    info = (struct snapshot_info){.step = step};
    info.model = (struct gpt_config){.layers = 1, .heads = 2, .width = 4, .context = 6, .vocab = 5};
    snprintf(info.optimizer, sizeof(info.optimizer), "%s", optimizer_name(x->config.kind));
    snprintf(info.tokenizer, sizeof(info.tokenizer), "byte");
    if (!snapshot_write(snapshot, &info, &x->params, &e))
        fail_msg("%s", e.text);
}

static bool load_state(struct updated *x, int64_t step, struct error *e)
{
    return snapshot_read_optimizer(snapshot, &x->params, step, optimizer_name(x->config.kind), e);
}

static void load_weights(struct updated *x)
{
    struct error e;
    if (!snapshot_read_weights(snapshot, &x->params, &e))
        fail_msg("%s", e.text);
}

static void a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    static struct updated whole, part;
    static char expected[UPDATED_BYTES], got[UPDATED_BYTES];
    struct error e;
    for (int k = 0; k < OPTIMIZER_COUNT; k++)
        for (int p = 0; p < PRECISION_COUNT; p++) {
            int64_t bytes, count;
            open_model(&whole, (enum optimizer_kind)k, (enum precision)p);
            take_steps(&whole, 1, BEFORE);
            save(&whole, BEFORE);
            take_steps(&whole, BEFORE + 1, STEPS);
            updated_copy(&whole, expected, &bytes);
            tape_close(&whole.tape);

            static struct snapshot_info info;
            assert_true(snapshot_read_info(snapshot, &info, &e));
            assert_int_equal(info.weights, p);
            assert_int_equal(info.step, BEFORE);
            open_model(&part, (enum optimizer_kind)k, (enum precision)p);
            spoil(&part);
            load_weights(&part);
            if (!load_state(&part, BEFORE, &e))
                fail_msg("%s", e.text);
            take_steps(&part, BEFORE + 1, STEPS);
            updated_copy(&part, got, &count);
            tape_close(&part.tape);
            assert_int_equal(count, bytes);
            if (memcmp(expected, got, (size_t)bytes) != 0)
                fail_msg("%s, %s: a resumed run has other bits",
                         optimizer_name((enum optimizer_kind)k), precision_name((enum precision)p));
        }
}

// ---- other dtypes ----

static void reals_become_a_master_and_are_rounded(void **state)
{
    (void)state;
    static struct updated from, to;
    open_model(&from, OPTIMIZER_ADAMW, PRECISION_REAL);
    take_steps(&from, 1, 1);
    save(&from, 1);
    for (int lacks = 0; lacks < 2; lacks++) {
        to.config = plain;
        to.config.no_master = lacks > 0;
        updated_open(&to, updated_shapes, SHAPES, PRECISION_BF16, PRECISION_REAL);
        spoil(&to);
        load_weights(&to);
        for (int i = 0; i < SHAPES; i++) {
            const struct param *a = &from.params.param[i], *b = &to.params.param[i];
            int64_t n = tensor_count(&a->tensor);
            static bf16 rounded[1 << 13];
            update_copy(array_of(rounded, DTYPE_BF16), updated_weights(a), n);
            assert_memory_equal(b->tensor.data, rounded, (size_t)n * sizeof(bf16));
            if (lacks == 0)
                assert_memory_equal(b->master.data, a->tensor.data, (size_t)n * sizeof(real));
        }
        tape_close(&to.tape);
    }
    tape_close(&from.tape);
}

// Adapters are not in their base's file; what is trained beside them has a master.
static void a_base_fills_masters(void **state)
{
    (void)state;
    static struct updated from, to;
    struct error e;
    from.config = to.config = plain;
    updated_open(&from, updated_shapes + 1, SHAPES - 1, PRECISION_REAL, PRECISION_REAL);
    save(&from, 1);
    updated_open(&to, updated_shapes, SHAPES, PRECISION_BF16, PRECISION_REAL);
    to.params.param[0].is_adapter = true;
    spoil(&to);
    if (!snapshot_read_base(snapshot, &to.params, &e))
        fail_msg("%s", e.text);
    for (int i = 1; i < SHAPES; i++) {
        const struct tensor *a = &from.params.param[i - 1].tensor;
        assert_memory_equal(to.params.param[i].master.data, a->data, (size_t)tensor_bytes(a));
    }
    tape_close(&from.tape);
    tape_close(&to.tape);
}

static void bf16_is_widened(void **state)
{
    (void)state;
    static struct updated from, to;
    struct error e;
    open_model(&from, OPTIMIZER_ADAMW, PRECISION_BF16);
    take_steps(&from, 1, 1);
    save(&from, 1);
    for (int p = 0; p < PRECISION_COUNT; p++) {
        open_model(&to, OPTIMIZER_ADAMW, (enum precision)p);
        spoil(&to);
        load_weights(&to); // alone: a master has no more to start from than these
        for (int i = 0; i < SHAPES; i++) {
            const struct param *a = &from.params.param[i], *b = &to.params.param[i];
            for (int64_t at = 0; at < tensor_count(&a->tensor); at++) {
                real value = array_get(updated_weights(a), at);
                assert_true(array_get(updated_weights(b), at) == value);
                assert_true(p == PRECISION_REAL || b->master.data[at] == value);
            }
        }
        if (p == PRECISION_REAL) { // whose optimizer's file has masters
            assert_false(load_state(&to, 1, &e));
            assert_non_null(strstr(e.text, ".master': got one, expected none"));
        }
        tape_close(&to.tape);
    }
    tape_close(&from.tape);
}

static void files_hold_what_is_stored(void **state)
{
    (void)state;
    static struct updated m;
    struct safetensors f;
    struct error e;
    open_model(&m, OPTIMIZER_ADAMW8BIT, PRECISION_BF16);
    save(&m, 1);
    tape_close(&m.tape);
    static const struct {
        const char *name;
        enum dtype dtype;
        int64_t count;
    } expected[] = {{"matrix.master", DTYPE_REAL, 1350}, {"matrix.v", DTYPE_REAL, 1350},
                    {"large.master", DTYPE_REAL, 4550},  {"large.m", DTYPE_U8, 4550},
                    {"large.v", DTYPE_U8, 4550},         {"large.m.absmax", DTYPE_REAL, 18},
                    {"large.v.absmax", DTYPE_REAL, 18}};
    assert_true(safetensors_open(&f, optimizer_file, &e));
    assert_int_equal(f.tensor_count, 3 + 2 * 2 + 4);
    assert_string_equal(safetensors_metadata(&f, "optimizer"), "adamw8bit");
    for (int i = 0; i < COUNT_OF(expected); i++) {
        const struct safetensors_tensor *t = safetensors_find(&f, expected[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, expected[i].dtype);
        assert_int_equal(safetensors_count(t), expected[i].count);
    }
    safetensors_close(&f);
    assert_true(safetensors_open(&f, model_file, &e));
    assert_int_equal(f.tensor_count, SHAPES);
    assert_string_equal(safetensors_metadata(&f, "version"), "2");
    assert_string_equal(safetensors_metadata(&f, "dtype"), "bf16");
    assert_int_equal(safetensors_find(&f, "large")->dtype, DTYPE_BF16);
    safetensors_close(&f);
}

static void gradients_are_widened(void **state)
{
    (void)state;
    static struct updated m;
    static real got[1 << 13];
    struct safetensors f;
    struct error e;
    char path[128];
    snprintf(path, sizeof(path), "%s/gradients.safetensors", directory);
    m.config = plain;
    updated_open(&m, updated_shapes, SHAPES, PRECISION_BF16, PRECISION_BF16);
    updated_step(&m, 1, 0.02, 2);
    assert_true(snapshot_write_gradients(path, &m.params, &e));
    assert_true(safetensors_open(&f, path, &e));
    for (int i = 0; i < SHAPES; i++) {
        const struct tensor *x = &m.params.param[i].tensor;
        const struct safetensors_tensor *t = safetensors_find(&f, updated_shapes[i].name);
        assert_int_equal(t->dtype, DTYPE_REAL);
        assert_true(safetensors_read(&f, t, got, &e));
        for (int64_t at = 0; at < tensor_count(x); at++)
            assert_true(got[at] == array_get(array_of(x->grad, DTYPE_BF16), at) && got[at] != 0);
    }
    safetensors_close(&f);
    assert_int_equal(unlink(path), 0);
    tape_close(&m.tape);
}

// ---- refused ----

static void expect_refused(struct updated *x, const char *what)
{
    struct error e;
    if (load_state(x, 1, &e))
        fail_msg("accepted, expected '%s'", what);
    if (strstr(e.text, what) == NULL || strchr(e.text, '\n') != NULL)
        fail_msg("no '%s' in one line: %s", what, e.text);
    tape_close(&x->tape);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static struct updated m, other;
    open_model(&m, OPTIMIZER_ADAMW8BIT, PRECISION_REAL);
    save(&m, 1);
    open_model(&other, OPTIMIZER_LION, PRECISION_REAL);
    expect_refused(&other, "optimizer: got 'adamw8bit', expected lion");
    open_model(&other, OPTIMIZER_ADAMW8BIT, PRECISION_BF16);
    expect_refused(&other, "tensor 'matrix.master': got none, expected shape [9, 150]");
    open_model(&other, OPTIMIZER_ADAMW8BIT, PRECISION_REAL);
    other.params.param[2].state[0].dtype = DTYPE_REAL;
    expect_refused(&other, "tensor 'large.m': got dtype u8, expected f32 or f64");
    open_model(&other, OPTIMIZER_ADAMW8BIT, PRECISION_REAL);
    other.params.param[1].state[0].dtype = DTYPE_U8;
    expect_refused(&other, "expected u8");
    open_model(&other, OPTIMIZER_ADAMW8BIT, PRECISION_REAL);
    other.params.param[2].state[3].dim[0] = 17;
    expect_refused(&other, "tensor 'large.v.absmax': got shape [18], expected [17]");
    tape_close(&m.tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(reals_become_a_master_and_are_rounded),
        cmocka_unit_test(a_base_fills_masters),
        cmocka_unit_test(bf16_is_widened),
        cmocka_unit_test(files_hold_what_is_stored),
        cmocka_unit_test(gradients_are_widened),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
