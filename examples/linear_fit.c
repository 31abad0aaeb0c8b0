// linear_fit.c - gradient descent by hand: find w and b of y = w x + b from eight points.
//
// A step: clear the gradients, forward, backward, w = w - rate dw. Nobody else clears a gradient;
// backward only adds, which is what makes accumulation possible (accumulate.c).
#include "tape/ops/ops.h"

#include <stdio.h>

enum { POINTS = 8, STEPS = 40 };

static const double rate = 0.1;

// One number per point: (w x + b - y)^2. The first dimension of what ops read counts samples.
static struct tensor *squared_errors(struct tape *t, struct tensor *x, struct tensor *w,
                                     struct tensor *b, struct tensor *y)
{
    struct tensor *guess = op_linear(t, x, w, b); // (POINTS, 1)
    struct tensor *error = op_sub(t, guess, y);   // (POINTS, 1)
    return op_sum_squares(t, error);              // (POINTS)
}

static void descend(const struct tensor *p)
{
    for (int64_t i = 0; i < tensor_count(p); i++)
        p->data[i] -= (real)rate * p->grad[i];
}

int main(void)
{
    struct tape t;
    struct error e;
    struct plan plan = tape_plan_small(4096);
    if (!tape_open(&t, &plan, false, 1, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }

    struct tensor x, y, w, b;
    tensor_persistent(&x, &t.arena, "x", LEDGER_BATCH, 2, (int64_t[]){POINTS, 1});
    tensor_persistent(&y, &t.arena, "y", LEDGER_BATCH, 2, (int64_t[]){POINTS, 1});
    tensor_persistent(&w, &t.arena, "w", LEDGER_WEIGHTS, 2, (int64_t[]){1, 1}); // (out, in)
    tensor_persistent(&b, &t.arena, "b", LEDGER_WEIGHTS, 1, (int64_t[]){1});
    tensor_add_grad(&w, &t.arena);
    tensor_add_grad(&b, &t.arena);
    w.data[0] = b.data[0] = 0;
    for (int i = 0; i < POINTS; i++) {
        x.data[i] = (real)(i - 3) / 2; // -1.5, -1, ... 2
        y.data[i] = 2 * x.data[i] - 1;
    }

    int64_t kept_bytes = 0;
    for (int step = 0; step <= STEPS; step++) {
        tensor_zero_grad(&t.arena, &w);
        tensor_zero_grad(&t.arena, &b);
        tape_begin(&t, PHASE_FORWARD, 0);
        tape_enter(&t, "fit");
        struct tensor *loss = squared_errors(&t, &x, &w, &b, &y);
        double sum = 0;
        for (int i = 0; i < POINTS; i++)
            sum += (double)loss->data[i];
        tape_leave(&t, NULL); // from here on, only what backward reads is held
        kept_bytes = t.arena.ledger.counts.now[LEDGER_SAVED_ACTIVATIONS];
        tape_backward(&t, loss, (real)1 / POINTS); // the gradient of the mean
        if (step % 10 == 0)
            printf("step %2d  loss %7.4f  w %6.3f  b %6.3f\n", step, sum / POINTS,
                   (double)w.data[0], (double)b.data[0]);
        descend(&w);
        descend(&b);
    }

    // The ledger knows: of guess, error and loss, backward needs only the eight errors.
    printf("%d nodes on the tape; kept for backward: %lld bytes\n", t.node_count,
           (long long)kept_bytes);
    tape_close(&t);
    return 0;
}
