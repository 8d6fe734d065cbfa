/* Collection (measure.h): a poll takes flow by flow, each locked only while its chunks change hands. */
#define _GNU_SOURCE
#include "meter.h"

#include <string.h>

/* What a poll takes of a flow: its chunks are in m->taken_chunks, and nobody else's any more. */
struct taken {
    uint64_t base, bytes;
    uint32_t qpn, n_chunks;
};

struct answer {
    struct dgm_flow *flows;
    struct dgm_cell *cells;
    uint64_t first_epoch, n_cells, cells_max, bridges_max;
    uint32_t n_flows, flows_max;
};

/* Cells without bytes that a flow may need at most, of a poll that ends periods at `next`: pauses too long for one cell take another. */
static uint64_t bridges_max(const struct dgm *m, uint64_t first_epoch, uint64_t next) {
    return (next - first_epoch + (uint64_t)m->n_chunks * DGM_CHUNK_EPOCHS) / (UINT16_MAX - DGM_CHUNK_EPOCHS) + 1;
}

/* Room for all there is, and the oldest period's first epoch: a flow for which the last answer had no room has an older one than the
 * others. What is no event yet belongs to this period all the same. */
static struct answer count_needed(struct dgm *m, uint64_t next) {
    struct answer needed = {.first_epoch = atomic_load_explicit(&m->base_epoch, memory_order_relaxed)};
    for (uint32_t i = 0; i < n_flows_made(m); i++) {
        struct flow *flow = &m->flows[i];
        lock(&flow->busy);
        if (owner_of(flow) && m->periods[i].base < needed.first_epoch)
            needed.first_epoch = m->periods[i].base;
        if (owner_of(flow) && flow->bytes) {
            dgm_record_waiting(m, flow);
            needed.n_flows++;
            needed.n_cells += flow->n_cells;
        }
        unlock(&flow->busy);
    }
    needed.n_cells += needed.n_flows * bridges_max(m, needed.first_epoch, next);
    return needed;
}

/* A flow that sent nothing since the last poll gives its place back. The flow is locked. */
static void age(struct dgm *m, struct flow *flow) {
    add(&m->flows_aged, 1);
    add(&m->transfers, flow->transfers); /* before anybody else may take the flow */
    add(&m->events, flow->events);
    atomic_fetch_sub_explicit(&m->n_flows, 1, memory_order_relaxed);
    atomic_store_explicit(&m->table[owner_of(flow) & ~IS_USED], NONE, memory_order_release);
    atomic_store_explicit(&flow->owner, 0, memory_order_relaxed);
}

/* The flow's period ends, the one that begins at `next` is empty. The flow is locked. */
static struct taken close_period(struct dgm *m, uint32_t at, uint64_t next) {
    struct flow *flow = &m->flows[at];
    struct period *period = &m->periods[at];
    struct taken taken = {period->base, flow->bytes, owner_of(flow) & ~IS_USED, period->n_used};
    memcpy(m->taken_chunks, period->chunks, taken.n_chunks * sizeof *period->chunks);
    memset(period->chunks, 0, taken.n_chunks * sizeof *period->chunks);
    period->n_used = 0;
    period->base = next;
    flow->bytes = 0;
    flow->n_cells = 0;
    set_units(flow, NULL, NO_EPOCH);
    add(&m->bytes, taken.bytes);
    return taken;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "an epoch's place in a word is that in memory");

/* Bit n: whether the n-th of 64 epochs has bytes. Four at a time: the top bit of each is set by an addition unless it is 0. */
static uint64_t which_have_bytes(const uint16_t *units) {
    const uint64_t low = UINT64_C(0x7FFF7FFF7FFF7FFF), ones = UINT64_C(0x0001000100010001);
    const uint64_t gather = UINT64_C(1) << 48 | UINT64_C(1) << 33 | UINT64_C(1) << 18 | UINT64_C(1) << 3; /* bits 0, 16, 32, 48 to 48 … 51 */
    uint64_t found = 0, four;
    for (uint32_t e = 0; e < 64; e += 4) {
        memcpy(&four, units + e, sizeof four);
        found |= (((((four & low) + low) | four) >> 15 & ones) * gather >> 48 & 0xF) << e;
    }
    return found;
}

/* Cells of a chunk that begins `first` epochs after the answer's first one; *before: the epoch of the flow's cell before. */
static uint32_t put_chunk(const struct chunk *chunk, uint32_t first, uint32_t *before, struct dgm_cell *cells) {
    uint32_t n = 0, last = *before;
    for (; first + DGM_CHUNK_EPOCHS - last > UINT16_MAX; n++) {
        uint32_t skip = first - last < UINT16_MAX ? first - last : UINT16_MAX;
        cells[n] = (struct dgm_cell){(uint16_t)skip, 0};
        last += skip;
    }
    for (uint32_t from = 0; from < DGM_CHUNK_EPOCHS; from += 64)
        for (uint64_t left = which_have_bytes(chunk->units + from); left; left &= left - 1) {
            uint32_t at = from + (uint32_t)__builtin_ctzll(left);
            cells[n++] = (struct dgm_cell){(uint16_t)(first + at - last), chunk->units[at]};
            last = first + at;
        }
    *before = last;
    return n;
}

static void ask_for_chunk(const struct dgm *m, const struct taken *taken, uint32_t at) {
    uint32_t number = at < taken->n_chunks ? m->taken_chunks[at] : 0;
    for (uint32_t from = 0; number && from < sizeof(struct chunk); from += LINE)
        __builtin_prefetch((const char *)&m->pool[number - 1] + from, 1);
}

/* Writes the cells of the chunks that were taken and gives these back, clean. */
static uint32_t empty_chunks(struct dgm *m, const struct taken *taken, uint64_t first_epoch, struct dgm_cell *cells) {
    uint32_t n = 0, before = 0, n_free = 0, begin = (uint32_t)(taken->base - first_epoch);
    for (uint32_t at = 0; at < taken->n_chunks; at++) {
        uint32_t number = m->taken_chunks[at];
        if (!number)
            continue;
        struct chunk *chunk = &m->pool[number - 1];
        ask_for_chunk(m, taken, at + 2);
        n += put_chunk(chunk, begin + at * DGM_CHUNK_EPOCHS, &before, cells + n);
        memset(chunk, 0, sizeof *chunk);
        m->taken_chunks[n_free++] = number - 1;
    }
    free_rows_give_all(&m->free_chunks, m->taken_chunks, n_free);
    return n;
}

/* Whether the flow has sent something; then it is closed if the answer has room, else it goes on and the next poll takes it. */
static bool close_flow(struct dgm *m, uint32_t at, uint64_t next, const struct answer *answer, struct taken *taken) {
    struct flow *flow = &m->flows[at];
    if (!flow->bytes)
        return false;
    dgm_record_waiting(m, flow);
    if (answer->n_flows < answer->flows_max && answer->n_cells + flow->n_cells + answer->bridges_max <= answer->cells_max)
        *taken = close_period(m, at, next);
    return true;
}

static void take_flow(struct dgm *m, uint32_t at, uint64_t next, struct answer *answer) {
    struct flow *flow = &m->flows[at];
    struct taken taken = {0};
    lock(&flow->busy);
    bool is_used = owner_of(flow), is_silent = is_used && !close_flow(m, at, next, answer, &taken);
    if (is_silent)
        age(m, flow);
    unlock(&flow->busy);
    if (is_silent)
        free_rows_give(&m->free_flows, at);
    if (!taken.bytes)
        return;
    uint32_t n = empty_chunks(m, &taken, answer->first_epoch, answer->cells + answer->n_cells);
    answer->flows[answer->n_flows++] = (struct dgm_flow){taken.qpn, n, taken.bytes};
    answer->n_cells += n;
}

static void enter_handed(struct dgm *m) {
    struct transfer one;
    for (uint32_t n = 0; n < HANDED_MAX && handed_take(&m->handed, &one); n++)
        dgm_enter_handed(m, &one);
}

int dgm_poll(struct dgm *m, uint64_t now_ns, uint64_t *first_epoch, struct dgm_flow *flows, uint32_t *n_flows,
             struct dgm_cell *cells, uint64_t *n_cells) {
    enter_handed(m);
    uint64_t base = atomic_load_explicit(&m->base_epoch, memory_order_relaxed), next = epoch_of(m, now_ns);
    next = next > base ? next : base;
    struct answer needed = count_needed(m, next);
    *first_epoch = needed.first_epoch;
    if (needed.n_flows > *n_flows || needed.n_cells > *n_cells) {
        *n_flows = needed.n_flows;
        *n_cells = needed.n_cells;
        return -1;
    }
    atomic_store_explicit(&m->base_epoch, next, memory_order_relaxed);
    struct answer answer = {.flows = flows, .cells = cells, .first_epoch = *first_epoch, .cells_max = *n_cells, .flows_max = *n_flows,
                            .bridges_max = bridges_max(m, *first_epoch, next)};
    for (uint32_t i = 0; i < n_flows_made(m); i++)
        take_flow(m, i, next, &answer);
    *n_flows = answer.n_flows;
    *n_cells = answer.n_cells;
    return 0;
}
