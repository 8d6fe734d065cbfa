/* Flow rows: one per ProxyOp, from its start to its stop, written by the progress thread that started it.
 *
 * Under PXN another process's op runs here: its context and parent are that process's integers, kept so that the agent
 * can join the two segments, never followed. A flow whose stop never comes gives its row up once its op is closed.
 */
#include <string.h>

#include "plugin.h"

static int row_take(uint32_t row, uint32_t word, uint32_t *generation) {
    *generation = generation_after(word);
    return state_swap(&plugin.flow_states[row], word, state_word(*generation, ROW_CLAIMED));
}

/* ProxyOps of copies inside the node never progress and never stop: they are over when their op is. Of another
 * process's op nothing is known here, so that the time since its flow last moved has to do. */
static int is_spent(uint32_t row) {
    const FlowRow *flow = &plugin.flows[row];
    uint64_t op = LOAD(flow->op_handle);
    if (LOAD(flow->flags) & OP_FOREIGN) return now_ns() - LOAD(flow->last_progress_ns) > FOREIGN_KEPT_NS;
    return op && op_is_over(op);
}

static int row_reclaim(uint32_t *generation) {
    for (int probe = 0; probe < RECLAIMS_MAX; probe++) {
        uint32_t row = ADD(plugin.flow_cursor, 1) & (plugin.n_flows - 1), word = ACQUIRE(plugin.flow_states[row]);
        if (state_of(word) != ROW_LIVE || !is_spent(row) || !row_take(row, word, generation)) continue;
        COUNT(flows_lost);
        return (int)row;
    }
    COUNT(flow_table_full);
    return -1;
}

static int row_probe(uint32_t *generation) {
    uint32_t from = LOAD(plugin.flow_cursor), reach = LOAD(plugin.flow_reach);
    for (uint32_t probe = 0; probe < reach && probe < PROBES_MAX; probe++) {
        uint32_t row = (from + probe) & (reach - 1), word = ACQUIRE(plugin.flow_states[row]);
        if (state_of(word) != ROW_FREE && state_of(word) != ROW_DONE) continue;
        if (!row_take(row, word, generation)) continue;
        STORE(plugin.flow_cursor, row + 1);
        return (int)row;
    }
    STORE(plugin.flow_cursor, from + PROBES_MAX);
    return -1;
}

static void reach_further(void) {
    uint32_t reach = LOAD(plugin.flow_reach);
    STORE(plugin.flow_cursor, reach); /* the new half is free */
    __atomic_compare_exchange_n(&plugin.flow_reach, &reach, reach * 2, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static int row_claim(uint32_t *generation) {
    int row = row_probe(generation);
    while (row < 0 && LOAD(plugin.flow_reach) < plugin.n_flows) {
        reach_further();
        row = row_probe(generation);
    }
    return row < 0 ? row_reclaim(generation) : row;
}

static void row_identify(FlowRow *flow, const FlowStart *start, const CommRow *comm, const OpRow *op) {
    flow->comm_id = comm ? LOAD(comm->comm_id) : 0;
    flow->comm_rank = comm ? LOAD(comm->comm_rank) : -1;
    STORE(flow->comm, comm ? (uint16_t)handle_row(start->context) : UINT16_MAX);
    uint16_t is_p2p = op ? LOAD(op->flags) & OP_P2P : 0;
    STORE(flow->flags, (uint16_t)((comm ? 0 : OP_FOREIGN) | is_p2p));
    flow->op = op ? LOAD(op->op) : 0;
    flow->func = op ? LOAD(op->func) : 0;
    STORE(flow->op_handle, op || !comm ? start->parent : 0);
    flow->origin_context = start->context;
    flow->origin_pid = start->pid;
}

static void row_fill(uint32_t at, const FlowStart *start, uint32_t generation) {
    FlowRow *flow = &plugin.flows[at];
    row_clear(flow, sizeof *flow);
    memset(&plugin.flow_clocks[at], 0, sizeof plugin.flow_clocks[at]);
    flow->stamp = generation;
    flow->peer = start->peer;
    flow->total_chunks = start->n_steps > 0 ? (uint32_t)start->n_steps : 0;
    flow->channel = start->channel;
    flow->direction = start->is_send ? DIRECTION_SEND : DIRECTION_RECEIVE;
    flow->transport = plugin.header->transport;
    flow->queued_ns = now_ns();
    STORE(flow->last_progress_ns, flow->queued_ns);
}

uint64_t flow_start(const FlowStart *start) {
    int is_foreign = start->pid != plugin.pid;
    const CommRow *comm = is_foreign ? NULL : comm_find(start->context);
    OpRow *op = comm ? op_find(start->parent) : NULL;
    uint32_t generation;
    if (!is_foreign && !comm) return 0;
    int row = row_claim(&generation);
    if (row < 0) {
        if (op) op_refuse_flow(start->parent, op);
        return 0;
    }
    row_fill((uint32_t)row, start, generation);
    row_identify(&plugin.flows[row], start, comm, op);
    if (op && !op_find(start->parent)) row_identify(&plugin.flows[row], start, comm, op = NULL); /* gone meanwhile */
    plugin.flow_clocks[row].chunk_bytes = (uint32_t)start->chunk_bytes;
    if (op) op_add_flow(start->parent, op);
    if (is_foreign) COUNT(foreign_flows);
    if (comm && !op) COUNT(orphan_flows);
    COUNT(flows_started);
    STORE(plugin.header->last_callback_ns, plugin.flows[row].queued_ns);
    PUBLISH(plugin.flow_states[row], state_word(generation, ROW_LIVE));
    return handle_make(HANDLE_FLOW, generation, (uint32_t)row, 0);
}

void flow_begun(FlowRow *flow, int64_t now) {
    STORE(flow->started_ns, now);
    if (flow->op_handle && !(flow->flags & OP_FOREIGN)) op_flow_begun(flow->op_handle, now);
}

void flow_begin(uint64_t handle) {
    uint32_t row;
    if (flow_find(handle, &row) && !LOAD(plugin.flows[row].started_ns)) flow_begun(&plugin.flows[row], now_ns());
}

static void repeats_count(const FlowRow *flow) {
    if (flow->direction == DIRECTION_SEND) {
        COUNT_N(peer_wait_polls, LOAD(flow->repeats));
    } else {
        COUNT_N(repeated_recv_starts, LOAD(flow->repeats));
    }
    uint32_t unstopped = LOAD(flow->counters[STAGE_POSTED]) - LOAD(flow->counters[STAGE_DONE]);
    if (unstopped) COUNT_N(lost_stops, unstopped);
}

void flow_stop(uint64_t handle) {
    uint32_t at = handle_row(handle), generation = handle_generation(handle);
    if (at >= plugin.n_flows ||
        !state_swap(&plugin.flow_states[at], state_word(generation, ROW_LIVE), state_word(generation, ROW_CLOSING))) {
        int is_stopped = at < plugin.n_flows && LOAD(plugin.flow_states[at]) == state_word(generation, ROW_DONE);
        if (is_stopped) COUNT(repeated_stops); else COUNT(stale_handles);
        return;
    }
    FlowRow *flow = &plugin.flows[at];
    int64_t now = now_ns();
    repeats_count(flow);
    if (flow->op_handle && !(flow->flags & OP_FOREIGN)) op_flow_stopped(flow->op_handle, flow, now);
    COUNT(flows_done);
    STORE(plugin.header->last_callback_ns, now);
    PUBLISH(plugin.flow_states[at], state_word(generation, ROW_DONE));
}

void flow_set_queue_pair(uint64_t step, uint32_t qpn) {
    uint32_t row;
    if (handle_kind(step) == HANDLE_STEP && flow_find(step, &row)) STORE(plugin.flows[row].qpn, qpn);
}

void flows_abandon(uint32_t comm) {
    for (uint32_t row = 0; row < plugin.n_flows; row++) {
        uint32_t word = ACQUIRE(plugin.flow_states[row]);
        if (state_of(word) != ROW_LIVE || LOAD(plugin.flows[row].comm) != comm) continue;
        if (!state_swap(&plugin.flow_states[row], word, state_word(state_generation(word), ROW_CLOSING))) continue;
        repeats_count(&plugin.flows[row]);
        COUNT(flows_lost);
        PUBLISH(plugin.flow_states[row], state_word(state_generation(word), ROW_DONE));
    }
}
