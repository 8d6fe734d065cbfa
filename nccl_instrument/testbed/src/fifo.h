/* The eight buffers of a connection (NCCL_STEPS) and the GPU's end of it. The far end is either the proxy thread,
 * which moves buffers over the network, or another GPU on the same node, which reads them in shared memory: the GPU
 * thread treats both alike, as NCCL's kernels do. Steps count slices (one slice = one network transfer). */
#ifndef DG_FIFO_H
#define DG_FIFO_H

#include "clock.h"

#define N_SLOTS 8
#define SLOT_BYTES 65536

struct fifo {
    _Alignas(64) _Atomic uint32_t tail; /* slices written */
    _Alignas(64) _Atomic uint32_t head; /* slices whose buffer is free again */
    _Alignas(64) uint32_t size_bytes[N_SLOTS];
    _Alignas(4096) uint8_t slots[N_SLOTS][SLOT_BYTES];
};

struct proxy;

struct link {
    struct fifo *fifo;
    struct bell *far_bell;  /* the neighbour GPU's bell, or NULL: then the proxy is told */
    struct proxy *proxy;
    struct flow *flow;      /* NULL inside the node */
    uint32_t step;          /* slices this GPU has produced or consumed */
};

static inline uint8_t *fifo_slot(struct fifo *fifo, uint32_t step)
{
    return fifo->slots[step % N_SLOTS];
}

static inline int fifo_has(struct fifo *fifo, uint32_t step)
{
    return (int32_t)(atomic_load(&fifo->tail) - step) > 0;
}

static inline int fifo_has_room(struct fifo *fifo, uint32_t step, uint32_t depth)
{
    return step - atomic_load(&fifo->head) < depth;
}

#endif
