// spirals.c - a multilayer perceptron learns which of two spirals a point lies on.
//
// The parts of nn/ that are not about language: a list of parameters and an optimizer. The model is
// a function that calls ops; there is no class to inherit from and nothing to register.
#include "nn/optimizer.h"
#include "tape/ops/ops.h"
#include "tape/rng.h"

#include <math.h>
#include <stdio.h>

enum { ARMS = 2, PER_ARM = 96, POINTS = ARMS * PER_ARM, HIDDEN = 32, STEPS = 600, SEED = 1 };

struct mlp {
    struct param_list params;
    struct param *w1, *b1, *w2, *b2, *w3, *b3;
};

static void mlp_init(struct mlp *m, struct tape *t)
{
    struct param_list *l = &m->params;
    params_open(l, t, 6);
    m->w1 = param_add(l, t, HIDDEN, 2, PARAM_NORMAL, 1, "w1");
    m->b1 = param_add(l, t, 0, HIDDEN, PARAM_ZEROS, 0, "b1");
    m->w2 = param_add(l, t, HIDDEN, HIDDEN, PARAM_NORMAL, 1 / sqrt(HIDDEN), "w2");
    m->b2 = param_add(l, t, 0, HIDDEN, PARAM_ZEROS, 0, "b2");
    m->w3 = param_add(l, t, ARMS, HIDDEN, PARAM_NORMAL, 1 / sqrt(HIDDEN), "w3");
    m->b3 = param_add(l, t, 0, ARMS, PARAM_ZEROS, 0, "b3");
    params_start(l, t, SEED);
    params_add_grads(l, t);
}

static struct tensor *mlp_logits(struct mlp *m, struct tape *t, struct tensor *x)
{
    struct tensor *h = op_tanh(t, op_linear(t, x, &m->w1->tensor, &m->b1->tensor));
    h = op_tanh(t, op_linear(t, h, &m->w2->tensor, &m->b2->tensor));
    return op_linear(t, h, &m->w3->tensor, &m->b3->tensor);
}

// Two arms of one and a half turns, half a turn apart, with a little noise.
static void make_spirals(struct tensor *x, int32_t arm_of[POINTS])
{
    uint64_t key = rng_key(SEED, RNG_TEST);
    for (int i = 0; i < POINTS; i++) {
        int arm = i % ARMS;
        double along = (i / ARMS + 0.5) / PER_ARM;
        double angle = 3 * acos(-1) * along + acos(-1) * arm, radius = 0.2 + 1.8 * along;
        arm_of[i] = arm;
        x->data[2 * i] = (real)(radius * cos(angle) + 0.03 * rng_normal(key, 2 * i));
        x->data[2 * i + 1] = (real)(radius * sin(angle) + 0.03 * rng_normal(key, 2 * i + 1));
    }
}

static int right(const struct tensor *logits, const int32_t arm_of[POINTS])
{
    int count = 0;
    for (int i = 0; i < POINTS; i++)
        count += (logits->data[ARMS * i + 1] > logits->data[ARMS * i]) == (arm_of[i] == 1);
    return count;
}

// Forward only: in phase eval nothing is kept, and there is nothing to walk back.
static int evaluate(struct mlp *m, struct tape *t, struct tensor *x, const int32_t arm_of[POINTS])
{
    tape_begin(t, PHASE_EVAL, 0);
    tape_enter(t, "mlp");
    int count = right(mlp_logits(m, t, x), arm_of);
    tape_leave(t, NULL);
    return count;
}

int main(void)
{
    struct tape t;
    struct error e;
    struct plan plan = tape_plan_small(1 << 20);
    if (!tape_open(&t, &plan, false, 1, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct mlp m = {0};
    struct tensor x;
    int32_t arm_of[POINTS];
    const struct optimizer_config adamw = {
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    mlp_init(&m, &t);
    optimizer_init(&adamw, &m.params, &t);
    tensor_persistent(&x, &t.arena, "x", LEDGER_BATCH, 3, (int64_t[]){1, POINTS, 2}); // one sample
    make_spirals(&x, arm_of);

    printf("%lld parameters, %d points\n", (long long)params_count(&m.params), POINTS);
    printf("before training: %d right\n", evaluate(&m, &t, &x, arm_of));
    for (int step = 1; step <= STEPS; step++) {
        params_zero_grads(&m.params, &t);
        tape_begin(&t, PHASE_FORWARD, 0);
        tape_enter(&t, "mlp");
        struct tensor *loss = op_cross_entropy(&t, mlp_logits(&m, &t, &x), arm_of);
        tape_leave(&t, NULL);
        tape_backward(&t, loss, (real)1 / POINTS);
        optimizer_update(&adamw, &m.params, &t, step, 0.01, 0); // the last number: for clipping
    }
    printf("after %d steps: %d right\n", STEPS, evaluate(&m, &t, &x, arm_of));
    tape_close(&t);
    return 0;
}
