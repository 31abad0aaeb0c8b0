// accumulate.c - a batch of 12 in one pass, and as 5 + 5 + 2: the same gradient, bit for bit.
//
// Backward adds to what is there, so passes over parts of a batch add up. Two things make the sum
// equal and not just close: ops add samples in order, whatever the split; and every pass divides by
// the number of counted targets of the WHOLE batch. Dividing each pass by its own count and then by
// the number of passes is the classic mistake: a mean of means weights a target by the company it
// keeps.
#include "nn/param.h"
#include "tape/ops/ops.h"
#include "tape/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 12, ROWS = 8, IN = 6, CLASSES = 10, HIDDEN = 16 };
enum { COUNT = HIDDEN * IN + HIDDEN + CLASSES * HIDDEN + CLASSES }; // of all parameters

struct model {
    struct param_list params;
    struct param *w1, *b1, *w2, *b2;
    struct tensor x;               // (BATCH, ROWS, IN)
    int32_t targets[BATCH * ROWS]; // some are ignored
};

static void model_init(struct model *m, struct tape *t)
{
    params_open(&m->params, t, 4);
    m->w1 = param_add(&m->params, t, HIDDEN, IN, PARAM_NORMAL, 0.4, "w1");
    m->b1 = param_add(&m->params, t, 0, HIDDEN, PARAM_ZEROS, 0, "b1");
    m->w2 = param_add(&m->params, t, CLASSES, HIDDEN, PARAM_NORMAL, 0.25, "w2");
    m->b2 = param_add(&m->params, t, 0, CLASSES, PARAM_ZEROS, 0, "b2");
    params_start(&m->params, t, 1);
    params_add_grads(&m->params, t);
    uint64_t key = rng_key(1, RNG_BATCH);
    tensor_persistent(&m->x, &t->arena, "x", LEDGER_BATCH, 3, (int64_t[]){BATCH, ROWS, IN});
    for (int i = 0; i < BATCH * ROWS * IN; i++)
        m->x.data[i] = (real)rng_normal(key, (uint64_t)i);
    for (int i = 0; i < BATCH * ROWS; i++) // later samples are shorter
        m->targets[i] = i % ROWS < ROWS - i / ROWS / 2 ? i % CLASSES : TARGET_IGNORED;
}

static int counted(const struct model *m, int first, int samples)
{
    int count = 0;
    for (int i = first * ROWS; i < (first + samples) * ROWS; i++)
        count += m->targets[i] != TARGET_IGNORED;
    return count;
}

// One pass over some of the samples: adds the gradient of seed * (sum of their losses).
static void pass(struct model *m, struct tape *t, int first, int samples, double seed)
{
    struct tensor x = m->x; // the same bytes, seen from sample `first`; backward reads them here
    x.data += first * ROWS * IN;
    x.dim[0] = samples;
    tape_begin(t, PHASE_FORWARD, first);
    tape_enter(t, "model");
    struct tensor *h = op_linear(t, &x, &m->w1->tensor, &m->b1->tensor);
    h = op_linear(t, op_tanh(t, h), &m->w2->tensor, &m->b2->tensor);
    struct tensor *loss = op_cross_entropy(t, h, m->targets + first * ROWS);
    tape_leave(t, NULL);
    tape_backward(t, loss, (real)seed);
}

// The whole batch in parts; leaves the gradient of all parameters in out.
static void gradient(struct model *m, struct tape *t, int parts, const int *size,
                     bool mean_of_means, real out[COUNT])
{
    params_zero_grads(&m->params, t);
    for (int i = 0, first = 0; i < parts; first += size[i++]) {
        double divisor = mean_of_means ? (double)counted(m, first, size[i]) * parts
                                       : (double)counted(m, 0, BATCH);
        pass(m, t, first, size[i], 1 / divisor);
    }
    for (int i = 0; i < m->params.count; i++) {
        const struct tensor *p = &m->params.param[i].tensor;
        memcpy(out, p->grad, (size_t)tensor_bytes(p));
        out += tensor_count(p);
    }
}

static void compare(const char *what, const real a[COUNT], const real b[COUNT])
{
    double error = 0, norm = 0;
    int differ = 0;
    for (int i = 0; i < COUNT; i++) {
        differ += memcmp(&a[i], &b[i], sizeof(real)) != 0;
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    printf("%-46s %s, off by %.1f %% of its length\n", what,
           differ == 0 ? "the same bits" : "other bits", 100 * sqrt(error / norm));
}

int main(void)
{
    static struct model m;
    struct tape t;
    struct error e;
    struct plan plan = tape_plan_small(1 << 20);
    if (!tape_open(&t, &plan, false, 1, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    model_init(&m, &t);
    printf("%d samples; targets that count: %d in all, %d + %d + %d in the three parts\n", BATCH,
           counted(&m, 0, BATCH), counted(&m, 0, 5), counted(&m, 5, 5), counted(&m, 10, 2));

    static real whole[COUNT], split[COUNT], wrong[COUNT];
    gradient(&m, &t, 1, (int[]){12}, false, whole);
    gradient(&m, &t, 3, (int[]){5, 5, 2}, false, split);
    gradient(&m, &t, 3, (int[]){5, 5, 2}, true, wrong);
    compare("5 + 5 + 2, each divided by the batch's count", whole, split);
    compare("5 + 5 + 2, a mean of three means", whole, wrong);
    tape_close(&t);
    return 0;
}
