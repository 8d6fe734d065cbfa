/* Preloaded: the wall clock is as many seconds off as the file CLOCK_OFFSET_FILE says at that moment. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    char text[32] = "";
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock != CLOCK_REALTIME) return result;
    int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
    if (file >= 0) close(file);
    return result;
}
