/*
 * Bytes by epoch of transfers whose beginning and end are known, as a proxy thread sees them: a chunk's bytes are shared out
 * evenly over the epochs it was under way. Exact: no unit, no byte more or less. Flows are numbered by who calls, so there is
 * no table, and what comes out belongs to the caller, so there is no pool.
 */
#ifndef DG_SPREAD_H
#define DG_SPREAD_H

#include <stdint.h>

struct dgm_span {
    uint32_t flow;
    uint32_t reserved;
    int64_t from_ns, to_ns; /* 0 <= from; to < from counts as from */
    uint64_t bytes;
};

struct dgm_moved {
    uint32_t flow;
    uint32_t reserved;
    int64_t epoch; /* time / epoch_ns */
    uint64_t bytes;
};

/*
 * Writes the epochs of `n` spans, which are sorted by flow and then by time; of a flow they may touch but not overlap. Returns how
 * many there are: more than `room` means that only the first `room` were written. First and last epoch of a span always get bytes.
 */
uint64_t dgm_spread(const struct dgm_span *spans, uint64_t n, uint32_t epoch_ns, struct dgm_moved *cells, uint64_t room);

#endif
