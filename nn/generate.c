#include "nn/generate.h"

#include "tape/array.h"
#include "tape/cpu/vec.h"
#include "tape/rng.h"

#include <string.h>

bool generate_config_check(const struct generate_config *c, const struct gpt_config *model,
                           struct error *e)
{
    if (c->tokens < 0)
        return refuse(e, "tokens %lld: expected 0 or more", (long long)c->tokens);
    if (!(c->temperature >= 0) || !isfinite(c->temperature))
        return refuse(e, "temperature %g: expected 0 (the likeliest token) or more",
                      c->temperature);
    if (c->top_k < 0 || c->top_k > model->vocab)
        return refuse(e, "top-k %lld: expected 0 (all) to the vocabulary's %lld",
                      (long long)c->top_k, (long long)model->vocab);
    enum { PROMPT_MAX = 1 << 16, PASSES = 64 }; // what 64 bits of FLOPs are checked for
    int64_t window = c->tokens + PROMPT_MAX;
    window = window < model->context ? window : model->context;
    return c->tokens == 0 || gpt_pass_check(model, 1, PASSES, window, 1, e);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void generate_init(struct generate *s, struct tape *t, struct gpt *g,
                   const struct generate_config *c, int64_t prompt_count)
{
    CHECK(prompt_count > 0 && c->tokens >= 0);
    *s = (struct generate){.config = *c, .gpt = g, .prompt_count = prompt_count};
    int64_t context = g->config.context;
    struct ledger_label label = {.name = "generate.window",
                                 .category = LEDGER_BATCH,
                                 .dtype = DTYPE_I32,
                                 .dim_count = 1,
                                 .dim = &context,
                                 .node = -1};
    arena_lap(&t->arena);
    ledger_enter_phase(&t->arena.ledger, PHASE_GENERATE);
    s->window = arena_push(&t->arena, ARENA_LOW, context * (int64_t)sizeof(int32_t), &label);
    s->length = least(prompt_count, context);
    if (!c->kv_cache)
        return;
    s->cache_tokens = least(prompt_count + c->tokens, context);
    gpt_cache_place(g, t, s->cache_tokens);
}

void generate_close(struct generate *s, struct tape *t)
{
    if (s->cache_tokens > 0)
        gpt_cache_give(s->gpt, t);
    arena_give(&t->arena, s->window);
    s->window = NULL;
}

void generate_prompt(struct generate *s, struct tape *t, const int32_t *prompt)
{
    if (!tape_is_dry(t))
        memcpy(s->window, prompt + s->prompt_count - s->length,
               (size_t)s->length * sizeof(int32_t));
}

// The k-th largest of x: the smallest of a heap of the k largest so far.
static real kth_largest(const real *x, int64_t n, real *heap, int64_t k)
{
    int64_t size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (size == k && x[i] <= heap[0])
            continue;
        int64_t at = size < k ? size++ : 0;
        if (at > 0) { // grow: sift up
            for (; at > 0 && heap[(at - 1) / 2] > x[i]; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
        } else { // replace the root: sift down
            for (int64_t child; (child = 2 * at + 1) < size; at = child) {
                child += child + 1 < size && heap[child + 1] < heap[child];
                if (heap[child] >= x[i])
                    break;
                heap[at] = heap[child];
            }
        }
        heap[at] = x[i];
    }
    return heap[0];
}

static int32_t likeliest(const real *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

// Inverts the cumulative distribution at one random number.
static int32_t draw(const struct generate *s, const real *logits, int64_t vocab, real *heap)
{
    int64_t k = s->config.top_k > 0 ? s->config.top_k : vocab;
    real floor = k < vocab ? kth_largest(logits, vocab, heap, k) : -(real)INFINITY;
    double max = (double)vec_max(logits, vocab), sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += logits[i] < floor ? 0 : exp(((double)logits[i] - max) / s->config.temperature);
    double left = sum * rng_uniform(rng_key(s->config.seed, RNG_SAMPLE), (uint64_t)s->made);
    int32_t last = 0;
    for (int32_t i = 0; i < vocab; i++) {
        if (logits[i] < floor)
            continue;
        last = i;
        left -= exp(((double)logits[i] - max) / s->config.temperature);
        if (left < 0)
            return i;
    }
    return last;
}

static int32_t choose_from(const struct generate *s, struct tape *t, const real *logits)
{
    int64_t vocab = s->gpt->config.vocab, k = s->config.top_k;
    if (s->config.temperature <= 0)
        return tape_is_dry(t) ? 0 : likeliest(logits, vocab);
    real *heap = k > 0 ? tape_scratch(t, "generate.top_k", k * (int64_t)sizeof(real)) : NULL;
    int32_t id = tape_is_dry(t) ? 0 : draw(s, logits, vocab, heap);
    if (heap != NULL)
        tape_scratch_give(t, heap);
    return id;
}

static int32_t choose(const struct generate *s, struct tape *t, const struct tensor *x)
{
    int64_t vocab = s->gpt->config.vocab;
    real *room = NULL;
    const real *logits = x->data;
    if (x->dtype != DTYPE_REAL)
        room = tape_scratch(t, "generate.logits", vocab * (int64_t)sizeof(real));
    if (!tape_is_dry(t)) {
        logits = array_read(tensor_data(x), 0, vocab, room);
        if (s->logits != NULL)
            memcpy(s->logits, logits, (size_t)vocab * sizeof(real));
    }
    int32_t id = choose_from(s, t, logits);
    if (room != NULL)
        tape_scratch_give(t, room);
    return id;
}

// The newest half stays, and begins at position 0: nothing that is cached holds for it.
static void drop_oldest(struct generate *s, const struct tape *t)
{
    int64_t dropped = s->length - s->length / 2;
    s->length -= dropped;
    s->cached = 0;
    if (!tape_is_dry(t))
        memmove(s->window, s->window + dropped, (size_t)s->length * sizeof(int32_t));
}

static void append(struct generate *s, const struct tape *t, int32_t id)
{
    s->cached = s->cache_tokens > 0 ? s->length : 0;
    if (s->length == s->gpt->config.context)
        drop_oldest(s, t);
    if (!tape_is_dry(t))
        s->window[s->length] = id;
    s->length++;
    s->made++;
}

int32_t generate_next(struct generate *s, struct tape *t)
{
    struct gpt *g = s->gpt;
    int64_t count = s->length - s->cached;
    tape_begin(t, PHASE_GENERATE, 0);
    tape_enter(t, "%s", "");
    g->uses_cache = s->cache_tokens > 0;
    g->cached = s->cached;
    struct tensor *x = gpt_hidden(t, g, s->window + s->cached, NULL, 1, count);
    x = op_rows(t, x, count - 1, 1);
    tape_enter(t, "head");
    int32_t id = choose(s, t, tape_leave(t, gpt_logits(t, g, x)));
    tape_leave(t, NULL);
    g->uses_cache = false;
    append(s, t, id);
    return id;
}

// Bytes depend on how many positions go through the model at once, and grow with that; what
// rounding up adds to them (padding) goes around and around. So of the run's passes, the longest
// of each size modulo ALIGN is made, in the order of the run: the first to reach the peak names it.
// All sizes are seen by the time when the context is full for the second time.
void generate_longest(struct generate *s, struct tape *t)
{
    enum { ALIGN = ARENA_ALIGN_BYTES / sizeof(bf16) };
    int64_t longest[ALIGN] = {0}, twice = 2 * s->gpt->config.context + 1;
    int64_t passes = least(s->config.tokens, twice);
    const struct generate start = *s;
    CHECK(tape_is_dry(t));
    for (int round = 0; round < 2; round++) {
        *s = start;
        for (int64_t i = 0; i < passes; i++) {
            struct generate before = *s;
            int64_t count = s->length - s->cached, *most = &longest[count % ALIGN];
            if (round == 0 && count > *most)
                *most = count;
            append(s, t, 0);
            if (round == 0 || count != *most)
                continue;
            *most = 0; // once
            generate_next(&before, t);
        }
    }
    *s = start;
}
