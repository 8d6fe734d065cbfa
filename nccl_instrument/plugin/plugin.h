/* What the plugin's files share: the mapped segment, handles, and one function per step of an op's life.
 *
 * Callbacks take no lock, allocate nothing and make no system call; only init and finalize use the mutex. Handles and
 * contexts are integers that name a row and its generation, never pointers, so a handle that is stale, foreign or
 * made up is a mismatch to count and not a crash of the training job.
 */
#ifndef DIOGENES_PLUGIN_H
#define DIOGENES_PLUGIN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "record.h"

#define PRIVATE __attribute__((visibility("hidden")))
#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define ACQUIRE(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define PUBLISH(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)
#define ADD(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)
#define COUNT_N(name, n) ADD(plugin.header->counters[COUNTER_##name], (n))
#define COUNT(name) COUNT_N(name, 1)

/* handle = kind:4 | generation:20 | row:16 | step:24 */
enum HandleKind { HANDLE_CONTEXT = 1, HANDLE_GROUP, HANDLE_API, HANDLE_OP, HANDLE_FLOW, HANDLE_STEP, HANDLE_KERNEL,
                  HANDLE_CHAINED };
#define GENERATION_MAX 0xFFFFFu
#define STEP_MAX 0xFFFFFFu
#define NCCL_STEPS 8    /* chunks a flow can have in flight */
#define RECENT_OPS 64   /* per communicator, looked at when a later op shows that they are over */
#define PROBES_MAX 4096 /* rows looked at for a free one */
#define RECLAIMS_MAX 64 /* occupied rows looked at when there is none */
#define OVERTAKEN_BY 512 /* ops a later completion is ahead of one that will not get its stops any more */
#define FOREIGN_KEPT_NS 60000000000ll /* another process's flow stands still that long before its row may be taken */
#define API_GRAPH 1u    /* step bit of an API handle: captured into a CUDA graph */

/* Times a flow's chunks passed each stage; the progress thread's own memory, not part of the segment. */
typedef struct FlowClock {
    int64_t passed[STAGE_DONE][NCCL_STEPS];
    int64_t latest[STAGE_DONE + 1];
    uint64_t size_base; /* interface v3: transSize before this op */
    uint32_t size_known;
    uint32_t chunk_bytes; /* at most */
    uint32_t steps_started;
    uint64_t size_sent; /* bytes of the flow when the chunk before was transmitted */
    uint32_t sizes[NCCL_STEPS]; /* of the chunks in flight */
} FlowClock;

/* What a communicator needs beside its row; not part of the segment. */
typedef struct CommClock {
    uint32_t *p2p_numbers; /* [peer][direction], mapped once per row and kept */
    uint32_t n_mapped; /* peers the table has room for */
    uint32_t n_peers;
    uint32_t n_without_flows; /* live ops no ProxyOp was seen of */
    uint64_t n_ordinals;
    uint64_t last_done_ordinal;
    int64_t last_seq[16];
    uint64_t recent[RECENT_OPS]; /* handles by ordinal */
} CommClock;

/* Which queue pair this thread has just posted on, not before since_ns, and for which flow: its number, 0 for none. */
typedef uint32_t (*PostedFor)(uint64_t comm_id, int32_t comm_rank, int32_t peer, unsigned channel, unsigned direction,
                              uint64_t since_ns);

#define PAGE_BYTES_MAX 65536 /* Plugin fills whole pages of any machine, so that the kernel can wipe it at a fork */

typedef struct Plugin {
    _Alignas(PAGE_BYTES_MAX) SegmentHeader *header; /* NULL: no tracing (not made, failed, or a forked child) */
    CommRow *comms;
    uint32_t *op_states;
    OpRow *ops;
    uint32_t *flow_states;
    FlowRow *flows;
    FlowClock *flow_clocks;
    OpRow *ring;
    TransferRow *transfers;
    uint32_t n_flows;
    uint32_t n_ring;
    uint32_t n_transfers; /* 0: none are recorded */
    uint32_t op_cursor;
    uint32_t flow_cursor;
    uint32_t flow_reach; /* rows in use so far: few rows used again and again stay in the cache */
    uint32_t first_generation;
    uint32_t n_comms_alive;
    int32_t pid;
    int failed;
    int is_chained; /* another plugin is called too */
    PostedFor posted_for; /* of the shim in front of libibverbs; NULL without it */
    pthread_mutex_t mutex; /* init and finalize only */
} Plugin;

extern PRIVATE Plugin plugin;
extern PRIVATE CommClock comm_clocks[SEGMENT_COMMS];

typedef void (*Logger)(int level, unsigned long subsys, const char *file, int line, const char *format, ...);

/* A communicator as init describes it; comm_id 0, n_ranks 0, rank -1 where the interface does not say. */
typedef struct CommJoin {
    const char *name;
    uint64_t comm_id;
    int32_t n_ranks;
    int32_t n_nodes;
    int32_t rank;
    uint8_t abi;
    Logger logger;
    int64_t began_ns; /* 0: not known */
} CommJoin;

/* A Coll or P2p start, whatever the interface version. */
typedef struct OpStart {
    uint64_t context;
    uint64_t parent;
    const char *comm_name; /* interface v3 only */
    uint64_t comm_id;      /* interface v3 only */
    int64_t seq; /* -1: unknown */
    const char *func;
    const char *dtype;
    const char *algo;
    const char *proto;
    uint64_t count;
    uint64_t user_tag;
    int32_t rank;
    int32_t peer;
    uint8_t channels;
    uint8_t is_p2p;
    uint16_t flags; /* beside those that follow from the rest */
} OpStart;

/* A ProxyOp start. */
typedef struct FlowStart {
    uint64_t context;
    uint64_t parent;
    int32_t pid;
    int32_t peer;
    int32_t n_steps;
    int32_t chunk_bytes;
    uint8_t channel;
    uint8_t is_send;
} FlowStart;

static inline uint64_t handle_make(enum HandleKind kind, uint32_t generation, uint32_t row, uint32_t step) {
    return (uint64_t)kind << 60 | (uint64_t)generation << 40 | (uint64_t)row << 24 | step;
}
static inline unsigned handle_kind(uint64_t handle) { return (unsigned)(handle >> 60); }
static inline uint32_t handle_generation(uint64_t handle) { return (uint32_t)(handle >> 40) & GENERATION_MAX; }
static inline uint32_t handle_row(uint64_t handle) { return (uint32_t)(handle >> 24) & 0xFFFFu; }
static inline uint32_t handle_step(uint64_t handle) { return (uint32_t)handle & STEP_MAX; }

static inline uint32_t state_word(uint32_t generation, enum RowState state) { return generation << 8 | state; }
static inline uint32_t state_of(uint32_t word) { return word & 0xFFu; }
static inline uint32_t state_generation(uint32_t word) { return word >> 8; }
static inline uint32_t generation_after(uint32_t word) {
    uint32_t next = word ? (state_generation(word) + 1) & GENERATION_MAX : plugin.first_generation;
    return next ? next : 1;
}
static inline int state_swap(uint32_t *word, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}

/* Word by word: a thread that scans the table may still look at what the row held before. */
static inline void row_clear(void *row, size_t bytes) {
    uint64_t *words = row;
    for (size_t word = 0; word < bytes / sizeof *words; word++) STORE(words[word], 0);
}

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* segment.c */
PRIVATE int segment_open(Logger logger); /* 0 when there is a segment; mutex held */

/* room.c */
PRIVATE uint64_t room_starttime(void); /* field 22 of /proc/self/stat, 0 when it cannot be read */
PRIVATE int room_claim(char *path, size_t size, uint64_t starttime, const char **reason);
PRIVATE uint64_t room_map(int file, void **base);

/* identity.c */
PRIVATE void identity_read(SegmentHeader *header);
PRIVATE void identity_boot(SegmentHeader *header);
PRIVATE void identity_gpu(CommRow *row);
PRIVATE PostedFor identity_verbs(void);
PRIVATE int32_t identity_number(const char *name);
PRIVATE void identity_text(char *to, size_t size, const char *from);

/* codes.c: NCCL's names as the codes of nccl_instrument/tables.py */
PRIVATE uint8_t code_of_func(const char *name);
PRIVATE uint8_t code_of_dtype(const char *name);
PRIVATE uint8_t code_of_algo(const char *name);
PRIVATE uint8_t code_of_proto(const char *name);
PRIVATE uint32_t size_of_dtype(uint8_t code);

/* comms.c */
PRIVATE uint64_t comm_join(const CommJoin *join);
PRIVATE void comm_leave(uint64_t context);
PRIVATE CommRow *comm_find(uint64_t context); /* NULL and counted when it is not alive */
PRIVATE uint64_t comm_next_p2p(uint32_t comm, int32_t peer, unsigned direction); /* 0: cannot be numbered */
PRIVATE void comm_saw_network(uint32_t comm);

/* ops.c */
PRIVATE uint64_t op_start(const OpStart *start);
PRIVATE void op_stop(uint64_t handle);
PRIVATE OpRow *op_find(uint64_t handle); /* NULL when its row was reused; live or done */
PRIVATE void op_add_flow(uint64_t handle, OpRow *op);
PRIVATE void op_refuse_flow(uint64_t handle, OpRow *op); /* no row for it: this op's end cannot be seen any more */
PRIVATE void op_flow_begun(uint64_t handle, int64_t now);
PRIVATE void op_flow_stopped(uint64_t handle, const FlowRow *flow, int64_t now);

/* closing.c */
enum Closing { CLOSE_DONE, CLOSE_NO_NETWORK, CLOSE_LOST, CLOSE_UNSEEN };
PRIVATE int op_close(uint32_t row, uint32_t word, enum Closing how, int64_t now);
PRIVATE int op_close_spent(uint32_t row, uint32_t word);
PRIVATE int op_is_over(uint64_t handle); /* closes it when it is spent */
PRIVATE void op_evict(uint32_t comm, uint64_t handle);
PRIVATE void ops_settle(uint32_t comm, uint64_t ordinal, int is_completed);
PRIVATE void ops_abandon(uint32_t comm);

/* flows.c */
PRIVATE uint64_t flow_start(const FlowStart *start);
PRIVATE void flow_begin(uint64_t handle);
PRIVATE void flow_begun(FlowRow *flow, int64_t now);
PRIVATE void flow_stop(uint64_t handle);
PRIVATE void flow_set_queue_pair(uint64_t step, uint32_t qpn);
PRIVATE void flows_abandon(uint32_t comm);

static inline int flow_is_live(uint64_t handle, uint32_t *row) {
    *row = handle_row(handle);
    return *row < plugin.n_flows &&
           ACQUIRE(plugin.flow_states[*row]) == state_word(handle_generation(handle), ROW_LIVE);
}

/* 0 and counted when it is not live */
static inline int flow_find(uint64_t handle, uint32_t *row) {
    if (flow_is_live(handle, row)) return 1;
    COUNT(stale_handles);
    return 0;
}

/* steps.c */
PRIVATE uint64_t step_start(uint64_t flow, int32_t step);
PRIVATE void step_pass(uint64_t handle, unsigned stage, unsigned direction, const uint64_t *bytes);
PRIVATE void step_stop(uint64_t handle);
PRIVATE void flow_report(uint64_t handle, unsigned stage, unsigned direction, int32_t chunks, uint64_t size);

/* NCCL polls with SendPeerWait as long as a send is refused: 1 when this chunk is known to be ready. */
static inline int step_repeats(uint64_t handle) {
    uint32_t row;
    if (!flow_is_live(handle, &row)) return 0;
    FlowRow *flow = &plugin.flows[row];
    if (flow->direction != DIRECTION_SEND || LOAD(flow->counters[STAGE_GPU_READY]) <= handle_step(handle)) return 0;
    STORE(flow->repeats, flow->repeats + 1);
    return 1;
}

/* kernels.c */
PRIVATE int kernels_wanted(const CommJoin *join); /* whether to ask NCCL for them; counted and said where it is refused */
PRIVATE uint64_t kernel_start(uint64_t op);
PRIVATE void kernel_stop(uint64_t handle);

/* ring.c */
PRIVATE void ring_append(const OpRow *op);

/* transfers.c */
PRIVATE void transfer_sized(const FlowRow *flow, FlowClock *clock, uint32_t chunk);
PRIVATE void transfer_append(const FlowRow *flow, const FlowClock *clock, uint32_t first, uint32_t chunk, int64_t now);

#endif
