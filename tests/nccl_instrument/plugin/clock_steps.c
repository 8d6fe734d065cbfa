/* Preloaded: the wall clock goes an hour back or forth at every look, the monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static unsigned n_looks;
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += __atomic_fetch_add(&n_looks, 1, __ATOMIC_RELAXED) % 2 ? 3600 : -3600;
    return result;
}
