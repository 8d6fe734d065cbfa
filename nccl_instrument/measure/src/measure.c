#define _GNU_SOURCE
#include "measure.h"

#include "meter.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

static void *zeroed_lines(uint64_t bytes) {
    bytes = (bytes + LINE - 1) / LINE * LINE;
    void *found = aligned_alloc(LINE, bytes);
    return found ? memset(found, 0, bytes) : NULL;
}

static uint64_t chunk_numbers_bytes(const struct dgm *m) {
    return (uint64_t)m->settings.flows_max * m->n_chunks * sizeof *m->chunk_numbers;
}

static bool make_room(struct dgm *m) {
    const struct dgm_settings *settings = &m->settings;
    m->flows = zeroed_lines(settings->flows_max * sizeof *m->flows);
    m->periods = calloc(settings->flows_max, sizeof *m->periods);
    m->chunk_numbers = map(chunk_numbers_bytes(m));
    m->taken_chunks = calloc(m->n_chunks, sizeof *m->taken_chunks);
    m->table = map(TABLE_ENTRIES * sizeof *m->table);
    map_pool(m, settings->pool_bytes_max);
    return m->flows && m->periods && m->chunk_numbers && m->taken_chunks && m->table && handed_make(&m->handed) &&
           free_rows_make(&m->free_flows, settings->flows_max) &&
           free_rows_make(&m->free_chunks, (uint32_t)(m->pool_bytes / sizeof(struct chunk)));
}

struct dgm *dgm_create(const struct dgm_settings *settings, uint64_t start_ns) {
    if (settings->epoch_ns < 8000 || settings->epoch_ns > 1000000 || settings->poll_ns < settings->epoch_ns ||
        settings->poll_ns > UINT64_C(60000000000) || !settings->flows_max || settings->flows_max > TABLE_ENTRIES / 2)
        return NULL;
    struct dgm *m = zeroed_lines(sizeof *m);
    if (!m)
        return NULL;
    m->settings = *settings;
    m->start_ns = start_ns;
    m->unit_bytes = unit_of(settings->epoch_ns);
    m->by_epoch = divisor_of(settings->epoch_ns);
    m->by_unit = divisor_of(m->unit_bytes);
    uint64_t epochs = 2 * (settings->poll_ns / settings->epoch_ns + 1);
    m->n_chunks = (uint32_t)((epochs + DGM_CHUNK_EPOCHS - 1) / DGM_CHUNK_EPOCHS);
    if (!make_room(m)) {
        dgm_destroy(m);
        return NULL;
    }
    for (uint32_t i = 0; i < settings->flows_max; i++) {
        m->periods[i].chunks = m->chunk_numbers + (size_t)i * m->n_chunks;
        set_units(&m->flows[i], NULL, NO_EPOCH);
    }
    return m;
}

static void unmap(void *from, uint64_t bytes) {
    if (from)
        munmap(from, bytes);
}

void dgm_destroy(struct dgm *m) {
    if (!m)
        return;
    unmap(m->pool, m->pool_bytes);
    unmap((void *)m->table, TABLE_ENTRIES * sizeof *m->table);
    unmap(m->chunk_numbers, chunk_numbers_bytes(m));
    free(m->taken_chunks);
    free(m->periods);
    handed_free(&m->handed);
    free_rows_free(&m->free_flows);
    free_rows_free(&m->free_chunks);
    free(m->flows);
    free(m);
}

uint32_t dgm_unit_bytes(const struct dgm *m) { return m->unit_bytes; }

void dgm_counts(struct dgm *m, struct dgm_counts *counts) {
    *counts = (struct dgm_counts){
        .transfers = m->transfers, .events = m->events, .bytes = m->bytes, .lost_bytes = m->lost_bytes,
        .flows_refused = m->flows_refused, .late_events = m->late_events, .early_events = m->early_events,
        .flows_aged = m->flows_aged, .bad_qpns = m->bad_qpns, .pool_bytes = atomic_load(&m->free_chunks.n_made) * sizeof(struct chunk),
        .flows = m->n_flows, .handed_over = m->handed_over, .handed_lost = m->handed_lost,
    };
    for (uint32_t i = 0; i < n_flows_made(m); i++) {
        struct flow *flow = &m->flows[i];
        lock(&flow->busy);
        if (owner_of(flow)) {
            counts->transfers += flow->transfers;
            counts->events += flow->events;
            counts->bytes += flow->bytes;
        }
        unlock(&flow->busy);
    }
}
