/* A training step as Megatron with a distributed optimizer would enqueue it: per microbatch forward with a TP
 * AllReduce and a PP send, backward likewise; gradients are reduce-scattered over DP in buckets while the last backward
 * pass still computes; a world AllReduce of the gradient norm; the optimizer; an AllGather of the new parameters.
 * The main thread runs ahead within a step and waits at its end. */
#define _GNU_SOURCE
#include "schedule.h"

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#include "enqueue.h"
#include "gpu.h"
#include "proxy.h"
#include "stages.h"

struct step {
    struct rank *self;
    struct comm *world, *tp, *dp, *pp;
    uint64_t random;
};

struct comm *schedule_comm(struct rank *self, enum comm_kind kind)
{
    for (int i = 0; i < self->n_comms; i++)
        if (self->comms[i].spec.kind == kind)
            return &self->comms[i];
    return NULL;
}

static double random_unit(struct step *step)
{
    step->random ^= step->random << 13;
    step->random ^= step->random >> 7;
    step->random ^= step->random << 17;
    return (double)(step->random >> 11) / (double)(UINT64_C(1) << 53);
}

/* Sum of uniforms: near enough to normal, and bounded. */
static uint64_t with_jitter(struct step *step, uint64_t ns)
{
    double sum = -2;
    for (int i = 0; i < 4; i++)
        sum += random_unit(step);
    double factor = 1 + sum * 1.73 * (double)step->self->job.jitter_ppm / 1e6;
    return (uint64_t)((double)ns * (factor > 0 ? factor : 0));
}

static void hold(struct rank *self, enum rank_state state, uint64_t ns)
{
    rank_set_state(self, state);
    sleep_until_ns(now_ns() + ns);
    rank_set_state(self, STATE_RUNNING);
}

/* Where a stuck data loader shows in a stack: the next step's first op is not enqueued. */
__attribute__((noinline)) static void load_batch(struct rank *self)
{
    while (atomic_load(&self->page->is_stuck_before) != 0)
        hold(self, STATE_IN_DATA_LOADER, 20 * NS_PER_MS);
    rank_set_state(self, STATE_RUNNING);
}

enum { CHECKPOINT_PART = 1 << 20, CHECKPOINT_PARTS = 32, CHECKPOINT_PARTS_PER_S = 20 };

/* Writes to an unnamed file at 20 MB/s until the time is over: a rank that saves is late, and its I/O shows it. */
static void write_until(uint64_t end_ns)
{
    static const char part[CHECKPOINT_PART];
    int file = open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    for (uint64_t i = 0; now_ns() < end_ns; i++) {
        if (file >= 0 && pwrite(file, part, sizeof part, (off_t)(i % CHECKPOINT_PARTS) * CHECKPOINT_PART) < 0) {
            close(file); /* a full disk ends the writing, not the wait */
            file = -1;
        }
        sleep_until_ns(now_ns() + NS_PER_S / CHECKPOINT_PARTS_PER_S);
    }
    if (file >= 0)
        close(file);
}

__attribute__((noinline)) static void save_checkpoint(struct rank *self)
{
    uint64_t ns = atomic_exchange(&self->page->checkpoint_ns, 0);
    if (ns == 0)
        return;
    rank_set_state(self, STATE_CHECKPOINT);
    write_until(now_ns() + ns);
    rank_set_state(self, STATE_RUNNING);
}

static void pause_if_asked(struct rank *self, uint64_t iteration)
{
    if (atomic_load(&self->job_page->pause_at) == iteration)
        hold(self, STATE_PAUSED, atomic_load(&self->job_page->pause_ns));
}

static void compute(struct step *step, uint64_t ns)
{
    gpu_queue_compute(step->self, STREAM_COMPUTE, with_jitter(step, ns));
}

static void collective(struct step *step, struct comm *comm, enum op_func func, uint64_t bytes)
{
    uint64_t n = bytes / sizeof(float);
    if (comm == NULL)
        return;
    if (func == OP_ALL_GATHER || func == OP_REDUCE_SCATTER)
        n /= (uint64_t)comm->spec.n_ranks;
    enqueue_collective(step->self, comm, func, n, 0);
}

static int has_neighbour(const struct comm *pp, int neighbour)
{
    return pp != NULL && (neighbour == 0 ? pp->me > 0 : pp->me + 1 < pp->spec.n_ranks);
}

static void receive_from(struct step *step, int neighbour)
{
    if (!has_neighbour(step->pp, neighbour))
        return;
    enqueue_p2p(step->self, step->pp, OP_RECV, step->self->job.pp_bytes / sizeof(float), neighbour);
    gpu_queue_wait(step->self, STREAM_COMPUTE, STREAM_PP);
}

static void send_to(struct step *step, int neighbour)
{
    if (!has_neighbour(step->pp, neighbour))
        return;
    gpu_queue_wait(step->self, STREAM_PP, STREAM_COMPUTE);
    enqueue_p2p(step->self, step->pp, OP_SEND, step->self->job.pp_bytes / sizeof(float), neighbour);
}

static void forward(struct step *step)
{
    receive_from(step, 0);
    compute(step, step->self->job.forward_ns);
    collective(step, step->tp, OP_ALL_REDUCE, step->self->job.tp_bytes);
    send_to(step, 1);
}

static void reduce_bucket(struct step *step)
{
    gpu_queue_wait(step->self, STREAM_DP, STREAM_COMPUTE);
    collective(step, step->dp, OP_REDUCE_SCATTER, step->self->job.dp_bytes);
}

static void backward(struct step *step, int is_last)
{
    int n_parts = is_last ? step->self->job.n_buckets : 1;
    receive_from(step, 1);
    for (int i = 0; i < n_parts; i++) {
        compute(step, step->self->job.backward_ns / (uint64_t)n_parts);
        if (is_last)
            reduce_bucket(step);
    }
    collective(step, step->tp, OP_ALL_REDUCE, step->self->job.tp_bytes);
    send_to(step, 0);
}

static void update(struct step *step)
{
    gpu_queue_wait(step->self, STREAM_COMPUTE, STREAM_DP);
    collective(step, step->world, OP_ALL_REDUCE, step->self->job.world_bytes); /* gradient norm */
    compute(step, step->self->job.optimizer_ns);
    gpu_queue_wait(step->self, STREAM_DP, STREAM_COMPUTE);
    collective(step, step->dp, OP_ALL_GATHER, step->self->job.dp_bytes);
}

/* Benchmarks compare two plugins within one process: between two steps, when no callback of the first is due any more. */
static void choose_profiler(struct rank *self, uint64_t *chosen)
{
    uint64_t wanted = atomic_load(&self->job_page->profiler);
    if (wanted == *chosen)
        return;
    proxy_wait_idle(self);
    profiler_choose((int)wanted);
    *chosen = wanted;
}

/* The main thread runs ahead and waits at the end, as a loop does that reads the norm of its gradients: for these first, so
 * that another rank's lateness shows in the backward, where the collective is that waits for it. */
static void run_step(struct step *step)
{
    uint64_t gradients[N_STREAMS];
    int n = step->self->job.n_microbatches;
    stages_enter(STAGE_FORWARD);
    for (int i = 0; i < n; i++)
        forward(step);
    stages_enter(STAGE_BACKWARD);
    for (int i = 0; i < n; i++)
        backward(step, i == n - 1);
    gpu_positions(step->self, gradients);
    stages_enter(STAGE_OPTIMIZER);
    update(step);
    stages_enter(STAGE_BACKWARD);
    gpu_wait_for(step->self, gradients);
    stages_enter(STAGE_OPTIMIZER);
    gpu_synchronize(step->self);
}

static void note_iteration(struct rank *self, uint64_t iteration, uint64_t began_ns)
{
    uint32_t us = (uint32_t)((now_ns() - began_ns) / 1000);
    atomic_store(&self->page->iteration_us[iteration % N_RECENT_ITERATIONS], us);
    atomic_store(&self->page->iteration, iteration + 1);
}

void schedule_run(struct rank *self)
{
    struct step step = {.self = self,
                        .world = schedule_comm(self, COMM_WORLD),
                        .tp = schedule_comm(self, COMM_TP),
                        .dp = schedule_comm(self, COMM_DP),
                        .pp = schedule_comm(self, COMM_PP),
                        .random = (self->job.seed * 1000003 + (uint64_t)self->rank + 1) * UINT64_C(0x9E3779B97F4A7C15)};
    uint64_t profiler = 0;
    rank_set_state(self, STATE_RUNNING);
    collective(&step, step.world, OP_BROADCAST, self->job.world_bytes); /* initial parameters */
    gpu_synchronize(self);
    stages_open(self);
    for (uint64_t iteration = 0; iteration < atomic_load(&self->job_page->stop_at); iteration++) {
        uint64_t began_ns = now_ns();
        stages_enter(STAGE_CALLBACKS);
        choose_profiler(self, &profiler);
        pause_if_asked(self, iteration);
        stages_enter(STAGE_DATA);
        load_batch(self);
        stages_enter(STAGE_CALLBACKS);
        save_checkpoint(self);
        run_step(&step);
        stages_end_step(iteration);
        note_iteration(self, iteration, began_ns);
    }
}
