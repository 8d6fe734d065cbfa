/* NCCL's side of the profiler interface, versions 3 to 7: loads the plugin as NCCL does and fills the descriptors of
 * the chosen version. All other files speak of ops, flows and steps; only profiler.c knows byte offsets. Every call is
 * a no-op when no plugin is loaded or its mask does not ask for the type. */
#ifndef DG_PROFILER_H
#define DG_PROFILER_H

#include <stdint.h>

enum proxy_state {
    OP_SEND_POSTED = 0, OP_SEND_REM_FIFO_WAIT = 1, OP_SEND_TRANSMITTED = 2, OP_SEND_DONE = 3,
    OP_RECV_POSTED = 4, OP_RECV_RECEIVED = 5, OP_RECV_TRANSMITTED = 6, OP_RECV_DONE = 7,
    STEP_SEND_GPU_WAIT = 8, STEP_SEND_WAIT = 9, STEP_RECV_WAIT = 10, STEP_RECV_FLUSH_WAIT = 11,
    STEP_RECV_GPU_WAIT = 12, OP_IN_PROGRESS = 19, STEP_SEND_PEER_WAIT = 20, KERNEL_STOP = 22,
    GROUP_START_API_STOP = 23, GROUP_END_API_START = 24,
};

#define N_PROFILERS 2

struct profiled_comm {
    void *contexts[N_PROFILERS];
    const char *name;
    uint64_t hash;
    int rank, n_ranks, n_nodes;
};

struct profiled_op {
    const char *func;
    const void *send_buffer, *recv_buffer;
    uint64_t count, seq;
    int root, peer, n_channels, is_p2p;
    void *api_handle, *group_handle;
};

struct profiled_flow {
    int channel, peer, n_steps, chunk_bytes, is_send;
};

/* Loads the plugin named by NCCL_PROFILER_PLUGIN; absent or unusable: one line on stderr, job goes on untraced. */
void profiler_load(void);
void profiler_unload(void);
int profiler_version(void);
/* From now on callbacks go to the first or second plugin of NCCL_PROFILER_PLUGIN. Nothing may be under way. */
void profiler_choose(int which);

void profiler_init_comm(struct profiled_comm *comm);
void profiler_finalize_comm(struct profiled_comm *comm);

void *profiler_start_group_api(struct profiled_comm *comm, int depth);
void *profiler_start_api(struct profiled_comm *comm, void *group_api, const struct profiled_op *op, void *stream);
void *profiler_start_kernel_launch(struct profiled_comm *comm, void *group_api, void *stream);
void *profiler_start_group(struct profiled_comm *comm);
void *profiler_start_op(struct profiled_comm *comm, const struct profiled_op *op);
void *profiler_start_proxy_op(struct profiled_comm *comm, void *op_handle, const struct profiled_flow *flow);
void *profiler_start_step(struct profiled_comm *comm, void *proxy_op_handle, int step);
int profiler_wants_kernels(void);
void *profiler_start_kernel(struct profiled_comm *comm, void *op_handle, int channel);
void profiler_stop_kernel(void *handle);
void profiler_stop(void *handle);
void profiler_record_group(void *handle, enum proxy_state state);
void profiler_record_op(void *handle, enum proxy_state state);
void profiler_record_step(void *handle, enum proxy_state state, uint64_t size_bytes);
/* Versions up to 3 carry the progress on the ProxyOp instead: count of steps and bytes so far. */
void profiler_record_op_steps(void *handle, enum proxy_state state, int steps, uint64_t size_bytes);

#endif
