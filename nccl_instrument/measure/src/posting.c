/* Aggregation and measurement (measure.h): what every transfer goes through. Nobody waits here, and nothing is allocated. */
#define _GNU_SOURCE
#include "meter.h"

#define AHEAD 8u         /* transfers of a burst whose memory is asked for before it is needed */
#define RUN_MAX 64u      /* transfers of a burst for which a flow is held at once */

#define LIKELY(is) __builtin_expect(!!(is), 1)

/* All zero: a chunk is cleaned by who gives it back. NULL: there is none. */
static struct chunk *chunk_at(struct dgm *m, struct period *period, uint64_t at) {
    if (!period->chunks[at]) {
        period->chunks[at] = free_rows_take(&m->free_chunks);
        if (!period->chunks[at])
            return NULL;
        if (at >= period->n_used)
            period->n_used = (uint32_t)at + 1;
    }
    return &m->pool[period->chunks[at] - 1];
}

/* The epoch of the flow's period into which bytes of this one go. */
static uint64_t kept_epoch(struct dgm *m, uint64_t epoch, uint64_t base, uint64_t last) {
    if (epoch < base) {
        add(&m->late_events, 1);
        return base;
    }
    if (epoch > last) {
        add(&m->early_events, 1);
        return last;
    }
    return epoch;
}

/* Any units into any epoch. */
static __attribute__((noinline)) void put_anywhere(struct dgm *m, struct flow *flow, uint64_t epoch, uint64_t units) {
    struct period *period = &m->periods[flow - m->flows];
    uint64_t last = period->base + (uint64_t)m->n_chunks * DGM_CHUNK_EPOCHS - 1;
    for (epoch = kept_epoch(m, epoch, period->base, last); units; epoch++) {
        uint64_t at = (epoch - period->base) / DGM_CHUNK_EPOCHS;
        struct chunk *chunk = epoch <= last ? chunk_at(m, period, at) : NULL;
        if (!chunk) {
            add(&m->lost_bytes, units * m->unit_bytes);
            return;
        }
        set_units(flow, chunk->units, period->base + at * DGM_CHUNK_EPOCHS);
        uint16_t *cell = &chunk->units[(epoch - period->base) % DGM_CHUNK_EPOCHS];
        uint64_t room = (uint64_t)UINT16_MAX - *cell;
        uint64_t put = units < room ? units : room;
        flow->n_cells += !*cell && put;
        *cell = (uint16_t)(*cell + put);
        units -= put; /* More than the wire can have moved in one epoch was handed over at once: it went on in the next. */
    }
}

/* Measurement layer: bytes into the epoch of now_ns. The flow is locked. */
static inline void record(struct dgm *m, struct flow *flow, uint64_t now_ns, uint64_t bytes) {
    uint64_t all = flow->carried + bytes, units = divided(all, &m->by_unit);
    flow->carried = (uint16_t)(all - units * m->unit_bytes);
    flow->events++;
    uint64_t epoch = epoch_of(m, now_ns), at = epoch - units_epoch_of(flow);
    if (LIKELY(at < DGM_CHUNK_EPOCHS)) {
        uint16_t *cell = &units_of(flow)[at];
        if (LIKELY(units <= (uint64_t)UINT16_MAX - *cell)) {
            flow->n_cells += !*cell && units;
            *cell = (uint16_t)(*cell + units);
            return;
        }
    }
    put_anywhere(m, flow, epoch, units);
}

void dgm_record_waiting(struct dgm *m, struct flow *flow) {
    if (flow->waiting)
        record(m, flow, flow->last_ns, flow->waiting);
    flow->waiting = 0;
}

/* Aggregation layer. The flow is locked. */
static inline void enter(struct dgm *m, struct flow *flow, uint64_t now_ns, uint64_t bytes) {
    flow->transfers++;
    flow->bytes += bytes;
    flow->last_ns = now_ns;
    uint64_t waiting = flow->waiting + bytes;
    bool is_event = waiting >= m->settings.aggregated;
    flow->waiting = is_event ? 0 : (uint32_t)waiting;
    if (is_event)
        record(m, flow, now_ns, waiting);
}

static void refuse(struct dgm *m, uint64_t bytes) {
    add(&m->transfers, 1);
    add(&m->bytes, bytes);
    add(&m->lost_bytes, bytes);
}

/* For the next poll to enter. Bounded: what finds no place is lost and counted. */
static void hand_over(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    if (handed_put(&m->handed, &(struct transfer){.now_ns = now_ns, .bytes = bytes, .qpn = qpn})) {
        add(&m->handed_over, 1);
        return;
    }
    add(&m->handed_lost, 1);
    refuse(m, bytes);
}

enum { MADE, FULL, BUSY };

/* Gives a queue pair that has none yet a flow. */
static int make_flow(struct dgm *m, uint32_t qpn) {
    uint32_t at = free_rows_take(&m->free_flows), none = NONE;
    if (!at)
        return FULL;
    struct flow *flow = &m->flows[at - 1];
    if (!try_lock(&flow->busy)) { /* by a poll, or by who looks whether it is still another's */
        free_rows_give(&m->free_flows, at - 1);
        return BUSY;
    }
    bool is_first = atomic_compare_exchange_strong_explicit(&m->table[qpn], &none, at, memory_order_release, memory_order_relaxed);
    if (is_first) { /* else another thread made one for it meanwhile */
        flow->carried = 0;
        flow->waiting = flow->n_cells = 0;
        flow->bytes = flow->last_ns = flow->transfers = flow->events = 0;
        m->periods[at - 1].base = atomic_load_explicit(&m->base_epoch, memory_order_relaxed);
        atomic_store_explicit(&flow->owner, IS_USED | qpn, memory_order_relaxed);
        add(&m->n_flows, 1);
    }
    unlock(&flow->busy);
    if (!is_first)
        free_rows_give(&m->free_flows, at - 1);
    return MADE;
}

/* The queue pair's flow, locked; NULL: it has none, or somebody has it. */
static inline struct flow *hold(struct dgm *m, uint32_t qpn) {
    uint32_t at = atomic_load_explicit(&m->table[qpn], memory_order_acquire);
    struct flow *flow = &m->flows[at - 1];
    if (at == NONE || !try_lock(&flow->busy))
        return NULL;
    if (LIKELY(owner_of(flow) == (IS_USED | qpn)))
        return flow;
    unlock(&flow->busy); /* it was aged between the look-up and the lock */
    return NULL;
}

/* hold, for a queue pair that may have no flow yet. NULL: the transfer went elsewhere. */
static __attribute__((noinline)) struct flow *hold_or_leave(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    if (qpn >= TABLE_ENTRIES) {
        add(&m->bad_qpns, 1);
        refuse(m, bytes);
        return NULL;
    }
    for (int tries = 0; tries < FREE_ROWS_TRIES_MAX; tries++) {
        bool is_new = atomic_load_explicit(&m->table[qpn], memory_order_acquire) == NONE;
        int made = is_new ? make_flow(m, qpn) : MADE;
        if (made == FULL) {
            add(&m->flows_refused, 1);
            refuse(m, bytes);
            return NULL;
        }
        struct flow *flow = made == MADE ? hold(m, qpn) : NULL;
        if (flow)
            return flow;
        if (made == BUSY)
            break;
    }
    hand_over(m, qpn, now_ns, bytes);
    return NULL;
}

void dgm_transfer(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    struct flow *flow = LIKELY(qpn < TABLE_ENTRIES) ? hold(m, qpn) : NULL;
    if (!LIKELY(flow) && !(flow = hold_or_leave(m, qpn, now_ns, bytes)))
        return;
    enter(m, flow, now_ns, bytes);
    unlock(&flow->busy);
}

static inline void ask_for_table(struct dgm *m, uint32_t qpn) { __builtin_prefetch((void *)&m->table[qpn % TABLE_ENTRIES]); }

static inline void ask_for_flow(struct dgm *m, uint32_t qpn) {
    uint32_t at = atomic_load_explicit(&m->table[qpn % TABLE_ENTRIES], memory_order_relaxed);
    if (at != NONE)
        __builtin_prefetch(&m->flows[at - 1], 1);
}

/* Where its bytes will go if the flow stays in its chunk. */
static inline void ask_for_cell(struct dgm *m, const struct dgm_sent *sent) {
    uint32_t at = atomic_load_explicit(&m->table[sent->qpn % TABLE_ENTRIES], memory_order_relaxed);
    if (at == NONE)
        return;
    uint16_t *units = units_of(&m->flows[at - 1]);
    uint64_t in_chunk = (epoch_of(m, sent->now_ns) - units_epoch_of(&m->flows[at - 1])) % DGM_CHUNK_EPOCHS;
    if (units)
        __builtin_prefetch(units + in_chunk, 1);
}

void dgm_transfers(struct dgm *m, const struct dgm_sent *sent, uint32_t n) {
    for (uint32_t at = 0; at < n && at < 3 * AHEAD; at++)
        ask_for_table(m, sent[at].qpn);
    for (uint32_t at = 0; at < n && at < 2 * AHEAD; at++)
        ask_for_flow(m, sent[at].qpn);
    for (uint32_t at = 0; at < n && at < AHEAD; at++)
        ask_for_cell(m, &sent[at]);
    for (uint32_t at = 0; at < n;) {
        uint32_t qpn = sent[at].qpn, end = n - at < RUN_MAX ? n : at + RUN_MAX;
        struct flow *flow = LIKELY(qpn < TABLE_ENTRIES) ? hold(m, qpn) : NULL;
        if (!LIKELY(flow) && !(flow = hold_or_leave(m, qpn, sent[at].now_ns, sent[at].bytes))) {
            at++;
            continue;
        }
        do {
            if (at + 3 * AHEAD < n)
                ask_for_table(m, sent[at + 3 * AHEAD].qpn);
            if (at + 2 * AHEAD < n)
                ask_for_flow(m, sent[at + 2 * AHEAD].qpn);
            if (at + AHEAD < n)
                ask_for_cell(m, &sent[at + AHEAD]);
            enter(m, flow, sent[at].now_ns, sent[at].bytes);
        } while (++at < end && sent[at].qpn == qpn);
        unlock(&flow->busy);
    }
}

void dgm_enter_handed(struct dgm *m, const struct transfer *transfer) {
    for (;;) {
        uint32_t at = atomic_load_explicit(&m->table[transfer->qpn], memory_order_acquire);
        int made = at == NONE ? make_flow(m, transfer->qpn) : MADE;
        if (made == FULL) {
            add(&m->flows_refused, 1);
            refuse(m, transfer->bytes);
            return;
        }
        if (at == NONE)
            continue;
        struct flow *flow = &m->flows[at - 1];
        lock(&flow->busy); /* by who polls: nobody but a poll ages the flow */
        enter(m, flow, transfer->now_ns, transfer->bytes);
        unlock(&flow->busy);
        return;
    }
}
