/*
 * Once a second all meters are polled and written by a thread of ours, to DIOGENES_VERBS/diogenes-verbs.UID.PID.START, which
 * gets ".old" behind its name when it is half as large as it may be. A lock on the file says that the process lives. What
 * cannot be written is counted in the next block.
 */
#define _GNU_SOURCE
#include "verbs.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES_DEFAULT (UINT64_C(32) << 20)
#define FILE_BYTES_MIN (UINT64_C(1) << 20)
#define CELLS_MAX (UINT64_C(4) << 20)

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static _Atomic bool is_child; /* of a fork: the thread is the parent's */
static int file = -1;
static uint64_t file_bytes, blocks_lost, cells_room;
static struct dgm_flow flows[DGV_QPS_MAX];
static struct dgv_saved_qp saved[DGV_QPS_MAX];
static struct dgm_cell *cells;

static uint64_t file_bytes_max = FILE_BYTES_DEFAULT, starttime;
static char folder[3900];
static pthread_once_t asked = PTHREAD_ONCE_INIT;

/* Field 22 of /proc/self/stat: with the number it names the process for ever. 0 when it cannot be read. */
static uint64_t read_starttime(void) {
    char text[1024];
    int stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = stat < 0 ? 0 : read(stat, text, sizeof text - 1);
    if (stat >= 0)
        close(stat);
    text[n > 0 ? n : 0] = 0;
    char *at = strrchr(text, ')'); /* the command's name may hold spaces and brackets */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Once, by a thread of the job's: the environment must not be read while another thread changes it. */
static void ask(void) {
    const char *found = getenv("DIOGENES_VERBS");
    if (found && strlen(found) < sizeof folder)
        memcpy(folder, found, strlen(found) + 1);
    const char *bytes = getenv("DIOGENES_VERBS_BYTES");
    if (bytes && strtoull(bytes, NULL, 10) >= FILE_BYTES_MIN)
        file_bytes_max = strtoull(bytes, NULL, 10);
    starttime = read_starttime();
}

bool dgv_is_on(void) {
    pthread_once(&asked, ask);
    return *folder && !atomic_load_explicit(&is_child, memory_order_relaxed);
}

static bool open_file(void) {
    char name[4096], old[4096];
    int n = snprintf(name, sizeof name, "%s/diogenes-verbs.%u.%ld.%llu", folder, (unsigned)getuid(), (long)getpid(),
                     (unsigned long long)starttime);
    if (n < 0 || (size_t)n + 5 > sizeof old)
        return false;
    memcpy(old, name, (size_t)n);
    memcpy(old + n, ".old", 5);
    if (file >= 0) {
        close(file);
        rename(name, old);
    }
    file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    file_bytes = 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (file >= 0)
        fcntl(file, F_SETLK, &lock); /* of another container's process of this number: it just looks dead */
    return file >= 0;
}

static bool put(const void *from, uint64_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t done = write(file, at, bytes);
        if (done <= 0)
            return false;
        at += done;
        bytes -= (uint64_t)done;
    }
    return true;
}

/* A name that changes meanwhile is one of several, and that it is said to be. */
static void save_name(struct dgv_qp *qp, struct dgv_saved_qp *row) {
    uint32_t lane = atomic_load_explicit(&qp->lane, memory_order_acquire);
    uint64_t ends = atomic_load(&qp->ends);
    row->connected_ns = atomic_load(&qp->connected_ns);
    row->named = (uint8_t)(lane ? atomic_load(&qp->named) : 0);
    row->comm_id = lane ? atomic_load(&qp->comm_id) : 0;
    row->comm_rank = lane ? (int32_t)(ends >> 32) : -1;
    row->peer = lane ? (int32_t)(uint32_t)ends : -1;
    row->channel = (uint8_t)(lane >> 8);
    row->direction = (uint8_t)(lane & 1);
    if (lane != atomic_load_explicit(&qp->lane, memory_order_acquire))
        row->named |= DGV_SEVERAL_FLOWS;
}

static uint32_t save_qps(const struct dgv_device *device) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < DGV_SLOTS && n < DGV_QPS_MAX; i++) {
        struct dgv_qp *qp = &device->qps[i];
        uint32_t key = atomic_load_explicit(&qp->key, memory_order_acquire);
        if (!key)
            continue;
        struct dgv_saved_qp *row = &saved[n++];
        *row = (struct dgv_saved_qp){.qpn = key - 1, .connects = atomic_load(&qp->connects)};
        if (row->connects) { /* written before it was counted */
            row->dest_qpn = atomic_load(&qp->dest_qpn);
            memcpy(row->dgid, qp->dgid, sizeof row->dgid);
            row->dlid = qp->dlid;
            row->port = qp->port;
            row->is_global = qp->is_global;
        }
        save_name(qp, row);
        row->last_status = atomic_load(&qp->last_status);
        row->last_vendor_err = atomic_load(&qp->last_vendor_err);
        row->work_requests = atomic_load(&qp->work_requests);
        row->bytes = atomic_load(&qp->bytes);
        row->signaled = atomic_load(&qp->signaled);
        row->refused = atomic_load(&qp->refused);
        row->completions = atomic_load(&qp->completions);
        row->received = atomic_load(&qp->received);
        row->errors = atomic_load(&qp->errors);
        row->flushed = atomic_load(&qp->flushed);
        row->last_error_ns = atomic_load(&qp->last_error_ns);
    }
    return n;
}

/* Polls into room that grows to what there is; false when memory is short, and then the meter keeps counting. */
static bool poll_meter(struct dgv_device *device, struct dgv_block *block) {
    for (int tries = 0; tries < 4; tries++) {
        block->n_flows = DGV_QPS_MAX;
        block->n_cells = cells_room;
        uint64_t until_ns = block->now_ns - DGV_LAG_NS;
        if (!dgm_poll(device->meter, until_ns, &block->first_epoch, flows, &block->n_flows, cells, &block->n_cells)) {
            atomic_store_explicit(&device->polled_ns, until_ns, memory_order_relaxed);
            return true;
        }
        uint64_t room = block->n_cells + block->n_cells / 2 + 1024;
        struct dgm_cell *more = room <= CELLS_MAX ? realloc(cells, room * sizeof *cells) : NULL;
        if (!more)
            return false;
        cells = more;
        cells_room = room;
    }
    return false;
}

static void write_device(unsigned at, struct dgv_device *device) {
    struct dgv_block block = {.magic = DGV_MAGIC, .device = at, .now_ns = dgv_now_ns(), .start_ns = device->start_ns,
                              .epoch_ns = DGV_EPOCH_NS, .blocks_lost = blocks_lost,
                              .lag_ns = DGV_LAG_NS};
    struct dgm_counts counts;
    if (!poll_meter(device, &block)) {
        blocks_lost++;
        return;
    }
    dgm_counts(device->meter, &counts);
    block.unit_bytes = dgm_unit_bytes(device->meter);
    block.lost_bytes = counts.lost_bytes;
    block.qps_refused = atomic_load(&device->qps_refused);
    block.n_qps = save_qps(device);
    memcpy(block.name, device->name, sizeof block.name);
    uint64_t bytes = sizeof block + block.n_flows * sizeof *flows + block.n_cells * sizeof *cells + block.n_qps * sizeof *saved;
    if ((file < 0 || file_bytes + bytes > file_bytes_max / 2) && !open_file()) {
        blocks_lost++;
        return;
    }
    bool is_whole = put(&block, sizeof block) && put(flows, block.n_flows * sizeof *flows) &&
                    put(cells, block.n_cells * sizeof *cells) && put(saved, block.n_qps * sizeof *saved);
    file_bytes += bytes;
    if (!is_whole) { /* a full disk: take back the part, so that the file stays readable */
        blocks_lost++;
        file_bytes -= bytes;
        if (ftruncate(file, (off_t)file_bytes) || lseek(file, (off_t)file_bytes, SEEK_SET) < 0) {
            close(file);
            file = -1;
        }
    }
}

void dgv_write_now(void) {
    if (!dgv_is_on() || pthread_mutex_trylock(&writing))
        return;
    struct dgv_device *device;
    for (unsigned i = 0; (device = dgv_device_at(i)); i++)
        write_device(i, device);
    pthread_mutex_unlock(&writing);
}

static void *run(void *nothing) {
    struct timespec pause = {.tv_sec = DGV_POLL_NS / 1000000000, .tv_nsec = DGV_POLL_NS % 1000000000};
    for (;;) {
        nanosleep(&pause, NULL);
        dgv_write_now();
    }
    return nothing;
}

static void in_child(void) { atomic_store(&is_child, true); }

static void start(void) {
    pthread_t thread;
    sigset_t all, before;
    pthread_atfork(NULL, NULL, in_child);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the job's signals are for the job's threads */
    if (!pthread_create(&thread, NULL, run, NULL))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void dgv_start_writing(void) { pthread_once(&started, start); }
