/* A job on that NCCL: `api_job`. Communicators 0 (a ring of four), 1 (two ranks) and 2 (of which a part stays in the node); a line
 * per op, "comm op kind begin end", by its own clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    char bytes[128];
} Id;

int ncclCommInitRank(void **comm, int n, Id id, int rank);
int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream);
int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);
int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void rest(long ns) {
    struct timespec pause = {ns / 1000000000, ns % 1000000000};
    nanosleep(&pause, NULL);
}

int main(void) {
    static const int sizes[3] = {4, 2, 4}, shares[3] = {100, 100, 37};
    void *comms[3];
    for (int i = 0; i < 3; i++) {
        Id id = {{(char)(2 + i), (char)shares[i]}};
        if (ncclCommInitRank(&comms[i], sizes[i], id, 1)) return 1;
        rest(2000000);
    }
    for (int op = 1; op <= 20; op++) {
        for (int i = 0; i < 3; i++) {
            long long begin = now_ns();
            if (ncclAllReduce(NULL, NULL, 262144 + 65536 * (size_t)(op % 3), 7, 0, comms[i], NULL)) return 1;
            printf("%d %d 0 %lld %lld\n", i, op, begin, now_ns());
            rest(5000000);
        }
        long long begin = now_ns();
        if (ncclGroupStart() || ncclSend(NULL, 200000, 7, 3, comms[0], NULL) || ncclRecv(NULL, 200000, 7, 2, comms[0], NULL) ||
            ncclGroupEnd())
            return 1;
        printf("0 %d 1 %lld %lld\n", op, begin, now_ns());
        rest(5000000);
    }
    rest(1600000000);
    rest(1000000000);
    fflush(stdout);
    getchar();
    return 0;
}
