#include "src/auto.h"

#include "src/run.h"
#include "tape/text.h"

#include <string.h>

const enum tape_policy auto_policies[] = {
    POLICY_NONE,
    POLICY_LEAN,
    POLICY_SELECTIVE,
    (enum tape_policy)(POLICY_LEAN | POLICY_SELECTIVE),
    (enum tape_policy)(1 << COST_GEMM),
    (enum tape_policy)(1 << COST_GEMM | 1 << COST_CHEAP),
    POLICY_FULL,
};
const int auto_policy_count = COUNT_OF(auto_policies);

enum { POLICIES = 7, STATES_MAX = 1 << 21, TRIES_MAX = 64 };

struct price {             // of one policy for one segment
    int64_t kept_bytes;    // after its forward
    int64_t running_bytes; // most it holds itself while it runs, forward or backward
    int64_t flops;         // recomputed
};

struct state { // a choice for the segments so far
    int64_t kept_bytes, flops;
    int32_t before; // the state it extends
    unsigned char policy;
};

struct search {
    struct config *config;
    struct price price[CONFIG_SEGMENTS_MAX][POLICIES];
    int64_t head_bytes;  // the head holds this beside what all segments keep
    int64_t floor_bytes; // held when the first segment begins
    int64_t segment_count;
    struct tape scratch; // an arena of its own for the states
    struct state *state;
    int64_t first[CONFIG_SEGMENTS_MAX + 2]; // states of segment i: [first[i], first[i + 1])
    bool is_full;                           // the latest search ended for want of states
};

// ---- prices ----------------------------------------------------------------------------

static void read_prices(struct search *s, const struct tape *t, int policy)
{
    for (int i = 0; i < t->segment_count; i++) {
        const struct segment *g = &t->segment[i];
        int64_t most = g->forward_peak_bytes > g->backward_peak_bytes ? g->forward_peak_bytes
                                                                      : g->backward_peak_bytes;
        s->price[i][policy] = (struct price){.kept_bytes = g->low_after_bytes - g->low_before_bytes,
                                             .running_bytes = most - g->low_before_bytes,
                                             .flops = g->recompute_flops};
    }
    const struct segment *last = &t->segment[t->segment_count - 1];
    s->head_bytes = last->after_peak_bytes - last->low_after_bytes;
    s->floor_bytes = t->segment[0].low_before_bytes - t->begin_bytes;
}

// Of the largest micro-batch: the tape that a run leaves is the last one's, which may be smaller.
static bool measure_prices(struct search *s, struct error *e)
{
    struct config *c = s->config;
    struct step_config whole = c->step;
    bool ok = true;
    c->step.batch = c->step.micro_batch;
    for (int p = 0; ok && p < POLICIES; p++) {
        struct run r;
        c->model.policies = NULL;
        c->model.checkpoint = auto_policies[p];
        ok = run_measure(&r, c, CONFIG_PLAN, e);
        if (!ok)
            break;
        read_prices(s, &r.tape, p);
        run_close(&r);
    }
    c->step = whole;
    return ok;
}

// ---- search ----------------------------------------------------------------------------

// Sorted by bytes, FLOPs falling: a state that neither holds less nor recomputes less is dropped.
static int64_t insert(struct state *list, int64_t count, struct state add)
{
    int64_t at = count;
    while (at > 0 && list[at - 1].kept_bytes > add.kept_bytes)
        at--;
    if (at > 0 && list[at - 1].flops <= add.flops)
        return count;
    int64_t from = at > 0 && list[at - 1].kept_bytes == add.kept_bytes ? at - 1 : at, to = at;
    while (to < count && list[to].flops >= add.flops)
        to++;
    memmove(list + from + 1, list + to, (size_t)(count - to) * sizeof(*list));
    list[from] = add;
    return count - (to - from) + 1;
}

// Extends all states of segment i - 1 by every policy that stays within `bytes`.
static bool extend(struct search *s, int64_t i, int64_t bytes)
{
    struct state *list = s->state + s->first[i];
    int64_t count = 0, begin = i > 0 ? s->first[i - 1] : 0, end = i > 0 ? s->first[i] : 1;
    for (int64_t k = begin; k < end; k++)
        for (int p = 0; p < POLICIES; p++) {
            struct state from = i > 0 ? s->state[k] : (struct state){0};
            const struct price *price = &s->price[i][p];
            if (from.kept_bytes + price->running_bytes > bytes)
                continue;
            s->is_full = s->first[i] + count + 1 >= STATES_MAX;
            if (s->is_full)
                return false;
            count = insert(list, count,
                           (struct state){.kept_bytes = from.kept_bytes + price->kept_bytes,
                                          .flops = from.flops + price->flops,
                                          .before = (int32_t)k,
                                          .policy = (unsigned char)auto_policies[p]});
        }
    s->first[i + 1] = s->first[i] + count;
    return count > 0;
}

// The choice with the fewest FLOPs within `bytes` beside what is held when the segments begin.
static bool search(struct search *s, int64_t bytes)
{
    int64_t n = s->segment_count, best = -1;
    s->first[0] = 0;
    s->is_full = false;
    for (int64_t i = 0; i < n; i++)
        if (!extend(s, i, bytes))
            return false;
    for (int64_t k = s->first[n - 1]; k < s->first[n]; k++)
        if (s->state[k].kept_bytes + s->head_bytes <= bytes &&
            (best < 0 || s->state[k].flops < s->state[best].flops))
            best = k;
    for (int64_t i = n - 1; best >= 0 && i >= 0; i--) {
        s->config->policies[i] = s->state[best].policy;
        best = i > 0 ? s->state[best].before : 0;
    }
    return best >= 0;
}

// ---- the answer ------------------------------------------------------------------------

// How far the choice in config is above its budget; <= 0: it fits.
static bool excess(struct search *s, int64_t *over, int64_t *room, struct error *e)
{
    struct config *c = s->config;
    struct run r;
    c->model.policies = c->policies;
    if (!run_measure(&r, c, CONFIG_PLAN, e))
        return false;
    const struct ledger_counts *counts = &r.tape.arena.ledger.counts;
    int64_t budget = c->budget_bytes;
    if (c->activation_budget_bytes > 0) {
        int64_t stays = counts->total_peak - ledger_activation_side(counts);
        int64_t bytes = stays + c->activation_budget_bytes;
        budget = budget > 0 && budget < bytes ? budget : bytes;
    }
    *over = counts->total_peak - budget;
    *room = budget - r.tape.begin_bytes - s->floor_bytes;
    run_close(&r);
    return true;
}

// The least that any choice holds: halves the range in which the search begins to succeed.
static bool refuse_budget(struct search *s, int64_t room, struct error *e)
{
    struct config *c = s->config;
    int64_t over, ignored, fails = room < 0 ? 0 : room, fits = fails + 1;
    while (!s->is_full && !search(s, fits))
        fits *= 2;
    if (s->is_full)
        return refuse(e, "--checkpoint auto: there are too many segments to choose for; try "
                         "--segments block, or --checkpoint with a policy for all of them");
    while (fits - fails > 1) {
        int64_t middle = fails + (fits - fails) / 2;
        if (search(s, middle))
            fits = middle;
        else
            fails = middle;
    }
    if (!search(s, fits) || !excess(s, &over, &ignored, e))
        return false;
    int64_t given = c->activation_budget_bytes > 0 ? c->activation_budget_bytes : c->budget_bytes;
    return refuse(e,
                  "%lld bytes are too few: the best choice of what to recompute holds %lld more; "
                  "try a smaller --micro-batch or --seq",
                  (long long)given, (long long)over);
}

static bool choose(struct search *s, struct error *e)
{
    struct config *c = s->config;
    int64_t over, room, tight;
    memset(c->policies, POLICY_NONE, sizeof(c->policies));
    if (!measure_prices(s, e) || !excess(s, &over, &room, e))
        return false;
    if (over <= 0)
        return true; // it fits as it is
    for (int i = 0; i < TRIES_MAX; i++) {
        if (!search(s, room))
            return refuse_budget(s, room, e);
        if (!excess(s, &over, &tight, e))
            return false;
        if (over <= 0)
            return true;
        room -= over;
    }
    return refuse_budget(s, room, e);
}

bool auto_choose(struct config *c, struct error *e)
{
    static struct search s; // large
    if (!c->auto_checkpoint)
        return true;
    memset(&s, 0, sizeof(s));
    s.config = c;
    s.segment_count = gpt_segments(&c->model);
    CHECK(auto_policy_count == POLICIES && s.segment_count <= CONFIG_SEGMENTS_MAX);
    int64_t bytes = STATES_MAX * (int64_t)sizeof(struct state);
    struct plan plan = tape_plan_small(bytes);
    if (!tape_open(&s.scratch, &plan, false, c->threads, e))
        return false;
    s.state = tape_scratch(&s.scratch, "auto.states", bytes);
    c->auto_checkpoint = false; // the dry runs below are of fixed policies
    bool ok = choose(&s, e);
    c->auto_checkpoint = true;
    c->model.policies = c->policies;
    c->model.checkpoint = POLICY_NONE;
    tape_close(&s.scratch);
    return ok;
}
