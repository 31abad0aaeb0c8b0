// scalar.c - one number through a tape: y = 3 x, c = 2 y + 5 y, dc/dx = 21.
//
// An op computes at once and leaves a node behind: what it read and what it made. Backward walks
// the nodes from the last to the first. y has two readers, so its gradient is a sum: 2 + 5 = 7,
// and x gets 3 times that.
#include "tape/ops/ops.h"

#include <stdio.h>

static const int64_t one[] = {1}; // every tensor here has one element

// A tensor that stays when the tape is emptied: a weight, or data.
static void place(struct tape *t, struct tensor *x, const char *name, double value)
{
    tensor_persistent(x, &t->arena, name, LEDGER_WEIGHTS, 1, one);
    x->data[0] = (real)value;
}

// A tensor made by an op is named after the op and its scopes; its number tells it from others.
static void show_tensor(const struct tensor *x)
{
    if (x->is_persistent)
        printf("%s", x->name);
    else
        printf("%s#%d", x->name, x->index);
}

static void show_tape(const struct tape *t)
{
    for (int i = 0; i < t->node_count; i++) {
        const struct node *n = &t->node[i];
        printf("node %d  ", n->index);
        show_tensor(n->out);
        printf(" = %s(", n->op->name);
        show_tensor(n->in[0]);
        printf(", ");
        show_tensor(n->in[1]);
        printf(")   %s   keeps %s\n", n->op->formula, n->op->keeps);
    }
}

int main(void)
{
    struct tape t;
    struct error e;
    struct plan plan = tape_plan_small(4096); // a range that is large enough to try something
    if (!tape_open(&t, &plan, false, 1, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }

    struct tensor x, two, three, five;
    place(&t, &x, "x", 2);
    place(&t, &two, "two", 2);
    place(&t, &three, "three", 3);
    place(&t, &five, "five", 5);
    tensor_add_grad(&x, &t.arena); // of these four, only x wants a gradient

    tape_begin(&t, PHASE_FORWARD, 0); // an empty tape
    tape_enter(&t, "c");              // a scope: the first part of names, and a lifetime
    struct tensor *y = op_mul(&t, &x, &three);
    struct tensor *a = op_mul(&t, y, &two);
    struct tensor *b = op_mul(&t, y, &five);
    struct tensor *c = op_add(&t, a, b);
    printf("x = %g, y = %g, c = %g\n", (double)x.data[0], (double)y->data[0], (double)c->data[0]);
    tape_leave(&t, NULL); // the scope lets go of all: only the gradient of a constant would read y

    show_tape(&t);
    printf("still there: y %s, a %s, b %s, c %s\n", y->data != NULL ? "yes" : "no",
           a->data != NULL ? "yes" : "no", b->data != NULL ? "yes" : "no",
           c->data != NULL ? "yes" : "no");

    tape_backward(&t, c, 1); // dc/dc = 1
    printf("dc/dx = %g\n", (double)x.grad[0]);
    tape_close(&t);
    return 0;
}
