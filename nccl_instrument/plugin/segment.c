/* Makes the segment in the file that room.c found room for, and keeps forked children away from it.
 *
 * No segment means no tracing and never a failed job.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

#define FLOWS_AT_FIRST 256
#define LOG_INFO_LEVEL 3
#define LOG_INIT 0x1ul

Plugin plugin; /* all zero, the mutex too: nothing traced yet, as after a fork */

static void fork_prepare(void) { pthread_mutex_lock(&plugin.mutex); }
static void fork_parent(void) { pthread_mutex_unlock(&plugin.mutex); }
static void fork_child(void) {
    plugin.header = NULL;
    plugin.failed = plugin.is_chained = 0;
    plugin.n_comms_alive = 0;
    pthread_mutex_unlock(&plugin.mutex);
}

/* The mapping is not inherited (MADV_DONTFORK): a child must not touch it, and may make its own at its own init. So the
 * kernel hands children a zeroed `plugin`, however they are forked (_Fork and clone call no handlers); where it cannot
 * (before Linux 4.14), handlers see to fork itself. */
__attribute__((constructor)) static void plugin_loaded(void) {
    if (madvise(&plugin, sizeof plugin, MADV_WIPEONFORK)) pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static uint32_t power_of_two(uint64_t rows, uint32_t most) {
    uint32_t power = 1;
    while (power * 2ull <= rows && power < most) power *= 2;
    return power;
}

static void *section_add(const char *name, uint32_t row_bytes, uint32_t n_rows, uint64_t *offset) {
    Section *section = &plugin.header->sections[plugin.header->n_sections++];
    memcpy(section->name, name, strlen(name));
    section->offset = *offset;
    section->row_bytes = row_bytes;
    section->n_rows = n_rows;
    *offset += ((uint64_t)row_bytes * n_rows + 63) & ~63ull;
    return (char *)plugin.header + section->offset;
}

static void sections_lay_out(uint64_t bytes) {
    uint64_t fixed = SEGMENT_HEADER_BYTES + SEGMENT_COMMS * sizeof(CommRow);
    fixed += SEGMENT_OPS * (sizeof(OpRow) + sizeof(uint32_t));
    uint64_t half = (bytes - fixed) / 2, offset = SEGMENT_HEADER_BYTES;
    plugin.n_flows = power_of_two(half / (sizeof(FlowRow) + sizeof(uint32_t)), 1u << 16);
    plugin.n_ring = power_of_two(half / sizeof(OpRow), 1u << 20);
    plugin.comms = section_add("comm", sizeof(CommRow), SEGMENT_COMMS, &offset);
    plugin.op_states = section_add("opstate", sizeof(uint32_t), SEGMENT_OPS, &offset);
    plugin.ops = section_add("op", sizeof(OpRow), SEGMENT_OPS, &offset);
    plugin.flow_states = section_add("flwstate", sizeof(uint32_t), plugin.n_flows, &offset);
    plugin.flows = section_add("flow", sizeof(FlowRow), plugin.n_flows, &offset);
    plugin.ring = section_add("ring", sizeof(OpRow), plugin.n_ring, &offset);
    uint64_t rows = (bytes - offset) / sizeof(TransferRow); /* what the halves left: they are rounded down to powers of two */
    plugin.n_transfers = rows ? power_of_two(rows, 1u << 20) : 0;
    if (plugin.n_transfers) plugin.transfers = section_add("transfer", sizeof(TransferRow), plugin.n_transfers, &offset);
}

static void header_fill(uint64_t bytes, uint64_t starttime) {
    SegmentHeader *header = plugin.header;
    struct timespec wall;
    header->byte_order = SEGMENT_BYTE_ORDER;
    header->major = SEGMENT_MAJOR;
    header->minor = SEGMENT_MINOR;
    header->header_bytes = SEGMENT_HEADER_BYTES;
    header->segment_bytes = bytes;
    header->pid = plugin.pid;
    header->uid = (uint32_t)getuid();
    header->starttime = starttime;
    identity_boot(header);
    header->n_counters = COUNTERS;
    clock_gettime(CLOCK_REALTIME, &wall);
    header->wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    header->mono_ns = now_ns();
    identity_read(header);
    sections_lay_out(bytes);
}

static int clocks_allocate(void) {
    size_t bytes = (size_t)plugin.n_flows * sizeof(FlowClock);
    void *clocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    plugin.flow_clocks = clocks == MAP_FAILED ? NULL : clocks;
    return clocks != MAP_FAILED;
}

/* The magic goes in last: a reader never sees a half-made header. */
static int segment_fill(void *base, uint64_t bytes, uint64_t starttime) {
    madvise(base, bytes, MADV_DONTFORK);
    plugin.header = base;
    plugin.op_cursor = plugin.flow_cursor = 0;
    plugin.flow_reach = FLOWS_AT_FIRST;
    plugin.first_generation = ((uint32_t)plugin.pid * 2654435761u >> 12) & GENERATION_MAX;
    header_fill(bytes, starttime);
    if (!clocks_allocate()) {
        plugin.header = NULL;
        return 0;
    }
    uint64_t magic;
    memcpy(&magic, SEGMENT_MAGIC, sizeof magic);
    __atomic_store_n((uint64_t *)(void *)plugin.header->magic, magic, __ATOMIC_RELEASE);
    return 1;
}

/* The file stays, empty and locked, when there is no room: so the agent sees a process that it cannot see into. */
static const char *segment_make(char *path, size_t size) {
    uint64_t starttime = room_starttime(), bytes;
    const char *reason = NULL;
    void *base = NULL;
    int file = room_claim(path, size, starttime, &reason);
    if (file < 0) return reason;
    bytes = room_map(file, &base);
    if (bytes && segment_fill(base, bytes, starttime)) return NULL; /* the descriptor is never closed: room.c says why */
    if (bytes) munmap(base, bytes);
    return ftruncate(file, 0) ? "no room for it, nor can it be emptied" : "no room for it";
}

/* Allocation starts again from nothing after every signal: a profiler's timer in the trainer would keep it from ending. */
static const char *segment_make_undisturbed(char *path, size_t size) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t at = 0; at < sizeof faults / sizeof *faults; at++) sigdelset(&all, faults[at]);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const char *reason = segment_make(path, size);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reason;
}

int segment_open(Logger logger) {
    char path[512] = "";
    if (plugin.header) return 0;
    if (plugin.failed) return -1;
    plugin.pid = (int32_t)getpid();
    memset(comm_clocks, 0, sizeof comm_clocks);
    const char *reason = segment_make_undisturbed(path, sizeof path);
    plugin.failed = reason != NULL;
    if (logger && reason) {
        logger(LOG_INFO_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: no tracing, %s: %s", path, reason);
    } else if (logger) {
        logger(LOG_INFO_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: tracing to %s", path);
    }
    return plugin.failed ? -1 : 0;
}
