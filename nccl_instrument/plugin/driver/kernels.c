/* Kernels as NCCL reports them: begun and ended by channel, long after the op's launch was over, inside the node too. */
#include "driver.h"

static const CommSpec local = {"local", 0xABE000, 1, 4, 0};
static const CollSpec all_reduce = {0, 1024, "AllReduce", "ncclBfloat16", "RING", "SIMPLE", 0, CHANNELS};

static void *launched(void *context, uint64_t seq) {
    CollSpec spec = all_reduce;
    spec.seq = seq;
    void *op = call_coll(context, NULL, 0, &spec, &local);
    DID(ops, 1);
    call_stop(op);
    return op;
}

/* Two ops run one after the other; a third begins on one of its channels and a fourth never does. */
static void kernels(void) {
    void *context = call_init(&local), *ops[4], *running[CHANNELS];
    for (int at = 0; at < 4; at++) ops[at] = launched(context, (uint64_t)at);
    say_ready("launched");
    for (int at = 0; at < 2; at++) {
        for (int channel = 0; channel < CHANNELS; channel++) running[channel] = call_kernel(context, ops[at], channel);
        if (at == 0) say_ready("inside");
        for (int channel = 0; channel < CHANNELS; channel++) call_kernel_stop(running[channel]);
    }
    say_ready("outside");
    running[0] = call_kernel(context, ops[2], 0);
    say_ready("stands");
    call_finalize(context);
    call_kernel_stop(running[0]);
    say_ready("finalized");
}

/* The same ops where NCCL was not asked. */
static void launches(void) {
    void *context = call_init(&local);
    for (uint64_t seq = 0; seq < 4; seq++) launched(context, seq);
    say_ready("stands");
    call_finalize(context);
}

/* The GPU comes to its ops so late that the rows of the first have been others' for long; ops nobody traced. */
static void late_kernels(void) {
    void *context = call_init(&local), *first = launched(context, 0);
    for (uint64_t seq = 1; seq < 6000; seq++) launched(context, seq);
    if (call_kernel(context, first, 0)) call_kernel_stop(NULL); /* a handle would be wrong: counted */
    call_kernel(context, NULL, 0);
    call_kernel(context, (void *)0xDEADBEEFul, 0);
    say_ready("done");
}

const Script kernel_scripts[] = {{"kernels", kernels}, {"late_kernels", late_kernels},
                                 {"launches", launches}, {0, 0}};
