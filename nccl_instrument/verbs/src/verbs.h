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
};

struct dgv_device {
    _Atomic(struct dgv_context_abi *) context;
    int (*poll_cq)(struct dgv_cq_abi *, int, struct dgv_wc *);
    int (*post_send)(struct dgv_qp_abi *, struct dgv_send_wr *, struct dgv_send_wr **);
    char name[64];
    struct dgm *meter;
    struct dgv_qp *qps; /* DGV_SLOTS */
    _Atomic uint32_t n_qps;
    _Atomic uint64_t qps_refused;
    uint64_t start_ns;
};

/* In the file: a block per device and poll; flows (dgm_flow), cells (dgm_cell) and queue pairs follow. */
struct dgv_block {
    uint32_t magic;
    uint32_t device;
    uint64_t now_ns, start_ns, first_epoch;
    uint32_t epoch_ns, unit_bytes, n_flows, n_qps;
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
};
_Static_assert(sizeof(struct dgv_block) == 144 && sizeof(struct dgv_saved_qp) == 112, "as reading.py has it");

#define DGV_MAGIC 0x31564744u /* DGV1 */

uint64_t dgv_now_ns(void);

/* devices.c: NULL when it is not watched. */
struct dgv_device *dgv_device_of(const struct dgv_context_abi *context);
/* A device to watch the context with; NULL when there are too many, or memory is short. */
struct dgv_device *dgv_watch(struct dgv_context_abi *context);
struct dgv_device *dgv_device_at(unsigned at);
/* The queue pair's row, made when it is new; NULL when there are too many. */
struct dgv_qp *dgv_qp_of(struct dgv_device *device, uint32_t qpn);

/* output.c */
bool dgv_is_on(void);
void dgv_start_writing(void);
/* Write what there is now, unless that is being done. */
void dgv_write_now(void);

#endif
