// budget.h - --budget bounds the peak of the ledger, exactly: a run that would hold one byte more
// is refused before it begins. The message says what does not fit, what is in the way and what
// would help. At run time the arena says the same, should a plan have been wrong.
#ifndef SRC_BUDGET_H
#define SRC_BUDGET_H

#include "src/run.h"

#include <stdio.h>

// A budget of the whole process becomes one of the arena: less what is outside, which is measured
// here. Before anything is planned.
bool budget_of_process(struct config *c, struct error *e);

// Most that the arena may hold; 0: no limit.
int64_t budget_limit(const struct config *c);

// Of a run that run_measure has left open: does its peak stay within the limit?
bool budget_holds(const struct run *r);

// Of one that does not. s is what was said; suggestions are printed as options to append to it.
void budget_explain(FILE *f, const struct run *r, const struct settings *s);

// After run_measure: when r runs, a push that does not fit prints the same table and ends the
// program with status 1.
void budget_guard(struct run *r);

#endif
