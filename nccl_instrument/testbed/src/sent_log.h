/* What this rank's proxy sent, by the engine's own account: a row per slice that was acknowledged. It knows nothing of the
 * profiler, so that what a tracer tells can be held against it. Off unless DIOGENES_TESTBED_SENT names a folder. */
#ifndef DG_SENT_LOG_H
#define DG_SENT_LOG_H

#include <stdint.h>

struct rank;
struct proxy_op;

#define SENT_ROWS_MAX (1u << 18)

/* A slice was taken by the transport between began_after_ns and began_before_ns, and found acknowledged between the other
 * two: the profiler is told in between, so its times lie there, however long the thread was not scheduled. */
struct sent_row {
    uint64_t comm_hash, number, ordinal; /* as in struct call */
    uint64_t began_after_ns, began_before_ns, ended_after_ns, ended_before_ns, bytes;
    int32_t comm_rank, peer, channel, is_p2p;
};

/* rank<N>.sent: this, then the rows. */
struct sent_header {
    _Atomic uint64_t n_rows, n_refused;
};

void sent_log_open(struct rank *self);
void sent_log_append(struct rank *self, const struct proxy_op *op, uint32_t step, uint64_t ended_after_ns);

#endif
