/* Makes the segment: one file per process, sized so that it can never fault, locked for as long as the process lives.
 *
 * The descriptor is opened once and never closed: a POSIX record lock is dropped when the process closes ANY descriptor
 * of the file, and that lock is how the agent knows the process lives, through SIGSTOP, forked children and SIGKILL.
 * The space is really allocated (a sparse file in a full /dev/shm would kill the job with SIGBUS at a later touch).
 * Segments of all processes of the host together have a limit: the memory is the job's. No segment means no tracing and
 * never a failed job.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

#define BYTES_DEFAULT (16u << 20)
#define BYTES_MIN (2u << 20)
#define BYTES_MAX (64u << 20)
#define HOST_BYTES_MAX (512ull << 20)
#define ENTRIES_MAX 65536 /* names looked at in the folder */
#define FLOWS_AT_FIRST 256
#define LOG_INFO_LEVEL 3
#define LOG_INIT 0x1ul

Plugin plugin = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void fork_prepare(void) { pthread_mutex_lock(&plugin.mutex); }
static void fork_parent(void) { pthread_mutex_unlock(&plugin.mutex); }

/* The mapping is not inherited (MADV_DONTFORK): a child must not touch it, and may make its own at its own init. */
static void fork_child(void) {
    plugin.header = NULL;
    plugin.failed = 0;
    plugin.n_comms_alive = 0;
    pthread_mutex_unlock(&plugin.mutex);
}

__attribute__((constructor)) static void plugin_loaded(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static uint64_t process_starttime(void) {
    char text[1024];
    int stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (stat < 0) return 0;
    ssize_t length = read(stat, text, sizeof text - 1);
    close(stat);
    if (length <= 0) return 0;
    text[length] = 0;
    char *at = strrchr(text, ')'); /* the command name may hold spaces and brackets */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t bytes_wanted(void) {
    const char *text = getenv("DIOGENES_SEGMENT_BYTES");
    uint64_t bytes = text ? strtoull(text, NULL, 10) : BYTES_DEFAULT;
    if (bytes < BYTES_MIN) return BYTES_MIN;
    return bytes > BYTES_MAX ? BYTES_MAX : bytes & ~(uint64_t)4095;
}

static int lock_held(int file) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(file, F_SETLK, &lock) == 0;
}

static int allocate(int file, uint64_t bytes) {
    int failed;
    do failed = posix_fallocate(file, 0, (off_t)bytes);
    while (failed == EINTR);
    if (failed && ftruncate(file, 0)) return 0;
    return !failed;
}

static const char *segment_folder(void) {
    const char *folder = getenv("DIOGENES_SEGMENT_DIR");
    return folder && *folder ? folder : "/dev/shm";
}

static uint64_t host_bytes_max(void) {
    const char *text = getenv("DIOGENES_HOST_BYTES_MAX");
    return text && *text ? strtoull(text, NULL, 10) : HOST_BYTES_MAX;
}

/* What all segments in the folder take, ours and those dead processes left. */
static uint64_t host_bytes(void) {
    DIR *folder = opendir(segment_folder());
    uint64_t bytes = 0;
    if (!folder) return 0;
    for (int seen = 0; seen < ENTRIES_MAX; seen++) {
        const struct dirent *entry = readdir(folder);
        struct stat found;
        if (!entry) break;
        if (strncmp(entry->d_name, "diogenes.", 9)) continue;
        if (!fstatat(dirfd(folder), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode))
            bytes += (uint64_t)(found.st_blocks * 512 < found.st_size ? found.st_blocks * 512 : found.st_size);
    }
    closedir(folder);
    return bytes;
}

/* Looked at before and after: of ranks that start together some take less, instead of all of them too much. */
static int allocate_within_limit(int file, uint64_t bytes) {
    if (host_bytes() + bytes > host_bytes_max() || !allocate(file, bytes)) return 0;
    if (host_bytes() <= host_bytes_max()) return 1;
    if (ftruncate(file, 0)) return 0;
    return 0;
}

/* Bytes mapped, halving the size while the file system or the host's limit has no room; 0 when none has. */
static uint64_t map_file(int file, void **base) {
    for (uint64_t bytes = bytes_wanted(); bytes >= BYTES_MIN; bytes /= 2) {
        if (!allocate_within_limit(file, bytes)) continue;
        *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
        if (*base != MAP_FAILED) return bytes;
        if (ftruncate(file, 0)) return 0;
    }
    return 0;
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

static const char *segment_make(char *path, size_t size) {
    uint64_t starttime = process_starttime(), bytes;
    void *base = NULL;
    snprintf(path, size, "%s/diogenes.%u.%d.%llu", segment_folder(), (unsigned)getuid(), (int)plugin.pid,
             (unsigned long long)starttime);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return strerror(errno);
    if (!lock_held(file)) return "cannot lock it";
    if ((bytes = map_file(file, &base)) && segment_fill(base, bytes, starttime)) return NULL; /* never closed */
    unlink(path); /* never became a segment */
    close(file);
    return "no room for it";
}

int segment_open(Logger logger) {
    char path[512];
    if (plugin.header) return 0;
    if (plugin.failed) return -1;
    plugin.pid = (int32_t)getpid();
    memset(comm_clocks, 0, sizeof comm_clocks);
    const char *reason = segment_make(path, sizeof path);
    plugin.failed = reason != NULL;
    if (logger && reason) {
        logger(LOG_INFO_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: no tracing, %s: %s", path, reason);
    } else if (logger) {
        logger(LOG_INFO_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: tracing to %s", path);
    }
    return plugin.failed ? -1 : 0;
}
