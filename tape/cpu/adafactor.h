// adafactor.h - the update that keeps of a matrix of second moments a row's and a column's mean.
// Formulas and source: nn/optimizer.h. State: row and col of a matrix, v of a vector.
#ifndef TAPE_CPU_ADAFACTOR_H
#define TAPE_CPU_ADAFACTOR_H

#include "tape/cpu/update.h"

void adafactor_update(const struct update *u);

#endif
