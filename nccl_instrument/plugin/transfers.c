/* Transfers: one record per chunk sent, in an overwrite ring that progress threads append to without waiting.
 *
 * As with completion records (ring.c), a writer takes the next number and claims its row by an odd stamp; a row somebody is
 * still writing costs the record and is counted. The reader finds out by the stamps what it missed.
 */
#include "plugin.h"

/* The chunk has been handed to the network: how large it is, is known by the flow's bytes alone with every interface. */
void transfer_sized(const FlowRow *flow, FlowClock *clock, uint32_t chunk) {
    uint64_t bytes = LOAD(flow->bytes) - clock->size_sent;
    clock->size_sent = LOAD(flow->bytes);
    clock->sizes[chunk % NCCL_STEPS] = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static uint32_t size_of(const FlowClock *clock, uint32_t first, uint32_t chunk) {
    uint64_t bytes = 0;
    for (uint32_t at = chunk - first < NCCL_STEPS ? first : chunk + 1 - NCCL_STEPS; at <= chunk; at++)
        bytes += clock->sizes[at % NCCL_STEPS];
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static int row_claim(TransferRow *row, uint64_t stamp) {
    uint64_t seen = ACQUIRE(row->stamp);
    if ((seen & 1) || seen >= stamp) return 0;
    return __atomic_compare_exchange_n(&row->stamp, &seen, stamp - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Chunks first to chunk are done: more than one where the stops of some were lost. */
void transfer_append(const FlowRow *flow, const FlowClock *clock, uint32_t first, uint32_t chunk, int64_t now) {
    if (!plugin.n_transfers || !flow->comm_id) return;
    uint64_t index = ADD(plugin.header->transfer_head, 1), stamp = 2 * (index + 1);
    TransferRow *row = &plugin.transfers[index & (plugin.n_transfers - 1)];
    if (!row_claim(row, stamp)) {
        COUNT(transfers_busy);
        return;
    }
    STORE(row->comm_id, flow->comm_id);
    STORE(row->posted_ns, clock->passed[STAGE_TRANSMITTED][chunk % NCCL_STEPS]);
    STORE(row->done_ns, now);
    STORE(row->op, flow->op);
    STORE(row->comm_rank, flow->comm_rank);
    STORE(row->peer, flow->peer);
    STORE(row->bytes, size_of(clock, first, chunk));
    STORE(row->step, chunk);
    STORE(row->qpn, LOAD(flow->qpn));
    STORE(row->channel, flow->channel);
    STORE(row->is_p2p, (uint8_t)((LOAD(flow->flags) & OP_P2P) != 0));
    PUBLISH(row->stamp, stamp);
}
