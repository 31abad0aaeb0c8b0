// test_chunked.c - a loss whose logits never exist whole has the bits of the plain one: losses and
// gradients, for every size of chunk, split into micro-batches, thread count and activation dtype.
#include "tests/params.h"
#include "tests/test.h"

#include "tape/blas.h"

enum { SAMPLES_MAX = 5, IDS_MAX = 4096, BYTES = 1 << 29 };

struct shape {
    int64_t samples, time, width, vocab;
};

// One chunk for all; whole samples; parts of one (the vocabulary is what makes chunks small).
static const struct shape shapes[] = {
    {5, 64, 24, 65},    {3, 17, 8, 100},    {2, 300, 4, 40000},
    {2, 300, 4, 15000}, {5, 130, 4, 20000}, {1, 1, 3, 2},
};

struct outcome {
    double loss[SAMPLES_MAX];
    real *dx, *dw; // of the persistent x and w
    struct tape tape;
    struct tensor x, w;
};

struct how {
    bool chunked;
    int threads;
    int64_t split; // samples of a micro-batch
    enum dtype activations;
};

static void fill_targets(int32_t *targets, const struct shape *s)
{
    uint64_t key = rng_key(RNG_TEST, 5);
    for (int64_t i = 0; i < s->samples * s->time; i++)
        targets[i] = rng_u32(key, (uint32_t)i) % 7 == 0
                         ? TARGET_IGNORED
                         : (int32_t)(rng_u32(key, (uint32_t)(i + IDS_MAX)) % (uint32_t)s->vocab);
}

static void run(struct outcome *o, const struct shape *s, const struct how *h)
{
    static int32_t targets[IDS_MAX];
    fill_targets(targets, s);
    blas_set_threads(h->threads);
    struct tape *t = &o->tape;
    params_open(t, BYTES, h->threads);
    t->activation_dtype = h->activations;
    params_make(t, &o->x, "x", true, 1, 3, (int64_t[]){s->samples, s->time, s->width});
    params_make(t, &o->w, "w", true, 2, 2, (int64_t[]){s->vocab, s->width});
    struct tensor weights;
    params_make(t, &weights, "weights", false, 3, 1, (int64_t[]){s->samples});
    for (int64_t first = 0; first < s->samples; first += h->split) {
        struct tensor part = o->x; // some samples of x
        int64_t left = s->samples - first, at = first * s->time * s->width;
        part.dim[0] = left < h->split ? left : h->split;
        part.data += at;
        part.grad += at;
        tape_begin(t, PHASE_FORWARD, first);
        tape_enter(t, "test");
        const int32_t *ids = targets + first * s->time;
        struct tensor *x = op_scale(t, &part, 1.25), *loss;
        loss = h->chunked ? op_linear_cross_entropy(t, x, &o->w, ids)
                          : op_cross_entropy(t, op_linear(t, x, &o->w, NULL), ids);
        struct tensor some = weights; // each sample's loss counts differently
        some.dim[0] = part.dim[0];
        some.data += first;
        struct tensor *sum = op_mul(t, loss, &some);
        for (int64_t b = 0; b < part.dim[0]; b++)
            o->loss[first + b] = (double)loss->data[b];
        tape_leave(t, NULL);
        tape_backward(t, sum, (real)0.37);
    }
    o->dx = o->x.grad;
    o->dw = o->w.grad;
}

static void expect_same(const struct shape *s, const struct how *h)
{
    static struct outcome plain, other;
    struct how reference = {.threads = 2, .split = s->samples, .activations = h->activations};
    run(&plain, s, &reference);
    run(&other, s, h);
    for (int64_t b = 0; b < s->samples; b++)
        assert_true(plain.loss[b] == other.loss[b] && plain.loss[b] > 0);
    size_t x_bytes = (size_t)tensor_grad_bytes(&plain.x);
    size_t w_bytes = (size_t)tensor_grad_bytes(&plain.w);
    assert_memory_equal(plain.dx, other.dx, x_bytes);
    assert_memory_equal(plain.dw, other.dw, w_bytes);
    tape_close(&plain.tape);
    tape_close(&other.tape);
}

static void chunks_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct how h = {.chunked = true,
                            .threads = threads,
                            .split = shapes[i].samples,
                            .activations = DTYPE_REAL};
            expect_same(&shapes[i], &h);
            h.activations = DTYPE_BF16;
            expect_same(&shapes[i], &h);
        }
}

static void splits_have_them_too(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int64_t split = 1; split < shapes[i].samples; split += 2) {
            struct how h = {
                .chunked = true, .threads = 2, .split = split, .activations = DTYPE_REAL};
            expect_same(&shapes[i], &h);
            h.activations = DTYPE_BF16;
            expect_same(&shapes[i], &h);
        }
}

// Scratch is bounded by the vocabulary and the threads, not by the batch.
static void the_logits_do_not_exist(void **state)
{
    (void)state;
    static struct outcome o;
    struct shape s = {4, 256, 4, 40000};
    struct how h = {.chunked = true, .threads = 1, .split = 4, .activations = DTYPE_REAL};
    run(&o, &s, &h);
    const struct ledger_counts *c = &o.tape.arena.ledger.counts;
    int64_t chunk = 128 * s.vocab * (int64_t)sizeof(real);
    int64_t losses = s.samples * s.time * (int64_t)sizeof(double);
    assert_int_equal(c->peak[LEDGER_WORKSPACE], chunk + losses);
    tape_close(&o.tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_have_the_bits_of_the_whole),
        cmocka_unit_test(splits_have_them_too),
        cmocka_unit_test(the_logits_do_not_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
