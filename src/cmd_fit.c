// cmd_fit.c - memtape fit --budget BYTES: the fastest ways to train within a number of bytes.
//
// What is said is kept; what is left open is searched: micro-batch, what is recomputed, and whether
// a segment is a block or half of one. Of each kind a larger micro-batch needs more, so the largest
// that fits is found by halving. All that is printed was run dry; a time is an estimate.
#include "src/budget.h"
#include "src/commands.h"
#include "src/rates.h"
#include "src/suggest.h"
#include "tape/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
    .name = "fit",
    .summary =
        "Takes train's options and a --budget, and finds what to recompute and how to split the\n"
        "batch so that training holds no more, fastest first. Options that are given are kept.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE | OPTIONS_FIT};

enum { WAYS_MAX = 512, LINES_MAX = 12, AUTO_TRIES = 3, COMMAND_BYTES = 1 << 14 };

struct way {
    struct choice choice;
    struct cost cost;
    double seconds;
    char options[CHOICE_TEXT_BYTES];
};

struct fit {
    struct settings settings;
    struct config config;
    struct rates rates;
    struct choice base;
    struct way plain; // as it was said
    struct way way[WAYS_MAX];
    int count; // of ways; after pick_front: of the front, fastest first
    int tried; // dry runs of whole steps
    bool allows[OPTIMIZER_COUNT];
    int64_t limit_bytes;
    struct suggestion smaller[SUGGESTIONS]; // if nothing fits
    int smaller_count;
    char command[COMMAND_BYTES]; // that trains the best
};

// ---- what may change -------------------------------------------------------------------

static bool read_allowed(struct fit *f, struct error *e)
{
    static const struct {
        const char *name, *option;
    } given[] = {{"bf16", "--precision bf16"}, {"lora", "--lora R"}};
    const char *at = f->settings.allow;
    while (at != NULL && *at != 0) {
        size_t length = strcspn(at, ",");
        for (int i = 0; i < COUNT_OF(given); i++)
            if (strlen(given[i].name) == length && strncmp(at, given[i].name, length) == 0)
                return refuse(e, "--allow %s: only optimizers are searched: give %s itself",
                              given[i].name, given[i].option);
        char name[16] = "";
        enum optimizer_kind kind;
        if (length < sizeof(name))
            memcpy(name, at, length);
        if (!optimizer_find(name, &kind))
            return refuse(e,
                          "--allow %.*s: expected a list of optimizers, as sgd,adamw8bit,adafactor",
                          (int)length, at);
        f->allows[kind] = true;
        at += length + (at[length] == ',');
    }
    return true;
}

// ---- search ----------------------------------------------------------------------------

static bool try(struct fit *f, const struct choice *choice, struct cost *cost)
{
    f->tried++;
    return choice_measure(&f->config, choice, CONFIG_TRAIN, f->limit_bytes, cost);
}

static void describe(struct fit *f, struct way *w)
{
    struct choice_option option[CHOICE_OPTIONS_MAX];
    int n = choice_options(&f->settings, CONFIG_TRAIN, &f->base, &w->choice, option);
    choice_text(option, n, w->options);
    w->seconds = rates_seconds(&f->rates, &w->cost, w->choice.optimizer);
}

static void add(struct fit *f, const struct choice *choice, const struct cost *cost)
{
    if (f->count == WAYS_MAX)
        return;
    struct way *w = &f->way[f->count++];
    *w = (struct way){.choice = *choice, .cost = *cost};
    describe(f, w);
}

// Index of the largest micro-batch that fits, `count` if none does.
static int largest_fitting(struct fit *f, struct choice choice, const int64_t *size, int count)
{
    int low = 0, high = count;
    struct cost cost;
    while (low < high) {
        int middle = low + (high - low) / 2;
        choice.micro_batch = size[middle];
        if (try(f, &choice, &cost) && cost.peak_bytes <= f->limit_bytes) {
            add(f, &choice, &cost);
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// From the largest that fits on down to 1: less memory, more passes. Neighbours first, then
// thinner.
static void try_below(struct fit *f, struct choice choice, const int64_t *size, int count, int from)
{
    struct cost cost;
    for (int i = from + 1, stride = 1; i < count; i += stride, stride *= 2) {
        choice.micro_batch = size[i];
        if (try(f, &choice, &cost) && cost.peak_bytes <= f->limit_bytes)
            add(f, &choice, &cost);
    }
}

// Where keeping all does not fit and recomputing all does, auto recomputes as little as will do.
static void try_auto(struct fit *f, struct choice choice, const int64_t *size, int first, int end)
{
    struct cost cost;
    int tries = end - first < AUTO_TRIES ? end - first : AUTO_TRIES;
    choice.checkpoint = CHECKPOINT_AUTO;
    for (int i = 0; i < tries; i++) {
        int at = tries > 1 ? first + (end - 1 - first) * i / (tries - 1) : first;
        choice.micro_batch = size[at];
        if (try(f, &choice, &cost) && cost.peak_bytes <= f->limit_bytes)
            add(f, &choice, &cost);
    }
}

static void search(struct fit *f, struct choice choice)
{
    const struct settings *s = &f->settings;
    int64_t size[MICRO_BATCHES_MAX] = {choice.micro_batch};
    int count = s->micro_batch != UNSET_INT ? 1 : choice_micro_batches(choice.batch, size);
    int largest[CHECKPOINT_COUNT][2];
    for (int c = 0; c < CHECKPOINT_COUNT; c++)
        for (int half = 0; half <= 1; half++) {
            bool open = (s->checkpoint == NULL || c == (int)f->base.checkpoint) &&
                        (s->segments == NULL || half == (int)f->base.half);
            bool same = c == CHECKPOINT_NONE && half == 1 && s->segments == NULL;
            choice.checkpoint = (enum choice_checkpoint)c;
            choice.half = half != 0;
            largest[c][half] = count;
            if (!open || same)
                continue;
            if (c == CHECKPOINT_AUTO && s->checkpoint == NULL) {
                int keeps_all = largest[CHECKPOINT_NONE][s->segments != NULL ? half : 0];
                try_auto(f, choice, size, largest[CHECKPOINT_FULL][half], keeps_all);
                continue;
            }
            largest[c][half] = largest_fitting(f, choice, size, count);
            try_below(f, choice, size, count, largest[c][half]);
        }
}

static int by_time(const void *a, const void *b)
{
    const struct way *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->cost.peak_bytes < y->cost.peak_bytes ? -1 : x->cost.peak_bytes > y->cost.peak_bytes;
}

// Drops what is slower and holds more than another, or saves less than a hundredth of it.
static void pick_front(struct fit *f)
{
    int kept = 0;
    qsort(f->way, (size_t)f->count, sizeof(f->way[0]), by_time);
    for (int i = 0; i < f->count && kept < LINES_MAX; i++) {
        double before = kept > 0 ? (double)f->way[kept - 1].cost.peak_bytes : INFINITY;
        if ((double)f->way[i].cost.peak_bytes < 0.99 * before)
            f->way[kept++] = f->way[i];
    }
    f->count = kept;
}

// The best, built from its options alone: what is printed must hold what is promised.
static bool verify_best(struct fit *f, struct error *e)
{
    struct choice_option option[CHOICE_OPTIONS_MAX];
    struct cost cost;
    const struct way *best = &f->way[0];
    static struct settings said;
    int n = choice_options(&f->settings, CONFIG_TRAIN, &f->base, &best->choice, option);
    if (!choice_verify(&f->settings, &f->config, CONFIG_TRAIN, option, n, &cost) ||
        cost.peak_bytes != best->cost.peak_bytes)
        return refuse(e, "%s: its dry run holds %lld bytes, not %lld: a fault of memtape",
                      best->options, (long long)cost.peak_bytes, (long long)best->cost.peak_bytes);
    said = f->settings;
    if (!choice_set(&said, option, n, e))
        return false;
    unsigned groups = OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN | OPTIONS_SAMPLE;
    int used = snprintf(f->command, sizeof(f->command), "memtape train");
    if (said.threads != UNSET_INT)
        used += snprintf(f->command + used, sizeof(f->command) - used, " --threads %lld",
                         (long long)said.threads);
    options_command(&said, groups, f->command + used, sizeof(f->command) - used);
    return true;
}

static bool find(struct fit *f, struct error *e)
{
    f->base = choice_of(&f->config);
    f->limit_bytes = budget_limit(&f->config);
    f->plain = (struct way){.choice = f->base};
    if (f->base.checkpoint == CHECKPOINT_AUTO)
        f->plain.choice.checkpoint = CHECKPOINT_NONE;
    if (!rates_get(&f->rates, &f->config, f->settings.cache != 0, e))
        return false;
    if (try(f, &f->plain.choice, &f->plain.cost))
        describe(f, &f->plain);
    search(f, f->base);
    for (int k = 0; k < OPTIMIZER_COUNT; k++) {
        struct choice other = f->base;
        other.optimizer = (enum optimizer_kind)k;
        if (f->allows[k] && f->base.optimizer != other.optimizer)
            search(f, other);
    }
    pick_front(f);
    if (f->count > 0)
        return verify_best(f, e);
    f->smaller_count = suggest(f->smaller, &f->config, &f->settings, CONFIG_TRAIN, f->limit_bytes);
    return true;
}

// ---- report ----------------------------------------------------------------------------

static void rates_line(const struct rates *r, enum optimizer_kind optimizer)
{
    printf(
        "Rates of one thread times all (%s): products %.1f GFLOP/s, attention %.1f, the rest %.2f; "
        "update %.2f ns a weight, %.1f us a call; %s%s\n",
        r->machine, 1e-9 * r->flops_per_second[COST_GEMM],
        1e-9 * r->flops_per_second[COST_ATTENTION], 1e-9 * r->flops_per_second[COST_CHEAP],
        1e9 * r->update_seconds[optimizer], 1e6 * r->call_seconds,
        r->is_cached      ? "measured earlier, from "
        : r->path[0] != 0 ? "measured now, kept in "
                          : "measured now",
        r->path);
}

static double recompute_percent(const struct cost *c)
{
    double needed = (double)(c->total_flops - c->recompute_flops);
    return needed > 0 ? 100 * (double)c->recompute_flops / needed : 0;
}

static void way_line(const struct fit *f, const struct way *w, const char *name)
{
    char peak[TEXT_NUMBER_BYTES];
    bool is_short = w->seconds < 10;
    printf("  %-58s %15lld %9s %6.1f%% %8.1f%% %10.1f %s\n", name, (long long)w->cost.peak_bytes,
           text_from_bytes(w->cost.peak_bytes, peak),
           100 * (double)w->cost.peak_bytes / (double)f->limit_bytes, recompute_percent(&w->cost),
           is_short ? 1e3 * w->seconds : w->seconds, is_short ? "ms" : "s");
}

static void print(const struct fit *f)
{
    printf("%s, %lld parameters: batch %lld, seq %lld, within %lld bytes\n", f->config.model_name,
           (long long)f->plain.cost.params, (long long)f->base.batch, (long long)f->base.seq,
           (long long)f->limit_bytes);
    rates_line(&f->rates, f->base.optimizer);
    printf("  %-58s %15s %9s %7s %9s %13s\n", "options", "peak bytes", "", "budget", "recompute",
           "time of a step");
    way_line(f, &f->plain, "(as it was said)");
    for (int i = 0; i < f->count; i++)
        way_line(f, &f->way[i],
                 f->way[i].options[0] != 0 ? f->way[i].options : "(nothing to change)");
    if (f->count > 0)
        printf("Peaks are exact, times are estimates. The fastest that fits (%d dry runs):\n%s\n",
               f->tried, f->command);
}

static void way_json(struct json *j, const char *key, const struct fit *f, const struct way *w)
{
    json_object(j, key);
    json_text(j, "options", w->options);
    json_int(j, "batch", w->choice.batch);
    json_int(j, "micro_batch", w->choice.micro_batch);
    json_text(j, "checkpoint", choice_checkpoint_name(w->choice.checkpoint));
    json_text(j, "segments", w->choice.half ? "half" : "block");
    json_text(j, "attention", gpt_attention_name(w->choice.attention));
    json_text(j, "optimizer", optimizer_name(w->choice.optimizer));
    json_int(j, "peak_bytes", w->cost.peak_bytes);
    json_real(j, "share", (double)w->cost.peak_bytes / (double)f->limit_bytes);
    json_int(j, "recompute_flops", w->cost.recompute_flops);
    json_int(j, "flops", w->cost.total_flops);
    json_real(j, "estimated_seconds", w->seconds);
    json_end(j);
}

static void rates_json(struct json *j, const struct rates *r)
{
    json_object(j, "rates");
    json_text(j, "machine", r->machine);
    json_bool(j, "cached", r->is_cached);
    json_text(j, "file", r->path);
    json_real(j, "measured_seconds", r->measured_seconds);
    json_real(j, "gemm_flops_per_second", r->flops_per_second[COST_GEMM]);
    json_real(j, "attention_flops_per_second", r->flops_per_second[COST_ATTENTION]);
    json_real(j, "cheap_flops_per_second", r->flops_per_second[COST_CHEAP]);
    json_real(j, "call_seconds", r->call_seconds);
    for (int k = 0; k < OPTIMIZER_COUNT; k++) {
        char key[48];
        snprintf(key, sizeof(key), "%s_seconds_per_weight", optimizer_name((enum optimizer_kind)k));
        json_real(j, key, r->update_seconds[k]);
    }
    json_end(j);
}

static bool write_json(const struct fit *f, struct error *e)
{
    struct json j;
    if (!json_open(&j, f->settings.json, e))
        return false;
    json_object(&j, NULL);
    json_int(&j, "budget_bytes", f->limit_bytes);
    json_int(&j, "dry_runs", f->tried);
    rates_json(&j, &f->rates);
    way_json(&j, "plain", f, &f->plain);
    json_array(&j, "front");
    for (int i = 0; i < f->count; i++)
        way_json(&j, NULL, f, &f->way[i]);
    json_end(&j);
    if (f->count > 0)
        json_text(&j, "command", f->command);
    else
        json_null(&j, "command");
    json_array(&j, "smaller");
    for (int i = 0; i < f->smaller_count; i++) {
        json_object(&j, NULL);
        json_text(&j, "options", f->smaller[i].options);
        json_text(&j, "changes", f->smaller[i].changes);
        json_int(&j, "peak_bytes", f->smaller[i].cost.peak_bytes);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    return json_close(&j, f->settings.json, e);
}

static int say_nothing_fits(const struct fit *f)
{
    fprintf(stderr, "memtape fit: nothing that keeps what was said holds %lld bytes or less%s\n",
            (long long)f->limit_bytes,
            f->smaller_count > 0 ? "; the smallest changes that would fit:"
                                 : "; try a smaller --width or --model");
    suggest_print(stderr, f->smaller, f->smaller_count);
    return EXIT_REFUSED;
}

static bool begin(struct fit *f, struct error *e)
{
    struct settings *s = &f->settings;
    if (s->budget == NULL && s->budget_process == NULL)
        return refuse(e, "within what? expected --budget BYTES, as 800MB or 8GiB");
    if (s->activation_budget != NULL)
        return refuse(e, "--activation-budget is for train; fit goes by --budget");
    if (!read_allowed(f, e) || !config_build(&f->config, s, CONFIG_PLAN, e))
        return false;
    if (budget_of_process(&f->config, e))
        return true;
    config_close(&f->config);
    return false;
}

int cmd_fit(int argc, char **argv)
{
    static struct fit f;
    struct error e;
    int status;
    if (!command_begin(&command, &f.settings, argc, argv, &status))
        return status;
    if (!begin(&f, &e))
        return command_refuse(command.name, &e);
    bool ok = find(&f, &e);
    bool is_stdout = json_is_stdout(f.settings.json);
    if (ok && f.settings.quiet <= 0 && !is_stdout)
        print(&f);
    if (ok && f.settings.json != NULL)
        ok = write_json(&f, &e);
    config_close(&f.config);
    if (!ok)
        return command_refuse(command.name, &e);
    if (f.settings.quiet > 0 && !is_stdout && f.count > 0)
        printf("%s\n", f.command);
    return f.count > 0 ? EXIT_OK : say_nothing_fits(&f);
}
