/* The progress thread: NCCL's send and receive loops over the rank's flows, with its counters and its order of checks.
 * A healthy proxy polls, so it sees everything at once; one that sleeps, is starved of CPU or frozen sees things when it
 * next looks. Sends need a credit on IB; a socket takes them at once and keeps them back itself. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define CREDITS_HELD_MAX 4 /* that cannot leave before further receives are refused */

int proxy_is_polling(const struct sim *sim, const struct rank *rank)
{
    return !rank->is_frozen && !rank->is_killed && rank->proxy_delay_ns == 0 && sim->now >= rank->asleep_until_ns;
}

/* ---- counters and waits, as the plugin keeps them ---- */

static int64_t *wait_of(struct end *end, int stage)
{
    if (end->is_send)
        return stage == READY ? &end->gpu_wait_ns : stage == TRANSMITTED ? &end->peer_wait_ns : &end->net_wait_ns;
    return stage == RECEIVED ? &end->peer_wait_ns : stage == FLUSHED ? &end->net_wait_ns : &end->gpu_wait_ns;
}

static void pass(struct link *link, struct end *end, int stage, int64_t ns)
{
    int64_t *passed = slot_of(link, end->base + end->count[stage]++)->passed[end->is_send];
    if (stage > POSTED) {
        int64_t from = largest(passed[stage - 1], end->latest[stage]);
        *wait_of(end, stage) += largest(ns - from, 0);
    }
    if (stage == (end->is_send ? READY : CONSUMED) && end->first_ready_ns == 0)
        end->first_ready_ns = ns;
    if (stage == (end->is_send ? TRANSMITTED : RECEIVED) && end->first_transfer_ns == 0)
        end->first_transfer_ns = ns;
    if (stage == (end->is_send ? DONE : RECEIVED))
        end->last_transfer_ns = ns;
    if (stage < DONE)
        passed[stage] = ns;
    end->latest[stage] = ns;
    end->last_progress_ns = largest(end->last_progress_ns, ns);
}

/* ---- the queue of proxy ops of a flow ---- */

static int32_t proxy_op_new(struct sim *sim)
{
    int32_t at = sim->free_proxy_op;
    if (at != NONE) {
        sim->free_proxy_op = sim->proxy_ops[at].next;
        return at;
    }
    if (sim->n_proxy_ops == sim->proxy_ops_size) {
        sim->proxy_ops_size = sim->proxy_ops_size * 2 + 1024;
        sim->proxy_ops = realloc(sim->proxy_ops, (size_t)sim->proxy_ops_size * sizeof *sim->proxy_ops);
        if (sim->proxy_ops == NULL)
            abort();
    }
    return (int32_t)sim->n_proxy_ops++;
}

void end_append(struct sim *sim, int32_t link, int is_receive, int32_t op, const struct plan *plan)
{
    struct end *end = is_receive ? &sim->links[link].receive : &sim->links[link].send;
    int32_t at = proxy_op_new(sim);
    sim->proxy_ops[at] = (struct proxy_op){.op = op, .next = NONE, .n_steps = plan_n_steps(plan), .queued_ns = sim->now,
                                           .slice_bytes = plan->slice_bytes, .depth = N_SLOTS / plan->slices};
    if (end->first == NONE)
        end->first = at;
    else
        sim->proxy_ops[end->last].next = at;
    end->last = at;
    sim->ops[op].row.n_flows++;
}

static struct proxy_op *front(struct sim *sim, struct end *end)
{
    if (end->first == NONE)
        return NULL;
    if (!end->is_begun) {
        end->is_begun = 1;
        op_flow_begun(sim, sim->proxy_ops[end->first].op);
    }
    return &sim->proxy_ops[end->first];
}

static void end_clear(struct end *end, uint32_t base)
{
    int32_t first = end->first, last = end->last;
    uint8_t is_send = end->is_send;
    memset(end, 0, sizeof *end);
    end->first = first;
    end->last = last;
    end->is_send = is_send;
    end->base = base;
}

static int finish_if_done(struct sim *sim, struct link *link, struct end *end)
{
    int32_t at = end->first;
    struct proxy_op *op = &sim->proxy_ops[at];
    if (end->count[DONE] < op->n_steps)
        return 0;
    op_flow_stopped(sim, op->op, link, !end->is_send);
    end->first = op->next;
    end_clear(end, end->base + op->n_steps);
    op->next = sim->free_proxy_op;
    sim->free_proxy_op = at;
    return 1;
}

/* ---- sender ---- */

static int free_sent(struct sim *sim, struct link *link, const struct rank *rank)
{
    struct end *end = &link->send;
    uint32_t step = end->base + end->count[DONE];
    int64_t acked = slot_of(link, step)->ack_ns;
    if (end->count[DONE] == end->count[TRANSMITTED] || (int32_t)(link->n_started - step) <= 0 || acked > sim->now)
        return 0;
    int64_t noticed = proxy_is_polling(sim, rank) ? largest(acked, rank->asleep_until_ns) : sim->now;
    transfer_keep(sim, link, step, noticed);
    pass(link, end, DONE, noticed);
    link->head = end->base + end->count[DONE];
    if (link->waits_room) {
        link->waits_room = 0;
        lane_try(sim, link->spec.from_lane);
    }
    return 1;
}

static int has_credit(struct sim *sim, int32_t at, struct link *link, uint32_t step)
{
    int is_posted = (int32_t)(link->n_credits - step) > 0;
    int64_t ns = slot_of(link, step)->credit_ns;
    if (is_posted && ns <= sim->now)
        return 1;
    link->waits_credit = !is_posted || ns == NEVER;
    if (is_posted && ns != NEVER && !link->has_credit_call) {
        link->has_credit_call = 1;
        call_at(sim, ns, C_CREDIT, at);
    }
    return 0;
}

static void send_slice(struct sim *sim, int32_t at, struct link *link)
{
    link->send.bytes += slot_of(link, link->n_sent)->bytes;
    path_send(sim, at, slot_of(link, link->n_sent)->bytes);
}

static int transmit(struct sim *sim, int32_t at, struct link *link)
{
    struct end *end = &link->send;
    uint32_t step = end->base + end->count[TRANSMITTED];
    if (end->count[TRANSMITTED] == end->count[POSTED] || (int32_t)(link->tail - step) <= 0)
        return 0;
    if (end->count[READY] == end->count[TRANSMITTED])
        pass(link, end, READY, sim->now);
    if (sim->settings.is_ib && !has_credit(sim, at, link, step))
        return 0;
    pass(link, end, TRANSMITTED, sim->now);
    if (sim->settings.is_ib)
        send_slice(sim, at, link);
    return 1;
}

/* A socket holds back what the other side has not asked for. */
static int drain_socket(struct sim *sim, int32_t at, struct link *link)
{
    const struct end *end = &link->send;
    if (sim->settings.is_ib || (int32_t)(end->base + end->count[TRANSMITTED] - link->n_sent) <= 0)
        return 0;
    if (!has_credit(sim, at, link, link->n_sent))
        return 0;
    send_slice(sim, at, link);
    return 1;
}

static int offer_slot(struct sim *sim, struct link *link, const struct proxy_op *op)
{
    struct end *end = &link->send;
    if (end->count[POSTED] == op->n_steps || end->count[POSTED] >= end->count[DONE] + op->depth)
        return 0;
    pass(link, end, POSTED, sim->now);
    return 1;
}

static void send_look(struct sim *sim, int32_t at)
{
    struct link *link = &sim->links[at];
    const struct rank *rank = &sim->ranks[link->spec.from_rank];
    struct proxy_op *op;
    while ((op = front(sim, &link->send)) != NULL) {
        int moved = free_sent(sim, link, rank) + offer_slot(sim, link, op) + transmit(sim, at, link);
        moved += drain_socket(sim, at, link);
        if (!finish_if_done(sim, link, &link->send) && !moved)
            return;
    }
}

/* ---- receiver ---- */

static int n_held_credits(struct link *link)
{
    int n = 0;
    for (uint32_t step = link->n_sent; step != link->n_credits; step++)
        n += slot_of(link, step)->credit_ns == NEVER;
    return n;
}

static int post_receive(struct sim *sim, int32_t at, struct link *link, const struct proxy_op *op)
{
    struct end *end = &link->receive;
    if (end->count[POSTED] == op->n_steps || end->count[POSTED] >= end->count[CONSUMED] + op->depth)
        return 0;
    if (sim->settings.is_ib && n_held_credits(link) >= CREDITS_HELD_MAX)
        return 0;
    pass(link, end, POSTED, sim->now);
    slot_of(link, link->n_credits++)->credit_ns = credit_arrival_ns(sim, link);
    if (link->waits_credit) {
        link->waits_credit = 0;
        has_credit(sim, at, link, sim->settings.is_ib ? link->send.base + link->send.count[TRANSMITTED] : link->n_sent);
    }
    return 1;
}

static int take_received(struct sim *sim, int32_t at, struct link *link)
{
    struct end *end = &link->receive;
    uint32_t step = end->base + end->count[RECEIVED];
    if (end->count[RECEIVED] == end->count[POSTED] || (int32_t)(link->n_arrived - step) <= 0)
        return 0;
    pass(link, end, RECEIVED, sim->now);
    end->bytes += slot_of(link, step)->bytes_sent;
    int64_t flush = sim->settings.flush_ns + sim->nics[sim->ranks[link->spec.to_rank].spec.nic].hand_over_ns;
    slot_of(link, step)->flush_ns = sim->now + flush;
    if (flush > 0)
        call_at(sim, sim->now + flush, C_FLUSH, at);
    return 1;
}

static int hand_to_gpu(struct sim *sim, struct link *link)
{
    struct end *end = &link->receive;
    uint32_t step = end->base + end->count[FLUSHED];
    if (end->count[FLUSHED] == end->count[RECEIVED] || slot_of(link, step)->flush_ns > sim->now)
        return 0;
    pass(link, end, FLUSHED, sim->now);
    link->avail++;
    lane_try(sim, link->spec.to_lane);
    return 1;
}

static int take_back(struct sim *sim, struct link *link)
{
    struct end *end = &link->receive;
    uint32_t step = end->base + end->count[CONSUMED];
    if (end->count[CONSUMED] == end->count[FLUSHED] || (int32_t)(link->taken - step) <= 0)
        return 0;
    pass(link, end, CONSUMED, sim->now);
    return 1;
}

static void receive_look(struct sim *sim, int32_t at)
{
    struct link *link = &sim->links[at];
    struct proxy_op *op;
    while ((op = front(sim, &link->receive)) != NULL) {
        int moved = post_receive(sim, at, link, op) + take_received(sim, at, link) + hand_to_gpu(sim, link) +
                    take_back(sim, link);
        if (!finish_if_done(sim, link, &link->receive) && !moved)
            return;
    }
}

static void look(struct sim *sim, int32_t link, int is_receive)
{
    if (is_receive)
        receive_look(sim, link);
    else
        send_look(sim, link);
}

/* Something has happened that the proxy should see. */
void proxy_touch(struct sim *sim, int32_t link, int is_receive)
{
    int32_t at = is_receive ? sim->links[link].spec.to_rank : sim->links[link].spec.from_rank;
    struct rank *rank = &sim->ranks[at];
    if (proxy_is_polling(sim, rank)) {
        look(sim, link, is_receive);
    } else if (rank->proxy_delay_ns > 0 && !rank->has_wake && !rank->is_frozen && !rank->is_killed) {
        rank->has_wake = 1; /* it waits in the run queue of a busy CPU */
        double wait = random_exponential(sim, 3, (uint64_t)at, (uint64_t)sim->now) * (double)rank->proxy_delay_ns;
        call_at(sim, largest(sim->now, rank->asleep_until_ns) + (int64_t)wait, C_WAKE, at);
    }
}

void proxy_look(struct sim *sim, int32_t at)
{
    const struct rank *rank = &sim->ranks[at];
    if (rank->is_frozen || rank->is_killed || sim->now < rank->asleep_until_ns)
        return;
    for (int32_t i = sim->rank_ends_first[at]; i < sim->rank_ends_first[at + 1]; i++)
        look(sim, sim->rank_ends[i] / 2, sim->rank_ends[i] % 2);
    kernels_hear(sim, at);
}
