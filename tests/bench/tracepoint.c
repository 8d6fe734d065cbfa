/* Times the plugin's callbacks as NCCL's progress thread makes them: tracepoint PLUGIN ROUNDS prints one JSON object.
 *
 * Every figure is nanoseconds per call, taken over batches of calls (one call is shorter than reading the clock), as
 * the median and 99th percentile of all batches. 16 flows take turns, as the rings of 8 channels would.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FLOWS 16
#define STEPS (1 << 23)
#define REPEATS 32
#define CHANNELS 8

typedef struct Table {
    const char *name;
    int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*record)(void *, int, void *);
    int (*finalize)(void *);
} Table;

typedef struct Descriptor {
    uint64_t type;
    void *parent;
    int32_t rank;
    union {
        struct { int32_t pid; uint8_t channel; int32_t peer, n_steps, chunk_bytes, is_send; } flow;
        struct { uint64_t seq; const char *func; void *send, *recv; uint64_t count; int32_t root; const char *dtype;
                 uint8_t channels, warps; const char *algo, *proto; void *group; const char *variant; uint8_t symmetric;
                 uint64_t tag; } coll;
        int32_t step;
        struct { uint8_t channel; uint64_t timer; } kernel;
    };
} Descriptor;

typedef struct Series {
    double *ns;
    int n;
} Series;

static const Table *table;
static void *context;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void add(Series *series, int64_t began, int64_t ended, int calls) {
    series->ns[series->n++] = (double)(ended - began) / calls;
}

static int compare(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void print(const char *name, Series *series, const char *end) {
    qsort(series->ns, (size_t)series->n, sizeof *series->ns, compare);
    printf("\"%s\": {\"p50\": %.2f, \"p99\": %.2f}%s", name, series->ns[series->n / 2],
           series->ns[series->n * 99 / 100], end);
}

static void *start(uint64_t type, void *parent, Descriptor what) {
    void *handle = NULL;
    what.type = type;
    what.parent = parent;
    table->start(context, &handle, &what);
    return handle;
}

static void *start_coll(void) {
    Descriptor what = {.coll = {.func = "AllReduce", .count = 1024, .dtype = "ncclBfloat16", .channels = 8,
                                .algo = "RING", .proto = "SIMPLE"}};
    return start(2, NULL, what);
}

static void *start_flow(void *op, int number) {
    Descriptor what = {.flow = {getpid(), (uint8_t)(number / 2), 1, STEPS, 1 << 20, number % 2 == 0}};
    return start(8, op, what);
}

static void *start_step(void *flow, int step) { return start(16, flow, (Descriptor){.step = step}); }

/* Three states and the stop of one step on each of 8 flows: 32 state callbacks a batch. */
static void time_states(Series *series, void **flows, int step, const int *states, int is_receive) {
    void *steps[FLOWS / 2];
    uint64_t size = 1 << 20;
    for (int at = 0; at < FLOWS / 2; at++) steps[at] = start_step(flows[2 * at + is_receive], step);
    int64_t began = now_ns();
    for (int at = 0; at < FLOWS / 2; at++) {
        for (int state = 0; state < 3; state++) table->record(steps[at], states[state], &size);
        table->stop(steps[at]);
    }
    add(series, began, now_ns(), FLOWS / 2 * 4);
}

static void time_polls(Series *polls, void *step) {
    uint64_t size = 1;
    int64_t began = now_ns();
    for (int time = 0; time < REPEATS; time++) table->record(step, 20, &size);
    add(polls, began, now_ns(), REPEATS);
}

static void time_starts(Series *starts, void *flow, int step) {
    Descriptor what = {.type = 16, .parent = flow, .step = step};
    void *handle;
    table->start(context, &handle, &what);
    int64_t began = now_ns();
    for (int time = 0; time < REPEATS; time++) table->start(context, &handle, &what);
    add(starts, began, now_ns(), REPEATS);
}

static void time_ops(Series *series, int n_rounds) {
    for (int round = 0; round < n_rounds; round++) {
        void *flows[FLOWS];
        int64_t began = now_ns();
        void *op = start_coll();
        for (int at = 0; at < FLOWS; at++) flows[at] = start_flow(op, at);
        table->stop(op);
        for (int at = 0; at < FLOWS; at++) table->record(flows[at], 19, NULL);
        for (int at = 0; at < FLOWS; at++) table->stop(flows[at]);
        add(series, began, now_ns(), 1);
    }
}

/* The kernel of an op inside the node, by channel: begun, the GPU's time of its end, ended. */
static void time_kernels(Series *series, void *op) {
    void *kernels[CHANNELS];
    uint64_t timer = 0;
    int64_t began = now_ns();
    for (int at = 0; at < CHANNELS; at++)
        kernels[at] = start(64, op, (Descriptor){.kernel = {.channel = (uint8_t)at}});
    for (int at = 0; at < CHANNELS; at++) {
        table->record(kernels[at], 22, &timer);
        table->stop(kernels[at]);
    }
    add(series, began, now_ns(), CHANNELS);
}

static Series series_new(int n) { return (Series){malloc((size_t)n * sizeof(double)), 0}; }

int main(int argc, char **argv) {
    static const int sends[3] = {8, 20, 9}, receives[3] = {10, 11, 12};
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    table = library ? dlsym(library, "ncclProfiler_v7") : NULL;
    int n_rounds = argc == 3 ? atoi(argv[2]) : 0, mask;
    if (!table || table->init(&context, 1, &mask, "bench", 2, 2, 0, NULL)) return 2;
    Series states = series_new(2 * n_rounds), polls = series_new(n_rounds), starts = series_new(n_rounds);
    Series ops = series_new(n_rounds / 10), kernels = series_new(n_rounds);
    void *op = start_coll(), *flows[FLOWS];
    for (int at = 0; at < FLOWS; at++) flows[at] = start_flow(op, at);
    for (int round = 0; round < n_rounds; round++) {
        time_states(&states, flows, round, sends, 0);
        time_states(&states, flows, round, receives, 1);
        time_polls(&polls, start_step(flows[0], round));
        time_starts(&starts, flows[1], round + 1);
    }
    time_ops(&ops, n_rounds / 10);
    for (int round = 0; round < n_rounds; round++) {
        void *inside = start_coll();
        table->stop(inside);
        time_kernels(&kernels, inside);
    }
    printf("{");
    print("state_ns", &states, ", ");
    print("repeat_ns", &polls, ", ");
    print("repeat_start_ns", &starts, ", ");
    print("op_ns", &ops, ", ");
    print("kernel_ns", &kernels, "}\n");
    return 0;
}
