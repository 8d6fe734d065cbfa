/* NCCL's communicators by their handles: joined when they are made, left when they are destroyed, found by every call.
 *
 * A table with open addressing. Calls read it without a lock: a place's handle is looked at before and after its context,
 * because an abort may come from another thread. The number of a communicator is what NCCL itself prints as its commHash, a
 * hash of the unique id: the interface does not tell it, and all members compute the same.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

#define PLACES 1024u /* a power of two, four times as many as communicators */
#define GONE ((void *)1)
#define LOCK_TRIES 100000
#define PROFILED_FROM 22600 /* the first NCCL whose profiler interface our plugin speaks */

typedef struct Place {
    void *handle;
    uint64_t context;
    uint64_t comm_id;
    uint32_t n_splits;
    uint32_t is_open; /* its rank is not known yet */
} Place;

static Place places[PLACES];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_of_all;

static const char *const dtypes[] = {
    "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
};

static const char *name_of_dtype(int code) {
    return code >= 0 && (size_t)code < sizeof dtypes / sizeof *dtypes ? dtypes[code] : NULL;
}

static uint32_t first_place(const void *handle) {
    return (uint32_t)(((uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15u) >> 54);
}

/* Its place, or a free one when `for_new`; NULL when there is none. */
static Place *place_of(const void *handle, int for_new) {
    Place *free_one = NULL;
    for (uint32_t tries = 0, at = first_place(handle); tries < PLACES; tries++, at = (at + 1) % PLACES) {
        void *found = ACQUIRE(places[at].handle);
        if (found == handle) return &places[at];
        if (found == GONE && !free_one) free_one = &places[at];
        if (!found) return for_new ? (free_one ? free_one : &places[at]) : NULL;
    }
    return for_new ? free_one : NULL;
}

/* DJB2a over all of it, signs and all. */
static uint64_t hash(const char *bytes, size_t n) {
    uint64_t found = 5381;
    for (size_t at = 0; at < n; at++) found = ((found << 5) + found) ^ (uint64_t)(int64_t)(signed char)bytes[at];
    return found ? found : 1;
}

uint64_t api_id_of(const UniqueId *id) { return hash(id->bytes, sizeof id->bytes); }

/* A child of a fork may have inherited it locked for ever: then communicators go untraced, and nobody waits. */
static int lock(void) {
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        if (!pthread_mutex_trylock(&changing)) return 1;
        sched_yield();
    }
    return 0;
}

/* Every member of the parent splits it as often as the others, with or without a color. */
uint64_t api_id_of_split(void *parent, int color) {
    UniqueId id = {{0}};
    if (!lock()) return 0;
    Place *place = place_of(parent, 0);
    uint64_t of_parent = place ? place->comm_id : 0;
    uint32_t n_splits = place ? ++place->n_splits : 0;
    pthread_mutex_unlock(&changing);
    if (!of_parent || color == NCCL_NO_COLOR) return 0;
    snprintf(id.bytes, sizeof id.bytes, "%016lx-%d-%d", (unsigned long)of_parent, (int)n_splits, color);
    return api_id_of(&id);
}

/* ncclCommInitAll makes its unique id by itself; all members are in this process. */
uint64_t api_id_of_all(void) {
    UniqueId id = {{0}};
    snprintf(id.bytes, sizeof id.bytes, "%d-%llu-%llu", (int)getpid(), (unsigned long long)room_starttime(),
             (unsigned long long)ADD(n_of_all, 1));
    return api_id_of(&id);
}

static int ask(const char *name, void **kept, void *comm) {
    int number = -1;
    int (*real)(void *, int *) = (int (*)(void *, int *))(uintptr_t)api_real(kept, name);
    return real && real(comm, &number) == NCCL_DONE ? number : -1;
}

static int rank_of(void *comm) {
    static void *kept;
    return ask("ncclCommUserRank", &kept, comm);
}

static int count_of(void *comm) {
    static void *kept;
    return ask("ncclCommCount", &kept, comm);
}

/* The profiler plugin sees more than we do: where NCCL can load it, and is told to, it traces and we do not. */
static int is_wanted(void) {
    static void *kept;
    int version = 0;
    const char *off = getenv("DIOGENES_NCCL_API"), *profiler = getenv("NCCL_PROFILER_PLUGIN");
    int (*get_version)(int *) = (int (*)(int *))(uintptr_t)api_real(&kept, "ncclGetVersion");
    if (off && !strcmp(off, "0")) return 0;
    if (get_version && get_version(&version)) version = 0;
    return !(version >= PROFILED_FROM && profiler && *profiler && strcmp(profiler, "none"));
}

static void settle_rank(Making *made, void *handle) {
    if (made->rank < 0) {
        made->rank = rank_of(handle);
        made->n_ranks = count_of(handle);
    }
}

static void keep(void *handle, uint64_t context, uint64_t comm_id, int is_open) {
    if (!lock()) return;
    Place *place = place_of(handle, 1);
    if (place) {
        STORE(place->context, context);
        STORE(place->comm_id, comm_id);
        place->n_splits = 0;
        STORE(place->is_open, (uint32_t)is_open);
        PUBLISH(place->handle, handle);
    } else if (plugin.header) {
        COUNT(comm_table_full);
    }
    pthread_mutex_unlock(&changing);
}

void api_joined(const Making *made) {
    Making who = *made;
    void *handle = *made->handle;
    if (!handle || handle == GONE || !is_wanted()) return;
    api_left(handle); /* it was freed without our seeing it */
    settle_rank(&who, handle);
    int is_open = who.rank < 0; /* it is still being made, and cannot be asked */
    CommJoin join = {.comm_id = is_open ? 0 : who.comm_id, .n_ranks = who.n_ranks > 0 ? who.n_ranks : 0, .rank = who.rank,
                     .began_ns = who.began_ns};
    uint64_t context = comm_join(&join);
    if (!plugin.header) return;
    if (handle_generation(context)) /* bits of `counters_seen`: none of a chunk's stages can be seen from here */
        STORE(plugin.comms[handle_row(context)].network_seen, COMM_LACKS_ALL);
    keep(handle, context, who.comm_id, is_open);
}

void api_left(void *comm) {
    if (!lock()) return;
    Place *place = comm && comm != GONE ? place_of(comm, 0) : NULL;
    uint64_t context = place ? place->context : 0;
    if (place) PUBLISH(place->handle, GONE);
    pthread_mutex_unlock(&changing);
    if (place && plugin.header) comm_leave(context);
}

/* A communicator that was still being made when it was joined: now it can be asked who we are in it. */
static void learn(Place *place, void *comm, OpStart *start) {
    int rank = rank_of(comm), n_ranks = count_of(comm);
    if (rank < 0 || n_ranks < 1) return;
    CommRow *row = comm_find(place->context);
    if (!row) return;
    STORE(row->n_ranks, n_ranks);
    start->comm_id = LOAD(place->comm_id);
    start->rank = rank;
    STORE(place->is_open, 0);
}

uint64_t api_started(const Call *call) {
    if (!plugin.header || !call->comm) return 0;
    Place *place = place_of(call->comm, 0);
    uint64_t context = place ? LOAD(place->context) : 0;
    if (!place || ACQUIRE(place->handle) != call->comm) {
        COUNT(api_unknown_comms);
        return 0;
    }
    OpStart start = {.context = context, .seq = -1, .func = call->func, .dtype = name_of_dtype(call->dtype),
                     .count = call->count, .peer = call->peer, .is_p2p = call->is_p2p, .flags = OP_API};
    if (LOAD(place->is_open)) learn(place, call->comm, &start);
    return op_start(&start);
}
