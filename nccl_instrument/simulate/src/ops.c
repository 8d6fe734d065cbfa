/* Op records, from enqueue to completion, with the plugin's rules for when an op counts as over: all its flows have
 * stopped; or it had none, and a later op completed, or 64 later ones were enqueued and no network was ever seen. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int32_t op_new(struct sim *sim)
{
    int32_t at = sim->free_op;
    if (at != NONE) {
        sim->free_op = sim->ops[at].next;
        return at;
    }
    if (sim->n_ops == sim->ops_size) {
        sim->ops_size = sim->ops_size * 2 + 1024;
        sim->ops = realloc(sim->ops, (size_t)sim->ops_size * sizeof *sim->ops);
        if (sim->ops == NULL)
            abort();
    }
    return (int32_t)sim->n_ops++;
}

static void keep_finished(struct sim *sim, const struct op *op)
{
    if (sim->n_finished == sim->finished_size) {
        sim->finished_size = sim->finished_size * 2 + 1024;
        sim->finished = realloc(sim->finished, (size_t)sim->finished_size * sizeof *sim->finished);
        if (sim->finished == NULL)
            abort();
    }
    sim->finished[sim->n_finished++] = op->row;
}

static void op_close(struct sim *sim, int32_t at, int64_t done_ns)
{
    struct op *op = &sim->ops[at];
    struct member *member = &sim->members[op->member];
    struct rank *rank = &sim->ranks[op->row.rank];
    op->row.done_ns = done_ns;
    if (done_ns == 0) {
        op->row.flags |= OP_NO_NETWORK;
    } else {
        *(op->row.flags & OP_P2P ? &member->n_p2p_done : &member->n_done) += 1;
        member->last_done_ns = done_ns;
        rank->last_callback_ns = largest(rank->last_callback_ns, done_ns);
    }
    keep_finished(sim, op);
    if (op->previous != NONE)
        sim->ops[op->previous].next = op->next;
    else
        rank->first_live = op->next;
    if (op->next != NONE)
        sim->ops[op->next].previous = op->previous;
    if (member->recent[op->ordinal % RECENT_OPS] == at)
        member->recent[op->ordinal % RECENT_OPS] = NONE;
    op->is_live = 0;
    op->next = sim->free_op;
    sim->free_op = at;
}

/* An op of this communicator has completed: earlier ones without flows are over. */
static void settle(struct sim *sim, struct member *member, uint64_t ordinal)
{
    for (uint64_t back = 1; back < RECENT_OPS && back < ordinal; back++) {
        int32_t at = member->recent[(ordinal - back) % RECENT_OPS];
        if (at != NONE && sim->ops[at].row.n_flows == 0 && sim->ops[at].ordinal < ordinal)
            op_close(sim, at, 0);
    }
}

static void remember(struct sim *sim, struct member *member, int32_t at)
{
    int32_t *place = &member->recent[sim->ops[at].ordinal % RECENT_OPS];
    if (*place != NONE && sim->ops[*place].row.n_flows == 0 && !member->network_seen)
        op_close(sim, *place, 0);
    *place = at;
}

static int64_t number_of(struct sim *sim, struct member *member, const struct part *part)
{
    if (part->func != F_SEND && part->func != F_RECV)
        return (int64_t)++member->n_enqueued;
    const struct group_spec *group = &sim->groups[member->spec.group].spec;
    int32_t n_channels = group->n_channels, n_peers = group->n_ranks - 1;
    member->n_p2p_enqueued++;
    if (member->spec.first_p2p == NONE) /* inside the node: no lanes to count on, and only all-to-alls come here */
        return (int64_t)((member->n_p2p_enqueued - 1) / (uint64_t)(2 * n_peers)) + 1;
    return ++sim->lanes[member->spec.first_p2p + (part->neighbour * 2 + (part->func == F_RECV)) * n_channels].n_p2p;
}

enum { FLOAT_BYTES = 4, ALGO_TREE = 1, ALGO_RING = 2 };

/* What the API is told: per rank for AllGather (what it sends) and ReduceScatter (what it receives). */
static int64_t count_of(const struct group *group, const struct part *part)
{
    int is_split = part->func == F_ALL_GATHER || part->func == F_REDUCE_SCATTER;
    return part->bytes / FLOAT_BYTES / (is_split ? group->spec.n_ranks : 1);
}

static int32_t op_fill(struct sim *sim, int32_t rank, struct member *member, const struct part *part)
{
    int32_t at = op_new(sim);
    const struct group *group = &sim->groups[member->spec.group];
    int is_p2p = part->func == F_SEND || part->func == F_RECV;
    int32_t algo = group->spec.is_tree && part->func == F_ALL_REDUCE ? ALGO_TREE : ALGO_RING;
    struct op *op = &sim->ops[at];
    memset(op, 0, sizeof *op);
    op->row = (struct op_row){
        .rank = rank, .group = member->spec.group, .place = member->spec.place, .func = part->func,
        .number = number_of(sim, member, part), .seq = is_p2p ? -1 : (int64_t)member->seq[part->func & 15]++,
        .flags = is_p2p ? OP_P2P : 0, .peer = part->peer, .slowest_peer = NONE, .algo = is_p2p ? 0 : algo,
        .channels = group->spec.n_channels, .count = count_of(group, part), .enqueued_ns = sim->now,
        .iteration = sim->ranks[rank].iteration,
    };
    op->row.bytes = op->row.count * FLOAT_BYTES;
    op->member = (int32_t)(member - sim->members);
    op->ordinal = ++member->n_ordinals;
    op->row.ordinal = (int64_t)op->ordinal;
    op->is_live = 1;
    op->previous = NONE;
    op->next = sim->ranks[rank].first_live;
    if (op->next != NONE)
        sim->ops[op->next].previous = at;
    sim->ranks[rank].first_live = at;
    return at;
}

static void append_flows(struct sim *sim, int32_t op, const struct plan *plans, int32_t n_plans)
{
    for (int32_t i = 0; i < n_plans; i++) {
        const struct lane_spec *lane = &sim->lanes[plans[i].lane].spec;
        if (plan_n_steps(&plans[i]) == 0)
            continue;
        for (int k = 0; k < FAN; k++) {
            if (plans[i].uses_in && lane->in[k] != NONE && sim->links[lane->in[k]].spec.is_network)
                end_append(sim, lane->in[k], 1, op, &plans[i]);
            if (plans[i].uses_out && lane->out[k] != NONE && sim->links[lane->out[k]].spec.is_network)
                end_append(sim, lane->out[k], 0, op, &plans[i]);
        }
    }
}

static void touch_flows(struct sim *sim, const struct plan *plans, int32_t n_plans)
{
    for (int32_t i = 0; i < n_plans; i++) {
        const struct lane_spec *lane = &sim->lanes[plans[i].lane].spec;
        for (int k = 0; k < FAN; k++) {
            if (plans[i].uses_in && lane->in[k] != NONE && sim->links[lane->in[k]].spec.is_network)
                proxy_touch(sim, lane->in[k], 1);
            if (plans[i].uses_out && lane->out[k] != NONE && sim->links[lane->out[k]].spec.is_network)
                proxy_touch(sim, lane->out[k], 0);
        }
    }
}

static void part_enqueue(struct sim *sim, int32_t at, const struct part *part)
{
    struct plan plans[MAX_LANES];
    struct rank *rank = &sim->ranks[at];
    struct group *group = &sim->groups[rank->spec.groups[part->slot]];
    struct member *member = &sim->members[group->spec.first_member + rank->spec.places[part->slot]];
    int32_t n_plans = part_plans(sim, rank, part, plans), op = op_fill(sim, at, member, part);
    member->last_enqueued_ns = rank->last_callback_ns = sim->now;
    remember(sim, member, op);
    append_flows(sim, op, plans, n_plans);
    if (group->spec.n_nodes == 1)
        op_close(sim, op, 0); /* inside the node the enqueue is all there is to see */
    touch_flows(sim, plans, n_plans);
}

/* The host enqueues an op, or a group of sends and receives. */
void ops_enqueue(struct sim *sim, int32_t at, const struct op_spec *spec)
{
    int32_t n_parts = op_parts(sim, &sim->ranks[at], spec);
    for (int32_t i = 0; i < n_parts; i++)
        part_enqueue(sim, at, &sim->parts[i]);
}

void op_flow_begun(struct sim *sim, int32_t at)
{
    struct op *op = &sim->ops[at];
    sim->members[op->member].network_seen = 1;
    op->row.flags |= OP_HAS_FLOWS;
    if (op->row.started_ns == 0)
        op->row.started_ns = largest(sim->now, 1);
}

static void lower(int64_t *to, int64_t ns)
{
    if (ns != 0 && (*to == 0 || ns < *to))
        *to = ns;
}

static void add_waits(const struct sim *sim, struct op_row *row, const struct end *end)
{
    row->gpu_wait_ns += end->gpu_wait_ns;
    row->peer_wait_ns += end->peer_wait_ns;
    row->net_wait_ns += end->net_wait_ns;
    if (end->is_send) {
        row->n_refused += end->peer_wait_ns / sim->settings.poll_ns; /* announced again at every look */
        return;
    }
    row->receive_gpu_wait_ns += end->gpu_wait_ns;
    row->receive_peer_wait_ns += end->peer_wait_ns;
    row->receive_net_wait_ns += end->net_wait_ns;
}

static void add_flow(const struct sim *sim, struct op *op, const struct end *end, const struct link *link, int is_receive)
{
    struct op_row *row = &op->row;
    add_waits(sim, row, end);
    lower(&row->first_ready_ns, end->first_ready_ns);
    lower(&row->first_transfer_ns, end->first_transfer_ns);
    lower(&row->fastest_done_ns, end->last_transfer_ns);
    row->last_transfer_ns = largest(row->last_transfer_ns, end->last_transfer_ns);
    if (end->last_transfer_ns > op->slowest_ns) {
        op->slowest_ns = end->last_transfer_ns;
        row->slowest_channel = link->spec.channel;
        row->slowest_direction = is_receive;
        row->slowest_peer = is_receive ? link->spec.from : link->spec.to;
    }
}

void op_flow_stopped(struct sim *sim, int32_t at, const struct link *link, int is_receive)
{
    struct op *op = &sim->ops[at];
    const struct end *end = is_receive ? &link->receive : &link->send;
    add_flow(sim, op, end, link, is_receive);
    if (++op->n_stopped < op->row.n_flows)
        return;
    struct member *member = &sim->members[op->member];
    uint64_t ordinal = op->ordinal;
    op_close(sim, at, largest(end->latest[DONE], op->row.last_transfer_ns));
    settle(sim, member, ordinal);
}
