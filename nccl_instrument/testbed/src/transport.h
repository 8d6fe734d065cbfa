/* Moves slices between proxies over one TCP connection per flow. Two kinds, named as NCCL names them:
 *   IB      a send is refused until the receiver's credit (one byte back per posted buffer) is there, and is done
 *           when the receiving machine's kernel has acknowledged the slice, as a NIC does for a frozen process too;
 *   Socket  a send is accepted at once and done when the kernel has taken it.
 * Links are either real (namespaces, tbf; nothing to do here) or paced: then each NIC is a clock in the control page,
 * and slices leave when it says so, or not at all while a NIC is down. */
#ifndef DG_TRANSPORT_H
#define DG_TRANSPORT_H

#include "rank.h"

/* Listens, publishes the port, waits for all peers and connects every flow. Returns 0 or -1 with a sentence. */
int transport_connect(struct rank *self);

/* Called by the proxy thread only. isend and irecv return 0 when refused. Steps are the flow's own count. */
int transport_isend(struct rank *self, struct flow *flow, uint32_t step, uint32_t size_bytes);
int transport_is_sent(struct rank *self, struct flow *flow, uint32_t step);
int transport_irecv(struct rank *self, struct flow *flow, uint32_t step);
/* Size in *size_bytes when slice `step` has arrived. */
int transport_is_received(struct rank *self, struct flow *flow, uint32_t step, uint32_t *size_bytes);
/* The socket of `flow` reported `epoll_bits`. */
void transport_notice(struct flow *flow, uint32_t epoll_bits);
/* Tries to move bytes; returns the time at which to try again without a notice (NEVER_NS: not needed). */
uint64_t transport_flush(struct rank *self, struct flow *flow, uint64_t now);

#endif
