/* libnccl.so.2 without hardware: its public functions by their real names. It remembers each call, fails on request (a count
 * of 666 is refused, 777 is only begun), calls its own public functions where NCCL does, and gives handles of communicators
 * made in a group only at the group's end. */
#include "stub.h"

#include <stdlib.h>

struct comm {
    int n, rank, asked; /* asked: how often it still answers that it is not made yet */
};
struct made {
    void **at;
    struct comm *comm;
};

static _Thread_local struct seen seen;
static _Thread_local struct made waiting[64];
static _Thread_local int depth, n_waiting;

struct seen *stub_seen(void) { return &seen; }
int stub_depth(void) { return depth; }
int ncclFromTheFuture(int word) { return word + 1; }

int ncclGetVersion(int *version) {
    const char *said = getenv("STUB_VERSION");
    *version = said ? atoi(said) : 22105;
    return 0;
}

static struct comm *new_comm(int n, int rank) {
    struct comm *comm = calloc(1, sizeof *comm);
    comm->n = n;
    comm->rank = rank;
    return comm;
}

void *stub_comm(int n, int r) { return new_comm(n, r); }

static int hand_over(void **at, struct comm *comm) {
    if (!depth) {
        *at = comm;
    } else {
        *at = NULL;
        waiting[n_waiting++] = (struct made){at, comm};
    }
    return 0;
}

static int result_of(size_t count) { return count == 666 ? 4 : count == 777 ? 7 : 0; }

int ncclCommCount(const void *comm, int *count) {
    struct comm *of = (struct comm *)comm;
    if (of->asked > 0) return of->asked--, 7;
    *count = of->n;
    return 0;
}

int ncclCommUserRank(const void *comm, int *rank) {
    struct comm *of = (struct comm *)comm;
    if (of->asked > 0) return of->asked--, 7;
    *rank = of->rank;
    return 0;
}

int ncclCommInitRank(void **comm, int n, Id id, int rank) {
    seen = (struct seen){.name = "InitRank", .count = (size_t)(unsigned char)id.bytes[127], .root = rank};
    return hand_over(comm, new_comm(n, rank));
}

int ncclCommInitRankConfig(void **comm, int n, Id id, int rank, void *config) {
    seen = (struct seen){.name = "InitRankConfig", .count = (size_t)(unsigned char)id.bytes[127], .root = rank, .send = config};
    *comm = new_comm(n, rank);
    return config ? 7 : 0;
}

int ncclCommInitRankScalable(void **comm, int n, int rank, int n_ids, Id *ids, void *config) {
    seen = (struct seen){.name = "InitRankScalable", .count = (size_t)n_ids, .root = rank, .send = config, .receive = ids};
    if (!ids || n_ids < 1) return 4;
    return hand_over(comm, new_comm(n, rank));
}

int ncclCommInitAll(void **comms, int n, const int *devices) {
    Id id = {{0}};
    (void)devices;
    ncclGroupStart();
    for (int rank = 0; rank < n; rank++) ncclCommInitRank(&comms[rank], n, id, rank);
    return ncclGroupEnd();
}

/* config: points to how often the new communicator answers that it is not made yet. */
int ncclCommSplit(void *comm, int color, int key, void **made, void *config) {
    struct comm *of = comm, *child = color < 0 ? NULL : new_comm(of->n / 2, key);
    seen = (struct seen){.name = "Split", .comm = comm, .root = color, .how = key, .send = config};
    if (child && config) child->asked = *(int *)config;
    if (!child) *made = NULL;
    return child ? hand_over(made, child) : 0;
}

int ncclCommDestroy(void *comm) {
    seen = (struct seen){.name = "Destroy", .comm = comm};
    free(comm);
    return 0;
}

int ncclCommAbort(void *comm) {
    seen = (struct seen){.name = "Abort", .comm = comm};
    free(comm);
    return 0;
}

int ncclGroupStart(void) {
    depth++;
    return 0;
}

int ncclGroupEnd(void) {
    if (!depth) return 5;
    if (--depth) return 0;
    for (int at = 0; at < n_waiting; at++) *waiting[at].at = waiting[at].comm;
    n_waiting = 0;
    return 0;
}

int ncclGroupSimulateEnd(void *estimate) {
    seen = (struct seen){.name = "SimulateEnd", .send = estimate};
    return ncclGroupEnd();
}

int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream) {
    seen = (struct seen){"AllReduce", send, receive, comm, stream, count, dtype, how, -1};
    return result_of(count);
}

int ncclBroadcast(const void *send, void *receive, size_t count, int dtype, int root, void *comm, void *stream) {
    seen = (struct seen){"Broadcast", send, receive, comm, stream, count, dtype, -1, root};
    return result_of(count);
}

int ncclBcast(void *buffer, size_t count, int dtype, int root, void *comm, void *stream) {
    return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}

int ncclReduce(const void *send, void *receive, size_t count, int dtype, int how, int root, void *comm, void *stream) {
    seen = (struct seen){"Reduce", send, receive, comm, stream, count, dtype, how, root};
    return result_of(count);
}

int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream) {
    seen = (struct seen){"AllGather", send, receive, comm, stream, count, dtype, -1, -1};
    return result_of(count);
}

int ncclReduceScatter(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream) {
    seen = (struct seen){"ReduceScatter", send, receive, comm, stream, count, dtype, how, -1};
    return result_of(count);
}

int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
    seen = (struct seen){"Send", buffer, NULL, comm, stream, count, dtype, -1, peer};
    return result_of(count);
}

int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
    seen = (struct seen){"Recv", NULL, buffer, comm, stream, count, dtype, -1, peer};
    return result_of(count);
}
