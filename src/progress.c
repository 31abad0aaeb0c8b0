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

// What stands right of the bar.
static void describe(const struct progress *p, const struct progress_step *s, char *out, int bytes)
{
    char now[TEXT_NUMBER_BYTES], peak[TEXT_NUMBER_BYTES], val[32] = "";
    int64_t done = s->step - p->first_step, all = p->last_step - p->first_step;
    double spent = system_seconds() - p->started;
    double left = done > 0 ? spent / (double)done * (double)(all - done) : 0;
    if (!isnan(p->val_loss))
        snprintf(val, sizeof(val), "  val %.4f", p->val_loss);
    snprintf(out, (size_t)bytes, "%lld/%lld  loss %.4f%s  %.0f tok/s  %.0f s left  %s/%s",
             (long long)s->step, (long long)p->last_step, s->loss, val, s->tokens_per_second, left,
             text_from_bytes(s->now_bytes, now), text_from_bytes(s->peak_bytes, peak));
}

// The bar has what the words leave of the line; it yields first.
static void bar(const struct progress *p, const struct progress_step *s)
{
    enum { CELLS_MAX = 24, CELLS_MIN = 4 };
    char words[200], cells[CELLS_MAX + 1];
    describe(p, s, words, sizeof(words));
    int columns = system_terminal_columns(STDERR_FILENO) - 1;
    int width = columns - (int)strlen(words) - 3; // brackets and a space
    width = width > CELLS_MAX ? CELLS_MAX : width;
    if (width < CELLS_MIN) {
        fprintf(stderr, "\r%-*.*s", columns, columns, words);
        fflush(stderr);
        return;
    }
    int64_t done = s->step - p->first_step, all = p->last_step - p->first_step;
    for (int i = 0; i < width; i++)
        cells[i] = i * all < done * width ? '#' : '.';
    cells[width] = 0;
    int padding = columns - width - 3;
    fprintf(stderr, "\r[%s] %-*.*s", cells, padding, padding, words);
    fflush(stderr);
}

// The first, the last, one for each tenth of the run, and where it was validated.
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
