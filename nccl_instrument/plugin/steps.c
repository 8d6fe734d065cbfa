/* The hot path: a chunk of a flow passes a stage. Counters only grow, earlier stages are stored before later ones.
 *
 * NCCL calls again and again while nothing moves (SendPeerWait on every refused send, a step start on every refused
 * receive): those return before the clock is read. The waits add up time the flow as a whole spent, so overlapping
 * chunks are not counted twice: a chunk's wait begins when it passed the stage before or when its predecessor passed
 * this one, whichever came later.
 */
#include "plugin.h"

static const size_t wait_of[2][STAGE_DONE + 1] = {
    [DIRECTION_SEND] = {0, offsetof(FlowRow, gpu_wait_ns), offsetof(FlowRow, peer_wait_ns),
                        offsetof(FlowRow, net_wait_ns)},
    [DIRECTION_RECEIVE] = {0, offsetof(FlowRow, peer_wait_ns), offsetof(FlowRow, net_wait_ns),
                           offsetof(FlowRow, gpu_wait_ns)},
};

/* Stages this chunk, or chunks before it, were never seen to pass: they are passed now. */
static void catch_up(FlowRow *flow, FlowClock *clock, unsigned stage, uint32_t chunk, int64_t now) {
    for (unsigned earlier = 0; earlier < stage; earlier++) {
        if (LOAD(flow->counters[earlier]) > chunk) continue;
        clock->passed[earlier][chunk % NCCL_STEPS] = clock->latest[earlier] = now;
        PUBLISH(flow->counters[earlier], chunk + 1);
        COUNT(skipped_states);
    }
    uint32_t overtaken = chunk - LOAD(flow->counters[stage]);
    if (!overtaken) return;
    if (stage == STAGE_DONE) COUNT_N(lost_stops, overtaken); else COUNT_N(skipped_states, overtaken);
}

static void add_wait(FlowRow *flow, const FlowClock *clock, unsigned stage, uint32_t chunk, int64_t now) {
    uint64_t *wait = (uint64_t *)(void *)((char *)flow + wait_of[flow->direction][stage]);
    int64_t from = clock->passed[stage - 1][chunk % NCCL_STEPS];
    if (clock->latest[stage] > from) from = clock->latest[stage];
    STORE(*wait, *wait + (uint64_t)(now - from));
}

static void mark_times(FlowRow *flow, unsigned stage, int64_t now) {
    int is_send = flow->direction == DIRECTION_SEND;
    if (stage == (is_send ? STAGE_GPU_READY : STAGE_DONE) && !LOAD(flow->first_ready_ns))
        STORE(flow->first_ready_ns, now);
    if (stage == (is_send ? STAGE_TRANSMITTED : STAGE_RECEIVED) && !LOAD(flow->first_transfer_ns))
        STORE(flow->first_transfer_ns, now);
    if (stage == (is_send ? STAGE_DONE : STAGE_RECEIVED)) STORE(flow->last_transfer_ns, now);
}

static void note_transfer(const FlowRow *flow, FlowClock *clock, unsigned stage, uint32_t chunk, int64_t now) {
    if (stage == STAGE_TRANSMITTED) {
        transfer_sized(flow, clock, chunk);
    } else if (stage == STAGE_DONE) {
        transfer_append(flow, clock, LOAD(flow->counters[STAGE_DONE]), chunk, now);
    }
}

/* The transport has just posted for this flow, on this thread: a send's data, or a receive's credit for the sender. */
static void name_queue_pair(FlowRow *flow, const FlowClock *clock, uint32_t chunk) {
    int64_t since = flow->direction == DIRECTION_SEND ? clock->passed[STAGE_GPU_READY][chunk % NCCL_STEPS] : 0;
    if (!flow->comm_id) return;
    uint32_t number = LOAD(plugin.posted_for)(flow->comm_id, flow->comm_rank, flow->peer, flow->channel, flow->direction, (uint64_t)since);
    if (number) STORE(flow->qpn, number);
}

static void pass(FlowRow *flow, FlowClock *clock, unsigned stage, uint32_t chunk) {
    int64_t now = now_ns();
    int is_in_order = LOAD(flow->counters[stage]) == chunk && (!stage || LOAD(flow->counters[stage - 1]) > chunk);
    if (!LOAD(flow->started_ns)) flow_begun(flow, now);
    if (!is_in_order) catch_up(flow, clock, stage, chunk, now);
    if (stage) {
        add_wait(flow, clock, stage, chunk, now);
        mark_times(flow, stage, now);
    }
    if (flow->direction == DIRECTION_SEND) note_transfer(flow, clock, stage, chunk, now);
    if (stage < STAGE_DONE) clock->passed[stage][chunk % NCCL_STEPS] = now;
    clock->latest[stage] = now;
    STORE(flow->last_progress_ns, now);
    PUBLISH(flow->counters[stage], chunk + 1);
    if (LOAD(plugin.posted_for) && stage == (flow->direction == DIRECTION_SEND ? STAGE_TRANSMITTED : STAGE_POSTED))
        name_queue_pair(flow, clock, chunk);
}

/* The handle of a step; no state of its own. 0 when the flow is not there or has no such step. */
uint64_t step_start(uint64_t handle, int32_t step) {
    uint32_t row;
    if (!flow_find(handle, &row)) return 0;
    FlowRow *flow = &plugin.flows[row];
    FlowClock *clock = &plugin.flow_clocks[row];
    if (step < 0 || (uint32_t)step >= flow->total_chunks || (uint32_t)step > STEP_MAX) {
        COUNT(bad_steps);
        return 0;
    }
    if (clock->steps_started <= (uint32_t)step) {
        clock->steps_started = (uint32_t)step + 1;
    } else if (flow->direction == DIRECTION_RECEIVE) {
        STORE(flow->repeats, flow->repeats + 1);
    }
    return handle_make(HANDLE_STEP, handle_generation(handle), row, (uint32_t)step);
}

void step_pass(uint64_t handle, unsigned stage, unsigned direction, const uint64_t *bytes) {
    uint32_t row, chunk = handle_step(handle);
    if (!flow_find(handle, &row)) return;
    FlowRow *flow = &plugin.flows[row];
    if (flow->direction != direction || chunk >= flow->total_chunks) {
        COUNT(bad_steps);
    } else if (LOAD(flow->counters[stage]) <= chunk) {
        if (bytes) STORE(flow->bytes, flow->bytes + *bytes);
        pass(flow, &plugin.flow_clocks[row], stage, chunk);
    }
}

void step_stop(uint64_t handle) {
    uint32_t row, chunk = handle_step(handle);
    if (!flow_find(handle, &row)) return;
    FlowRow *flow = &plugin.flows[row];
    if (chunk >= flow->total_chunks) {
        COUNT(bad_steps);
    } else if (LOAD(flow->counters[STAGE_DONE]) <= chunk) {
        pass(flow, &plugin.flow_clocks[row], STAGE_DONE, chunk);
    } else {
        COUNT(repeated_stops);
    }
}

/* Interface v3: the transferred size runs on from op to op, so only what came since this op's first report counts. A
 * first report that is already a transfer leaves the base unknown; more than the chunks can hold gives it away. */
static void add_size(FlowRow *flow, FlowClock *clock, uint64_t size, uint32_t chunks, int is_transfer) {
    uint64_t most = (uint64_t)clock->chunk_bytes * chunks;
    if (!clock->size_known || size < clock->size_base) {
        clock->size_base = is_transfer && size <= most ? 0 : size;
        clock->size_known = 1;
    }
    if (is_transfer && size - clock->size_base > most) clock->size_base = size - LOAD(flow->bytes);
    if (is_transfer) STORE(flow->bytes, size - clock->size_base);
}

/* Interface v3 (NCCL 2.26): the ProxyOp itself reports how many chunks have passed a stage. */
void flow_report(uint64_t handle, unsigned stage, unsigned direction, int32_t chunks, uint64_t size) {
    uint32_t row;
    if (!flow_find(handle, &row)) return;
    FlowRow *flow = &plugin.flows[row];
    if (flow->direction != direction || chunks < 1 || (uint32_t)chunks > flow->total_chunks) {
        COUNT(bad_steps);
        return;
    }
    int is_transfer = stage == (direction == DIRECTION_SEND ? STAGE_TRANSMITTED : STAGE_RECEIVED);
    if (LOAD(flow->counters[stage]) < (uint32_t)chunks) {
        add_size(flow, &plugin.flow_clocks[row], size, (uint32_t)chunks, is_transfer);
        pass(flow, &plugin.flow_clocks[row], stage, (uint32_t)chunks - 1);
    } else if (direction == DIRECTION_SEND && stage == STAGE_GPU_READY) {
        STORE(flow->repeats, flow->repeats + 1);
    }
}
