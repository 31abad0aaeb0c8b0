#include "src/suggest.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES_MAX = 24 };

struct search {
    const struct config *config;
    const struct settings *settings;
    enum config_use use;
    int64_t limit_bytes;
    struct choice base;  // what was said
    struct cost plain;   // of that, without auto
    int64_t micro_batch; // that fits alone; 0: none
    struct suggestion *found;
    int count;
};

static bool fits(struct search *s, const struct choice *choice, struct cost *cost)
{
    return choice_measure(s->config, choice, s->use, s->limit_bytes, cost) &&
           cost->peak_bytes <= s->limit_bytes;
}

static void open_search(struct search *s, const struct config *c, const struct settings *said,
                        enum config_use use, int64_t limit_bytes, struct suggestion *found)
{
    *s = (struct search){.config = c,
                         .settings = said,
                         .use = use,
                         .limit_bytes = limit_bytes,
                         .base = choice_of(c),
                         .found = found};
    struct choice plain = s->base;
    if (plain.checkpoint == CHECKPOINT_AUTO)
        plain.checkpoint = CHECKPOINT_NONE;
    choice_measure(c, &plain, use, limit_bytes, &s->plain);
}

// Kept only if a configuration built from its options alone holds what was found, and fits.
static bool add(struct search *s, const struct choice *choice, const struct cost *cost,
                const char *changes)
{
    struct choice_option option[CHOICE_OPTIONS_MAX];
    struct cost again;
    int n = choice_options(s->settings, s->use, &s->base, choice, option);
    CHECK(s->count < CANDIDATES_MAX);
    if (n == 0 || !choice_verify(s->settings, s->config, s->use, option, n, &again) ||
        again.peak_bytes != cost->peak_bytes)
        return false;
    struct suggestion *g = &s->found[s->count];
    *g = (struct suggestion){.choice = *choice, .cost = *cost, .changes = changes};
    g->rounds_differently = choice_rounds_differently(s->config, choice, &s->base);
    double more = (double)(cost->total_flops - s->plain.total_flops);
    g->compute_percent = s->plain.total_flops > 0 ? 100 * more / (double)s->plain.total_flops : 0;
    choice_text(option, n, g->options);
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->found[i].options, g->options) == 0)
            return true; // said already
    s->count++;
    return true;
}

static bool try(struct search *s, struct choice choice, const char *changes)
{
    struct cost cost;
    return fits(s, &choice, &cost) && add(s, &choice, &cost, changes);
}

// The choice with the largest micro-batch that fits; false if not even 1 does.
static bool largest_micro_batch(struct search *s, struct choice *choice, struct cost *cost)
{
    int64_t size[MICRO_BATCHES_MAX];
    int low = 0, high = choice_micro_batches(choice->batch, size); // a larger one needs more
    struct choice at = *choice;
    struct cost tried;
    bool found = false;
    while (low < high) {
        int middle = choice_middle(s->config, low, high);
        at.micro_batch = size[middle];
        if (s->use == CONFIG_EVAL)
            at.batch = at.micro_batch;
        if (fits(s, &at, &tried)) {
            found = true;
            *choice = at;
            *cost = tried;
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return found;
}

// ---- what keeps the mathematics --------------------------------------------------------

static void try_policy(struct search *s, enum choice_checkpoint checkpoint, bool with_micro_batch)
{
    struct cost cost;
    for (int half = s->base.half; half <= 1; half++) {
        struct choice choice = s->base;
        choice.checkpoint = checkpoint;
        choice.half = half != 0;
        if (!with_micro_batch) {
            if (try(s, choice, ""))
                return;
        } else if (largest_micro_batch(s, &choice, &cost) && choice.micro_batch > s->micro_batch &&
                   add(s, &choice, &cost, "")) {
            return;
        }
    }
}

// A loss by chunks changes no bit, but adapters of the head need the logits whole.
static bool may_chunk(const struct search *s)
{
    return !(s->config->model.lora.targets & LORA_HEAD);
}

// A micro-batch alone, recomputation alone, and then both: where recomputation allows a larger one.
static void try_keeping(struct search *s)
{
    struct choice choice = s->base;
    struct cost cost;
    if (largest_micro_batch(s, &choice, &cost) && add(s, &choice, &cost, ""))
        s->micro_batch = choice.micro_batch;
    choice = s->base;
    choice.chunked = true;
    if (!s->base.chunked && may_chunk(s) && !try(s, choice, "") &&
        largest_micro_batch(s, &choice, &cost) && choice.micro_batch > s->micro_batch)
        add(s, &choice, &cost, "");
    if (s->use == CONFIG_EVAL)
        return;
    if (s->base.attention == GPT_ATTENTION_NAIVE) {
        choice = s->base;
        choice.attention = GPT_ATTENTION_TILED;
        try(s, choice, "");
    }
    for (int both = 0; both <= 1; both++)
        for (int c = CHECKPOINT_LEAN; c < CHECKPOINT_COUNT; c++)
            if (c != (int)s->base.checkpoint)
                try_policy(s, (enum choice_checkpoint)c, both == 1);
}

static int by_compute(const void *a, const void *b)
{
    const struct suggestion *x = a, *y = b;
    if (x->cost.total_flops != y->cost.total_flops)
        return x->cost.total_flops < y->cost.total_flops ? -1 : 1;
    return x->cost.passes < y->cost.passes ? -1 : x->cost.passes > y->cost.passes;
}

// ---- what changes the training ---------------------------------------------------------

// The largest value below the present one that fits, in a field of `choice`.
static void try_smaller(struct search *s, struct choice *choice, int64_t *field,
                        const char *changes)
{
    int64_t low = 0, high = *field; // low fits (0: nothing known), high does not
    struct cost cost, best = {0};
    struct choice at = *choice;
    while (high - low > 1) {
        *field = low + (high - low) / 2;
        at = *choice;
        if (at.micro_batch > at.batch)
            at.micro_batch = at.batch;
        if (fits(s, &at, &cost)) {
            low = *field;
            best = cost;
        } else {
            high = *field;
        }
    }
    *field = low;
    if (low == 0)
        return;
    at = *choice;
    if (at.micro_batch > at.batch)
        at.micro_batch = at.batch;
    add(s, &at, &best, changes);
}

static struct choice thriftiest(const struct search *s)
{
    struct choice choice = s->base;
    choice.micro_batch = 1;
    choice.checkpoint = CHECKPOINT_FULL;
    choice.half = true;
    choice.attention = GPT_ATTENTION_TILED;
    choice.chunked |= may_chunk(s);
    return choice;
}

// With as little else as will do.
static bool try_optimizer(struct search *s, enum optimizer_kind kind)
{
    static const char changes[] = "changes the training: another optimizer";
    struct choice choice = s->base;
    struct cost cost;
    choice.optimizer = kind;
    if (try(s, choice, changes))
        return true;
    if (largest_micro_batch(s, &choice, &cost))
        return add(s, &choice, &cost, changes);
    choice = thriftiest(s);
    choice.optimizer = kind;
    return try(s, choice, changes);
}

// The nearest relative first: the same moments in a byte each.
static void try_optimizers(struct search *s)
{
    if (s->base.optimizer != OPTIMIZER_ADAMW || !try_optimizer(s, OPTIMIZER_ADAMW8BIT))
        try_optimizer(s, OPTIMIZER_SGD);
}

static void try_changing(struct search *s, const struct choice *from)
{
    struct choice choice = *from;
    bool owns_model = s->config->snapshot_dir[0] == 0 && s->config->base.dir[0] == 0;
    if (s->count < SUGGESTIONS && from->optimizer != OPTIMIZER_SGD && !s->config->resumes)
        try_optimizers(s);
    if (s->count < SUGGESTIONS)
        try_smaller(s, &choice, &choice.batch, "changes the training: a smaller batch");
    choice = *from;
    if (s->count < SUGGESTIONS)
        try_smaller(s, &choice, &choice.seq, "changes the training: shorter sequences");
    choice = *from;
    if (s->count < SUGGESTIONS && owns_model)
        try_smaller(s, &choice, &choice.layers, "changes the model: fewer layers");
}

// ---- the answer ------------------------------------------------------------------------

static int answer(const struct search *s, struct suggestion *list)
{
    int count = s->count < SUGGESTIONS ? s->count : SUGGESTIONS;
    memcpy(list, s->found, (size_t)count * sizeof(*list));
    return count;
}

int suggest(struct suggestion list[SUGGESTIONS], const struct config *c, const struct settings *s,
            enum config_use use, int64_t limit_bytes)
{
    static struct suggestion found[CANDIDATES_MAX];
    struct search search;
    open_search(&search, c, s, use, limit_bytes, found);
    if (use == CONFIG_GENERATE) {
        struct choice choice = search.base;
        try_smaller(&search, &choice, &choice.tokens, "a shorter text");
        return answer(&search, list);
    }
    if (search.plain.init_bytes <= limit_bytes)
        try_keeping(&search);
    qsort(found, (size_t)search.count, sizeof(*found), by_compute);
    if (use == CONFIG_EVAL)
        return answer(&search, list);
    struct choice from = search.count > 0 ? search.base : thriftiest(&search);
    try_changing(&search, &from);
    return answer(&search, list);
}

void suggest_print(FILE *f, const struct suggestion *list, int count)
{
    for (int i = 0; i < count; i++) {
        const struct suggestion *g = &list[i];
        fprintf(f, "    %-76s  %15lld bytes, ", g->options, (long long)g->cost.peak_bytes);
        if (g->changes[0] != 0)
            fprintf(f, "%s\n", g->changes);
        else if (g->cost.total_flops == 0) // no training
            fprintf(f, "no extra compute\n");
        else
            fprintf(f, "%+.1f%% compute, %lld pass%s%s\n", g->compute_percent,
                    (long long)g->cost.passes, g->cost.passes == 1 ? "" : "es",
                    g->rounds_differently ? ", rounds differently" : "");
    }
}
