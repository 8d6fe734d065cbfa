/* One flow's part of an op while the proxy works on it, and the two loops that move it on. */
#ifndef DG_PROGRESS_H
#define DG_PROGRESS_H

#include "rank.h"

/* When a slice was handed to the transport: it was between these two (sent_log.h). */
struct sent_slice {
    uint64_t after_ns, before_ns, bytes;
};

struct proxy_op {
    struct flow *flow;
    struct proxy_op *next;
    int is_started;
    uint32_t n_steps, depth, base;
    /* send: posted, transmitted, done; receive: posted, received, flushed, done. */
    uint32_t posted, transmitted, received, flushed, done;
    uint64_t size_bytes, total_bytes; /* of the last transfer; of all so far (versions up to 3) */
    int is_refused;
    struct call call;
    struct sent_slice sent[N_SLOTS];
    void *handle;
    void *steps[N_SLOTS];
};

/* Each moves at most one thing, as one pass of NCCL's loop does; 1 = something moved. */
int progress_send(struct rank *self, struct proxy_op *op);
int progress_receive(struct rank *self, struct proxy_op *op);

static inline int op_is_done(const struct proxy_op *op)
{
    return op->done == op->n_steps;
}

#endif
