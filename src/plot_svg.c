// plot_svg.c - a plot as one SVG file that needs nothing else.
//
// Sizes are in pixels. Room for text is reckoned with the widest of the usual sans-serif fonts, so
// nothing overlaps in any of them. Colours change with the viewer's scheme; a viewer that knows of
// no schemes shows the light one, with its own background. Open marks are not filled: where lines
// meet, both can be seen.
#include "src/plot.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 760,
    LEFT = 84,
    RIGHT = 28,
    TOP = 70,
    HEIGHT = 300, // of the area between the axes
    BELOW = 66,   // tick labels, in two rows if need be, and the name of x
    LEGEND_ROW = 21,
    CHARACTER = 8, // a wide one, at size 12
    SMALL_ROW = 15,
    FOOTER_COLUMNS = 118,
    LEGEND_COLUMNS = 42, // of a name, if two stand side by side
};

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "font-size:12px;fill:#1f2328}\n"
    ".bg{fill:#fff}.title{font-size:16px;font-weight:600}\n"
    ".small{font-size:10.5px;fill:#57606a}.grid{stroke:#d8dee4}.axis{stroke:#57606a}\n"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".mark{stroke-width:2;stroke-linejoin:round}\n"
    ".s0{stroke:#0969da;color:#0969da}.s1{stroke:#bc4c00;color:#bc4c00}\n"
    ".s2{stroke:#1a7f37;color:#1a7f37}.s3{stroke:#8250df;color:#8250df}\n"
    ".s4{stroke:#cf222e;color:#cf222e}.s5{stroke:#1b7c83;color:#1b7c83}\n"
    ".s6{stroke:#7d4e00;color:#7d4e00}.s7{stroke:#bf3989;color:#bf3989}\n"
    ".full{fill:currentColor}.open{fill:none}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.bg{fill:#0d1117}.small{fill:#9198a1}\n"
    ".grid{stroke:#2b3138}.axis{stroke:#9198a1}\n"
    ".s0{stroke:#58a6ff;color:#58a6ff}.s1{stroke:#ffa657;color:#ffa657}\n"
    ".s2{stroke:#56d364;color:#56d364}.s3{stroke:#d2a8ff;color:#d2a8ff}\n"
    ".s4{stroke:#ff7b72;color:#ff7b72}.s5{stroke:#39c5cf;color:#39c5cf}\n"
    ".s6{stroke:#e3b341;color:#e3b341}.s7{stroke:#ff9bce;color:#ff9bce}\n"
    "}\n"
    "</style>\n";

static const struct { // a path around 0, 0
    const char *path, *fill, *dash;
} looks[PLOT_SERIES_MAX] = {
    {"M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "full", "none"},
    {"M-4-4H4V4H-4Z", "open", "9 4"},
    {"M0-5L5 4H-5Z", "full", "2 4"},
    {"M0-6L6 0L0 6L-6 0Z", "open", "10 4 2 4"},
    {"M-4.5-4.5L4.5 4.5M-4.5 4.5L4.5-4.5", "open", "16 5"},
    {"M0 5L5-4H-5Z", "full", "5 3"},
    {"M-5.5 0H5.5M0-5.5V5.5", "open", "10 3 2 3 2 3"},
    {"M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z", "open", "1 3"},
};

struct sheet { // what stands where
    FILE *file;
    int legend_columns, legend_rows;
    double legend_y, footer_y, height;
};

// Text between tags.
static void escaped(FILE *f, const char *text, int count)
{
    for (int i = 0; i < count && text[i] != 0; i++)
        switch (text[i]) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        default: fputc((unsigned char)text[i] < 0x20 ? ' ' : text[i], f);
        }
}

static void text(FILE *f, double x, double y, const char *attributes, const char *words, int count)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, attributes[0] != 0 ? " " : "", attributes);
    escaped(f, words, count);
    fputs("</text>\n", f);
}

static int length(const char *words)
{
    return (int)strlen(words);
}

static double at_x(const struct plot *p, double v)
{
    return LEFT + plot_place(&p->x, v) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct plot *p, double v)
{
    return TOP + (1 - plot_place(&p->y, v)) * HEIGHT;
}

// ---- axes ------------------------------------------------------------------------------

// Would labels under x touch if they stood in one row?
static bool are_tight(const struct plot *p)
{
    for (int i = 1; i < p->x.tick_count; i++) {
        const struct plot_tick *a = &p->x.tick[i - 1], *b = &p->x.tick[i];
        double room = at_x(p, b->at) - at_x(p, a->at);
        if ((plot_width(a->text) + plot_width(b->text)) / 2.0 * CHARACTER + 6 > room)
            return true;
    }
    return false;
}

static void axes(FILE *f, const struct plot *p)
{
    char name[PLOT_NAME_BYTES];
    double bottom = TOP + HEIGHT, right = WIDTH - RIGHT;
    for (int i = 0; i < p->y.tick_count; i++) {
        double y = at_y(p, p->y.tick[i].at);
        fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%.1f\"/>\n", LEFT, y, right);
        text(f, LEFT - 8, y + 4, "text-anchor=\"end\"", p->y.tick[i].text,
             length(p->y.tick[i].text));
    }
    bool is_tight = are_tight(p);
    for (int i = 0; i < p->x.tick_count; i++) {
        double x = at_x(p, p->x.tick[i].at);
        fprintf(f, "<path class=\"axis\" d=\"M%.1f %.1fv5\"/>\n", x, bottom);
        text(f, x, bottom + 20 + (is_tight ? i % 2 * 14 : 0), "text-anchor=\"middle\"",
             p->x.tick[i].text, length(p->x.tick[i].text));
    }
    fprintf(f, "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%.1fH%.1f\"/>\n", LEFT, TOP - 6,
            bottom, right);
    plot_axis_text(&p->y, name);
    text(f, LEFT - 60, TOP - 18, "", name, length(name));
    plot_axis_text(&p->x, name);
    text(f, (LEFT + right) / 2, bottom + 50, "text-anchor=\"middle\"", name, length(name));
}

// ---- lines -----------------------------------------------------------------------------

static void mark(FILE *f, int s, double x, double y)
{
    fprintf(f, "<path class=\"mark s%d %s\" transform=\"translate(%.1f %.1f)\" d=\"%s\"", s,
            looks[s].fill, x, y, looks[s].path);
}

static void line(FILE *f, const struct plot *p, int s)
{
    const struct plot_series *l = &p->series[s];
    char value_x[PLOT_TICK_BYTES], value_y[PLOT_TICK_BYTES];
    if (!p->has_words && l->count > 1) {
        fprintf(f, "<path class=\"line s%d\" stroke-dasharray=\"%s\" d=\"", s, looks[s].dash);
        for (int i = 0; i < l->count; i++)
            fprintf(f, "%s%.1f %.1f", i > 0 ? "L" : "M", at_x(p, l->point[i].x),
                    at_y(p, l->point[i].y));
        fprintf(f, "\"/>\n");
    }
    for (int i = 0; i < l->count; i++) { // its title shows up under the mouse
        double y = l->point[i].y;
        mark(f, s, at_x(p, l->point[i].x), at_y(p, y));
        fputs("><title>", f);
        escaped(f, l->name, length(l->name));
        plot_format(l->point[i].x, p->x.unit, l->point[i].x, value_x);
        plot_format(y, p->y.unit, y, value_y);
        if (!p->has_words)
            fprintf(f, "%s%s %s", l->name[0] != 0 ? ", " : "", p->x.name, value_x);
        fprintf(f, ": %s</title></path>\n", value_y);
    }
}

static void legend(const struct sheet *h, const struct plot *p)
{
    FILE *f = h->file;
    for (int s = 0; s < p->series_count && h->legend_rows > 0; s++) {
        double x = LEFT + s / h->legend_rows * (WIDTH - LEFT - RIGHT) / h->legend_columns;
        double y = h->legend_y + s % h->legend_rows * LEGEND_ROW;
        if (!p->has_words)
            fprintf(f, "<path class=\"line s%d\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh44\"/>\n",
                    s, looks[s].dash, x, y);
        mark(f, s, x + 22, y);
        fputs("/>\n", f);
        text(f, x + 54, y + 4, "", p->series[s].name, length(p->series[s].name));
    }
}

// ---- the sheet -------------------------------------------------------------------------

// Bytes of the first line of `words`: up to the last blank within FOOTER_COLUMNS characters.
static int first_line(const char *words)
{
    int columns = 0, blank = 0, i = 0;
    for (; words[i] != 0 && columns < FOOTER_COLUMNS; i++) {
        columns += ((unsigned char)words[i] & 0xc0) != 0x80;
        if (words[i] == ' ' && (words[i + 1] == '-' || blank == 0))
            blank = i; // a command line breaks before an option
    }
    return words[i] != 0 && blank > 0 ? blank : i;
}

static int footer(FILE *f, const char *words, double y)
{
    int rows = 0;
    for (; words != NULL && *words != 0; rows++) {
        int count = first_line(words);
        if (f != NULL)
            text(f, LEFT - 60, y + rows * SMALL_ROW, "class=\"small\"", words, count);
        words += count;
        while (*words == ' ')
            words++;
    }
    return rows;
}

static struct sheet measure(FILE *f, const struct plot *p)
{
    struct sheet h = {.file = f, .legend_columns = 2};
    for (int s = 0; s < p->series_count; s++)
        if (plot_width(p->series[s].name) > LEGEND_COLUMNS)
            h.legend_columns = 1;
    bool has_legend = p->series_count > 1 || p->series[0].name[0] != 0;
    if (has_legend)
        h.legend_rows = (p->series_count + h.legend_columns - 1) / h.legend_columns;
    h.legend_y = TOP + HEIGHT + BELOW + 10;
    h.footer_y = h.legend_y + h.legend_rows * LEGEND_ROW + (h.legend_rows > 0 ? 12 : 0);
    h.height = h.footer_y + footer(NULL, p->footer, 0) * SMALL_ROW;
    return h;
}

void plot_svg(FILE *f, const struct plot *p)
{
    struct sheet h = measure(f, p);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" role=\"img\">\n<title>",
            WIDTH, h.height, WIDTH, h.height);
    escaped(f, p->title, length(p->title));
    fprintf(f, "</title>\n%s<rect class=\"bg\" width=\"%d\" height=\"%.0f\"/>\n", style, WIDTH,
            h.height);
    text(f, LEFT - 60, 28, "class=\"title\"", p->title, length(p->title));
    axes(f, p);
    for (int s = 0; s < p->series_count; s++)
        line(f, p, s);
    legend(&h, p);
    footer(f, p->footer, h.footer_y);
    fprintf(f, "</svg>\n");
}
