/* A network as NCCL's transport uses it: the library by name, queue pairs made and connected, chunks posted and polled for. A
 * chunk takes as long as the caller wants; the library without hardware behind it has no wire of its own. */
#ifndef WIRE_H
#define WIRE_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "layout.h"

#define MUST(what)                                        \
    do {                                                  \
        if (!(what)) {                                    \
            fprintf(stderr, "%d: %s\n", __LINE__, #what); \
            exit(1);                                      \
        }                                                 \
    } while (0)

static struct dgv_context_abi *wire;
static struct dgv_qp_abi *(*wire_create)(struct dgv_context_abi *, void *);
static int (*wire_modify)(struct dgv_qp_abi *, struct dgv_qp_attr *, int);
static int (*wire_close)(struct dgv_context_abi *);

static inline long long wire_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void wire_wait(long long ns) {
    struct timespec pause = {ns / 1000000000, ns % 1000000000};
    nanosleep(&pause, NULL);
}

static inline void wire_open(void) {
    void *library = dlopen("libibverbs.so", RTLD_NOW | RTLD_LOCAL);
    MUST(library);
    struct dgv_device_abi **(*list)(int *);
    struct dgv_context_abi *(*open)(struct dgv_device_abi *);
    *(void **)&list = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    *(void **)&open = dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
    *(void **)&wire_create = dlvsym(library, "ibv_create_qp", "IBVERBS_1.1");
    *(void **)&wire_modify = dlvsym(library, "ibv_modify_qp", "IBVERBS_1.1");
    *(void **)&wire_close = dlvsym(library, "ibv_close_device", "IBVERBS_1.1");
    int n = 0;
    wire = open(list(&n)[0]);
    MUST(wire && n == 1);
}

/* to: the last byte of the peer's address. */
static inline struct dgv_qp_abi *wire_connect(int to) {
    struct dgv_qp_abi *qp = wire_create(wire, NULL);
    static unsigned there = 0x700u;
    struct dgv_qp_attr attr = {.dest_qp_num = there++, .is_global = 1, .ah_port = 1};
    memcpy(attr.dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\0", 16);
    attr.dgid[15] = (unsigned char)to;
    MUST(qp && wire_modify(qp, &attr, 1 | DGV_QP_DEST) == 0);
    return qp;
}

static inline void wire_post(struct dgv_qp_abi *qp, uint64_t id, uint32_t bytes) {
    struct dgv_sge part = {.length = bytes};
    struct dgv_send_wr request = {.wr_id = id, .sg_list = &part, .num_sge = 1, .send_flags = DGV_SIGNALED}, *bad = NULL;
    MUST(qp->context->post_send(qp, &request, &bad) == 0);
}

static inline int wire_poll(void) {
    struct dgv_cq_abi cq = {wire};
    struct dgv_wc wc[64];
    int n, all = 0;
    while ((n = wire->poll_cq(&cq, 64, wc)) > 0) all += n;
    MUST(n == 0);
    return all;
}

#endif
