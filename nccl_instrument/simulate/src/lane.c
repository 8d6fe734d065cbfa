/* A lane is a thread block of a communication kernel: it waits for a full slot and a free one, occupies the copy engine
 * and passes both on. Only copies to and from network slots cross PCIe; those inside a node have a rate of their own. */
#include "sim.h"

struct wanted {
    int receives, sends;
};

static struct wanted wanted_now(const struct lane *lane)
{
    const struct plan *plan = &lane->plan;
    if (!plan->is_ring)
        return (struct wanted){plan->uses_in, plan->uses_out};
    uint32_t action = lane->slice / plan->slices % plan->period;
    return (struct wanted){action > 0, action + 1 < plan->period};
}

static int has_data(const struct sim *sim, const struct lane *lane)
{
    for (int i = 0; i < FAN && lane->spec.in[i] != NONE; i++) {
        const struct link *link = &sim->links[lane->spec.in[i]];
        if (link->avail == link->taken)
            return 0;
    }
    return 1;
}

static int has_room_on(struct sim *sim, int32_t at, uint32_t depth)
{
    struct link *link = &sim->links[at];
    if (link->tail - link->head < depth)
        return 1;
    if (!link->spec.is_network)
        return 0;
    link->waits_room = 0; /* we are asking for ourselves */
    proxy_touch(sim, at, 0); /* acknowledgements are noticed when somebody needs them */
    link->waits_room = link->tail - link->head >= depth;
    int64_t acked = link->head == link->n_started ? NEVER : slot_of(link, link->head)->ack_ns;
    if (link->waits_room && !link->has_ack_call && acked > sim->now && acked != NEVER) {
        link->has_ack_call = 1; /* what has come already, a proxy that does not poll sees when it wakes */
        call_at(sim, acked, C_ACK, at);
    }
    return !link->waits_room;
}

static int has_room(struct sim *sim, const struct lane *lane)
{
    int n_full = 0;
    for (int i = 0; i < FAN && lane->spec.out[i] != NONE; i++)
        n_full += !has_room_on(sim, lane->spec.out[i], lane->depth);
    return n_full == 0;
}

static int64_t copy_ns(const struct sim *sim, const struct rank *rank, uint32_t bytes)
{
    double ns = (double)bytes * NS_PER_S / (double)sim->settings.copy_bytes_per_s * rank->copy_factor;
    if (rank->compute_ns > sim->now)
        ns *= 1 + sim->settings.overlap_copy + sim->overlap;
    return (int64_t)ns;
}

/* When the copies through these links end; engine: the copy engine's busy time of that direction. */
static int64_t copies_end_ns(struct sim *sim, const struct rank *rank, const int32_t *links, uint32_t bytes, int64_t *engine)
{
    int64_t end = sim->now;
    for (int i = 0; i < FAN && links[i] != NONE; i++) {
        if (sim->links[links[i]].spec.is_network) {
            *engine = largest(*engine, sim->now) + copy_ns(sim, rank, bytes);
            end = largest(end, *engine);
        } else {
            int64_t ns = (int64_t)bytes * NS_PER_S / sim->settings.node_bytes_per_s + sim->settings.node_latency_ns;
            end = largest(end, sim->now + ns);
        }
    }
    return end;
}

void lane_try(struct sim *sim, int32_t at)
{
    struct lane *lane = &sim->lanes[at];
    struct rank *rank = &sim->ranks[lane->spec.rank];
    if (!lane->is_running || lane->is_copying || rank->is_gpu_dead)
        return;
    struct wanted wanted = wanted_now(lane);
    if ((wanted.receives && !has_data(sim, lane)) || (wanted.sends && !has_room(sim, lane)))
        return;
    uint32_t bytes = lane->plan.slice_bytes;
    int64_t in = wanted.receives ? copies_end_ns(sim, rank, lane->spec.in, bytes, &rank->copy_in_ns) : sim->now;
    int64_t out = wanted.sends ? copies_end_ns(sim, rank, lane->spec.out, bytes, &rank->copy_out_ns) : sim->now;
    lane->is_copying = 1;
    call_at(sim, largest(in, out), C_COPY, at);
}

static void slots_give_back(struct sim *sim, const struct lane *lane)
{
    for (int i = 0; i < FAN && lane->spec.in[i] != NONE; i++) {
        struct link *link = &sim->links[lane->spec.in[i]];
        link->taken++;
        if (link->spec.is_network) {
            proxy_touch(sim, lane->spec.in[i], 1);
        } else {
            link->head = link->taken;
            lane_try(sim, link->spec.from_lane);
        }
    }
}

static void slots_hand_on(struct sim *sim, const struct lane *lane)
{
    for (int i = 0; i < FAN && lane->spec.out[i] != NONE; i++) {
        struct link *link = &sim->links[lane->spec.out[i]];
        slot_of(link, link->tail++)->bytes = lane->plan.slice_bytes;
        if (link->spec.is_network) {
            proxy_touch(sim, lane->spec.out[i], 0);
        } else {
            link->avail = link->tail;
            lane_try(sim, link->spec.to_lane);
        }
    }
}

void lane_copied(struct sim *sim, int32_t at)
{
    struct lane *lane = &sim->lanes[at];
    int32_t rank = lane->spec.rank, number = lane->stream;
    if (sim->ranks[rank].is_gpu_dead) {
        defer(sim, C_COPY, at);
        return;
    }
    struct wanted wanted = wanted_now(lane);
    lane->is_copying = 0;
    lane->slice++;
    lane->is_running = lane->slice < lane->plan.n_slices;
    int is_over = !lane->is_running;
    if (wanted.receives)
        slots_give_back(sim, lane);
    if (wanted.sends)
        slots_hand_on(sim, lane);
    if (!is_over)
        lane_try(sim, at);
    else if (--sim->ranks[rank].streams[number].n_lanes == 0)
        stream_task_done(sim, rank, number);
}
