/* The state of a simulated job. One `struct sim` holds everything; nothing is global.
 *
 * What moves, from the sending GPU to the receiving one:
 *
 *   lane ──copy──▶ slots ──proxy──▶ NIC ──▶ up link ──▶ down link ──▶ NIC ──proxy──▶ slots ──copy──▶ lane
 *          tail             transmitted                                    received   avail      taken
 *          head  ◀────────── done (acknowledged) ◀── latency ──┘  credits ◀── latency ── consumed
 *
 * Eight slots at each end; steps are counted from the start of the job, so both ends of a link speak of the same step. A link
 * inside a node is one set of slots without proxy and NIC. Times are nanoseconds since the job's start. */
#ifndef DG_SIM_H
#define DG_SIM_H

#include <stdint.h>

#include "calls.h"

#define N_SLOTS 8 /* NCCL_STEPS */
#define N_STREAMS 4
#define N_COMM_SLOTS 6 /* world, tp, dp, pp, ep, edp: a rank's communicators by kind */
#define FAN 3          /* neighbours of a tree node: two other nodes and the next rank of its own */
#define RECENT_OPS 64
#define NEVER INT64_MAX
#define NONE (-1)
#define NS_PER_S 1000000000LL

static inline int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

enum func { F_BROADCAST = 1, F_ALL_GATHER = 3, F_REDUCE_SCATTER = 4, F_ALL_REDUCE = 5, F_SEND = 7, F_RECV = 8, F_ALL_TO_ALL = 9 };
enum shape { SHAPE_FULL, SHAPE_NEIGHBOURS, SHAPE_ALL_TO_ONE, SHAPE_ONE_TO_ALL }; /* who sends to whom in a group of p2p */
enum task_kind { TASK_COMPUTE, TASK_EXPERT, TASK_WAIT, TASK_KERNEL };
enum stage { POSTED, READY, TRANSMITTED, DONE };       /* sender */
enum { RECEIVED = 1, FLUSHED = 2, CONSUMED = 3 };      /* receiver */
enum { STAGE_DATA, STAGE_FORWARD, STAGE_BACKWARD, STAGE_CALLBACKS, STAGE_OPTIMIZER, N_STAGES }; /* of a step */
enum op_flag { OP_NO_NETWORK = 1, OP_HAS_FLOWS = 16, OP_P2P = 32 };

/* ---- what Python hands over; engine.py mirrors these ---- */

struct settings {
    uint64_t seed;
    int64_t copy_bytes_per_s, node_bytes_per_s, latency_ns, node_latency_ns, host_call_ns, flush_ns, poll_ns;
    int64_t step_gap_ns;      /* data loader and the like between two steps */
    double jitter, moe_spread;
    double overlap_compute, overlap_copy; /* how much slower each is while the other runs on the same GPU */
    int32_t n_ranks, n_nics, n_groups, n_members, n_links, n_lanes, n_classes, n_tasks, n_specs, n_actions;
    int32_t ahead;            /* tasks the host may be in front of the GPU */
    int32_t is_ib, slot_bytes, slices, warmup_steps, gpu_dies_with_process, credits_queue;
    double warmup_factor;
    int64_t slices_max;   /* records of what left a NIC that are kept until they are read */
    int32_t slices_every; /* they are made in every so manieth step; 0: in none */
};

struct rank_spec {
    int32_t node, nic, class;
    int32_t groups[N_COMM_SLOTS], places[N_COMM_SLOTS]; /* group and place in it; NONE */
};

struct group_spec {
    int32_t first_member, n_ranks, n_nodes, n_channels, is_tree, is_barrier, stream, n_neighbours;
};

/* neighbours > 0: p2p lanes, (neighbour * 2 + is_receive) * channels + channel from first_p2p on. */
struct member_spec {
    int32_t rank, group, place, first_ring, first_up, first_down, first_p2p;
};

struct link_spec {
    int32_t group, channel, from, to; /* places in the group */
    int32_t from_rank, to_rank, from_lane, to_lane, is_network;
};

struct lane_spec {
    int32_t rank, in[FAN], out[FAN];
};

/* A step as the ranks of one pipeline stage enqueue it; stream_tasks lists the same tasks stream by stream. */
struct class_spec {
    int32_t first_task, n_tasks, first_in_stream[N_STREAMS], swapped[2]; /* what a rank that errs exchanges */
    int32_t before_update[N_STREAMS]; /* tasks of each stream until the gradients are there */
};

struct task_spec {
    int32_t kind, stream, other, position, first_op, n_ops, stage;
    int64_t ns;
};

/* shape: see enum shape. bytes: what one rank puts in (AllReduce, ReduceScatter, Broadcast, p2p) or gets out (AllGather). */
struct op_spec {
    int32_t func, slot, neighbour, layer, is_combine, root, shape;
    int64_t bytes;
};

struct action {
    int64_t at_ns;
    int32_t what, target;
    double amount, second;
};

/* ---- the mechanism ---- */

struct proxy_op {
    int32_t op, next;
    uint32_t n_steps, slice_bytes, depth;
    int64_t queued_ns;
};

/* A collective, or one send or receive of a group of them. */
struct part {
    int32_t func, slot, neighbour, peer;
    int64_t bytes;
};

/* What a lane has to do for a part: a ring goes round in periods whose first action only sends and last only receives. */
struct plan {
    int32_t lane;
    uint32_t n_slices, period, slices, slice_bytes;
    uint8_t uses_in, uses_out, is_ring;
};

#define MAX_LANES 32 /* of one part */

/* One end of a network link: a flow. Counts are of the op in front; `base` is the step it began with. */
struct end {
    int32_t first, last;
    uint32_t base, count[4];
    uint8_t is_send, is_begun;
    int64_t latest[4];
    int64_t gpu_wait_ns, peer_wait_ns, net_wait_ns;
    int64_t first_ready_ns, first_transfer_ns, last_transfer_ns, last_progress_ns;
    uint64_t bytes;
};

/* What is known of the step in a slot, at both ends; together, because it is used together. */
struct slot {
    int64_t credit_ns, sent_ns, start_ns, arrive_ns, ack_ns, flush_ns;
    int64_t passed[2][3]; /* when its last stages were passed, by direction */
    uint32_t bytes, bytes_sent; /* in the sender's slot, on the path */
};

struct link {
    struct link_spec spec;
    uint32_t tail, head, avail, taken; /* slots of the sending GPU, of the receiving GPU */
    uint32_t n_sent;                   /* handed to the path: what a socket holds back is transmitted, not sent */
    uint32_t n_started, n_arrived;     /* on the path, at the receiving machine */
    uint32_t n_credits;
    uint8_t waits_room, waits_credit, has_ack_call, has_credit_call, has_start_call, is_lost;
    int64_t newest_arrival_ns;
    struct end send, receive;
    struct slot slots[N_SLOTS];
};

struct lane {
    struct lane_spec spec;
    struct plan plan;
    uint32_t slice, depth, n_p2p;
    uint8_t is_copying, is_running;
    int32_t stream;
};

struct nic {
    int64_t bytes_per_s, tx_ns, rx_ns, up_ns, down_ns;
    double share, wire_share, pcie_share, wobble; /* what is left of the NIC, of its links, of its PCIe; random part */
    int64_t hand_over_ns;
    uint8_t is_down;
    uint64_t tx_bytes, rx_bytes;
    int64_t waited_ns, waited_since_ns, waited_until_ns; /* with data to send that nobody took; the newest interval */
    int64_t told_ns, told_at_ns;                            /* of it, when it was last read */
    double others_share; /* what other people send and receive, of the link's rate */
    int64_t others_since_ns;
    uint64_t others_bytes; /* until then, in each direction */
};

struct stream {
    int32_t n_queued, n_done, n_lanes;
    uint8_t is_running;
    const struct task_spec *kernel; /* what it runs, NULL: no kernel of communication */
};

/* Ops whose kernel the GPU has begun, channels inside one now, and the newest change. */
struct kernels {
    int64_t n_begun, n_open, last_ns;
};

struct rank {
    struct rank_spec spec;
    struct stream streams[N_STREAMS];
    int32_t pc, iteration;
    int64_t compute_ns, copy_in_ns, copy_out_ns; /* engines busy until */
    double compute_factor, copy_factor, dma_factor, expert_factor[2], background; /* experts: before and from expert_at on */
    int64_t host_extra_ns, data_extra_ns, hold_ns, proxy_delay_ns, sleep_ns, sleep_every_ns;
    int64_t asleep_until_ns, last_callback_ns, io_rate, io_until_ns, io_from_ns;
    uint64_t io_bytes;
    int32_t mismatch; /* what the next suitable op does wrong, 0 = nothing */
    int32_t mismatch_at, expert_at, hold_at;
    uint8_t is_frozen, is_killed, is_gpu_dead, is_stuck, is_host_over, has_wake, is_busy, host_waits, has_begun;
    int32_t first_live;
    int32_t stage;
    int64_t stage_since_ns, stage_ns[N_STAGES], callbacks_ns; /* of this step; of the gap before it, not for data */
};

struct group {
    struct group_spec spec;
    int32_t n_entered;
    uint8_t is_closed;
};

struct member {
    struct member_spec spec;
    uint64_t n_enqueued, n_p2p_enqueued, n_done, n_p2p_done, n_ordinals;
    int64_t last_enqueued_ns, last_done_ns;
    uint32_t seq[16];
    int32_t recent[RECENT_OPS];
    uint8_t network_seen;
    struct kernels kernels, heard; /* as they are, and as the proxy's thread knows them */
};

/* An op of one rank; rows of Python's OP_DTYPE begin with the same fields. */
struct op_row {
    int32_t rank, group, place, func;
    int64_t number, seq;
    int32_t flags, n_flows, peer, slowest_peer, slowest_channel, slowest_direction, algo, channels;
    int64_t bytes, count;
    int64_t enqueued_ns, started_ns, first_transfer_ns, last_transfer_ns, done_ns;
    int64_t gpu_wait_ns, peer_wait_ns, net_wait_ns;
    int64_t receive_gpu_wait_ns, receive_peer_wait_ns, receive_net_wait_ns; /* the part of its receiving flows */
    int64_t n_refused, first_ready_ns, fastest_done_ns;
    int64_t ordinal; /* place among all that the rank enqueued on the communicator */
    int32_t iteration;
};

struct op {
    struct op_row row;
    int32_t member, n_stopped, next, previous;
    uint64_t ordinal;
    int64_t slowest_ns;
    uint8_t is_live;
};

struct flow_row {
    int32_t rank, group, place, func;
    int64_t number;
    int32_t channel, direction, flags, peer;
    uint32_t total, counters[4];
    int64_t bytes, stuck_ns, gpu_wait_ns, peer_wait_ns, net_wait_ns;
};

struct progress_row {
    int32_t rank, group, place, is_networked;
    int64_t n_enqueued, n_done, n_p2p_enqueued, n_p2p_done, last_enqueued_ns, last_done_ns;
    int64_t kernels_begun, kernels_open, last_kernel_ns;
};

struct process_row {
    int32_t rank, is_frozen, is_killed, iteration;
    int64_t last_callback_ns, io_bytes;
};

/* What a stage recorder in the training loop would have written at the end of a step. */
struct step_row {
    int32_t rank, step;
    int64_t ended_ns, stage_ns[N_STAGES];
};

/* A transfer as the sending NIC knows it: given to it, gone from it. step: which of the op's on this flow, from 0. */
struct slice_row {
    int32_t rank, group, place, peer, channel, func;
    int64_t number, sent_ns, left_ns, acked_ns;
    uint32_t bytes, step;
    int32_t iteration;
};

/* A transfer as the plugin records it when the proxy notices that it is done (plugin/transfers.c); comm_id: the group. */
struct transfer_row {
    uint64_t stamp, comm_id;
    int64_t posted_ns, done_ns;
    uint64_t op;
    int32_t comm_rank, peer;
    uint32_t bytes, step, qpn;
    uint8_t channel, is_p2p, reserved[2];
};

enum call_kind { C_COPY, C_START, C_ARRIVE, C_ACK, C_CREDIT, C_FLUSH, C_COMPUTE, C_BARRIER, C_HOST, C_WAKE, C_SLEEP, C_ACTION };

struct sim {
    struct settings settings;
    int64_t now;
    uint32_t order;
    struct calls calls;
    struct rank *ranks;
    struct nic *nics;
    struct group *groups;
    struct member *members;
    struct link *links;
    struct lane *lanes;
    struct class_spec *classes;
    struct task_spec *tasks;
    struct op_spec *specs;
    int32_t *stream_tasks;
    struct part *parts;
    double *weights;
    struct action *actions;
    int32_t *rank_ends, *rank_ends_first; /* link * 2 + is_receive of every network end of a rank */
    int32_t *rank_members, *rank_members_first;
    struct op *ops;
    int64_t n_ops, ops_size;
    int32_t free_op;
    struct proxy_op *proxy_ops;
    int64_t n_proxy_ops, proxy_ops_size;
    int32_t free_proxy_op;
    struct op_row *finished;
    int64_t n_finished, finished_size;
    struct step_row *steps;
    int64_t n_steps, steps_size;
    struct slice_row *slices;
    int64_t n_slices, slices_size;
    struct transfer_row *transfers; /* transfers_size of each rank, a power of two; not ours, NULL: none are recorded */
    uint64_t *transfer_heads, transfers_size;
    struct call *deferred; /* what a stopped GPU will do when it goes on */
    int64_t n_deferred, deferred_size;
    double overlap;
    int64_t pause_ns;
    int32_t pause_at, stop_at;
    uint64_t n_served;
};

static inline struct slot *slot_of(struct link *link, uint32_t step)
{
    return &link->slots[step % N_SLOTS];
}

/* calls.c: the queue of what happens next */
void call_at(struct sim *sim, int64_t ns, enum call_kind kind, int32_t what);
int call_next(struct sim *sim, int64_t until_ns, struct call *call);
/* random.c: numbers that depend on what they are for, not on the order in which they are drawn */
double random_unit(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c);
double random_around(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c);
double random_exponential(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c);
/* host.c: the main thread */
void host_run(struct sim *sim, int32_t rank);
void host_resume(struct sim *sim, int32_t rank);
/* stages.c: what a stage recorder in the main thread sees */
void stage_look(struct sim *sim, struct rank *rank);
void stage_step_end(struct sim *sim, int32_t rank);
/* stream.c: a GPU's streams */
void stream_run(struct sim *sim, int32_t rank, int32_t stream);
void stream_task_done(struct sim *sim, int32_t rank, int32_t stream);
void barrier_done(struct sim *sim, int32_t group);
void kernel_start(struct sim *sim, int32_t rank, int32_t stream, const struct task_spec *task);
/* kernels.c: what is reported of them */
void kernel_begins(struct sim *sim, int32_t rank, int32_t stream, const struct task_spec *task);
void kernel_ends(struct sim *sim, int32_t rank, int32_t stream);
void kernels_hear(struct sim *sim, int32_t rank);
/* The task a rank enqueues and runs in the place of this one: another when it errs about the order. */
const struct task_spec *task_in_place_of(const struct sim *sim, const struct rank *rank, const struct task_spec *task);
/* moe.c: how popular each expert rank of a group is; the mean is 1 */
void moe_weights(const struct sim *sim, const struct group *group, int32_t layer, int32_t iteration, double *weights);
/* plan.c: what an op asks of each lane */
int32_t op_parts(struct sim *sim, const struct rank *rank, const struct op_spec *spec);
int32_t part_plans(struct sim *sim, const struct rank *rank, const struct part *part, struct plan *plans);
uint32_t plan_n_steps(const struct plan *plan);
/* calls.c */
void defer(struct sim *sim, enum call_kind kind, int32_t what);
/* lane.c: copies */
void lane_try(struct sim *sim, int32_t lane);
void lane_copied(struct sim *sim, int32_t lane);
/* proxy.c: the progress thread, one end at a time */
void proxy_touch(struct sim *sim, int32_t link, int is_receive);
void proxy_look(struct sim *sim, int32_t rank); /* at all of its flows */
int proxy_is_polling(const struct sim *sim, const struct rank *rank);
void end_append(struct sim *sim, int32_t link, int is_receive, int32_t op, const struct plan *plan);
/* path.c: NICs and links */
void path_send(struct sim *sim, int32_t link, uint32_t bytes);
void path_start(struct sim *sim, int32_t link);
void path_arrive(struct sim *sim, int32_t link);
int64_t credit_arrival_ns(struct sim *sim, const struct link *link);
void nic_up_again(struct sim *sim, int32_t nic);
uint64_t waited_now(const struct sim *sim, struct nic *nic);
/* slices.c: what left a NIC when */
void slice_keep(struct sim *sim, const struct link *link, uint32_t step, int64_t left_ns);
/* transfers.c: the same as a plugin records it */
void transfer_keep(struct sim *sim, struct link *link, uint32_t step, int64_t done_ns);
/* ops.c: op records */
void ops_enqueue(struct sim *sim, int32_t rank, const struct op_spec *spec);
void op_flow_stopped(struct sim *sim, int32_t op, const struct link *link, int is_receive);
void op_flow_begun(struct sim *sim, int32_t op);
/* actions.c: faults and other turns of fate */
void action_apply(struct sim *sim, int32_t action);
int64_t io_bytes_now(const struct sim *sim, const struct rank *rank);
uint64_t others_bytes_now(const struct sim *sim, const struct nic *nic);

#endif
