// plot.h - lines of points with axes and a legend, as SVG or as characters.
//
// The caller fills in series and the two axes' names and units; plot_layout chooses scales, ranges
// and ticks; the drawers only draw. Lines are told apart by marker and dash pattern as well as by
// colour.
#ifndef SRC_PLOT_H
#define SRC_PLOT_H

#include "tape/base.h"

#include <stdio.h>

enum {
    PLOT_SERIES_MAX = 8, // markers, dash patterns and colours that differ
    PLOT_POINTS_MAX = 64,
    PLOT_TICKS_MAX = PLOT_POINTS_MAX,
    PLOT_TICK_BYTES = 40,
    PLOT_NAME_BYTES = 256,
    PLOT_COLUMNS_MAX = 160,
};

enum plot_unit { PLOT_PLAIN, PLOT_BYTES, PLOT_FLOPS, PLOT_SECONDS, PLOT_RATE };

struct plot_tick {
    double at;
    char text[PLOT_TICK_BYTES]; // "200 MB"
};

struct plot_axis {
    char name[PLOT_NAME_BYTES];
    enum plot_unit unit;
    bool is_log;      // chosen by plot_layout, as are range and ticks
    double low, high; // what the ends stand for
    int tick_count;
    struct plot_tick tick[PLOT_TICKS_MAX];
};

struct plot_point {
    double x, y; // finite; x: one of plot.x_value, in that order
};

struct plot_series {
    char name[PLOT_NAME_BYTES]; // "" if it is the only one: no legend
    int count;
    struct plot_point point[PLOT_POINTS_MAX];
};

struct plot {
    char title[PLOT_NAME_BYTES];
    const char *footer; // small print under it, or NULL; breaks at blanks
    struct plot_axis x, y;
    bool has_words; // x stands for words, evenly spaced; they are the ticks, and no lines are drawn
    int x_count;
    struct plot_tick x_value[PLOT_POINTS_MAX];
    int series_count;
    struct plot_series series[PLOT_SERIES_MAX];
};

// Needs at least one series with a point.
void plot_layout(struct plot *p);

// Where v stands on an axis: 0 at the low end, 1 at the high one.
double plot_place(const struct plot_axis *a, double v);

// "seq, logarithmic". Returns out.
char *plot_axis_text(const struct plot_axis *a, char out[PLOT_NAME_BYTES]);

// "200 MB", "1.5 GFLOP", "20 ms"; like: the size that decides between kB, MB and GB. Returns out.
char *plot_format(double v, enum plot_unit unit, double like, char out[PLOT_TICK_BYTES]);

void plot_svg(FILE *f, const struct plot *p);

// At most `columns` wide (40 to PLOT_COLUMNS_MAX), in UTF-8.
void plot_text(FILE *f, const struct plot *p, int columns);

int plot_width(const char *text); // characters of UTF-8, not bytes

#endif
