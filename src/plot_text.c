// plot_text.c - a plot in characters. Lines are Braille dots, two across and four down a cell;
// points are letters, and each line has its own rhythm of dots.
#include "src/plot.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16 };

static const char letters[PLOT_SERIES_MAX + 1] = "ox+*#@%$";
static const char several = '&'; // where points of two lines meet

struct canvas {
    int columns; // cells between the axes
    unsigned char dots[ROWS][PLOT_COLUMNS_MAX];
    char letter[ROWS][PLOT_COLUMNS_MAX];
    bool has_several;
};

static int at(double place, int count)
{
    int i = (int)lround(place * (count - 1));
    return i < 0 ? 0 : i >= count ? count - 1 : i;
}

static void dot(struct canvas *c, int x, int y)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    c->dots[y / 4][x / 2] |= bit[y % 4][x % 2];
}

// How many dots of each ten are drawn: all, 5 of 10, every second ...
static bool is_drawn(int series, int step)
{
    static const unsigned rhythm[4] = {0x3ff, 0x155, 0x01f, 0x04f};
    return rhythm[series % 4] >> step % 10 & 1;
}

static void draw_line(struct canvas *c, const struct plot *p, int s)
{
    const struct plot_series *l = &p->series[s];
    int drawn = 0;
    for (int i = 1; i < l->count && !p->has_words; i++) {
        int x0 = at(plot_place(&p->x, l->point[i - 1].x), 2 * c->columns);
        int y0 = at(1 - plot_place(&p->y, l->point[i - 1].y), 4 * ROWS);
        int dx = at(plot_place(&p->x, l->point[i].x), 2 * c->columns) - x0;
        int dy = at(1 - plot_place(&p->y, l->point[i].y), 4 * ROWS) - y0;
        int steps = dx * dx > dy * dy ? dx : dy;
        steps = steps < 0 ? -steps : steps;
        for (int k = 0; k <= steps; k++) {
            double part = steps > 0 ? (double)k / steps : 0;
            if (is_drawn(s, drawn++))
                dot(c, x0 + (int)lround(part * dx), y0 + (int)lround(part * dy));
        }
    }
}

static void draw_points(struct canvas *c, const struct plot *p, int s)
{
    const struct plot_series *l = &p->series[s];
    for (int i = 0; i < l->count; i++) {
        int x = at(plot_place(&p->x, l->point[i].x), 2 * c->columns) / 2;
        int y = at(1 - plot_place(&p->y, l->point[i].y), 4 * ROWS) / 4;
        char *cell = &c->letter[y][x];
        c->has_several |= *cell != 0 && *cell != letters[s];
        *cell = *cell != 0 && *cell != letters[s] ? several : letters[s];
    }
}

static void put_cell(FILE *f, unsigned char dots, char letter)
{
    if (letter != 0)
        fputc(letter, f);
    else if (dots == 0)
        fputc(' ', f);
    else // U+2800 + dots, in three bytes
        fprintf(f, "\xe2%c%c", 0xa0 | dots >> 6, 0x80 | (dots & 0x3f));
}

static void put_row(FILE *f, const struct canvas *c, const struct plot *p, int y, int width)
{
    const char *label = "", *edge = "\xe2\x94\x82"; // a vertical line
    for (int i = 0; i < p->y.tick_count; i++)
        if (at(1 - plot_place(&p->y, p->y.tick[i].at), 4 * ROWS) / 4 == y) {
            label = p->y.tick[i].text;
            edge = "\xe2\x94\xa4"; // the same with a tick to the left
        }
    fprintf(f, "%*s%s %s", width - plot_width(label), "", label, edge);
    int last = c->columns;
    while (last > 0 && c->dots[y][last - 1] == 0 && c->letter[y][last - 1] == 0)
        last--;
    for (int x = 0; x < last; x++)
        put_cell(f, c->dots[y][x], c->letter[y][x]);
    fputc('\n', f);
}

// The axis, and labels under it as far as they do not touch.
static void put_x_axis(FILE *f, const struct canvas *c, const struct plot *p, int width)
{
    bool has_tick[PLOT_COLUMNS_MAX] = {false};
    for (int i = 0; i < p->x.tick_count; i++)
        has_tick[at(plot_place(&p->x, p->x.tick[i].at), 2 * c->columns) / 2] = true;
    fprintf(f, "%*s \xe2\x94\x94", width, "");
    for (int x = 0; x < c->columns; x++)
        fputs(has_tick[x] ? "\xe2\x94\xac" : "\xe2\x94\x80", f);
    fprintf(f, "\n%*s", width + 2, "");
    int used = 0;
    for (int i = 0; i < p->x.tick_count; i++) {
        const char *label = p->x.tick[i].text;
        int length = plot_width(label);
        int from = at(plot_place(&p->x, p->x.tick[i].at), 2 * c->columns) / 2 - length / 2;
        from = from + length > c->columns ? c->columns - length : from;
        from = from < 0 ? 0 : from;
        if (from < used + (used > 0))
            continue;
        fprintf(f, "%*s%s", from - used, "", label);
        used = from + length;
    }
    char name[PLOT_NAME_BYTES];
    int blank = width + 2 + (c->columns - plot_width(plot_axis_text(&p->x, name))) / 2;
    fprintf(f, "\n%*s%s\n", blank, "", name);
}

// Cut at `columns` characters.
static void put_cut(FILE *f, const char *words, int columns)
{
    for (; *words != 0; words++) {
        columns -= ((unsigned char)*words & 0xc0) != 0x80;
        if (columns < 0)
            break;
        fputc(*words, f);
    }
    fputc('\n', f);
}

static void put_legend(FILE *f, const struct canvas *c, const struct plot *p, int columns)
{
    if (p->series_count < 2 && p->series[0].name[0] == 0)
        return;
    for (int s = 0; s < p->series_count; s++) {
        fprintf(f, "  %c  ", letters[s]);
        put_cut(f, p->series[s].name, columns - 5);
    }
    if (c->has_several)
        fprintf(f, "  %c  several of them\n", several);
}

void plot_text(FILE *f, const struct plot *p, int columns)
{
    struct canvas c = {0};
    int width = 4;
    columns = columns > PLOT_COLUMNS_MAX ? PLOT_COLUMNS_MAX : columns < 40 ? 40 : columns;
    for (int i = 0; i < p->y.tick_count; i++)
        if (plot_width(p->y.tick[i].text) > width)
            width = plot_width(p->y.tick[i].text);
    c.columns = columns - width - 2;
    for (int s = 0; s < p->series_count; s++)
        draw_line(&c, p, s);
    for (int s = 0; s < p->series_count; s++)
        draw_points(&c, p, s);
    char y_name[PLOT_NAME_BYTES], head[2 * PLOT_NAME_BYTES + 8];
    snprintf(head, sizeof(head), "%s (%s)", p->title, plot_axis_text(&p->y, y_name));
    put_cut(f, head, columns);
    for (int y = 0; y < ROWS; y++)
        put_row(f, &c, p, y, width);
    put_x_axis(f, &c, p, width);
    put_legend(f, &c, p, columns);
}
