/* NCCL's side of the profiler interface, v3 to v7: descriptors written byte by byte at the published offsets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef void Log(int, unsigned long, const char *, int, const char *, ...);
typedef struct Table {
    const char *name;
    union {
        int (*v3)(void **, int *);
        int (*v4)(void **, int *, const char *, uint64_t, int, int, int, Log *);
        int (*v5)(void **, uint64_t, int *, const char *, int, int, int, Log *);
    } init;
    int (*start)(void *, void **, void *);
    int (*stop)(void *);
    int (*record)(void *, int, void *);
    int (*finalize)(void *);
} Table;

Profiler profiler;

static void logger(int level, unsigned long subsys, const char *file, int line, const char *format, ...) {
    va_list arguments;
    (void)level, (void)subsys, (void)file, (void)line;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static const Table *table(void) { return profiler.table; }

static void must(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s returned %d\n", what, result);
    abort();
}

void profiler_load(const char *path, int abi) {
    char symbol[32];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", abi);
    profiler.path = path;
    profiler.abi = abi;
    profiler.library = library;
    profiler.table = dlsym(library, symbol);
    if (!profiler.table) exit(2);
}

void profiler_unload(void) { dlclose(profiler.library); }

void *call_init(const CommSpec *comm) {
    void *context = NULL;
    int mask = -1, result;
    if (profiler.abi == 3) {
        result = table()->init.v3(&context, &mask);
    } else if (profiler.abi == 4) {
        result = table()->init.v4(&context, &mask, comm->name, comm->id, comm->n_nodes, comm->n_ranks, comm->rank,
                                  logger);
    } else {
        result = table()->init.v5(&context, comm->id, &mask, comm->name, comm->n_nodes, comm->n_ranks, comm->rank,
                                  logger);
    }
    must(result, "init");
    if (!context) must(1, "init without a context");
    __atomic_store_n(&profiler.mask, mask, __ATOMIC_RELAXED);
    return context;
}

int call_raw_start(void *context, void **handle, const void *descriptor) {
    return table()->start(context, handle, (void *)(uintptr_t)descriptor);
}

/* Unwritten bytes are garbage, as in NCCL's uninitialised descriptors. */
void *call_start(void *context, uint64_t type, void *parent, int rank, const void *body, int body_bytes) {
    unsigned char descriptor[136];
    void *handle = &handle;
    memset(descriptor, 0xA5, sizeof descriptor);
    if (profiler.abi >= 5) memcpy(descriptor, &type, 8); else descriptor[0] = (unsigned char)type;
    memcpy(descriptor + 8, &parent, 8);
    memcpy(descriptor + 16, &rank, 4);
    memcpy(descriptor + 24, body, (size_t)body_bytes);
    must(call_raw_start(context, &handle, descriptor), "startEvent");
    return handle;
}

typedef struct Body {
    unsigned char bytes[112];
} Body;

static Body garbage(void) {
    Body body;
    memset(body.bytes, 0xA5, sizeof body.bytes);
    return body;
}

/* `offset` counts from the start of the descriptor, as the interface's tables do. */
static void put(Body *body, int offset, const void *value, size_t size) {
    memcpy(body->bytes + offset - 24, value, size);
}
static void put_text(Body *body, int offset, const char *text) { put(body, offset, &text, sizeof text); }
static void put_u64(Body *body, int offset, uint64_t value) { put(body, offset, &value, 8); }
static void put_i32(Body *body, int offset, int32_t value) { put(body, offset, &value, 4); }
static void put_u8(Body *body, int offset, int value) { put(body, offset, &(unsigned char){(unsigned char)value}, 1); }

void *call_coll(void *context, void *parent, int rank, const CollSpec *coll, const CommSpec *comm) {
    Body body = garbage();
    int shift = profiler.abi == 3 ? 16 : 0;
    if (profiler.abi == 3) {
        put_text(&body, 24, comm->name);
        put_u64(&body, 32, comm->id);
    }
    put_u64(&body, 24 + shift, coll->seq);
    put_text(&body, 32 + shift, coll->func);
    put_u64(&body, 56 + shift, coll->count);
    put_i32(&body, 64 + shift, coll->root);
    put_text(&body, 72 + shift, coll->dtype);
    put_u8(&body, 80 + shift, coll->channels);
    put_u8(&body, 81 + shift, 16);
    put_text(&body, 88 + shift, coll->algo);
    put_text(&body, 96 + shift, coll->proto);
    if (profiler.abi >= 7) put_u64(&body, 128, 4242);
    return call_start(context, COLL, parent, rank, body.bytes, sizeof body.bytes);
}

void *call_p2p(void *context, void *parent, int rank, const char *func, int peer, const CommSpec *comm) {
    Body body = garbage();
    int shift = profiler.abi == 3 ? 16 : 0;
    if (profiler.abi == 3) {
        put_text(&body, 24, comm->name);
        put_u64(&body, 32, comm->id);
    }
    put_text(&body, 24 + shift, func);
    put_text(&body, 40 + shift, "ncclFloat32");
    put_u64(&body, 48 + shift, 1024);
    put_i32(&body, 56 + shift, peer);
    if (profiler.abi >= 5) put_u8(&body, 60, CHANNELS);
    if (profiler.abi >= 7) put_u64(&body, 72, 4243);
    return call_start(context, P2P, parent, rank, body.bytes, sizeof body.bytes);
}

void *call_api(void *context, int is_coll, int is_graph) {
    Body body = garbage();
    if (profiler.abi < 5) return call_start(context, GROUP, NULL, 0, body.bytes, 0);
    put_text(&body, 24, is_coll ? "AllReduce" : "Send");
    put_u8(&body, is_coll ? 64 : 56, is_graph);
    return call_start(context, is_coll ? COLL_API : P2P_API, NULL, 0, body.bytes, sizeof body.bytes);
}

void *call_proxy_op(void *context, void *parent, int rank, const FlowSpec *flow) {
    Body body = garbage();
    put_i32(&body, 24, flow->pid);
    put_u8(&body, 28, flow->channel);
    put_i32(&body, 32, flow->peer);
    put_i32(&body, 36, flow->n_steps);
    put_i32(&body, 40, CHUNK_BYTES);
    put_i32(&body, 44, flow->is_send);
    return call_start(context, PROXY_OP, parent, rank, body.bytes, sizeof body.bytes);
}

void *call_step(void *context, void *flow, int step) {
    return call_start(context, PROXY_STEP, flow, 0, &step, sizeof step);
}

void *call_queue_pair(void *context, void *step, int number) {
    Body body = garbage();
    unsigned char pair[40] = {1};
    void *data = pair;
    memcpy(pair + 28, &number, 4);
    put_u64(&body, 24, 0x10001);
    put(&body, 32, &data, sizeof data);
    return call_start(context, NET_PLUGIN, step, 0, body.bytes, sizeof body.bytes);
}

void *call_kernel(void *context, void *op, int channel) {
    Body body = garbage();
    put_u8(&body, 24, channel);
    if (profiler.abi >= 4) put_u64(&body, 32, 1234567);
    return call_start(context, KERNEL_CH, op, 0, body.bytes, sizeof body.bytes);
}

void call_kernel_stop(void *kernel) {
    uint64_t gpu_time = 1234999;
    call_record(kernel, KERNEL_CH_STOP, profiler.abi >= 4 ? &gpu_time : NULL);
    call_stop(kernel);
}

void call_stop(void *handle) { must(table()->stop(handle), "stopEvent"); }

void call_record(void *handle, int state, const void *arguments) {
    must(table()->record(handle, state, (void *)(uintptr_t)arguments), "recordEventState");
}

void call_size(void *handle, int state, uint64_t size) { call_record(handle, state, &size); }

void call_report(void *handle, int state, uint64_t size, int steps) {
    struct { uint64_t size; int32_t steps; } report = {size, steps};
    call_record(handle, state, &report);
}

void call_finalize(void *context) { must(table()->finalize(context), "finalize"); }
