// test_snapshot.c - whatever happens while a snapshot is written, the directory holds a whole one,
// the old or the new, and it comes back bit for bit; what does not fit is refused by name.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // mkdtemp, flock, usleep
#endif
#include "nn/safetensors.h"
#include "nn/snapshot.h"

#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "tests/test.h"

enum { PATH_MOST = 512, PARAMS = 3, WIDTH = 4, ROWS_MOST = 40000, KILLS = 50, UNSUPPORTED = 77 };

static char directory[PATH_MOST] = "/tmp/memtape it's \"\xc3\xbc\" XXXXXX";

static char *path_of(const char *name, char path[PATH_MOST])
{
    snprintf(path, PATH_MOST, "%.300s/%.190s", directory, name);
    return path;
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) == NULL || chmod(directory, 0755) != 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

static void remove_snapshot(const char *dir)
{
    char path[3 * PATH_MOST];
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/optimizer.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

static bool exists(const char *dir, const char *suffix)
{
    char path[3 * PATH_MOST];
    struct stat status;
    snprintf(path, sizeof(path), "%s%s", dir, suffix);
    return lstat(path, &status) == 0;
}

#define ASSERT_OK(call, e)                                                                         \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s", (e).text);                                                              \
    } while (0)

static void refused(bool ok, const struct error *e, const char *a, const char *b)
{
    if (ok)
        fail_msg("accepted, expected '%s' and '%s'", a, b);
    if (strchr(e->text, '\n') != NULL || strstr(e->text, a) == NULL || strstr(e->text, b) == NULL)
        fail_msg("no <%s> and <%s> in one line: %s", a, b, e->text);
}

// ---- a model without a tape: whole values that say which step they are of ----

struct model {
    struct param param[PARAMS];
    struct param_list list;
};

static real storage[2][PARAMS][4][(ROWS_MOST + 1) * WIDTH]; // [model][param][w, g, m, v]

static void model_init(struct model *x, int which, int64_t rows, bool adamw)
{
    static const char *const name[PARAMS] = {"wte.weight", "h.0.attn.c_attn.weight", "ln_f.weight"};
    *x = (struct model){.list = {.count = PARAMS, .cap = PARAMS}};
    for (int i = 0; i < PARAMS; i++) {
        struct param *p = &x->param[i];
        const int64_t dim[] = {rows + i % 2, WIDTH};
        snprintf(p->name, sizeof(p->name), "%s", name[i]);
        p->tensor.name = p->name;
        tensor_shape(&p->tensor, i == PARAMS - 1 ? 1 : 2, i == PARAMS - 1 ? dim + 1 : dim);
        p->tensor.dtype = p->tensor.grad_dtype = DTYPE_REAL;
        p->tensor.data = storage[which][i][0];
        p->tensor.grad = i == 1 ? NULL : storage[which][i][1]; // the second is frozen
        for (int k = 0; adamw && k < 2; k++) {
            struct tensor *m = &p->state[k];
            tensor_shape(m, p->tensor.dim_count, p->tensor.dim);
            m->name = k == 0 ? ".m" : ".v";
            m->dtype = DTYPE_REAL;
            m->data = storage[which][i][2 + k];
        }
    }
    x->list.param = x->param;
}

static real value_of(int64_t step, int param, int part, int64_t i)
{
    return (real)1 / (real)(1 + step * 8 + param * 4 + part + i % 13);
}

static void model_fill(struct model *x, int64_t step)
{
    for (int p = 0; p < PARAMS; p++) {
        const struct param *at = &x->param[p];
        real *const part[] = {at->tensor.data, at->tensor.grad, at->state[0].data,
                              at->state[1].data};
        for (int k = 0; k < COUNT_OF(part); k++)
            for (int64_t i = 0; part[k] != NULL && i < tensor_count(&at->tensor); i++)
                part[k][i] = value_of(step, p, k, i);
    }
}

static void expect_part(const struct param *p, int which, int part, int64_t step, const real *data)
{
    for (int64_t i = 0; data != NULL && i < tensor_count(&p->tensor); i++)
        if (data[i] != value_of(step, which, part, i))
            fail_msg("%s, part %d, element %" PRId64 ": %.9g, expected %.9g of step %" PRId64,
                     p->name, part, i, (double)data[i], (double)value_of(step, which, part, i),
                     step);
}

static void expect_model(const struct model *x, int64_t step)
{
    for (int p = 0; p < PARAMS; p++) {
        expect_part(&x->param[p], p, 0, step, x->param[p].tensor.data);
        expect_part(&x->param[p], p, 2, step, x->param[p].state[0].data);
        expect_part(&x->param[p], p, 3, step, x->param[p].state[1].data);
    }
}

static struct snapshot_info info_of(int64_t step, const char *optimizer)
{
    struct snapshot_info info = {.step = step};
    info.model = (struct gpt_config){.layers = 1,
                                     .heads = 2,
                                     .width = 4,
                                     .context = 6,
                                     .vocab = 5,
                                     .bias = true,
                                     .dropout = 0.1,
                                     .attention = GPT_ATTENTION_TILED,
                                     .checkpoint = POLICY_FULL};
    snprintf(info.optimizer, sizeof(info.optimizer), "%s", optimizer);
    snprintf(info.tokenizer, sizeof(info.tokenizer), "char:%%0A \"\\\n\xc3\xbc");
    return info;
}

static void write_step(const char *dir, struct model *x, int64_t step, const char *optimizer)
{
    struct error e;
    struct snapshot_info info = info_of(step, optimizer);
    model_fill(x, step);
    ASSERT_OK(snapshot_write(dir, &info, &x->list, &e), e);
}

// Reads everything into another model of the same shape; returns the step it is of.
static int64_t read_whole(const char *dir, int64_t rows, bool adamw)
{
    struct error e;
    struct model y;
    static struct snapshot_info info;
    const char *optimizer = adamw ? "adamw" : "sgd";
    model_init(&y, 1, rows, adamw);
    memset(storage[1], 0xff, sizeof(storage[1]));
    ASSERT_OK(snapshot_read_info(dir, &info, &e), e);
    ASSERT_OK(snapshot_read_weights(dir, &y.list, &e), e);
    ASSERT_OK(snapshot_read_optimizer(dir, &y.list, info.step, optimizer, &e), e);
    assert_string_equal(info.optimizer, optimizer);
    expect_model(&y, info.step);
    return info.step;
}

// ---- round trips ----

static void everything_comes_back(void **state)
{
    (void)state;
    static struct snapshot_info got;
    char dir[PATH_MOST], slashes[PATH_MOST];
    struct error e;
    struct model x;
    for (int adamw = 0; adamw < 2; adamw++) {
        path_of("a 'b'/\xc3\xbc \"c\"/snap", dir);
        model_init(&x, 0, 5, adamw);
        write_step(dir, &x, 7, adamw ? "adamw" : "sgd");
        struct snapshot_info info = info_of(7, adamw ? "adamw" : "sgd");
        assert_int_equal(read_whole(dir, 5, adamw), 7);
        ASSERT_OK(snapshot_read_info(path_of("a 'b'/\xc3\xbc \"c\"/snap//", slashes), &got, &e), e);
        assert_string_equal(got.tokenizer, info.tokenizer);
        ASSERT_OK(snapshot_same_model(&info.model, &got.model, &e), e);
        assert_true(got.model.dropout == info.model.dropout);
        assert_int_equal(got.model.attention, info.model.attention);
        assert_int_equal(got.model.checkpoint, info.model.checkpoint);
        remove_snapshot(dir);
    }
    rmdir(path_of("a 'b'/\xc3\xbc \"c\"", dir));
    rmdir(path_of("a 'b'", dir));
}

static void moments_have_their_names(void **state)
{
    (void)state;
    static const char *const name[] = {"ln_f.weight", "ln_f.weight.m", "ln_f.weight.v"};
    static const int part[] = {0, 2, 3};
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    struct safetensors f;
    real got[WIDTH];
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    for (int i = 0; i < COUNT_OF(name); i++) {
        path_of(i == 0 ? "snap/model.safetensors" : "snap/optimizer.safetensors", path);
        ASSERT_OK(safetensors_open(&f, path, &e), e);
        assert_int_equal(f.tensor_count, i == 0 ? PARAMS : 2 * PARAMS);
        assert_string_equal(safetensors_metadata(&f, "step"), "3");
        ASSERT_OK(safetensors_read(&f, safetensors_find(&f, name[i]), got, &e), e);
        expect_part(&x.param[2], 2, part[i], 3, got);
        safetensors_close(&f);
    }
    remove_snapshot(dir);
}

static void a_snapshot_without_an_optimizer_still_generates(void **state)
{
    (void)state;
    static struct snapshot_info info;
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    assert_int_equal(unlink(path_of("snap/optimizer.safetensors", path)), 0);
    ASSERT_OK(snapshot_read_info(dir, &info, &e), e);
    assert_string_equal(info.optimizer, "");
    ASSERT_OK(snapshot_read_weights(dir, &x.list, &e), e);
    refused(snapshot_read_optimizer(dir, &x.list, 3, "adamw", &e), &e, "optimizer.safetensors",
            "No such file");
    remove_snapshot(dir);
}

static void gradients_are_a_file(void **state)
{
    (void)state;
    char path[PATH_MOST];
    struct error e;
    struct model x;
    struct safetensors f;
    real got[64];
    model_init(&x, 0, 5, true);
    model_fill(&x, 2);
    ASSERT_OK(snapshot_write_gradients(path_of("g.safetensors", path), &x.list, &e), e);
    ASSERT_OK(safetensors_open(&f, path, &e), e);
    assert_int_equal(f.tensor_count, 2); // the frozen one has none
    const struct safetensors_tensor *t = safetensors_find(&f, "wte.weight");
    assert_int_equal(t->dim[0], 5);
    ASSERT_OK(safetensors_read(&f, t, got, &e), e);
    expect_part(&x.param[0], 0, 1, 2, got);
    assert_null(safetensors_find(&f, "h.0.attn.c_attn.weight"));
    safetensors_close(&f);
    unlink(path);
}

// ---- the other width, and metadata that others wrote ----

struct rewrite { // a model file, with one metadata value changed or left out
    const struct safetensors *f;
    float f32[64];
    double f64[64];
};

// One tensor after the other: the data must stay until it is written, so a rewrite is of one.
static struct safetensors_entry other_width(const void *user, int64_t i)
{
    struct rewrite *r = (struct rewrite *)user;
    const struct safetensors_tensor *t = &r->f->tensor[i];
    real values[64];
    assert_true(safetensors_count(t) <= COUNT_OF(values));
    assert_true(safetensors_read(r->f, t, values, NULL));
    for (int64_t k = 0; k < safetensors_count(t); k++) {
        r->f32[k] = (float)values[k];
        r->f64[k] = (double)values[k];
    }
    bool narrow = DTYPE_REAL == DTYPE_F64;
    return (struct safetensors_entry){.name = t->name,
                                      .dtype = narrow ? DTYPE_F32 : DTYPE_F64,
                                      .dim_count = t->dim_count,
                                      .dim = t->dim,
                                      .data = narrow ? (const void *)r->f32 : r->f64};
}

static void rewrite(const char *path, const char *key, const char *value)
{
    struct safetensors f;
    struct error e;
    char to[PATH_MOST + 8];
    struct safetensors_pair pair[32];
    int count = 0;
    snprintf(to, sizeof(to), "%s.new", path);
    ASSERT_OK(safetensors_open(&f, path, &e), e);
    for (int64_t i = 0; i < f.pair_count; i++) {
        bool changed = key != NULL && strcmp(f.metadata[i].key, key) == 0;
        if (changed && value == NULL)
            continue;
        pair[count] = f.metadata[i];
        if (changed)
            pair[count].value = value;
        count++;
    }
    struct rewrite r = {.f = &f};
    ASSERT_OK(safetensors_write(to, other_width, &r, f.tensor_count, pair, count, &e), e);
    safetensors_close(&f);
    assert_int_equal(rename(to, path), 0);
}

static void the_other_width_is_read(void **state)
{
    (void)state;
    char dir[PATH_MOST], model[PATH_MOST], optimizer[PATH_MOST];
    struct error e;
    struct model x;
    path_of("snap", dir);
    path_of("snap/model.safetensors", model);
    path_of("snap/optimizer.safetensors", optimizer);
    model_init(&x, 0, 5, true);
    write_step(dir, &x, 3, "adamw");
    rewrite(model, NULL, NULL);
    rewrite(optimizer, NULL, NULL);
    memset(storage[0], 0xff, sizeof(storage[0]));
    ASSERT_OK(snapshot_read_weights(dir, &x.list, &e), e);
    ASSERT_OK(snapshot_read_optimizer(dir, &x.list, 3, "adamw", &e), e);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < tensor_count(&x.param[p].tensor); i++) {
            assert_true(x.param[p].tensor.data[i] == (real)(float)value_of(3, p, 0, i));
            assert_true(x.param[p].state[1].data[i] == (real)(float)value_of(3, p, 3, i));
        }
    remove_snapshot(dir);
}

// Version 1 had reals alone, and the same names.
static void version_1_is_read(void **state)
{
    (void)state;
    char dir[PATH_MOST], path[PATH_MOST];
    struct model x;
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    for (int i = 0; i < 2; i++) { // twice, for the width that it had
        rewrite(path_of("snap/model.safetensors", path), "version", "1");
        rewrite(path_of("snap/optimizer.safetensors", path), "version", "1");
    }
    if (sizeof(real) == sizeof(float))
        assert_int_equal(read_whole(dir, 5, true), 3);
    remove_snapshot(dir);
}

static void odd_metadata_is_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *a, *b;
    } odd[] = {
        {"format", "pt", "metadata format: got 'pt'", "expected memtape"},
        {"format", NULL, "metadata format: got none", "expected memtape"},
        {"version", "3", "metadata version: got '3'", "expected 1 or 2"},
        {"step", "-1", "metadata step: got '-1'", "at least 0"},
        {"step", "1e3", "metadata step: got '1e3'", "whole number"},
        {"step", "4", "step 3, expected 4", "optimizer.safetensors"},
        {"layers", NULL, "metadata layers: got none", "whole number"},
        {"layers", "x\ny", "metadata layers: got 'x?y'", "whole number"},
        {"heads", "3", "model.safetensors'", "not divisible by heads 3"},
        {"width", "99999999999999999999", "metadata width", "whole number"},
        {"tie", "yes", "metadata tie: got 'yes'", "true or false"},
        {"dropout", "0,1", "metadata dropout: got '0,1'", "a number"},
        {"dropout", "1.5", "model.safetensors'", "dropout 1.5"},
        {"attention", "flash", "metadata attention: got 'flash'", "naive"},
        {"checkpoint", "some", "metadata checkpoint: got 'some'", "policy"},
        {"tokenizer", NULL, "metadata tokenizer: got none", "text"},
    };
    static struct snapshot_info info;
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    model_init(&x, 0, 5, true);
    for (int i = 0; i < COUNT_OF(odd); i++) {
        write_step(path_of("snap", dir), &x, 3, "adamw");
        rewrite(path_of("snap/model.safetensors", path), odd[i].key, odd[i].value);
        refused(snapshot_read_info(dir, &info, &e), &e, odd[i].a, odd[i].b);
    }
    remove_snapshot(dir);
}

// Of adapters: alone in the file, with all that their metadata say.
static void write_adapters(const char *dir, struct model *x, struct snapshot_info *info)
{
    struct error e;
    *info = info_of(3, "adamw");
    info->model.lora = (struct lora_config){
        .rank = 2, .alpha = 0.1, .targets = LORA_Q | LORA_HEAD, .trains_bias = true};
    info->base =
        (struct snapshot_base){.dir = "/a 'b'/\xc3\xbc", .seed = 9, .hash = UINT64_MAX - 4};
    model_init(x, 0, 5, true);
    x->param[0].is_left_out = true;
    x->param[0].state[0].data = x->param[0].state[1].data = NULL;
    model_fill(x, 3);
    ASSERT_OK(snapshot_write(dir, info, &x->list, &e), e);
}

static void adapters_name_their_base(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *a, *b;
    } odd[] = {
        {"lora_rank", "-1", "metadata lora_rank: got '-1'", "at least 0"},
        {"lora_rank", "5", "model.safetensors'", "rank 5: expected 1 to width 4"},
        {"lora_rank", "99999999999999999999", "metadata lora_rank", "whole number"},
        {"lora_alpha", "x", "metadata lora_alpha: got 'x'", "a number"},
        {"lora_alpha", "nan", "model.safetensors'", "nan"},
        {"lora_targets", "q,,v", "metadata lora_targets: got 'q,,v'", "names of linears"},
        {"lora_targets", NULL, "metadata lora_targets: got none", "names of linears"},
        {"lora_bias", "some", "metadata lora_bias: got 'some'", "none or all"},
        {"base", NULL, "metadata base: got none", "text"},
        {"base_seed", "-3", "metadata base_seed: got '-3'", "whole number"},
        {"base_hash", "12xy", "metadata base_hash: got '12xy'", "hexadecimal"},
    };
    static struct snapshot_info info, got;
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    write_adapters(path_of("snap", dir), &x, &info);
    ASSERT_OK(snapshot_read_info(dir, &got, &e), e);
    assert_true(snapshot_same_adapters(&got.model.lora, &info.model.lora, &e));
    assert_string_equal(got.base.dir, info.base.dir);
    assert_true(got.base.seed == info.base.seed && got.base.hash == info.base.hash);
    memset(storage[0], 0xff, sizeof(storage[0]));
    ASSERT_OK(snapshot_read_weights(dir, &x.list, &e), e); // the base's is not looked for
    x.param[0].is_left_out = false;
    refused(snapshot_read_weights(dir, &x.list, &e), &e, x.param[0].name, "got none");
    for (int i = 0; i < COUNT_OF(odd); i++) {
        write_adapters(dir, &x, &info);
        rewrite(path_of("snap/model.safetensors", path), odd[i].key, odd[i].value);
        refused(snapshot_read_info(dir, &info, &e), &e, odd[i].a, odd[i].b);
    }
    remove_snapshot(dir);
}

// What is read as a base: its own bits make the hash, one of them another.
static void a_hash_tells_bases_apart(void **state)
{
    (void)state;
    static struct snapshot_base first, second;
    char dir[PATH_MOST];
    struct error e;
    struct model x;
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    ASSERT_OK(snapshot_find_base(dir, &first, &e), e);
    ASSERT_OK(snapshot_find_base(dir, &second, &e), e);
    assert_true(first.hash == second.hash && strcmp(first.dir, second.dir) == 0);
    x.param[1].tensor.data[3] += (real)1e-6;
    struct snapshot_info info = info_of(3, "adamw");
    ASSERT_OK(snapshot_write(dir, &info, &x.list, &e), e);
    ASSERT_OK(snapshot_find_base(dir, &second, &e), e);
    assert_true(first.hash != second.hash);
    x.param[1].is_adapter = true; // which no base has
    ASSERT_OK(snapshot_write(dir, &info, &x.list, &e), e);
    refused(snapshot_read_base(dir, &x.list, &e), &e, x.param[1].name, "expected none");
    remove_snapshot(dir);
}

// ---- what does not fit ----

static void another_model_is_refused_by_tensor(void **state)
{
    (void)state;
    char dir[PATH_MOST];
    struct error e;
    struct model x, y;
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    model_init(&y, 1, 6, true);
    memset(storage[1], 0, sizeof(storage[1]));
    refused(snapshot_read_weights(dir, &y.list, &e), &e, "tensor 'wte.weight'",
            "got shape [5, 4], expected [6, 4]");
    refused(snapshot_read_optimizer(dir, &y.list, 3, "adamw", &e), &e, "tensor 'wte.weight.m'",
            "got shape [5, 4], expected [6, 4]");
    model_init(&y, 1, 5, true);
    snprintf(y.param[2].name, sizeof(y.param[2].name), "ln_g.weight");
    refused(snapshot_read_weights(dir, &y.list, &e), &e, "tensor 'ln_g.weight'",
            "got none, expected shape [4]");
    assert_true(y.param[0].tensor.data[0] == 0); // nothing was read
    y.list.count = 2;
    refused(snapshot_read_weights(dir, &y.list, &e), &e, "tensor 'ln_f.weight'",
            "got one, expected none");
    refused(snapshot_read_optimizer(dir, &y.list, 3, "adamw", &e), &e, "tensor 'ln_f.weight.",
            "got one, expected none");
    refused(snapshot_read_optimizer(dir, &x.list, 3, "sgd", &e), &e, "optimizer: got 'adamw'",
            "expected sgd");
    refused(snapshot_read_optimizer(dir, &x.list, 4, "adamw", &e), &e, "is of step 3",
            "expected 4");
    remove_snapshot(dir);
}

static void a_model_is_the_same_or_the_field_is_named(void **state)
{
    (void)state;
    struct error e;
    const struct gpt_config a = info_of(0, "").model;
    struct gpt_config b = a;
    b.dropout = 0.5;
    b.attention = GPT_ATTENTION_NAIVE;
    b.checkpoint = POLICY_NONE;
    ASSERT_OK(snapshot_same_model(&a, &b, &e), e);
    int64_t *const size[] = {&b.layers, &b.heads, &b.width, &b.context, &b.vocab};
    static const char *const name[] = {"layers: got ", "heads: got ", "width: got ",
                                       "context: got ", "vocab: got "};
    for (int i = 0; i < COUNT_OF(size); i++) {
        *size[i] += 10;
        char expected[32];
        snprintf(expected, sizeof(expected), "expected %" PRId64, *size[i]);
        refused(snapshot_same_model(&a, &b, &e), &e, name[i], expected);
        *size[i] -= 10;
    }
    b.bias = false;
    refused(snapshot_same_model(&a, &b, &e), &e, "bias: got true", "expected false");
    b = a;
    b.tie = true;
    refused(snapshot_same_model(&a, &b, &e), &e, "tie: got false", "expected true");
}

static void every_prefix_of_both_files_is_refused(void **state)
{
    (void)state;
    static const char *const name[] = {"snap/model.safetensors", "snap/optimizer.safetensors"};
    static struct snapshot_info info;
    static char bytes[8192];
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    model_init(&x, 0, 5, true);
    write_step(path_of("snap", dir), &x, 3, "adamw");
    for (int i = 0; i < COUNT_OF(name); i++) {
        int fd = open(path_of(name[i], path), O_RDWR);
        int64_t count = read(fd, bytes, sizeof(bytes));
        assert_true(count > 100 && count < (int64_t)sizeof(bytes));
        for (int64_t cut = count - 1; cut >= 0; cut--) {
            assert_int_equal(ftruncate(fd, (off_t)cut), 0);
            refused(snapshot_read_info(dir, &info, &e), &e, name[i], "expected");
        }
        assert_int_equal(pwrite(fd, bytes, (size_t)count, 0), count);
        assert_int_equal(close(fd), 0);
    }
    assert_int_equal(read_whole(dir, 5, true), 3);
    remove_snapshot(dir);
}

// ---- what stands in the way ----

static void only_a_snapshot_is_replaced(void **state)
{
    (void)state;
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    struct snapshot_info info = info_of(4, "adamw");
    model_init(&x, 0, 5, true);
    path_of("snap", dir);
    assert_int_equal(mkdir(dir, 0700), 0); // an empty directory is
    write_step(dir, &x, 3, "adamw");
    int fd = open(path_of("snap/notes.txt", path), O_CREAT | O_WRONLY, 0600);
    refused(snapshot_write(dir, &info, &x.list, &e), &e, "cannot replace it",
            "it holds 'notes.txt', which is no part of a snapshot");
    close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_whole(dir, 5, true), 3);
    assert_int_equal(symlink(dir, path_of("link", path)), 0);
    refused(snapshot_write(path, &info, &x.list, &e), &e, "link'", "it is a link");
    assert_int_equal(unlink(path), 0);
    path_of("snap/model.safetensors", path);
    refused(snapshot_write(path, &info, &x.list, &e), &e, "cannot replace it", "no directory");
    path_of("snap/model.safetensors/below", path);
    refused(snapshot_write(path, &info, &x.list, &e), &e, "cannot create", "directory");
    refused(snapshot_write(".", &info, &x.list, &e), &e, "'.'", "a directory of its own");
    refused(snapshot_write("", &info, &x.list, &e), &e, "''", "a directory of its own");
    refused(snapshot_write("/", &info, &x.list, &e), &e, "'/'", "a directory of its own");
    char *deep = malloc(10000);
    assert_non_null(deep);
    memset(deep, 'x', 9999);
    deep[9999] = 0;
    refused(snapshot_write(deep, &info, &x.list, &e), &e, "xxx...'", "too long");
    refused(snapshot_read_info(deep, &info, &e), &e, "xxx...'", "too long");
    free(deep);
    assert_int_equal(read_whole(dir, 5, true), 3);
    assert_false(exists(dir, ".memtape-tmp"));
    remove_snapshot(dir);
    unlink(path_of("snap/model.safetensors.memtape-tmp", path));
}

static void a_live_writer_is_not_disturbed_and_a_dead_one_is_cleaned_up(void **state)
{
    (void)state;
    char dir[PATH_MOST], path[PATH_MOST];
    struct error e;
    struct model x;
    struct snapshot_info info = info_of(4, "adamw");
    model_init(&x, 0, 5, true);
    path_of("snap", dir);
    write_step(dir, &x, 3, "adamw");
    assert_int_equal(mkdir(path_of("snap.memtape-tmp", path), 0700), 0);
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refused(snapshot_write(dir, &info, &x.list, &e), &e, "snap.memtape-tmp", "another process");
    close(fd); // as death does
    fd = open(path_of("snap.memtape-tmp/model.safetensors", path), O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    assert_int_equal(read_whole(dir, 5, true), 3);
    write_step(dir, &x, 4, "adamw");
    assert_int_equal(read_whole(dir, 5, true), 4);
    assert_false(exists(dir, ".memtape-tmp"));
    remove_snapshot(dir);
}

// Where the system cannot exchange, a writer may die between its two renames.
static void a_snapshot_moved_aside_is_found(void **state)
{
    (void)state;
    char dir[PATH_MOST], aside[PATH_MOST];
    struct model x;
    model_init(&x, 0, 5, true);
    path_of("snap", dir);
    write_step(dir, &x, 3, "adamw");
    assert_int_equal(rename(dir, path_of("snap.memtape-old", aside)), 0);
    assert_int_equal(read_whole(dir, 5, true), 3);
    write_step(dir, &x, 4, "adamw");
    assert_int_equal(read_whole(dir, 5, true), 4);
    assert_false(exists(dir, ".memtape-old"));
    remove_snapshot(dir);
}

static void an_unwritable_place_is_named(void **state)
{
    (void)state;
    char above[PATH_MOST], dir[PATH_MOST];
    struct error e;
    struct model x;
    struct snapshot_info info = info_of(4, "adamw");
    model_init(&x, 0, 5, true);
    assert_int_equal(mkdir(path_of("locked", above), 0555), 0);
    bool is_root = geteuid() == 0;
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    bool ok = snapshot_write(path_of("locked/snap", dir), &info, &x.list, &e);
    bool deep = snapshot_write(path_of("locked/a/snap", dir), &info, &x.list, NULL);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    refused(ok, &e, "locked/snap.memtape-tmp': cannot create it: Permission denied",
            "expected a place that can be written");
    assert_false(deep);
    assert_int_equal(rmdir(above), 0);
}

static void a_full_disk_leaves_the_old_one(void **state)
{
    (void)state;
    char dir[PATH_MOST];
    struct model x;
    model_init(&x, 0, 500, true);
    path_of("snap", dir);
    write_step(dir, &x, 3, "adamw");
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { // a limit on file size: a short write, then a refusal
        struct error e = {""};
        const struct rlimit limit = {10000, 10000};
        struct snapshot_info info = info_of(4, "adamw");
        signal(SIGXFSZ, SIG_IGN);
        bool ok = setrlimit(RLIMIT_FSIZE, &limit) == 0 && snapshot_write(dir, &info, &x.list, &e);
        _exit(!ok && strstr(e.text, "after 10000 bytes") != NULL &&
                      strstr(e.text, "room for the whole file") != NULL
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read_whole(dir, 500, true), 3);
    assert_false(exists(dir, ".memtape-tmp"));
    remove_snapshot(dir);
}

// ---- kill -9 ----

// Makes the call that exchanges two names fail as on a system without it; rename() stays.
static bool forbid_exchange(void)
{
#if defined(__linux__) && defined(SYS_renameat2)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 38), // ENOSYS
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = COUNT_OF(filter), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
    return false;
#endif
}

static void save_for_ever(const char *dir, struct model *x, int64_t step, bool may_exchange)
{
    if (!may_exchange && !forbid_exchange())
        _exit(UNSUPPORTED);
    for (;; step++) {
        struct error e;
        struct snapshot_info info = info_of(step, "adamw");
        model_fill(x, step);
        if (!snapshot_write(dir, &info, &x->list, &e))
            _exit(1);
    }
}

static unsigned save_us(const char *dir, struct model *x, int64_t step)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    write_step(dir, x, step, "adamw");
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (unsigned)((b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000) + 1000;
}

static void kill_while_saving(bool may_exchange, int64_t rows)
{
    char dir[PATH_MOST], path[2 * PATH_MOST];
    struct model x;
    int64_t step = 2;
    int left_temporary = 0, left_aside = 0;
    bool supported = true;
    model_init(&x, 0, rows, true);
    path_of("snap", dir);
    write_step(dir, &x, 1, "adamw");
    unsigned longest_us = 4 * save_us(dir, &x, step);
    srand(1);
    for (int i = 0; i < KILLS; i++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save_for_ever(dir, &x, step + 1, may_exchange);
        usleep((unsigned)rand() % longest_us);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        supported = !WIFEXITED(status) || WEXITSTATUS(status) != UNSUPPORTED;
        if (!supported)
            break;
        assert_true(WIFSIGNALED(status)); // it never failed to write
        int64_t found = read_whole(dir, rows, true);
        assert_true(found >= step);
        step = found;
        left_temporary += exists(dir, ".memtape-tmp");
        left_aside += !exists(dir, "");
    }
    print_message("%d kills, %d left a temporary, %d no directory; %" PRId64 " steps saved\n",
                  KILLS, left_temporary, left_aside, step);
    write_step(dir, &x, step + 1, "adamw");
    assert_int_equal(read_whole(dir, rows, true), step + 1);
    assert_false(exists(dir, ".memtape-tmp"));
    assert_false(exists(dir, ".memtape-old"));
    remove_snapshot(dir);
    snprintf(path, sizeof(path), "%s.memtape-tmp", dir);
    remove_snapshot(path);
    if (!supported)
        skip();
}

static void a_kill_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    kill_while_saving(true, 4000);
}

static void so_it_does_where_names_cannot_be_exchanged(void **state)
{
    (void)state;
    kill_while_saving(false, 10);
}

static void a_comma_locale_changes_nothing(void **state)
{
    if (!test_set_comma_locale())
        skip();
    everything_comes_back(state);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(moments_have_their_names),
        cmocka_unit_test(a_snapshot_without_an_optimizer_still_generates),
        cmocka_unit_test(gradients_are_a_file),
        cmocka_unit_test(the_other_width_is_read),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(odd_metadata_is_refused_by_key),
        cmocka_unit_test(adapters_name_their_base),
        cmocka_unit_test(a_hash_tells_bases_apart),
        cmocka_unit_test(another_model_is_refused_by_tensor),
        cmocka_unit_test(a_model_is_the_same_or_the_field_is_named),
        cmocka_unit_test(every_prefix_of_both_files_is_refused),
        cmocka_unit_test(only_a_snapshot_is_replaced),
        cmocka_unit_test(a_live_writer_is_not_disturbed_and_a_dead_one_is_cleaned_up),
        cmocka_unit_test(a_snapshot_moved_aside_is_found),
        cmocka_unit_test(an_unwritable_place_is_named),
        cmocka_unit_test(a_full_disk_leaves_the_old_one),
        cmocka_unit_test(a_kill_leaves_the_old_or_the_new),
        cmocka_unit_test(so_it_does_where_names_cannot_be_exchanged),
        cmocka_unit_test(a_comma_locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
