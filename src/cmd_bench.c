// cmd_bench.c - memtape bench: the rate of a training step beside the BLAS's own, in one unit.
//
// Products and steps are timed in turn, round after round, so that a machine whose speed drifts
// slows both. Rates are of medians. A step counts 6 FLOPs per parameter and token (2 forward, 4
// backward) plus 12 L T C per token for the products of attention over the whole T x T square, as
// Kaplan et al. 2020 and nanoGPT count; embeddings that do no product are left out.
#include "src/commands.h"
#include "src/system.h"

#include "tape/blas.h"
#include "tape/cpu/bench_gemm.h"
#include "tape/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
    .name = "bench",
    .summary =
        "Times training steps of nano (batch 12) and baby (batch 4), or of one --model, and\n"
        "the BLAS at the same shapes.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN};

enum { ROUNDS = 15, WARM_UP = 3, SHAPES = 5 };

struct bench {
    struct settings settings;
    struct config config;
    struct run run;
    struct tape products; // an arena of its own for the yardstick's matrices
    real *x, *w, *y, *dx, *dw;
    double product_seconds[ROUNDS], step_seconds[ROUNDS];
    int64_t product_flops, step_flops, resident_bytes; // resident: before the yardstick's memory
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds)
{
    qsort(seconds, ROUNDS, sizeof(*seconds), by_value);
    return seconds[ROUNDS / 2];
}

static int64_t flops_of_step(const struct run *r)
{
    const struct gpt_config *m = &r->config->model;
    int64_t tokens = r->config->step.batch * r->config->step.seq;
    int64_t params = params_count(&r->gpt.params) - m->context * m->width;
    params -= m->tie ? 0 : m->vocab * m->width;
    return tokens * (6 * params + 12 * m->layers * r->config->step.seq * m->width);
}

// ---- the yardstick ---------------------------------------------------------------------

static void shapes_of(const struct config *c, struct bench_gemm shape[SHAPES])
{
    int64_t w = c->model.width, rows = c->step.micro_batch * c->step.seq;
    const struct bench_gemm all[SHAPES] = {{rows, w, 3 * w},
                                           {rows, w, w},
                                           {rows, w, 4 * w},
                                           {rows, 4 * w, w},
                                           {rows, w, c->model.vocab}};
    memcpy(shape, all, sizeof(all));
}

static bool open_products(struct bench *b, struct error *e)
{
    const struct config *c = &b->config;
    int64_t widest = 4 * c->model.width > c->model.vocab ? 4 * c->model.width : c->model.vocab;
    int64_t rows = c->step.micro_batch * c->step.seq;
    int64_t big = rows * widest, matrix = 4 * c->model.width * widest;
    int64_t size = (int64_t)sizeof(real);
    struct plan plan = tape_plan_small((3 * big + 2 * matrix) * size);
    if (!tape_open(&b->products, &plan, false, c->threads, e))
        return false;
    real **buffer[] = {&b->x, &b->y, &b->dx, &b->w, &b->dw};
    for (int i = 0; i < COUNT_OF(buffer); i++) {
        int64_t count = i < 3 ? big : matrix;
        *buffer[i] = tape_scratch(&b->products, "products", count * size);
        for (int64_t k = 0; k < count; k++)
            (*buffer[i])[k] = (real)0.01 * (real)(k % 13);
    }
    return true;
}

static double time_products(struct bench *b)
{
    struct bench_gemm shape[SHAPES];
    shapes_of(&b->config, shape);
    b->product_flops = 0;
    double start = system_seconds();
    for (int i = 0; i < SHAPES; i++) {
        int64_t times = i < SHAPES - 1 ? b->config.model.layers : 1;
        for (int64_t k = 0; k < times; k++)
            bench_gemm(&shape[i], b->config.threads, b->x, b->w, b->y, b->dx, b->dw);
        b->product_flops += 6 * times * shape[i].rows * shape[i].in * shape[i].out;
    }
    return system_seconds() - start;
}

// ---- the step --------------------------------------------------------------------------

static bool time_step(struct bench *b, double *seconds, struct error *e)
{
    struct run *r = &b->run;
    struct step_result result;
    batch_fill(&b->config.data, &b->config.shape, r->step.steps_done, r->step.tokens,
               r->step.targets);
    double start = system_seconds();
    if (!step_gradients(&r->step, &r->tape, &result, e))
        return false;
    step_update(&r->step, &r->tape, &result);
    *seconds = system_seconds() - start;
    return true;
}

static bool measure(struct bench *b, struct error *e)
{
    double ignored;
    for (int i = 0; i < WARM_UP; i++)
        if (!time_step(b, &ignored, e))
            return false;
    b->resident_bytes = system_peak_resident_bytes();
    b->step_flops = flops_of_step(&b->run);
    if (!open_products(b, e))
        return false;
    time_products(b);
    for (int i = 0; i < ROUNDS; i++) {
        b->product_seconds[i] = time_products(b);
        if (!time_step(b, &b->step_seconds[i], e)) {
            tape_close(&b->products);
            return false;
        }
    }
    tape_close(&b->products);
    return true;
}

static void report(struct bench *b, struct json *j)
{
    char resident[TEXT_NUMBER_BYTES];
    double products = median(b->product_seconds), step = median(b->step_seconds);
    double gemm_rate = 1e-9 * (double)b->product_flops / products;
    double step_rate = 1e-9 * (double)b->step_flops / step;
    double tokens = (double)(b->config.step.batch * b->config.step.seq);
    if (j == NULL) {
        printf("%-10s %6lld %8lld %9.1f %9.1f %7.2f %10.2f %10.0f %12s\n", b->config.model_name,
               (long long)b->config.step.batch, (long long)b->config.step.seq, gemm_rate, step_rate,
               step_rate / gemm_rate, 1e3 * step, tokens / step,
               text_from_bytes(b->resident_bytes, resident));
        return;
    }
    json_object(j, NULL);
    report_model_json(j, &b->config, &b->run.gpt);
    json_int(j, "threads", b->config.threads);
    json_real(j, "gemm_gflops", gemm_rate);
    json_real(j, "step_gflops", step_rate);
    json_real(j, "ratio", step_rate / gemm_rate);
    json_real(j, "step_seconds", step);
    json_real(j, "tokens_per_second", tokens / step);
    json_int(j, "resident_bytes", b->resident_bytes);
    json_end(j);
}

static bool bench_one(struct bench *b, const char *model, int64_t batch, struct json *j,
                      struct error *e)
{
    if (b->settings.model == NULL || model != NULL)
        b->settings.model = model;
    if (batch > 0)
        b->settings.batch = batch;
    if (!command_config(&b->config, &b->settings, CONFIG_TRAIN, e))
        return false;
    b->config.sample.tokens = 0; // what is timed is the step
    bool ok = command_open(&b->run, &b->config, &b->settings, CONFIG_TRAIN, e);
    if (ok) {
        ok = measure(b, e);
        if (ok)
            report(b, j);
        run_close(&b->run);
    }
    config_close(&b->config);
    return ok;
}

int cmd_bench(int argc, char **argv)
{
    static struct bench b;
    struct json j;
    struct error e, inner;
    int status;
    if (!command_begin(&command, &b.settings, argc, argv, &status))
        return status;
    bool one = b.settings.model != NULL, json = b.settings.json != NULL;
    if (json && !json_open(&j, b.settings.json, &e))
        return command_refuse(command.name, &e);
    if (json)
        json_array(&j, NULL);
    else
        printf("%s, GFLOP/s of the BLAS at the model's shapes and of whole training steps\n"
               "%-10s %6s %8s %9s %9s %7s %10s %10s %12s\n",
               blas_name(), "model", "batch", "seq", "BLAS", "step", "ratio", "ms/step", "tokens/s",
               "resident");
    bool ok = one ? bench_one(&b, b.settings.model, 0, json ? &j : NULL, &e)
                  : bench_one(&b, "nano", 12, json ? &j : NULL, &e) &&
                        bench_one(&b, "baby", 4, json ? &j : NULL, &e);
    if (json) {
        json_end(&j);
        ok &= json_close(&j, b.settings.json, ok ? &e : &inner);
    }
    return ok ? EXIT_OK : command_refuse(command.name, &e);
}
