// test_golden.c - a small GPT computes what PyTorch computes: every loss, gradient and learning
// rate, and the weights after ten steps of AdamW, whatever the attention, the checkpoint policy and
// the micro-batches.
//
// The expected values lie in tests/golden, written by golden.py there. Tensors are compared by
// ||ours - expected|| / ||expected||.
#include "nn/safetensors.h"
#include "nn/step.h"
#include "tests/test.h"

static const double tolerance = sizeof(real) == 8 ? 1e-10 : 2e-5;

enum { ARENA_BYTES = 1 << 23, NAME_BYTES = 64, THREADS = 2 };

struct golden {
    struct safetensors file;
    const char *name; // of the case
    struct gpt_config model;
    struct step_config step;
    int64_t steps;
    int32_t *tokens, *targets; // (steps, batch, seq)
    real *loss, *norm, *rate;  // (steps)
    char run[160];             // which of its runs this is, for messages
    double loss_worst, gradient_worst, weight_worst;
};

static struct safetensors weights;

// ---- reading ----

static void open_file(struct safetensors *f, const char *name)
{
    char path[NAME_BYTES + 32];
    struct error e;
    snprintf(path, sizeof(path), "tests/golden/%s.safetensors", name);
    if (!safetensors_open(f, path, &e))
        fail_msg("%s (tests run from the top folder)", e.text);
}

static double number(const struct safetensors *f, const char *key)
{
    const char *text = safetensors_metadata(f, key);
    if (text == NULL)
        fail_msg("%s: no %s in the metadata", f->path, key);
    return strtod(text, NULL);
}

static const struct safetensors_tensor *find(const struct safetensors *f, const char *prefix,
                                             const char *name, int64_t count)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    const struct safetensors_tensor *x = safetensors_find(f, full);
    if (x == NULL)
        fail_msg("%s: no %s", f->path, full);
    if (safetensors_count(x) != count)
        fail_msg("%s: %s has %lld elements, expected %lld", f->path, full,
                 (long long)safetensors_count(x), (long long)count);
    return x;
}

static void read_reals(const struct safetensors *f, const char *prefix, const char *name, real *out,
                       int64_t count)
{
    struct error e;
    if (!safetensors_read(f, find(f, prefix, name, count), out, &e))
        fail_msg("%s", e.text);
}

static real *new_reals(const struct safetensors *f, const char *prefix, const char *name,
                       int64_t count)
{
    real *out = test_malloc((size_t)count * sizeof(real));
    read_reals(f, prefix, name, out, count);
    return out;
}

static int32_t *new_ids(const struct safetensors *f, const char *name, int64_t count)
{
    struct error e;
    const struct safetensors_tensor *x = find(f, "", name, count);
    int32_t *out = test_malloc((size_t)count * sizeof(int32_t));
    assert_int_equal(x->dtype, DTYPE_I32);
    if (!safetensors_read_bytes(f, x, out, &e))
        fail_msg("%s", e.text);
    return out;
}

static void read_configs(struct golden *g)
{
    const struct safetensors *f = &g->file;
    g->model = (struct gpt_config){.layers = (int64_t)number(f, "layers"),
                                   .heads = (int64_t)number(f, "heads"),
                                   .width = (int64_t)number(f, "width"),
                                   .context = (int64_t)number(f, "context"),
                                   .vocab = (int64_t)number(f, "vocab"),
                                   .bias = number(f, "bias") != 0,
                                   .tie = number(f, "tie") != 0};
    g->step = (struct step_config){.batch = (int64_t)number(f, "batch"),
                                   .seq = (int64_t)number(f, "seq"),
                                   .optimizer = {.kind = OPTIMIZER_ADAMW,
                                                 .weight_decay = number(f, "weight_decay"),
                                                 .beta1 = number(f, "beta1"),
                                                 .beta2 = number(f, "beta2"),
                                                 .eps = number(f, "eps"),
                                                 .clip = number(f, "clip")},
                                   .schedule = {.rate = number(f, "rate"),
                                                .min_rate = number(f, "min_rate"),
                                                .warmup_steps = (int64_t)number(f, "warmup_steps"),
                                                .decay_steps = (int64_t)number(f, "decay_steps")}};
    g->steps = (int64_t)number(f, "steps");
}

static void golden_open(struct golden *g, const char *name)
{
    *g = (struct golden){.name = name};
    open_file(&weights, "weights");
    open_file(&g->file, name);
    read_configs(g);
    int64_t ids = g->steps * g->step.batch * g->step.seq;
    g->tokens = new_ids(&g->file, "tokens", ids);
    g->targets = new_ids(&g->file, "targets", ids);
    g->loss = new_reals(&g->file, "", "loss", g->steps);
    g->norm = new_reals(&g->file, "", "norm", g->steps);
    g->rate = new_reals(&g->file, "", "rate", g->steps);
}

static void golden_close(struct golden *g)
{
    void *owned[] = {g->tokens, g->targets, g->loss, g->norm, g->rate};
    for (int i = 0; i < COUNT_OF(owned); i++)
        test_free(owned[i]);
    safetensors_close(&g->file);
    safetensors_close(&weights);
}

// ---- comparing ----

// True for what no float32 can agree on after AdamW: the key third of a qkv bias. A constant added
// to all keys of a query leaves its softmax as it was, so the true gradient is zero; what rounding
// leaves of it AdamW divides by its own size. (In double it stays far below AdamW's eps.)
static bool is_noise(const struct golden *g, const struct param *p, int64_t i)
{
    int64_t width = g->model.width;
    bool is_key = i / width == 1;
    return sizeof(real) < 8 && is_key && strstr(p->name, "attn.c_attn.bias") != NULL;
}

static void within(const struct golden *g, const char *what, double error, double *worst)
{
    if (error > *worst)
        *worst = error;
    if (!(error <= tolerance)) // nor may it be nan
        fail_msg("%s: %s: relative error %g, expected at most %g", g->run, what, error, tolerance);
}

static void compare_number(const struct golden *g, const char *name, int64_t step, double ours,
                           double expected, double *worst)
{
    char what[NAME_BYTES * 2];
    snprintf(what, sizeof(what), "%s of step %lld is %.17g, expected %.17g", name,
             (long long)step + 1, ours, expected);
    within(g, what, fabs(ours - expected) / fabs(expected), worst);
}

static void compare_tensor(const struct golden *g, const char *prefix, const struct param *p,
                           const real *ours, bool noise_counts, double *worst)
{
    int64_t count = tensor_count(&p->tensor);
    real *expected = new_reals(&g->file, prefix, p->name, count);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!noise_counts && is_noise(g, p, i))
            continue;
        double d = (double)ours[i] - (double)expected[i];
        apart += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    test_free(expected);
    char what[NAME_BYTES];
    snprintf(what, sizeof(what), "%s%s", prefix, p->name);
    within(g, what, sqrt(apart / size), worst);
}

// ---- one run: ten steps ----

static void one_step(struct golden *g, struct step *s, struct tape *t, int64_t k)
{
    int64_t ids = g->step.batch * g->step.seq;
    struct step_result r;
    struct error e;
    memcpy(s->tokens, g->tokens + k * ids, (size_t)ids * sizeof(int32_t));
    memcpy(s->targets, g->targets + k * ids, (size_t)ids * sizeof(int32_t));
    if (!step_gradients(s, t, &r, &e))
        fail_msg("%s", e.text);
    compare_number(g, "loss", k, r.loss, (double)g->loss[k], &g->loss_worst);
    struct param_list *l = &s->gpt->params;
    for (int i = 0; k == 0 && i < l->count; i++)
        compare_tensor(g, "gradient.", &l->param[i], l->param[i].tensor.grad, true,
                       &g->gradient_worst);
    step_update(s, t, &r);
    compare_number(g, "gradient norm", k, r.gradient_norm, (double)g->norm[k], &g->gradient_worst);
    compare_number(g, "learning rate", k, r.rate, (double)g->rate[k], &g->loss_worst);
}

static void one_run(struct golden *g, enum gpt_attention attention, enum tape_policy policy,
                    int64_t micro_batch)
{
    snprintf(g->run, sizeof(g->run), "%s, %s attention, checkpoint %s, micro-batch %lld", g->name,
             gpt_attention_name(attention), tape_policy_name(policy), (long long)micro_batch);
    g->model.attention = attention;
    g->model.checkpoint = policy;
    g->step.micro_batch = micro_batch;
    struct plan plan = tape_plan_small(ARENA_BYTES);
    struct tape tape;
    struct gpt gpt;
    struct step step;
    struct error e;
    if (!gpt_config_check(&g->model, &e) || !step_config_check(&g->step, &g->model, &e) ||
        !tape_open(&tape, &plan, false, THREADS, &e))
        fail_msg("%s: %s", g->run, e.text);
    gpt_init(&gpt, &tape, &g->model);
    step_init(&step, &tape, &gpt, &g->step, true);
    struct param_list *l = &gpt.params;
    for (int i = 0; i < l->count; i++)
        read_reals(&weights, "", l->param[i].name, l->param[i].tensor.data,
                   tensor_count(&l->param[i].tensor));
    for (int64_t k = 0; k < g->steps; k++)
        one_step(g, &step, &tape, k);
    for (int i = 0; i < l->count; i++)
        compare_tensor(g, "after.", &l->param[i], l->param[i].tensor.data, false, &g->weight_worst);
    tape_close(&tape);
}

static void one_case(const char *name, int params_per_layer, int params_outside)
{
    struct golden g;
    golden_open(&g, name);
    int64_t expected = g.model.layers * params_per_layer + params_outside;
    int64_t fixed = 5, per_param = 2; // tokens, targets, loss, norm, rate; gradient and after
    assert_int_equal(g.file.tensor_count, fixed + per_param * expected);
    int clipped = 0, runs = 0;
    for (int64_t k = 0; k < g.steps; k++)
        clipped += (double)g.norm[k] > g.step.optimizer.clip;
    assert_in_range(clipped, 1, g.steps - 1); // or the files would not tell whether clipping works
    for (int a = 0; a < GPT_ATTENTION_COUNT; a++)
        for (int p = 0; p < POLICY_COUNT; p++)
            for (int64_t micro = g.step.batch; micro >= 1; micro--, runs++)
                one_run(&g, (enum gpt_attention)a, (enum tape_policy)p, micro);
    print_message("%s: %d runs; relative errors: loss %.1e, gradients %.1e, weights after %lld "
                  "steps %.1e\n",
                  name, runs, g.loss_worst, g.gradient_worst, (long long)g.steps, g.weight_worst);
    golden_close(&g);
}

static void tied_head(void **state)
{
    (void)state;
    one_case("tied", 12, 4);
}

static void untied_head(void **state)
{
    (void)state;
    one_case("untied", 12, 5);
}

static void tied_head_without_biases(void **state)
{
    (void)state;
    one_case("plain", 6, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_head),
        cmocka_unit_test(untied_head),
        cmocka_unit_test(tied_head_without_biases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
