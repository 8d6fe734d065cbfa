/* Enqueues one op (enqueue.h). Coll stop means "enqueued", not "done"; the API call's own start and stop lie before
 * the launch and the Coll has it as a parent although it has stopped: that is NCCL's order from 2.28 on. */
#define _GNU_SOURCE
#include "enqueue.h"

#include "collectives.h"
#include "gpu.h"
#include "proxy.h"
#include "reported.h"

static const char *const FUNC_NAMES[] = {"Broadcast", "AllGather", "ReduceScatter", "AllReduce", "Send", "Recv"};

/* Which flows take part, and with how many transfers. Listed before the launch: the GPU frees a kernel it has run. */
static int list_posts(const struct kernel *kernel, struct call call, struct proxy_post *posts)
{
    int n = 0;
    for (int i = 0; i < kernel->n_lanes; i++) {
        const struct lane *lane = kernel->lanes[i];
        int n_sent = lane_n_slices(lane, A_SEND), n_received = lane_n_slices(lane, A_RECV);
        if (n_received > 0 && lane->in->flow != NULL)
            posts[n++] = (struct proxy_post){lane->in->flow, n_received, lane->slices_per_action, call, NULL};
        if (n_sent > 0 && lane->out->flow != NULL)
            posts[n++] = (struct proxy_post){lane->out->flow, n_sent, lane->slices_per_action, call, NULL};
    }
    return n;
}

/* hostStreamPlanTask: group and op are announced, the proxy gets its part, op and group stop. */
static void announce_and_post(struct rank *self, struct comm *comm, struct profiled_op *op, struct report *report,
                              struct proxy_post *posts, int n_posts)
{
    op->group_handle = profiler_start_group(&comm->profiled);
    void *handle = profiler_start_op(&comm->profiled, op);
    for (int i = 0; i < n_posts; i++)
        posts[i].op_handle = handle;
    if (n_posts > 0)
        proxy_post(self, posts, n_posts);
    report_announced(report, handle);
    profiler_stop(handle);
    profiler_stop(op->group_handle);
}

static void launch(struct rank *self, struct comm *comm, struct profiled_op *op, uint64_t number,
                   struct kernel *kernel)
{
    struct proxy_post posts[2 * MAX_LANES];
    struct call call = {number, atomic_load(&self->page->n_ops_enqueued), op->is_p2p};
    int n_posts = list_posts(kernel, call, posts);
    void *stream = &self->gpu->streams[comm->stream];
    void *group_api = profiler_start_group_api(&comm->profiled, 1);
    profiler_record_group(group_api, GROUP_START_API_STOP);
    op->api_handle = profiler_start_api(&comm->profiled, group_api, op, stream);
    profiler_stop(op->api_handle);
    profiler_record_group(group_api, GROUP_END_API_START);
    void *launched = profiler_start_kernel_launch(&comm->profiled, group_api, stream);
    struct report *report = kernel->report = report_new(&comm->profiled, op->n_channels);
    gpu_queue_kernel(self, (int)comm->stream, kernel);
    profiler_stop(launched);
    announce_and_post(self, comm, op, report, posts, n_posts);
    profiler_stop(group_api);
    atomic_fetch_add(&self->page->n_ops_enqueued, 1);
}

static void add_check(struct rank *self, struct kernel *kernel, struct checked_op op)
{
    if (!self->skips_checks)
        kernel->ops[kernel->n_ops++] = op;
}

void enqueue_collective(struct rank *self, struct comm *comm, enum op_func func, uint64_t n, int root)
{
    struct kernel *kernel = kernel_new();
    struct profiled_op op = {.func = FUNC_NAMES[func], .send_buffer = comm->send_buffer,
                             .recv_buffer = comm->recv_buffer, .count = n, .seq = comm->func_seq[func]++,
                             .root = root, .n_channels = self->job.n_channels};
    uint64_t number = ++comm->n_colls;
    add_check(self, kernel, (struct checked_op){comm, func, number, n, root});
    collective_add_lanes(kernel, comm, self->job.n_channels, func, n, root);
    launch(self, comm, &op, number, kernel);
}

void enqueue_p2p(struct rank *self, struct comm *comm, enum op_func func, uint64_t n, int neighbour)
{
    struct kernel *kernel = kernel_new();
    int is_send = func == OP_SEND, peer = comm->me + (neighbour == 0 ? -1 : 1);
    struct profiled_op op = {.func = FUNC_NAMES[func], .count = n, .peer = peer, .is_p2p = 1,
                             .n_channels = self->job.n_channels};
    if (is_send)
        op.send_buffer = comm->send_buffer;
    else
        op.recv_buffer = comm->recv_buffer;
    uint64_t number = ++comm->n_p2p[is_send][neighbour];
    add_check(self, kernel, (struct checked_op){comm, func, number, n, peer});
    p2p_add_lanes(kernel, comm, self->job.n_channels, func, n, neighbour);
    launch(self, comm, &op, number, kernel);
}
