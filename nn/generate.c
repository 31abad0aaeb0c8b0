#include "nn/generate.h"

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

void generate_init(struct generate *s, struct tape *t, struct gpt *g,
                   const struct generate_config *c)
{
    *s = (struct generate){.config = *c, .gpt = g};
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
}

void generate_close(struct generate *s, struct tape *t)
{
    arena_give(&t->arena, s->window);
    s->window = NULL;
}

void generate_prompt(struct generate *s, struct tape *t, const int32_t *prompt, int64_t count)
{
    int64_t context = s->gpt->config.context;
    CHECK(count > 0);
    s->length = count < context ? count : context;
    if (!tape_is_dry(t))
        memcpy(s->window, prompt + count - s->length, (size_t)s->length * sizeof(int32_t));
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
    real least = k < vocab ? kth_largest(logits, vocab, heap, k) : -(real)INFINITY;
    double max = (double)vec_max(logits, vocab), sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += logits[i] < least ? 0 : exp(((double)logits[i] - max) / s->config.temperature);
    double left = sum * rng_uniform(rng_key(s->config.seed, RNG_SAMPLE), (uint64_t)s->made);
    int32_t last = 0;
    for (int32_t i = 0; i < vocab; i++) {
        if (logits[i] < least)
            continue;
        last = i;
        left -= exp(((double)logits[i] - max) / s->config.temperature);
        if (left < 0)
            return i;
    }
    return last;
}

static int32_t choose(const struct generate *s, struct tape *t, const struct tensor *logits)
{
    int64_t vocab = s->gpt->config.vocab, k = s->config.top_k;
    if (s->config.temperature <= 0)
        return tape_is_dry(t) ? 0 : likeliest(logits->data, vocab);
    real *heap = k > 0 ? tape_scratch(t, "generate.top_k", k * (int64_t)sizeof(real)) : NULL;
    int32_t id = tape_is_dry(t) ? 0 : draw(s, logits->data, vocab, heap);
    if (heap != NULL)
        tape_scratch_give(t, heap);
    return id;
}

int32_t generate_next(struct generate *s, struct tape *t)
{
    int64_t context = s->gpt->config.context;
    tape_begin(t, PHASE_GENERATE, 0);
    tape_enter(t, "%s", "");
    struct tensor *x = gpt_hidden(t, s->gpt, s->window, NULL, 1, s->length);
    x = op_rows(t, x, s->length - 1, 1);
    tape_enter(t, "head");
    int32_t id = choose(s, t, tape_leave(t, gpt_logits(t, s->gpt, x)));
    tape_leave(t, NULL);
    s->made++;
    if (!tape_is_dry(t) && s->length == context)
        memmove(s->window, s->window + 1, (size_t)(context - 1) * sizeof(int32_t));
    s->length += s->length < context;
    if (!tape_is_dry(t))
        s->window[s->length - 1] = id;
    return id;
}

// The longest windows of all lengths modulo ALIGN: bytes grow with the length, but what rounding up
// adds to them (padding) goes around and around.
void generate_longest(struct generate *s, struct tape *t, int64_t prompt_count)
{
    enum { ALIGN = ARENA_ALIGN_BYTES / sizeof(float) };
    int64_t last = prompt_count + s->config.tokens - 1, context = s->gpt->config.context;
    CHECK(tape_is_dry(t));
    if (s->config.tokens < 1)
        return;
    int64_t first = prompt_count < context ? prompt_count : context;
    last = last < context ? last : context;
    first = first > last - ALIGN + 1 ? first : last - ALIGN + 1;
    for (s->length = first; s->length < last;)
        generate_next(s, t); // one token longer
    generate_next(s, t);
}
