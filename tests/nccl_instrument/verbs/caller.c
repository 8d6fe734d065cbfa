/* Uses verbs as NCCL does: the library by name, symbols by version, sends and polls by the context's pointers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layout.h"

#define MUST(what)                                            \
    do {                                                      \
        if (!(what)) {                                        \
            fprintf(stderr, "%d: %s\n", __LINE__, #what);     \
            exit(1);                                          \
        }                                                     \
    } while (0)

static struct dgv_context_abi *context;
static struct dgv_qp_abi *(*create)(struct dgv_context_abi *, void *);
static int (*modify)(struct dgv_qp_abi *, struct dgv_qp_attr *, int);

static int post(struct dgv_qp_abi *qp, uint64_t id, uint32_t bytes, uint32_t opcode, uint64_t then) {
    struct dgv_sge parts[2] = {{.length = bytes}, {.length = 8}};
    struct dgv_send_wr second = {.wr_id = then, .sg_list = parts, .num_sge = 1, .send_flags = DGV_SIGNALED};
    struct dgv_send_wr first = {.wr_id = id, .next = then ? &second : NULL, .sg_list = parts, .num_sge = 2, .opcode = opcode,
                                .send_flags = then ? 0 : DGV_SIGNALED};
    struct dgv_send_wr *bad = NULL;
    int done = qp->context->post_send(qp, &first, &bad);
    MUST(!done || bad == (then == 666 ? &second : &first));
    return done;
}

static struct dgv_qp_abi *connect_to(uint32_t there) {
    struct dgv_qp_abi *qp = create(context, NULL);
    struct dgv_qp_attr attr = {.dest_qp_num = there, .is_global = 1, .ah_port = 1};
    memcpy(attr.dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x02", 16);
    MUST(qp && modify(qp, &attr, 1 | DGV_QP_DEST) == 0);
    attr.dest_qp_num = 0xBAD;
    MUST(modify(qp, &attr, 1 | DGV_QP_DEST) != 0); /* refused: the peer stays */
    return qp;
}

static int drain(void) {
    struct dgv_cq_abi cq = {context};
    struct dgv_wc wc[16];
    int n, all = 0;
    while ((n = context->poll_cq(&cq, 16, wc)) > 0)
        all += n;
    MUST(n == 0);
    return all;
}

static void *busy(void *nothing) {
    struct dgv_qp_abi *qp = connect_to(9);
    for (int i = 0; i < 20000; i++) {
        MUST(post(qp, 1, 4088, 0, 0) == 0);
        MUST(drain() == 1);
    }
    free(qp);
    return nothing;
}

static struct dgv_qp_abi *shared;

static void *beside(void *nothing) {
    for (int i = 0; i < 20000; i++) {
        MUST(post(shared, 1, 4088, 0, 0) == 0);
        MUST(drain() == 1);
    }
    return nothing;
}

static void plain(void) {
    struct dgv_qp_abi *qp = connect_to(0x777);
    for (int i = 0; i < 10; i++)
        MUST(post(qp, 1, 1000, 0, 2) == 0);
    MUST(post(qp, 1, 500, 4, 0) == 0); /* a read: nothing of it leaves here */
    MUST(post(qp, 1, 1000, 0, 666) != 0 && post(qp, 666, 1000, 0, 0) != 0);
    MUST(drain() == 11);
    free(qp);
}

static void failing(void) {
    struct dgv_qp_abi *qp = connect_to(0x777);
    MUST(post(qp, 777, 1000, 0, 0) == 0 && post(qp, 1, 1000, 0, 0) == 0 && post(qp, 1, 1000, 0, 0) == 0);
    MUST(drain() == 3);
    free(qp);
}

/* A link was down: two polls have passed when the request is done. */
static void stalled(void) {
    struct dgv_qp_abi *qp = connect_to(0x777);
    MUST(post(qp, 1, 999999992, 0, 0) == 0);
    usleep(2600000);
    MUST(drain() == 1);
    free(qp);
}

static void many(void) {
    for (int i = 0; i < 5000; i++) {
        struct dgv_qp_abi *qp = create(context, NULL);
        MUST(qp && post(qp, 1, 92, 0, 0) == 0 && drain() == 1);
        free(qp);
    }
}

int main(int n, char **words) {
    void *library = dlopen("libibverbs.so", RTLD_NOW);
    MUST(n == 2 && library);
#define FIND(to, name) *(void **)&to = dlvsym(library, name, "IBVERBS_1.1")
    struct dgv_device_abi **(*list)(int *);
    struct dgv_context_abi *(*open)(struct dgv_device_abi *);
    int (*closing)(struct dgv_context_abi *);
    FIND(list, "ibv_get_device_list"); /* only behind the shim */
    FIND(open, "ibv_open_device");
    FIND(closing, "ibv_close_device");
    FIND(create, "ibv_create_qp");
    FIND(modify, "ibv_modify_qp");
    MUST(list && open && closing && create && modify);
    int n_devices = 0;
    context = open(list(&n_devices)[0]);
    MUST(context && n_devices == 1);
    if (!strcmp(words[1], "failing"))
        failing();
    else if (!strcmp(words[1], "stalled"))
        stalled();
    else if (!strcmp(words[1], "many"))
        many();
    else if (!strcmp(words[1], "threads")) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            MUST(!pthread_create(&threads[i], NULL, busy, NULL));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    } else if (!strcmp(words[1], "shared")) {
        pthread_t threads[4];
        shared = connect_to(9);
        for (int i = 0; i < 4; i++)
            MUST(!pthread_create(&threads[i], NULL, beside, NULL));
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        free(shared);
    } else if (!strcmp(words[1], "fork")) {
        pid_t child = fork();
        if (!child) {
            plain();
            _exit(0);
        }
        int status = 1;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    } else
        plain();
    MUST(closing(context) == 0); /* the stub refuses a context whose pointers are not its own */
    return 0;
}
