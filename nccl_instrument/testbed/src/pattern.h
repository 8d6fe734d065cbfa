/* The numbers that ops move: small whole floats that depend on (rank, op number, place), so every sum is exact and a
 * slice in the wrong place, of the wrong op or from the wrong rank shows. */
#ifndef DG_PATTERN_H
#define DG_PATTERN_H

#include "kernel.h"

void pattern_fill(const struct checked_op *op);
/* Ends the process with a sentence at the first wrong number. */
void pattern_check(struct rank *self, const struct checked_op *op);

#endif
