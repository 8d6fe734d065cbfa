#define _GNU_SOURCE
#include "measure.h"

#include "cells.h"
#include "free_rows.h"
#include "handed.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TABLE_ENTRIES (1u << DGM_QPN_BITS)
#define NONE 0u

struct chunk {
    uint16_t units[DGM_CHUNK_EPOCHS];
};

struct flow {
    alignas(64) atomic_flag busy;
    uint32_t qpn;
    _Atomic uint32_t is_used; /* written last, by who has the pool's lock */
    uint64_t waiting;    /* bytes of transfers that are no event yet */
    uint64_t carried;    /* bytes of events below one unit */
    uint64_t bytes;      /* since the last poll */
    uint64_t last_ns;
    uint64_t transfers, events; /* until the flow is aged */
    struct chunk **chunks; /* n_chunks of the period, NULL where nothing came */
};

struct dgm {
    struct dgm_settings settings;
    uint64_t start_ns;
    uint32_t unit_bytes, n_chunks;
    _Atomic uint64_t base_epoch; /* first epoch of the period */
    _Atomic uint32_t *table;     /* queue pair → flow + 1 */
    struct flow *flows;
    struct chunk **chunk_table;
    struct free_rows free_flows, free_chunks;
    struct chunk *pool; /* pages that were never taken are no memory */
    uint64_t pool_bytes;
    struct handed handed;
    _Atomic uint64_t transfers, events, bytes, lost_bytes, flows_refused, late_events, early_events, flows_aged, bad_qpns, n_flows,
        handed_over, handed_lost;
};

static bool try_lock(atomic_flag *flag) { return !atomic_flag_test_and_set_explicit(flag, memory_order_acquire); }

/* For polls alone: threads that post hold a flow for some tens of nanoseconds, and may be sent to sleep meanwhile. */
static void lock(atomic_flag *flag) {
    for (uint32_t tries = 1; !try_lock(flag); tries++)
        if (tries % 64 == 0)
            sched_yield();
}

static void unlock(atomic_flag *flag) { atomic_flag_clear_explicit(flag, memory_order_release); }

static void add(_Atomic uint64_t *count, uint64_t n) { atomic_fetch_add_explicit(count, n, memory_order_relaxed); }

/* Two bytes must hold what 512 Gbit/s move in an epoch: longer epochs count in larger units. */
static uint32_t unit_of(uint32_t epoch_ns) {
    uint32_t units = (epoch_ns + 31999u) / 32000u;
    return DGM_UNIT_BYTES * (units ? units : 1u);
}

static void *map(uint64_t bytes) {
    /* Pages that are never touched take no memory. */
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? NULL : found;
}

/* Address space for the epochs; less of it where a limit forbids as much. */
static void map_pool(struct dgm *m, uint64_t bytes_max) {
    uint64_t n = bytes_max / sizeof(struct chunk);
    for (n = n > UINT32_MAX / 2 ? UINT32_MAX / 2 : n; n && !m->pool; n = m->pool ? n : n / 2) {
        m->pool = map(n * sizeof(struct chunk));
        m->pool_bytes = m->pool ? n * sizeof(struct chunk) : 0;
    }
}

struct dgm *dgm_create(const struct dgm_settings *settings, uint64_t start_ns) {
    if (settings->epoch_ns < 8000 || settings->epoch_ns > 1000000 || settings->poll_ns < settings->epoch_ns ||
        settings->poll_ns > UINT64_C(60000000000) || !settings->flows_max || settings->flows_max > TABLE_ENTRIES / 2)
        return NULL;
    struct dgm *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->settings = *settings;
    m->start_ns = start_ns;
    m->unit_bytes = unit_of(settings->epoch_ns);
    uint64_t epochs = 2 * (settings->poll_ns / settings->epoch_ns + 1);
    m->n_chunks = (uint32_t)((epochs + DGM_CHUNK_EPOCHS - 1) / DGM_CHUNK_EPOCHS);
    m->flows = aligned_alloc(alignof(struct flow), settings->flows_max * sizeof *m->flows);
    if (m->flows)
        memset(m->flows, 0, settings->flows_max * sizeof *m->flows);
    m->chunk_table = calloc((size_t)settings->flows_max * m->n_chunks, sizeof *m->chunk_table);
    m->table = map(TABLE_ENTRIES * sizeof *m->table);
    map_pool(m, settings->pool_bytes_max);
    bool has_room = free_rows_make(&m->free_flows, settings->flows_max) &&
                    free_rows_make(&m->free_chunks, (uint32_t)(m->pool_bytes / sizeof(struct chunk)));
    if (!m->flows || !m->chunk_table || !handed_make(&m->handed) || !m->table || !has_room) {
        dgm_destroy(m);
        return NULL;
    }
    for (uint32_t i = 0; i < settings->flows_max; i++)
        m->flows[i].chunks = m->chunk_table + (size_t)i * m->n_chunks;
    return m;
}

void dgm_destroy(struct dgm *m) {
    if (!m)
        return;
    if (m->pool)
        munmap(m->pool, m->pool_bytes);
    if (m->table)
        munmap((void *)m->table, TABLE_ENTRIES * sizeof *m->table);
    free(m->chunk_table);
    handed_free(&m->handed);
    free_rows_free(&m->free_flows);
    free_rows_free(&m->free_chunks);
    free(m->flows);
    free(m);
}

/* All zero: a chunk is cleaned by who gives it back. */
static struct chunk *take_chunk(struct dgm *m) {
    uint32_t at = free_rows_take(&m->free_chunks);
    return at ? &m->pool[at - 1] : NULL;
}

static void give_chunk(struct dgm *m, struct chunk *chunk) {
    memset(chunk, 0, sizeof *chunk);
    free_rows_give(&m->free_chunks, (uint32_t)(chunk - m->pool));
}

enum { MADE, FULL, BUSY };

/* Gives a queue pair that has none yet a flow. is_held: the caller has all flows locked. */
static int make_flow(struct dgm *m, uint32_t qpn, bool is_held) {
    uint32_t at = free_rows_take(&m->free_flows), none = NONE;
    if (!at)
        return FULL;
    struct flow *flow = &m->flows[at - 1];
    if (!is_held && !try_lock(&flow->busy)) { /* by a poll, or by who looks whether it is still another's */
        free_rows_give(&m->free_flows, at - 1);
        return BUSY;
    }
    flow->waiting = flow->carried = flow->bytes = flow->last_ns = flow->transfers = flow->events = 0;
    flow->qpn = qpn;
    atomic_store_explicit(&flow->is_used, 1, memory_order_release);
    bool is_first = atomic_compare_exchange_strong_explicit(&m->table[qpn], &none, at, memory_order_release, memory_order_relaxed);
    if (!is_first) /* another thread made one for it meanwhile */
        atomic_store_explicit(&flow->is_used, 0, memory_order_release);
    if (!is_held)
        unlock(&flow->busy);
    if (is_first)
        add(&m->n_flows, 1);
    else
        free_rows_give(&m->free_flows, at - 1);
    return MADE;
}

/* Measurement layer: bytes into the epoch of now_ns. The flow is locked. */
static void record(struct dgm *m, struct flow *flow, uint64_t now_ns, uint64_t bytes) {
    uint64_t units = (flow->carried + bytes) / m->unit_bytes;
    flow->carried = (flow->carried + bytes) % m->unit_bytes;
    flow->events++;
    uint64_t epoch = now_ns > m->start_ns ? (now_ns - m->start_ns) / m->settings.epoch_ns : 0;
    uint64_t base = atomic_load_explicit(&m->base_epoch, memory_order_relaxed);
    uint64_t last = base + (uint64_t)m->n_chunks * DGM_CHUNK_EPOCHS - 1;
    if (epoch < base) {
        add(&m->late_events, 1);
        epoch = base;
    } else if (epoch > last) {
        add(&m->early_events, 1);
        epoch = last;
    }
    while (units) {
        struct chunk **chunk = &flow->chunks[(epoch - base) / DGM_CHUNK_EPOCHS];
        if (!*chunk && !(*chunk = take_chunk(m))) {
            add(&m->lost_bytes, units * m->unit_bytes);
            return;
        }
        uint16_t *cell = &(*chunk)->units[(epoch - base) % DGM_CHUNK_EPOCHS];
        uint64_t room = UINT16_MAX - *cell;
        uint64_t put = units < room ? units : room;
        *cell = (uint16_t)(*cell + put);
        units -= put;
        /* More than the wire can have moved in one epoch was handed over at once: it went on in the next. */
        if (units && epoch == last) {
            add(&m->lost_bytes, units * m->unit_bytes);
            return;
        }
        epoch++;
    }
}

static void refuse(struct dgm *m, uint64_t bytes) {
    add(&m->transfers, 1);
    add(&m->bytes, bytes);
    add(&m->lost_bytes, bytes);
}

/* A transfer of a flow that is locked. */
static void enter(struct dgm *m, struct flow *flow, uint64_t now_ns, uint64_t bytes) {
    flow->transfers++;
    flow->bytes += bytes;
    flow->waiting += bytes;
    flow->last_ns = now_ns;
    if (flow->waiting >= m->settings.aggregated) { /* aggregation layer */
        uint64_t waiting = flow->waiting;
        flow->waiting = 0;
        record(m, flow, now_ns, waiting);
    }
}

/* Whether the transfer is where it belongs, or refused for good; false: somebody has the flow. */
static bool try_transfer(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    for (int tries = 0; tries < FREE_ROWS_TRIES_MAX; tries++) {
        uint32_t at = atomic_load_explicit(&m->table[qpn], memory_order_acquire);
        int made = at != NONE ? MADE : make_flow(m, qpn, false);
        if (made == FULL) {
            add(&m->flows_refused, 1);
            refuse(m, bytes);
            return true;
        }
        if (at == NONE && made == MADE)
            continue;
        struct flow *flow = at != NONE ? &m->flows[at - 1] : NULL;
        if (!flow || !try_lock(&flow->busy))
            return false;
        bool is_mine = atomic_load_explicit(&flow->is_used, memory_order_acquire) && flow->qpn == qpn;
        if (is_mine) /* else it was aged between the look-up and the lock */
            enter(m, flow, now_ns, bytes);
        unlock(&flow->busy);
        if (is_mine)
            return true;
    }
    return false;
}

/* For the next poll to enter. Bounded: what finds no place is lost and counted. */
static void hand_over(struct dgm *m, const struct transfer *transfer) {
    if (handed_put(&m->handed, transfer)) {
        add(&m->handed_over, 1);
        return;
    }
    add(&m->handed_lost, 1);
    refuse(m, transfer->bytes);
}

void dgm_transfer(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    if (qpn >= TABLE_ENTRIES) {
        add(&m->bad_qpns, 1);
        refuse(m, bytes);
    } else if (!try_transfer(m, qpn, now_ns, bytes)) {
        hand_over(m, &(struct transfer){.now_ns = now_ns, .bytes = bytes, .qpn = qpn});
    }
}

/* Enters what was handed over. All flows are locked. */
static void take_handed(struct dgm *m) {
    struct transfer one;
    while (handed_take(&m->handed, &one)) {
        uint32_t at = atomic_load_explicit(&m->table[one.qpn], memory_order_acquire);
        if (at == NONE && make_flow(m, one.qpn, true) == MADE)
            at = atomic_load_explicit(&m->table[one.qpn], memory_order_acquire);
        if (at != NONE) {
            enter(m, &m->flows[at - 1], one.now_ns, one.bytes);
        } else {
            add(&m->flows_refused, 1);
            refuse(m, one.bytes);
        }
    }
}

/* At most so many: pauses too long for one cell take another one. */
static uint64_t count_cells(const struct dgm *m, const struct flow *flow) {
    uint64_t n = (uint64_t)m->n_chunks * DGM_CHUNK_EPOCHS / UINT16_MAX;
    for (uint32_t c = 0; c < m->n_chunks; c++)
        if (flow->chunks[c])
            for (uint32_t e = 0; e < DGM_CHUNK_EPOCHS; e++)
                n += flow->chunks[c]->units[e] != 0;
    return n;
}

/* Writes the flow's cells and gives its chunks back. The flow is locked. */
static uint32_t empty_flow(struct dgm *m, struct flow *flow, struct dgm_cell *cells) {
    uint32_t n = 0, before = 0;
    for (uint32_t c = 0; c < m->n_chunks; c++) {
        struct chunk *chunk = flow->chunks[c];
        if (!chunk)
            continue;
        for (uint32_t e = 0; e < DGM_CHUNK_EPOCHS; e++)
            if (chunk->units[e])
                n += dgm_put_cell(cells + n, &before, c * DGM_CHUNK_EPOCHS + e, chunk->units[e]);
        flow->chunks[c] = NULL;
        give_chunk(m, chunk);
    }
    return n;
}

/* A flow that sent nothing since the last poll gives its place back. The flow is locked. */
static void age(struct dgm *m, struct flow *flow) {
    add(&m->flows_aged, 1);
    add(&m->transfers, flow->transfers); /* before anybody else may take the flow */
    add(&m->events, flow->events);
    atomic_fetch_sub_explicit(&m->n_flows, 1, memory_order_relaxed);
    atomic_store_explicit(&flow->is_used, 0, memory_order_release);
    atomic_store_explicit(&m->table[flow->qpn], NONE, memory_order_release);
    free_rows_give(&m->free_flows, (uint32_t)(flow - m->flows));
}

static void lock_all(struct dgm *m) {
    for (uint32_t i = 0; i < m->settings.flows_max; i++)
        lock(&m->flows[i].busy);
}

static void unlock_all(struct dgm *m) {
    for (uint32_t i = 0; i < m->settings.flows_max; i++)
        unlock(&m->flows[i].busy);
}

uint32_t dgm_unit_bytes(const struct dgm *m) { return m->unit_bytes; }

static uint32_t n_made(const struct dgm *m) { return atomic_load_explicit(&m->free_flows.n_made, memory_order_relaxed); }

/* How many flows and cells there are to be taken; what is no event yet belongs to this period all the same. */
static void close_period(struct dgm *m, uint32_t *n_flows, uint64_t *n_cells) {
    *n_flows = 0;
    *n_cells = 0;
    for (uint32_t i = 0; i < n_made(m); i++) {
        struct flow *flow = &m->flows[i];
        if (!flow->is_used || !flow->bytes)
            continue;
        if (flow->waiting) {
            record(m, flow, flow->last_ns, flow->waiting);
            flow->waiting = 0;
        }
        ++*n_flows;
        *n_cells += count_cells(m, flow);
    }
}

int dgm_poll(struct dgm *m, uint64_t now_ns, uint64_t *first_epoch, struct dgm_flow *flows, uint32_t *n_flows,
             struct dgm_cell *cells, uint64_t *n_cells) {
    uint32_t flows_max = *n_flows, n = 0;
    uint64_t cells_max = *n_cells, written = 0;
    lock_all(m); /* the period ends for all flows at one moment */
    take_handed(m);
    close_period(m, n_flows, n_cells);
    *first_epoch = atomic_load_explicit(&m->base_epoch, memory_order_relaxed);
    if (*n_flows > flows_max || *n_cells > cells_max) {
        unlock_all(m);
        return -1;
    }
    for (uint32_t i = 0; i < n_made(m); i++) {
        struct flow *flow = &m->flows[i];
        if (!flow->is_used) /* nobody can take a free flow now: it is locked like all others */
            continue;
        if (!flow->bytes) {
            age(m, flow);
            continue;
        }
        uint32_t n_mine = empty_flow(m, flow, cells + written);
        flows[n++] = (struct dgm_flow){flow->qpn, n_mine, flow->bytes};
        written += n_mine;
        add(&m->bytes, flow->bytes);
        flow->bytes = 0;
    }
    *n_cells = written;
    uint64_t next = now_ns > m->start_ns ? (now_ns - m->start_ns) / m->settings.epoch_ns : 0;
    if (next > *first_epoch)
        atomic_store_explicit(&m->base_epoch, next, memory_order_relaxed);
    unlock_all(m);
    return 0;
}

void dgm_counts(struct dgm *m, struct dgm_counts *counts) {
    lock_all(m);
    uint64_t transfers = m->transfers, events = m->events, bytes = m->bytes;
    for (uint32_t i = 0; i < n_made(m); i++)
        if (m->flows[i].is_used) {
            transfers += m->flows[i].transfers;
            events += m->flows[i].events;
            bytes += m->flows[i].bytes;
        }
    *counts = (struct dgm_counts){
        .transfers = transfers, .events = events, .bytes = bytes, .lost_bytes = m->lost_bytes,
        .flows_refused = m->flows_refused, .late_events = m->late_events, .early_events = m->early_events,
        .flows_aged = m->flows_aged, .bad_qpns = m->bad_qpns, .pool_bytes = atomic_load(&m->free_chunks.n_made) * sizeof(struct chunk),
        .flows = m->n_flows, .handed_over = m->handed_over, .handed_lost = m->handed_lost,
    };
    unlock_all(m);
}
