/* The stage recorder of this training loop: writes what nccl_instrument/stage_ring.py describes, for the node's agent. */
#ifndef DG_STAGES_H
#define DG_STAGES_H

#include "rank.h"

enum { STAGE_DATA, STAGE_FORWARD, STAGE_BACKWARD, STAGE_CALLBACKS, STAGE_OPTIMIZER, STAGE_OTHER, N_STAGES };

/* Without a folder, room or right nothing is recorded, and the job goes on. */
void stages_open(struct rank *self);
/* From now on the main thread is in this stage. */
void stages_enter(int stage);
void stages_end_step(uint64_t step);

#endif
