/* The progress loop of one ProxyOp: a window of WINDOW chunks, sends and receives refused now and then, and the calls
 * NCCL repeats while it polls. Interface v3 reports chunk counts on the op itself, later ones on steps.
 */
#include <string.h>

#include "driver.h"

enum { V3_SEND = 0, V3_RECV = 4 };

int flow_chunk_bytes(int step) { return 1000 + step % 7; }

static int luck(Flow *flow, unsigned of) {
    flow->random = flow->random * 1664525u + 1013904223u;
    return (flow->random >> 16) % of == 0;
}

static int may(const Flow *flow, int stage) {
    return flow->halt_at[stage] < 0 || flow->counters[stage] < flow->halt_at[stage];
}

void flow_open(Flow *flow, void *context, void *op, int rank, const FlowSpec *spec) {
    memset(flow, 0, sizeof *flow);
    memset(flow->halt_at, 0xFF, sizeof flow->halt_at);
    flow->spec = *spec;
    flow->random = (unsigned)(spec->channel * 2 + spec->is_send) * 2654435761u + 1;
    flow->size_sum = 1000000; /* what earlier ops of this connection left behind (v3) */
    flow->handle = call_proxy_op(context, op, rank, spec);
    DID(flows, 1);
}

static void report(Flow *flow, int stage, int chunks, uint64_t size) {
    call_report(flow->handle, (flow->spec.is_send ? V3_SEND : V3_RECV) + stage, size, chunks);
}

static void **step_of(Flow *flow, int step) { return &flow->steps[step % WINDOW]; }

static void passed(Flow *flow, int stage, int state) {
    int step = flow->counters[stage]++;
    if (profiler.abi == 3) {
        report(flow, stage, step + 1, flow->size_sum);
    } else {
        call_size(*step_of(flow, step), state, 77); /* a size that does not count in this state */
    }
}

static void transferred(Flow *flow, int stage, int state) {
    int step = flow->counters[stage]++, size = flow_chunk_bytes(step);
    flow->size_sum += (uint64_t)size;
    DID(bytes, (uint64_t)size);
    if (profiler.abi == 3) {
        report(flow, stage, step + 1, flow->size_sum);
    } else {
        call_size(*step_of(flow, step), state, (uint64_t)size);
    }
}

static void finished(Flow *flow) {
    int step = flow->counters[3]++;
    if (profiler.abi == 3) {
        report(flow, 3, step + 1, flow->size_sum);
    } else if (flow->loses_stops && step % 3 == 1) {
        DID(lost_stops, 1);
    } else {
        call_stop(*step_of(flow, step));
    }
}

static int has_room(const Flow *flow) {
    return flow->counters[0] < flow->spec.n_steps && flow->counters[0] < flow->counters[3] + WINDOW;
}

static void start_step(Flow *flow, void *context) {
    if (profiler.abi == 3) return;
    if (flow->is_started) DID(repeated_starts, 1);
    *step_of(flow, flow->counters[0]) = call_step(context, flow->handle, flow->counters[0]);
    flow->is_started = 1;
}

static void poll_peer(Flow *flow) {
    if (flow->is_offered) DID(polls, 1);
    if (flow->is_offered && profiler.abi == 3) {
        report(flow, 1, flow->counters[1], flow->size_sum);
    } else if (flow->is_offered) {
        call_size(*step_of(flow, flow->counters[2]), SEND_PEER_WAIT, 78);
    } else {
        passed(flow, 1, SEND_PEER_WAIT);
    }
    flow->is_offered = 1;
}

static void poll_send(Flow *flow, void *context) {
    int *counters = flow->counters;
    if (has_room(flow) && may(flow, 0)) {
        start_step(flow, context);
        passed(flow, 0, SEND_GPU_WAIT);
        flow->is_started = 0;
    }
    if (flow->is_offered || (counters[1] < counters[0] && may(flow, 1) && luck(flow, 2))) {
        poll_peer(flow);
        if (may(flow, 2) && luck(flow, 3)) {
            transferred(flow, 2, SEND_WAIT);
            flow->is_offered = 0;
        }
    }
    if (counters[3] < counters[2] && may(flow, 3) && luck(flow, 2)) finished(flow);
}

static void poll_receive(Flow *flow, void *context) {
    int *counters = flow->counters;
    if (has_room(flow) && may(flow, 0)) {
        start_step(flow, context);
        if (luck(flow, 3)) {
            passed(flow, 0, RECV_WAIT);
            flow->is_started = 0;
        }
    }
    if (counters[1] < counters[0] && may(flow, 1) && luck(flow, 2)) transferred(flow, 1, RECV_FLUSH_WAIT);
    if (counters[2] < counters[1] && may(flow, 2)) passed(flow, 2, RECV_GPU_WAIT);
    if (counters[3] < counters[2] && may(flow, 3) && luck(flow, 2)) finished(flow);
}

int flow_poll(Flow *flow, void *context) {
    if (flow->counters[3] == flow->spec.n_steps) return 1;
    if (flow->spec.is_send) poll_send(flow, context); else poll_receive(flow, context);
    return flow->counters[3] == flow->spec.n_steps;
}
