/* What the files of the API shim share. The types are our own declarations of NCCL's public C interface: handles are
 * pointers, enumerations are int, a unique id is 128 bytes passed by value. */
#ifndef DIOGENES_NCCL_API_H
#define DIOGENES_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#include "plugin.h"

#define NCCL_DONE 0
#define NCCL_INTERNAL_ERROR 3
#define NCCL_IN_PROGRESS 7 /* of a communicator that does not block: what was asked for goes on */
#define NCCL_NO_COLOR (-1)
#define LIVE_KEPT 8 /* of a communicator: the newest calls stay visible as ops in progress, older ones become records */

typedef struct UniqueId {
    char bytes[128];
} UniqueId;

/* A call that makes an op. root: of a collective, 0 where it has none, as NCCL numbers it. */
typedef struct Call {
    void *comm;
    const char *func;
    uint64_t count;
    int dtype;
    int peer;
    uint8_t is_p2p;
} Call;

/* A communicator that is being made: where its handle will be, and who this process is in it; rank -1: to be asked. */
typedef struct Making {
    void **handle;
    uint64_t comm_id;
    int n_ranks;
    int rank;
    int64_t began_ns;
} Making;

static inline int api_is_good(int done) { return done == NCCL_DONE || done == NCCL_IN_PROGRESS; }

/* real.c: the function of this name behind us, looked up once; NULL when there is none. */
PRIVATE void *api_real(void **kept, const char *name);

/* communicators.c */
PRIVATE uint64_t api_id_of(const UniqueId *id);
PRIVATE uint64_t api_id_of_split(void *parent, int color);
PRIVATE uint64_t api_id_of_all(void);
PRIVATE void api_joined(const Making *made);
PRIVATE void api_left(void *comm);
PRIVATE uint64_t api_started(const Call *call); /* the op's handle, 0 when it is not traced */

/* groups.c: one thread's nesting. Calls that NCCL makes while it serves one of ours are its own business. */
PRIVATE int api_enter(void); /* 1 when nobody of this thread is inside */
PRIVATE void api_leave(void);
PRIVATE void api_group_started(void);
PRIVATE void api_group_ending(void); /* before NCCL's own: what was collected is enqueued now */
PRIVATE void api_group_ended(int done);
PRIVATE void api_launched(uint64_t op, int done); /* or collected, inside a group */
PRIVATE void api_made(const Making *making, int done);
PRIVATE void api_close(uint64_t op, enum Closing how);

#endif
