/* Ops from enqueue to completion. A row has three kinds of writer, each with its own fields or atomic additions: the
 * launching thread (start, stop), the progress thread (per flow, never per step), and whoever closes it (closing.c).
 */
#include "plugin.h"

static int row_take(uint32_t row, uint32_t *generation) {
    uint32_t word = ACQUIRE(plugin.op_states[row]);
    if (state_of(word) != ROW_FREE && state_of(word) != ROW_DONE) return 0;
    *generation = generation_after(word);
    if (!state_swap(&plugin.op_states[row], word, state_word(*generation, ROW_CLAIMED))) return 0;
    STORE(plugin.op_cursor, row + 1);
    return 1;
}

static int row_claim(uint32_t *generation) {
    uint32_t from = LOAD(plugin.op_cursor);
    for (uint32_t probe = 0; probe < SEGMENT_OPS; probe++) {
        uint32_t row = (from + probe) & (SEGMENT_OPS - 1);
        if (row_take(row, generation)) return (int)row;
    }
    for (int probe = 0; probe < RECLAIMS_MAX; probe++) {
        uint32_t row = ADD(plugin.op_cursor, 1) & (SEGMENT_OPS - 1), word = ACQUIRE(plugin.op_states[row]);
        if (state_of(word) == ROW_LIVE && op_close_spent(row, word) && row_take(row, generation)) return (int)row;
    }
    COUNT(op_table_full);
    return -1;
}

/* NCCL's sequence numbers stand still while a captured graph is replayed. */
static int seq_stands_still(CommClock *clock, unsigned func, int64_t seq) {
    int64_t *last = &clock->last_seq[func & 15];
    if (seq <= LOAD(*last)) return 1;
    STORE(*last, seq);
    return 0;
}

static uint16_t flags_at_start(const OpStart *start, unsigned func, CommClock *clock) {
    int is_graph = handle_kind(start->parent) == HANDLE_API && handle_step(start->parent) == API_GRAPH;
    if (!start->is_p2p && start->seq >= 0 && seq_stands_still(clock, func, start->seq)) is_graph = 1;
    return (uint16_t)(start->flags | (is_graph ? OP_GRAPH : 0) | (start->is_p2p ? OP_P2P : 0));
}

/* Interface v3 says which communicator it is only with each op. */
static void comm_learn(CommRow *comm, const OpStart *start) {
    if (LOAD(comm->comm_id) || !start->comm_id) return;
    STORE(comm->comm_rank, start->rank);
    identity_text(comm->name, sizeof comm->name, start->comm_name);
    PUBLISH(comm->comm_id, start->comm_id);
}

static uint64_t number_of(const OpStart *start, uint32_t comm, unsigned func) {
    if (start->is_p2p) {
        ADD(plugin.comms[comm].n_p2p_enqueued, 1);
        return comm_next_p2p(comm, start->peer, func == code_of_func("Recv") ? DIRECTION_RECEIVE : DIRECTION_SEND);
    }
    return ADD(plugin.comms[comm].n_enqueued, 1) + 1;
}

static void row_fill(OpRow *op, const OpStart *start, uint32_t generation, uint32_t at) {
    const CommRow *comm = &plugin.comms[at];
    row_clear(op, sizeof *op);
    op->stamp = generation;
    op->comm_id = LOAD(comm->comm_id);
    op->comm_rank = LOAD(comm->comm_rank);
    STORE(op->comm, (uint16_t)at);
    STORE(op->func, code_of_func(start->func));
    op->dtype = code_of_dtype(start->dtype);
    op->algo = code_of_algo(start->algo);
    op->proto = code_of_proto(start->proto);
    op->channels = start->channels;
    STORE(op->slowest_peer, -1);
    op->seq = start->is_p2p ? -1 : start->seq;
    op->peer = start->peer;
    op->count = start->count;
    op->bytes = start->count * size_of_dtype(op->dtype);
    op->user_tag = start->user_tag;
    STORE(op->flags, flags_at_start(start, op->func, &comm_clocks[at]));
    STORE(op->op, number_of(start, at, op->func));
    STORE(op->ordinal, ADD(comm_clocks[at].n_ordinals, 1) + 1);
    op->enqueued_ns = now_ns();
}

/* The handle takes its place among the communicator's recent ops; the one it pushes out may be over by now. */
static void remember(uint32_t comm, uint64_t ordinal, int64_t enqueued_ns, uint64_t handle) {
    CommClock *clock = &comm_clocks[comm];
    uint64_t pushed_out = __atomic_exchange_n(&clock->recent[ordinal % RECENT_OPS], handle, __ATOMIC_ACQ_REL);
    ADD(clock->n_without_flows, 1);
    STORE(plugin.comms[comm].last_enqueued_ns, enqueued_ns);
    STORE(plugin.header->last_callback_ns, enqueued_ns);
    COUNT(ops_enqueued);
    if (pushed_out) op_evict(comm, pushed_out);
}

uint64_t op_start(const OpStart *start) {
    CommRow *comm = comm_find(start->context);
    uint32_t generation, at = handle_row(start->context);
    if (!comm) return 0;
    comm_learn(comm, start);
    int row = row_claim(&generation);
    if (row < 0) {
        number_of(start, at, code_of_func(start->func)); /* it still counts, or later numbers would not match */
        return 0;
    }
    OpRow *op = &plugin.ops[row];
    row_fill(op, start, generation, at);
    uint64_t handle = handle_make(HANDLE_OP, generation, (uint32_t)row, 0), ordinal = op->ordinal;
    int64_t enqueued_ns = op->enqueued_ns;
    PUBLISH(plugin.op_states[row], state_word(generation, ROW_LIVE)); /* from here on others may close and reuse it */
    remember(at, ordinal, enqueued_ns, handle);
    return handle;
}

OpRow *op_find(uint64_t handle) {
    uint32_t row = handle_row(handle);
    if (handle_kind(handle) != HANDLE_OP || row >= SEGMENT_OPS) return NULL;
    uint32_t word = ACQUIRE(plugin.op_states[row]);
    if (state_generation(word) != handle_generation(handle) || state_of(word) < ROW_LIVE) return NULL;
    return &plugin.ops[row];
}

static void close_if_over(uint64_t handle, OpRow *op, int64_t now) {
    uint32_t n_flows = __atomic_load_n(&op->n_flows, __ATOMIC_SEQ_CST);
    int64_t launched = __atomic_load_n(&op->launched_ns, __ATOMIC_SEQ_CST);
    if (!launched || !n_flows || __atomic_load_n(&op->n_flows_stopped, __ATOMIC_SEQ_CST) != n_flows) return;
    if (!LOAD(op->n_flows_begun)) return;
    op_close(handle_row(handle), state_word(handle_generation(handle), ROW_LIVE), CLOSE_DONE, now);
}

/* Coll or P2p stop: everything is handed to the GPU and the proxy. Inside one node that is all there is to see. */
void op_stop(uint64_t handle) {
    OpRow *op = op_find(handle);
    if (!op) {
        COUNT(stale_handles);
        return;
    }
    int64_t now = now_ns();
    if (__atomic_exchange_n(&op->launched_ns, now, __ATOMIC_SEQ_CST)) COUNT(repeated_stops);
    const CommRow *comm = &plugin.comms[LOAD(op->comm)];
    if (comm->n_nodes == 1 && !LOAD(comm->network_seen) && !LOAD(op->n_flows_begun)) {
        op_close(handle_row(handle), state_word(handle_generation(handle), ROW_LIVE), CLOSE_NO_NETWORK, now);
    } else {
        close_if_over(handle, op, now);
    }
}

void op_add_flow(uint64_t handle, OpRow *op) {
    if (__atomic_fetch_add(&op->n_flows, 1, __ATOMIC_SEQ_CST)) return;
    if (state_of(ACQUIRE(plugin.op_states[handle_row(handle)])) == ROW_LIVE)
        ADD(comm_clocks[LOAD(op->comm)].n_without_flows, -1u);
}

/* Counted among the flows, it is one that never stops: the op is over when a later one completes, and says so. */
void op_refuse_flow(uint64_t handle, OpRow *op) {
    __atomic_fetch_or(&op->flags, OP_STOPS_LOST, __ATOMIC_RELAXED);
    op_add_flow(handle, op);
}

static void take_back_closing(const OpRow *op) {
    CommRow *comm = &plugin.comms[LOAD(op->comm)];
    if (LOAD(op->flags) & OP_NO_NETWORK) ADD(comm->n_no_network, -1ull);
    if (LOAD(op->done_ns)) ADD(*(LOAD(op->flags) & OP_P2P ? &comm->n_p2p_done : &comm->n_done), -1ull);
}

static void reopen(uint64_t handle, OpRow *op) {
    uint32_t generation = handle_generation(handle), *word = &plugin.op_states[handle_row(handle)];
    if (!state_swap(word, state_word(generation, ROW_DONE), state_word(generation, ROW_CLAIMED))) return;
    take_back_closing(op);
    __atomic_fetch_and(&op->flags, (uint16_t)~OP_NO_NETWORK, __ATOMIC_RELAXED);
    __atomic_fetch_or(&op->flags, OP_REOPENED, __ATOMIC_RELAXED);
    STORE(op->done_ns, 0);
    COUNT(ops_reopened);
    PUBLISH(*word, state_word(generation, ROW_LIVE));
}

void op_flow_begun(uint64_t handle, int64_t now) {
    OpRow *op = op_find(handle);
    int64_t unset = 0;
    if (!op) return;
    if (state_of(ACQUIRE(plugin.op_states[handle_row(handle)])) == ROW_DONE) reopen(handle, op);
    comm_saw_network(LOAD(op->comm));
    __atomic_fetch_or(&op->flags, OP_HAS_FLOWS, __ATOMIC_RELAXED);
    __atomic_compare_exchange_n(&op->started_ns, &unset, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (__atomic_fetch_add(&op->n_flows_begun, 1, __ATOMIC_SEQ_CST) == 0)
        ops_settle(LOAD(op->comm), LOAD(op->ordinal), 0);
}

static int raise_time(int64_t *to, int64_t time) {
    int64_t seen = LOAD(*to);
    while (time > seen)
        if (__atomic_compare_exchange_n(to, &seen, time, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return 1;
    return 0;
}

static void lower_time(int64_t *to, int64_t time) {
    int64_t seen = LOAD(*to);
    while (time && (!seen || time < seen))
        if (__atomic_compare_exchange_n(to, &seen, time, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
}

static void add_waits(OpRow *op, const FlowRow *flow) {
    ADD(op->gpu_wait_ns, LOAD(flow->gpu_wait_ns));
    ADD(op->peer_wait_ns, LOAD(flow->peer_wait_ns));
    ADD(op->net_wait_ns, LOAD(flow->net_wait_ns));
    if (flow->direction == DIRECTION_SEND) {
        ADD(op->n_refused, LOAD(flow->repeats));
        return;
    }
    ADD(op->receive_gpu_wait_ns, LOAD(flow->gpu_wait_ns));
    ADD(op->receive_peer_wait_ns, LOAD(flow->peer_wait_ns));
    ADD(op->receive_net_wait_ns, LOAD(flow->net_wait_ns));
}

void op_flow_stopped(uint64_t handle, const FlowRow *flow, int64_t now) {
    OpRow *op = op_find(handle);
    if (!op) return;
    add_waits(op, flow);
    lower_time(&op->first_ready_ns, LOAD(flow->first_ready_ns));
    lower_time(&op->first_transfer_ns, LOAD(flow->first_transfer_ns));
    lower_time(&op->fastest_done_ns, LOAD(flow->last_transfer_ns));
    raise_time(&op->last_transfer_ns, LOAD(flow->last_transfer_ns));
    if (LOAD(flow->started_ns) && LOAD(flow->counters[STAGE_DONE]) < LOAD(flow->total_chunks))
        __atomic_fetch_or(&op->flags, OP_STOPS_LOST, __ATOMIC_RELAXED);
    if (raise_time(&op->slowest_ns, LOAD(flow->last_transfer_ns))) {
        STORE(op->slowest_channel, flow->channel);
        STORE(op->slowest_direction, flow->direction);
        STORE(op->slowest_peer, flow->peer);
    }
    __atomic_fetch_add(&op->n_flows_stopped, 1, __ATOMIC_SEQ_CST);
    close_if_over(handle, op, now);
}
