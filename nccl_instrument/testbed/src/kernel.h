/* A communication kernel: one lane per (op, channel), each a list of ring or p2p actions cut into slices. Lanes of one
 * kernel advance independently, as NCCL's thread blocks do. */
#ifndef DG_KERNEL_H
#define DG_KERNEL_H

#include "rank.h"

#define MAX_LANES 8

enum action_flag { A_RECV = 1, A_SEND = 2, A_INPUT = 4, A_STORE = 8 };

/* recv? from the previous GPU, add or take the own input?, store to the output?, send? to the next GPU. */
struct action {
    uint8_t flags;
    uint32_t in_offset, out_offset, n; /* in elements */
};

struct lane {
    struct link *in, *out;
    const float *input;
    float *output;
    int slices_per_action, depth;
    int n_actions, n_actions_max, action, slice;
    uint64_t copy_end_ns; /* 0 = no copy under way */
    struct action *actions;
};

/* One op of a kernel, as needed to fill its input and check its result. */
struct checked_op {
    struct comm *comm;
    enum op_func func;
    uint64_t number, n_elements;
    int root;  /* comm rank: root of a broadcast, else the p2p peer */
};

struct kernel {
    int n_lanes, n_ops;
    struct checked_op ops[2];
    struct lane *lanes[MAX_LANES];
    struct report *report; /* NULL: nobody asks */
};

struct kernel *kernel_new(void);
struct lane *kernel_add_lane(struct kernel *kernel, struct link *in, struct link *out, int slices_per_action);
void lane_add(struct lane *lane, int flags, uint64_t in_offset, uint64_t out_offset, uint64_t n);
/* How many slices a lane sends (or receives): the number of network transfers of its flow. */
int lane_n_slices(const struct lane *lane, enum action_flag direction);
/* Runs to the end and frees the kernel. A wrong result ends the process. */
void kernel_run(struct rank *self, struct kernel *kernel, struct bell *bell);

#endif
