/* NCCL's proxy thread over verbs, with a profiler plugin: `proxy PLUGIN OPS`. One rank of a ring of four with two channels sends
 * to rank 2 and receives from rank 0, a queue pair each; a line per op says from when to when its bytes were under way. At the
 * end a queue pair fails, as when a link is cut. */
#include "wire.h"

#include <unistd.h>

#include "abi.h"

#define CHANNELS 2
#define CHUNKS 6
#define CHUNK_BYTES (512u << 10)
#define CHUNK_NS 300000 /* about 10 epochs */

static const ProfilerV5 *profiler;
static void *context;

static void *started(Descriptor *what) {
    void *handle = NULL;
    MUST(profiler->start(context, &handle, what) == 0);
    return handle;
}

static void *flow_of(void *op, int channel, int peer, int is_send) {
    Descriptor what = {.type.wide = TYPE_PROXY_OP, .parent = op, .rank = 1};
    what.proxy_op = (ProxyOpBody){getpid(), (uint8_t)channel, peer, CHUNKS, (int32_t)CHUNK_BYTES, is_send};
    void *flow = started(&what);
    profiler->record(flow, STATE_IN_PROGRESS, NULL);
    return flow;
}

static void *step_of(void *flow, int number) {
    Descriptor what = {.type.wide = TYPE_PROXY_STEP, .parent = flow, .rank = 1, .step = number};
    return started(&what);
}

static void state(void *step, int which, uint64_t bytes) { profiler->record(step, which, &bytes); }

/* A chunk of each channel both ways: credit given, data posted, all under way together, all done. */
static void chunk(void **sends, void **receives, struct dgv_qp_abi **out, struct dgv_qp_abi **in, int number) {
    void *sent[CHANNELS], *received[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        received[c] = step_of(receives[c], number);
        wire_post(in[c], 1, 64);
        state(received[c], STATE_RECV_WAIT, 0);
        sent[c] = step_of(sends[c], number);
        state(sent[c], STATE_SEND_GPU_WAIT, 0);
        state(sent[c], STATE_SEND_PEER_WAIT, 0);
        wire_post(out[c], 2, CHUNK_BYTES);
        state(sent[c], STATE_SEND_WAIT, CHUNK_BYTES);
    }
    wire_wait(CHUNK_NS);
    MUST(wire_poll() == 2 * CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        profiler->stop(sent[c]);
        state(received[c], STATE_RECV_FLUSH_WAIT, CHUNK_BYTES);
        state(received[c], STATE_RECV_GPU_WAIT, 0);
        profiler->stop(received[c]);
    }
}

int main(int n, char **words) {
    MUST(n == 3);
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    MUST(library && (profiler = dlsym(library, "ncclProfiler_v5")));
    wire_open(); /* NCCL's network is there before its profiler */
    int mask = 0;
    MUST(profiler->init(&context, 0xC0FFEE, &mask, "ring", 2, 4, 1, NULL) == 0);
    struct dgv_qp_abi *out[CHANNELS], *in[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        out[c] = wire_connect(2);
        in[c] = wire_connect(3);
    }
    for (int op = 0; op < atoi(words[2]); op++) {
        Descriptor what = {.type.wide = TYPE_COLL, .rank = 1};
        what.coll = (CollBody){.seq = (uint64_t)op, .func = "AllReduce", .count = 1 << 20, .dtype = "ncclFloat32",
                               .n_channels = CHANNELS, .algo = "RING", .proto = "SIMPLE"};
        void *coll = started(&what), *sends[CHANNELS], *receives[CHANNELS];
        profiler->stop(coll);
        for (int c = 0; c < CHANNELS; c++) {
            sends[c] = flow_of(coll, c, 2, 1);
            receives[c] = flow_of(coll, c, 0, 0);
        }
        long long begin_ns = wire_now_ns();
        for (int number = 0; number < CHUNKS; number++) chunk(sends, receives, out, in, number);
        printf("%d %lld %lld\n", op + 1, begin_ns, wire_now_ns());
        for (int c = 0; c < CHANNELS; c++) {
            profiler->stop(sends[c]);
            profiler->stop(receives[c]);
        }
        wire_wait(20000000);
    }
    wire_wait(1600000000); /* two polls of the shim */
    wire_post(out[1], 777, 1000);
    wire_poll();
    MUST(wire_close(wire) == 0);
    return 0;
}
