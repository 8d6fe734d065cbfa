/* A stand-in for NCCL that calls the plugin's tables the way NCCL does, with the quirks of its releases.
 *
 * It needs no GPU and no network: chunks move by a random walk, the callbacks and their threads are what is real. It
 * knows the interface on its own (call.c writes descriptors byte by byte and includes nothing of the plugin's), and
 * counts what it did, so that a test can compare that with what the plugin saw.
 */
#ifndef DIOGENES_DRIVER_H
#define DIOGENES_DRIVER_H

#include <pthread.h>
#include <stdint.h>

#define WINDOW 8
#define CHANNELS 2
#define FLOWS (2 * CHANNELS)
#define CHUNK_BYTES 4096

enum { GROUP = 1, COLL = 2, P2P = 4, PROXY_OP = 8, PROXY_STEP = 16, KERNEL_CH = 64, NET_PLUGIN = 128, GROUP_API = 256,
       COLL_API = 512, P2P_API = 1024 };
enum { SEND_GPU_WAIT = 8, SEND_WAIT = 9, RECV_WAIT = 10, RECV_FLUSH_WAIT = 11, RECV_GPU_WAIT = 12, IN_PROGRESS = 19,
       SEND_PEER_WAIT = 20, KERNEL_CH_STOP = 22 };

/* The profiler under test, whatever its version. */
typedef struct Profiler {
    const char *path;
    int abi;
    void *library;
    void *table;
    int mask;
} Profiler;

typedef struct CommSpec {
    const char *name;
    uint64_t id;
    int n_nodes, n_ranks, rank;
} CommSpec;

typedef struct CollSpec {
    uint64_t seq, count;
    const char *func, *dtype, *algo, *proto;
    int root, channels;
} CollSpec;

typedef struct FlowSpec {
    int pid, channel, peer, n_steps, is_send;
} FlowSpec;

/* What was done, to compare with the plugin's counters; added to atomically. */
typedef struct Did {
    uint64_t ops, flows, polls, repeated_starts, lost_stops, bytes;
} Did;

extern Profiler profiler;
extern Did did;

#define DID(field, n) __atomic_fetch_add(&did.field, (n), __ATOMIC_RELAXED)

/* call.c */
void profiler_load(const char *path, int abi);
void profiler_unload(void);
void *call_init(const CommSpec *comm);
void *call_start(void *context, uint64_t type, void *parent, int rank, const void *body, int body_bytes);
void *call_coll(void *context, void *parent, int rank, const CollSpec *coll, const CommSpec *comm);
void *call_p2p(void *context, void *parent, int rank, const char *func, int peer, const CommSpec *comm);
void *call_api(void *context, int is_coll, int is_graph);
void *call_proxy_op(void *context, void *parent, int rank, const FlowSpec *flow);
void *call_step(void *context, void *flow, int step);
void *call_queue_pair(void *context, void *step, int number);
void *call_kernel(void *context, void *op, int channel);
void call_kernel_stop(void *kernel); /* as NCCL: the GPU's time as a state, then the stop */
void call_stop(void *handle);
void call_record(void *handle, int state, const void *arguments);
void call_size(void *handle, int state, uint64_t size);
void call_report(void *handle, int state, uint64_t size, int steps);
void call_finalize(void *context);
int call_raw_start(void *context, void **handle, const void *descriptor);

/* flow.c: one ProxyOp, moved a little by every poll */
typedef struct Flow {
    FlowSpec spec;
    void *handle, *steps[WINDOW];
    int counters[4];
    int is_offered, is_started; /* GPU data seen ready; step start already called */
    int loses_stops;            /* every third step stop never comes */
    int halt_at[4];             /* stages stop here, -1: never */
    uint64_t size_sum;
    unsigned random;
} Flow;

void flow_open(Flow *flow, void *context, void *op, int rank, const FlowSpec *spec);
int flow_poll(Flow *flow, void *context); /* 1 when every chunk is through */
int flow_chunk_bytes(int step);

/* rank.c: one communicator with its API thread and its progress thread */
typedef struct RankSpec {
    CommSpec comm;
    int n_ops, n_steps, pace_us;
    int halts;       /* the last op never completes */
    int loses_stops; /* NCCL forgets some step stops */
    int is_p2p;
} RankSpec;

void rank_run(const RankSpec *spec, int n_ranks);

/* scripts.c: quirks of NCCL; safety.c: what a trainer does to itself and has done to it */
typedef struct Script {
    const char *name;
    void (*run)(void);
} Script;

extern const Script quirk_scripts[], safety_scripts[], kernel_scripts[]; /* the last has no name */

/* What scripts are made of: the communicator they use, an op, one of its flows, its way to the end, all of it at once. */
extern const CommSpec spread;
void *coll(void *context, uint64_t seq);
Flow flow(void *context, void *op, int is_send, int n_steps);
void run(Flow *moved, void *context);
void whole_op(void *context, uint64_t seq);

void say_ready(const char *what); /* prints the counts as JSON and waits for a line on stdin */

#endif
