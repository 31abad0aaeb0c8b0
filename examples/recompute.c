// recompute.c - checkpoint segments: keep less in forward, compute it again in backward.
//
// A segment is a range of nodes. Under policy none it keeps all that its backward reads; under full
// only its input. Backward then runs the forwards of the nodes whose bytes are missing, just before
// it needs them. Fewer bytes, more work, and not one bit of any gradient changes. The linear that
// ends a layer is never replayed: its output only feeds a sum, and no backward reads that.
#include "nn/param.h"
#include "tape/ops/ops.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 6, BATCH = 4, ROWS = 16, WIDTH = 32, PARAMS = 2 * LAYERS + 1 };
enum { COUNT = (LAYERS * 8 + 1) * WIDTH * WIDTH }; // elements of all parameters

struct outcome {
    int64_t kept_bytes, peak_bytes, recomputed_bytes; // kept: between forward and backward
    int64_t forward_flops, recompute_flops;
    real gradient[COUNT];
};

// x + down(gelu(up(x))), as one segment: WIDTH -> 4 WIDTH -> WIDTH.
static struct tensor *layer(struct tape *t, struct tensor *x, struct param *up, struct param *down,
                            enum tape_policy policy, int number)
{
    tape_segment_begin(t, policy, x, "layer.%d", number);
    struct tensor *h = op_gelu(t, op_linear(t, x, &up->tensor, NULL));
    struct tensor *y = op_add(t, x, op_linear(t, h, &down->tensor, NULL));
    return tape_segment_end(t, y);
}

struct stack {
    struct param_list params; // first, then up and down of each layer
    struct tensor data;
};

static void stack_init(struct stack *s, struct tape *t)
{
    params_open(&s->params, t, PARAMS);
    param_add(&s->params, t, WIDTH, WIDTH, PARAM_NORMAL, 0.1, "first");
    for (int i = 0; i < LAYERS; i++) {
        param_add(&s->params, t, 4 * WIDTH, WIDTH, PARAM_NORMAL, 0.1, "up.%d", i);
        param_add(&s->params, t, WIDTH, 4 * WIDTH, PARAM_NORMAL, 0.1, "down.%d", i);
    }
    params_start(&s->params, t, 1);
    params_add_grads(&s->params, t);
    tensor_persistent(&s->data, &t->arena, "x", LEDGER_BATCH, 3, (int64_t[]){BATCH, ROWS, WIDTH});
    for (int64_t i = 0; i < tensor_count(&s->data); i++)
        s->data.data[i] = (real)(i * 7 % 11 - 5) / 5;
}

static void gradient(const struct stack *s, real *out)
{
    for (int i = 0; i < s->params.count; i++) {
        const struct tensor *w = &s->params.param[i].tensor;
        memcpy(out, w->grad, (size_t)tensor_bytes(w));
        out += tensor_count(w);
    }
}

static bool run(enum tape_policy policy, struct outcome *o, struct error *e)
{
    struct tape t;
    struct stack s;
    struct plan plan = tape_plan_small(4 << 20);
    if (!tape_open(&t, &plan, false, 1, e))
        return false;
    stack_init(&s, &t);
    const struct ledger_counts *counts = &t.arena.ledger.counts;
    int64_t before_bytes = counts->total_now;

    tape_begin(&t, PHASE_FORWARD, 0);
    tape_enter(&t, "model");
    struct param *p = s.params.param;
    struct tensor *x = op_linear(&t, &s.data, &p[0].tensor, NULL);
    for (int i = 0; i < LAYERS; i++)
        x = layer(&t, x, &p[2 * i + 1], &p[2 * i + 2], policy, i);
    struct tensor *loss = op_sum_squares(&t, x);
    tape_leave(&t, NULL);
    o->kept_bytes = counts->now[LEDGER_SAVED_ACTIVATIONS];
    tape_backward(&t, loss, 1);

    o->peak_bytes = ledger_peak(&t.arena.ledger) - before_bytes; // of what the step adds
    o->recomputed_bytes = counts->peak[LEDGER_RECOMPUTED];
    o->forward_flops = t.flops[PHASE_FORWARD];
    o->recompute_flops = t.flops[PHASE_RECOMPUTE];
    gradient(&s, o->gradient);
    tape_close(&t);
    return true;
}

static void show(const char *name, const struct outcome *o)
{
    printf("%-5s %9lld %11lld %9lld %9lld %11lld\n", name, (long long)o->kept_bytes,
           (long long)o->recomputed_bytes, (long long)o->peak_bytes, (long long)o->forward_flops,
           (long long)o->recompute_flops);
}

int main(void)
{
    static struct outcome none, full;
    struct error e;
    if (!run(POLICY_NONE, &none, &e) || !run(POLICY_FULL, &full, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("%d layers; bytes kept for backward, recomputed (most at one time) and at the peak of\n"
           "the step; FLOPs of forward and of the replays\n",
           LAYERS);
    printf("%-5s %9s %11s %9s %9s %11s\n", "", "kept", "recomputed", "peak", "forward", "replayed");
    show("none", &none);
    show("full", &full);
    int differ = 0;
    for (int i = 0; i < COUNT; i++)
        differ += memcmp(&none.gradient[i], &full.gradient[i], sizeof(real)) != 0;
    printf("gradients: %d of %d numbers differ\n", differ, COUNT);
    return 0;
}
