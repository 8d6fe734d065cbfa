/* Ring collectives and p2p as lanes: which chunk a rank receives, adds, stores and sends, in which order. The order is
 * the published ring algorithm that NCCL runs, so the number of transfers per flow comes out as it does there. */
#ifndef DG_COLLECTIVES_H
#define DG_COLLECTIVES_H

#include "kernel.h"

/* Adds one lane per channel for a collective of `n` elements (per rank for AllGather and ReduceScatter). */
void collective_add_lanes(struct kernel *kernel, struct comm *comm, int n_channels, enum op_func func, uint64_t n,
                          int root);
/* Adds one lane per channel for a send or receive with a neighbour stage (0 = previous, 1 = next). */
void p2p_add_lanes(struct kernel *kernel, struct comm *comm, int n_channels, enum op_func func, uint64_t n,
                   int neighbour);

#endif
