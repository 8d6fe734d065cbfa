/* Who this process is: launcher environment, host, GPU, library. Read once per process (GPU: once per communicator).
 *
 * Nothing here loads a library: CUDA and NCCL are only asked when the process already has them.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plugin.h"

static const char *text_of(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

int32_t identity_number(const char *name) {
    const char *text = text_of(name);
    if (!text) return -1;
    char *end;
    long value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT_MAX ? -1 : (int32_t)value;
}

static int32_t number_of_either(const char *name, const char *other) {
    int32_t value = identity_number(name);
    return value >= 0 ? value : identity_number(other);
}

void identity_text(char *to, size_t size, const char *from) {
    memset(to, 0, size);
    if (from) memcpy(to, from, strnlen(from, size - 1));
}

static void job_name(char *to, size_t size) {
    const char *slurm = text_of("SLURM_JOB_ID"), *elastic = text_of("TORCHELASTIC_RUN_ID"), *name;
    if ((name = text_of("DIOGENES_JOB"))) {
        identity_text(to, size, name);
    } else if (slurm) {
        snprintf(to, size, "slurm-%s", slurm);
    } else if (elastic && strcmp(elastic, "none")) {
        identity_text(to, size, elastic);
    } else {
        identity_text(to, size, text_of("DIOGENES_K8S_JOB")); /* JOB_NAME would be Jenkins' */
    }
}

/* NCCL_IB_HCA may be "=mlx5_0:1,mlx5_1:1" or "^mlx5_2" (all but): only a first plain name says which NIC it is. */
static void nic_name(char *to, size_t size) {
    const char *text = text_of("NCCL_IB_HCA");
    memset(to, 0, size);
    if (!text || *text == '^') return;
    text += *text == '=';
    size_t length = strcspn(text, ":,");
    memcpy(to, text, length < size ? length : size - 1);
}

static uint8_t transport_settled(void) {
    const char *net = text_of("NCCL_NET");
    if (net && !strcasecmp(net, "IB")) return TRANSPORT_IB;
    if (net && !strcasecmp(net, "Socket")) return TRANSPORT_SOCKET;
    return !net && identity_number("NCCL_IB_DISABLE") == 1 ? TRANSPORT_SOCKET : TRANSPORT_UNKNOWN;
}

/* A symbol of a library that is already loaded, perhaps privately (PyTorch loads NCCL with RTLD_LOCAL). */
static void *symbol_of(const char *library, const char *name) {
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = loaded ? dlsym(loaded, name) : NULL;
    if (loaded) dlclose(loaded);
    return symbol;
}

static uint32_t library_version(void) {
    int version = 0;
    int (*get_version)(int *) = (int (*)(int *))(uintptr_t)symbol_of("libnccl.so.2", "ncclGetVersion");
    return get_version && get_version(&version) == 0 && version > 0 ? (uint32_t)version : 0;
}

void identity_read(SegmentHeader *header) {
    Identity *identity = &header->identity;
    identity->global_rank = number_of_either("RANK", "SLURM_PROCID");
    identity->world_size = number_of_either("WORLD_SIZE", "SLURM_NTASKS");
    identity->local_rank = number_of_either("LOCAL_RANK", "SLURM_LOCALID");
    identity->local_world_size = identity_number("LOCAL_WORLD_SIZE");
    identity->restart_count = number_of_either("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT");
    identity->tp = identity_number("DIOGENES_TP_RANK");
    identity->pp = identity_number("DIOGENES_PP_RANK");
    identity->dp = identity_number("DIOGENES_DP_RANK");
    identity->ep = identity_number("DIOGENES_EP_RANK");
    job_name(identity->job, sizeof identity->job);
    gethostname(identity->hostname, sizeof identity->hostname - 1);
    identity_text(identity->host_id, sizeof identity->host_id, text_of("NCCL_HOSTID"));
    nic_name(identity->nic, sizeof identity->nic);
    identity_text(identity->gid, sizeof identity->gid, text_of("DIOGENES_GID"));
    header->transport = transport_settled();
    header->library_version = library_version();
}

/* NCCL has opened its network by the time it asks for a profiler. */
PostedFor identity_verbs(void) { return (PostedFor)(uintptr_t)symbol_of("libibverbs.so", "diogenes_posted_for"); }

/* Of two segments left in a folder that outlives reboots, it tells which clock their times are of. */
void identity_boot(SegmentHeader *header) {
    char text[sizeof header->boot_id] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (read(file, text, sizeof text - 1) > 0) identity_text(header->boot_id, strcspn(text, "\n") + 1, text);
    close(file);
}

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi prints it. */
static void uuid_text(char *to, size_t size, const unsigned char bytes[16]) {
    size_t at = (size_t)snprintf(to, size, "GPU");
    for (int byte = 0; byte < 16; byte++) {
        int is_group = byte == 0 || byte == 4 || byte == 6 || byte == 8 || byte == 10;
        at += (size_t)snprintf(to + at, size - at, is_group ? "-%02x" : "%02x", bytes[byte]);
    }
}

/* init runs with the communicator's CUDA device current, so the driver knows which GPU this is. */
void identity_gpu(CommRow *row) {
    static const char *const cuda = "libcuda.so.1";
    int (*get_device)(int *) = (int (*)(int *))(uintptr_t)symbol_of(cuda, "cuCtxGetDevice");
    int (*get_bus_id)(char *, int, int) = (int (*)(char *, int, int))(uintptr_t)symbol_of(cuda, "cuDeviceGetPCIBusId");
    int (*get_uuid)(void *, int) = (int (*)(void *, int))(uintptr_t)symbol_of(cuda, "cuDeviceGetUuid");
    unsigned char uuid[16];
    int device;
    if (!get_device) {
        identity_text(row->gpu_bus_id, sizeof row->gpu_bus_id, text_of("DIOGENES_GPU_BUS_ID"));
        identity_text(row->gpu_uuid, sizeof row->gpu_uuid, text_of("DIOGENES_GPU_UUID"));
        return;
    }
    if (get_device(&device)) return;
    if (get_bus_id && get_bus_id(row->gpu_bus_id, sizeof row->gpu_bus_id, device)) row->gpu_bus_id[0] = 0;
    if (get_uuid && !get_uuid(uuid, device)) uuid_text(row->gpu_uuid, sizeof row->gpu_uuid, uuid);
}
