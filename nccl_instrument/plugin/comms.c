/* Communicators: joined by init (from many threads at once), left by finalize, found by every start.
 *
 * A row is reused only when no unused one is left, oldest finalized first, so that the agent can still read who a late
 * record belonged to. What a communicator counts beside its row lives in comm_clocks.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "plugin.h"

#define PEERS_WHEN_UNKNOWN 65536
#define PEERS_AT_LEAST 512 /* a page */

CommClock comm_clocks[SEGMENT_COMMS];

static int row_for_joining(void) {
    int oldest = -1;
    for (int row = 0; row < SEGMENT_COMMS; row++) {
        uint32_t state = state_of(LOAD(plugin.comms[row].stamp));
        if (state == ROW_FREE) return row;
        if (state != ROW_DONE) continue;
        if (oldest < 0 || plugin.comms[row].finalized_ns < plugin.comms[oldest].finalized_ns) oldest = row;
    }
    return oldest;
}

/* Powers of two: what a row's outgrown tables take together stays below what its largest takes. */
static uint32_t peers_for(int32_t n_ranks) {
    uint32_t n_peers = n_ranks > 0 ? PEERS_AT_LEAST : PEERS_WHEN_UNKNOWN;
    while (n_ranks > 0 && n_peers < (uint32_t)n_ranks) n_peers *= 2;
    return n_peers;
}

/* The table of per-peer counts is kept for the next communicator of this row: a callback that comes after finalize
 * must still find mapped memory. */
static void clock_reset(CommClock *clock, int32_t n_ranks) {
    uint32_t *numbers = clock->p2p_numbers, n_mapped = clock->n_mapped;
    if (numbers && n_mapped >= peers_for(n_ranks)) {
        madvise(numbers, (size_t)n_mapped * 2 * sizeof *numbers, MADV_DONTNEED);
    } else {
        n_mapped = peers_for(n_ranks);
        void *mapped = mmap(NULL, (size_t)n_mapped * 2 * sizeof *numbers, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        numbers = mapped == MAP_FAILED ? NULL : mapped;
        n_mapped = numbers ? n_mapped : 0;
    }
    memset(clock, 0, sizeof *clock);
    memset(clock->last_seq, 0xFF, sizeof clock->last_seq);
    clock->p2p_numbers = numbers;
    clock->n_mapped = n_mapped;
    clock->n_peers = n_ranks > 0 && (uint32_t)n_ranks < n_mapped ? (uint32_t)n_ranks : n_mapped;
}

static void row_fill(CommRow *row, const CommJoin *join) {
    memset((char *)row + sizeof row->stamp, 0, sizeof *row - sizeof row->stamp);
    row->comm_id = join->comm_id;
    row->comm_rank = join->rank;
    row->n_ranks = join->n_ranks;
    row->n_nodes = join->n_nodes;
    row->abi = join->abi;
    row->transport = join->n_nodes == 1 ? TRANSPORT_NONE : plugin.header->transport;
    row->joined_ns = now_ns();
    row->began_ns = join->began_ns;
    identity_text(row->name, sizeof row->name, join->name);
    identity_gpu(row);
}

static uint64_t row_join(const CommJoin *join) {
    int at = row_for_joining();
    if (at < 0) {
        COUNT(comm_table_full);
        return 0;
    }
    CommRow *row = &plugin.comms[at];
    uint32_t generation = generation_after(LOAD(row->stamp));
    PUBLISH(row->stamp, state_word(generation, ROW_CLAIMED));
    clock_reset(&comm_clocks[at], join->n_ranks);
    row_fill(row, join);
    PUBLISH(row->stamp, state_word(generation, ROW_LIVE));
    plugin.n_comms_alive++;
    STORE(plugin.header->closed, 0);
    STORE(plugin.header->abi, join->abi);
    return handle_make(HANDLE_CONTEXT, generation, (uint32_t)at, 0);
}

uint64_t comm_join(const CommJoin *join) {
    uint64_t context = 0;
    pthread_mutex_lock(&plugin.mutex);
    if (segment_open(join->logger) == 0) {
        COUNT(comms_joined);
        if (!LOAD(plugin.posted_for)) STORE(plugin.posted_for, identity_verbs()); /* progress threads of others read it */
        context = row_join(join);
    }
    pthread_mutex_unlock(&plugin.mutex);
    return context ? context : handle_make(HANDLE_CONTEXT, 0, 0, 1); /* NCCL takes NULL for a failed init */
}

CommRow *comm_find(uint64_t context) {
    uint32_t at = handle_row(context);
    if (handle_kind(context) == HANDLE_CONTEXT && at < SEGMENT_COMMS &&
        ACQUIRE(plugin.comms[at].stamp) == state_word(handle_generation(context), ROW_LIVE))
        return &plugin.comms[at];
    COUNT(bad_contexts);
    return NULL;
}

void comm_leave(uint64_t context) {
    pthread_mutex_lock(&plugin.mutex);
    CommRow *row = plugin.header ? comm_find(context) : NULL;
    if (row) {
        uint32_t at = handle_row(context);
        ops_abandon(at);
        flows_abandon(at);
        STORE(row->finalized_ns, now_ns());
        PUBLISH(row->stamp, state_word(handle_generation(context), ROW_DONE));
        COUNT(comms_finalized);
        if (--plugin.n_comms_alive == 0) STORE(plugin.header->closed, 1);
    }
    pthread_mutex_unlock(&plugin.mutex);
}

uint64_t comm_next_p2p(uint32_t comm, int32_t peer, unsigned direction) {
    CommClock *clock = &comm_clocks[comm];
    if (peer < 0 || (uint32_t)peer >= clock->n_peers) {
        COUNT(p2p_unnumbered);
        return 0;
    }
    return ADD(clock->p2p_numbers[(uint32_t)peer * 2 + direction], 1) + 1;
}

void comm_saw_network(uint32_t comm) {
    CommRow *row = &plugin.comms[comm];
    if (LOAD(row->network_seen)) return;
    STORE(row->network_seen, 1);
    STORE(row->transport, plugin.header->transport); /* was "none" where all ranks share a node */
}
