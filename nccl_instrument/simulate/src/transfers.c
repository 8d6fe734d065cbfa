/* The plugin's ring of transfers: one record per chunk sent, written when the proxy notices that it is done. Memory and
 * head are the reader's, so that an agent's own code reads them; the oldest record is overwritten, as in plugin/transfers.c. */
#include <stddef.h>

#include "sim.h"

void sim_transfers(struct sim *sim, struct transfer_row *rows, uint64_t *heads, int64_t n_rows);

/* rows: n_rows, a power of two, of each rank; heads: of each rank, how many were written. */
void sim_transfers(struct sim *sim, struct transfer_row *rows, uint64_t *heads, int64_t n_rows)
{
    sim->transfers = rows;
    sim->transfer_heads = heads;
    sim->transfers_size = (uint64_t)n_rows;
}

/* step: of the link, of the op in front. */
void transfer_keep(struct sim *sim, struct link *link, uint32_t step, int64_t done_ns)
{
    if (sim->transfers == NULL)
        return;
    const struct op_row *op = &sim->ops[sim->proxy_ops[link->send.first].op].row;
    const struct slot *slot = slot_of(link, step);
    uint64_t index = sim->transfer_heads[op->rank]++;
    sim->transfers[(uint64_t)op->rank * sim->transfers_size + (index & (sim->transfers_size - 1))] = (struct transfer_row){
        .stamp = 2 * (index + 1), .comm_id = (uint64_t)op->group, .posted_ns = slot->passed[1][TRANSMITTED],
        .done_ns = done_ns, .op = (uint64_t)op->number, .comm_rank = op->place, .peer = link->spec.to,
        .bytes = slot->bytes_sent, .step = step - link->send.base, .qpn = (uint32_t)(link - sim->links) + 1,
        .channel = (uint8_t)link->spec.channel, .is_p2p = (op->flags & OP_P2P) != 0,
    };
}
