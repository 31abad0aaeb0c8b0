#include "src/value_list.h"

#include "tape/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool value_list_is_one(const char *text, bool is_number)
{
    return strchr(text, ',') != NULL || (is_number && strstr(text, "..") != NULL);
}

static bool add(struct value_list *l, const char *text, struct error *e)
{
    if (text[0] == 0)
        return refuse(e, "a value is missing beside a comma");
    if (strlen(text) >= VALUE_LIST_BYTES)
        return refuse(e, "'%.40s...': expected values of less than %d characters", text,
                      VALUE_LIST_BYTES);
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->text[i], text) == 0)
            return refuse(e, "%s is there twice", text);
    if (l->count == VALUE_LIST_MAX)
        return refuse(e, "more than %d values", VALUE_LIST_MAX);
    snprintf(l->text[l->count++], VALUE_LIST_BYTES, "%s", text);
    return true;
}

// ---- ranges ----------------------------------------------------------------------------

struct range {
    char first[VALUE_LIST_BYTES], last[VALUE_LIST_BYTES], by[VALUE_LIST_BYTES];
    char sign; // '*', '+', or 0: no `by`
};

static bool cut(char to[VALUE_LIST_BYTES], const char *from, size_t length)
{
    if (length == 0 || length >= VALUE_LIST_BYTES)
        return false;
    memcpy(to, from, length);
    to[length] = 0;
    return true;
}

// A sign of its own may follow ".." or an e ("1e+3"), so `by` begins at the first * or at the last
// + that follows a digit or point.
static bool split(struct range *r, const char *text)
{
    const char *dots = strstr(text, ".."), *last = dots + 2, *by = strchr(last, '*');
    for (const char *at = last; by == NULL && *at != 0; at++)
        if (*at == '+' && at > last && strchr("eE", at[-1]) == NULL)
            by = at;
    size_t last_length = by != NULL ? (size_t)(by - last) : strlen(last);
    r->sign = by != NULL ? *by : 0;
    r->by[0] = 0;
    return cut(r->first, text, (size_t)(dots - text)) && cut(r->last, last, last_length) &&
           (by == NULL || cut(r->by, by + 1, strlen(by + 1)));
}

static bool check_range(const struct range *r, double first, double last, double by,
                        struct error *e)
{
    const double most = 0x1p53; // of whole numbers that a double tells apart
    if (fabs(first) > most || fabs(last) > most)
        return refuse(e, "expected numbers up to 2^53 in a range");
    if (first > last)
        return refuse(e, "a range goes up: %s is above %s", r->first, r->last);
    if (r->sign == '*' && !(by > 1))
        return refuse(e, "expected a factor above 1 after *, as in 32..256*2");
    if (r->sign == '*' && !(first > 0))
        return refuse(e, "a factor needs a first number above 0");
    if (!(by > 0))
        return refuse(e, "expected a step above 0 after +, as in 1..9+2");
    return true;
}

static bool add_whole(struct value_list *l, const struct range *r, int64_t first, int64_t last,
                      int64_t by, struct error *e)
{
    char text[VALUE_LIST_BYTES];
    for (int64_t v = first;;) {
        snprintf(text, sizeof(text), "%lld", (long long)v);
        if (!add(l, text, e))
            return false;
        if (r->sign == '*' ? v > last / by : by > last - v)
            return true;
        v = r->sign == '*' ? v * by : v + by;
    }
}

// The i-th value is computed from the first one, and rounded: 0..0.3+0.1 ends at 0.3.
static bool add_real(struct value_list *l, const struct range *r, double first, double last,
                     double by, struct error *e)
{
    char text[TEXT_NUMBER_BYTES], rounded[TEXT_NUMBER_BYTES];
    for (int i = 0;; i++) {
        double v = r->sign == '*' ? first * pow(by, i) : first + i * by;
        if (v > last + 1e-9 * fabs(last))
            return true;
        snprintf(rounded, sizeof(rounded), "%.12g", v);
        CHECK(text_to_double(rounded, &v));
        if (!add(l, text_from_double(v, text), e))
            return false;
    }
}

static bool add_range(struct value_list *l, const char *text, struct error *e)
{
    struct range r;
    int64_t first, last, by = 1;
    double real_first, real_last, real_by = 1;
    if (!split(&r, text) || !text_to_double(r.first, &real_first) ||
        !text_to_double(r.last, &real_last) || (r.sign != 0 && !text_to_double(r.by, &real_by)))
        return refuse(e, "'%.40s': expected a range as 4..8, 1..9+2 or 32..256*2", text);
    if (!check_range(&r, real_first, real_last, real_by, e))
        return false;
    bool is_whole = text_to_int64(r.first, &first) && text_to_int64(r.last, &last);
    if (is_whole && (r.sign == 0 || text_to_int64(r.by, &by)))
        return add_whole(l, &r, first, last, by, e);
    if (r.sign == 0)
        return refuse(e, "a range that is not of whole numbers needs a step, as in 0..0.5+0.1");
    return add_real(l, &r, real_first, real_last, real_by, e);
}

bool value_list_read(struct value_list *l, const char *text, bool is_number, struct error *e)
{
    l->count = 0;
    for (const char *at = text;; at++) {
        char item[4 * VALUE_LIST_BYTES];
        size_t length = strcspn(at, ",");
        if (length >= sizeof(item))
            return refuse(e, "'%.40s...': expected values of less than %d characters", at,
                          VALUE_LIST_BYTES);
        memcpy(item, at, length);
        item[length] = 0;
        bool is_range = is_number && strstr(item, "..") != NULL;
        if (!(is_range ? add_range(l, item, e) : add(l, item, e)))
            return false;
        at += length;
        if (*at == 0)
            return true;
    }
}
