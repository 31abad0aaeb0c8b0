// sweep_report.h - the rows of a sweep as table, CSV, JSON and plot.
#ifndef SRC_SWEEP_REPORT_H
#define SRC_SWEEP_REPORT_H

#include "src/plot.h"
#include "src/sweep.h"

// The option along which a plot goes: the last one of numbers that varies, else the last one that
// does. -1: none does.
int sweep_report_along(const struct sweep *s);

// Row i's saved activations over those of the row where that option has its first value.
double sweep_report_ratio(const struct sweep *s, int i);

void sweep_report_table(FILE *f, const struct sweep *s);
bool sweep_report_csv(const struct sweep *s, const char *path, struct error *e);
bool sweep_report_json(const struct sweep *s, const char *path, struct error *e);

// Refused: a name that no amount has.
bool sweep_report_find_amount(const struct sweep *s, const char *name, enum sweep_amount *a,
                              struct error *e);

// Refused: nothing varies, or more lines than can be told apart.
bool sweep_report_plot(struct plot *p, const struct sweep *s, enum sweep_amount y, struct error *e);

#endif
