#include "verbs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct dgv_device devices[DGV_DEVICES_MAX];
static _Atomic unsigned n_devices;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

uint64_t dgv_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

struct dgv_device *dgv_device_of(const struct dgv_context_abi *context) {
    unsigned n = atomic_load_explicit(&n_devices, memory_order_acquire);
    for (unsigned i = 0; i < n; i++)
        if (atomic_load_explicit(&devices[i].context, memory_order_acquire) == context)
            return &devices[i];
    return NULL;
}

struct dgv_device *dgv_device_at(unsigned at) {
    return at < atomic_load_explicit(&n_devices, memory_order_acquire) ? &devices[at] : NULL;
}

/* Meter and rows; they stay for the next context when this one is closed, so that nobody frees what another thread uses. */
static bool furnish(struct dgv_device *device) {
    struct dgm_settings settings = {DGV_EPOCH_NS, 0, DGV_POLL_NS, DGV_QPS_MAX, UINT64_C(128) << 20};
    device->start_ns = dgv_now_ns() / DGV_EPOCH_NS * DGV_EPOCH_NS; /* epochs of all cards and processes of the node are the same */
    device->meter = dgm_create(&settings, device->start_ns);
    device->qps = calloc(DGV_SLOTS, sizeof *device->qps);
    device->pending = calloc((size_t)DGV_SLOTS * DGV_PENDING, sizeof *device->pending);
    if (device->meter && device->qps && device->pending)
        return true;
    dgm_destroy(device->meter);
    free(device->qps);
    free(device->pending);
    return false;
}

struct dgv_device *dgv_watch(struct dgv_context_abi *context) {
    struct dgv_device *found = NULL;
    pthread_mutex_lock(&opening);
    unsigned n = atomic_load_explicit(&n_devices, memory_order_relaxed);
    for (unsigned i = 0; i < n && !found; i++) /* a closed one of the same card: its counts go on */
        if (!atomic_load_explicit(&devices[i].context, memory_order_acquire) &&
            !strncmp(devices[i].name, context->device->name, sizeof devices[i].name - 1))
            found = &devices[i];
    if (!found && n < DGV_DEVICES_MAX && furnish(&devices[n])) {
        found = &devices[n];
        memcpy(found->name, context->device->name, sizeof found->name - 1);
        atomic_store_explicit(&n_devices, n + 1, memory_order_release);
    }
    if (found) {
        found->poll_cq = context->poll_cq;
        found->post_send = context->post_send;
        atomic_store_explicit(&found->context, context, memory_order_release);
    }
    pthread_mutex_unlock(&opening);
    return found;
}

struct dgv_qp *dgv_qp_of(struct dgv_device *device, uint32_t qpn) {
    uint32_t at = (qpn * 0x9E3779B1u) >> 19; /* 13 bits */
    for (uint32_t tries = 0; tries < DGV_SLOTS; tries++, at = (at + 1) % DGV_SLOTS) {
        uint32_t key = atomic_load_explicit(&device->qps[at].key, memory_order_acquire);
        if (key == qpn + 1)
            return &device->qps[at];
        if (key)
            continue;
        if (atomic_fetch_add_explicit(&device->n_qps, 1, memory_order_relaxed) >= DGV_QPS_MAX) {
            atomic_fetch_sub_explicit(&device->n_qps, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&device->qps_refused, 1, memory_order_relaxed);
            return NULL;
        }
        if (atomic_compare_exchange_strong_explicit(&device->qps[at].key, &key, qpn + 1, memory_order_acq_rel,
                                                    memory_order_acquire) ||
            key == qpn + 1)
            return &device->qps[at];
        atomic_fetch_sub_explicit(&device->n_qps, 1, memory_order_relaxed);
    }
    return NULL;
}
