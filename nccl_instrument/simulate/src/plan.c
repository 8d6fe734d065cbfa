/* What an op asks of each of the rank's lanes: how many slices of what size, and whether it receives, sends or both.
 * A chunk of the three ring collectives is `slices` slices of a slot; Broadcast, trees and p2p move single slices. */
#include <string.h>

#include "sim.h"

static int64_t share(int64_t bytes, int64_t parts)
{
    return parts > 0 ? (bytes + parts - 1) / parts : bytes;
}

static struct group *group_of(struct sim *sim, const struct rank *rank, int32_t slot)
{
    return &sim->groups[rank->spec.groups[slot]];
}

static struct member *member_of(struct sim *sim, const struct rank *rank, int32_t slot)
{
    return &sim->members[group_of(sim, rank, slot)->spec.first_member + rank->spec.places[slot]];
}

/* A rank that deviates does so in the ops of its data-parallel group, for one step. A tree has no lanes for another op. */
static struct op_spec as_enqueued(struct sim *sim, const struct rank *rank, const struct op_spec *spec)
{
    struct op_spec done = *spec;
    int is_dp = spec->slot == 2 && (spec->func == F_REDUCE_SCATTER || spec->func == F_ALL_REDUCE);
    if (rank->mismatch == 0 || rank->iteration != rank->mismatch_at || !is_dp)
        return done;
    if (rank->mismatch == 1 && !group_of(sim, rank, spec->slot)->spec.is_tree) /* another op */
        done.func = spec->func == F_ALL_REDUCE ? F_REDUCE_SCATTER : F_ALL_REDUCE;
    if (rank->mismatch == 2) /* another size */
        done.bytes *= 2;
    return done;
}

/* Bytes from one place of the group to another; negative where the shape has no such pair. */
static int64_t pair_bytes(const struct sim *sim, const struct op_spec *spec, int32_t n, int32_t from, int32_t to)
{
    int32_t side = 1;
    if (spec->shape == SHAPE_FULL) /* combine goes the way back */
        return (int64_t)((double)spec->bytes / n * sim->weights[spec->is_combine ? from : to]);
    if (spec->shape == SHAPE_ALL_TO_ONE || spec->shape == SHAPE_ONE_TO_ALL)
        return (spec->shape == SHAPE_ALL_TO_ONE ? to : from) == spec->root ? spec->bytes : NONE;
    while (side * side < n)
        side++; /* a square, as far as it is full: neighbours lie one row or one column away */
    int32_t rows = from / side - to / side, columns = from % side - to % side;
    return rows * rows + columns * columns == 1 ? spec->bytes : NONE;
}

static int32_t group_of_p2p_parts(struct sim *sim, const struct rank *rank, const struct op_spec *spec)
{
    struct group *group = group_of(sim, rank, spec->slot);
    int32_t me = rank->spec.places[spec->slot], n = group->spec.n_ranks, n_parts = 0;
    moe_weights(sim, group, spec->layer, rank->iteration, sim->weights);
    for (int32_t i = 1; i < n; i++) {
        for (int is_receive = 0; is_receive < 2; is_receive++) {
            int32_t peer = (is_receive ? me + n - i : me + i) % n; /* rank ± i, as NCCL pairs them */
            int64_t bytes = pair_bytes(sim, spec, n, is_receive ? peer : me, is_receive ? me : peer);
            if (bytes >= 0)
                sim->parts[n_parts++] = (struct part){is_receive ? F_RECV : F_SEND, spec->slot, peer, peer, bytes};
        }
    }
    return n_parts;
}

/* Fills sim->parts and returns their number. */
int32_t op_parts(struct sim *sim, const struct rank *rank, const struct op_spec *planned)
{
    struct op_spec spec = as_enqueued(sim, rank, planned);
    int32_t peer = spec.root;
    if (rank->spec.groups[spec.slot] == NONE)
        return 0;
    if (spec.func == F_ALL_TO_ALL)
        return group_of_p2p_parts(sim, rank, &spec);
    if (spec.func == F_SEND || spec.func == F_RECV)
        peer = rank->spec.places[spec.slot] + (spec.neighbour == 0 ? -1 : 1);
    sim->parts[0] = (struct part){spec.func, spec.slot, spec.neighbour, peer, spec.bytes};
    return 1;
}

static struct plan ring_plan(const struct sim *sim, int32_t lane, int32_t n, int is_all_reduce, int64_t bytes)
{
    int64_t slices = sim->settings.slices, slot = sim->settings.slot_bytes;
    int64_t loops = largest(share(bytes, n * slices * slot), 1), chunk = share(bytes, n * loops);
    int64_t period = is_all_reduce ? 2 * n - 1 : n;
    return (struct plan){.lane = lane, .period = (uint32_t)period, .slices = (uint32_t)slices,
                         .n_slices = (uint32_t)(loops * period * slices), .slice_bytes = (uint32_t)share(chunk, slices),
                         .uses_in = 1, .uses_out = 1, .is_ring = 1};
}

static struct plan straight_plan(const struct sim *sim, int32_t lane, int64_t bytes, int uses_in, int uses_out)
{
    int64_t n = largest(share(bytes, sim->settings.slot_bytes), 1);
    return (struct plan){.lane = lane, .period = 1, .slices = 1, .n_slices = uses_in || uses_out ? (uint32_t)n : 0,
                         .slice_bytes = (uint32_t)share(bytes, n), .uses_in = (uint8_t)uses_in,
                         .uses_out = (uint8_t)uses_out};
}

static struct plan broadcast_plan(const struct sim *sim, int32_t lane, int32_t me, int32_t root, int64_t bytes)
{
    int32_t next = sim->links[sim->lanes[lane].spec.out[0]].spec.to;
    return straight_plan(sim, lane, bytes, me != root, next != root);
}

/* Lanes of a tree that have nobody on one side neither receive nor send there. */
static struct plan tree_plan(const struct sim *sim, int32_t lane, int64_t bytes)
{
    const struct lane_spec *spec = &sim->lanes[lane].spec;
    return straight_plan(sim, lane, bytes, spec->in[0] != NONE, spec->out[0] != NONE);
}

static int32_t p2p_plans(const struct sim *sim, const struct member *member, const struct part *part, int32_t n_channels,
                         struct plan *plans)
{
    int is_receive = part->func == F_RECV;
    for (int32_t c = 0; c < n_channels; c++) {
        int32_t lane = member->spec.first_p2p + (part->neighbour * 2 + is_receive) * n_channels + c;
        plans[c] = straight_plan(sim, lane, share(part->bytes, n_channels), is_receive, !is_receive);
    }
    return n_channels;
}

static int32_t tree_plans(const struct sim *sim, const struct member *member, int64_t bytes, int32_t n_channels,
                          struct plan *plans)
{
    for (int32_t c = 0; c < n_channels; c++) {
        plans[2 * c] = tree_plan(sim, member->spec.first_up + c, share(bytes, n_channels));
        plans[2 * c + 1] = tree_plan(sim, member->spec.first_down + c, share(bytes, n_channels));
    }
    return 2 * n_channels;
}

int32_t part_plans(struct sim *sim, const struct rank *rank, const struct part *part, struct plan *plans)
{
    const struct member *member = member_of(sim, rank, part->slot);
    const struct group_spec *group = &group_of(sim, rank, part->slot)->spec;
    int32_t n_channels = group->n_channels;
    if (group->is_barrier)
        return 0;
    if (part->func == F_SEND || part->func == F_RECV)
        return p2p_plans(sim, member, part, n_channels, plans);
    if (part->func == F_ALL_REDUCE && group->is_tree)
        return tree_plans(sim, member, part->bytes, n_channels, plans);
    for (int32_t c = 0; c < n_channels; c++) {
        int32_t lane = member->spec.first_ring + c;
        int64_t bytes = share(part->bytes, n_channels);
        if (part->func == F_BROADCAST)
            plans[c] = broadcast_plan(sim, lane, member->spec.place, part->peer, bytes);
        else
            plans[c] = ring_plan(sim, lane, group->n_ranks, part->func == F_ALL_REDUCE, bytes);
    }
    return n_channels;
}

/* Slices that pass each of the lane's links: transfers of its flow. */
uint32_t plan_n_steps(const struct plan *plan)
{
    return plan->is_ring ? plan->n_slices / plan->period * (plan->period - 1) : plan->n_slices;
}

static int64_t barrier_ns(const struct sim *sim, const struct group *group, int64_t bytes)
{
    int64_t wire = 2 * bytes * (group->spec.n_ranks - 1) / group->spec.n_ranks;
    return wire * NS_PER_S / sim->settings.node_bytes_per_s + sim->settings.node_latency_ns;
}

/* Nobody sees inside a node, so a collective there is one wait for its last member. Returns 1: one thing to wait for. */
static int32_t barrier_enter(struct sim *sim, int32_t at, int64_t bytes)
{
    struct group *group = &sim->groups[at];
    if (++group->n_entered == group->spec.n_ranks)
        call_at(sim, sim->now + barrier_ns(sim, group, bytes), C_BARRIER, at);
    return 1;
}

static int32_t lanes_fill(struct sim *sim, const struct rank *rank, int32_t stream, const struct part *part)
{
    struct plan plans[MAX_LANES];
    int32_t n = part_plans(sim, rank, part, plans), n_used = 0;
    for (int32_t i = 0; i < n; i++) {
        struct lane *lane = &sim->lanes[plans[i].lane];
        lane->plan = plans[i];
        lane->slice = 0;
        lane->stream = stream;
        lane->depth = N_SLOTS / plans[i].slices;
        lane->is_running = plans[i].n_slices > 0;
        n_used += lane->is_running;
    }
    return n_used;
}

static void lanes_go(struct sim *sim, const struct rank *rank, const struct part *part)
{
    struct plan plans[MAX_LANES];
    int32_t n = part_plans(sim, rank, part, plans);
    for (int32_t i = 0; i < n; i++)
        lane_try(sim, plans[i].lane);
}

/* All lanes of a launch are filled in before one of them moves. */
void kernel_start(struct sim *sim, int32_t at, int32_t stream, const struct task_spec *task)
{
    struct rank *rank = &sim->ranks[at];
    int32_t n_lanes = 0;
    kernel_begins(sim, at, stream, task);
    for (int is_going = 0; is_going < 2; is_going++) {
        for (int32_t i = 0; i < task->n_ops; i++) {
            const struct op_spec *spec = &sim->specs[task->first_op + i];
            int32_t n_parts = op_parts(sim, rank, spec), group = rank->spec.groups[spec->slot];
            if (n_parts > 0 && sim->groups[group].spec.is_barrier) {
                n_lanes += is_going ? 0 : barrier_enter(sim, group, spec->bytes);
                continue;
            }
            for (int32_t p = 0; p < n_parts; p++) {
                if (is_going)
                    lanes_go(sim, rank, &sim->parts[p]);
                else
                    n_lanes += lanes_fill(sim, rank, stream, &sim->parts[p]);
            }
        }
        rank->streams[stream].n_lanes = n_lanes;
    }
    if (n_lanes == 0)
        stream_task_done(sim, at, stream);
}
