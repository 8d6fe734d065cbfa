/* The training loop: what one rank enqueues in one step. */
#ifndef DG_SCHEDULE_H
#define DG_SCHEDULE_H

#include "rank.h"

/* Runs iterations until the control page says stop. */
void schedule_run(struct rank *self);
/* The rank's communicator of that kind, NULL when it has none. */
struct comm *schedule_comm(struct rank *self, enum comm_kind kind);

#endif
