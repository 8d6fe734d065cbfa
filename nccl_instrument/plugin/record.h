/* The shared-memory segment: what the profiler plugin writes and the agent reads.
 *
 * One segment per training process, made by the plugin and read by another process. It outlives the writer, so
 * everything a reader needs to find its way is in the header, and every row can be told apart from a half-written one.
 * nccl_instrument/agent/processes/segment_layout.py mirrors these structs; a test compiles this header and compares every offset.
 *
 *   | where           | what                                                                          |
 *   |-----------------|-------------------------------------------------------------------------------|
 *   | 0               | SegmentHeader, 4096 bytes; `magic` is written last                            |
 *   | section "comm"  | CommRow: one per communicator the process joined                              |
 *   | section "opstate" | u32 per op row: generation << 8 | RowState                                  |
 *   | section "op"    | OpRow: ops from enqueue to completion                                         |
 *   | section "flwstate" | u32 per flow row: generation << 8 | RowState                               |
 *   | section "flow"  | FlowRow: one network flow of one op                                           |
 *   | section "ring"  | OpRow: completion records, overwritten oldest first                           |
 *   | section "transfer" | TransferRow: chunks that were sent, overwritten oldest first               |
 *
 * Reading a live row: copy its state word, copy the row, compare the state word again; different, or not ROW_LIVE, is a
 * row that was reused meanwhile. Counters of a flow are read last to first, so that a later stage never seems ahead of
 * an earlier one. Reading the ring: record i lies in row i % rows and is whole when its `stamp` is 2 * (i + 1) before
 * and after the copy; odd is being written, larger is overwritten.
 *
 * All times are CLOCK_MONOTONIC nanoseconds; 0 is unknown. Integers are in the writer's byte order (see byte_order).
 */
#ifndef DIOGENES_RECORD_H
#define DIOGENES_RECORD_H

#include <stdint.h>

#define SEGMENT_MAGIC "DGNSEG1\n"
#define SEGMENT_BYTE_ORDER 0x01020304u
#define SEGMENT_MAJOR 1
#define SEGMENT_MINOR 2
#define SEGMENT_HEADER_BYTES 4096
#define SEGMENT_SECTIONS 7
#define SEGMENT_COMMS 256
#define SEGMENT_OPS 4096

enum RowState { ROW_FREE = 0, ROW_CLAIMED = 1, ROW_LIVE = 2, ROW_CLOSING = 3, ROW_DONE = 4 };

enum OpFlag {
    OP_NO_NETWORK = 1,  /* ran inside the node: no flow made progress, so done_ns stays unknown */
    OP_GRAPH = 2,       /* enqueued by a captured CUDA graph */
    OP_STOPS_LOST = 4,  /* closed without all its stops: aborted, or NCCL lost them */
    OP_FOREIGN = 8,     /* a flow of another process's op (PXN); set on flows */
    OP_HAS_FLOWS = 16,  /* at least one flow made progress */
    OP_P2P = 32,
    OP_REOPENED = 64,   /* a flow came after the op was thought complete: this record replaces the earlier one */
    OP_API = 128        /* seen as a call of NCCL's API alone: when it ended nobody saw */
};

/* Codes shared with nccl_instrument/tables.py (func, dtype, algo, proto are written as those tables number them). */
enum Transport { TRANSPORT_UNKNOWN = 0, TRANSPORT_IB = 1, TRANSPORT_SOCKET = 2, TRANSPORT_NONE = 3 };
/* Bits of CommRow.network_seen; `counters_seen` on the wire. */
#define COMM_LACKS_ALL 14u /* the API shim: no stage of a chunk is counted */
enum Direction { DIRECTION_SEND = 0, DIRECTION_RECEIVE = 1 };

/* Stages of a flow, as indices into FlowRow.counters. */
enum Stage {
    STAGE_POSTED = 0,
    STAGE_GPU_READY = 1,
    STAGE_TRANSMITTED = 2,
    STAGE_DONE = 3,
    STAGE_RECEIVED = 1,
    STAGE_FLUSHED = 2,
    STAGE_CONSUMED = 3
};

/* What the plugin refused, repaired or merely saw; one u64 each, in this order. */
#define SEGMENT_COUNTERS(X)                                                                        \
    X(comms_joined)         /* init calls */                                                       \
    X(comms_finalized)      /* finalize calls with a context that was alive */                     \
    X(ops_enqueued)         /* Coll and P2p starts that got a row */                               \
    X(ops_done)             /* completed with every stop seen */                                   \
    X(ops_no_network)       /* closed without any flow making progress */                          \
    X(ops_lost)             /* closed by finalize or because the row was needed, stops missing */  \
    X(ops_reopened)         /* a flow came after completion */                                     \
    X(flows_started)        /* ProxyOp starts that got a row */                                    \
    X(flows_done)           /* ProxyOp stops */                                                    \
    X(flows_lost)           /* flow rows closed without a ProxyOp stop */                          \
    X(foreign_flows)        /* ProxyOps of another process (PXN) */                                \
    X(orphan_flows)         /* ProxyOps whose op is not, or no longer, in the table */             \
    X(repeated_recv_starts) /* ProxyStep started again; added up when the flow stops */            \
    X(peer_wait_polls)      /* SendPeerWait recorded again; added up when the flow stops */        \
    X(repeated_stops)       /* a step, flow or op stopped twice */                                 \
    X(lost_stops)           /* steps that were overtaken or left over without a stop */            \
    X(skipped_states)       /* a step reached a stage without passing the one before */            \
    X(bad_steps)            /* step number outside the flow's total */                             \
    X(null_handles)         /* stop or state with NULL */                                          \
    X(stale_handles)        /* the row behind the handle was reused or closed */                   \
    X(bad_handles)          /* not a handle of ours */                                             \
    X(bad_contexts)         /* context of a finalized or unknown communicator */                   \
    X(null_args)            /* descriptor, handle slot or needed state arguments were NULL */      \
    X(ignored_types)        /* known event types the plugin does not use */                        \
    X(unknown_types)                                                                               \
    X(unknown_states)                                                                              \
    X(comm_table_full)                                                                             \
    X(op_table_full)                                                                               \
    X(flow_table_full)                                                                             \
    X(ring_busy)            /* completion record dropped: its row was being written */             \
    X(p2p_unnumbered)       /* p2p whose peer lies outside the numbering table */                  \
    X(chain_full)           /* events the chained plugin was not told of: too many were open */  \
    X(ops_unseen)           /* API shim: ops whose end nobody saw, made records */                 \
    X(api_unknown_comms)    /* API shim: calls on communicators that were not seen being made */   \
    X(api_failed_calls)     /* API shim: calls NCCL refused; their op did not take place */        \
    X(api_groups_full)      /* API shim: ops of a group that were not kept together */             \
    X(transfers_busy)       /* record of a transfer dropped: its row was being written */          \
    X(orphan_kernels)       /* KernelChs whose op is not, or no longer, in the table */            \
    X(kernels_refused)      /* init calls at which DIOGENES_KERNELS was not granted */

enum CounterIndex {
#define X(name) COUNTER_##name,
    SEGMENT_COUNTERS(X)
#undef X
    COUNTERS
};

typedef struct Section {
    char name[8];
    uint64_t offset;
    uint32_t row_bytes;
    uint32_t n_rows;
    uint64_t reserved;
} Section;

/* Who the process says it is, from its environment; -1 and "" are unknown. */
typedef struct Identity {
    int32_t global_rank;
    int32_t world_size;
    int32_t local_rank;
    int32_t local_world_size;
    int32_t restart_count;
    int32_t tp;
    int32_t pp;
    int32_t dp;
    int32_t ep;
    int32_t reserved;
    char job[128];
    char hostname[64];
    char host_id[64]; /* NCCL_HOSTID */
    char nic[32];
    char gid[40];
} Identity;

typedef struct SegmentHeader {
    char magic[8];
    uint32_t byte_order;
    uint16_t major;
    uint16_t minor;
    uint32_t header_bytes;
    uint32_t n_sections;
    uint64_t segment_bytes;
    int32_t pid;
    uint32_t uid;
    uint64_t starttime; /* field 22 of /proc/self/stat */
    int64_t wall_ns;    /* clock anchors, read together when the segment was made */
    int64_t mono_ns;
    uint32_t library_version; /* ncclGetVersion(), 0 when it cannot be asked */
    uint32_t abi;             /* profiler interface version NCCL chose */
    uint32_t mask;            /* event mask asked for */
    uint32_t closed;          /* 1 while no communicator is alive */
    uint32_t n_counters;
    uint8_t transport;
    uint8_t reserved[43];
    Section sections[8];
    uint8_t reserved_sections[128];
    Identity identity;
    char boot_id[40]; /* of the kernel, "" when it cannot be read */
    uint8_t reserved_identity[104];
    uint64_t counters[64];
    uint64_t ring_head; /* completion records begun; own cache line */
    uint64_t reserved_ring[7];
    int64_t last_callback_ns; /* start or stop of an op or flow; steps show in their flow */
    uint64_t reserved_last[7];
    uint64_t transfer_head; /* transfers begun; own cache line */
    uint64_t reserved_transfer[7];
} SegmentHeader;

/* A communicator; first line written by init and finalize, second by launching threads, third by completions. */
typedef struct CommRow {
    uint32_t stamp; /* generation << 8 | RowState: LIVE, DONE once finalized */
    int32_t comm_rank;
    uint64_t comm_id; /* 0: not known yet (interface v3 learns it from the first op) */
    int32_t n_ranks;  /* 0: unknown (interface v3) */
    int32_t n_nodes;  /* 0: unknown */
    uint8_t transport;
    uint8_t abi;
    uint8_t network_seen; /* some flow made progress; or COMM_LACKS_ALL */
    uint8_t reserved_codes[5];
    int64_t joined_ns;
    int64_t finalized_ns;
    int64_t began_ns; /* API shim: when making it began, joined_ns being when it was made */
    uint64_t reserved_identity[1];
    uint64_t n_enqueued; /* collectives */
    uint64_t n_p2p_enqueued;
    int64_t last_enqueued_ns;
    uint64_t reserved_launch[5];
    uint64_t n_done; /* collectives completed with network flows */
    uint64_t n_p2p_done;
    uint64_t n_no_network; /* ops of both kinds closed without network flows */
    int64_t last_done_ns;
    uint64_t kernels_begun;  /* ops of both kinds of which the GPU has begun a kernel; 0: none, or not asked for */
    int64_t last_kernel_ns;  /* newest begin or end of a channel's kernel, as the callback came */
    uint32_t kernels_open;   /* channels whose kernel has begun and not ended */
    uint32_t reserved_kernel;
    uint64_t reserved_done[1];
    char name[48];
    char gpu_bus_id[20];
    char gpu_uuid[44];
    uint8_t reserved_tail[16];
} CommRow;

/* An op, and its completion record. */
typedef struct OpRow {
    uint64_t stamp; /* row: generation; record: 2 * (index + 1) */
    uint64_t comm_id;
    int32_t comm_rank;
    uint16_t comm; /* row of the comm table */
    uint16_t flags;
    uint64_t op; /* the rank's own count; 0: unknown */
    int64_t seq; /* NCCL's seqNumber, -1 for p2p */
    uint8_t func;
    uint8_t dtype;
    uint8_t algo;
    uint8_t proto;
    uint8_t channels;
    uint8_t slowest_channel; /* the flow whose last transfer came last */
    uint8_t slowest_direction;
    uint8_t reserved_code;
    uint32_t n_flows;
    uint32_t n_flows_stopped;
    int32_t peer; /* root of a collective */
    int32_t slowest_peer;
    uint64_t count;
    uint64_t bytes;
    int64_t enqueued_ns;
    int64_t started_ns; /* first step of any of its flows */
    int64_t first_transfer_ns;
    int64_t last_transfer_ns;
    int64_t done_ns;
    uint64_t gpu_wait_ns; /* waits of all its flows */
    uint64_t peer_wait_ns;
    uint64_t net_wait_ns;
    uint64_t receive_gpu_wait_ns; /* and of those that receive */
    uint64_t receive_peer_wait_ns;
    uint64_t receive_net_wait_ns;
    uint64_t n_refused;       /* sends NCCL announced again because the peer had not posted */
    int64_t first_ready_ns;   /* first chunk its GPU produced or consumed: the kernel runs */
    int64_t fastest_done_ns;  /* when the fastest flow's last transfer came */
    int64_t slowest_ns;       /* when the slowest flow's last transfer came */
    int64_t launched_ns;      /* Coll or P2p stop; 0: still being launched */
    uint64_t user_tag;
    uint64_t ordinal;         /* place among all ops, of both kinds, this rank enqueued on the communicator */
    uint32_t n_flows_begun;   /* of n_flows, those that made progress */
    uint32_t channels_begun;  /* channels of which the GPU has begun the kernel */
    uint64_t reserved[3];
} OpRow;

/* A flow of an op: (communicator, channel, peer, direction). Single writer: the progress thread that started it.
 *
 * The waits are time the whole flow spent, never more than its age:
 *   | wait | send                                      | receive                              |
 *   |------|-------------------------------------------|--------------------------------------|
 *   | gpu  | next chunk posted, not produced           | next chunk flushed, not consumed     |
 *   | peer | chunk ready, send refused (no credit)     | next chunk posted, not received      |
 *   | net  | any chunk transmitted, not done           | any chunk received, not flushed      |
 */
typedef struct FlowRow {
    uint32_t stamp; /* generation */
    int32_t peer;
    uint32_t counters[4];
    uint32_t total_chunks;
    uint32_t repeats; /* repeated starts (receive) or polls (send) */
    int64_t last_progress_ns;
    uint64_t gpu_wait_ns;
    uint64_t peer_wait_ns;
    uint64_t net_wait_ns;
    uint64_t bytes;
    int64_t first_transfer_ns; /* first chunk transmitted or received */
    int64_t last_transfer_ns;  /* latest chunk done or received */
    int64_t queued_ns;
    int64_t started_ns; /* first progress */
    int64_t first_ready_ns; /* first chunk the GPU produced or consumed */
    uint64_t comm_id;
    int32_t comm_rank;
    uint16_t comm;
    uint8_t channel;
    uint8_t direction;
    uint64_t op;
    uint64_t op_handle;      /* under PXN the origin process's handle */
    uint64_t origin_context; /* under PXN the origin process's context, else this one's */
    int32_t origin_pid;
    uint32_t qpn; /* 0: unknown */
    uint16_t flags;
    uint8_t func;
    uint8_t transport;
    uint32_t reserved_code;
    uint64_t reserved[3];
} FlowRow;

/* One chunk a flow sent, written when it is done: what Pulse's rates are made of. Sends only, as a network card counts
 * what it transmits; chunks of other processes' ops (PXN) are not recorded, for whose they are is not known here. */
typedef struct TransferRow {
    uint64_t stamp; /* 2 * (index + 1); odd: being written */
    uint64_t comm_id;
    int64_t posted_ns; /* handed to the network */
    int64_t done_ns;
    uint64_t op;
    int32_t comm_rank;
    int32_t peer;
    uint32_t bytes;
    uint32_t step; /* chunk of the op on this flow */
    uint32_t qpn;  /* 0: unknown */
    uint8_t channel;
    uint8_t is_p2p;
    uint16_t reserved;
} TransferRow;

_Static_assert(sizeof(Section) == 32, "Section");
_Static_assert(sizeof(Identity) == 368, "Identity");
_Static_assert(sizeof(SegmentHeader) <= SEGMENT_HEADER_BYTES, "SegmentHeader");
_Static_assert(sizeof(CommRow) == 320, "CommRow");
_Static_assert(sizeof(OpRow) == 256, "OpRow");
_Static_assert(sizeof(FlowRow) == 192, "FlowRow");
_Static_assert(sizeof(TransferRow) == 64, "TransferRow");
_Static_assert(COUNTERS <= 64, "counters");

#endif
