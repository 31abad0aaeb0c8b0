#include "src/report.h"

#include "src/system.h"
#include "tape/text.h"

struct report_outside report_measure_outside(const struct run *r)
{
    int64_t ours = r->tape.arena.cap_bytes, now = system_resident_bytes();
    int64_t peak = system_peak_resident_bytes();
    return (struct report_outside){.now_bytes = now > ours ? now - ours : 0,
                                   .peak_bytes = peak > ours ? peak - ours : 0};
}

static void category_json(struct json *j, const char *name, int64_t at_peak, int64_t peak,
                          int64_t now)
{
    json_object(j, name);
    json_int(j, "at_peak", at_peak);
    json_int(j, "peak", peak);
    json_int(j, "now", now);
    json_end(j);
}

void report_memory_json(struct json *j, const struct ledger_counts *c,
                        const struct report_outside *outside)
{
    struct report_outside none = {0};
    const struct report_outside *o = outside != NULL ? outside : &none;
    json_object(j, "memory");
    json_int(j, "peak_bytes", c->total_peak);
    json_text(j, "peak_phase", ledger_phase_name(c->peak_phase));
    json_text(j, "peak_tensor", c->peak_name);
    json_int(j, "activation_side", ledger_activation_side(c));
    json_int(j, "saved_for_backward", c->kept_bytes);
    json_object(j, "categories");
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        category_json(j, ledger_category_name((enum ledger_category)i), c->at_peak[i], c->peak[i],
                      c->now[i]);
    category_json(j, "outside", o->peak_bytes, o->peak_bytes, o->now_bytes);
    json_end(j);
    json_object(j, "phases");
    for (int i = 0; i < PHASE_COUNT; i++)
        json_int(j, ledger_phase_name((enum ledger_phase)i), c->phase_peak[i]);
    json_end(j);
    json_end(j);
}

void report_process_json(struct json *j, int64_t arena_bytes, int64_t outside_bytes)
{
    int64_t available = system_available_bytes(), all = arena_bytes + outside_bytes;
    json_object(j, "process");
    json_int(j, "predicted_resident_bytes", all);
    json_int(j, "outside_bytes", outside_bytes);
    json_int(j, "available_bytes", available);
    json_bool(j, "fits", available == 0 || all <= available);
    json_end(j);
}

void report_process_line(FILE *f, int64_t arena_bytes, int64_t outside_bytes)
{
    char all[TEXT_NUMBER_BYTES], outside[TEXT_NUMBER_BYTES], available[TEXT_NUMBER_BYTES];
    int64_t have = system_available_bytes();
    fprintf(
        f, "The process: %s resident at its peak, of it %s outside the arena (measured here now)",
        text_from_bytes(arena_bytes + outside_bytes, all), text_from_bytes(outside_bytes, outside));
    if (have > 0)
        fprintf(f, "; this machine has %s available: it %s", text_from_bytes(have, available),
                arena_bytes + outside_bytes <= have ? "fits" : "does not fit");
    fprintf(f, ".\n");
}

static void report_lora_json(struct json *j, const struct lora_config *l)
{
    char targets[LORA_TARGETS_BYTES];
    if (l->rank == 0)
        return;
    json_object(j, "lora");
    json_int(j, "rank", l->rank);
    json_real(j, "alpha", l->alpha);
    json_text(j, "targets", lora_write_targets(l->targets, targets));
    json_text(j, "bias", l->trains_bias ? "all" : "none");
    json_end(j);
}

void report_gpt_json(struct json *j, const char *name, const struct gpt_config *m, int64_t params,
                     int64_t trainable)
{
    json_object(j, "model");
    if (name != NULL)
        json_text(j, "name", name);
    json_int(j, "params", params);
    if (trainable >= 0)
        json_int(j, "trainable_params", trainable);
    json_text(j, "precision", precision_name(m->weights));
    json_int(j, "layers", m->layers);
    json_int(j, "heads", m->heads);
    json_int(j, "width", m->width);
    json_int(j, "context", m->context);
    json_int(j, "vocab", m->vocab);
    json_bool(j, "bias", m->bias);
    json_bool(j, "tie", m->tie);
    json_real(j, "dropout", m->dropout);
    json_text(j, "attention", gpt_attention_name(m->attention));
    json_text(j, "checkpoint", tape_policy_name(m->checkpoint));
    json_text(j, "weights", precision_name(m->weights));
    json_text(j, "activations", precision_name(m->activations));
    report_lora_json(j, &m->lora);
    json_end(j);
}

void report_model_json(struct json *j, const struct config *c, const struct gpt *g)
{
    report_gpt_json(j, c->model_name, &c->model, params_count(&g->params),
                    params_trainable(&g->params));
}

void report_flops_json(struct json *j, const struct tape *t)
{
    json_object(j, "flops");
    for (int i = PHASE_FORWARD; i <= PHASE_RECOMPUTE; i++)
        json_int(j, ledger_phase_name((enum ledger_phase)i), t->flops[i]);
    json_end(j);
}

// A line, if anything is stored in less than it is computed in.
static void storage_line(FILE *f, const struct config *c, const struct gpt *g)
{
    const struct gpt_config *m = &c->model;
    bool has_masters = false, has_gradients = false;
    for (int i = 0; i < g->params.count; i++) {
        has_masters |= g->params.param[i].master.data != NULL;
        has_gradients |= g->params.param[i].tensor.grad != NULL;
    }
    bool gradients_are_less = has_gradients && g->params.gradients != PRECISION_REAL;
    if (m->weights == PRECISION_REAL && m->activations == PRECISION_REAL && !gradients_are_less)
        return;
    fprintf(f, "stored: weights %s%s", precision_name(m->weights),
            has_masters ? " with f32 masters" : "");
    if (has_gradients)
        fprintf(f, ", gradients %s%s", precision_name(g->params.gradients),
                !gradients_are_less && !c->says_gradients && c->step.micro_batch < c->step.batch
                    ? " (over several micro-batches bf16 would stall)"
                    : "");
    fprintf(f, ", activations %s\n", precision_name(m->activations));
}

void report_model_line(FILE *f, const struct config *c, const struct gpt *g)
{
    const struct gpt_config *m = &c->model;
    int64_t params = params_count(&g->params), trainable = params_trainable(&g->params);
    char trains[64] = "";
    if (trainable < params)
        snprintf(trains, sizeof(trains), ", %lld of them trained", (long long)trainable);
    fprintf(f,
            "%s: %lld parameters%s; %lld layers, %lld heads, width %lld, context %lld, vocabulary "
            "%lld, head %s\n",
            c->model_name, (long long)params, trains, (long long)m->layers, (long long)m->heads,
            (long long)m->width, (long long)m->context, (long long)m->vocab,
            m->tie ? "tied" : "untied");
    storage_line(f, c, g);
}

// What was held, divided by the tokens that there was room for.
static int64_t cache_token_bytes(const struct run *r)
{
    int64_t tokens = r->generate.cache_tokens;
    return tokens > 0 ? r->tape.arena.ledger.counts.peak[LEDGER_KV_CACHE] / tokens : 0;
}

void report_cache_json(struct json *j, const struct run *r)
{
    json_object(j, "kv_cache");
    json_int(j, "bytes", r->tape.arena.ledger.counts.peak[LEDGER_KV_CACHE]);
    json_int(j, "tokens", r->generate.cache_tokens);
    json_int(j, "bytes_per_token", cache_token_bytes(r));
    json_text(j, "dtype", dtype_name(r->tape.activation_dtype));
    json_end(j);
}

void report_cache_line(FILE *f, const struct run *r)
{
    const struct gpt_config *m = &r->config->model;
    char readable[TEXT_NUMBER_BYTES];
    int64_t bytes = r->tape.arena.ledger.counts.peak[LEDGER_KV_CACHE];
    if (bytes == 0) {
        fprintf(f, "No cache of keys and values: the whole window is computed for each token.\n");
        return;
    }
    fprintf(f,
            "Keys and values: %lld bytes (%s) for %lld tokens, %lld a token: 2 x %lld layers x "
            "width %lld, in %s.\n",
            (long long)bytes, text_from_bytes(bytes, readable), (long long)r->generate.cache_tokens,
            (long long)cache_token_bytes(r), (long long)m->layers, (long long)m->width,
            dtype_name(r->tape.activation_dtype));
}

static void table_row(FILE *f, const char *name, int64_t at_peak, int64_t total, int64_t peak,
                      int64_t now)
{
    char readable[TEXT_NUMBER_BYTES];
    if (peak == 0)
        return;
    fprintf(f, "  %-22s %15lld %10s %5.1f%% %15lld %15lld\n", name, (long long)at_peak,
            text_from_bytes(at_peak, readable),
            total > 0 ? 100 * (double)at_peak / (double)total : 0, (long long)peak, (long long)now);
}

void report_memory_table(FILE *f, const struct ledger_counts *c,
                         const struct report_outside *outside)
{
    char readable[TEXT_NUMBER_BYTES];
    fprintf(f, "Memory in bytes. Highest in %s, at the birth of %s:\n",
            ledger_phase_name(c->peak_phase), c->peak_name);
    fprintf(f, "  %-22s %15s %10s %6s %15s %15s\n", "category", "at the peak", "", "", "own peak",
            "now");
    for (int i = 0; i < LEDGER_CATEGORY_COUNT; i++)
        table_row(f, ledger_category_name((enum ledger_category)i), c->at_peak[i], c->total_peak,
                  c->peak[i], c->now[i]);
    table_row(f, "total", c->total_peak, c->total_peak, c->total_peak, c->total_now);
    if (outside != NULL && outside->peak_bytes > 0)
        fprintf(f, "  %-22s %15lld %10s   not ours: code, libc, threads, BLAS buffers\n", "outside",
                (long long)outside->peak_bytes, text_from_bytes(outside->peak_bytes, readable));
    fprintf(f, "Peak of each phase:");
    for (int i = 0; i < PHASE_COUNT; i++)
        if (c->phase_peak[i] > 0)
            fprintf(f, "  %s %s", ledger_phase_name((enum ledger_phase)i),
                    text_from_bytes(c->phase_peak[i], readable));
    fprintf(f, "\n");
}
