/*
 * The few places of libibverbs' structures that the shim reads, in the binary interface all versions since 1.1 keep (64 bit).
 * What lies between is of no interest and unnamed. A wrong place does not compile.
 */
#ifndef DGV_LAYOUT_H
#define DGV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

struct dgv_device_abi {
    uint8_t before[24];
    char name[64];
};

struct dgv_send_wr;
struct dgv_wc;
struct dgv_qp_abi;
struct dgv_cq_abi;

struct dgv_context_abi {
    struct dgv_device_abi *device;
    uint8_t ops_before[88];
    int (*poll_cq)(struct dgv_cq_abi *, int, struct dgv_wc *);
    uint8_t ops_between[104];
    int (*post_send)(struct dgv_qp_abi *, struct dgv_send_wr *, struct dgv_send_wr **);
};

struct dgv_qp_abi {
    struct dgv_context_abi *context;
    uint8_t before[44];
    uint32_t qp_num;
};

struct dgv_cq_abi {
    struct dgv_context_abi *context;
};

struct dgv_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

struct dgv_send_wr {
    uint64_t wr_id;
    struct dgv_send_wr *next;
    struct dgv_sge *sg_list;
    int num_sge;
    uint32_t opcode;
    uint32_t send_flags;
};

struct dgv_wc {
    uint64_t wr_id;
    uint32_t status;
    uint32_t opcode;
    uint32_t vendor_err;
    uint8_t between[8];
    uint32_t qp_num;
    uint8_t after[16];
};

struct dgv_qp_attr {
    uint8_t before[28];
    uint32_t dest_qp_num;
    uint8_t between[24];
    uint8_t dgid[16]; /* the address handle begins here */
    uint8_t ah_between[8];
    uint16_t dlid;
    uint8_t ah_more[3];
    uint8_t is_global;
    uint8_t ah_port;
};

struct dgv_qp_init {
    uint8_t before[56];
    int sq_sig_all;
};

#define DGV_QP_DEST (1 << 20)
#define DGV_OP_WRITES_MAX 3u /* write, write with immediate, send, send with immediate */
#define DGV_SIGNALED 2u
#define DGV_WC_RECEIVE 128u
#define DGV_WC_FLUSHED 5u

_Static_assert(sizeof(void *) == 8, "64 bit only");
_Static_assert(offsetof(struct dgv_device_abi, name) == 24, "name");
_Static_assert(offsetof(struct dgv_context_abi, poll_cq) == 8 + 88, "poll_cq");
_Static_assert(offsetof(struct dgv_context_abi, post_send) == 8 + 200, "post_send");
_Static_assert(offsetof(struct dgv_qp_abi, qp_num) == 52, "qp_num");
_Static_assert(sizeof(struct dgv_sge) == 16, "sge");
_Static_assert(offsetof(struct dgv_send_wr, opcode) == 28 && offsetof(struct dgv_send_wr, send_flags) == 32, "wr");
_Static_assert(offsetof(struct dgv_wc, qp_num) == 28 && sizeof(struct dgv_wc) == 48, "wc");
_Static_assert(offsetof(struct dgv_qp_attr, dest_qp_num) == 28 && offsetof(struct dgv_qp_attr, dgid) == 56, "attr");
_Static_assert(offsetof(struct dgv_qp_attr, dlid) == 80 && offsetof(struct dgv_qp_attr, is_global) == 85, "ah");

#endif
