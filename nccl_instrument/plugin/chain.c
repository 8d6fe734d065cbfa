/* One other profiler plugin beside ours (DIOGENES_CHAIN_PLUGIN), because NCCL loads one alone.
 *
 * It is called as NCCL would call it: the same table version, order and threads, its own contexts, handles and parents.
 * NCCL holds a handle that names a slot with both plugins' handles. Slots are a ring: a stopped one keeps its content
 * until the ring comes round, because NCCL names parents that have stopped. What crashes plugins is kept from it:
 * events of another process (PXN), second stops, receive steps started again, life in a forked child. Its own bugs are
 * in the trainer as they would be without us.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"

#define SLOTS 65536u
#define SLOT_PROBES 64
#define ONLY_UNDER_PARENT 0x80D0u /* ProxyStep, KernelCh, NetPlugin, KernelPhase: none without a parent in NCCL */
#define LOG_WARN_LEVEL 2
#define LOG_INIT 0x1ul

typedef struct Slot {
    uint32_t state; /* generation << 8 | RowState */
    int32_t last_step; /* of a ProxyOp */
    uint64_t last_handle;
    uint64_t ours;
    uint64_t context; /* handle of its communicator's slot; of a communicator: its own */
    void *theirs;
    const ProfilerV5 *table; /* but for the type of init all versions are alike */
    int abi;
} Slot;

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static void *library;
static Slot *slots;
static uint32_t cursor;
static int32_t owner; /* process that loaded it: a forked child cannot know in what state it is */
static int mask; /* of the other plugin; one for the process, as NCCL's */

/* Asking for a child means being told of its parents; by bit of the type. */
static const uint32_t asked_by[] = {0x80DF, 0x80DA, 0x80DC, 0x98, 0x90, 0x20, 0x8040, 0x80, 0xFFDE, 0xF2DA, 0x84DC,
                                    0x800, 0x7000, 0x2000, 0x4000, 0x8000};

static int is_wanted(uint64_t type) {
    for (unsigned bit = 0; bit < sizeof asked_by / sizeof *asked_by; bit++)
        if (type == 1ull << bit) return (asked_by[bit] & (uint32_t)LOAD(mask)) != 0;
    return 0;
}

static void load(void) {
    const char *path = getenv("DIOGENES_CHAIN_PLUGIN");
    if (!path || !*path) return;
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened || dlsym(opened, "ncclProfiler_v7") == (const void *)&ncclProfiler_v7) return; /* ourselves */
    void *mapped = mmap(NULL, SLOTS * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    slots = mapped;
    owner = (int32_t)getpid();
    library = opened; /* never closed: it may have threads */
}

static const ProfilerV5 *table_of(int abi) {
    char symbol[32];
    pthread_once(&loaded, load);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", abi);
    return library && owner == (int32_t)getpid() ? dlsym(library, symbol) : NULL;
}

/* What a chained handle names, live or stopped; NULL for all others. */
static Slot *slot_of(uint64_t handle) {
    uint32_t row = handle_row(handle);
    if (handle_kind(handle) != HANDLE_CHAINED || row >= SLOTS) return NULL;
    uint32_t word = ACQUIRE(slots[row].state);
    int is_there = state_generation(word) == handle_generation(handle) && state_of(word) >= ROW_LIVE;
    return is_there ? &slots[row] : NULL;
}

static uint64_t slot_claim(void) {
    for (int probe = 0; probe < SLOT_PROBES; probe++) {
        uint32_t row = ADD(cursor, 1) & (SLOTS - 1), word = ACQUIRE(slots[row].state), next = generation_after(word);
        if (state_of(word) != ROW_FREE && state_of(word) != ROW_DONE) continue;
        if (state_swap(&slots[row].state, word, state_word(next, ROW_CLAIMED)))
            return handle_make(HANDLE_CHAINED, next, row, 0);
    }
    if (plugin.header) COUNT(chain_full);
    return 0;
}

static void slot_set(uint64_t handle, enum RowState state) {
    PUBLISH(slots[handle_row(handle)].state, state_word(handle_generation(handle), state));
}

static int slot_end(uint64_t handle) {
    uint32_t generation = handle_generation(handle), *word = &slots[handle_row(handle)].state;
    return state_swap(word, state_word(generation, ROW_LIVE), state_word(generation, ROW_DONE));
}

static void slot_fill(uint64_t handle, uint64_t ours, void *theirs, uint64_t context, const Slot *like) {
    Slot *slot = &slots[handle_row(handle)];
    STORE(slot->ours, ours);
    STORE(slot->theirs, theirs);
    STORE(slot->context, context);
    STORE(slot->table, like->table);
    STORE(slot->abi, like->abi);
    STORE(slot->last_step, -1);
    slot_set(handle, ROW_LIVE);
}

static uint64_t integer_of(const void *handle) { return (uint64_t)(uintptr_t)handle; }
static void *pointer_of(uint64_t handle) { return (void *)(uintptr_t)handle; } /* NOLINT: handles are integers */

static int call_init(const ProfilerV5 *table, void **context, const CommJoin *comm) {
    if (comm->abi == 3) return ((const ProfilerV3 *)(const void *)table)->init(context, &mask);
    if (comm->abi == 4)
        return ((const ProfilerV4 *)(const void *)table)->init(context, &mask, comm->name, comm->comm_id, comm->n_nodes,
                                                               comm->n_ranks, comm->rank, comm->logger);
    return table->init(context, comm->comm_id, &mask, comm->name, comm->n_nodes, comm->n_ranks, comm->rank,
                       comm->logger);
}

static void say_refused(const CommJoin *comm, const char *why) {
    if (comm->logger)
        comm->logger(LOG_WARN_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: DIOGENES_CHAIN_PLUGIN %s", why);
}

void chain_join(void **context, int *wanted, const CommJoin *comm) {
    const char *path = getenv("DIOGENES_CHAIN_PLUGIN");
    if (!context || !wanted || !path || !*path) return;
    Slot like = {.table = table_of(comm->abi), .abi = comm->abi};
    void *theirs = NULL;
    uint64_t handle;
    if (!like.table) {
        say_refused(comm, "cannot be loaded, or has no table of the version that NCCL speaks");
    } else if (call_init(like.table, &theirs, comm)) {
        say_refused(comm, "refused this communicator");
    } else if ((handle = slot_claim())) {
        slot_fill(handle, integer_of(*context), theirs, handle, &like);
        *context = pointer_of(handle);
        *wanted |= LOAD(mask);
        STORE(plugin.is_chained, 1);
    }
}

static Descriptor copy_of(const Descriptor *what, int abi) {
    static const size_t sizes[] = {[3] = 120, [4] = 104, [5] = 112, [6] = 112, [7] = 136};
    Descriptor copy = {0};
    memcpy(&copy, what, sizes[abi]);
    return copy;
}

static void *their_handle(const void *handle) {
    const Slot *slot = slot_of(integer_of(handle));
    return slot ? LOAD(slot->theirs) : NULL;
}

static void *start_theirs(const Slot *comm, const Descriptor *what, uint64_t type) {
    Descriptor copy = copy_of(what, comm->abi);
    void *made = NULL;
    copy.parent = their_handle(what->parent);
    if (comm->abi >= 5 && type == TYPE_COLL) copy.coll.parent_group = their_handle(what->coll.parent_group);
    if (comm->abi >= 5 && type == TYPE_P2P) copy.p2p.parent_group = their_handle(what->p2p.parent_group);
    return comm->table->start(LOAD(comm->theirs), &made, &copy) ? NULL : made;
}

static void start_both(const Slot *comm, const Slot *parent, void **handle, const Descriptor *what) {
    Descriptor copy = copy_of(what, comm->abi);
    if (parent) copy.parent = pointer_of(LOAD(parent->ours));
    own_start(pointer_of(LOAD(comm->ours)), handle, &copy, comm->abi);
    uint64_t type = comm->abi >= 5 ? what->type.wide : what->type.narrow;
    int is_orphan = type & ONLY_UNDER_PARENT && !their_handle(what->parent);
    uint64_t chained = is_wanted(type) && !is_orphan ? slot_claim() : 0;
    void *theirs = chained ? start_theirs(comm, what, type) : NULL;
    if (theirs) {
        slot_fill(chained, integer_of(*handle), theirs, LOAD(comm->context), comm);
        *handle = pointer_of(chained);
    } else if (chained) {
        slot_set(chained, ROW_DONE);
    }
}

int chain_start(void *context, void **handle, const Descriptor *what, int abi) {
    const Slot *comm = slot_of(integer_of(context)); /* NULL: foreign (PXN), or the other plugin does not have it */
    int is_ours_alone = !comm || state_of(ACQUIRE(comm->state)) != ROW_LIVE;
    if (is_ours_alone || !handle || !what) return own_start(context, handle, what, abi);
    Slot *parent = slot_of(integer_of(what->parent));
    int is_step = parent && (comm->abi >= 5 ? what->type.wide : what->type.narrow) == TYPE_PROXY_STEP;
    if (is_step && LOAD(parent->last_step) == what->step && slot_of(LOAD(parent->last_handle))) {
        Descriptor copy = copy_of(what, comm->abi);
        copy.parent = pointer_of(LOAD(parent->ours));
        own_start(pointer_of(LOAD(comm->ours)), handle, &copy, comm->abi);
        *handle = pointer_of(LOAD(parent->last_handle));
        return 0;
    }
    start_both(comm, parent, handle, what);
    if (is_step) {
        STORE(parent->last_step, what->step);
        STORE(parent->last_handle, integer_of(*handle));
    }
    return 0;
}

int chain_stop(void *handle) {
    Slot *slot = slot_of(integer_of(handle));
    if (!slot) return own_stop(handle);
    uint64_t ours = LOAD(slot->ours);
    void *theirs = LOAD(slot->theirs);
    const ProfilerV5 *table = LOAD(slot->table);
    if (!slot_end(integer_of(handle))) {
        if (plugin.header) COUNT(repeated_stops);
        return 0;
    }
    if (ours) own_stop(pointer_of(ours));
    table->stop(theirs);
    return 0;
}

int chain_record(void *handle, int state, const void *arguments, int abi) {
    Slot *slot = slot_of(integer_of(handle));
    if (!slot) return own_record(handle, state, arguments, abi);
    uint64_t ours = LOAD(slot->ours);
    if (ours) own_record(pointer_of(ours), state, arguments, abi);
    if (state_of(ACQUIRE(slot->state)) == ROW_LIVE) LOAD(slot->table)->record(LOAD(slot->theirs), state, arguments);
    return 0;
}

/* What is still open of the communicator will never be stopped. */
int chain_finalize(void *context) {
    uint64_t handle = integer_of(context);
    Slot *comm = slot_of(handle);
    if (!comm || !slot_end(handle)) return own_finalize(context);
    own_finalize(pointer_of(LOAD(comm->ours)));
    LOAD(comm->table)->finalize(LOAD(comm->theirs));
    for (uint32_t row = 0; row < SLOTS; row++) {
        uint32_t word = ACQUIRE(slots[row].state);
        if (state_of(word) == ROW_LIVE && LOAD(slots[row].context) == handle)
            slot_end(handle_make(HANDLE_CHAINED, state_generation(word), row, 0));
    }
    return 0;
}
