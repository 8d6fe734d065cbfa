/* Streams, engines and their clocks (gpu.h). Engines are clocks that serve one customer after the other, so compute
 * and copies take the time they should without using the processor. */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdlib.h>

#include "kernel.h"

#define MILLI 1000

/* `which` is the bell of the waiting thread. Its mask of awaited streams spares everybody else a wake-up. */
static void wait_until_done(struct rank *self, int which, struct stream *other, uint64_t position)
{
    struct bell *bell = rank_bell(self, self->rank, which);
    atomic_store(&self->gpu->awaited[which], 1u << other->id);
    for (;;) {
        uint32_t seen = bell_read(bell);
        if (atomic_load(&other->n_done) >= position)
            break;
        bell_wait(bell, seen, NEVER_NS);
    }
    atomic_store(&self->gpu->awaited[which], 0);
}

static void compute(struct rank *self, uint64_t ns)
{
    uint64_t cost = ns * atomic_load(&self->page->compute_factor_milli) / MILLI;
    sleep_until_ns(reserve_ns(&self->gpu->compute_busy_until_ns, now_ns(), cost));
}

static void run_task(struct stream *stream, struct task *task)
{
    struct rank *self = stream->self;
    switch (task->kind) {
    case TASK_COMPUTE:
        compute(self, task->compute_ns);
        break;
    case TASK_WAIT:
        wait_until_done(self, stream->id, &self->gpu->streams[task->stream], task->position);
        break;
    case TASK_KERNEL:
        kernel_run(self, task->kernel, stream->bell);
        atomic_fetch_add(&self->page->n_ops_done, 1);
        break;
    }
}

static void ring_waiters(struct stream *stream)
{
    for (int which = 0; which < N_BELLS; which++)
        if (atomic_load(&stream->self->gpu->awaited[which]) & 1u << stream->id)
            bell_ring(rank_bell(stream->self, stream->self->rank, which));
}

static void *stream_main(void *argument)
{
    struct stream *stream = argument;
    for (uint64_t position = 0;; position++) {
        for (;;) {
            uint32_t seen = bell_read(stream->bell);
            if (atomic_load(&stream->n_queued) > position)
                break;
            bell_wait(stream->bell, seen, NEVER_NS);
        }
        struct task *task = &stream->queue[position % QUEUE_LENGTH];
        run_task(stream, task);
        atomic_store(&stream->n_done, position + 1);
        ring_waiters(stream);
    }
    return NULL;
}

int gpu_start(struct rank *self)
{
    self->gpu = calloc(1, sizeof *self->gpu);
    for (int i = 0; i < N_STREAMS; i++) {
        struct stream *stream = &self->gpu->streams[i];
        stream->self = self;
        stream->id = i;
        stream->bell = rank_bell(self, self->rank, i);
        if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0)
            return -1;
    }
    return 0;
}

static void queue_task(struct rank *self, int id, struct task task)
{
    struct stream *stream = &self->gpu->streams[id];
    uint64_t position = atomic_load(&stream->n_queued);
    if (position >= QUEUE_LENGTH) /* the oldest slot must be free: a full queue blocks, as a real stream does */
        wait_until_done(self, MAIN_BELL, stream, position - QUEUE_LENGTH + 1);
    stream->queue[position % QUEUE_LENGTH] = task;
    atomic_store(&stream->n_queued, position + 1);
    bell_ring(stream->bell);
}

void gpu_queue_compute(struct rank *self, int stream, uint64_t ns)
{
    queue_task(self, stream, (struct task){.kind = TASK_COMPUTE, .compute_ns = ns});
}

void gpu_queue_kernel(struct rank *self, int stream, struct kernel *kernel)
{
    queue_task(self, stream, (struct task){.kind = TASK_KERNEL, .kernel = kernel});
}

void gpu_queue_wait(struct rank *self, int stream, int other)
{
    uint64_t position = atomic_load(&self->gpu->streams[other].n_queued);
    queue_task(self, stream, (struct task){.kind = TASK_WAIT, .stream = other, .position = position});
}

void gpu_positions(const struct rank *self, uint64_t *positions)
{
    for (int i = 0; i < N_STREAMS; i++)
        positions[i] = atomic_load(&self->gpu->streams[i].n_queued);
}

void gpu_wait_for(struct rank *self, const uint64_t *positions)
{
    for (int i = 0; i < N_STREAMS; i++)
        wait_until_done(self, MAIN_BELL, &self->gpu->streams[i], positions[i]);
}

void gpu_synchronize(struct rank *self)
{
    uint64_t positions[N_STREAMS];
    gpu_positions(self, positions);
    gpu_wait_for(self, positions);
}

static uint64_t copy_cost_ns(struct rank *self, const struct link *link, uint64_t bytes)
{
    /* Only copies to and from network buffers cross PCIe, which is what the slow-copies fault degrades. */
    if (link->flow == NULL)
        return bytes * NS_PER_S / self->job.node_copy_bytes_per_s;
    uint64_t factor = atomic_load(&self->page->copy_factor_milli);
    return bytes * NS_PER_S / self->job.copy_bytes_per_s * factor / MILLI;
}

uint64_t gpu_copy_end_ns(struct rank *self, const struct link *in, const struct link *out, uint64_t bytes,
                         uint64_t earliest_ns)
{
    uint64_t end = earliest_ns, other;
    if (in != NULL)
        end = reserve_ns(&self->gpu->copy_in_busy_until_ns, earliest_ns, copy_cost_ns(self, in, bytes));
    if (out != NULL) {
        other = reserve_ns(&self->gpu->copy_out_busy_until_ns, earliest_ns, copy_cost_ns(self, out, bytes));
        end = other > end ? other : end;
    }
    return end;
}
