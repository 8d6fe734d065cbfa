#define _GNU_SOURCE
#include "spread.h"

#include <stddef.h>

struct out {
    struct dgm_moved *cells;
    uint64_t room, n;
    uint32_t flow;
    int64_t epoch; /* of the newest cell */
};

static void put(struct out *out, uint32_t flow, int64_t epoch, uint64_t bytes) {
    if (!bytes)
        return;
    if (!out->n || out->flow != flow || out->epoch != epoch) {
        out->flow = flow;
        out->epoch = epoch;
        if (out->n++ < out->room)
            out->cells[out->n - 1] = (struct dgm_moved){flow, 0, epoch, 0};
    }
    if (out->n <= out->room)
        out->cells[out->n - 1].bytes += bytes;
}

/* All but the last epoch share all but one byte, rounded up: so the first and the last get some. */
static void put_span(struct out *out, const struct dgm_span *span, int64_t epoch_ns) {
    int64_t took = span->to_ns > span->from_ns ? span->to_ns - span->from_ns : 0;
    int64_t first = span->from_ns / epoch_ns, last = took ? (span->to_ns - 1) / epoch_ns : first;
    uint64_t done = 0;
    for (int64_t epoch = first; epoch < last && done < span->bytes; epoch++) {
        uint64_t passed = (uint64_t)((epoch + 1) * epoch_ns - span->from_ns);
        unsigned __int128 share = (unsigned __int128)(span->bytes - 1) * passed + (uint64_t)took - 1;
        uint64_t until = (uint64_t)(share / (uint64_t)took);
        put(out, span->flow, epoch, until - done);
        done = until;
    }
    put(out, span->flow, last, span->bytes - done);
}

uint64_t dgm_spread(const struct dgm_span *spans, uint64_t n, uint32_t epoch_ns, struct dgm_moved *cells, uint64_t room) {
    struct out out = {.cells = cells, .room = room};
    for (uint64_t at = 0; at < n; at++)
        put_span(&out, &spans[at], epoch_ns);
    return out.n;
}
