/* A profiler plugin that only writes down what it is called with, one line per call, for versions 3 to 7. Handles are
 * running numbers, so a test can follow parents and order. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_handles;

#define SAY(...) (pthread_mutex_lock(&lock), fprintf(out, "%d ", gettid()), fprintf(out, __VA_ARGS__), pthread_mutex_unlock(&lock))

static void open_file(void)
{
    char path[512];
    if (out != NULL)
        return;
    snprintf(path, sizeof path, "%s/%s.calls", getenv("RECORDER_FOLDER"), getenv("RANK"));
    out = fopen(path, "w");
    setvbuf(out, NULL, _IOLBF, 1 << 16);
}

static uint64_t u64(const uint8_t *d, int at) { uint64_t v; memcpy(&v, d + at, 8); return v; }
static int i32(const uint8_t *d, int at) { int v; memcpy(&v, d + at, 4); return v; }
static const char *str(const uint8_t *d, int at) { return (const char *)u64(d, at); }

static int started(int version, void *context, void **handle, const uint8_t *d)
{
    uint64_t type = version >= 5 ? u64(d, 0) : d[0];
    int shift = version == 3 ? 16 : 0;
    pthread_mutex_lock(&lock);
    uint64_t number = ++n_handles;
    pthread_mutex_unlock(&lock);
    *handle = (void *)number;
    char rest[256] = "-";
    if (type == 2)
        snprintf(rest, sizeof rest, "%s %lu %lu %s %d %s %s", str(d, 32 + shift), u64(d, 24 + shift), u64(d, 56 + shift),
                 str(d, 72 + shift), d[80 + shift], str(d, 88 + shift), str(d, 96 + shift));
    else if (type == 4)
        snprintf(rest, sizeof rest, "%s %lu %s %d %d", str(d, 24 + shift), u64(d, 48 + shift), str(d, 40 + shift),
                 i32(d, 56 + shift), version >= 4 ? d[60] : 0);
    else if (type == 8)
        snprintf(rest, sizeof rest, "%d %d %d %d %d", i32(d, 24) == getpid(), d[28], i32(d, 32), i32(d, 36), i32(d, 44));
    else if (type == 16)
        snprintf(rest, sizeof rest, "%d", i32(d, 24));
    SAY("start %lu %lu %lu %lu %d %s\n", (uint64_t)context, number, type, u64(d, 8), i32(d, 16), rest);
    return 0;
}

static int stop(void *handle) { SAY("stop %lu\n", (uint64_t)handle); return 0; }
static int finalize(void *context) { SAY("finalize %lu\n", (uint64_t)context); return 0; }

static int record(void *handle, int state, void *args)
{
    SAY("record %lu %d %ld\n", (uint64_t)handle, state, args == NULL ? -1 : (long)*(uint64_t *)args);
    return 0;
}

static uint64_t n_contexts;

static int init(void **context, int *mask, const char *name, uint64_t hash, int n_nodes, int n_ranks, int rank)
{
    open_file();
    *context = (void *)++n_contexts;
    *mask = getenv("RECORDER_MASK") ? atoi(getenv("RECORDER_MASK")) : 30;
    SAY("init %lu %s %lx %d %d %d\n", n_contexts, name, hash, n_nodes, n_ranks, rank);
    return 0;
}

static int init_v3(void **c, int *m) { return init(c, m, "-", 0, 0, 0, 0); }
static int init_v4(void **c, int *m, const char *n, uint64_t h, int nn, int nr, int r, void *l)
{
    (void)l;
    return init(c, m, n, h, nn, nr, r);
}
static int init_v5(void **c, uint64_t h, int *m, const char *n, int nn, int nr, int r, void *l)
{
    (void)l;
    return init(c, m, n, h, nn, nr, r);
}

struct table { const char *name; void *init, *start, *stop, *record, *finalize; };
#define TABLE(v, i)                                                                                     \
    static int start_v##v(void *c, void **h, uint8_t *d) { return started(v, c, h, d); }               \
    struct table ncclProfiler_v##v = {"recorder", (void *)i, (void *)start_v##v, (void *)stop, (void *)record, (void *)finalize};
TABLE(3, init_v3)
TABLE(4, init_v4)
TABLE(5, init_v5)
TABLE(6, init_v5)
TABLE(7, init_v5)
