/* What a caller may ask the library without hardware: the last call it got, word for word. */
#ifndef STUB_H
#define STUB_H

#include <stddef.h>

typedef struct {
    char bytes[128];
} Id;

struct seen {
    const char *name;
    const void *send, *receive, *comm, *stream;
    size_t count;
    int dtype, how, root;
};

struct seen *stub_seen(void);    /* of this thread */
int stub_depth(void);            /* of groups, of this thread */
void *stub_comm(int n, int r);   /* a communicator made by a call nobody knows */
int ncclFromTheFuture(int word); /* word + 1 */

int ncclGetVersion(int *version);
int ncclCommCount(const void *comm, int *count);
int ncclCommUserRank(const void *comm, int *rank);
int ncclCommInitRank(void **comm, int n, Id id, int rank);
int ncclCommInitRankConfig(void **comm, int n, Id id, int rank, void *config);
int ncclCommInitRankScalable(void **comm, int n, int rank, int n_ids, Id *ids, void *config);
int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclCommSplit(void *comm, int color, int key, void **made, void *config);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *estimate);
int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream);
int ncclBroadcast(const void *send, void *receive, size_t count, int dtype, int root, void *comm, void *stream);
int ncclBcast(void *buffer, size_t count, int dtype, int root, void *comm, void *stream);
int ncclReduce(const void *send, void *receive, size_t count, int dtype, int how, int root, void *comm, void *stream);
int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream);
int ncclReduceScatter(const void *send, void *receive, size_t count, int dtype, int how, void *comm, void *stream);
int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);
int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream);

#endif
