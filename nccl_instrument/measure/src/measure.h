/*
 * Bytes per queue pair and epoch (Pulse §4.2): what a network card's own processor would keep, fed by whatever sees
 * transfers. Three layers:
 *
 *   aggregation   transfers ──▶ an event per AGGREGATED bytes of a queue pair
 *   measurement   event ──▶ table[queue pair] ──▶ flow ──▶ chunk of epochs, taken from a pool when bytes come
 *   collection    once a poll: non-empty epochs out, flows that stayed silent aged, their memory back in the pool
 *
 * Nothing is lost: what does not fit is counted, bytes below one unit are carried to the next event, and every flow's
 * exact total is reported beside its epochs. One unit is fed by any number of threads, and none of them ever waits: who
 * finds a flow taken, by a poll or another thread, leaves the transfer in a bounded queue for the next poll.
 */
#ifndef DG_MEASURE_H
#define DG_MEASURE_H

#include <stdint.h>

#define DGM_QPN_BITS 24
#define DGM_UNIT_BYTES 32u
#define DGM_CHUNK_EPOCHS 128u

struct dgm;

struct dgm_settings {
    uint32_t epoch_ns;       /* 8,000 to 1,000,000 */
    uint32_t aggregated;     /* bytes of a queue pair per event; 0: every transfer is an event */
    uint64_t poll_ns;        /* between two polls; twice as much is kept */
    uint32_t flows_max;
    uint64_t pool_bytes_max; /* of epochs; the table is not counted */
};

/* A flow in a poll's answer; its cells follow those of the flows before it. */
struct dgm_flow {
    uint32_t qpn;
    uint32_t n_cells;
    uint64_t bytes; /* exact, since the poll before */
};

/*
 * A non-empty epoch in four bytes: how many epochs after the flow's cell before it (of the first: after the poll's first epoch), and
 * bytes in units (dgm_unit_bytes). A cell without bytes only bridges a longer pause.
 */
struct dgm_cell {
    uint16_t skip;
    uint16_t units;
};

struct dgm_counts {
    uint64_t transfers, events, bytes;
    uint64_t lost_bytes;      /* no room for the flow or its epochs: in no cell, though in its flow's total if it has one */
    uint64_t flows_refused;   /* events of flows beyond flows_max */
    uint64_t late_events;     /* older than the last poll: put into the first epoch after it */
    uint64_t early_events;    /* beyond what is kept because nobody polled: put into the last epoch kept */
    uint64_t flows_aged;
    uint64_t bad_qpns;
    uint64_t pool_bytes, flows;
    uint64_t handed_over;     /* transfers that found their flow taken and waited for the next poll */
    uint64_t handed_lost;     /* and those for which there was no room to wait; in lost_bytes */
};

/* NULL when memory is short or a setting cannot be. start_ns: the clock's reading at epoch 0. */
struct dgm *dgm_create(const struct dgm_settings *settings, uint64_t start_ns);
void dgm_destroy(struct dgm *m);

/* A queue pair handed `bytes` to the wire at now_ns. Any thread; takes no lock, allocates nothing, calls nobody. */
void dgm_transfer(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes);

struct dgm_sent {
    uint64_t now_ns, bytes;
    uint32_t qpn;
};

/* dgm_transfer for each of n, in order: cheaper, as the memory of the next ones is on its way meanwhile. */
void dgm_transfers(struct dgm *m, const struct dgm_sent *sent, uint32_t n);

/* Bytes per unit of a cell: 32, more where epochs are so long that two bytes could not count them. */
uint32_t dgm_unit_bytes(const struct dgm *m);

/*
 * One thread at a time. Ends the poll period at now_ns: writes flows and cells, ages flows that sent nothing since the last poll. Takes one
 * flow after the other, each for as long as its chunks change hands, so that feeding goes on; what a flow is fed until its turn comes is in
 * this answer. Returns 0, and *n_flows and *n_cells say how many there are; or -1 when either array is too small, and they say how much
 * room is needed; then nothing is taken. A flow that outgrew the room since it was counted is left for the next poll. *first_epoch: what
 * the cells' epochs count from. An epoch that two polls share has a cell in both.
 */
int dgm_poll(struct dgm *m, uint64_t now_ns, uint64_t *first_epoch, struct dgm_flow *flows, uint32_t *n_flows,
             struct dgm_cell *cells, uint64_t *n_cells);

/* By the thread that polls. */
void dgm_counts(struct dgm *m, struct dgm_counts *counts);

#endif
