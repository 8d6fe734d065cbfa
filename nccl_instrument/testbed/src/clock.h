/* Time and waiting. Every wait of the engine is a blocking one (futex, epoll): the job shares its machine with the
 * console it feeds, and a spinning thread would starve it. Doorbells live in shared memory, so that a GPU thread can
 * also be woken by its neighbour's process. All times are CLOCK_MONOTONIC nanoseconds. */
#ifndef DG_CLOCK_H
#define DG_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define NEVER_NS UINT64_MAX

struct bell {
    _Alignas(64) _Atomic uint32_t rings;
    _Atomic uint32_t is_asleep;
};

uint64_t now_ns(void);
void sleep_until_ns(uint64_t deadline_ns);

/* Ringing costs one atomic add when nobody sleeps on the bell. */
void bell_ring(struct bell *bell);
uint32_t bell_read(struct bell *bell);
/* Returns when the bell rang since `seen` was read, or at deadline_ns; spurious returns are allowed. */
void bell_wait(struct bell *bell, uint32_t seen, uint64_t deadline_ns);

/* Reserves `cost_ns` on a resource that serves one customer after the other; returns when the service ends. */
uint64_t reserve_ns(_Atomic uint64_t *busy_until_ns, uint64_t earliest_ns, uint64_t cost_ns);

#endif
