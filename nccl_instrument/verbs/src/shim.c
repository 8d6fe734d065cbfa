/*
 * libibverbs.so in front of libibverbs.so.1. NCCL opens the first by name and asks it for versioned symbols: those defined here
 * are found here, all others in the library behind it. Sends and polls go through pointers in an opened device's context, which
 * are replaced there. Whatever of ours fails, the call goes through as if we were not there.
 */
#define _GNU_SOURCE
#include "verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL "libibverbs.so.1"
#define VERSION "IBVERBS_1.1"

EXPORT struct dgv_context_abi *ibv_open_device(struct dgv_device_abi *device);
EXPORT int ibv_close_device(struct dgv_context_abi *context);
EXPORT struct dgv_qp_abi *ibv_create_qp(void *pd, void *attr);
EXPORT int ibv_modify_qp(struct dgv_qp_abi *qp, struct dgv_qp_attr *attr, int mask);
/* For the profiler plugin: the flow that this thread has just posted for, if that was after since_ns. Returns the queue pair's
 * number, 0 when there is none. */
EXPORT uint32_t diogenes_posted_for(uint64_t comm_id, int32_t comm_rank, int32_t peer, unsigned channel, unsigned direction,
                                    uint64_t since_ns);

static _Thread_local struct dgv_qp *posted;
static _Thread_local uint64_t posted_ns;

static struct dgv_context_abi *(*real_open)(struct dgv_device_abi *);
static int (*real_close)(struct dgv_context_abi *);
static struct dgv_qp_abi *(*real_create)(void *, void *);
static int (*real_modify)(struct dgv_qp_abi *, struct dgv_qp_attr *, int);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(void *library, const char *name) { return library ? dlvsym(library, name, VERSION) : NULL; }

static void resolve(void) {
    /* By its own name: RTLD_NEXT does not look behind a library that was opened for one caller alone. */
    void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    *(void **)&real_open = find(library, "ibv_open_device");
    *(void **)&real_close = find(library, "ibv_close_device");
    *(void **)&real_create = find(library, "ibv_create_qp");
    *(void **)&real_modify = find(library, "ibv_modify_qp");
}

static void bump(_Atomic uint64_t *count, uint64_t n) { atomic_fetch_add_explicit(count, n, memory_order_relaxed); }

/* Counts the requests from the first one up to `end`, which was refused; NULL: all were taken. */
static void count_sent(struct dgv_device *device, uint32_t qpn, const struct dgv_send_wr *wr, const struct dgv_send_wr *end,
                       uint64_t now_ns) {
    struct dgv_qp *qp = dgv_qp_of(device, qpn);
    uint64_t n = 0, all = 0, signaled = 0;
    for (; wr && wr != end; wr = wr->next, n++) {
        uint64_t bytes = 0;
        for (int i = 0; wr->opcode <= DGV_OP_WRITES_MAX && i < wr->num_sge; i++)
            bytes += wr->sg_list[i].length;
        bool is_signaled = (wr->send_flags & DGV_SIGNALED) || (qp && atomic_load_explicit(&qp->all_signaled, memory_order_relaxed));
        if (qp)
            dgv_posted(device, qp, now_ns, bytes, is_signaled);
        else if (bytes)
            dgm_transfer(device->meter, qpn, now_ns, bytes);
        all += bytes;
        signaled += is_signaled;
    }
    if (!qp)
        return;
    if (n) {
        posted = qp;
        posted_ns = now_ns;
    }
    bump(&qp->work_requests, n);
    bump(&qp->bytes, all);
    bump(&qp->signaled, signaled);
    bump(&qp->refused, end != NULL);
}

static int post_send(struct dgv_qp_abi *qp, struct dgv_send_wr *wr, struct dgv_send_wr **bad) {
    struct dgv_device *device = dgv_device_of(qp->context);
    if (!device) /* closed a moment ago: its own pointers are back */
        return qp->context->post_send != post_send ? qp->context->post_send(qp, wr, bad) : EINVAL;
    uint64_t now_ns = dgv_now_ns();
    int done = device->post_send(qp, wr, bad);
    int kept = errno;
    if (dgv_is_on()) /* not in a forked child, where a lock may be held for ever */
        count_sent(device, qp->qp_num, wr, done && bad ? *bad : done ? wr : NULL, now_ns);
    errno = kept;
    return done;
}

static void count_completion(struct dgv_device *device, const struct dgv_wc *wc, uint64_t now_ns) {
    struct dgv_qp *qp = dgv_qp_of(device, wc->qp_num);
    if (!qp)
        return;
    if (wc->status || !(wc->opcode & DGV_WC_RECEIVE))
        dgv_completed(device, qp, now_ns, !wc->status);
    if (!wc->status) { /* of a failed one, the kind is not set */
        bump(wc->opcode & DGV_WC_RECEIVE ? &qp->received : &qp->completions, 1);
        return;
    }
    if (wc->status == DGV_WC_FLUSHED) { /* follows from an error before it */
        bump(&qp->flushed, 1);
        return;
    }
    bump(&qp->errors, 1);
    atomic_store_explicit(&qp->last_status, wc->status, memory_order_relaxed);
    atomic_store_explicit(&qp->last_vendor_err, wc->vendor_err, memory_order_relaxed);
    atomic_store_explicit(&qp->last_error_ns, now_ns, memory_order_relaxed);
}

static int poll_cq(struct dgv_cq_abi *cq, int n_max, struct dgv_wc *wc) {
    struct dgv_device *device = dgv_device_of(cq->context);
    if (!device)
        return cq->context->poll_cq != poll_cq ? cq->context->poll_cq(cq, n_max, wc) : -1;
    int n = device->poll_cq(cq, n_max, wc);
    int kept = errno;
    uint64_t now_ns = n > 0 ? dgv_now_ns() : 0;
    for (int i = 0; i < n && dgv_is_on(); i++)
        count_completion(device, &wc[i], now_ns);
    errno = kept;
    return n;
}

struct dgv_context_abi *ibv_open_device(struct dgv_device_abi *device) {
    pthread_once(&once, resolve);
    if (!real_open) {
        errno = ENOSYS;
        return NULL;
    }
    struct dgv_context_abi *context = real_open(device);
    int kept = errno;
    if (context && dgv_is_on() && context->device && context->post_send && context->poll_cq && dgv_watch(context)) {
        context->post_send = post_send;
        context->poll_cq = poll_cq;
        dgv_start_writing();
    }
    errno = kept;
    return context;
}

int ibv_close_device(struct dgv_context_abi *context) {
    pthread_once(&once, resolve);
    if (!real_close)
        return ENOSYS;
    struct dgv_device *device = dgv_device_of(context);
    if (device) {
        for (uint32_t at = 0; dgv_is_on() && at < DGV_SLOTS; at++)
            if (atomic_load_explicit(&device->qps[at].key, memory_order_acquire))
                dgv_give_up(device, &device->qps[at]);
        dgv_write_now();
        context->post_send = device->post_send;
        context->poll_cq = device->poll_cq;
        atomic_store_explicit(&device->context, NULL, memory_order_release);
    }
    return real_close(context);
}

struct dgv_qp_abi *ibv_create_qp(void *pd, void *attr) {
    pthread_once(&once, resolve);
    if (!real_create) {
        errno = ENOSYS;
        return NULL;
    }
    struct dgv_qp_abi *qp = real_create(pd, attr);
    int kept = errno;
    struct dgv_device *device = qp ? dgv_device_of(qp->context) : NULL;
    struct dgv_qp *row = device ? dgv_qp_of(device, qp->qp_num) : NULL;
    if (row)
        atomic_store_explicit(&row->all_signaled, attr && ((struct dgv_qp_init *)attr)->sq_sig_all, memory_order_relaxed);
    errno = kept;
    return qp;
}

uint32_t diogenes_posted_for(uint64_t comm_id, int32_t comm_rank, int32_t peer, unsigned channel, unsigned direction,
                             uint64_t since_ns) {
    struct dgv_qp *qp = posted;
    posted = NULL;
    if (!qp || posted_ns < since_ns)
        return 0;
    dgv_name(qp, &(struct dgv_flow_name){comm_id, comm_rank, peer, channel, direction});
    return atomic_load_explicit(&qp->key, memory_order_relaxed) - 1;
}

/* A connection says here whom it leads to, whichever call made its queue pair. */
int ibv_modify_qp(struct dgv_qp_abi *qp, struct dgv_qp_attr *attr, int mask) {
    pthread_once(&once, resolve);
    if (!real_modify)
        return ENOSYS;
    int done = real_modify(qp, attr, mask);
    int kept = errno;
    struct dgv_device *device = !done && (mask & DGV_QP_DEST) ? dgv_device_of(qp->context) : NULL;
    struct dgv_qp *row = device ? dgv_qp_of(device, qp->qp_num) : NULL;
    if (row) {
        dgv_give_up(device, row); /* the number may be a former queue pair's */
        atomic_store_explicit(&row->lane, 0, memory_order_relaxed);
        atomic_store_explicit(&row->named, 0, memory_order_relaxed);
        atomic_store_explicit(&row->comm_id, 0, memory_order_relaxed);
        atomic_store_explicit(&row->connected_ns, dgv_now_ns(), memory_order_relaxed);
        memcpy(row->dgid, attr->dgid, sizeof row->dgid);
        row->dlid = attr->dlid;
        row->is_global = attr->is_global;
        row->port = attr->ah_port;
        atomic_store_explicit(&row->dest_qpn, attr->dest_qp_num, memory_order_relaxed);
        atomic_fetch_add_explicit(&row->connects, 1, memory_order_release);
    }
    errno = kept;
    return done;
}
