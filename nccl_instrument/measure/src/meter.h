/*
 * What a meter keeps, for the files that make it (measure.c), feed it (posting.c) and poll it (collection.c). What an event reads and
 * writes lies in three cache lines: one of the table, the flow's own, and the one its epoch is in.
 */
#ifndef DG_METER_H
#define DG_METER_H

#include "divide.h"
#include "free_rows.h"
#include "handed.h"
#include "measure.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LINE 64
#define TABLE_ENTRIES (1u << DGM_QPN_BITS)
#define NONE 0u
#define IS_USED 0x80000000u                 /* beside a flow's queue pair; a free flow has neither */
#define NO_EPOCH (UINT64_C(1) << 63)        /* later than any, so that none is in the chunk that begins there */

struct chunk {
    uint16_t units[DGM_CHUNK_EPOCHS];
};

struct flow {
    alignas(LINE) atomic_flag busy;
    uint16_t carried;       /* bytes of events below one unit */
    _Atomic uint32_t owner; /* IS_USED | queue pair; written by who has the flow locked */
    uint32_t waiting;       /* bytes of transfers that are no event yet: fewer than make one */
    uint32_t n_cells;       /* epochs that are not empty */
    uint64_t bytes;         /* since the last poll */
    uint64_t last_ns;
    uint64_t transfers, events; /* until the flow is aged */
    _Atomic(uint16_t *) units;    /* of the chunk that the newest event fell into */
    _Atomic uint64_t units_epoch; /* its first epoch, or NO_EPOCH; both are also read by who does not hold the flow, as a guess */
};
_Static_assert(sizeof(struct flow) == LINE, "an event touches one line of its flow");

/* What an event needs of its flow only when it falls into another chunk than the one before it. */
struct period {
    uint64_t base;    /* its first epoch */
    uint32_t n_used;  /* chunks up to the last one taken */
    uint32_t *chunks; /* n_chunks numbers + 1 of chunks, 0 where nothing came */
};

struct dgm {
    struct dgm_settings settings;
    uint64_t start_ns;
    uint32_t unit_bytes, n_chunks;
    struct divisor by_epoch, by_unit;
    _Atomic uint32_t *table; /* queue pair → flow + 1 */
    struct flow *flows;
    struct period *periods; /* of each flow */
    struct chunk *pool;     /* pages that were never taken are no memory */
    uint32_t *chunk_numbers, *taken_chunks; /* all flows'; n_chunks for the flow that a poll takes */
    uint64_t pool_bytes;
    _Atomic uint64_t base_epoch; /* where the period of a new flow begins */
    struct free_rows free_flows, free_chunks;
    struct handed handed;
    alignas(LINE) _Atomic uint64_t transfers, events, bytes, lost_bytes, flows_refused, late_events, early_events, flows_aged, bad_qpns,
        n_flows, handed_over, handed_lost;
};

static inline bool try_lock(atomic_flag *flag) { return !atomic_flag_test_and_set_explicit(flag, memory_order_acquire); }

static inline void unlock(atomic_flag *flag) { atomic_flag_clear_explicit(flag, memory_order_release); }

/* For who polls and counts alone: threads that post hold a flow for some tens of nanoseconds, and may be sent to sleep meanwhile. */
static inline void lock(atomic_flag *flag) {
    for (uint32_t tries = 1; !try_lock(flag); tries++)
        if (tries % 64 == 0)
            sched_yield();
}

static inline void add(_Atomic uint64_t *count, uint64_t n) { atomic_fetch_add_explicit(count, n, memory_order_relaxed); }

static inline uint32_t owner_of(const struct flow *flow) { return atomic_load_explicit(&flow->owner, memory_order_relaxed); }

static inline uint16_t *units_of(const struct flow *flow) { return atomic_load_explicit(&flow->units, memory_order_relaxed); }

static inline uint64_t units_epoch_of(const struct flow *flow) {
    return atomic_load_explicit(&flow->units_epoch, memory_order_relaxed);
}

/* NULL, NO_EPOCH: none. */
static inline void set_units(struct flow *flow, uint16_t *units, uint64_t epoch) {
    atomic_store_explicit(&flow->units, units, memory_order_relaxed);
    atomic_store_explicit(&flow->units_epoch, epoch, memory_order_relaxed);
}

static inline uint32_t n_flows_made(const struct dgm *m) {
    return atomic_load_explicit(&m->free_flows.n_made, memory_order_relaxed);
}

static inline uint64_t epoch_of(const struct dgm *m, uint64_t now_ns) {
    uint64_t since_ns = now_ns > m->start_ns ? now_ns - m->start_ns : 0;
    return divided(since_ns < NO_EPOCH ? since_ns : NO_EPOCH - 1, &m->by_epoch);
}

/* posting.c, for polls: the bytes that were no event become one; a transfer that was handed over. The flow is locked. */
void dgm_record_waiting(struct dgm *m, struct flow *flow);
void dgm_enter_handed(struct dgm *m, const struct transfer *transfer);

#endif
