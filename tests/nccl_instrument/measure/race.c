/* Threads post on the same queue pairs, one by one or in bursts, while another polls without pause into no more room than it was told it
 * needs: every byte is taken or counted, once, and lies in a cell but for what is below a unit. */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 3
#define POSTS 20000u
#define BYTES 100u
#define BURST 16u
#define QPS 128u
#define CELLS 65536u

static struct dgm *meter;
static int n_running = THREADS;

static uint64_t in_cells;

static void *post(void *argument) {
    uint32_t first = (uint32_t)(uintptr_t)argument * 25;
    struct dgm_sent sent[BURST];
    for (uint32_t at = 0; at < POSTS; at++) {
        uint32_t in_burst = at % (2 * BURST); /* half of them one by one */
        if (in_burst < BURST)
            sent[in_burst] = (struct dgm_sent){.now_ns = at * UINT64_C(1000), .bytes = BYTES, .qpn = first + at / 4 % 50};
        else
            dgm_transfer(meter, first + at % 50, at * UINT64_C(1000), BYTES);
        if (in_burst + 1 == BURST)
            dgm_transfers(meter, sent, BURST);
    }
    __atomic_fetch_sub(&n_running, 1, __ATOMIC_RELEASE);
    return NULL;
}

static uint64_t poll(void) {
    static struct dgm_flow flows[QPS];
    static struct dgm_cell cells[CELLS];
    uint64_t first, n_cells = 0, taken = 0;
    uint32_t n_flows = 0;
    int done = dgm_poll(meter, 0, &first, flows, &n_flows, cells, &n_cells); /* says what is needed */
    if (!done || n_flows > QPS || n_cells > CELLS || dgm_poll(meter, 0, &first, flows, &n_flows, cells, &n_cells))
        return 0;
    for (uint32_t at = 0; at < n_flows; at++)
        taken += flows[at].bytes;
    for (uint64_t at = 0; at < n_cells; at++)
        in_cells += (uint64_t)cells[at].units * dgm_unit_bytes(meter);
    return taken;
}

int main(void) {
    struct dgm_settings settings = {32000, 1024, UINT64_C(1000000000), QPS, UINT64_C(64) << 20};
    pthread_t threads[THREADS];
    uint64_t taken = 0;
    meter = dgm_create(&settings, 0);
    for (uintptr_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, post, (void *)at);
    while (__atomic_load_n(&n_running, __ATOMIC_ACQUIRE))
        taken += poll();
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    for (int at = 0; at < 2; at++) /* what the last one had no room for */
        taken += poll();
    struct dgm_counts counts;
    dgm_counts(meter, &counts);
    dgm_destroy(meter);
    printf("%llu %llu %llu %llu\n", (unsigned long long)taken, (unsigned long long)counts.transfers, (unsigned long long)counts.lost_bytes,
           (unsigned long long)in_cells);
    return 0;
}
