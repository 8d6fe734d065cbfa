/* A job that uses NCCL and knows nothing of the shim: checks that each call reaches the library as it was made, and that each
 * answer comes back. `caller SCENARIO`; also built as a module that main.c opens for itself alone, as Python opens PyTorch. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stub.h"

#define MUST(what)                                        \
    do {                                                  \
        if (!(what)) {                                    \
            fprintf(stderr, "%d: %s\n", __LINE__, #what); \
            exit(1);                                      \
        }                                                 \
    } while (0)
#define FLOAT32 7
#define BFLOAT16 9

static char a[8], b[8], stream[8];

static Id id_of(int number) {
    Id id;
    for (int at = 0; at < 128; at++) id.bytes[at] = (char)(number + at * 3);
    return id;
}

static void *joined(int number, int n, int rank) {
    void *comm = NULL;
    MUST(ncclCommInitRank(&comm, n, id_of(number), rank) == 0 && comm);
    MUST(!strcmp(stub_seen()->name, "InitRank") && stub_seen()->count == (size_t)(unsigned char)id_of(number).bytes[127]);
    return comm;
}

static void came(const char *name, const void *send, const void *receive, size_t count, int dtype, int how, int root, void *comm) {
    struct seen *seen = stub_seen();
    MUST(!strcmp(seen->name, name) && seen->send == send && seen->receive == receive && seen->comm == comm);
    MUST(seen->stream == stream && seen->count == count && seen->dtype == dtype && seen->how == how && seen->root == root);
}

static void plain(void) {
    void *comm = joined(1, 4, 1);
    for (size_t i = 1; i <= 3; i++) {
        MUST(ncclAllReduce(a, b, 100 * i, FLOAT32, 2, comm, stream) == 0);
        came("AllReduce", a, b, 100 * i, FLOAT32, 2, -1, comm);
    }
    MUST(ncclBroadcast(a, b, 10, BFLOAT16, 2, comm, stream) == 0);
    came("Broadcast", a, b, 10, BFLOAT16, -1, 2, comm);
    MUST(ncclBcast(b, 11, 0, 3, comm, stream) == 0);
    came("Broadcast", b, b, 11, 0, -1, 3, comm);
    MUST(ncclReduce(a, b, 12, FLOAT32, 3, 1, comm, stream) == 0);
    came("Reduce", a, b, 12, FLOAT32, 3, 1, comm);
    MUST(ncclAllGather(a, b, 13, FLOAT32, comm, stream) == 0);
    came("AllGather", a, b, 13, FLOAT32, -1, -1, comm);
    MUST(ncclReduceScatter(a, b, 14, FLOAT32, 1, comm, stream) == 0);
    came("ReduceScatter", a, b, 14, FLOAT32, 1, -1, comm);
    MUST(ncclAllReduce(a, b, 15, 99, 0, comm, stream) == 0); /* a type of later versions */
    came("AllReduce", a, b, 15, 99, 0, -1, comm);
}

static void ended(void) {
    plain();
    void *comm = joined(2, 2, 0), *other = joined(3, 2, 1);
    MUST(ncclCommDestroy(comm) == 0 && !strcmp(stub_seen()->name, "Destroy") && stub_seen()->comm == comm);
    MUST(ncclCommAbort(other) == 0 && !strcmp(stub_seen()->name, "Abort") && stub_seen()->comm == other);
    MUST(ncclCommDestroy(NULL) == 0 || 1);
}

static void groups(void) {
    void *comm = joined(1, 4, 1), *other = joined(2, 2, 0);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
    MUST(ncclGroupStart() == 0 && ncclGroupStart() == 0 && stub_depth() == 2);
    for (int peer = 0; peer < 4; peer++) {
        if (peer == 1) continue;
        MUST(ncclSend(a, 100 + (size_t)peer, FLOAT32, peer, comm, stream) == 0);
        came("Send", a, NULL, 100 + (size_t)peer, FLOAT32, -1, peer, comm);
        MUST(ncclRecv(b, 200, FLOAT32, peer, comm, stream) == 0);
        came("Recv", NULL, b, 200, FLOAT32, -1, peer, comm);
    }
    MUST(ncclGroupEnd() == 0 && stub_depth() == 1);
    MUST(ncclAllReduce(a, b, 9, FLOAT32, 0, other, stream) == 0);
    usleep(20000);
    MUST(ncclGroupEnd() == 0 && stub_depth() == 0);
    MUST(ncclSend(a, 300, FLOAT32, 2, comm, stream) == 0);
    MUST(ncclGroupEnd() == 5);
}

static void simulated(void) {
    void *comm = joined(1, 2, 0);
    MUST(ncclGroupStart() == 0 && ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
    MUST(ncclGroupSimulateEnd(a) == 0 && stub_depth() == 0);
    MUST(ncclAllReduce(a, b, 9, FLOAT32, 0, comm, stream) == 0);
}

static void splits(void) {
    void *comm = joined(1, 8, 3), *half = NULL, *none = a, *grouped = NULL, *slow = NULL;
    int asked = 5;
    MUST(ncclCommSplit(comm, 1, 2, &half, NULL) == 0 && half && stub_seen()->root == 1 && stub_seen()->how == 2);
    MUST(ncclCommSplit(comm, -1, 0, &none, NULL) == 0 && !none);
    MUST(ncclGroupStart() == 0 && ncclCommSplit(comm, 0, 3, &grouped, NULL) == 0 && !grouped && ncclGroupEnd() == 0 && grouped);
    MUST(ncclCommSplit(comm, 5, 1, &slow, &asked) == 0 && slow);
    for (int i = 0; i < 3; i++) MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, slow, stream) == 0);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, half, stream) == 0 && ncclAllReduce(a, b, 8, FLOAT32, 0, grouped, stream) == 0);
}

static void all(void) {
    void *comms[3] = {0};
    MUST(ncclCommInitAll(comms, 3, NULL) == 0 && comms[2]);
    MUST(ncclGroupStart() == 0);
    for (int i = 0; i < 3; i++) MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comms[i], stream) == 0);
    MUST(ncclGroupEnd() == 0);
}

static void asynchronous(void) {
    void *comm = NULL;
    MUST(ncclCommInitRankConfig(&comm, 2, id_of(1), 1, a) == 7 && stub_seen()->send == a);
    MUST(ncclAllReduce(a, b, 777, FLOAT32, 0, comm, stream) == 7);
}

static void scalable(void) {
    void *comm = NULL, *none = NULL;
    Id ids[2] = {id_of(1), id_of(2)};
    MUST(ncclCommInitRankScalable(&comm, 4, 3, 2, ids, a) == 0 && comm);
    MUST(stub_seen()->count == 2 && stub_seen()->root == 3 && stub_seen()->send == a && stub_seen()->receive == ids);
    MUST(ncclCommInitRankScalable(&none, 4, 3, 0, NULL, NULL) == 4 && !none);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
}

static void failing(void) {
    void *comm = joined(1, 2, 0);
    MUST(ncclAllReduce(a, b, 666, FLOAT32, 0, comm, stream) == 4);
    MUST(ncclGroupStart() == 0 && ncclSend(a, 666, FLOAT32, 1, comm, stream) == 4 && ncclGroupEnd() == 0);
    MUST(ncclAllReduce(a, b, 5, FLOAT32, 0, comm, stream) == 0);
}

static void strangers(void) {
    void *comm = stub_comm(2, 0);
    for (int i = 0; i < 5; i++) MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
    joined(1, 2, 0);
    for (int i = 0; i < 7; i++) MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, NULL, stream) == 0 && ncclFromTheFuture(41) == 42);
}

static void *busy(void *number) {
    void *comm = joined(10 + (int)(long)number, 2, 1);
    for (int i = 0; i < 20000; i++) {
        MUST(ncclAllReduce(a, b, 64, FLOAT32, 0, comm, stream) == 0);
        if (i % 100) continue;
        MUST(ncclGroupStart() == 0 && ncclSend(a, 1, FLOAT32, 0, comm, stream) == 0);
        MUST(ncclRecv(a, 1, FLOAT32, 0, comm, stream) == 0 && ncclGroupEnd() == 0);
    }
    return NULL;
}

static void threads(void) {
    pthread_t made[8];
    for (long i = 0; i < 8; i++) MUST(!pthread_create(&made[i], NULL, busy, (void *)i));
    for (int i = 0; i < 8; i++) pthread_join(made[i], NULL);
}

static void *churning(void *number) {
    for (int i = 0; i < 500; i++) {
        void *comm = joined((int)(long)number, 2, 1);
        MUST(ncclAllReduce(a, b, 64, FLOAT32, 0, comm, stream) == 0 && ncclCommDestroy(comm) == 0);
    }
    return NULL;
}

static void churn(void) {
    pthread_t made[4];
    for (long i = 0; i < 4; i++) MUST(!pthread_create(&made[i], NULL, churning, (void *)i));
    for (int i = 0; i < 4; i++) pthread_join(made[i], NULL);
}

static void many(void) {
    void *comm = joined(1, 64, 1);
    MUST(ncclGroupStart() == 0);
    for (int i = 0; i < 5000; i++) MUST(ncclSend(a, 8, FLOAT32, i % 64, comm, stream) == 0);
    MUST(ncclGroupEnd() == 0);
    for (int i = 0; i < 1200; i++) joined(100 + i, 2, 0);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
}

static void forked(void) {
    void *comm = joined(1, 2, 0);
    MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
    pid_t child = fork();
    if (!child) {
        MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, comm, stream) == 0);
        MUST(ncclAllReduce(a, b, 8, FLOAT32, 0, joined(2, 2, 1), stream) == 0);
        _exit(0);
    }
    int status = 1;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(ncclAllReduce(a, b, 9, FLOAT32, 0, comm, stream) == 0);
}

int run(const char *scenario);
int run(const char *scenario) {
    static const struct {
        const char *name;
        void (*function)(void);
    } all_of_them[] = {{"plain", plain},     {"ended", ended},         {"groups", groups}, {"simulated", simulated},
                       {"splits", splits},   {"all", all},             {"asynchronous", asynchronous},
                       {"scalable", scalable},
                       {"failing", failing}, {"strangers", strangers}, {"threads", threads},
                       {"churn", churn},     {"many", many},           {"forked", forked}};
    for (size_t at = 0; at < sizeof all_of_them / sizeof *all_of_them; at++)
        if (!strcmp(all_of_them[at].name, scenario)) return all_of_them[at].function(), 0;
    return 2;
}

#ifndef MODULE
int main(int n, char **words) { return n == 2 ? run(words[1]) : 2; }
#endif
