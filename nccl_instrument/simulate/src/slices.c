/* What really left a NIC, for whoever compares what is measured with it: when a slice was given to the NIC, and when its last
 * byte left. Of whole steps only, on all ranks; where nobody reads it, it is no longer recorded. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

int64_t sim_slices(struct sim *sim, struct slice_row *rows, int64_t rows_max);

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
    if (!has_room(sim))
        return;
    const struct slot *slot = &link->slots[step % N_SLOTS];
    int64_t acked = sim->settings.is_ib ? left_ns + 2 * sim->settings.latency_ns : left_ns;
    sim->slices[sim->n_slices++] = (struct slice_row){
        .rank = op->row.rank, .group = op->row.group, .place = op->row.place, .peer = link->spec.to,
        .channel = link->spec.channel, .func = op->row.func, .number = op->row.number, .sent_ns = slot->sent_ns,
        .left_ns = left_ns, .acked_ns = acked, .bytes = slot->bytes_sent, .step = step - end->base,
        .iteration = op->row.iteration,
    };
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
