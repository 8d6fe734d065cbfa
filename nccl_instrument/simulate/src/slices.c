/* Records of transfers, as Pulse's NIC agent sees them: when a slice was given to the NIC, and when its last byte left it.
 * They are made for whole steps only, on all ranks, and are lost (and counted) where nobody reads them. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

void sim_unsent(struct sim *sim, const int32_t *ranks, int64_t n_ranks, int64_t *since_ns);
int64_t sim_slices(struct sim *sim, struct slice_row *rows, int64_t rows_max);
int64_t sim_slices_lost(const struct sim *sim);

static int has_room(struct sim *sim)
{
    if (sim->n_slices < sim->slices_size)
        return 1;
    if (sim->slices_size >= sim->settings.slices_max)
        return 0;
    sim->slices_size = largest(4096, sim->slices_size * 2);
    if (sim->slices_size > sim->settings.slices_max)
        sim->slices_size = sim->settings.slices_max;
    sim->slices = realloc(sim->slices, (size_t)sim->slices_size * sizeof *sim->slices);
    if (sim->slices == NULL)
        abort();
    return 1;
}

/* step: of the link. A slice belongs to the op in front: the next one sends nothing before this one's last is acknowledged. */
void slice_keep(struct sim *sim, const struct link *link, uint32_t step, int64_t left_ns)
{
    const struct end *end = &link->send;
    if (sim->settings.slices_every == 0 || end->first == NONE)
        return;
    const struct op *op = &sim->ops[sim->proxy_ops[end->first].op];
    if (op->row.iteration % sim->settings.slices_every != 0)
        return;
    if (!has_room(sim)) {
        sim->n_slices_lost++;
        return;
    }
    const struct slot *slot = &link->slots[step % N_SLOTS];
    int64_t acked = sim->settings.is_ib ? left_ns + 2 * sim->settings.latency_ns : left_ns;
    sim->slices[sim->n_slices++] = (struct slice_row){
        .rank = op->row.rank, .group = op->row.group, .place = op->row.place, .peer = link->spec.to,
        .channel = link->spec.channel, .func = op->row.func, .number = op->row.number, .sent_ns = slot->sent_ns,
        .left_ns = left_ns, .acked_ns = acked, .bytes = slot->bytes_sent, .step = step - end->base,
        .iteration = op->row.iteration,
    };
}

/* From when on a rank's transfers may be missing among the records: it has given one to its NIC that has not begun yet. */
void sim_unsent(struct sim *sim, const int32_t *ranks, int64_t n_ranks, int64_t *since_ns)
{
    for (int64_t r = 0; r < n_ranks; r++) {
        since_ns[r] = sim->now;
        for (int32_t i = sim->rank_ends_first[ranks[r]]; i < sim->rank_ends_first[ranks[r] + 1]; i++) {
            struct link *link = &sim->links[sim->rank_ends[i] / 2];
            if (sim->rank_ends[i] % 2 || link->n_started == link->n_sent)
                continue;
            int64_t sent_ns = slot_of(link, link->n_started)->sent_ns;
            since_ns[r] = sent_ns < since_ns[r] ? sent_ns : since_ns[r];
        }
    }
}

/* Transfers since the last call, in the order in which the NICs took them. rows may be NULL to ask how many there are. */
int64_t sim_slices(struct sim *sim, struct slice_row *rows, int64_t rows_max)
{
    int64_t n = sim->n_slices;
    if (rows == NULL || n == 0)
        return n;
    n = n < rows_max ? n : rows_max;
    memcpy(rows, sim->slices, (size_t)n * sizeof *rows);
    memmove(sim->slices, sim->slices + n, (size_t)(sim->n_slices - n) * sizeof *rows);
    sim->n_slices -= n;
    return n;
}

int64_t sim_slices_lost(const struct sim *sim)
{
    return sim->n_slices_lost;
}
