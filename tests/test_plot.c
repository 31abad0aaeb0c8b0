// A plot has round ticks inside its range, every point where its value says, and nothing that
// overlaps or hangs out, as SVG and in characters.
#include "src/plot.h"

#include "tests/test.h"

#include <ctype.h>

static struct plot p;

static void begin(int series, int points)
{
    memset(&p, 0, sizeof(p));
    snprintf(p.title, sizeof(p.title), "Saved activations by seq");
    snprintf(p.x.name, sizeof(p.x.name), "seq");
    snprintf(p.y.name, sizeof(p.y.name), "bytes");
    p.y.unit = PLOT_BYTES;
    p.series_count = series;
    p.x_count = points;
}

static void put_x(int i, double x)
{
    p.x_value[i].at = x;
    snprintf(p.x_value[i].text, PLOT_TICK_BYTES, "%.10g", x);
}

static void put(int series, int i, double x, double y)
{
    struct plot_series *l = &p.series[series];
    if (series == 0)
        put_x(i, x);
    l->point[i] = (struct plot_point){x, y};
    l->count = i + 1;
}

static double random_part(uint64_t *state) // 0 to 1
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

// ---- axes ------------------------------------------------------------------------------

static bool is_round(double v, bool half) // 1, 2, 5 (and 2.5) times a power of ten
{
    double m = v / pow(10, floor(log10(v) + 1e-9));
    return fabs(m - 1) < 1e-6 || fabs(m - 2) < 1e-6 || fabs(m - 5) < 1e-6 ||
           (half && fabs(m - 2.5) < 1e-6);
}

static void check_axis(const struct plot_axis *a, bool is_y)
{
    assert_in_range(a->tick_count, is_y ? 2 : 1, 13);
    for (int i = 0; i < a->tick_count; i++) {
        double place = plot_place(a, a->tick[i].at);
        assert_true(place > -1e-9 && place < 1 + 1e-9);
        assert_true(a->tick[i].text[0] != '-' && a->tick[i].text[0] != 0);
        if (i == 0)
            continue;
        assert_true(a->tick[i].at > a->tick[i - 1].at);
        assert_string_not_equal(a->tick[i].text, a->tick[i - 1].text);
        if (is_y && !a->is_log)
            assert_true(is_round(a->tick[i].at - a->tick[i - 1].at, true));
        if (is_y && a->is_log)
            assert_true(is_round(a->tick[i].at, false));
    }
    if (is_y) { // the axis ends where its ticks do
        assert_near(plot_place(a, a->tick[0].at), 0, 1e-9);
        assert_near(plot_place(a, a->tick[a->tick_count - 1].at), 1, 1e-9);
    }
}

static void check_points(void)
{
    for (int s = 0; s < p.series_count; s++)
        for (int i = 0; i < p.series[s].count; i++) {
            double x = plot_place(&p.x, p.series[s].point[i].x);
            double y = plot_place(&p.y, p.series[s].point[i].y);
            assert_true(x > 0 && x < 1 && y > -1e-9 && y < 1 + 1e-9);
        }
}

static void test_ticks_are_round_and_inside(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        int points = 1 + (int)(random_part(&random) * 12);
        double scale = pow(10, random_part(&random) * 16), spread = random_part(&random) * 14;
        begin(1, points);
        double x = floor(1 + random_part(&random) * 100);
        for (int i = 0; i < points; i++) {
            put(0, i, x, floor(scale * pow(10, random_part(&random) * spread)));
            x = round % 2 == 0 ? x * 2 : x + 1 + floor(random_part(&random) * 20);
        }
        p.y.unit = (enum plot_unit)(round % 5);
        plot_layout(&p);
        check_axis(&p.x, false);
        check_axis(&p.y, true);
        check_points();
    }
}

static void fill_x(int count, const double *x)
{
    begin(1, count);
    for (int i = 0; i < count; i++)
        put(0, i, x[i], 1000 * x[i]);
    plot_layout(&p);
}

static void test_scales(void **state)
{
    (void)state;
    fill_x(4, (double[]){32, 64, 128, 256});
    assert_true(p.x.is_log && p.y.is_log); // proportional: a straight line
    assert_int_equal(p.x.tick_count, 4);
    assert_string_equal(p.x.tick[3].text, "256");
    assert_near(plot_place(&p.x, 64) - plot_place(&p.x, 32),
                plot_place(&p.x, 256) - plot_place(&p.x, 128), 1e-9);
    fill_x(5, (double[]){1, 3, 5, 7, 9});
    assert_true(!p.x.is_log && !p.y.is_log);
    assert_near(p.y.low, 0, 0);
    assert_int_equal(p.x.tick_count, 5);
    fill_x(3, (double[]){1, 2, 3});
    assert_false(p.x.is_log);
    fill_x(5, (double[]){10, 20, 50, 100, 200});
    assert_true(p.x.is_log);
    fill_x(3, (double[]){0, 1, 100}); // no logarithm of 0
    assert_false(p.x.is_log || p.y.is_log);
    fill_x(1, (double[]){7});
    assert_near(plot_place(&p.x, 7), 0.5, 1e-9);
    begin(1, 2); // over more than a decade
    put(0, 0, 1, 1e6);
    put(0, 1, 2, 11e6);
    plot_layout(&p);
    assert_true(p.y.is_log);
    put(0, 1, 2, 9e6);
    plot_layout(&p);
    assert_false(p.y.is_log);
    begin(1, 2); // nothing at all
    put(0, 0, 1, 0);
    put(0, 1, 2, 0);
    plot_layout(&p);
    assert_true(p.y.high > 0);
}

static void assert_format(const char *expected, double v, enum plot_unit unit, double like)
{
    char text[PLOT_TICK_BYTES];
    assert_string_equal(plot_format(v, unit, like, text), expected);
}

static void test_units(void **state)
{
    (void)state;
    assert_format("1 MB", 1e6, PLOT_BYTES, 1e6);
    assert_format("0.5 MB", 5e5, PLOT_BYTES, 1e6);
    assert_format("500 kB", 5e5, PLOT_BYTES, 5e5);
    assert_format("1 MB", 999999, PLOT_BYTES, 999999);
    assert_format("7 B", 7, PLOT_BYTES, 7);
    assert_format("1.5 GFLOP", 1.5e9, PLOT_FLOPS, 1.5e9);
    assert_format("20 ms", 0.02, PLOT_SECONDS, 0.02);
    assert_format("2 s", 2, PLOT_SECONDS, 2);
    assert_format("20 k", 2e4, PLOT_RATE, 2e4);
    assert_format("0 MB", 0, PLOT_BYTES, 4e6);
    assert_format("1048576", 1048576, PLOT_PLAIN, 0);
}

// ---- SVG -------------------------------------------------------------------------------

static char drawn[1 << 17];

static void draw(void (*how)(FILE *f))
{
    FILE *f = tmpfile();
    assert_non_null(f);
    how(f);
    rewind(f);
    size_t count = fread(drawn, 1, sizeof(drawn) - 1, f);
    drawn[count] = 0;
    assert_in_range(count, 1, sizeof(drawn) - 2);
    fclose(f);
}

static void draw_svg(FILE *f)
{
    plot_svg(f, &p);
}

// Eight lines with long names, and a footer of three lines.
static void fill_eight(void)
{
    static char footer[400];
    begin(8, 6);
    for (int s = 0; s < 8; s++) {
        snprintf(p.series[s].name, PLOT_NAME_BYTES, "attention <naive> & checkpoint %d", s);
        for (int i = 0; i < 6; i++)
            put(s, i, 8 << i, (1e6 + 1e6 * s) * (8 << i));
    }
    for (int i = 0; i < 60; i++)
        snprintf(footer + 6 * i, 8, "--%c %d ", "a<&"[i % 3], i % 10);
    p.footer = footer;
    plot_layout(&p);
}

// Tags in pairs, attributes in quotes, no bare & or <.
static void test_svg_is_well_formed(void **state)
{
    (void)state;
    char open[16][16];
    int depth = 0, tags = 0;
    fill_eight();
    draw(draw_svg);
    for (const char *at = drawn; *at != 0; at++) {
        if (*at == '&')
            assert_true(strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0 ||
                        strncmp(at, "&gt;", 4) == 0 || strncmp(at, "&quot;", 6) == 0);
        if (*at != '<')
            continue;
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes;
        int length = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz");
        assert_in_range(length, 1, 15);
        int quotes = 0;
        for (at = name; *at != '>' || quotes % 2 != 0; at++) {
            assert_true(*at != 0 && *at != '<');
            quotes += *at == '"';
        }
        assert_int_equal(quotes % 2, 0);
        tags++;
        if (closes) {
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strlen(open[depth]), length);
            assert_memory_equal(open[depth], name, length);
        } else if (at[-1] != '/') {
            assert_true(depth < 16);
            snprintf(open[depth++], 16, "%.*s", length, name);
        }
    }
    assert_int_equal(depth, 0);
    assert_true(tags > 100);
    assert_non_null(strstr(drawn, "prefers-color-scheme:dark"));
    assert_null(strstr(drawn, "nan"));
    assert_null(strstr(drawn, "inf"));
}

struct box {
    double left, right, top, bottom;
};

static double number_after(const char *at, const char *end, const char *key, double otherwise)
{
    const char *found = strstr(at, key);
    return found != NULL && found < end ? strtod(found + strlen(key), NULL) : otherwise;
}

// The next <text> at or after *at as a box, in a wide font: 0.62 of its size a character, on
// average.
static bool next_text(const char **at, struct box *b)
{
    const char *tag = strstr(*at, "<text ");
    if (tag == NULL)
        return false;
    const char *words = strchr(tag, '>') + 1, *end = strstr(words, "</text>");
    bool is_title =
        strstr(tag, "class=\"title\"") != NULL && strstr(tag, "class=\"title\"") < words;
    bool is_small =
        strstr(tag, "class=\"small\"") != NULL && strstr(tag, "class=\"small\"") < words;
    double size = is_title ? 16 : is_small ? 10.5 : 12;
    int count = 0;
    for (const char *c = words; c < end; c++) {
        count += ((unsigned char)*c & 0xc0) != 0x80;
        if (*c == '&')
            c = strchr(c, ';');
    }
    double width = count * size * (is_small ? 0.57 : 0.62),
           x = number_after(tag, words, "x=\"", -1);
    double y = number_after(tag, words, "y=\"", -1);
    bool is_end = strstr(tag, "\"end\"") != NULL && strstr(tag, "\"end\"") < words;
    bool is_middle = strstr(tag, "\"middle\"") != NULL && strstr(tag, "\"middle\"") < words;
    double left = is_end ? x - width : is_middle ? x - width / 2 : x;
    *b = (struct box){left, left + width, y - 0.8 * size, y + 0.2 * size};
    *at = end;
    return true;
}

static void check_texts(int least)
{
    static struct box box[200];
    int count = 0;
    draw(draw_svg);
    double width = number_after(drawn, drawn + 200, "viewBox=\"0 0 ", 0);
    double height = number_after(drawn, drawn + 200, "viewBox=\"0 0 760 ", 0);
    assert_near(width, 760, 0);
    assert_true(height > 400);
    for (const char *at = drawn; count < 200 && next_text(&at, &box[count]); count++) {
        struct box *b = &box[count];
        if (b->left < 0 || b->right > width || b->top < 0 || b->bottom > height)
            fail_msg("text %d hangs out: %g to %g, %g to %g", count, b->left, b->right, b->top,
                     b->bottom);
        for (int i = 0; i < count; i++)
            if (b->left < box[i].right && box[i].left < b->right && b->top < box[i].bottom &&
                box[i].top < b->bottom)
                fail_msg("texts %d and %d overlap at %g, %g", i, count, b->left, b->top);
    }
    assert_in_range(count, least, 60);
}

static void test_texts_do_not_overlap(void **state)
{
    (void)state;
    fill_eight();
    check_texts(2 + 2 + 6 + 3 + 8 + 3); // title, axes, ticks, legend, footer
    for (int s = 0; s < 8; s++)
        snprintf(p.series[s].name, PLOT_NAME_BYTES,
                 "attention naive, checkpoint selective, layers "
                 "12, number %d",
                 s);
    check_texts(2 + 2 + 6 + 3 + 8 + 3);
    for (int digits = 0; digits < 9; digits++)
        for (int count = 2; count <= PLOT_POINTS_MAX; count += 6) {
            begin(1, count);
            for (int i = 0; i < count; i++)
                put(0, i, (i + 1) * pow(10, digits), 1e6 * i);
            plot_layout(&p);
            check_texts(4);
        }
    begin(1, 14); // words, more than stand in a row
    p.has_words = true;
    for (int i = 0; i < 14; i++) {
        put(0, i, i, 1e6 * i);
        snprintf(p.x_value[i].text, PLOT_TICK_BYTES, "gpt2-large%d", i % 10);
    }
    plot_layout(&p);
    check_texts(16);
}

// Marks stand on a straight line where y is proportional to x, in the order of the series.
static void test_marks_are_where_values_are(void **state)
{
    (void)state;
    double x[6], y[6];
    fill_eight();
    draw(draw_svg);
    const char *at = drawn;
    for (int s = 0; s < 8; s++) {
        char key[32];
        snprintf(key, sizeof(key), "<path class=\"mark s%d", s);
        for (int i = 0; i < 6; i++) {
            at = strstr(at, key);
            assert_non_null(at);
            const char *place = strstr(at, "translate(");
            char *rest;
            x[i] = strtod(place + 10, &rest);
            y[i] = strtod(rest, NULL);
            at++;
        }
        for (int i = 0; i < 6; i++) {
            assert_near(x[i], 84 + plot_place(&p.x, 8 << i) * (760 - 84 - 28), 1e-3);
            assert_near(y[i], 70 + 300 * (1 - plot_place(&p.y, p.series[s].point[i].y)), 1e-3);
        }
        assert_near(x[2] - x[1], x[5] - x[4], 0.1);
        assert_near(y[1] - y[2], y[4] - y[5], 0.1);
        assert_true(y[0] > y[5]);
    }
}

// No two of the eight have the same dashes, or the same mark.
static void test_lines_differ_without_colour(void **state)
{
    (void)state;
    char dash[8][40], mark[8][120];
    fill_eight();
    draw(draw_svg);
    for (int s = 0; s < 8; s++) {
        char key[40];
        snprintf(key, sizeof(key), "line s%d\" stroke-dasharray=\"", s);
        const char *at = strstr(drawn, key);
        assert_non_null(at);
        snprintf(dash[s], 40, "%.*s", (int)strcspn(at + strlen(key), "\""), at + strlen(key));
        snprintf(key, sizeof(key), "mark s%d ", s);
        at = strstr(drawn, key);
        assert_non_null(at);
        const char *path = strstr(at, " d=\"") + 4;
        snprintf(mark[s], 120, "%.4s %.*s", at + strlen(key), (int)strcspn(path, "\""), path);
        for (int i = 0; i < s; i++) {
            assert_string_not_equal(dash[s], dash[i]);
            assert_string_not_equal(mark[s], mark[i]);
        }
    }
}

// ---- characters ------------------------------------------------------------------------

static int columns;

static void draw_text(FILE *f)
{
    plot_text(f, &p, columns);
}

static void check_columns(void)
{
    for (char *line = drawn, *end; *line != 0; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        if (plot_width(line) > columns)
            fail_msg("%d of %d columns: %s", plot_width(line), columns, line);
        *end = '\n';
    }
}

static void test_characters_fit(void **state)
{
    (void)state;
    for (columns = 40; columns <= 120; columns += 40) {
        fill_eight();
        for (int s = 0; s < 8; s++)
            snprintf(p.series[s].name, PLOT_NAME_BYTES, "%0130d", s);
        draw(draw_text);
        check_columns();
        for (const char *letter = "ox+*#@%$"; *letter != 0; letter++) {
            char legend[8];
            snprintf(legend, sizeof(legend), "\n  %c  ", *letter);
            assert_non_null(strstr(drawn, legend));
        }
        for (int i = 0; i < p.y.tick_count; i++)
            assert_non_null(strstr(drawn, p.y.tick[i].text));
        assert_non_null(strstr(drawn, " 256"));
        assert_non_null(strstr(drawn, "seq, logarithmic"));
    }
}

// A label at the end of the axis moves in.
static void test_long_labels_fit(void **state)
{
    (void)state;
    begin(1, 3);
    for (int i = 0; i < 3; i++)
        put(0, i, 123456789.0 * pow(10, i), 1e6);
    plot_layout(&p);
    columns = 40;
    draw(draw_text);
    check_columns();
    assert_non_null(strstr(drawn, " 123456789 "));
}

// A diagonal goes from the lower left to the upper right; points that meet are shown as such.
static void test_characters_are_where_values_are(void **state)
{
    (void)state;
    begin(2, 3);
    for (int i = 0; i < 3; i++) {
        put(0, i, i + 1, 50.0 * i);
        put(1, i, i + 1, 50.0);
    }
    columns = 80;
    plot_layout(&p);
    draw(draw_text);
    int last = 1000, rows = 0, found = 0;
    for (const char *line = drawn; *line != 0; line = strchr(line, '\n') + 1, rows++) {
        int length = (int)strcspn(line, "\n");
        int at = 0;
        while (at < length && strchr("o&", line[at]) == NULL)
            at++;
        if (rows < 1 || rows > 16 || at == length)
            continue;
        int column = 0;
        for (int i = 0; i < at; i++)
            column += ((unsigned char)line[i] & 0xc0) != 0x80;
        assert_true(column < last);
        last = column;
        assert_int_equal(line[at], found == 1 ? '&' : 'o');
        found++;
    }
    assert_int_equal(found, 3);
    assert_non_null(strstr(drawn, "&  several of them"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ticks_are_round_and_inside),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_svg_is_well_formed),
        cmocka_unit_test(test_texts_do_not_overlap),
        cmocka_unit_test(test_marks_are_where_values_are),
        cmocka_unit_test(test_lines_differ_without_colour),
        cmocka_unit_test(test_characters_fit),
        cmocka_unit_test(test_long_labels_fit),
        cmocka_unit_test(test_characters_are_where_values_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
