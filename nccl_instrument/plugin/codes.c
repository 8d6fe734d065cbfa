/* NCCL's names for functions, types, algorithms and protocols as the codes of nccl_instrument/tables.py.
 *
 * The strings live inside libnccl and may go away with it, so they are turned into codes at once and never kept.
 */
#include <string.h>

#include "plugin.h"

static const char *const funcs[] = {
    "Unknown", "Broadcast", "Reduce",   "AllGather", "ReduceScatter", "AllReduce", "SendRecv",   "Send",
    "Recv",    "AlltoAll",  "Gather",   "Scatter",   "PutSignal",     "Signal",    "WaitSignal",
};
static const char *const dtypes[] = {
    "Unknown",     "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
};
static const uint8_t dtype_sizes[] = {1, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* NCCL prints ncclUint8 as "Unknown" */
static const char *const algos[] = {
    "Unknown", "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT",
};
static const char *const protos[] = {"Unknown", "LL", "LL128", "SIMPLE"};

static uint8_t code_of(const char *name, const char *const *names, size_t n_names) {
    for (size_t code = 1; name && code < n_names; code++)
        if (!strcmp(name, names[code])) return (uint8_t)code;
    return 0;
}

#define CODE_OF(name, names) code_of(name, names, sizeof(names) / sizeof(*(names)))

uint8_t code_of_func(const char *name) { return CODE_OF(name, funcs); }
uint8_t code_of_dtype(const char *name) { return CODE_OF(name, dtypes); }
uint8_t code_of_algo(const char *name) { return CODE_OF(name, algos); }
uint8_t code_of_proto(const char *name) { return CODE_OF(name, protos); }
uint32_t size_of_dtype(uint8_t code) { return code < sizeof dtype_sizes ? dtype_sizes[code] : 1; }
