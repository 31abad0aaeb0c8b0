#include "src/outside.h"

#include "data/corpus.h"
#include "src/system.h"
#include "tape/cpu/bench_gemm.h"
#include "tape/tape.h"
#include "tape/text.h"

// One product per thread as large as a linear's tile, with rows as long as a BLAS packs at a time.
static bool touch_blas(const struct config *c, struct error *e)
{
    enum { TILE_ROWS = 128, TILE_COLS = 96, ROW_MAX = 1 << 11 };
    int64_t in = 4 * c->model.width < ROW_MAX ? 4 * c->model.width : ROW_MAX;
    struct bench_gemm s = {.rows = TILE_ROWS * c->threads, .in = in, .out = TILE_COLS};
    int64_t size = (int64_t)sizeof(real), x_bytes = s.rows * s.in * size;
    int64_t w_bytes = s.in * s.out * size, y_bytes = s.rows * s.out * size;
    struct plan plan = tape_plan_small(2 * (x_bytes + w_bytes) + y_bytes);
    struct tape t;
    if (!tape_open(&t, &plan, false, c->threads, e))
        return false;
    real *x = tape_scratch(&t, "x", x_bytes), *dx = tape_scratch(&t, "dx", x_bytes);
    real *w = tape_scratch(&t, "w", w_bytes), *dw = tape_scratch(&t, "dw", w_bytes);
    real *y = tape_scratch(&t, "y", y_bytes);
    arena_touch(&t.arena);
    for (int64_t i = 0; i < s.rows * s.in; i++)
        x[i] = 1;
    for (int64_t i = 0; i < s.in * s.out; i++)
        w[i] = 1;
    bench_gemm(&s, c->threads, x, w, y, dx, dw);
    tape_close(&t);
    return true;
}

bool outside_measure(struct config *c, struct error *e)
{
    if (c->outside_bytes > 0)
        return true;
    if (!touch_blas(c, e))
        return false;
    c->outside_bytes = system_resident_bytes();
    if (c->outside_bytes > 0 && !c->has_data)
        c->outside_bytes += CORPUS_DEFAULT_BYTES; // the text that train loads if none is named
    return true;
}

bool outside_check(int64_t arena_bytes, int64_t outside_bytes, struct error *e)
{
    char need[TEXT_NUMBER_BYTES], have[TEXT_NUMBER_BYTES];
    int64_t available = system_available_bytes(), resident = system_resident_bytes();
    if (available <= 0 || arena_bytes + outside_bytes - resident <= available)
        return true;
    return refuse(e,
                  "the run needs %s, and this machine has %s available now: it would swap or be "
                  "killed; `memtape fit --budget %lld` says what fits, --force runs it anyway",
                  text_from_bytes(arena_bytes + outside_bytes, need),
                  text_from_bytes(available, have),
                  (long long)(available > outside_bytes ? available - outside_bytes : available));
}
