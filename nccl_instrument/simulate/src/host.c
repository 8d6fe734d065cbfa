/* The main thread: enqueues a step task by task, never more than `ahead` tasks in front of the GPU, and waits for its
 * end. What happens between two steps (data loading, checkpoints, evaluation, being stuck) happens here. */
#include "sim.h"

static int n_waiting(const struct rank *rank)
{
    int n = 0;
    for (int i = 0; i < N_STREAMS; i++)
        n += rank->streams[i].n_queued - rank->streams[i].n_done;
    return n;
}

static void step_end(struct sim *sim, struct rank *rank, int32_t at)
{
    stage_step_end(sim, at);
    for (int i = 0; i < N_STREAMS; i++)
        rank->streams[i].n_queued = rank->streams[i].n_done = 0;
    rank->iteration++;
    rank->pc = 0;
    rank->has_begun = 0;
}

static int64_t gap_ns(struct sim *sim, struct rank *rank, int32_t at)
{
    double around = random_around(sim, 2, (uint64_t)at, (uint64_t)rank->iteration);
    int64_t loading_ns = (int64_t)((double)sim->settings.step_gap_ns * (1 + 0.1 * around)) + rank->data_extra_ns;
    int64_t pause_ns = rank->iteration == sim->pause_at ? sim->pause_ns : 0;
    rank->callbacks_ns = rank->host_extra_ns + pause_ns;
    if (rank->hold_ns > 0 && rank->iteration >= rank->hold_at) {
        rank->callbacks_ns += rank->hold_ns;
        rank->io_from_ns = sim->now;
        rank->io_until_ns = sim->now + rank->hold_ns;
        rank->hold_ns = 0;
    }
    return loading_ns + rank->callbacks_ns;
}

static void busy_for(struct sim *sim, struct rank *rank, int32_t at, int64_t ns)
{
    rank->is_busy = 1;
    call_at(sim, sim->now + ns, C_HOST, at);
}

static void enqueue(struct sim *sim, struct rank *rank, int32_t at, const struct task_spec *task)
{
    rank->streams[task->stream].n_queued++;
    rank->pc++;
    if (task->kind == TASK_KERNEL) {
        const struct task_spec *run = task_in_place_of(sim, rank, task);
        for (int32_t i = 0; i < run->n_ops; i++)
            ops_enqueue(sim, at, &sim->specs[run->first_op + i]);
        busy_for(sim, rank, at, sim->settings.host_call_ns);
    }
    stream_run(sim, at, task->stream);
}

/* Returns 1 when the step may begin. */
static int step_begin(struct sim *sim, struct rank *rank, int32_t at)
{
    if (rank->has_begun)
        return 1;
    if (rank->is_stuck)
        return 0;
    rank->has_begun = 1;
    if (rank->mismatch && rank->mismatch_at < 0)
        rank->mismatch_at = rank->iteration;
    busy_for(sim, rank, at, gap_ns(sim, rank, at));
    return 0;
}

static void run(struct sim *sim, int32_t at)
{
    struct rank *rank = &sim->ranks[at];
    const struct class_spec *class = &sim->classes[rank->spec.class];
    rank->host_waits = 0;
    while (!rank->is_busy && !rank->is_frozen && !rank->is_killed && !rank->is_host_over) {
        if (rank->pc == class->n_tasks && n_waiting(rank) == 0)
            step_end(sim, rank, at);
        if (rank->pc == 0 && !step_begin(sim, rank, at))
            return;
        if (rank->pc == class->n_tasks || n_waiting(rank) >= sim->settings.ahead) {
            rank->host_waits = 1;
            return;
        }
        enqueue(sim, rank, at, &sim->tasks[class->first_task + rank->pc]);
    }
}

void host_run(struct sim *sim, int32_t at)
{
    stage_look(sim, &sim->ranks[at]);
    run(sim, at);
    stage_look(sim, &sim->ranks[at]);
}

/* The call, sleep or disk access the thread was in is over. */
void host_resume(struct sim *sim, int32_t at)
{
    sim->ranks[at].is_busy = 0;
    host_run(sim, at);
}
