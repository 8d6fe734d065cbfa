/* The exported tables ncclProfiler_v3 … v7: each front turns NCCL's call into the plugin's own, and always succeeds.
 *
 * NCCL treats an error from a profiler in a different harmful way in every release, so there is none: init gives a
 * context even without a segment, starts give NULL for what is not traced, except Group (up to NCCL 2.27 a NULL group
 * hides its ops).
 */
#include "abi.h"

#define EXPORTED __attribute__((visibility("default")))
#define SEND 0x10 /* direction bits beside the stage */
#define RECEIVE 0x20

static const uint8_t step_stages[STATES_KNOWN] = {
    [STATE_SEND_GPU_WAIT] = SEND | STAGE_POSTED,         [STATE_SEND_PEER_WAIT] = SEND | STAGE_GPU_READY,
    [STATE_SEND_WAIT] = SEND | STAGE_TRANSMITTED,        [STATE_RECV_WAIT] = RECEIVE | STAGE_POSTED,
    [STATE_RECV_FLUSH_WAIT] = RECEIVE | STAGE_RECEIVED,  [STATE_RECV_GPU_WAIT] = RECEIVE | STAGE_FLUSHED,
};

static uint64_t as_integer(const void *handle) { return (uint64_t)(uintptr_t)handle; }

static uint64_t start_coll(void *context, const Descriptor *what, int abi) {
    const CollBody *coll = &what->coll;
    OpStart start = {.context = as_integer(context), .parent = as_integer(what->parent), .rank = what->rank,
                     .seq = (int64_t)coll->seq, .func = coll->func, .dtype = coll->dtype, .algo = coll->algo,
                     .proto = coll->proto, .count = coll->count, .peer = coll->root, .channels = coll->n_channels,
                     .user_tag = abi >= 7 ? coll->user_tag : 0};
    return op_start(&start);
}

static uint64_t start_coll_v3(void *context, const Descriptor *what) {
    const CollBodyV3 *coll = &what->coll_v3;
    OpStart start = {.context = as_integer(context), .parent = as_integer(what->parent), .rank = what->rank,
                     .comm_name = coll->comm_name, .comm_id = coll->comm_hash,
                     .seq = (int64_t)coll->seq, .func = coll->func, .dtype = coll->dtype, .algo = coll->algo,
                     .proto = coll->proto, .count = coll->count, .peer = coll->root, .channels = coll->n_channels};
    return op_start(&start);
}

static uint64_t start_p2p(void *context, const Descriptor *what, int abi) {
    const P2pBody *p2p = &what->p2p;
    OpStart start = {.context = as_integer(context), .parent = as_integer(what->parent), .rank = what->rank,
                     .func = p2p->func, .dtype = p2p->dtype, .count = p2p->count, .peer = p2p->peer, .is_p2p = 1,
                     .channels = abi >= 5 ? p2p->n_channels : 0, /* garbage through NCCL 2.28's shim for v4 */
                     .user_tag = abi >= 7 ? p2p->user_tag : 0};
    return op_start(&start);
}

static uint64_t start_p2p_v3(void *context, const Descriptor *what) {
    const P2pBodyV3 *p2p = &what->p2p_v3;
    OpStart start = {.context = as_integer(context), .parent = as_integer(what->parent), .rank = what->rank,
                     .comm_name = p2p->comm_name, .comm_id = p2p->comm_hash,
                     .func = p2p->func, .dtype = p2p->dtype, .count = p2p->count, .peer = p2p->peer, .is_p2p = 1};
    return op_start(&start);
}

static uint64_t start_proxy_op(void *context, const Descriptor *what) {
    const ProxyOpBody *op = &what->proxy_op;
    FlowStart start = {.context = as_integer(context), .parent = as_integer(what->parent), .pid = op->pid,
                       .peer = op->peer, .n_steps = op->n_steps, .chunk_bytes = op->chunk_bytes,
                       .channel = op->channel, .is_send = op->is_send != 0};
    return flow_start(&start);
}

static uint64_t start_step(const Descriptor *what) {
    uint64_t flow = as_integer(what->parent);
    if (handle_kind(flow) == HANDLE_FLOW) return step_start(flow, what->step);
    COUNT(bad_handles);
    return 0;
}

static void start_net_plugin(const Descriptor *what) {
    const QueuePairV1 *pair = what->net.data;
    if (what->net.id == NET_IB_V1 && pair && pair->type == NET_IB_QUEUE_PAIR)
        flow_set_queue_pair(as_integer(what->parent), (uint32_t)pair->number);
}

static uint64_t api_handle(int is_graph) { return handle_make(HANDLE_API, 1, 0, is_graph ? API_GRAPH : 0); }

static uint64_t start_other(const Descriptor *what, uint64_t type, int abi) {
    switch (type) {
    case TYPE_GROUP: return handle_make(HANDLE_GROUP, 1, 0, 0);
    case TYPE_GROUP_API: return api_handle(0);
    case TYPE_COLL_API: return api_handle(abi >= 5 && what->coll_api.is_graph);
    case TYPE_P2P_API: return api_handle(abi >= 5 && what->p2p_api.is_graph);
    case TYPE_NET_PLUGIN: start_net_plugin(what); return 0;
    }
    int is_known = type && !(type & (type - 1)) && type <= TYPES_KNOWN;
    if (is_known) COUNT(ignored_types); else COUNT(unknown_types);
    return 0;
}

static inline uint64_t start_any(void *context, const Descriptor *what, uint64_t type, int abi) {
    switch (type) {
    case TYPE_PROXY_STEP: return abi == 3 ? COUNT(ignored_types), 0 : start_step(what);
    case TYPE_PROXY_OP: return start_proxy_op(context, what);
    case TYPE_COLL: return abi == 3 ? start_coll_v3(context, what) : start_coll(context, what, abi);
    case TYPE_P2P: return abi == 3 ? start_p2p_v3(context, what) : start_p2p(context, what, abi);
    case TYPE_KERNEL_CH: return kernel_start(as_integer(what->parent));
    default: return start_other(what, type, abi);
    }
}

static inline int start(void *context, void **handle, const Descriptor *what, int abi) {
    if (handle) *handle = NULL;
    if (!plugin.header) return 0;
    if (!handle || !what) {
        COUNT(null_args);
        return 0;
    }
    uint64_t made = start_any(context, what, abi >= 5 ? what->type.wide : what->type.narrow, abi);
    *handle = (void *)(uintptr_t)made; /* NOLINT: handles are integers */
    return 0;
}

int own_start(void *context, void **handle, const Descriptor *what, int abi) {
    return start(context, handle, what, abi);
}

#define START(version)                                                                                       \
    static int start_v##version(void *context, void **handle, const Descriptor *what) {                      \
        if (LOAD(plugin.is_chained)) return chain_start(context, handle, what, version);                           \
        return start(context, handle, what, version);                                                        \
    }
START(3)
START(4)
START(5) /* and 6 */
START(7)

int own_stop(void *handle) {
    uint64_t what = as_integer(handle);
    if (!plugin.header) return 0;
    switch (handle_kind(what)) {
    case HANDLE_STEP: step_stop(what); break;
    case HANDLE_FLOW: flow_stop(what); break;
    case HANDLE_OP: op_stop(what); break;
    case HANDLE_KERNEL: kernel_stop(what); break;
    case HANDLE_GROUP:
    case HANDLE_API: break;
    default:
        if (what) COUNT(bad_handles); else COUNT(null_handles);
    }
    return 0;
}

static int is_transfer(unsigned state) { return state == STATE_SEND_WAIT || state == STATE_RECV_FLUSH_WAIT; }

static void record_step(uint64_t handle, unsigned state, const uint64_t *arguments) {
    unsigned stage = state < STATES_KNOWN ? step_stages[state] : 0;
    if (!stage) {
        if (state >= STATES_KNOWN || state < STATE_SEND_GPU_WAIT) COUNT(unknown_states);
        return;
    }
    if (is_transfer(state) && !arguments) COUNT(null_args);
    step_pass(handle, stage & 0xF, stage & SEND ? DIRECTION_SEND : DIRECTION_RECEIVE,
              is_transfer(state) ? arguments : NULL);
}

static void record_other(uint64_t handle, unsigned state) {
    unsigned kind = handle_kind(handle);
    if (!handle) {
        COUNT(null_handles);
    } else if (kind < HANDLE_GROUP || kind > HANDLE_KERNEL) {
        COUNT(bad_handles);
    } else if (state >= STATES_KNOWN || state < STATE_SEND_GPU_WAIT) {
        COUNT(unknown_states);
    } else if (kind == HANDLE_FLOW && state == STATE_IN_PROGRESS) {
        flow_begin(handle);
    }
}

static inline int record_step_or_other(void *handle, int state, const void *arguments) {
    uint64_t what = as_integer(handle);
    if (!plugin.header) return 0;
    if (handle_kind(what) == HANDLE_STEP) {
        if (state == STATE_SEND_PEER_WAIT && step_repeats(what)) return 0;
        record_step(what, (unsigned)state, arguments);
    } else {
        record_other(what, (unsigned)state);
    }
    return 0;
}

/* Op-level states 0 to 7: send stages, then receive stages, in order. */
static int record_report(void *handle, int state, const void *arguments) {
    const ReportV3 *report = arguments;
    uint64_t what = as_integer(handle);
    if (!plugin.header) return 0;
    if (handle_kind(what) != HANDLE_FLOW || state < 0 || state > 7) {
        record_other(what, (unsigned)state);
    } else if (!report) {
        COUNT(null_args);
    } else {
        flow_report(what, (unsigned)state % 4, state < 4 ? DIRECTION_SEND : DIRECTION_RECEIVE, report->steps,
                    report->size);
    }
    return 0;
}

int own_record(void *handle, int state, const void *arguments, int abi) {
    return abi == 3 ? record_report(handle, state, arguments) : record_step_or_other(handle, state, arguments);
}

int own_finalize(void *context) {
    comm_leave(as_integer(context));
    return 0;
}

static int stop(void *handle) { return LOAD(plugin.is_chained) ? chain_stop(handle) : own_stop(handle); }
static int finalize(void *context) { return LOAD(plugin.is_chained) ? chain_finalize(context) : own_finalize(context); }

static int record(void *handle, int state, const void *arguments) {
    if (LOAD(plugin.is_chained)) return chain_record(handle, state, arguments, 4);
    return record_step_or_other(handle, state, arguments);
}

static int record_v3(void *handle, int state, const void *arguments) {
    if (LOAD(plugin.is_chained)) return chain_record(handle, state, arguments, 3);
    return record_report(handle, state, arguments);
}

static int join(void **context, int *mask, int mask_default, const CommJoin *comm) {
    uint64_t joined = comm_join(comm);
    int32_t wanted = identity_number("DIOGENES_PROFILER_MASK");
    int chosen = !plugin.header ? 0 : wanted >= 0 ? wanted : mask_default | (kernels_wanted(comm) ? TYPE_KERNEL_CH : 0);
    if (context) *context = (void *)(uintptr_t)joined; /* NOLINT: contexts are integers */
    if (mask) *mask = chosen;
    if (plugin.header) STORE(plugin.header->mask, (uint32_t)chosen);
    chain_join(context, mask, comm);
    return 0;
}

static int init_v3(void **context, int *mask) {
    CommJoin comm = {.rank = -1, .abi = 3};
    return join(context, mask, MASK_DEFAULT_V3, &comm);
}

static int init_v4(void **context, int *mask, const char *name, uint64_t comm_hash, int n_nodes, int n_ranks, int rank,
                   Logger logger) {
    CommJoin comm = {name, comm_hash, n_ranks, n_nodes, rank, 4, logger, 0};
    return join(context, mask, MASK_DEFAULT, &comm);
}

#define INIT_FROM_V5(version)                                                                                \
    static int init_v##version(void **context, uint64_t comm_id, int *mask, const char *name, int n_nodes,  \
                               int n_ranks, int rank, Logger logger) {                                      \
        CommJoin comm = {name, comm_id, n_ranks, n_nodes, rank, version, logger, 0};                         \
        return join(context, mask, MASK_DEFAULT, &comm);                                                    \
    }
INIT_FROM_V5(5)
INIT_FROM_V5(6)
INIT_FROM_V5(7)

static const char plugin_name[] = "Diogenes";
EXPORTED const ProfilerV3 ncclProfiler_v3 = {plugin_name, init_v3, start_v3, stop, record_v3, finalize};
EXPORTED const ProfilerV4 ncclProfiler_v4 = {plugin_name, init_v4, start_v4, stop, record, finalize};
EXPORTED const ProfilerV5 ncclProfiler_v5 = {plugin_name, init_v5, start_v5, stop, record, finalize};
EXPORTED const ProfilerV5 ncclProfiler_v6 = {plugin_name, init_v6, start_v5, stop, record, finalize};
EXPORTED const ProfilerV5 ncclProfiler_v7 = {plugin_name, init_v7, start_v7, stop, record, finalize};
