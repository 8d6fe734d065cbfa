/* What a queue pair was handed and has not finished: a work request moves its bytes from when it was posted, or from when the
 * one before it was done, until its completion, since a queue pair works in order. So bytes go into the epochs in which they
 * moved, not into the one of the post. Requests that ask for no completion are done with the next one that does.
 *
 * Nobody waits: who finds the queue pair busy counts a post where it was made, or leaves the completion to the next one.
 */
#include "verbs.h"

static bool try_lock(struct dgv_qp *qp) { return !atomic_exchange_explicit(&qp->is_busy, 1, memory_order_acquire); }
static void unlock(struct dgv_qp *qp) { atomic_store_explicit(&qp->is_busy, 0, memory_order_release); }
static uint32_t number_of(const struct dgv_qp *qp) { return atomic_load_explicit(&qp->key, memory_order_relaxed) - 1; }

static struct dgv_pending *pending_at(struct dgv_device *device, const struct dgv_qp *qp, uint64_t n) {
    return &device->pending[(size_t)(qp - device->qps) * DGV_PENDING + n % DGV_PENDING];
}

static void feed_at(struct dgv_device *device, const struct dgv_qp *qp, uint64_t at_ns, uint64_t bytes) {
    if (bytes)
        dgm_transfer(device->meter, number_of(qp), at_ns, bytes);
}

/* Evenly over the epochs from `from_ns` to `to_ns`, to the byte; what lies in epochs that are written already in one go, as it
 * comes to lie in the first that is left: NCCL's proxy polls here, and after a pause it would do so epoch by epoch.
 */
static void spread(struct dgv_device *device, const struct dgv_qp *qp, uint64_t from_ns, uint64_t to_ns, uint64_t bytes) {
    uint64_t began = device->start_ns, first = (from_ns - began) / DGV_EPOCH_NS, last = (to_ns - began) / DGV_EPOCH_NS;
    if (from_ns < began || last <= first) {
        feed_at(device, qp, to_ns, bytes);
        return;
    }
    if (last - first > DGV_SPREAD_MAX) { /* older ones are polled by now: their bytes would only pile up */
        first = last - DGV_SPREAD_MAX;
        from_ns = began + first * DGV_EPOCH_NS;
    }
    uint64_t length = to_ns - from_ns, before = 0, polled_ns = atomic_load_explicit(&device->polled_ns, memory_order_relaxed);
    uint64_t held = polled_ns > began ? (polled_ns - began) / DGV_EPOCH_NS : 0;
    if (first < held)
        first = held < last ? held : last; /* its bytes are all that came until its end */
    for (uint64_t epoch = first; epoch <= last; epoch++) {
        uint64_t end = began + (epoch + 1) * DGV_EPOCH_NS;
        uint64_t until = end >= to_ns ? bytes : (uint64_t)((double)bytes * (double)(end - from_ns) / (double)length);
        feed_at(device, qp, end - DGV_EPOCH_NS, until - before);
        before = until;
    }
}

static void take_oldest(struct dgv_device *device, struct dgv_qp *qp, uint64_t done_ns) {
    struct dgv_pending *oldest = pending_at(device, qp, qp->taken++);
    if (!done_ns) {
        feed_at(device, qp, oldest->posted_ns, oldest->bytes);
        return;
    }
    uint64_t from_ns = oldest->posted_ns > qp->idle_from_ns ? oldest->posted_ns : qp->idle_from_ns;
    spread(device, qp, from_ns < done_ns ? from_ns : done_ns, done_ns, oldest->bytes);
}

void dgv_posted(struct dgv_device *device, struct dgv_qp *qp, uint64_t now_ns, uint64_t bytes, bool is_signaled) {
    if (!try_lock(qp)) {
        feed_at(device, qp, now_ns, bytes);
        if (is_signaled)
            atomic_fetch_sub_explicit(&qp->completed, 1, memory_order_relaxed); /* its completion finds nothing to take */
        return;
    }
    if (qp->put - qp->taken == DGV_PENDING) {
        if (pending_at(device, qp, qp->taken)->is_signaled)
            atomic_fetch_sub_explicit(&qp->completed, 1, memory_order_relaxed);
        take_oldest(device, qp, 0);
    }
    *pending_at(device, qp, qp->put++) = (struct dgv_pending){now_ns, bytes, is_signaled};
    unlock(qp);
}

/* Of requests done together the bytes of all are spread from the first one's begin: each on its own would begin at once. */
void dgv_completed(struct dgv_device *device, struct dgv_qp *qp, uint64_t now_ns, bool is_good) {
    atomic_fetch_add_explicit(&qp->completed, 1, memory_order_relaxed);
    if (!try_lock(qp))
        return;
    int64_t n = atomic_exchange_explicit(&qp->completed, 0, memory_order_relaxed);
    while (n > 0 && qp->taken != qp->put) {
        struct dgv_pending *oldest = pending_at(device, qp, qp->taken);
        if (!oldest->is_signaled && qp->put - qp->taken > 1) { /* done with the one after it */
            struct dgv_pending *next = pending_at(device, qp, qp->taken + 1);
            next->bytes += oldest->bytes;
            next->posted_ns = oldest->posted_ns;
            qp->taken++;
            continue;
        }
        n -= oldest->is_signaled;
        if (!oldest->is_signaled)
            break;
        take_oldest(device, qp, is_good ? now_ns : 0);
        qp->idle_from_ns = now_ns;
    }
    if (n < 0)
        atomic_fetch_add_explicit(&qp->completed, n, memory_order_relaxed);
    unlock(qp);
}

void dgv_give_up(struct dgv_device *device, struct dgv_qp *qp) {
    if (!try_lock(qp))
        return;
    while (qp->taken != qp->put)
        take_oldest(device, qp, 0);
    atomic_store_explicit(&qp->completed, 0, memory_order_relaxed);
    unlock(qp);
}

void dgv_name(struct dgv_qp *qp, const struct dgv_flow_name *name) {
    uint64_t ends = (uint64_t)(uint32_t)name->comm_rank << 32 | (uint32_t)name->peer;
    uint32_t lane = (uint32_t)(name->channel & 0xFF) << 8 | (name->direction & 1) | 0x10000u;
    uint32_t before = atomic_load_explicit(&qp->lane, memory_order_relaxed);
    bool is_same = atomic_load_explicit(&qp->comm_id, memory_order_relaxed) == name->comm_id &&
                   atomic_load_explicit(&qp->ends, memory_order_relaxed) == ends;
    if (before == lane && is_same)
        return;
    if (before)
        atomic_fetch_or_explicit(&qp->named, is_same && !((before ^ lane) & 1) ? DGV_SEVERAL_CHANNELS : DGV_SEVERAL_FLOWS,
                                 memory_order_relaxed);
    atomic_store_explicit(&qp->comm_id, name->comm_id, memory_order_relaxed);
    atomic_store_explicit(&qp->ends, ends, memory_order_relaxed);
    atomic_fetch_or_explicit(&qp->named, DGV_NAMED, memory_order_relaxed);
    atomic_store_explicit(&qp->lane, lane, memory_order_release);
}
