/* Clock, futex doorbells and the first-come-first-served resource clock (see clock.h). */
#define _GNU_SOURCE
#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct timespec to_timespec(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    return t;
}

void sleep_until_ns(uint64_t deadline_ns)
{
    struct timespec t = to_timespec(deadline_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void bell_ring(struct bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    /* Not FUTEX_PRIVATE: the sleeper may be another process of this node. */
    if (atomic_load(&bell->is_asleep))
        syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t bell_read(struct bell *bell)
{
    return atomic_load(&bell->rings);
}

void bell_wait(struct bell *bell, uint32_t seen, uint64_t deadline_ns)
{
    struct timespec t = to_timespec(deadline_ns);
    atomic_store(&bell->is_asleep, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT_BITSET, seen, deadline_ns == NEVER_NS ? NULL : &t, NULL,
            FUTEX_BITSET_MATCH_ANY);
    atomic_store(&bell->is_asleep, 0);
}

uint64_t reserve_ns(_Atomic uint64_t *busy_until_ns, uint64_t earliest_ns, uint64_t cost_ns)
{
    uint64_t busy = atomic_load(busy_until_ns), end;
    do {
        end = (busy > earliest_ns ? busy : earliest_ns) + cost_ns;
    } while (!atomic_compare_exchange_weak(busy_until_ns, &busy, end));
    return end;
}
