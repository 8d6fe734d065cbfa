/* Kernels: what the GPU itself says of an op, one KernelCh event per channel, inside the node too (DIOGENES_KERNELS).
 *
 * A GPU that stands never begins what it was launched; its mates have begun it and wait inside. So a communicator's row
 * counts the ops begun and the channels now inside a kernel; that is all a reader needs, and nothing more is written per
 * op than one word. An op's row may have been closed long before: inside the node that happens at the launch.
 */
#include <sys/statvfs.h>

#include "plugin.h"

#define LOG_INFO_LEVEL 3
#define LOG_INIT 0x1ul
#define ROOM_BYTES_PER_RANK (128ull << 20) /* of /dev/shm, for NCCL's own queues: an estimate */
#define RANKS_WHEN_UNKNOWN 8

/* Up to NCCL 2.30 kernels are reported by the proxy's thread; where its queues find no room in /dev/shm, NCCL crashes
 * (NVIDIA/nccl#2326). Its 2.27 lost jobs with profilers on (#2039). Neither is ours to risk unasked. */
static const char *reason_against(const CommJoin *join) {
    struct statvfs room;
    int32_t n_ranks = identity_number("LOCAL_WORLD_SIZE");
    if (join->abi == 4) return "NCCL 2.27 may lose the job with them";
    if (statvfs("/dev/shm", &room)) return "/dev/shm cannot be read";
    unsigned long long wanted = ROOM_BYTES_PER_RANK * (unsigned)(n_ranks > 0 ? n_ranks : RANKS_WHEN_UNKNOWN);
    return (unsigned long long)room.f_frsize * room.f_bavail < wanted ? "/dev/shm may be too small for NCCL's queues" : NULL;
}

int kernels_wanted(const CommJoin *join) {
    if (!plugin.header || identity_number("DIOGENES_KERNELS") != 1) return 0;
    const char *reason = reason_against(join);
    if (!reason) return 1;
    COUNT(kernels_refused);
    if (join->logger)
        join->logger(LOG_INFO_LEVEL, LOG_INIT, __FILE__, __LINE__, "PROFILER/Diogenes: no kernels: %s", reason);
    return 0;
}

/* The communicator of an op whose row is still its own; NULL and counted when it is not. */
static CommRow *comm_of(const OpRow *op, uint64_t handle) {
    CommRow *comm = op ? &plugin.comms[LOAD(op->comm) & (SEGMENT_COMMS - 1)] : NULL;
    if (comm && LOAD(comm->comm_id) == LOAD(op->comm_id) && op_find(handle)) return comm;
    COUNT(orphan_kernels);
    return NULL;
}

/* A channel's kernel has begun; the first of an op counts the op. Should the row pass to another op between the look and
 * the addition, that one's kernel is not counted: its rank counts one less from then on, which readers bear once. The
 * handle names the communicator: its op's row may be another's by the time the kernel ends. */
uint64_t kernel_start(uint64_t handle) {
    OpRow *op = op_find(handle);
    CommRow *comm = comm_of(op, handle);
    if (!comm) return 0;
    ADD(comm->kernels_open, 1);
    if (ADD(op->channels_begun, 1) == 0) {
        ADD(comm->kernels_begun, 1);
        STORE(comm->last_kernel_ns, now_ns());
    }
    uint32_t generation = state_generation(ACQUIRE(comm->stamp));
    return handle_make(HANDLE_KERNEL, generation, (uint32_t)(comm - plugin.comms), 0);
}

void kernel_stop(uint64_t handle) {
    CommRow *comm = &plugin.comms[handle_row(handle) & (SEGMENT_COMMS - 1)];
    if (ACQUIRE(comm->stamp) != state_word(handle_generation(handle), ROW_LIVE)) {
        COUNT(stale_handles);
        return;
    }
    if (ADD(comm->kernels_open, -1u) == 1) STORE(comm->last_kernel_ns, now_ns());
}
