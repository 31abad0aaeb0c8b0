// test.h - what every unit test includes last: cmocka, and comparisons that print both values.
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include "tape/base.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// |a - b| <= tolerance (1 + |b|)
#define assert_near(a, b, tolerance) near((double)(a), (double)(b), (tolerance), __FILE__, __LINE__)

static inline void near(double a, double b, double tolerance, const char *file, int line)
{
    if (fabs(a - b) <= tolerance * (1 + fabs(b)))
        return;
    print_error("%s:%d: %.17g, expected %.17g within %g\n", file, line, a, b, tolerance);
    _fail(file, line);
}

// A locale whose decimal point is a comma, as a host program may have one. False: there is none
// here.
static inline bool test_set_comma_locale(void)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    for (int i = 0; i < COUNT_OF(commas); i++)
        if (setlocale(LC_ALL, commas[i]) != NULL)
            return true;
    return false;
}

static inline bool test_is_long(void) // make test-long
{
    return getenv("MEMTAPE_LONG") != NULL;
}

#endif
