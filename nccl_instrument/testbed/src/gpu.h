/* The modelled GPU: three in-order streams (compute with TP and world ops, DP, PP), one compute engine and two copy
 * engines (out of and into the GPU) that all streams share. Work is queued by the main thread, which runs ahead, as a
 * PyTorch step does; waiting for another stream is queued work too. */
#ifndef DG_GPU_H
#define DG_GPU_H

#include "rank.h"

#define QUEUE_LENGTH 1024

struct kernel;

struct task {
    enum { TASK_COMPUTE, TASK_WAIT, TASK_KERNEL } kind;
    uint64_t compute_ns;
    int stream;        /* TASK_WAIT: the stream waited for … */
    uint64_t position; /* … until it has done this many tasks */
    struct kernel *kernel;
};

struct stream {
    struct rank *self;
    int id;
    pthread_t thread;
    struct task queue[QUEUE_LENGTH];
    _Atomic uint64_t n_queued, n_done;
    struct bell *bell;
};

struct gpu {
    struct stream streams[N_STREAMS];
    _Atomic uint32_t awaited[N_BELLS]; /* per waiting thread: bit mask of the streams it waits for */
    _Atomic uint64_t compute_busy_until_ns, copy_out_busy_until_ns, copy_in_busy_until_ns;
};

int gpu_start(struct rank *self);
void gpu_queue_compute(struct rank *self, int stream, uint64_t ns);
void gpu_queue_kernel(struct rank *self, int stream, struct kernel *kernel);
/* Makes `stream` wait for everything queued on `other` so far. */
void gpu_queue_wait(struct rank *self, int stream, int other);
void gpu_synchronize(struct rank *self);
/* How much was queued on each stream so far, and to wait until that much is done. */
void gpu_positions(const struct rank *self, uint64_t *positions);
void gpu_wait_for(struct rank *self, const uint64_t *positions);

/* Reserves the copy engines for one slice; returns when the copy will be over. `out` and `in`: NULL = not copied;
 * a link inside the node is faster than one to a network buffer. */
uint64_t gpu_copy_end_ns(struct rank *self, const struct link *in, const struct link *out, uint64_t bytes,
                         uint64_t earliest_ns);

#endif
