/* Profiler ABI v3 to v7, written from published offsets (LP64). The layouts of v4 to v7 share the field offsets below
 * and only grow at the end; v3 has the communicator's name and hash in front of each op, which shifts it by 16. */
#define _GNU_SOURCE
#include "profiler.h"

#include "descriptor.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARGS_BYTES 16

enum type_bit {
    T_GROUP = 1, T_COLL = 2, T_P2P = 4, T_PROXY_OP = 8, T_PROXY_STEP = 16, T_KERNEL_CH = 64, T_GROUP_API = 256, T_COLL_API = 512,
    T_P2P_API = 1024, T_KERNEL_LAUNCH = 2048,
};

typedef void (*log_fn)(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...);
typedef int (*init_v3_fn)(void **context, int *mask);
typedef int (*init_v4_fn)(void **context, int *mask, const char *name, uint64_t hash, int n_nodes, int n_ranks,
                          int rank, log_fn log);
typedef int (*init_v5_fn)(void **context, uint64_t id, int *mask, const char *name, int n_nodes, int n_ranks, int rank,
                          log_fn log);

struct vtable {
    const char *name;
    void (*init)(void); /* signature depends on the version */
    int (*start)(void *context, void **handle, void *descriptor);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
};

/* A job has one plugin, as NCCL has. Two (a and b in "a:b") are for comparing them within one process. */
struct plugin {
    void *library;
    struct vtable *table;
    int version;
    int mask; /* one word for the whole process, as in NCCL: the last init wins and the plugin may change it */
};

static struct plugin plugins[N_PROFILERS];
static struct plugin *plugin = plugins;

static void log_line(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
    (void)subsys;
    if (level > 2 && getenv("NCCL_DEBUG") == NULL)
        return;
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "NCCL %s %s:%d ", level == 2 ? "WARN" : "INFO", file, line);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

static void find_table(int wanted)
{
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", wanted);
    plugin->table = dlsym(plugin->library, symbol);
    plugin->version = plugin->table == NULL ? 0 : wanted;
}

/* v5 first because it is what the NCCL of today's PyTorch speaks; the rest newest first. */
static void choose_table(void)
{
    static const int ORDER[] = {5, 7, 6, 4, 3};
    const char *forced = getenv("DIOGENES_TESTBED_PROFILER_VERSION");
    if (forced != NULL && forced[0] != '\0') {
        find_table(atoi(forced));
        return;
    }
    for (size_t i = 0; i < sizeof ORDER / sizeof *ORDER && plugin->table == NULL; i++)
        find_table(ORDER[i]);
}

static void load_one(const char *path)
{
    plugin->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin->library == NULL) {
        fprintf(stderr, "dgrank: profiler plugin not loaded: %s\n", dlerror());
        return;
    }
    choose_table();
    if (plugin->table == NULL)
        fprintf(stderr, "dgrank: %s has no profiler table of a version this job speaks\n", path);
}

void profiler_load(void)
{
    const char *paths = getenv("NCCL_PROFILER_PLUGIN");
    if (paths == NULL || paths[0] == '\0' || strcmp(paths, "none") == 0)
        return;
    char *copy = strdup(paths), *rest = copy;
    for (int which = 0; which < N_PROFILERS && rest != NULL; which++) {
        profiler_choose(which);
        load_one(strsep(&rest, ":"));
    }
    free(copy);
    profiler_choose(0);
}

void profiler_choose(int which)
{
    plugin = &plugins[which];
}

void profiler_unload(void)
{
    for (int which = 0; which < N_PROFILERS; which++) {
        if (plugins[which].library != NULL)
            dlclose(plugins[which].library);
        plugins[which] = (struct plugin){0};
    }
}

int profiler_version(void)
{
    return plugin->version;
}

static void init_one(struct profiled_comm *comm, void **context)
{
    int rc;
    if (plugin->table == NULL)
        return;
    if (plugin->version >= 5)
        rc = ((init_v5_fn)plugin->table->init)(context, comm->hash, &plugin->mask, comm->name, comm->n_nodes,
                                               comm->n_ranks, comm->rank, log_line);
    else if (plugin->version == 4)
        rc = ((init_v4_fn)plugin->table->init)(context, &plugin->mask, comm->name, comm->hash, comm->n_nodes,
                                               comm->n_ranks, comm->rank, log_line);
    else
        rc = ((init_v3_fn)plugin->table->init)(context, &plugin->mask);
    if (rc != 0) {
        fprintf(stderr, "dgrank: the profiler plugin's init failed (%d), tracing is off\n", rc);
        plugin->table = NULL;
    }
}

void profiler_init_comm(struct profiled_comm *comm)
{
    for (int which = 0; which < N_PROFILERS; which++) {
        profiler_choose(which);
        init_one(comm, &comm->contexts[which]);
    }
    profiler_choose(0);
}

void profiler_finalize_comm(struct profiled_comm *comm)
{
    for (int which = 0; which < N_PROFILERS; which++)
        if (plugins[which].table != NULL)
            plugins[which].table->finalize(comm->contexts[which]);
}

/* A u64 type also serves v3 and v4, whose u8 type is its first byte; types above 255 do not exist there. */
static void descriptor_init(struct descriptor *d, enum type_bit type, void *parent, int rank)
{
    memset(d, 0, sizeof *d);
    put_u64(d, 0, type);
    put_pointer(d, 8, parent);
    put_i32(d, 16, rank);
}

/* Asking for a child means that its parents are announced as well. */
static int is_wanted(enum type_bit type)
{
    static const int WITH_CHILDREN[][2] = {
        {T_GROUP, T_GROUP | T_COLL | T_P2P | T_PROXY_OP | T_PROXY_STEP | T_KERNEL_CH},
        {T_COLL, T_COLL | T_PROXY_OP | T_PROXY_STEP | T_KERNEL_CH},
        {T_P2P, T_P2P | T_PROXY_OP | T_PROXY_STEP | T_KERNEL_CH},
        {T_PROXY_OP, T_PROXY_OP | T_PROXY_STEP},
        {T_GROUP_API, T_GROUP_API | T_COLL_API | T_P2P_API | T_KERNEL_LAUNCH | T_COLL | T_P2P | T_PROXY_OP | T_PROXY_STEP |
                          T_KERNEL_CH},
        {T_COLL_API, T_COLL_API | T_COLL | T_PROXY_OP | T_PROXY_STEP | T_KERNEL_CH},
        {T_P2P_API, T_P2P_API | T_P2P | T_PROXY_OP | T_PROXY_STEP | T_KERNEL_CH},
    };
    if (plugin->table == NULL || (plugin->version < 5 && type >= T_GROUP_API))
        return 0;
    for (size_t i = 0; i < sizeof WITH_CHILDREN / sizeof *WITH_CHILDREN; i++)
        if (WITH_CHILDREN[i][0] == (int)type)
            return (plugin->mask & WITH_CHILDREN[i][1]) != 0;
    return (plugin->mask & (int)type) != 0;
}

static void *start(struct profiled_comm *comm, struct descriptor *d)
{
    void *handle = NULL;
    plugin->table->start(comm->contexts[plugin - plugins], &handle, d->bytes);
    return handle;
}

void *profiler_start_group_api(struct profiled_comm *comm, int depth)
{
    struct descriptor d;
    if (!is_wanted(T_GROUP_API))
        return NULL;
    descriptor_init(&d, T_GROUP_API, NULL, 0);
    put_i32(&d, 28, depth);
    return start(comm, &d);
}

void *profiler_start_api(struct profiled_comm *comm, void *group_api, const struct profiled_op *op, void *stream)
{
    struct descriptor d;
    enum type_bit type = op->is_p2p ? T_P2P_API : T_COLL_API;
    if (!is_wanted(type))
        return NULL;
    descriptor_init(&d, type, group_api, 0);
    put_pointer(&d, 24, op->func);
    put_u64(&d, 32, op->count);
    put_pointer(&d, 40, "ncclFloat32");
    if (!op->is_p2p)
        put_i32(&d, 48, op->root);
    put_pointer(&d, op->is_p2p ? 48 : 56, stream);
    return start(comm, &d);
}

void *profiler_start_kernel_launch(struct profiled_comm *comm, void *group_api, void *stream)
{
    struct descriptor d;
    if (!is_wanted(T_KERNEL_LAUNCH))
        return NULL;
    descriptor_init(&d, T_KERNEL_LAUNCH, group_api, 0);
    put_pointer(&d, 24, stream);
    return start(comm, &d);
}

void *profiler_start_group(struct profiled_comm *comm)
{
    struct descriptor d;
    if (!is_wanted(T_GROUP))
        return NULL;
    descriptor_init(&d, T_GROUP, NULL, 0);
    return start(comm, &d);
}

static void put_coll(struct descriptor *d, size_t shift, const struct profiled_op *op)
{
    /* AllGather and Broadcast reach the plugin as bytes: NCCL rewrites them so. */
    int is_bytes = strcmp(op->func, "AllGather") == 0 || strcmp(op->func, "Broadcast") == 0;
    put_u64(d, 24 + shift, op->seq);
    put_pointer(d, 32 + shift, op->func);
    put_pointer(d, 40 + shift, op->send_buffer);
    put_pointer(d, 48 + shift, op->recv_buffer);
    put_u64(d, 56 + shift, is_bytes ? op->count * sizeof(float) : op->count);
    put_i32(d, 64 + shift, op->root);
    put_pointer(d, 72 + shift, is_bytes ? "ncclInt8" : "ncclFloat32");
    put_u8(d, 80 + shift, op->n_channels);
    put_u8(d, 81 + shift, 16);
    put_pointer(d, 88 + shift, "RING");
    put_pointer(d, 96 + shift, "SIMPLE");
    if (plugin->version >= 5)
        put_pointer(d, 104, op->group_handle);
}

static void put_p2p(struct descriptor *d, size_t shift, const struct profiled_op *op)
{
    put_pointer(d, 24 + shift, op->func);
    put_pointer(d, 32 + shift, op->send_buffer != NULL ? op->send_buffer : op->recv_buffer);
    put_pointer(d, 40 + shift, "ncclFloat32");
    put_u64(d, 48 + shift, op->count);
    put_i32(d, 56 + shift, op->peer);
    if (plugin->version >= 4)
        put_u8(d, 60, op->n_channels);
    if (plugin->version >= 5)
        put_pointer(d, 64, op->group_handle);
}

void *profiler_start_op(struct profiled_comm *comm, const struct profiled_op *op)
{
    struct descriptor d;
    enum type_bit type = op->is_p2p ? T_P2P : T_COLL;
    /* Up to v4 the group is the parent and NCCL skips the op when the plugin gave no handle for it. */
    if (!is_wanted(type) || (plugin->version < 5 && op->group_handle == NULL))
        return NULL;
    descriptor_init(&d, type, plugin->version < 5 ? op->group_handle : op->api_handle, comm->rank);
    size_t shift = plugin->version == 3 ? 16 : 0;
    if (shift != 0) {
        put_pointer(&d, 24, comm->name);
        put_u64(&d, 32, comm->hash);
    }
    if (op->is_p2p)
        put_p2p(&d, shift, op);
    else
        put_coll(&d, shift, op);
    return start(comm, &d);
}

void *profiler_start_proxy_op(struct profiled_comm *comm, void *op_handle, const struct profiled_flow *flow)
{
    struct descriptor d;
    if (!is_wanted(T_PROXY_OP))
        return NULL;
    descriptor_init(&d, T_PROXY_OP, op_handle, comm->rank);
    put_i32(&d, 24, (int32_t)getpid());
    put_u8(&d, 28, flow->channel);
    put_i32(&d, 32, flow->peer);
    put_i32(&d, 36, flow->n_steps);
    put_i32(&d, 40, flow->chunk_bytes);
    put_i32(&d, 44, flow->is_send);
    return start(comm, &d);
}

void *profiler_start_step(struct profiled_comm *comm, void *proxy_op_handle, int step)
{
    struct descriptor d;
    if (proxy_op_handle == NULL || !is_wanted(T_PROXY_STEP))
        return NULL;
    descriptor_init(&d, T_PROXY_STEP, proxy_op_handle, comm->rank);
    put_i32(&d, 24, step);
    return start(comm, &d);
}

int profiler_wants_kernels(void)
{
    return is_wanted(T_KERNEL_CH);
}

static uint64_t gpu_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void *profiler_start_kernel(struct profiled_comm *comm, void *op_handle, int channel)
{
    struct descriptor d;
    descriptor_init(&d, T_KERNEL_CH, op_handle, 0);
    put_u8(&d, 24, channel);
    if (plugin->version >= 4)
        put_u64(&d, 32, gpu_time_ns());
    return start(comm, &d);
}

void profiler_stop_kernel(void *handle)
{
    uint64_t args[ARGS_BYTES / 8] = {gpu_time_ns(), 0};
    if (plugin->table == NULL || handle == NULL)
        return;
    if (plugin->version >= 4)
        plugin->table->record(handle, KERNEL_STOP, args);
    plugin->table->stop(handle);
}

void profiler_stop(void *handle)
{
    if (plugin->table != NULL && handle != NULL)
        plugin->table->stop(handle);
}

void profiler_record_group(void *handle, enum proxy_state state)
{
    if (plugin->table != NULL && handle != NULL)
        plugin->table->record(handle, state, NULL);
}

void profiler_record_op(void *handle, enum proxy_state state)
{
    uint64_t args[ARGS_BYTES / 8] = {0};
    if (plugin->table != NULL && handle != NULL && plugin->version >= 4)
        plugin->table->record(handle, state, args);
}

void profiler_record_step(void *handle, enum proxy_state state, uint64_t size_bytes)
{
    uint64_t args[ARGS_BYTES / 8] = {size_bytes, 0};
    if (plugin->table == NULL || handle == NULL || (plugin->version < 4 && state == STEP_SEND_PEER_WAIT))
        return;
    plugin->table->record(handle, state, args);
}

void profiler_record_op_steps(void *handle, enum proxy_state state, int steps, uint64_t size_bytes)
{
    uint64_t args[ARGS_BYTES / 8] = {size_bytes, (uint32_t)steps};
    if (plugin->table != NULL && handle != NULL && plugin->version <= 3)
        plugin->table->record(handle, state, args);
}
