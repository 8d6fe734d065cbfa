/* One rank of the job: its communicators, its modelled GPU and its proxy. The structs that more than one file touches
 * are here; each file below owns the functions of one part. */
#ifndef DG_RANK_H
#define DG_RANK_H

#include <pthread.h>

#include "control_page.h"
#include "fifo.h"
#include "job.h"
#include "profiler.h"

#define N_STREAMS 3
#define MAIN_BELL N_STREAMS /* bells of a rank: one per stream, then the main thread's */
#define N_BELLS (N_STREAMS + 1)

enum stream_id { STREAM_COMPUTE, STREAM_DP, STREAM_PP };
enum op_func { OP_BROADCAST, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_SEND, OP_RECV, N_FUNCS };

/* Which op it is. number: among the collectives of its communicator, or the sends or receives with that peer; ordinal: among
 * all that the rank enqueued. */
struct call {
    uint64_t number, ordinal;
    int is_p2p;
};

/* One end of a network connection: (communicator, channel, peer, direction). */
struct flow {
    struct comm *comm;
    int channel, peer, is_send, fd;
    int peer_global, nic, peer_nic;
    struct link link;
    struct proxy_op *first, *last; /* ops in order; only the first makes progress */
    uint32_t base;                 /* slices of all earlier ops */
    struct transport *transport;
};

struct comm {
    struct comm_spec spec;
    struct profiled_comm profiled;
    int me; /* own rank inside */
    enum stream_id stream;
    int ring[MAX_CHANNELS][MAX_RANKS];      /* comm ranks in ring order */
    int ring_position[MAX_CHANNELS];        /* own place in it */
    struct link *to_next[MAX_CHANNELS];
    struct link *from_previous[MAX_CHANNELS];
    struct link *to_peer[MAX_CHANNELS][2];  /* p2p: 0 = previous stage, 1 = next stage */
    struct link *from_peer[MAX_CHANNELS][2];
    uint64_t func_seq[N_FUNCS];             /* NCCL's seqNumber: per communicator and function */
    uint64_t n_colls;
    uint64_t n_p2p[2][2];                   /* by direction and neighbour */
    float *send_buffer, *recv_buffer;
};

struct rank {
    struct job job;
    int rank, node;
    struct job_page *job_page;
    struct rank_page *page;
    struct nic_page *nics;
    struct bell *bells; /* all ranks' bells, N_BELLS each */
    struct comm *comms;
    int n_comms;
    struct flow *flows;
    int n_flows;
    struct gpu *gpu;
    struct proxy *proxy;
    struct sent_log *sent; /* NULL: none is kept */
    int skips_checks; /* ops enqueued now are neither filled nor checked */
};

struct bell *rank_bell(struct rank *self, int rank, int which);
struct nic_page *rank_nic(struct rank *self, int nic);
void rank_set_state(struct rank *self, enum rank_state state);
/* Ends the process at once with a sentence: wrong data must stop the job, not be trained on. */
_Noreturn void rank_fail(struct rank *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* topology.c: communicators, rings, connections. Flows are created here and connected by transport.c. */
int topology_build(struct rank *self, int exchange_fd);

#endif
