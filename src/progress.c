#include "src/progress.h"

#include "src/system.h"
#include "tape/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void progress_begin(struct progress *p, bool quiet, int64_t first_step, int64_t last_step)
{
    *p = (struct progress){.quiet = quiet,
                           .is_terminal = system_is_terminal(STDERR_FILENO),
                           .first_step = first_step,
                           .last_step = last_step,
                           .started = system_seconds(),
                           .val_loss = NAN};
}

static void bar(struct progress *p, const struct progress_step *s)
{
    enum { CELLS = 24 };
    char now[TEXT_NUMBER_BYTES], peak[TEXT_NUMBER_BYTES], cells[CELLS + 1], line[256];
    int64_t done = s->step - p->first_step, all = p->last_step - p->first_step;
    int filled = all > 0 ? (int)(done * CELLS / all) : CELLS;
    double spent = system_seconds() - p->started;
    double left = done > 0 ? spent / (double)done * (double)(all - done) : 0;
    for (int i = 0; i < CELLS; i++)
        cells[i] = i < filled ? '#' : '.';
    cells[CELLS] = 0;
    int used = snprintf(line, sizeof(line), "[%s] %lld/%lld  loss %.4f", cells, (long long)s->step,
                        (long long)p->last_step, s->loss);
    if (!isnan(p->val_loss))
        used += snprintf(line + used, sizeof(line) - (size_t)used, "  val %.4f", p->val_loss);
    snprintf(line + used, sizeof(line) - (size_t)used, "  %.0f tok/s  %.0f s left  %s/%s",
             s->tokens_per_second, left, text_from_bytes(s->now_bytes, now),
             text_from_bytes(s->peak_bytes, peak));
    int columns = system_terminal_columns(STDERR_FILENO);
    fprintf(stderr, "\r%-*.*s", columns - 1, columns - 1, line);
    fflush(stderr);
}

// Lines at steps 1, 2, 5, 10, 20, 50 ... and at least ten over the run, and where it was validated.
static bool is_worth_a_line(const struct progress *p, const struct progress_step *s)
{
    int64_t all = p->last_step - p->first_step, every = all / 10 > 0 ? all / 10 : 1;
    return s->validated || s->step == p->first_step + 1 || s->step == p->last_step ||
           s->step % every == 0;
}

static void plain(struct progress *p, const struct progress_step *s)
{
    char now[TEXT_NUMBER_BYTES], peak[TEXT_NUMBER_BYTES], val[48] = "";
    if (s->validated)
        snprintf(val, sizeof(val), "  val loss %.4f", s->val_loss);
    (void)p;
    fprintf(stderr, "step %6lld  loss %.4f%s  %.0f tokens/s  memory %s, peak %s\n",
            (long long)s->step, s->loss, val, s->tokens_per_second,
            text_from_bytes(s->now_bytes, now), text_from_bytes(s->peak_bytes, peak));
}

void progress_show(struct progress *p, const struct progress_step *s)
{
    static const double between = 0.1; // seconds
    if (s->validated)
        p->val_loss = s->val_loss;
    if (p->quiet)
        return;
    if (!p->is_terminal) {
        if (is_worth_a_line(p, s))
            plain(p, s);
        return;
    }
    double now = system_seconds();
    if (now - p->shown < between && s->step < p->last_step)
        return;
    p->shown = now;
    bar(p, s);
}

void progress_end(struct progress *p)
{
    if (!p->quiet && p->is_terminal)
        fputc('\n', stderr);
}
