// by_hand.c - a linear and a softmax, 2 x 2, with numbers that can be checked on paper.
//
//   y = x w^T      x = 1 2   w = 1   -1       y = -1    2.697
//                      2 1       1/2 ln 3          1    2.099
//   p = softmax of each row of y up to the diagonal    = 1    0
//                                                        1/4  3/4     because e^(ln 3) = 3
//   loss = sum of p squared = 1 + 1/16 + 9/16
//
// Backward, from the loss: dp = 2 p. A row of the softmax: dy[j] = p[j] (dp[j] - sum of dp p); the
// sum of row 1 is 1/4 1/2 + 3/4 3/2 = 5/4, so dy = 0 0, -3/16 3/16. And dw = dy^T x, dx = dy w.
// docs/gdb.md steps through it in the debugger: make gdb EXAMPLE=by_hand
#include "tape/ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void place(struct tape *t, struct tensor *x, const char *name, int dim_count,
                  const real values[4])
{
    tensor_persistent(x, &t->arena, name, LEDGER_WEIGHTS, dim_count,
                      dim_count == 2 ? (int64_t[]){2, 2} : (int64_t[]){1, 1, 2, 2});
    memcpy(x->data, values, 4 * sizeof(real));
    tensor_add_grad(x, &t->arena);
}

static void show(const char *name, const real *v)
{
    printf("%-4s %8.4g %8.4g\n     %8.4g %8.4g\n", name, (double)v[0], (double)v[1], (double)v[2],
           (double)v[3]);
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
    struct tensor x, w;
    place(&t, &x, "x", 4, (const real[]){1, 2, 2, 1}); // one sample, one head, 2 x 2
    place(&t, &w, "w", 2, (const real[]){1, -1, (real)0.5, (real)log(3)});

    tape_begin(&t, PHASE_FORWARD, 0);
    tape_enter(&t, "by_hand");
    struct tensor *y = op_linear(&t, &x, &w, NULL);
    show("y", y->data);
    struct tensor *p = op_causal_softmax(&t, y); // writes over y
    show("p", p->data);
    struct tensor *loss = op_sum_squares(&t, p);
    printf("loss %8.4g\n", (double)loss->data[0]);
    tape_leave(&t, NULL);

    tape_backward(&t, loss, 1);
    show("dw", w.grad);
    show("dx", x.grad);
    tape_close(&t);
    return 0;
}
