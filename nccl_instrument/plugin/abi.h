/* NCCL's profiler interface, versions 3 to 7, as memory layouts. The only file that knows them.
 *
 * Written from the published layouts; every offset that is read is asserted. Bodies that later versions only append to
 * are shared: a body is read no further than its version has it.
 */
#ifndef DIOGENES_ABI_H
#define DIOGENES_ABI_H

#include "plugin.h"

enum EventType {
    TYPE_GROUP = 1,
    TYPE_COLL = 2,
    TYPE_P2P = 4,
    TYPE_PROXY_OP = 8,
    TYPE_PROXY_STEP = 16,
    TYPE_KERNEL_CH = 64,
    TYPE_NET_PLUGIN = 128,
    TYPE_GROUP_API = 256,
    TYPE_COLL_API = 512,
    TYPE_P2P_API = 1024,
    TYPES_KNOWN = 0xFFFF
};

enum EventState {
    STATE_SEND_GPU_WAIT = 8,
    STATE_SEND_WAIT = 9,
    STATE_RECV_WAIT = 10,
    STATE_RECV_FLUSH_WAIT = 11,
    STATE_RECV_GPU_WAIT = 12,
    STATE_IN_PROGRESS = 19,
    STATE_SEND_PEER_WAIT = 20,
    STATES_KNOWN = 32
};

#define MASK_DEFAULT (TYPE_COLL | TYPE_P2P | TYPE_PROXY_OP | TYPE_PROXY_STEP)
#define MASK_DEFAULT_V3 (TYPE_COLL | TYPE_P2P | TYPE_PROXY_OP) /* NCCL 2.26 loses step stops; its ops report chunks */

#define NET_IB_V1 0x10001
#define NET_IB_QUEUE_PAIR 1

typedef struct CollBody { /* v4 on; v7 goes on after `parent_group` */
    uint64_t seq;
    const char *func;
    const void *send_buffer;
    void *recv_buffer;
    uint64_t count;
    int32_t root;
    const char *dtype;
    uint8_t n_channels;
    uint8_t n_warps;
    const char *algo;
    const char *proto;
    void *parent_group; /* v5 on */
    const char *kernel_variant;
    uint8_t is_symmetric;
    uint64_t user_tag; /* v7 on */
} CollBody;

typedef struct CollBodyV3 {
    const char *comm_name;
    uint64_t comm_hash;
    uint64_t seq;
    const char *func;
    const void *send_buffer;
    void *recv_buffer;
    uint64_t count;
    int32_t root;
    const char *dtype;
    uint8_t n_channels;
    uint8_t n_warps;
    const char *algo;
    const char *proto;
} CollBodyV3;

typedef struct P2pBody { /* v4 on */
    const char *func;
    void *buffer;
    const char *dtype;
    uint64_t count;
    int32_t peer;
    uint8_t n_channels;
    void *parent_group; /* v5 on */
    uint64_t user_tag;  /* v7 on */
} P2pBody;

typedef struct P2pBodyV3 {
    const char *comm_name;
    uint64_t comm_hash;
    const char *func;
    void *buffer;
    const char *dtype;
    uint64_t count;
    int32_t peer;
} P2pBodyV3;

typedef struct CollApiBody { /* v5 on */
    const char *func;
    uint64_t count;
    const char *dtype;
    int32_t root;
    void *stream;
    uint8_t is_graph;
} CollApiBody;

typedef struct P2pApiBody { /* v5 on */
    const char *func;
    uint64_t count;
    const char *dtype;
    void *stream;
    uint8_t is_graph;
} P2pApiBody;

typedef struct ProxyOpBody {
    int32_t pid;
    uint8_t channel;
    int32_t peer;
    int32_t n_steps;
    int32_t chunk_bytes;
    int32_t is_send;
} ProxyOpBody;

typedef struct NetPluginBody {
    int64_t id;
    const void *data;
} NetPluginBody;

typedef struct Descriptor {
    union {
        uint8_t narrow; /* v3, v4 */
        uint64_t wide;  /* v5 on */
    } type;
    void *parent;
    int32_t rank;
    union {
        CollBody coll;
        CollBodyV3 coll_v3;
        P2pBody p2p;
        P2pBodyV3 p2p_v3;
        CollApiBody coll_api;
        P2pApiBody p2p_api;
        ProxyOpBody proxy_op;
        int32_t step;
        NetPluginBody net;
    };
} Descriptor;

typedef struct ReportV3 { /* state arguments of a ProxyOp, v1 to v3 */
    uint64_t size;
    int32_t steps;
} ReportV3;

typedef struct QueuePairV1 { /* what the IB transport passes with NetPlugin */
    uint8_t type;
    _Alignas(8) int32_t device;
    uint64_t wr_id;
    int32_t opcode;
    int32_t number;
    uint64_t length;
} QueuePairV1;

#define AT(field, offset) _Static_assert(offsetof(Descriptor, field) == (offset), #field)
AT(type.narrow, 0); AT(type.wide, 0); AT(parent, 8); AT(rank, 16); AT(step, 24);
AT(coll.seq, 24); AT(coll.func, 32); AT(coll.count, 56); AT(coll.root, 64); AT(coll.dtype, 72);
AT(coll.n_channels, 80); AT(coll.n_warps, 81); AT(coll.algo, 88); AT(coll.proto, 96); AT(coll.parent_group, 104);
AT(coll.kernel_variant, 112); AT(coll.is_symmetric, 120); AT(coll.user_tag, 128);
AT(coll_v3.comm_name, 24); AT(coll_v3.comm_hash, 32); AT(coll_v3.seq, 40); AT(coll_v3.func, 48);
AT(coll_v3.count, 72); AT(coll_v3.root, 80); AT(coll_v3.dtype, 88); AT(coll_v3.n_channels, 96);
AT(coll_v3.algo, 104); AT(coll_v3.proto, 112);
AT(p2p.func, 24); AT(p2p.dtype, 40); AT(p2p.count, 48); AT(p2p.peer, 56); AT(p2p.n_channels, 60);
AT(p2p.parent_group, 64); AT(p2p.user_tag, 72);
AT(p2p_v3.comm_name, 24); AT(p2p_v3.comm_hash, 32); AT(p2p_v3.func, 40); AT(p2p_v3.dtype, 56);
AT(p2p_v3.count, 64); AT(p2p_v3.peer, 72);
AT(coll_api.func, 24); AT(coll_api.root, 48); AT(coll_api.is_graph, 64); AT(p2p_api.is_graph, 56);
AT(proxy_op.pid, 24); AT(proxy_op.channel, 28); AT(proxy_op.peer, 32); AT(proxy_op.n_steps, 36);
AT(proxy_op.chunk_bytes, 40); AT(proxy_op.is_send, 44);
AT(net.id, 24); AT(net.data, 32);
#undef AT
_Static_assert(sizeof(Descriptor) == 136, "descriptor v7");
_Static_assert(offsetof(ReportV3, steps) == 8, "report v3");
_Static_assert(offsetof(QueuePairV1, device) == 8 && offsetof(QueuePairV1, number) == 28, "queue pair");

/* The exported table is the same in every version but for the signature of init. */
#define PROFILER_TABLE(name_, init_type)                                   \
    typedef struct name_ {                                                 \
        const char *name;                                                  \
        init_type init;                                                    \
        int (*start)(void *context, void **handle, const Descriptor *what); \
        int (*stop)(void *handle);                                         \
        int (*record)(void *handle, int state, const void *arguments);     \
        int (*finalize)(void *context);                                    \
    } name_;                                                               \
    _Static_assert(sizeof(name_) == 48, #name_)

typedef int (*InitV3)(void **context, int *mask);
typedef int (*InitV4)(void **context, int *mask, const char *name, uint64_t comm_hash, int n_nodes, int n_ranks,
                      int rank, Logger logger);
typedef int (*InitV5)(void **context, uint64_t comm_id, int *mask, const char *name, int n_nodes, int n_ranks,
                      int rank, Logger logger);
PROFILER_TABLE(ProfilerV3, InitV3);
PROFILER_TABLE(ProfilerV4, InitV4);
PROFILER_TABLE(ProfilerV5, InitV5);

extern const ProfilerV5 ncclProfiler_v7;

/* abi.c: the calls of every version, on our own handles */
PRIVATE int own_start(void *context, void **handle, const Descriptor *what, int abi);
PRIVATE int own_stop(void *handle);
PRIVATE int own_record(void *handle, int state, const void *arguments, int abi);
PRIVATE int own_finalize(void *context);

/* chain.c: the same on the handles of both plugins, once `plugin.is_chained` */
PRIVATE void chain_join(void **context, int *wanted, const CommJoin *comm);
PRIVATE int chain_start(void *context, void **handle, const Descriptor *what, int abi);
PRIVATE int chain_stop(void *handle);
PRIVATE int chain_record(void *handle, int state, const void *arguments, int abi);
PRIVATE int chain_finalize(void *context);

#endif
