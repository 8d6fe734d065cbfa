/* A GPU's streams: in-order queues of compute, waits for other streams, and communication kernels. Compute of all
 * streams shares one engine. */
#include <math.h>

#include "sim.h"

static const struct task_spec *task_at(const struct sim *sim, const struct rank *rank, int32_t stream, int32_t position)
{
    const struct class_spec *class = &sim->classes[rank->spec.class];
    return &sim->tasks[sim->stream_tasks[class->first_in_stream[stream] + position]];
}

const struct task_spec *task_in_place_of(const struct sim *sim, const struct rank *rank, const struct task_spec *task)
{
    const int32_t *swapped = sim->classes[rank->spec.class].swapped;
    int32_t at = (int32_t)(task - sim->tasks);
    if (rank->mismatch != 3 || rank->iteration != rank->mismatch_at || (at != swapped[0] && at != swapped[1]))
        return task;
    return &sim->tasks[at == swapped[0] ? swapped[1] : swapped[0]];
}

static double expert_load(const struct sim *sim, const struct rank *rank, const struct task_spec *task)
{
    const struct op_spec *dispatch = &sim->specs[task->first_op];
    if (rank->spec.groups[dispatch->slot] == NONE)
        return 1;
    moe_weights(sim, &sim->groups[rank->spec.groups[dispatch->slot]], dispatch->layer, rank->iteration, sim->weights);
    return sim->weights[rank->spec.places[dispatch->slot]];
}

static int runs_kernel(const struct rank *rank)
{
    int n = 0;
    for (int i = 0; i < N_STREAMS; i++)
        n += rank->streams[i].is_running && rank->streams[i].n_lanes > 0;
    return n > 0;
}

static int64_t compute_ns(const struct sim *sim, const struct rank *rank, int32_t at, const struct task_spec *task)
{
    uint64_t place = (uint64_t)rank->iteration << 32 | (uint64_t)(task - sim->tasks);
    double factor = 1 + sim->settings.jitter * random_around(sim, 1, (uint64_t)at, place);
    factor *= rank->compute_factor * rank->background;
    if (rank->iteration < sim->settings.warmup_steps)
        factor *= sim->settings.warmup_factor;
    if (task->kind == TASK_EXPERT)
        factor *= expert_load(sim, rank, task);
    if (runs_kernel(rank)) /* its communication kernels take multiprocessors and memory bandwidth */
        factor *= 1 + sim->settings.overlap_compute + sim->overlap;
    return (int64_t)((double)task->ns * fmax(factor, 0));
}

static void compute_start(struct sim *sim, int32_t at, int32_t stream, const struct task_spec *task)
{
    struct rank *rank = &sim->ranks[at];
    rank->compute_ns = largest(rank->compute_ns, sim->now) + compute_ns(sim, rank, at, task);
    call_at(sim, rank->compute_ns, C_COMPUTE, at * N_STREAMS + stream);
}

/* Whether the wait is over: the other stream has passed the tasks that were queued before it. */
static int wait_is_over(const struct rank *rank, const struct task_spec *task)
{
    return rank->streams[task->other].n_done >= task->position;
}

void stream_run(struct sim *sim, int32_t at, int32_t number)
{
    struct rank *rank = &sim->ranks[at];
    struct stream *stream = &rank->streams[number];
    if (rank->is_gpu_dead || stream->is_running || stream->n_done == stream->n_queued)
        return;
    const struct task_spec *task = task_at(sim, rank, number, stream->n_done);
    if (task->kind == TASK_WAIT) {
        if (wait_is_over(rank, task))
            stream_task_done(sim, at, number);
        return;
    }
    stream->is_running = 1;
    stream->n_lanes = 0;
    if (task->kind == TASK_KERNEL)
        kernel_start(sim, at, number, task_in_place_of(sim, rank, task));
    else
        compute_start(sim, at, number, task);
}

void stream_task_done(struct sim *sim, int32_t at, int32_t number)
{
    struct rank *rank = &sim->ranks[at];
    if (rank->is_gpu_dead) {
        defer(sim, C_COMPUTE, at * N_STREAMS + number);
        return;
    }
    kernel_ends(sim, at, number);
    rank->streams[number].is_running = 0;
    rank->streams[number].n_done++;
    stage_look(sim, rank);
    for (int32_t i = 0; i < N_STREAMS; i++)
        stream_run(sim, at, i);
    if (rank->host_waits)
        host_run(sim, at);
}

void barrier_done(struct sim *sim, int32_t at)
{
    struct group *group = &sim->groups[at];
    group->n_entered = 0;
    for (int32_t i = 0; i < group->spec.n_ranks; i++)
        stream_task_done(sim, sim->members[group->spec.first_member + i].spec.rank, group->spec.stream);
}
