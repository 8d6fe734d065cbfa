/* Builds a rank's communicators and connections. All ranks walk communicators, channels and ring places in the same
 * order, so the n-th connection inside a node lands on the same buffers of the shared exchange in both processes.
 * Even channels run the ring forwards, odd ones backwards: each NIC then sends and receives in every ring op. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rank.h"

struct walk {
    struct rank *self;
    uint8_t *exchange;
    size_t n_exchange; /* buffers of connections inside nodes, counted over the whole job */
};

static size_t bells_bytes(const struct job *job)
{
    size_t bytes = sizeof(struct bell) * N_BELLS * (size_t)job->n_ranks;
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static struct link *make_node_link(struct walk *walk, struct comm *comm, int far_rank)
{
    struct link *link = calloc(1, sizeof *link);
    link->fifo = (struct fifo *)(walk->exchange + bells_bytes(&walk->self->job)) + walk->n_exchange;
    link->far_bell = rank_bell(walk->self, far_rank, comm->stream);
    return link;
}

static struct link *make_flow(struct walk *walk, struct comm *comm, int channel, int peer, int is_send)
{
    struct rank *self = walk->self;
    struct flow *flow = &self->flows[self->n_flows++];
    flow->comm = comm;
    flow->channel = channel;
    flow->peer = peer;
    flow->is_send = is_send;
    flow->fd = -1;
    flow->peer_global = comm->spec.members[peer];
    flow->nic = self->job.ranks[self->rank].nic;
    flow->peer_nic = self->job.ranks[flow->peer_global].nic;
    flow->link.fifo = aligned_alloc(4096, sizeof(struct fifo));
    atomic_store(&flow->link.fifo->tail, 0);
    atomic_store(&flow->link.fifo->head, 0);
    flow->link.flow = flow;
    return &flow->link;
}

/* The own end of the connection src → dst, or NULL when this rank is neither; counts the exchange either way. */
static struct link *connect_pair(struct walk *walk, struct comm *comm, const struct comm_spec *spec, int channel,
                                 int src, int dst)
{
    struct rank *self = walk->self;
    int from = spec->members[src], to = spec->members[dst];
    int is_inside = self->job.ranks[from].node == self->job.ranks[to].node;
    struct link *link = NULL;
    if (from == self->rank || to == self->rank) {
        int is_send = from == self->rank;
        link = is_inside ? make_node_link(walk, comm, is_send ? to : from)
                         : make_flow(walk, comm, channel, is_send ? dst : src, is_send);
    }
    walk->n_exchange += (size_t)is_inside;
    return link;
}

static void connect_ring(struct walk *walk, struct comm *comm, const struct comm_spec *spec, int channel)
{
    int n = spec->n_ranks;
    for (int position = 0; position < n; position++) {
        int src = channel % 2 == 0 ? position : n - 1 - position;
        int dst = channel % 2 == 0 ? (src + 1) % n : (src + n - 1) % n;
        struct link *link = connect_pair(walk, comm, spec, channel, src, dst);
        if (comm == NULL)
            continue;
        comm->ring[channel][position] = src;
        if (src == comm->me) {
            comm->ring_position[channel] = position;
            comm->to_next[channel] = link;
        } else if (dst == comm->me) {
            comm->from_previous[channel] = link;
        }
    }
}

static void connect_stages(struct walk *walk, struct comm *comm, const struct comm_spec *spec, int channel)
{
    for (int stage = 0; stage + 1 < spec->n_ranks; stage++) {
        struct link *forward = connect_pair(walk, comm, spec, channel, stage, stage + 1);
        struct link *backward = connect_pair(walk, comm, spec, channel, stage + 1, stage);
        if (comm != NULL && stage == comm->me) {
            comm->to_peer[channel][1] = forward;
            comm->from_peer[channel][1] = backward;
        } else if (comm != NULL && stage + 1 == comm->me) {
            comm->from_peer[channel][0] = forward;
            comm->to_peer[channel][0] = backward;
        }
    }
}

static size_t largest_buffer(const struct job *job, const struct comm_spec *spec)
{
    switch (spec->kind) {
    case COMM_TP:
        return job->tp_bytes;
    case COMM_DP:
        return job->dp_bytes;
    case COMM_PP:
        return job->pp_bytes;
    default:
        return job->world_bytes;
    }
}

static struct comm *add_comm(struct rank *self, const struct comm_spec *spec)
{
    static const enum stream_id STREAM_OF[] = {STREAM_COMPUTE, STREAM_COMPUTE, STREAM_DP, STREAM_PP};
    struct comm *comm = &self->comms[self->n_comms++];
    size_t bytes = largest_buffer(&self->job, spec) + 4096;
    comm->spec = *spec;
    comm->me = comm_rank_of(spec, self->rank);
    comm->stream = STREAM_OF[spec->kind];
    comm->send_buffer = calloc(1, bytes);
    comm->recv_buffer = calloc(1, bytes);
    comm->profiled = (struct profiled_comm){.name = comm->spec.name, .hash = spec->hash, .rank = comm->me,
                                            .n_ranks = spec->n_ranks, .n_nodes = comm_n_nodes(&self->job, spec)};
    return comm;
}

static void walk_comms(struct walk *walk)
{
    struct rank *self = walk->self;
    for (int i = 0; i < self->job.n_comms; i++) {
        const struct comm_spec *spec = &self->job.comms[i];
        struct comm *comm = comm_rank_of(spec, self->rank) >= 0 ? add_comm(self, spec) : NULL;
        for (int channel = 0; channel < self->job.n_channels; channel++) {
            if (spec->kind == COMM_PP)
                connect_stages(walk, comm, spec, channel);
            else
                connect_ring(walk, comm, spec, channel);
        }
    }
}

static size_t count_exchange(const struct job *job)
{
    size_t n = 0;
    for (int i = 0; i < job->n_comms; i++)
        n += (size_t)job->comms[i].n_ranks * 2 * (size_t)job->n_channels;
    return n;
}

/* The exchange is sparse memory: an upper bound costs nothing, and every rank computes the same one. */
int topology_build(struct rank *self, int exchange_fd)
{
    size_t bytes = bells_bytes(&self->job) + count_exchange(&self->job) * sizeof(struct fifo);
    if (ftruncate(exchange_fd, (off_t)bytes) != 0)
        return -1;
    void *exchange = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, exchange_fd, 0);
    if (exchange == MAP_FAILED)
        return -1;
    struct walk walk = {.self = self, .exchange = exchange};
    self->bells = exchange;
    self->comms = calloc(MAX_COMMS, sizeof *self->comms);
    self->flows = calloc((size_t)self->job.n_comms * 4 * MAX_CHANNELS, sizeof *self->flows);
    walk_comms(&walk);
    return 0;
}
