#include "tape/text.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The host program may have set a locale whose decimal point is a comma.
static void swap_point(char *text, char from, char to)
{
    char *at = from == to ? NULL : strchr(text, from);
    if (at != NULL)
        *at = to;
}

char *text_from_double(double v, char out[TEXT_NUMBER_BYTES])
{
    if (!isfinite(v)) {
        snprintf(out, TEXT_NUMBER_BYTES, "null");
        return out;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, TEXT_NUMBER_BYTES, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    swap_point(out, localeconv()->decimal_point[0], '.');
    return out;
}

char *text_from_bytes(int64_t bytes, char out[TEXT_NUMBER_BYTES])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double v = (double)bytes;
    int u = 0;
    while (fabs(v) >= 999.5 && u < COUNT_OF(unit) - 1) {
        v /= 1000;
        u++;
    }
    int decimals = u == 0 || fabs(v) >= 99.95 ? 0 : fabs(v) >= 9.995 ? 1 : 2;
    snprintf(out, TEXT_NUMBER_BYTES, "%.*f %s", decimals, v, unit[u]);
    swap_point(out, localeconv()->decimal_point[0], '.');
    return out;
}

size_t text_append(char *out, size_t bytes, size_t used, const char *text)
{
    size_t length = strlen(text), room = bytes - 1 - used;
    length = length < room ? length : room;
    memcpy(out + used, text, length);
    out[used + length] = 0;
    return used + length;
}

// Parses a leading number of `text`; `rest` is what follows. No hexadecimal, no "inf", no "nan".
static bool leading_double(const char *text, double *v, const char **rest)
{
    char copy[64];
    size_t used = strspn(text, "+-0123456789.eE");
    if (used == 0 || used >= sizeof(copy) || strcspn(text, "0123456789") >= used)
        return false;
    memcpy(copy, text, used);
    copy[used] = 0;
    swap_point(copy, '.', localeconv()->decimal_point[0]);
    char *end;
    errno = 0;
    *v = strtod(copy, &end);
    *rest = text + (end - copy);
    return end != copy && isfinite(*v);
}

int text_distance(const char *a, size_t a_length, const char *b)
{
    enum { MOST = 64 };
    int row[MOST], length = (int)strlen(b);
    if (length >= MOST)
        return length + (int)a_length;
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; i < a_length; i++) {
        int before = row[0];
        row[0] = (int)i + 1;
        for (int j = 1; j <= length; j++) {
            int here = before + (a[i] != b[j - 1]);
            before = row[j];
            here = here < row[j] + 1 ? here : row[j] + 1;
            row[j] = here < row[j - 1] + 1 ? here : row[j - 1] + 1;
        }
    }
    return row[length];
}

bool text_to_double(const char *text, double *v)
{
    const char *rest;
    return leading_double(text, v, &rest) && *rest == 0;
}

bool text_to_int64(const char *text, int64_t *v)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '-' && text[0] != '+')
        return false;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *v = parsed;
    return errno == 0 && end != text && *end == 0;
}

bool text_to_bytes(const char *text, int64_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } unit[] = {{"", 1},       {"B", 1},       {"KB", 1e3},     {"kB", 1e3},     {"MB", 1e6},
                {"GB", 1e9},   {"TB", 1e12},   {"K", 1024.},    {"M", 1048576.}, {"G", 0x1p30},
                {"T", 0x1p40}, {"KiB", 1024.}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    double v;
    const char *rest;
    if (!leading_double(text, &v, &rest))
        return false;
    while (*rest == ' ')
        rest++;
    for (int i = 0; i < COUNT_OF(unit); i++)
        if (strcmp(rest, unit[i].name) == 0) {
            v *= unit[i].bytes;
            *bytes = v < 0x1p63 && v > -0x1p63 ? (int64_t)v : 0;
            return v < 0x1p63 && v > -0x1p63;
        }
    return false;
}
