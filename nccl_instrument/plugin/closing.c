/* How ops end. Completion is seen when every flow has stopped; all other endings are inferred, marked as such, and
 * never count as completed: inside the node nothing tells when an op is over, and an aborted op gets no stops.
 */
#include "plugin.h"

static void comm_count(const OpRow *op, enum Closing how, int64_t now) {
    CommRow *comm = &plugin.comms[op->comm];
    if (how == CLOSE_LOST) {
        COUNT(ops_lost);
    } else if (how == CLOSE_NO_NETWORK) {
        COUNT(ops_no_network);
        ADD(comm->n_no_network, 1);
    } else if (how == CLOSE_UNSEEN) {
        COUNT(ops_unseen);
    } else {
        COUNT(ops_done);
        ADD(*(LOAD(op->flags) & OP_P2P ? &comm->n_p2p_done : &comm->n_done), 1);
        STORE(comm->last_done_ns, now);
        STORE(comm_clocks[op->comm].last_done_ordinal, op->ordinal);
    }
}

static void mark(OpRow *op, enum Closing how, int64_t now) {
    if (how == CLOSE_DONE) STORE(op->done_ns, now);
    if (how == CLOSE_NO_NETWORK) __atomic_fetch_or(&op->flags, OP_NO_NETWORK, __ATOMIC_RELAXED);
    if (how == CLOSE_LOST) __atomic_fetch_or(&op->flags, OP_STOPS_LOST, __ATOMIC_RELAXED);
}

/* 1 when this caller closed it; of several that try at once, one does. */
int op_close(uint32_t row, uint32_t word, enum Closing how, int64_t now) {
    uint32_t generation = state_generation(word);
    OpRow *op = &plugin.ops[row];
    if (!state_swap(&plugin.op_states[row], state_word(generation, ROW_LIVE), state_word(generation, ROW_CLOSING)))
        return 0;
    if (how == CLOSE_NO_NETWORK && LOAD(op->flags) & OP_STOPS_LOST) how = CLOSE_LOST; /* it had flows we refused */
    if (how == CLOSE_NO_NETWORK && LOAD(op->flags) & OP_API) how = CLOSE_UNSEEN;
    mark(op, how, now);
    if (!LOAD(op->n_flows)) ADD(comm_clocks[op->comm].n_without_flows, -1u);
    comm_count(op, how, now);
    ring_append(op);
    uint32_t comm = op->comm;
    uint64_t ordinal = op->ordinal;
    PUBLISH(plugin.op_states[row], state_word(generation, ROW_DONE));
    if (how == CLOSE_DONE) ops_settle(comm, ordinal, 1);
    return 1;
}

static int close_overtaken(uint32_t row, uint32_t word) {
    const OpRow *op = &plugin.ops[row];
    int is_overtaken = LOAD(comm_clocks[LOAD(op->comm)].last_done_ordinal) > LOAD(op->ordinal) + OVERTAKEN_BY;
    return is_overtaken && op_close(row, word, CLOSE_LOST, 0);
}

/* The row is needed. Ops without flows give it up; so do those that later ops of the communicator left far behind. */
int op_close_spent(uint32_t row, uint32_t word) {
    const OpRow *op = &plugin.ops[row];
    if (LOAD(op->launched_ns) && !LOAD(op->n_flows_begun)) return op_close(row, word, CLOSE_NO_NETWORK, 0);
    return close_overtaken(row, word);
}

int op_is_over(uint64_t handle) {
    uint32_t row = handle_row(handle);
    if (!op_find(handle)) return 1;
    uint32_t word = ACQUIRE(plugin.op_states[row]);
    return state_of(word) == ROW_DONE || (state_of(word) == ROW_LIVE && close_overtaken(row, word));
}

static int64_t last_stop_ns(const OpRow *op) {
    int64_t last = LOAD(op->last_transfer_ns);
    return last ? last : now_ns();
}

/* RECENT_OPS later. On a rank that no ring of the communicator leaves the node from nothing ever completes, and old ops
 * would pile up; a collective that a later op overtook will not get its stops any more (p2p of a group may). */
void op_evict(uint32_t comm, uint64_t handle) {
    const OpRow *op = op_find(handle);
    if (!op || !LOAD(op->launched_ns)) return;
    uint32_t row = handle_row(handle), word = state_word(handle_generation(handle), ROW_LIVE);
    if (!LOAD(op->n_flows)) {
        if (!LOAD(plugin.comms[comm].network_seen)) op_close(row, word, CLOSE_NO_NETWORK, 0);
    } else if (LOAD(op->n_flows_begun) && !(LOAD(op->flags) & OP_P2P)) {
        if (LOAD(comm_clocks[comm].last_done_ordinal) > LOAD(op->ordinal)) op_close(row, word, CLOSE_LOST, 0);
    }
}

static void settle(uint64_t handle, const OpRow *op, int is_completed) {
    uint32_t n_begun = LOAD(op->n_flows_begun), row = handle_row(handle);
    uint32_t word = state_word(handle_generation(handle), ROW_LIVE);
    if (!LOAD(op->launched_ns)) return;
    if (!n_begun && is_completed) {
        op_close(row, word, CLOSE_NO_NETWORK, 0);
    } else if (!is_completed && LOAD(op->flags) & OP_STOPS_LOST) {
        return; /* a flow we have no row for may still move */
    } else if (n_begun && LOAD(op->n_flows_stopped) == n_begun) {
        op_close(row, word, CLOSE_DONE, last_stop_ns(op)); /* the rest never begins: ProxyOps that use no network */
    }
}

/* Op `ordinal` has begun (or completed): earlier ones that show nothing more to come are over. */
void ops_settle(uint32_t comm, uint64_t ordinal, int is_completed) {
    CommClock *clock = &comm_clocks[comm];
    const CommRow *row = &plugin.comms[comm];
    uint64_t n_done = LOAD(row->n_done) + LOAD(row->n_p2p_done) + LOAD(row->n_no_network);
    if (LOAD(clock->n_without_flows) == 0 && n_done + 1 >= ordinal) return;
    for (uint64_t back = 1; back < RECENT_OPS && back < ordinal; back++) {
        uint64_t handle = ACQUIRE(clock->recent[(ordinal - back) % RECENT_OPS]);
        const OpRow *op = handle ? op_find(handle) : NULL;
        if (!op || state_of(ACQUIRE(plugin.op_states[handle_row(handle)])) != ROW_LIVE) continue;
        if (LOAD(op->comm) == comm && LOAD(op->ordinal) < ordinal) settle(handle, op, is_completed);
    }
}

/* The communicator is going: what is still open will never get its stops. */
void ops_abandon(uint32_t comm) {
    for (uint32_t row = 0; row < SEGMENT_OPS; row++) {
        uint32_t word = ACQUIRE(plugin.op_states[row]);
        const OpRow *op = &plugin.ops[row];
        if (state_of(word) != ROW_LIVE || LOAD(op->comm) != comm) continue;
        int is_local = LOAD(op->launched_ns) && !LOAD(op->n_flows_begun);
        op_close(row, word, is_local ? CLOSE_NO_NETWORK : CLOSE_LOST, 0);
    }
}
