/* The ring algorithms (collectives.h). A chunk is two slices of one 64 KiB buffer each for the three reducing and
 * gathering ops, and a single slice for Broadcast and p2p, as in NCCL's Simple protocol (inside a node: one). */
#define _GNU_SOURCE
#include "collectives.h"

#include <string.h>

#define SLICE_ELEMENTS (SLOT_BYTES / sizeof(float))
#define CHUNK_ELEMENTS(walk) ((uint64_t)(walk)->lane->slices_per_action * SLICE_ELEMENTS)

struct ring_walk {
    struct lane *lane;
    const int *ring;
    int position, n;
    uint64_t n_per_rank; /* elements of one rank's block in the gathered buffer */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int rank_behind(const struct ring_walk *walk, int j)
{
    return walk->ring[(walk->position + walk->n - j) % walk->n];
}

/* One loop of AllReduce over n chunks of `chunk` elements that start at `from`; the last ones may be short or empty. */
static void all_reduce_loop(const struct ring_walk *walk, uint64_t from, uint64_t chunk, uint64_t end)
{
    int n = walk->n;
    for (int j = 1; j < 2 * n; j++) {
        uint64_t offset = least(from + (uint64_t)((walk->position + 2 * n - j) % n) * chunk, end);
        uint64_t size = least(chunk, end - offset);
        int flags = j == 1 ? A_INPUT | A_SEND : j < n ? A_RECV | A_INPUT | A_SEND : A_RECV | A_STORE | A_SEND;
        if (j == n)
            flags |= A_INPUT;
        if (j == 2 * n - 1)
            flags = A_RECV | A_STORE;
        lane_add(walk->lane, flags, offset, offset, size);
    }
}

static void add_all_reduce(const struct ring_walk *walk, uint64_t from, uint64_t end)
{
    uint64_t n = (uint64_t)walk->n;
    while (from < end) {
        uint64_t chunk = least(CHUNK_ELEMENTS(walk), (end - from + n - 1) / n);
        all_reduce_loop(walk, from, chunk, end);
        from += n * chunk;
    }
}

static void add_reduce_scatter(const struct ring_walk *walk, uint64_t from, uint64_t end)
{
    for (uint64_t size; from < end; from += size) {
        size = least(CHUNK_ELEMENTS(walk), end - from);
        for (int j = 1; j <= walk->n; j++) {
            uint64_t block = (uint64_t)rank_behind(walk, j) * walk->n_per_rank;
            int flags = j == 1 ? A_INPUT | A_SEND : A_RECV | A_INPUT | (j == walk->n ? A_STORE : A_SEND);
            lane_add(walk->lane, flags, block + from, from, size);
        }
    }
}

static void add_all_gather(const struct ring_walk *walk, uint64_t from, uint64_t end)
{
    for (uint64_t size; from < end; from += size) {
        size = least(CHUNK_ELEMENTS(walk), end - from);
        for (int j = 0; j < walk->n; j++) {
            uint64_t block = (uint64_t)rank_behind(walk, j) * walk->n_per_rank;
            int flags = (j == 0 ? A_INPUT : A_RECV) | A_STORE | (j == walk->n - 1 ? 0 : A_SEND);
            lane_add(walk->lane, flags, from, block + from, size);
        }
    }
}

static void add_broadcast(const struct ring_walk *walk, uint64_t from, uint64_t end, int root)
{
    int is_first = walk->ring[walk->position] == root;
    int is_last = walk->ring[(walk->position + 1) % walk->n] == root;
    for (uint64_t size; from < end; from += size) {
        size = least(SLICE_ELEMENTS, end - from);
        int flags = (is_first ? A_INPUT : A_RECV) | A_STORE | (is_last ? 0 : A_SEND);
        lane_add(walk->lane, flags, from, from, size);
    }
}

/* Channels share an op's elements in contiguous parts. */
static uint64_t part_start(uint64_t n, int channel, int n_channels)
{
    return n * (uint64_t)channel / (uint64_t)n_channels;
}

void collective_add_lanes(struct kernel *kernel, struct comm *comm, int n_channels, enum op_func func, uint64_t n,
                          int root)
{
    /* Nobody sees slices inside a node; half as many wake-ups then. */
    int is_inside_node = comm->profiled.n_nodes == 1;
    for (int channel = 0; channel < n_channels; channel++) {
        struct lane *lane = kernel_add_lane(kernel, comm->from_previous[channel], comm->to_next[channel],
                                            func == OP_BROADCAST || is_inside_node ? 1 : 2);
        struct ring_walk walk = {.lane = lane, .ring = comm->ring[channel], .position = comm->ring_position[channel],
                                 .n = comm->spec.n_ranks, .n_per_rank = n};
        uint64_t from = part_start(n, channel, n_channels), end = part_start(n, channel + 1, n_channels);
        lane->input = comm->send_buffer;
        lane->output = comm->recv_buffer;
        if (func == OP_ALL_REDUCE)
            add_all_reduce(&walk, from, end);
        else if (func == OP_REDUCE_SCATTER)
            add_reduce_scatter(&walk, from, end);
        else if (func == OP_ALL_GATHER)
            add_all_gather(&walk, from, end);
        else
            add_broadcast(&walk, from, end, root);
    }
}

void p2p_add_lanes(struct kernel *kernel, struct comm *comm, int n_channels, enum op_func func, uint64_t n,
                   int neighbour)
{
    for (int channel = 0; channel < n_channels; channel++) {
        int is_send = func == OP_SEND;
        struct lane *lane = kernel_add_lane(kernel, is_send ? NULL : comm->from_peer[channel][neighbour],
                                            is_send ? comm->to_peer[channel][neighbour] : NULL, 1);
        uint64_t from = part_start(n, channel, n_channels), end = part_start(n, channel + 1, n_channels);
        lane->input = comm->send_buffer;
        lane->output = comm->recv_buffer;
        for (uint64_t size; from < end; from += size) {
            size = least(SLICE_ELEMENTS, end - from);
            lane_add(lane, is_send ? A_INPUT | A_SEND : A_RECV | A_STORE, from, from, size);
        }
    }
}
