/* The proxy progress thread: NCCL's send and receive loops over all flows of the rank, one thread for all its
 * communicators (as with communicators that were split from one). It calls the profiler exactly where NCCL does. */
#ifndef DG_PROXY_H
#define DG_PROXY_H

#include "rank.h"

/* One flow's part of an op, posted by the launching thread. */
struct proxy_post {
    struct flow *flow;
    int n_steps, slices_per_action;
    struct call call;
    void *op_handle; /* the Coll or P2p it belongs to */
};

int proxy_start(struct rank *self);
void proxy_post(struct rank *self, const struct proxy_post *posts, int n_posts);
/* Something changed in a buffer that the proxy looks at. */
void proxy_kick(struct proxy *proxy);
/* Returns once every flow of every op has stopped. */
void proxy_wait_idle(struct rank *self);
void proxy_stop(struct rank *self);

#endif
