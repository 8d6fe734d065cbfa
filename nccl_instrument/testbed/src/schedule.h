/* The training loop: what one rank enqueues in one step. */
#ifndef DG_SCHEDULE_H
#define DG_SCHEDULE_H

#include "rank.h"

/* Runs iterations until the control page says stop. */
void schedule_run(struct rank *self);

#endif
