/* One thread's calls: what NCCL calls while it serves a call of ours is its own, and calls between ncclGroupStart and
 * ncclGroupEnd are one: all their ops are enqueued at the group's end, at the very same time, which is how they are
 * known to belong together.
 *
 * Lists of groups are taken from a pool that is part of the library, since nothing may be allocated here.
 */
#include "api.h"

#define GROUPS 64
#define OPS_MAX 4096
#define MAKING_MAX 64

typedef struct Group {
    uint32_t is_taken;
    uint32_t n_ops;
    uint64_t ops[OPS_MAX];
} Group;

typedef struct Thread {
    int inside;
    int depth; /* of ncclGroupStart */
    uint32_t n_making;
    Group *group;
    Making making[MAKING_MAX];
} Thread;

static Group groups[GROUPS];
static _Thread_local Thread thread;

int api_enter(void) { return thread.inside++ == 0; }
void api_leave(void) { thread.inside--; }

static Group *take_group(void) {
    for (uint32_t at = 0; at < GROUPS; at++)
        if (!LOAD(groups[at].is_taken) && state_swap(&groups[at].is_taken, 0, 1)) {
            groups[at].n_ops = 0;
            return &groups[at];
        }
    return NULL;
}

void api_group_started(void) {
    if (thread.depth++ == 0) {
        thread.n_making = 0;
        thread.group = plugin.header ? take_group() : NULL;
    }
}

void api_group_ending(void) {
    if (thread.depth != 1 || !thread.group || !plugin.header) return;
    int64_t now = now_ns();
    for (uint32_t at = 0; at < thread.group->n_ops; at++) {
        OpRow *op = op_find(thread.group->ops[at]);
        if (!op) continue;
        STORE(op->enqueued_ns, now);
        STORE(plugin.comms[LOAD(op->comm)].last_enqueued_ns, now);
    }
}

/* The newest of a communicator stay in sight as ops in progress; when the others end, nobody can see. */
static void close_older(const OpRow *op, uint64_t handle) {
    CommClock *clock = &comm_clocks[LOAD(op->comm)];
    uint64_t ordinal = LOAD(op->ordinal);
    if (LOAD(clock->n_ordinals) >= ordinal + LIVE_KEPT) api_close(handle, CLOSE_UNSEEN);
    if (ordinal <= LIVE_KEPT) return;
    uint64_t before = ACQUIRE(clock->recent[(ordinal - LIVE_KEPT) % RECENT_OPS]);
    const OpRow *older = before ? op_find(before) : NULL;
    if (older && LOAD(older->launched_ns) && LOAD(older->ordinal) + LIVE_KEPT == ordinal && LOAD(older->comm) == LOAD(op->comm))
        api_close(before, CLOSE_UNSEEN);
}

void api_close(uint64_t op, enum Closing how) {
    op_close(handle_row(op), state_word(handle_generation(op), ROW_LIVE), how, 0);
}

static void finish(uint64_t handle, int done) {
    const OpRow *op = handle && plugin.header ? op_find(handle) : NULL;
    if (!op) return;
    if (!api_is_good(done)) {
        COUNT(api_failed_calls);
        api_close(handle, CLOSE_LOST);
        return;
    }
    op_stop(handle);
    close_older(op, handle);
}

void api_launched(uint64_t op, int done) {
    Group *group = thread.depth ? thread.group : NULL;
    if (!op) return;
    if (!thread.depth || !api_is_good(done)) {
        finish(op, done);
    } else if (group && group->n_ops < OPS_MAX) {
        group->ops[group->n_ops++] = op;
    } else {
        if (plugin.header) COUNT(api_groups_full);
        finish(op, done);
    }
}

void api_group_ended(int done) {
    if (!thread.depth || --thread.depth) return;
    for (uint32_t at = 0; at < thread.n_making && api_is_good(done); at++) api_joined(&thread.making[at]);
    thread.n_making = 0;
    Group *group = thread.group;
    thread.group = NULL;
    if (!group) return;
    for (uint32_t at = 0; at < group->n_ops; at++) finish(group->ops[at], done);
    PUBLISH(group->is_taken, 0);
}

/* Inside a group the handle is there when the group ends. */
void api_made(const Making *making, int done) {
    if (!api_is_good(done) || !making->comm_id) return;
    if (!thread.depth) {
        api_joined(making);
    } else if (thread.n_making < MAKING_MAX) {
        thread.making[thread.n_making++] = *making;
    } else if (plugin.header) {
        COUNT(api_unknown_comms);
    }
}
