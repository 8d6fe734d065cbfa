/* What befalls the job at a given time. Each action changes one quantity of the mechanism, named here as in engine.py;
 * what a fault does to several of them, or to a whole node, is put together there. */
#include "sim.h"

enum what {
    NIC_DOWN, NIC_UP, NIC_SHARE, WIRE_SHARE, PCIE_SHARE, HAND_OVER, WOBBLE, COPY_FACTOR, COMPUTE_FACTOR, BACKGROUND,
    PROXY_DELAY, SLEEP_EVERY, SLEEP_ONCE, FREEZE, THAW, KILL, GPU_DEAD, STUCK, UNSTUCK, HOLD, PAUSE, MISMATCH, EXPERT,
    HOST_EXTRA, OVERLAP, TRAFFIC, DATA_EXTRA, DMA_FACTOR, HOST_OVER
};

int64_t io_bytes_now(const struct sim *sim, const struct rank *rank)
{
    int64_t end = sim->now < rank->io_until_ns ? sim->now : rank->io_until_ns;
    return (int64_t)rank->io_bytes + (end > rank->io_from_ns ? (end - rank->io_from_ns) / 1000 * rank->io_rate / 1000000 : 0);
}

/* A steady stream both ways, whatever the job does: the port counts it as it counts the job's. */
uint64_t others_bytes_now(const struct sim *sim, const struct nic *nic)
{
    double passed_s = (double)(sim->now - nic->others_since_ns) / NS_PER_S;
    return nic->others_bytes + (uint64_t)(passed_s * nic->others_share * (double)nic->bytes_per_s);
}

static void share_with_others(struct sim *sim, struct nic *nic, double share)
{
    nic->others_bytes = others_bytes_now(sim, nic);
    nic->others_since_ns = sim->now;
    nic->others_share = share;
    nic->wire_share = 1 - share;
}

static void sleep_now(struct sim *sim, int32_t at, int64_t ns)
{
    struct rank *rank = &sim->ranks[at];
    rank->asleep_until_ns = largest(rank->asleep_until_ns, sim->now + ns);
    call_at(sim, rank->asleep_until_ns, C_WAKE, at);
}

static void sleep_every(struct sim *sim, int32_t at, const struct action *action)
{
    sim->ranks[at].sleep_ns = (int64_t)action->amount;
    sim->ranks[at].sleep_every_ns = (int64_t)action->second;
    if (action->second > 0)
        call_at(sim, sim->now, C_SLEEP, at);
}

/* The first step that no rank has begun. */
static int32_t next_step(const struct sim *sim)
{
    int32_t step = 0;
    for (int32_t i = 0; i < sim->settings.n_ranks; i++)
        step = (int32_t)largest(step, sim->ranks[i].iteration + 1);
    return step;
}

/* What is compiled or saved is so before one step, at all ranks that do: their hosts may be a step apart. */
static void hold(struct sim *sim, struct rank *rank, const struct action *action)
{
    rank->io_bytes = (uint64_t)io_bytes_now(sim, rank);
    rank->io_from_ns = rank->io_until_ns = 0;
    rank->hold_ns = (int64_t)action->amount;
    rank->io_rate = (int64_t)action->second;
    rank->hold_at = next_step(sim);
}

static void pause_all(struct sim *sim, int64_t ns)
{
    sim->pause_at = next_step(sim);
    sim->pause_ns = ns;
}

/* Both ends of a flow must agree on how many tokens there are: the change comes with a step. */
static void set_expert(struct sim *sim, struct rank *rank, double factor)
{
    rank->expert_factor[0] = rank->expert_factor[1];
    rank->expert_factor[1] = factor;
    rank->expert_at = next_step(sim);
}

static void gpu_goes_on(struct sim *sim, int32_t at)
{
    int64_t n_kept = 0;
    sim->ranks[at].is_gpu_dead = 0;
    for (int64_t i = 0; i < sim->n_deferred; i++) {
        uint32_t kind = sim->deferred[i].code >> 28, what = sim->deferred[i].code & 0xfffffff;
        int32_t rank = kind == C_COPY ? sim->lanes[what].spec.rank : (int32_t)what / N_STREAMS;
        if (rank == at)
            call_at(sim, sim->now, (enum call_kind)kind, (int32_t)what);
        else
            sim->deferred[n_kept++] = sim->deferred[i];
    }
    sim->n_deferred = n_kept;
    for (int32_t i = 0; i < sim->settings.n_lanes; i++)
        if (sim->lanes[i].spec.rank == at)
            lane_try(sim, i);
    for (int32_t i = 0; i < N_STREAMS; i++)
        stream_run(sim, at, i);
}

static void thaw(struct sim *sim, int32_t at)
{
    sim->ranks[at].is_frozen = 0;
    if (sim->settings.gpu_dies_with_process)
        gpu_goes_on(sim, at);
    sim->ranks[at].asleep_until_ns = largest(sim->ranks[at].asleep_until_ns, sim->now);
    proxy_look(sim, at);
    host_run(sim, at);
}

static void act_on_process(struct sim *sim, int32_t at, const struct action *action)
{
    struct rank *rank = &sim->ranks[at];
    switch ((enum what)action->what) {
    case FREEZE:
        rank->is_frozen = 1;
        rank->is_gpu_dead |= (uint8_t)sim->settings.gpu_dies_with_process;
        break;
    case THAW: thaw(sim, at); break;
    case KILL: rank->is_killed = rank->is_gpu_dead = 1; break;
    case GPU_DEAD: rank->is_gpu_dead = 1; break;
    case STUCK: rank->is_stuck = 1; break;
    case UNSTUCK:
        rank->is_stuck = 0;
        host_run(sim, at);
        break;
    case HOLD: hold(sim, rank, action); break;
    case SLEEP_EVERY: sleep_every(sim, at, action); break;
    case SLEEP_ONCE: sleep_now(sim, at, (int64_t)action->amount); break;
    default: break;
    }
}

static void set_rank(struct rank *rank, const struct action *action)
{
    switch ((enum what)action->what) {
    case DMA_FACTOR: rank->dma_factor = action->amount; break;
    case HOST_OVER: rank->is_host_over = 1; break;
    case COPY_FACTOR: rank->copy_factor = action->amount; break;
    case COMPUTE_FACTOR: rank->compute_factor = action->amount; break;
    case BACKGROUND: rank->background = action->amount; break;
    case PROXY_DELAY: rank->proxy_delay_ns = (int64_t)action->amount; break;
    case HOST_EXTRA: rank->host_extra_ns = (int64_t)action->amount; break;
    case DATA_EXTRA: rank->data_extra_ns = (int64_t)action->amount; break;
    case MISMATCH:
        rank->mismatch = (int32_t)action->amount;
        rank->mismatch_at = NONE;
        break;
    default: break;
    }
}

static void set_nic(struct sim *sim, int32_t at, const struct action *action)
{
    struct nic *nic = &sim->nics[at];
    switch ((enum what)action->what) {
    case NIC_DOWN: nic->is_down = 1; break;
    case NIC_UP:
        nic->is_down = 0;
        nic_up_again(sim, at);
        break;
    case NIC_SHARE: nic->share = action->amount; break;
    case WIRE_SHARE: nic->wire_share = action->amount; break;
    case PCIE_SHARE: nic->pcie_share = action->amount; break;
    case HAND_OVER: nic->hand_over_ns = (int64_t)action->amount; break;
    case WOBBLE: nic->wobble = action->amount; break;
    case TRAFFIC: share_with_others(sim, nic, action->amount); break;
    default: break;
    }
}

void action_apply(struct sim *sim, int32_t number)
{
    const struct action *action = &sim->actions[number];
    if (action->what <= WOBBLE || action->what == TRAFFIC) {
        set_nic(sim, action->target, action);
    } else if (action->what == PAUSE) {
        pause_all(sim, (int64_t)action->amount);
    } else if (action->what == OVERLAP) {
        sim->overlap = action->amount;
    } else {
        set_rank(&sim->ranks[action->target], action);
        if (action->what == EXPERT)
            set_expert(sim, &sim->ranks[action->target], action->amount);
        act_on_process(sim, action->target, action);
        proxy_look(sim, action->target);
    }
}
