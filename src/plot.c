#include "src/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int plot_width(const char *text)
{
    int width = 0;
    for (; *text != 0; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

double plot_place(const struct plot_axis *a, double v)
{
    if (a->high <= a->low)
        return 0.5;
    if (a->is_log)
        return log(v / a->low) / log(a->high / a->low);
    return (v - a->low) / (a->high - a->low);
}

char *plot_format(double v, enum plot_unit unit, double like, char out[PLOT_TICK_BYTES])
{
    static const char *const prefix[] = {"\xc2\xb5", "m", "", "k", "M", "G", "T", "P", "E"};
    static const char *const name[] = {
        [PLOT_BYTES] = "B", [PLOT_FLOPS] = "FLOP", [PLOT_SECONDS] = "s", [PLOT_RATE] = ""};
    enum { ONE = 2 };
    if (unit == PLOT_PLAIN) {
        snprintf(out, PLOT_TICK_BYTES, "%.10g", v);
        return out;
    }
    int least = unit == PLOT_SECONDS ? 0 : ONE, p = ONE;
    for (; fabs(like) >= 999.5 && p < COUNT_OF(prefix) - 1; p++) {
        like /= 1000;
        v /= 1000;
    }
    for (; like != 0 && fabs(like) < 0.9995 && p > least; p--) {
        like *= 1000;
        v *= 1000;
    }
    const char *blank = prefix[p][0] != 0 || name[unit][0] != 0 ? " " : "";
    snprintf(out, PLOT_TICK_BYTES, "%.4g%s%s%s", v, blank, prefix[p], name[unit]);
    return out;
}

// ---- ticks -----------------------------------------------------------------------------

static void add_tick(struct plot_axis *a, double at, double like)
{
    if (a->tick_count == PLOT_TICKS_MAX)
        return;
    struct plot_tick *t = &a->tick[a->tick_count++];
    t->at = at;
    plot_format(at, a->unit, like, t->text);
}

// 1, 2, 2.5 or 5 times a power of ten, and at least v.
static double round_step(double v)
{
    double power = pow(10, floor(log10(v)));
    static const double nice[] = {1, 2, 2.5, 5, 10};
    int i = 0;
    while (i < COUNT_OF(nice) - 1 && nice[i] * power < v * (1 - 1e-9))
        i++;
    return nice[i] * power;
}

// Multiples of a round step, all in the unit of the largest.
static void linear_ticks(struct plot_axis *a, double step)
{
    double first = ceil(a->low / step - 1e-9), last = floor(a->high / step + 1e-9);
    for (double i = first; i <= last; i++)
        add_tick(a, i * step + 0.0, last * step); // no -0
}

// The ladder 1, 2, 5, 10, 20, 50 ...; step 3 climbs powers of ten only, 6 every other one.
static double rung(int i)
{
    static const double nice[] = {1, 2, 5};
    int power = (int)floor(i / 3.0);
    return nice[i - 3 * power] * pow(10, power);
}

static int rung_below(double v, int step)
{
    int i = 3 * (int)floor(log10(v) + 1e-9);
    while (rung(i + 1) <= v * (1 + 1e-9))
        i++;
    return step * (int)floor((double)i / step);
}

static int ladder_step(double low, double high)
{
    double decades = log10(high / low);
    return decades <= 2.4 ? 1 : 3 * (int)ceil(decades / 8);
}

static void log_ticks(struct plot_axis *a, int step)
{
    for (int i = rung_below(a->low, step); rung(i) <= a->high * (1 + 1e-9); i += step)
        if (rung(i) >= a->low * (1 - 1e-9))
            add_tick(a, rung(i), rung(i));
}

// ---- x ---------------------------------------------------------------------------------

// How uneven the steps between the values are, largest over mean: 1 if all are equal.
static double unevenness(const struct plot *p, bool is_log)
{
    double largest = 0, first = p->x_value[0].at, last = p->x_value[p->x_count - 1].at;
    for (int i = 1; i < p->x_count; i++) {
        double a = p->x_value[i - 1].at, b = p->x_value[i].at;
        largest = fmax(largest, fabs(is_log ? log(b / a) : b - a));
    }
    return largest * (p->x_count - 1) / fabs(is_log ? log(last / first) : last - first);
}

static bool x_wants_log(const struct plot *p, double low, double high)
{
    if (p->has_words || low <= 0 || high < 4 * low)
        return false;
    return p->x_count == 2 ? high > 10 * low : unevenness(p, true) < unevenness(p, false);
}

// Are the values themselves far enough from each other to be the ticks? (Words have to be.)
static bool values_can_be_ticks(const struct plot *p)
{
    int widest = 0;
    if (p->has_words)
        return true;
    for (int i = 0; i < p->x_count; i++)
        widest = plot_width(p->x_value[i].text) > widest ? plot_width(p->x_value[i].text) : widest;
    double apart = 0.03 + 0.012 * widest; // of the axis, whatever draws it
    for (int i = 0; i < p->x_count; i++)
        for (int j = 0; j < i; j++)
            if (fabs(plot_place(&p->x, p->x_value[i].at) - plot_place(&p->x, p->x_value[j].at)) <
                apart)
                return false;
    return true;
}

static void layout_x(struct plot *p)
{
    struct plot_axis *a = &p->x;
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < p->x_count; i++) {
        low = fmin(low, p->x_value[i].at);
        high = fmax(high, p->x_value[i].at);
    }
    a->is_log = x_wants_log(p, low, high);
    double room = a->is_log ? pow(high / low, 0.04) : (high - low) * 0.04; // beside the outermost
    if (p->has_words)
        room = 0.5;
    a->low = a->is_log ? low / room : low - room;
    a->high = a->is_log ? high * room : high + room;
    a->tick_count = 0;
    if (values_can_be_ticks(p)) {
        a->tick_count = p->x_count;
        memcpy(a->tick, p->x_value, sizeof(a->tick));
    } else if (a->is_log) {
        log_ticks(a, ladder_step(low, high));
    } else {
        linear_ticks(a, round_step((high - low) / 8));
    }
}

// ---- y ---------------------------------------------------------------------------------

static void layout_y(struct plot *p)
{
    struct plot_axis *a = &p->y;
    double low = INFINITY, high = -INFINITY;
    for (int s = 0; s < p->series_count; s++)
        for (int i = 0; i < p->series[s].count; i++) {
            low = fmin(low, p->series[s].point[i].y);
            high = fmax(high, p->series[s].point[i].y);
        }
    // Where x is logarithmic, what is proportional to it is a straight line only if y is, too.
    a->is_log = low > 0 && high > (p->x.is_log ? 3 : 10) * low;
    a->tick_count = 0;
    if (a->is_log) {
        int step = ladder_step(low, high), top = rung_below(high, step);
        a->low = rung(rung_below(low, step));
        a->high = rung(rung(top) < high * (1 - 1e-9) ? top + step : top);
        log_ticks(a, step);
        return;
    }
    double step = high > 0 ? round_step(high / 6) : 0.2; // from 0: heights compare as amounts
    a->low = 0;
    a->high = high > 0 ? step * ceil(high / step - 1e-9) : 1;
    linear_ticks(a, step);
}

char *plot_axis_text(const struct plot_axis *a, char out[PLOT_NAME_BYTES])
{
    snprintf(out, PLOT_NAME_BYTES, "%.200s%s", a->name, a->is_log ? ", logarithmic" : "");
    return out;
}

void plot_layout(struct plot *p)
{
    CHECK(p->series_count >= 1 && p->series[0].count >= 1 && p->x_count >= 1);
    layout_x(p);
    layout_y(p);
}
