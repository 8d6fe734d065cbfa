/* A libibverbs.so.1 without hardware, with the real one's two versions of each symbol: those of 1.0 must not be taken. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define QUEUED 4096

struct opened {
    struct dgv_context_abi context;
    char rest[256];
};
struct made {
    struct dgv_qp_abi qp;
    char rest[128];
};

static struct dgv_device_abi device = {.name = "mlx5_0"};
static struct dgv_device_abi *list[] = {&device, NULL};
static _Thread_local struct dgv_wc queue[QUEUED];
static _Thread_local int queued;
static _Thread_local int broken;
static uint32_t next_qpn = 0x100;

static int send_to_nowhere(struct dgv_qp_abi *qp, struct dgv_send_wr *wr, struct dgv_send_wr **bad) {
    for (; wr; wr = wr->next) {
        if (wr->wr_id == 666) { /* as when the send queue is full */
            *bad = wr;
            return ENOMEM;
        }
        broken |= wr->wr_id == 777;
        if (!(wr->send_flags & DGV_SIGNALED) || queued == QUEUED)
            continue;
        queue[queued++] = (struct dgv_wc){.wr_id = wr->wr_id, .qp_num = qp->qp_num, .opcode = broken ? 200 : 1,
                                          .status = wr->wr_id == 777 ? 12 : broken ? 5 : 0, .vendor_err = broken ? 0x81 : 0};
    }
    return 0;
}

static int complete(struct dgv_cq_abi *cq, int n_max, struct dgv_wc *wc) {
    int n = queued < n_max ? queued : n_max;
    (void)cq;
    memcpy(wc, queue, (size_t)n * sizeof *wc);
    memmove(queue, queue + n, (size_t)(queued - n) * sizeof *wc);
    queued -= n;
    return n;
}

struct dgv_device_abi **get_list(int *n);
struct dgv_device_abi **get_list(int *n) {
    *n = 1;
    return list;
}

struct dgv_context_abi *open_new(struct dgv_device_abi *which);
struct dgv_context_abi *open_new(struct dgv_device_abi *which) {
    struct opened *found = calloc(1, sizeof *found);
    found->context.device = which;
    found->context.post_send = send_to_nowhere;
    found->context.poll_cq = complete;
    return &found->context;
}

int close_new(struct dgv_context_abi *context);
int close_new(struct dgv_context_abi *context) {
    int is_whole = context->post_send == send_to_nowhere && context->poll_cq == complete;
    free(context);
    return is_whole ? 0 : EBUSY;
}

struct dgv_qp_abi *create_new(struct dgv_context_abi *pd, void *attr);
struct dgv_qp_abi *create_new(struct dgv_context_abi *pd, void *attr) {
    (void)attr;
    struct made *found = calloc(1, sizeof *found);
    found->qp.context = pd;
    found->qp.qp_num = __atomic_fetch_add(&next_qpn, 1, __ATOMIC_RELAXED);
    return &found->qp;
}

int modify_new(struct dgv_qp_abi *qp, struct dgv_qp_attr *attr, int mask);
int modify_new(struct dgv_qp_abi *qp, struct dgv_qp_attr *attr, int mask) {
    (void)qp, (void)mask;
    return attr->dest_qp_num == 0xBAD ? EINVAL : 0;
}

void *never(void);
void *never(void) { abort(); }

#define NEW(ours, name) __asm__(".symver " #ours "," #name "@@IBVERBS_1.1")
__asm__(".globl old_list\n.globl old_open\n.globl old_close\n.globl old_create\n.globl old_modify\n"
        ".set old_list, never\n.set old_open, never\n.set old_close, never\n.set old_create, never\n.set old_modify, never\n"
        ".symver old_list,ibv_get_device_list@IBVERBS_1.0\n.symver old_open,ibv_open_device@IBVERBS_1.0\n"
        ".symver old_close,ibv_close_device@IBVERBS_1.0\n.symver old_create,ibv_create_qp@IBVERBS_1.0\n"
        ".symver old_modify,ibv_modify_qp@IBVERBS_1.0\n");
NEW(get_list, ibv_get_device_list);
NEW(open_new, ibv_open_device);
NEW(close_new, ibv_close_device);
NEW(create_new, ibv_create_qp);
NEW(modify_new, ibv_modify_qp);
