/* Feeds the measurement core from N threads as fast as it goes: each thread its own queue pairs, 4 KiB a transfer. */
#define _GNU_SOURCE
#include "../../nccl_instrument/measure/src/measure.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NIC_BYTES_PER_NS 50.0 /* 400 Gbit/s: data time goes on as the bytes do */
#define TRANSFER_BYTES 4096u

static struct dgm *meter;
static uint64_t per_thread;
static uint32_t n_flows, n_threads;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *feed(void *arg) {
    uint32_t first = (uint32_t)(uintptr_t)arg, mine = n_flows / n_threads;
    double step = TRANSFER_BYTES / NIC_BYTES_PER_NS * n_threads;
    for (uint64_t i = 0; i < per_thread; i++)
        dgm_transfer(meter, (first * mine + (uint32_t)(i % mine)) * 7919u % (1u << 24), (uint64_t)((double)i * step), TRANSFER_BYTES);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    n_threads = (uint32_t)atoi(argv[1]);
    n_flows = (uint32_t)atoi(argv[2]);
    per_thread = strtoull(argv[3], NULL, 10) / n_threads;
    struct dgm_settings settings = {32000, TRANSFER_BYTES, UINT64_C(1000000000), n_flows, UINT64_C(512) << 20};
    meter = dgm_create(&settings, 0);
    if (!meter)
        return 1;
    pthread_t threads[64];
    double began = seconds();
    for (uint32_t i = 0; i < n_threads && i < 64; i++)
        pthread_create(&threads[i], NULL, feed, (void *)(uintptr_t)i);
    for (uint32_t i = 0; i < n_threads && i < 64; i++)
        pthread_join(threads[i], NULL);
    double fed = seconds() - began;
    uint32_t n = n_flows;
    uint64_t n_cells = UINT64_C(64) << 20, first;
    struct dgm_flow *flows = malloc(n * sizeof *flows);
    struct dgm_cell *cells = malloc(n_cells * sizeof *cells);
    struct dgm_counts counts;
    dgm_counts(meter, &counts);
    began = seconds();
    int done = dgm_poll(meter, UINT64_C(1000000000), &first, flows, &n, cells, &n_cells);
    printf("%.6f %.6f %llu %llu %llu %llu %d\n", fed, seconds() - began, (unsigned long long)counts.events,
           (unsigned long long)counts.lost_bytes, (unsigned long long)counts.pool_bytes, (unsigned long long)n_cells, done);
    return 0;
}
