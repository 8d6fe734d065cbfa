/* What the shim keeps of each opened device and its queue pairs, and how it is written out. */
#ifndef DGV_VERBS_H
#define DGV_VERBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "measure.h"

#define DGV_DEVICES_MAX 32
#define DGV_QPS_MAX 4096u
#define DGV_SLOTS 8192u /* a power of two, twice as many as queue pairs */
#define DGV_EPOCH_NS 32000u
#define DGV_POLL_NS UINT64_C(1000000000)
#define DGV_LAG_NS 250000000u /* what is polled has begun this long before: bytes are known when they are done */
#define DGV_PENDING 256u      /* work requests of a queue pair that may be under way */
#define DGV_SPREAD_MAX 32768u /* epochs one request's bytes are spread over */

/* Which flow a queue pair serves, as the profiler plugin tells; it may serve several in turn. */
#define DGV_NAMED 1u
#define DGV_SEVERAL_CHANNELS 2u
#define DGV_SEVERAL_FLOWS 4u

struct dgv_flow_name {
    uint64_t comm_id;
    int32_t comm_rank, peer;
    unsigned channel, direction;
};

struct dgv_pending {
    uint64_t posted_ns, bytes;
    uint64_t is_signaled;
};

/* A queue pair: its number + 1 says that the row is taken. Rows are never given back; one whose number comes again goes on. */
struct dgv_qp {
    _Atomic uint32_t key;
    _Atomic uint32_t dest_qpn;
    uint8_t dgid[16];
    uint16_t dlid;
    uint8_t port, is_global;
    _Atomic uint32_t connects;
    _Atomic uint32_t last_status, last_vendor_err;
    _Atomic uint64_t work_requests, bytes, signaled, refused, completions, received, errors, flushed, last_error_ns;
    _Atomic uint64_t comm_id, ends, connected_ns; /* ends: own rank << 32 | peer */
    _Atomic uint32_t lane, named;                 /* lane: 1 << 16 | channel << 8 | direction */
    _Atomic uint32_t is_busy, all_signaled;
    _Atomic int64_t completed; /* and not taken yet */
    uint64_t put, taken, idle_from_ns;
};

struct dgv_device {
    _Atomic(struct dgv_context_abi *) context;
    int (*poll_cq)(struct dgv_cq_abi *, int, struct dgv_wc *);
    int (*post_send)(struct dgv_qp_abi *, struct dgv_send_wr *, struct dgv_send_wr **);
    char name[64];
    struct dgm *meter;
    struct dgv_qp *qps; /* DGV_SLOTS */
    struct dgv_pending *pending; /* DGV_PENDING each; memory is taken when it is used */
    _Atomic uint32_t n_qps;
    _Atomic uint64_t qps_refused, polled_ns; /* epochs that ended before polled_ns are written */
    uint64_t start_ns;
};

/* In the file: a block per device and poll; flows (dgm_flow), cells (dgm_cell) and queue pairs follow. */
struct dgv_block {
    uint32_t magic;
    uint32_t device;
    uint64_t now_ns, start_ns, first_epoch;
    uint32_t epoch_ns, unit_bytes, n_flows, n_qps, lag_ns, reserved;
    uint64_t n_cells, lost_bytes, qps_refused, blocks_lost;
    char name[64];
};

struct dgv_saved_qp {
    uint32_t qpn, dest_qpn;
    uint8_t dgid[16];
    uint16_t dlid;
    uint8_t port, is_global;
    uint32_t connects, last_status, last_vendor_err;
    uint64_t work_requests, bytes, signaled, refused, completions, received, errors, flushed, last_error_ns;
    uint64_t comm_id, connected_ns;
    int32_t comm_rank, peer;
    uint8_t channel, direction, named, reserved[5];
};
_Static_assert(sizeof(struct dgv_block) == 152 && sizeof(struct dgv_saved_qp) == 144, "as reading.py has it");

#define DGV_MAGIC 0x33564744u /* DGV3 */

uint64_t dgv_now_ns(void);

/* devices.c: NULL when it is not watched. */
struct dgv_device *dgv_device_of(const struct dgv_context_abi *context);
/* A device to watch the context with; NULL when there are too many, or memory is short. */
struct dgv_device *dgv_watch(struct dgv_context_abi *context);
struct dgv_device *dgv_device_at(unsigned at);
/* The queue pair's row, made when it is new; NULL when there are too many. */
struct dgv_qp *dgv_qp_of(struct dgv_device *device, uint32_t qpn);

/* pending.c. dgv_completed: of a request that was posted; is_good: else its bytes count where it was posted. */
void dgv_posted(struct dgv_device *device, struct dgv_qp *qp, uint64_t now_ns, uint64_t bytes, bool is_signaled);
void dgv_completed(struct dgv_device *device, struct dgv_qp *qp, uint64_t now_ns, bool is_good);
/* Nothing of what is under way will be done. */
void dgv_give_up(struct dgv_device *device, struct dgv_qp *qp);
void dgv_name(struct dgv_qp *qp, const struct dgv_flow_name *name);

/* output.c */
bool dgv_is_on(void);
void dgv_start_writing(void);
/* Write what there is now, unless that is being done. */
void dgv_write_now(void);

#endif
