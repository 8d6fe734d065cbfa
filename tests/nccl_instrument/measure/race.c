/* Threads post on the same queue pairs while another polls without pause: every byte is taken or counted, once. */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 3
#define POSTS 20000u
#define BYTES 100u

static struct dgm *meter;
static int n_running = THREADS;

static void *post(void *argument) {
    uint32_t first = (uint32_t)(uintptr_t)argument * 25;
    for (uint32_t at = 0; at < POSTS; at++)
        dgm_transfer(meter, first + at % 50, at * UINT64_C(1000), BYTES);
    __atomic_fetch_sub(&n_running, 1, __ATOMIC_RELEASE);
    return NULL;
}

static uint64_t poll(void) {
    static struct dgm_flow flows[256];
    static struct dgm_cell cells[65536];
    uint64_t first, n_cells = 65536, taken = 0;
    uint32_t n_flows = 256;
    if (dgm_poll(meter, 0, &first, flows, &n_flows, cells, &n_cells))
        return 0;
    for (uint32_t at = 0; at < n_flows; at++)
        taken += flows[at].bytes;
    return taken;
}

int main(void) {
    struct dgm_settings settings = {32000, 4096, UINT64_C(1000000000), 128, UINT64_C(64) << 20};
    pthread_t threads[THREADS];
    uint64_t taken = 0;
    meter = dgm_create(&settings, 0);
    for (uintptr_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, post, (void *)at);
    while (__atomic_load_n(&n_running, __ATOMIC_ACQUIRE))
        taken += poll();
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    taken += poll();
    struct dgm_counts counts;
    dgm_counts(meter, &counts);
    dgm_destroy(meter);
    printf("%llu %llu %llu\n", (unsigned long long)taken, (unsigned long long)counts.transfers, (unsigned long long)counts.lost_bytes);
    return 0;
}
