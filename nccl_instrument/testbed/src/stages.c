/* One writer, no waiting: a step is one slot of a ring in shared memory. Only the main thread comes here. */
#define _GNU_SOURCE
#include "stages.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"

enum { WRITTEN_AT = 16, COUNTS_AT = 24, COUNTS_BYTES = 52, DECLARED_AT = 128, SLOTS_AT = 32768, STEP_BYTES = 128, N_STEPS = 2048 };
enum { RING_BYTES = SLOTS_AT + N_STEPS * STEP_BYTES, VERSION = 1, STEP_SLOT = 1, ROAD_AGENT = 1 };

static const char *const NAMES[N_STAGES] = {"data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall",
                                            "callbacks.cpu_wall", "optim.step_cpu_wall", "step.other_cpu_wall"};

struct slot {
    uint64_t number;
    int64_t ended_ns;
    uint64_t schema;
    int64_t step;
    uint64_t overlap_ns;
    int64_t durations_ns[8];
    int32_t rank;
    uint16_t repeats;
    uint8_t kind, part;
    uint32_t flags, check;
};

static struct {
    char *memory; /* NULL: nothing is recorded */
    uint64_t schema, n_written, since_ns;
    int stage;
    int64_t durations_ns[8];
} ring;

static uint32_t crc32_of(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    return ~crc;
}

static uint64_t process_started(void)
{
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    char *at = strrchr(text, ')');
    for (int field = 2; n > 0 && at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? atoi(text) : -1;
}

/* Job names of the testbed have no characters that JSON would want escaped. */
static void declare(const struct rank *self)
{
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "{\"job\":\"%s\",\"rank\":%d,\"world_size\":%d,\"local_rank\":%d,\"pid\":%d,\"started\":%llu,\"role\":\"\","
                     "\"road\":%d,\"flags\":0,\"event_permille\":0,\"schemas\":[{\"micro_steps\":1,\"parents\":[],\"sides\":[],"
                     "\"version\":1,\"stages\":[",
                     getenv("DIOGENES_JOB"), self->rank, number_of("WORLD_SIZE"), number_of("LOCAL_RANK"), (int)getpid(),
                     (unsigned long long)process_started(), ROAD_AGENT);
    for (int i = 0; i < N_STAGES; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%s\"", i ? "," : "", NAMES[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "]}]}");
    uint32_t head[2] = {(uint32_t)n, crc32_of(text, (size_t)n)};
    memcpy(ring.memory + DECLARED_AT, head, sizeof head);
    memcpy(ring.memory + DECLARED_AT + sizeof head, text, (size_t)n);
}

static int open_file(const char *folder)
{
    char path[4096];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    snprintf(path, sizeof path, "%s/diogenes-stages.%u.%d.0", folder, (unsigned)getuid(), (int)getpid());
    unlink(path); /* of a process that had our number before */
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 && fcntl(file, F_SETLK, &lock) == 0 && posix_fallocate(file, 0, RING_BYTES) == 0)
        return file; /* never closed: that would free the lock */
    if (file >= 0) {
        unlink(path);
        close(file);
    }
    return -1;
}

void stages_open(struct rank *self)
{
    const char *folder = getenv("DIOGENES_SEGMENT_DIR"), *schema = getenv("DIOGENES_TESTBED_STAGES");
    if (folder == NULL || schema == NULL || getenv("DIOGENES_JOB") == NULL)
        return;
    int file = open_file(folder);
    void *memory = file < 0 ? MAP_FAILED : mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return;
    ring.memory = memory;
    ring.schema = strtoull(schema, NULL, 10);
    declare(self);
    const uint16_t sizes[2] = {VERSION, STEP_BYTES};
    const uint32_t n_slots = N_STEPS;
    memcpy(ring.memory + 4, sizes, sizeof sizes);
    memcpy(ring.memory + 8, &n_slots, sizeof n_slots);
    memcpy(ring.memory, "DGSG", 4); /* last: it says that the rest is there */
    ring.since_ns = now_ns();
}

void stages_enter(int stage)
{
    uint64_t now = now_ns();
    ring.durations_ns[ring.stage] += (int64_t)(now - ring.since_ns);
    ring.since_ns = now;
    ring.stage = stage;
}

static void write_counts(uint64_t n_steps)
{
    char counts[COUNTS_BYTES] = {0};
    memcpy(counts, &n_steps, sizeof n_steps);
    uint32_t check = crc32_of(counts, sizeof counts);
    memcpy(ring.memory + COUNTS_AT, counts, sizeof counts);
    memcpy(ring.memory + COUNTS_AT + COUNTS_BYTES, &check, sizeof check);
}

void stages_end_step(uint64_t step)
{
    stages_enter(STAGE_OTHER);
    if (ring.memory == NULL)
        return;
    struct slot slot = {.number = ring.n_written + 1, .ended_ns = (int64_t)ring.since_ns, .schema = ring.schema,
                        .step = (int64_t)step, .rank = -1, .repeats = 1, .kind = STEP_SLOT};
    memcpy(slot.durations_ns, ring.durations_ns, sizeof slot.durations_ns);
    slot.check = crc32_of(&slot, offsetof(struct slot, check));
    memcpy(ring.memory + SLOTS_AT + ring.n_written % N_STEPS * STEP_BYTES, &slot, sizeof slot);
    ring.n_written++;
    atomic_thread_fence(memory_order_release);
    memcpy(ring.memory + WRITTEN_AT, &ring.n_written, sizeof ring.n_written);
    write_counts(step + 1);
    memset(ring.durations_ns, 0, sizeof ring.durations_ns);
}
