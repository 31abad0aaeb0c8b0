// test_ops.c - every op computes what its formula says; neither the number of threads nor the split
// into micro-batches changes a bit of any value or gradient.
#include "tape/blas.h"
#include "tape/ops/ops.h"
#include "tests/params.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARENA_BYTES = 1 << 26, OUT_MAX = 1 << 16 };

static const double nearly = sizeof(real) == 8 ? 1e-12 : 2e-5; // of values near 1

// ---- forward values against plain loops in double ----

enum { B = 2, T = 5, C = 7, H = 2, D = 3, O = 19, V = 11, N = B * T * C };

static struct tape tape;
static struct tensor p[4];

static void open_params(int count, const int *dim_count, int64_t (*dim)[DIM_MAX],
                        enum params_fill fill)
{
    params_open(&tape, ARENA_BYTES, 2);
    for (int i = 0; i < count; i++) {
        params_make(&tape, &p[i], "p", true, 20 + (uint64_t)i, dim_count[i], dim[i]);
        params_fill(&tape, &p[i], fill, 20 + (uint64_t)i);
    }
    tape_begin(&tape, PHASE_FORWARD, 3);
    tape_enter(&tape, "test");
}

static void close_params(void)
{
    tape_leave(&tape, NULL);
    tape_close(&tape);
}

typedef double f1(double x);

static double twice(double x)
{
    return -2.5 * x;
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static struct tensor *scaled(struct tape *t, struct tensor *x)
{
    return op_scale(t, x, -2.5);
}

static const struct {
    struct tensor *(*op)(struct tape *t, struct tensor *x);
    f1 *f;
    enum params_fill fill;
} unary[] = {
    {scaled, twice, 0},
    {(op_gelu), gelu, 0},
    {(op_relu), relu, 0},
    {(op_tanh), tanh, 0},
    {(op_sqrt), sqrt, PARAMS_POSITIVE},
    {(op_log), log, PARAMS_POSITIVE},
};

static void elementwise_values(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT_OF(unary); k++) {
        open_params(1, (int[]){3}, (int64_t[][DIM_MAX]){{B, T, C}}, unary[k].fill);
        struct tensor *y = unary[k].op(&tape, &p[0]);
        for (int i = 0; i < N; i++)
            assert_near(y->data[i], unary[k].f((double)p[0].data[i]), nearly);
        close_params();
    }
    open_params(2, (int[]){3, 3}, (int64_t[][DIM_MAX]){{B, T, C}, {B, T, C}}, 0);
    struct tensor *sum = op_add(&tape, &p[0], &p[1]), *difference = op_sub(&tape, &p[0], &p[1]);
    struct tensor *product = op_mul(&tape, &p[0], &p[1]), *squares = op_sum_squares(&tape, &p[0]);
    struct tensor *some = op_rows(&tape, &p[0], 1, 3);
    double total[B] = {0};
    for (int i = 0; i < N; i++) {
        double a = (double)p[0].data[i], b = (double)p[1].data[i];
        int row = i / C % T, sample = i / C / T;
        total[sample] += a * a;
        assert_near(sum->data[i], a + b, nearly);
        assert_near(difference->data[i], a - b, nearly);
        assert_near(product->data[i], a * b, nearly);
        if (row >= 1 && row < 4)
            assert_true(some->data[(sample * 3 + row - 1) * C + i % C] == p[0].data[i]);
    }
    for (int b = 0; b < B; b++)
        assert_near(squares->data[b], total[b], nearly);
    close_params();
}

static void linear_and_layernorm_values(void **state)
{
    (void)state;
    open_params(4, (int[]){3, 2, 1, 1}, (int64_t[][DIM_MAX]){{B, T, C}, {O, C}, {O}, {C}}, 0);
    const real *x = p[0].data, *w = p[1].data, *b = p[2].data, *s = p[3].data;
    struct tensor *y = op_linear(&tape, &p[0], &p[1], &p[2]);
    struct tensor *bare = op_linear(&tape, &p[0], &p[1], NULL);
    struct tensor *n = op_layernorm(&tape, &p[0], &p[3], &p[3]);
    struct tensor *shiftless = op_layernorm(&tape, &p[0], &p[3], NULL);
    for (int i = 0; i < B * T; i++) {
        double mean = 0, variance = 0;
        for (int j = 0; j < C; j++)
            mean += (double)x[i * C + j] / C;
        for (int j = 0; j < C; j++)
            variance += ((double)x[i * C + j] - mean) * ((double)x[i * C + j] - mean) / C;
        for (int j = 0; j < C; j++) {
            double h = ((double)x[i * C + j] - mean) / sqrt(variance + 1e-5) * (double)s[j];
            assert_near(n->data[i * C + j], h + (double)s[j], nearly);
            assert_near(shiftless->data[i * C + j], h, nearly);
        }
        for (int o = 0; o < O; o++) {
            double sum = 0;
            for (int j = 0; j < C; j++)
                sum += (double)x[i * C + j] * (double)w[o * C + j];
            assert_near(y->data[i * O + o], sum + (double)b[o], nearly);
            assert_near(bare->data[i * O + o], sum, nearly);
        }
    }
    close_params();
}

static void embedding_values(void **state)
{
    (void)state;
    static const int32_t ids[B * T] = {3, 0, 10, 3, 1, 2, 6, 6, 5, 0};
    open_params(2, (int[]){2, 2}, (int64_t[][DIM_MAX]){{V, C}, {T + 1, C}}, 0);
    struct tensor *y = op_embedding(&tape, &p[0], &p[1], ids, NULL, B, T);
    struct tensor *bare = op_embedding(&tape, &p[0], NULL, ids, NULL, B, T);
    struct tensor *late = op_embedding_at(&tape, &p[0], &p[1], ids, NULL, B, T, 1);
    for (int i = 0; i < B * T; i++)
        for (int j = 0; j < C; j++) {
            real token = p[0].data[ids[i] * C + j];
            assert_true(y->data[i * C + j] == token + p[1].data[i % T * C + j]);
            assert_true(bare->data[i * C + j] == token);
            assert_true(late->data[i * C + j] == token + p[1].data[(i % T + 1) * C + j]);
        }
    close_params();
}

static void matmul_values(void **state)
{
    (void)state;
    enum { M = 4, K = 3 };
    open_params(3, (int[]){4, 4, 4}, (int64_t[][DIM_MAX]){{B, H, M, K}, {B, H, K, C}, {B, H, C, K}},
                0);
    struct tensor *y = op_matmul(&tape, &p[0], &p[1], false, false);
    struct tensor *tr = op_matmul(&tape, &p[0], &p[2], true, false);
    struct tensor *inside = op_merge_heads(&tape, op_matmul(&tape, &p[0], &p[1], false, true));
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int m = 0; m < M; m++)
                for (int c = 0; c < C; c++) {
                    double sum = 0, transposed = 0;
                    int task = b * H + h;
                    for (int k = 0; k < K; k++) {
                        double a = (double)p[0].data[(task * M + m) * K + k];
                        sum += a * (double)p[1].data[(task * K + k) * C + c];
                        transposed += a * (double)p[2].data[(task * C + c) * K + k];
                    }
                    int64_t at = (int64_t)(task * M + m) * C + c;
                    const real *merged = inside->base->data + inside->base_offset;
                    assert_near(y->data[at], sum, nearly);
                    assert_near(tr->data[at], transposed, nearly);
                    assert_near(merged[((b * M + m) * H + h) * C + c], sum, nearly);
                }
    close_params();
}

static void softmax_and_cross_entropy_values(void **state)
{
    (void)state;
    static const int32_t targets[B * T] = {4, -100, 0, 10, 6, 1, -100, 3, 2, 6};
    open_params(2, (int[]){4, 3}, (int64_t[][DIM_MAX]){{B, H, T, T}, {B, T, V}}, 0);
    struct tensor *y = op_causal_softmax(&tape, &p[0]);
    struct tensor *loss = op_cross_entropy(&tape, &p[1], targets);
    for (int r = 0; r < B * H * T; r++) {
        double sum = 0;
        for (int j = 0; j <= r % T; j++)
            sum += exp((double)p[0].data[r * T + j]);
        for (int j = 0; j < T; j++)
            assert_near(y->data[r * T + j],
                        j <= r % T ? exp((double)p[0].data[r * T + j]) / sum : 0, nearly);
    }
    for (int b = 0; b < B; b++) {
        double expected = 0;
        for (int i = b * T; i < (b + 1) * T; i++) {
            double sum = 0;
            for (int j = 0; j < V; j++)
                sum += exp((double)p[1].data[i * V + j]);
            if (targets[i] >= 0)
                expected += log(sum) - (double)p[1].data[i * V + targets[i]];
        }
        assert_near(loss->data[b], expected, nearly);
    }
    close_params();
}

// Of many elements, the rate of zeros is the rate asked for; the others are divided by 1 - rate.
static void dropout_values(void **state)
{
    (void)state;
    enum { SAMPLES = 4, ROWS = 50, COLS = 50 };
    open_params(1, (int[]){3}, (int64_t[][DIM_MAX]){{SAMPLES, ROWS, COLS}}, PARAMS_NOT_ZERO);
    struct tensor *y = op_dropout(&tape, &p[0], 0.3, 5), *other = op_dropout(&tape, &p[0], 0.3, 6);
    struct tensor *all = op_dropout(&tape, &p[0], 0, 5);
    int zeros = 0, same = 0;
    for (int i = 0; i < SAMPLES * ROWS * COLS; i++) {
        zeros += y->data[i] == 0;
        same += (y->data[i] == 0) == (other->data[i] == 0);
        if (y->data[i] != 0)
            assert_near(y->data[i], (double)p[0].data[i] / 0.7, nearly);
        assert_true(all->data[i] == p[0].data[i]);
    }
    assert_near(zeros / 10000.0, 0.3, 0.015);
    assert_near(same / 10000.0, 0.58, 0.02); // masks of two keys are independent
    close_params();
}

// ---- attention by tiles is the composition of small ops ----

static struct tensor *written_out(struct tape *t, struct tensor *qkv, int64_t heads, double rate,
                                  uint64_t key)
{
    struct tensor *q = op_split_heads(t, qkv, heads, 0), *k = op_split_heads(t, qkv, heads, 1);
    struct tensor *v = op_split_heads(t, qkv, heads, 2);
    struct tensor *s = op_scale(t, op_matmul(t, q, k, true, false), 1 / sqrt((double)q->dim[3]));
    struct tensor *a = op_causal_softmax(t, s);
    if (rate > 0)
        a = op_dropout(t, a, rate, key);
    return op_merge_heads(t, op_matmul(t, a, v, false, true));
}

// Through a linear, so that no gradient is the same for all elements.
static void attend(bool by_tiles, int64_t time, double rate, real *y_out, real *grad_out)
{
    open_params(2, (int[]){3, 2}, (int64_t[][DIM_MAX]){{B, time, 18}, {3, 6}}, 0);
    struct tensor *y =
        by_tiles ? op_attention(&tape, &p[0], H, rate, 42) : written_out(&tape, &p[0], H, rate, 42);
    const real *data = y->base != NULL ? y->base->data + y->base_offset : y->data;
    memcpy(y_out, data, (size_t)tensor_count(y) * sizeof(real));
    struct tensor *loss = op_sum_squares(&tape, op_linear(&tape, y, &p[1], NULL));
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, 1);
    memcpy(grad_out, p[0].grad, (size_t)tensor_count(&p[0]) * sizeof(real));
    tape_close(&tape);
}

static void attention_is_the_composition(void **state)
{
    (void)state;
    static real y[2][OUT_MAX], grad[2][OUT_MAX];
    static const int64_t times[] = {1, 7, 64, 65, 131};
    for (int i = 0; i < COUNT_OF(times); i++)
        for (int dropped = 0; dropped < 2; dropped++) {
            attend(false, times[i], 0.4 * dropped, y[0], grad[0]);
            attend(true, times[i], 0.4 * dropped, y[1], grad[1]);
            for (int64_t j = 0; j < B * times[i] * 6; j++)
                assert_near(y[1][j], y[0][j], nearly);
            for (int64_t j = 0; j < B * times[i] * 18; j++)
                assert_near(grad[1][j], grad[0][j], 20 * nearly);
        }
}

// ---- no bit depends on threads, or on the split into micro-batches ----

enum { NET_B = 5, NET_T = 70, NET_C = 48, NET_V = 83, NET_RANK = 5, NET_PARAMS = 16 };

struct net {
    struct tensor p[NET_PARAMS];
    int32_t ids[NET_B * NET_T], targets[NET_B * NET_T], slots[NET_B * NET_T];
};

static const int64_t net_dim[NET_PARAMS][2] = {
    {NET_V, NET_C},     {NET_T, NET_C},     {NET_C, 0},        {NET_C, 0},
    {3 * NET_C, NET_C}, {3 * NET_C, 0},     {NET_C, NET_C},    {2 * NET_C, NET_C},
    {2 * NET_C, 0},     {NET_C, 2 * NET_C}, {NET_C, 0},        {NET_V, NET_C},
    {NET_C, 0},         {NET_C, NET_C},     {NET_RANK, NET_C}, {NET_C, NET_RANK},
};

static struct net net;

static struct tensor *net_block(struct tape *t, struct tensor *x, bool by_tiles)
{
    struct tensor *n = op_layernorm(t, x, &net.p[2], &net.p[3]);
    struct tensor *qkv = op_linear(t, n, &net.p[4], &net.p[5]);
    qkv = op_lora(t, qkv, op_linear(t, n, &net.p[14], NULL), &net.p[15], NET_C, 0.5);
    struct tensor *a = by_tiles ? op_attention(t, qkv, 4, 0.2, 8) : written_out(t, qkv, 4, 0.2, 8);
    x = op_add(t, x, op_dropout(t, op_linear(t, a, &net.p[6], NULL), 0.1, 9));
    n = op_layernorm(t, x, &net.p[12], NULL);
    struct tensor *m = op_gelu(t, op_linear(t, n, &net.p[7], &net.p[8]));
    return op_add(t, x, op_dropout(t, op_linear(t, m, &net.p[9], &net.p[10]), 0.1, 10));
}

// Everything else there is, on the way to a positive number.
static struct tensor *net_soup(struct tape *t, struct tensor *x)
{
    struct tensor *u = op_tanh(t, op_linear(t, x, &net.p[13], NULL));
    struct tensor *r = op_relu(t, op_sub(t, x, op_mul(t, u, x)));
    struct tensor *q = op_sqrt(t, op_add(t, op_mul(t, r, r), op_mul(t, u, u)));
    return op_add(t, x, op_log(t, op_add(t, q, op_mul(t, q, q))));
}

// One loss per sample: cross-entropy, and a little of the squares of some rows.
static struct tensor *net_loss(struct tape *t, int64_t samples, int64_t first, bool by_tiles)
{
    int64_t at = first * NET_T;
    tape_begin(t, PHASE_FORWARD, first);
    tape_enter(t, "net");
    struct tensor *x = op_embedding(t, &net.p[0], &net.p[1], net.ids + at, NULL, samples, NET_T);
    x = net_block(t, x, by_tiles);
    x = net_soup(t, x);
    struct tensor *squares = op_scale(t, op_sum_squares(t, op_rows(t, x, 3, 20)), 0.01);
    struct tensor *logits = op_linear(t, x, &net.p[11], NULL);
    return op_add(t, squares, op_cross_entropy(t, logits, net.targets + at));
}

static void net_open(int threads)
{
    params_open(&tape, ARENA_BYTES, threads);
    for (int i = 0; i < NET_PARAMS; i++)
        params_make(&tape, &net.p[i], "net", true, 30 + (uint64_t)i, net_dim[i][1] ? 2 : 1,
                    net_dim[i]);
    for (int i = 0; i < NET_B * NET_T; i++) {
        net.ids[i] = (int32_t)rng_below(1, (uint64_t)i, NET_V);
        net.targets[i] = i % 7 == 3 ? TARGET_IGNORED : (int32_t)rng_below(2, (uint64_t)i, NET_V);
    }
}

// Samples in micro-batches of the given sizes. Losses and all gradients go to out; returns how
// many.
static int64_t net_run(int threads, bool by_tiles, const int64_t *split, real *out)
{
    net_open(threads);
    int64_t count = 0;
    for (int64_t first = 0; first < NET_B; first += *split++) {
        struct tensor *loss = net_loss(&tape, *split, first, by_tiles);
        for (int64_t b = 0; b < *split; b++)
            out[count++] = loss->data[b];
        tape_leave(&tape, NULL);
        tape_backward(&tape, loss, (real)(1.0 / 300));
    }
    for (int i = 0; i < NET_PARAMS; i++)
        for (int64_t j = 0; j < tensor_count(&net.p[i]); j++)
            out[count++] = net.p[i].grad[j];
    tape_close(&tape);
    assert_true(count <= OUT_MAX);
    return count;
}

static void assert_same_bits(const real *a, const real *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(real)) != 0)
            fail_msg("element %lld: %.17g and %.17g", (long long)i, (double)a[i], (double)b[i]);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static real one[OUT_MAX], more[OUT_MAX];
    for (int by_tiles = 0; by_tiles < 2; by_tiles++) {
        int64_t count = net_run(1, by_tiles, (int64_t[]){5}, one);
        assert_true(one[NET_B] != 0 && isfinite((double)one[count - 1]));
        for (int threads = 2; threads <= 4; threads++) {
            net_run(threads, by_tiles, (int64_t[]){5}, more);
            assert_same_bits(more, one, count);
        }
    }
}

static void micro_batches_change_no_bit(void **state)
{
    (void)state;
    static real whole[OUT_MAX], parts[OUT_MAX];
    static const int64_t splits[][NET_B] = {{2, 3}, {3, 2}, {1, 4}, {1, 1, 1, 1, 1}};
    for (int by_tiles = 0; by_tiles < 2; by_tiles++) {
        int64_t count = net_run(2, by_tiles, (int64_t[]){5}, whole);
        for (int i = 0; i < COUNT_OF(splits); i++) {
            net_run(i + 1, by_tiles, splits[i], parts);
            assert_same_bits(parts, whole, count);
        }
    }
}

// Another tape may have set more threads since: an op's scratch is that of its own tape.
static void a_tape_keeps_its_threads(void **state)
{
    (void)state;
    static real one[OUT_MAX], again[OUT_MAX];
    net_run(1, true, (int64_t[]){5}, one);
    net_open(1);
    blas_set_threads(4);
    struct tensor *loss = net_loss(&tape, 5, 0, true);
    for (int b = 0; b < NET_B; b++)
        again[b] = loss->data[b];
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, (real)(1.0 / 300));
    assert_same_bits(again, one, NET_B);
    assert_same_bits(net.p[0].grad, one + NET_B, tensor_count(&net.p[0]));
    tape_close(&tape);
}

// ---- pitfalls ----

static void loss_of_the_improbable_is_finite(void **state)
{
    (void)state;
    static const int32_t targets[1] = {0};
    open_params(1, (int[]){3}, (int64_t[][DIM_MAX]){{1, 1, 2}}, 0);
    p[0].data[0] = 0;
    p[0].data[1] = 200;
    struct tensor *loss = op_cross_entropy(&tape, &p[0], targets);
    assert_true(loss->data[0] == 200);
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, 1);
    assert_near(p[0].grad[0], -1, 1e-15);
    assert_near(p[0].grad[1], 1, 1e-15);
    tape_close(&tape);
}

static void slope_of_gelu_far_out(void **state)
{
    (void)state;
    static const double at[] = {-100, 0, 1, 100, -1e4, 1e4};
    static const double slope[] = {0, 0.5, 1.082964, 1, 0, 1};
    open_params(1, (int[]){2}, (int64_t[][DIM_MAX]){{1, COUNT_OF(at)}}, 0);
    for (int i = 0; i < COUNT_OF(at); i++)
        p[0].data[i] = (real)at[i];
    struct tensor *y = op_gelu(&tape, &p[0]);
    tape_leave(&tape, NULL);
    tape_backward(&tape, y, 1);
    for (int i = 0; i < COUNT_OF(at); i++)
        assert_near(p[0].grad[i], slope[i], 1e-6);
    tape_close(&tape);
}

// V = 4, a head of zeros: every counted target weighs the same, whichever sample it is in.
static void no_mean_of_means(void **state)
{
    (void)state;
    static const int32_t targets[8] = {1, -100, -100, -100, 2, 3, 0, -100};
    for (int64_t samples = 1; samples <= 2; samples++) {
        open_params(1, (int[]){3}, (int64_t[][DIM_MAX]){{2, 4, 4}}, 0);
        memset(p[0].data, 0, 32 * sizeof(real));
        struct tensor half = p[0];
        double total = 0;
        for (int64_t first = 0; first < 2; first += samples) {
            half.dim[0] = samples;
            half.data = p[0].data + first * 16;
            half.grad = p[0].grad + first * 16;
            if (first > 0) {
                tape_begin(&tape, PHASE_FORWARD, first);
                tape_enter(&tape, "test");
            }
            struct tensor *loss = op_cross_entropy(&tape, &half, targets + first * 4);
            for (int64_t b = 0; b < samples; b++)
                total += (double)loss->data[b] / 4;
            tape_leave(&tape, NULL);
            tape_backward(&tape, loss, (real)0.25); // counted targets of the effective batch: 4
        }
        assert_near(total, 1.386294, 1e-6);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 4; j++)
                assert_near(p[0].grad[i * 4 + j],
                            targets[i] < 0 ? 0 : (j == targets[i] ? -0.1875 : 0.0625), 1e-7);
        tape_close(&tape);
    }
}

static void none_counted_is_no_gradient(void **state)
{
    (void)state;
    static const int32_t targets[4] = {-100, -100, -100, -100};
    open_params(1, (int[]){3}, (int64_t[][DIM_MAX]){{2, 2, V}}, 0);
    struct tensor *loss = op_cross_entropy(&tape, &p[0], targets);
    assert_true(loss->data[0] == 0 && loss->data[1] == 0);
    tape_leave(&tape, NULL);
    tape_backward(&tape, loss, 1);
    for (int i = 0; i < 4 * V; i++)
        assert_true(p[0].grad[i] == 0);
    tape_close(&tape);
}

// Runs it in a child: a CHECK must stop it.
static void assert_stops(void (*run)(int32_t), int32_t value)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        signal(SIGABRT, SIG_DFL);
        run(value);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        fail_msg("value %d passed, status %d", (int)value, status);
}

static void run_target(int32_t target)
{
    open_params(1, (int[]){2}, (int64_t[][DIM_MAX]){{1, 5}}, 0);
    op_cross_entropy(&tape, &p[0], &target);
}

static void run_id(int32_t id)
{
    open_params(1, (int[]){2}, (int64_t[][DIM_MAX]){{5, 3}}, 0);
    op_embedding(&tape, &p[0], NULL, &id, NULL, 1, 1);
}

static void bad_numbers_stop(void **state)
{
    (void)state;
    static const int32_t bad[] = {-4, -1, 5, 255, INT32_MAX, INT32_MIN};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        assert_stops(run_target, bad[i]);
        assert_stops(run_id, bad[i]);
    }
    assert_stops(run_id, TARGET_IGNORED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_values),
        cmocka_unit_test(linear_and_layernorm_values),
        cmocka_unit_test(embedding_values),
        cmocka_unit_test(matmul_values),
        cmocka_unit_test(softmax_and_cross_entropy_values),
        cmocka_unit_test(dropout_values),
        cmocka_unit_test(attention_is_the_composition),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(micro_batches_change_no_bit),
        cmocka_unit_test(a_tape_keeps_its_threads),
        cmocka_unit_test(loss_of_the_improbable_is_finite),
        cmocka_unit_test(slope_of_gelu_far_out),
        cmocka_unit_test(no_mean_of_means),
        cmocka_unit_test(none_counted_is_no_gradient),
        cmocka_unit_test(bad_numbers_stop), // forks: last
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
