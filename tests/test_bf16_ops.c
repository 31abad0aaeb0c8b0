// test_bf16_ops.c - an op gives, for tensors stored in any mix of bf16 and reals, what it gives for
// the same numbers stored as reals, rounded once: values and gradients, in place and not.
#include "tape/ops/dropout_int.h"
#include "tests/params.h"
#include "tests/test.h"

enum { COUNT_MAX = 1025 * 1025, GUARD = 16, ARENA_BYTES = 1 << 24, FIRST_SAMPLE = 3 };

enum fill { ANY, POSITIVE }; // -1 to 1 with zeros of either sign, or 0.5 to 1.5

static const struct elementwise {
    const struct op *op;
    int in_count;
    enum fill fill;
} cases[] = {
    {&op_add_desc, 2, ANY},     {&op_sub_desc, 2, ANY},       {&op_mul_desc, 2, ANY},
    {&op_scale_desc, 1, ANY},   {&op_gelu_desc, 1, ANY},      {&op_relu_desc, 1, ANY},
    {&op_tanh_desc, 1, ANY},    {&op_sqrt_desc, 1, POSITIVE}, {&op_log_desc, 1, POSITIVE},
    {&op_dropout_desc, 1, ANY}, {&op_rows_desc, 1, ANY},      {&op_sum_squares_desc, 1, ANY},
};
static const struct elementwise softmax = {&op_causal_softmax_desc, 1, ANY};

static const int64_t sizes[] = {1, 7, 1023, 1024, 1025, 5000};

// ---- numbers, as they are stored and as the reals that this is ----

struct numbers {
    enum dtype dtype;
    int64_t count;
    real stored[COUNT_MAX + GUARD];
    real wide[COUNT_MAX];
};

static struct numbers in[2], out, dy, dx[2];

static void store(struct numbers *a)
{
    memset(a->stored, 0xff, (size_t)(a->count + GUARD) * sizeof(real)); // NaN in both dtypes
    if (a->dtype == DTYPE_BF16) {
        vec_pack((bf16 *)a->stored, a->wide, a->count);
        vec_unpack(a->wide, (const bf16 *)a->stored, a->count);
    } else
        memcpy(a->stored, a->wide, (size_t)a->count * sizeof(real));
}

static real draw(enum fill fill, uint64_t seed, int64_t i)
{
    double uniform = rng_u32(rng_key(seed, RNG_TEST), (uint32_t)i) * 0x1p-32;
    if (fill == POSITIVE)
        return (real)(0.5 + uniform);
    return (real)(i % 13 == 4 ? (i % 2 ? 0.0 : -0.0) : 2 * uniform - 1);
}

static void make(struct numbers *a, enum dtype dtype, int64_t count, enum fill fill, uint64_t seed)
{
    a->dtype = dtype;
    a->count = count;
    for (int64_t i = 0; i < count; i++)
        a->wide[i] = draw(fill, seed, i);
    store(a);
}

static void make_rubbish(struct numbers *a, enum dtype dtype, int64_t count)
{
    a->dtype = dtype;
    a->count = count;
    memset(a->stored, 0xff, (size_t)(count + GUARD) * sizeof(real));
    memset(a->wide, 0xff, (size_t)count * sizeof(real));
}

// What an op stored is `wide`, rounded once, and nothing beyond its end.
static void assert_stored(const real *stored, const struct numbers *a, const char *op,
                          const char *what)
{
    static real expected[COUNT_MAX];
    int64_t bytes = a->count * dtype_bytes(a->dtype);
    if (a->dtype == DTYPE_BF16)
        vec_pack((bf16 *)expected, a->wide, a->count);
    const void *wanted = a->dtype == DTYPE_BF16 ? expected : a->wide;
    if (memcmp(stored, wanted, (size_t)bytes) != 0)
        for (int64_t i = 0; i < a->count; i++) {
            double is = (double)array_get(array_of(stored, a->dtype), i);
            double was = (double)array_get(array_of(wanted, a->dtype), i);
            if (memcmp(&is, &was, sizeof(is)) != 0)
                fail_msg("%s of %s, %s: element %lld of %lld is %.9g, expected %.9g", what, op,
                         dtype_name(a->dtype), (long long)i, (long long)a->count, is, was);
        }
    for (int i = 0; i < GUARD; i++)
        if (((const unsigned char *)stored)[bytes + i] != 0xff)
            fail_msg("%s of %s, %s: writes past its end", what, op, dtype_name(a->dtype));
}

// ---- an op by hand: any mix of dtypes ----

struct mix {
    enum dtype in[2], out, dy, dx;
    bool in_place, adds;
};

struct hand { // a node that is on no tape
    struct tensor in[2], out;
    struct node node;
};

static struct tape tape = {.threads = 2};

static struct op_args args_for(const int64_t *dim)
{
    return (struct op_args){
        .rate = 0.3, .factor = -2.5, .key = 7, .first = dim[1] > 1, .count = dim[1] - (dim[1] > 1)};
}

static void build(struct hand *h, const struct op *op, int in_count, int dim_count,
                  const int64_t *dim, const struct mix *m)
{
    memset(h, 0, sizeof(*h));
    h->node = (struct node){.op = op,
                            .args = args_for(dim),
                            .in = {&h->in[0], &h->in[1]},
                            .in_count = in_count,
                            .out = &h->out,
                            .first_sample = FIRST_SAMPLE};
    for (int i = 0; i < in_count; i++) {
        tensor_shape(&h->in[i], dim_count, dim);
        h->in[i].dtype = m->in[i];
        h->in[i].grad_dtype = m->dx;
    }
    h->out.dtype = m->out;
    h->out.grad_dtype = m->dy;
    op->infer(&tape, &h->node);
}

static void compute(struct node *n, bool backward)
{
    static real work[8 * 1100];
    int64_t bytes = backward ? n->backward_work_bytes : n->forward_work_bytes;
    assert_true(bytes <= (int64_t)sizeof(work));
    memset(work, 0xff, sizeof(work));
    n->work = bytes > 0 ? work : NULL;
    (backward ? n->op->backward : n->op->forward)[DEVICE_CPU](&tape, n);
}

static const struct mix reals = {
    .in = {DTYPE_REAL, DTYPE_REAL}, .out = DTYPE_REAL, .dy = DTYPE_REAL, .dx = DTYPE_REAL};

static real *taken(const struct op *op, const struct mix *m)
{
    if (m->in_place && op->takes == TAKES_IN0_AS_OUT && m->in[0] == m->out)
        return in[0].stored;
    return m->in_place && op->takes == TAKES_IN1_AS_OUT && m->in[1] == m->out ? in[1].stored : NULL;
}

static void forward(struct hand *h, struct hand *wide, const struct mix *m)
{
    const struct op *op = h->node.op;
    make_rubbish(&out, m->out, tensor_count(&h->out));
    for (int i = 0; i < h->node.in_count; i++) {
        h->in[i].data = in[i].stored;
        wide->in[i].data = in[i].wide;
    }
    real *take = taken(op, m);
    h->out.data = take != NULL ? take : out.stored;
    wide->out.data = out.wide;
    compute(&wide->node, false);
    compute(&h->node, false);
    assert_stored(h->out.data, &out, op->name, "the value");
    store(&out); // backward reads what was stored
}

static void backward(struct hand *h, struct hand *wide, const struct mix *m)
{
    const struct op *op = h->node.op;
    make(&dy, m->dy, out.count, ANY, 52);
    bool in_place = m->in_place && op->grad == GRAD_IN_PLACE && m->dy == m->dx && !m->adds;
    for (int i = 0; i < h->node.in_count; i++) {
        if (m->adds)
            make(&dx[i], m->dx, in[i].count, ANY, 53 + (uint64_t)i);
        else
            make_rubbish(&dx[i], m->dx, in[i].count);
        h->node.dx[i] = in_place ? dy.stored : dx[i].stored;
        wide->node.dx[i] = dx[i].wide;
        h->node.adds[i] = wide->node.adds[i] = m->adds;
    }
    h->node.dy = dy.stored;
    wide->node.dy = dy.wide;
    compute(&wide->node, true);
    compute(&h->node, true);
    for (int i = 0; i < h->node.in_count; i++)
        assert_stored(h->node.dx[i], &dx[i], op->name, i == 0 ? "dx[0]" : "dx[1]");
}

static void check(const struct elementwise *c, int dim_count, const int64_t *dim,
                  const struct mix *m)
{
    const struct op *op = c->op;
    int in_count = c->in_count;
    struct hand h, wide;
    build(&h, op, in_count, dim_count, dim, m);
    build(&wide, op, in_count, dim_count, dim, &reals);
    for (int i = 0; i < in_count; i++)
        make(&in[i], m->in[i], tensor_count(&h.in[i]), c->fill, 50 + (uint64_t)i);
    forward(&h, &wide, m);
    if (op->backward[DEVICE_CPU] == NULL)
        return;
    if (taken(op, m) == NULL)
        for (int i = 0; i < in_count; i++)
            assert_stored(in[i].stored, &in[i], op->name, "the input");
    backward(&h, &wide, m);
}

static enum dtype narrow_if(unsigned bit)
{
    return bit ? DTYPE_BF16 : DTYPE_REAL;
}

// Bits: the two inputs, the output, its gradient, the inputs' gradients, in place, adds.
static struct mix mix_of(const struct op *op, unsigned bits)
{
    return (struct mix){.in = {narrow_if(bits & 1), narrow_if(bits & 2)},
                        .out = narrow_if(bits & 4 && !op->wide_out),
                        .dy = narrow_if(bits & 8 && !op->wide_out),
                        .dx = narrow_if(bits & 16),
                        .in_place = bits & 32,
                        .adds = bits & 64};
}

static void any_mix_of_dtypes(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT_OF(cases); k++)
        for (int s = 0; s < COUNT_OF(sizes); s++)
            for (unsigned bits = 0; bits < 128; bits++) {
                struct mix m = mix_of(cases[k].op, bits);
                bool many = bits % 32 == 31; // samples and rows
                const int64_t dim[] = {many ? 2 : 1, many ? 3 : 1, sizes[s]};
                check(&cases[k], 3, dim, &m);
            }
}

static void softmax_of_any_mix(void **state)
{
    (void)state;
    for (int64_t time = 1; time < 40; time += 16)
        for (unsigned bits = 0; bits < 128; bits++) {
            struct mix m = mix_of(softmax.op, bits);
            check(&softmax, 4, (int64_t[]){2, 3, time, time}, &m);
        }
    for (unsigned bits = 31; bits < 128; bits += 32) {
        struct mix m = mix_of(softmax.op, bits);
        check(&softmax, 4, (int64_t[]){1, 1, 1025, 1025}, &m);
    }
}

// ---- an array longer than a piece is computed as if there were no pieces ----

enum { LONG = 5000, SLICE = 999 };

// Elements from .. from + count - 1 alone, in place of all; out and dx say what all of them gave.
static void check_slice(const struct elementwise *c, int64_t from, int64_t count)
{
    static real y[SLICE], d[2][SLICE];
    struct hand h;
    build(&h, c->op, c->in_count, 3, (int64_t[]){1, 1, count}, &reals);
    for (int i = 0; i < c->in_count; i++) {
        h.in[i].data = in[i].wide + from;
        h.node.dx[i] = d[i];
    }
    h.out.data = y;
    h.node.dy = dy.wide + from;
    compute(&h.node, false);
    if (memcmp(y, out.wide + from, (size_t)count * sizeof(real)) != 0)
        fail_msg("%s: another value of elements %lld ..", c->op->name, (long long)from);
    if (c->op->backward[DEVICE_CPU] != NULL)
        compute(&h.node, true);
    for (int i = 0; i < c->in_count && c->op->backward[DEVICE_CPU] != NULL; i++)
        if (memcmp(d[i], dx[i].wide + from, (size_t)count * sizeof(real)) != 0)
            fail_msg("%s: another dx[%d] of elements %lld ..", c->op->name, i, (long long)from);
}

static void check_sum(const struct elementwise *c)
{
    for (int64_t count = 1000; count < LONG; count += 99) {
        check(c, 3, (int64_t[]){1, 1, count}, &reals);
        assert_true(out.wide[0] == vec_dot(in[0].wide, in[0].wide, count));
        for (int64_t i = 0; i < count; i++)
            assert_true(dx[0].wide[i] == 2 * in[0].wide[i] * dy.wide[0]);
    }
}

static void check_mask(const struct elementwise *c)
{
    const struct op_args args = args_for((int64_t[]){1, 1, LONG});
    const real factor = dropout_factor(args.rate);
    check(c, 3, (int64_t[]){1, 1, LONG}, &reals);
    uint64_t key = dropout_row_key(args.key, FIRST_SAMPLE, 0);
    for (int64_t i = 0; i < LONG; i++) {
        bool kept = rng_u32(key, (uint32_t)i) >= dropout_threshold(args.rate);
        assert_true(out.wide[i] == (kept ? in[0].wide[i] * factor : 0));
        assert_true(dx[0].wide[i] == (kept ? dy.wide[i] * factor : 0));
    }
}

static void pieces_leave_no_trace(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT_OF(cases); k++) {
        const struct elementwise *c = &cases[k];
        if (c->op == &op_sum_squares_desc) {
            check_sum(c);
            continue;
        }
        if (c->op == &op_dropout_desc) {
            check_mask(c);
            continue;
        }
        check(c, 3, (int64_t[]){1, 1, LONG}, &reals);
        for (int64_t from = 0; from < LONG; from += SLICE)
            check_slice(c, from, LONG - from < SLICE ? LONG - from : SLICE);
    }
}

// Scratch is for what is not stored as reals: a plan of reals has none.
static void reals_need_no_scratch(void **state)
{
    (void)state;
    struct hand h;
    const int64_t dim[] = {1, 1, 9, 9};
    build(&h, &op_causal_softmax_desc, 1, 4, dim, &reals);
    assert_true(h.node.forward_work_bytes == 0 && h.node.backward_work_bytes == 0);
}

// ---- the same through the tape, whose activations are bf16 ----

static void make_param(struct tape *t, struct tensor *x, bool wants_grad, int dim_count,
                       const int64_t *dim, const struct numbers *from)
{
    tensor_place(x, &t->arena, "p", LEDGER_WEIGHTS, from->dtype, dim_count, dim);
    x->grad_dtype = from->dtype;
    if (wants_grad)
        tensor_add_grad(x, &t->arena);
    memcpy(x->data, from->stored, (size_t)tensor_bytes(x));
}

// What comes out where all is bf16: leaves it in out and dx, stored.
static void expect(const struct elementwise *c, int dim_count, const int64_t *dim)
{
    struct mix m = mix_of(c->op, 31);
    check(c, dim_count, dim, &m);
    if (c->op->backward[DEVICE_CPU] == NULL) // a sum: its gradients are dy
        make(&dy, m.dy, out.count, ANY, 52);
    for (int i = 0; i < c->in_count; i++)
        if (c->op->backward[DEVICE_CPU] == NULL)
            make(&dx[i], m.dx, out.count, ANY, 52);
        else
            store(&dx[i]);
}

// The op on activations that are parameters times 1, so that it takes them over if it can; its
// output is multiplied with w = dy.
static void check_on_tape(const struct elementwise *c, int dim_count, const int64_t *dim)
{
    struct tape t;
    struct tensor p[2], w, *x[2];
    struct op_args args = args_for(dim);
    expect(c, dim_count, dim);
    params_open(&t, ARENA_BYTES, 2);
    t.activation_dtype = DTYPE_BF16;
    for (int i = 0; i < c->in_count; i++)
        make_param(&t, &p[i], true, dim_count, dim, &in[i]);
    make_param(&t, &w, false, 2, (int64_t[]){1, dy.count}, &dy);
    tape_begin(&t, PHASE_FORWARD, FIRST_SAMPLE);
    tape_enter(&t, "test");
    for (int i = 0; i < c->in_count; i++)
        x[i] = op_scale(&t, &p[i], 1);
    struct tensor *y = tape_apply(&t, c->op, c->in_count, x, &args);
    assert_int_equal(y->dtype, out.dtype);
    if (memcmp(y->data, out.stored, (size_t)tensor_bytes(y)) != 0)
        fail_msg("%s: another value on a tape", c->op->name);
    y = tape_leave(&t, op_mul(&t, y, &w));
    tape_backward(&t, y, 1);
    for (int i = 0; i < c->in_count; i++)
        for (int64_t j = 0; j < dx[i].count; j++)
            if (array_get(array_of(p[i].grad, DTYPE_BF16), j) != dx[i].wide[j])
                fail_msg("%s: another gradient %d on a tape, at %lld", c->op->name, i,
                         (long long)j);
    tape_close(&t);
}

static void activations_of_bf16(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT_OF(cases); k++)
        for (int s = 0; s < COUNT_OF(sizes); s++)
            check_on_tape(&cases[k], 3, (int64_t[]){2, 3, sizes[s]});
    check_on_tape(&softmax, 4, (int64_t[]){2, 3, 33, 33});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mix_of_dtypes),     cmocka_unit_test(softmax_of_any_mix),
        cmocka_unit_test(pieces_leave_no_trace), cmocka_unit_test(reals_need_no_scratch),
        cmocka_unit_test(activations_of_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
