/* The API thread's side: what ncclAllReduce and friends do, profiler calls included, in NCCL's order: API calls, kernel
 * launch, then the ops are announced and handed to the proxy. Returns at once; the GPU does the work later. */
#ifndef DG_ENQUEUE_H
#define DG_ENQUEUE_H

#include "rank.h"

/* n elements of float32: in all for AllReduce and Broadcast, per rank for AllGather and ReduceScatter. */
void enqueue_collective(struct rank *self, struct comm *comm, enum op_func func, uint64_t n, int root);
/* A send to or receive from a neighbour stage: 0 = previous, 1 = next. */
void enqueue_p2p(struct rank *self, struct comm *comm, enum op_func func, uint64_t n, int neighbour);

#endif
