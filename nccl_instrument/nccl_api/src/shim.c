/* NCCL's API in front of NCCL, for LD_PRELOAD: each function notes the call and hands it on as it came.
 *
 * For NCCL up to 2.25, whose profiler interface is too old for the plugin or not there. Only calls that say which ops run, and
 * who is in which communicator, are here; all others never come by. Whatever of ours fails, the call is NCCL's alone.
 */
#include "api.h"

#define EXPORT __attribute__((visibility("default")))

/* The function behind this one, as `real`; without one there is nothing that could serve the call. */
#define REAL(name, ...)                                                                                      \
    static void *kept;                                                                                       \
    int (*real)(__VA_ARGS__) = (int (*)(__VA_ARGS__))(uintptr_t)api_real(&kept, #name);                      \
    if (!real) return NCCL_INTERNAL_ERROR

/* `call` handed on, with the op of `what` around it. */
#define NOTED(what, call)                                                                                    \
    Call noted = what;                                                                                       \
    uint64_t op = api_enter() ? api_started(&noted) : 0;                                                     \
    int done = call;                                                                                         \
    api_leave();                                                                                             \
    api_launched(op, done);                                                                                  \
    return done

#define COLLECTIVE(name, root_) ((Call){.comm = comm, .func = name, .count = count, .dtype = dtype, .peer = root_})
#define P2P(name) ((Call){.comm = comm, .func = name, .count = count, .dtype = dtype, .peer = peer, .is_p2p = 1})

EXPORT int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream);
EXPORT int ncclBroadcast(const void *send, void *receive, size_t count, int dtype, int root, void *comm, void *stream);
EXPORT int ncclBcast(void *buffer, size_t count, int dtype, int root, void *comm, void *stream);
EXPORT int ncclReduce(const void *send, void *receive, size_t count, int dtype, int how, int root, void *comm, void *stream);
EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream);
EXPORT int ncclReduceScatter(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream);
EXPORT int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);
EXPORT int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);
EXPORT int ncclGroupSimulateEnd(void *estimate);
EXPORT int ncclCommInitRank(void **comm, int n_ranks, UniqueId id, int rank);
EXPORT int ncclCommInitRankConfig(void **comm, int n_ranks, UniqueId id, int rank, void *config);
EXPORT int ncclCommInitRankScalable(void **comm, int n_ranks, int rank, int n_ids, UniqueId *ids, void *config);
EXPORT int ncclCommInitAll(void **comms, int n_devices, const int *devices);
EXPORT int ncclCommSplit(void *comm, int color, int key, void **made, void *config);
EXPORT int ncclCommDestroy(void *comm);
EXPORT int ncclCommAbort(void *comm);

int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream) {
    REAL(ncclAllReduce, const void *, void *, size_t, int, int, void *, void *);
    NOTED(COLLECTIVE("AllReduce", 0), real(send, receive, count, dtype, how, comm, stream));
}

int ncclBroadcast(const void *send, void *receive, size_t count, int dtype, int root, void *comm, void *stream) {
    REAL(ncclBroadcast, const void *, void *, size_t, int, int, void *, void *);
    NOTED(COLLECTIVE("Broadcast", root), real(send, receive, count, dtype, root, comm, stream));
}

int ncclBcast(void *buffer, size_t count, int dtype, int root, void *comm, void *stream) {
    REAL(ncclBcast, void *, size_t, int, int, void *, void *);
    NOTED(COLLECTIVE("Broadcast", root), real(buffer, count, dtype, root, comm, stream));
}

int ncclReduce(const void *send, void *receive, size_t count, int dtype, int how, int root, void *comm, void *stream) {
    REAL(ncclReduce, const void *, void *, size_t, int, int, int, void *, void *);
    NOTED(COLLECTIVE("Reduce", root), real(send, receive, count, dtype, how, root, comm, stream));
}

int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream) {
    REAL(ncclAllGather, const void *, void *, size_t, int, void *, void *);
    NOTED(COLLECTIVE("AllGather", 0), real(send, receive, count, dtype, comm, stream));
}

int ncclReduceScatter(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream) {
    REAL(ncclReduceScatter, const void *, void *, size_t, int, int, void *, void *);
    NOTED(COLLECTIVE("ReduceScatter", 0), real(send, receive, count, dtype, how, comm, stream));
}

int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
    REAL(ncclSend, const void *, size_t, int, int, void *, void *);
    NOTED(P2P("Send"), real(buffer, count, dtype, peer, comm, stream));
}

int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
    REAL(ncclRecv, void *, size_t, int, int, void *, void *);
    NOTED(P2P("Recv"), real(buffer, count, dtype, peer, comm, stream));
}

int ncclGroupStart(void) {
    REAL(ncclGroupStart, void);
    int is_outer = api_enter(), done = real();
    api_leave();
    if (is_outer && done == NCCL_DONE) api_group_started();
    return done;
}

int ncclGroupEnd(void) {
    REAL(ncclGroupEnd, void);
    int is_outer = api_enter();
    if (is_outer) api_group_ending();
    int done = real();
    api_leave();
    if (is_outer) api_group_ended(done);
    return done;
}

/* It ends a group and runs nothing of it: as good as a failure, but for what NCCL answers. */
int ncclGroupSimulateEnd(void *estimate) {
    REAL(ncclGroupSimulateEnd, void *);
    int is_outer = api_enter(), done = real(estimate);
    api_leave();
    if (is_outer) api_group_ended(NCCL_INTERNAL_ERROR);
    return done;
}

int ncclCommInitRank(void **comm, int n_ranks, UniqueId id, int rank) {
    REAL(ncclCommInitRank, void **, int, UniqueId, int);
    int64_t began_ns = now_ns();
    int is_outer = api_enter(), done = real(comm, n_ranks, id, rank);
    api_leave();
    if (is_outer) api_made(&(Making){comm, api_id_of(&id), n_ranks, rank, began_ns}, done);
    return done;
}

int ncclCommInitRankConfig(void **comm, int n_ranks, UniqueId id, int rank, void *config) {
    REAL(ncclCommInitRankConfig, void **, int, UniqueId, int, void *);
    int64_t began_ns = now_ns();
    int is_outer = api_enter(), done = real(comm, n_ranks, id, rank, config);
    api_leave();
    if (is_outer) api_made(&(Making){comm, api_id_of(&id), n_ranks, rank, began_ns}, done);
    return done;
}

/* Since 2.23: with several unique ids, the same list on all members, so that the first is theirs alone. */
int ncclCommInitRankScalable(void **comm, int n_ranks, int rank, int n_ids, UniqueId *ids, void *config) {
    REAL(ncclCommInitRankScalable, void **, int, int, int, UniqueId *, void *);
    int64_t began_ns = now_ns();
    uint64_t comm_id = ids && n_ids > 0 ? api_id_of(&ids[0]) : 0;
    int is_outer = api_enter(), done = real(comm, n_ranks, rank, n_ids, ids, config);
    api_leave();
    if (is_outer && comm_id) api_made(&(Making){comm, comm_id, n_ranks, rank, began_ns}, done);
    return done;
}

int ncclCommInitAll(void **comms, int n_devices, const int *devices) {
    REAL(ncclCommInitAll, void **, int, const int *);
    int64_t began_ns = now_ns();
    int is_outer = api_enter(), done = real(comms, n_devices, devices);
    api_leave();
    uint64_t comm_id = is_outer && api_is_good(done) ? api_id_of_all() : 0;
    for (int rank = 0; comm_id && rank < n_devices; rank++)
        api_made(&(Making){&comms[rank], comm_id, n_devices, rank, began_ns}, done);
    return done;
}

int ncclCommSplit(void *comm, int color, int key, void **made, void *config) {
    REAL(ncclCommSplit, void *, int, int, void **, void *);
    int64_t began_ns = now_ns();
    int is_outer = api_enter(), done = real(comm, color, key, made, config);
    api_leave();
    if (is_outer && api_is_good(done)) api_made(&(Making){made, api_id_of_split(comm, color), 0, -1, began_ns}, done);
    return done;
}

/* Left before: when NCCL has freed it, another thread may get its handle for a new one. */
int ncclCommDestroy(void *comm) {
    REAL(ncclCommDestroy, void *);
    int is_outer = api_enter();
    if (is_outer) api_left(comm);
    int done = real(comm);
    api_leave();
    return done;
}

int ncclCommAbort(void *comm) {
    REAL(ncclCommAbort, void *);
    int is_outer = api_enter();
    if (is_outer) api_left(comm);
    int done = real(comm);
    api_leave();
    return done;
}
