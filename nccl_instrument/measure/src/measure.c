#define _GNU_SOURCE
#include "measure.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TABLE_ENTRIES (1u << DGM_QPN_BITS)
#define NONE 0u

struct chunk {
    union {
        uint16_t units[DGM_CHUNK_EPOCHS];
        struct chunk *next_free;
    };
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
    uint32_t unit_bytes;
    uint32_t n_chunks;
    _Atomic uint64_t base_epoch; /* first epoch of the period */
    _Atomic uint32_t *table;     /* queue pair → flow + 1 */
    struct flow *flows;
    struct chunk **chunk_table;
    uint32_t n_flows_ever;
    uint32_t *free_flows;
    uint32_t n_free_flows;
    struct chunk *free_chunks;
    uint64_t n_chunks_made;
    atomic_flag pool_busy;
    _Atomic uint64_t transfers, events, bytes, lost_bytes, flows_refused, late_events, early_events, flows_aged, bad_qpns, n_flows;
};

/* Held for some tens of nanoseconds, but for polls: who waits longer lets others run. */
static void lock(atomic_flag *flag) {
    for (uint32_t tries = 1; atomic_flag_test_and_set_explicit(flag, memory_order_acquire); tries++)
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
    m->free_flows = calloc(settings->flows_max, sizeof *m->free_flows);
    m->chunk_table = calloc((size_t)settings->flows_max * m->n_chunks, sizeof *m->chunk_table);
    /* Pages of the table that no queue pair falls into are never touched and take no memory. */
    void *table = mmap(NULL, TABLE_ENTRIES * sizeof *m->table, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->table = table == MAP_FAILED ? NULL : table;
    if (!m->flows || !m->free_flows || !m->chunk_table || !m->table) {
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
    if (m->chunk_table)
        for (uint64_t i = 0; i < (uint64_t)m->settings.flows_max * m->n_chunks; i++)
            free(m->chunk_table[i]);
    while (m->free_chunks) {
        struct chunk *next = m->free_chunks->next_free;
        free(m->free_chunks);
        m->free_chunks = next;
    }
    if (m->table)
        munmap((void *)m->table, TABLE_ENTRIES * sizeof *m->table);
    free(m->chunk_table);
    free(m->free_flows);
    free(m->flows);
    free(m);
}

static struct chunk *take_chunk(struct dgm *m) {
    lock(&m->pool_busy);
    struct chunk *chunk = m->free_chunks;
    if (chunk) {
        m->free_chunks = chunk->next_free;
    } else if ((m->n_chunks_made + 1) * sizeof *chunk <= m->settings.pool_bytes_max) {
        chunk = malloc(sizeof *chunk);
        m->n_chunks_made += chunk != NULL;
    }
    unlock(&m->pool_busy);
    if (chunk)
        memset(chunk, 0, sizeof *chunk);
    return chunk;
}

static void give_chunk(struct dgm *m, struct chunk *chunk) {
    lock(&m->pool_busy);
    chunk->next_free = m->free_chunks;
    m->free_chunks = chunk;
    unlock(&m->pool_busy);
}

/* The flow of a queue pair that has none yet; NULL when there are too many. */
static struct flow *new_flow(struct dgm *m, uint32_t qpn) {
    lock(&m->pool_busy);
    uint32_t at = atomic_load_explicit(&m->table[qpn], memory_order_acquire);
    if (at == NONE) {
        if (m->n_free_flows)
            at = m->free_flows[--m->n_free_flows] + 1;
        else if (m->n_flows_ever < m->settings.flows_max)
            at = ++m->n_flows_ever;
        if (at != NONE) {
            struct flow *flow = &m->flows[at - 1];
            flow->waiting = flow->carried = flow->bytes = flow->last_ns = flow->transfers = flow->events = 0;
            flow->qpn = qpn;
            atomic_store_explicit(&flow->is_used, 1, memory_order_release);
            add(&m->n_flows, 1);
            atomic_store_explicit(&m->table[qpn], at, memory_order_release);
        }
    }
    unlock(&m->pool_busy);
    return at == NONE ? NULL : &m->flows[at - 1];
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

void dgm_transfer(struct dgm *m, uint32_t qpn, uint64_t now_ns, uint64_t bytes) {
    if (qpn >= TABLE_ENTRIES) {
        add(&m->bad_qpns, 1);
        refuse(m, bytes);
        return;
    }
    for (;;) {
        uint32_t at = atomic_load_explicit(&m->table[qpn], memory_order_acquire);
        struct flow *flow = at != NONE ? &m->flows[at - 1] : new_flow(m, qpn);
        if (!flow) {
            add(&m->flows_refused, 1);
            refuse(m, bytes);
            return;
        }
        lock(&flow->busy);
        if (!atomic_load_explicit(&flow->is_used, memory_order_acquire) || flow->qpn != qpn) { /* aged between the look-up and the lock */
            unlock(&flow->busy);
            continue;
        }
        flow->transfers++;
        flow->bytes += bytes;
        flow->waiting += bytes;
        flow->last_ns = now_ns;
        if (flow->waiting >= m->settings.aggregated) { /* aggregation layer */
            uint64_t waiting = flow->waiting;
            flow->waiting = 0;
            record(m, flow, now_ns, waiting);
        }
        unlock(&flow->busy);
        return;
    }
}

static uint64_t count_cells(const struct dgm *m, const struct flow *flow) {
    uint64_t n = 0;
    for (uint32_t c = 0; c < m->n_chunks; c++)
        if (flow->chunks[c])
            for (uint32_t e = 0; e < DGM_CHUNK_EPOCHS; e++)
                n += flow->chunks[c]->units[e] != 0;
    return n;
}

/* Writes the flow's cells and gives its chunks back. The flow is locked. */
static uint32_t empty_flow(struct dgm *m, struct flow *flow, struct dgm_cell *cells) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < m->n_chunks; c++) {
        struct chunk *chunk = flow->chunks[c];
        if (!chunk)
            continue;
        for (uint32_t e = 0; e < DGM_CHUNK_EPOCHS; e++)
            if (chunk->units[e])
                cells[n++] = (struct dgm_cell){c * DGM_CHUNK_EPOCHS + e, chunk->units[e]};
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
    lock(&m->pool_busy);
    atomic_store_explicit(&flow->is_used, 0, memory_order_release);
    atomic_store_explicit(&m->table[flow->qpn], NONE, memory_order_release);
    m->free_flows[m->n_free_flows++] = (uint32_t)(flow - m->flows);
    unlock(&m->pool_busy);
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

/* How many flows and cells there are to be taken; what is no event yet belongs to this period all the same. */
static void close_period(struct dgm *m, uint32_t *n_flows, uint64_t *n_cells) {
    *n_flows = 0;
    *n_cells = 0;
    for (uint32_t i = 0; i < m->n_flows_ever; i++) {
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
    close_period(m, n_flows, n_cells);
    *first_epoch = atomic_load_explicit(&m->base_epoch, memory_order_relaxed);
    if (*n_flows > flows_max || *n_cells > cells_max) {
        unlock_all(m);
        return -1;
    }
    for (uint32_t i = 0; i < m->n_flows_ever; i++) {
        struct flow *flow = &m->flows[i];
        if (!flow->is_used) /* asked once: another thread may take a free flow meanwhile, and then it waits for the lock */
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
    uint64_t next = now_ns > m->start_ns ? (now_ns - m->start_ns) / m->settings.epoch_ns : 0;
    if (next > *first_epoch)
        atomic_store_explicit(&m->base_epoch, next, memory_order_relaxed);
    unlock_all(m);
    return 0;
}

void dgm_counts(struct dgm *m, struct dgm_counts *counts) {
    lock_all(m);
    uint64_t transfers = m->transfers, events = m->events, bytes = m->bytes;
    for (uint32_t i = 0; i < m->n_flows_ever; i++)
        if (m->flows[i].is_used) {
            transfers += m->flows[i].transfers;
            events += m->flows[i].events;
            bytes += m->flows[i].bytes;
        }
    *counts = (struct dgm_counts){
        .transfers = transfers, .events = events, .bytes = bytes, .lost_bytes = m->lost_bytes,
        .flows_refused = m->flows_refused, .late_events = m->late_events, .early_events = m->early_events,
        .flows_aged = m->flows_aged, .bad_qpns = m->bad_qpns, .pool_bytes = m->n_chunks_made * sizeof(struct chunk),
        .flows = m->n_flows,
    };
    unlock_all(m);
}
