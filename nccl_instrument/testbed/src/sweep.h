/* Instead of training: how fast each collective is, from 8 bytes up, for `make bench NAME=overhead`.
 *
 * A pass is every collective at every size, one series of ops each; the control page says when the next one may begin
 * and which of two plugins it calls. The first pass checks one op of each size before its series, later ones none.
 * Rank 0 prints a line per series: sweep PASS NAME BYTES OPS NANOSECONDS */
#ifndef DG_SWEEP_H
#define DG_SWEEP_H

#include "rank.h"

void sweep_run(struct rank *self);

#endif
