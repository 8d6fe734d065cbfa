/* Finds a name and room for the segment: one file per process, really allocated, locked for as long as it lives.
 *
 * The descriptor is opened once and never closed: a POSIX record lock is dropped when the process closes ANY descriptor
 * of the file, and that lock is how the agent knows the process lives, through SIGSTOP, forked children and SIGKILL.
 * A sparse file in a full /dev/shm would kill the job with SIGBUS at a later touch, one beyond the limit of file sizes
 * with SIGXFSZ at once. Segments of all processes of the host together have a limit: the memory is the job's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

#define BYTES_DEFAULT (16u << 20)
#define BYTES_MIN (2u << 20)
#define BYTES_MAX (64u << 20)
#define HOST_BYTES_MAX (512ull << 20)
#define ENTRIES_MAX 65536 /* names looked at in the folder */
#define NAMES_MAX 8       /* tried for one process */

uint64_t room_starttime(void) {
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

static const char *segment_folder(void) {
    const char *folder = getenv("DIOGENES_SEGMENT_DIR");
    return folder && *folder ? folder : "/dev/shm";
}

static int is_open_here(const struct stat *wanted) {
    DIR *folder = opendir("/proc/self/fd");
    int is_open = !folder; /* unknown: hands off */
    for (const struct dirent *entry; folder && !is_open && (entry = readdir(folder));) {
        struct stat found;
        if (fstat(atoi(entry->d_name), &found)) continue;
        is_open = found.st_dev == wanted->st_dev && found.st_ino == wanted->st_ino;
    }
    if (folder) closedir(folder);
    return is_open;
}

static int is_locked(const char *path) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int is_free = file >= 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    if (file >= 0) close(file);
    return !is_free;
}

static int create(const char *path) { return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); }

/* The name is taken: by a second copy of the plugin in this process, whose lock must not be touched (EBUSY); by a
 * process of the same number in another container that shares the folder (EEXIST); or by this process before exec. */
static int create_again(const char *path) {
    struct stat found;
    if (lstat(path, &found)) return create(path);
    int is_ours = is_open_here(&found);
    if (!is_ours && !is_locked(path) && unlink(path) == 0) return create(path);
    errno = is_ours ? EBUSY : EEXIST;
    return -1;
}

static int lock(int file) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(file, F_SETLK, &lock) == 0;
}

/* An open, locked, empty file of our own, or -1 and the reason. Its name ends in `starttime` or a little more. */
int room_claim(char *path, size_t size, uint64_t starttime, const char **reason) {
    int file = -1;
    errno = EEXIST;
    for (unsigned more = 0; file < 0 && errno == EEXIST && more < NAMES_MAX; more++) {
        snprintf(path, size, "%s/diogenes.%u.%d.%llu", segment_folder(), (unsigned)getuid(), (int)plugin.pid,
                 (unsigned long long)starttime + more);
        file = create(path);
        if (file < 0 && errno == EEXIST) file = create_again(path);
    }
    *reason = errno == EBUSY ? "this process has a segment already" : strerror(errno);
    if (file < 0 || lock(file)) return file;
    *reason = "cannot lock it";
    unlink(path);
    close(file);
    return -1;
}

static uint64_t bytes_wanted(void) {
    const char *text = getenv("DIOGENES_SEGMENT_BYTES");
    uint64_t bytes = text ? strtoull(text, NULL, 10) : BYTES_DEFAULT;
    if (bytes < BYTES_MIN) return BYTES_MIN;
    return bytes > BYTES_MAX ? BYTES_MAX : bytes & ~(uint64_t)4095;
}

static uint64_t host_bytes_max(void) {
    const char *text = getenv("DIOGENES_HOST_BYTES_MAX");
    return text && *text ? strtoull(text, NULL, 10) : HOST_BYTES_MAX;
}

static uint64_t file_bytes_max(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) ? UINT64_MAX : limit.rlim_cur;
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
static int allocate(int file, uint64_t bytes) {
    if (bytes > file_bytes_max() || host_bytes() + bytes > host_bytes_max()) return 0;
    if (posix_fallocate(file, 0, (off_t)bytes) == 0 && host_bytes() <= host_bytes_max()) return 1;
    if (ftruncate(file, 0)) return 0;
    return 0;
}

/* Bytes mapped, halving the size while the file system or a limit has no room; 0 when none has. */
uint64_t room_map(int file, void **base) {
    for (uint64_t bytes = bytes_wanted(); bytes >= BYTES_MIN; bytes /= 2) {
        if (!allocate(file, bytes)) continue;
        *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
        if (*base != MAP_FAILED) return bytes;
        if (ftruncate(file, 0)) return 0;
    }
    return 0;
}
