#include "tape/cpu/bench_gemm.h"

#include "tape/blas.h"

struct part {
    int64_t from, count;
};

static struct part part_of(int64_t total, int thread, int threads)
{
    int64_t from = total * thread / threads;
    return (struct part){from, total * (thread + 1) / threads - from};
}

void bench_gemm(const struct bench_gemm *s, int threads, const real *x, const real *w, real *y,
                real *dx, real *dw)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < threads; i++) {
        struct part r = part_of(s->rows, i, threads);
        blas_gemm(BLAS_AS_IS, BLAS_TRANSPOSED, r.count, s->out, s->in, 1, x + r.from * s->in, s->in,
                  w, s->in, 0, y + r.from * s->out, s->out);
        blas_gemm(BLAS_AS_IS, BLAS_AS_IS, r.count, s->in, s->out, 1, y + r.from * s->out, s->out, w,
                  s->in, 0, dx + r.from * s->in, s->in);
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < threads; i++) {
        struct part o = part_of(s->out, i, threads);
        blas_gemm(BLAS_TRANSPOSED, BLAS_AS_IS, o.count, s->in, s->rows, 1, y + o.from, s->out, x,
                  s->in, 0, dw + o.from * s->in, s->in);
    }
}
