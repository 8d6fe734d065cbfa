/* What a rank knows of its job before it starts: the layout, the communicators and the sizes, read from the text file
 * that the orchestrator writes. One place, so that every rank enumerates connections in the same order. */
#ifndef DG_JOB_H
#define DG_JOB_H

#include <stdint.h>

#define MAX_RANKS 64
#define MAX_COMMS 160
#define MAX_CHANNELS 4

enum comm_kind { COMM_WORLD, COMM_TP, COMM_DP, COMM_PP };

struct rank_spec {
    int node, nic;
    char address[64];
    char device[32]; /* "-" when the socket is not bound to a device */
};

struct comm_spec {
    enum comm_kind kind;
    char name[48];
    uint64_t hash;
    int n_ranks;
    int members[MAX_RANKS];
};

struct job {
    char name[64];
    uint64_t seed;
    int n_ranks, n_nics, n_channels, n_comms;
    int is_paced;      /* links are paced by the transport, not by the kernel */
    int is_ib;         /* transport: IB, else Socket */
    int n_microbatches, n_buckets;
    uint64_t forward_ns, backward_ns, optimizer_ns, jitter_ppm;
    uint64_t tp_bytes, pp_bytes, dp_bytes, world_bytes;
    uint64_t copy_bytes_per_s, node_copy_bytes_per_s;
    uint64_t sweep_bytes_max; /* 0: train; else measure bandwidths (sweep.h) */
    uint64_t sweep_series_bytes, sweep_series_ops;
    struct rank_spec ranks[MAX_RANKS];
    struct comm_spec comms[MAX_COMMS];
};

/* Returns 0, or -1 with a sentence on stderr. */
int job_read(struct job *job, const char *path);
int comm_rank_of(const struct comm_spec *comm, int rank);
int comm_n_nodes(const struct job *job, const struct comm_spec *comm);

#endif
