/*
 * Feeds the measurement core what a NIC of 400 Gbit/s sends: 4 KiB a transfer, data time going on as the bytes do, a poll
 * every data second. N threads, each with queue pairs of its own, in one of three orders:
 *
 *   turn       every queue pair one transfer, over and over
 *   random     any queue pair next
 *   messages   64 queue pairs at once send messages of 128 KiB to 1 MiB, in bursts of four packets, as a NIC takes turns
 *
 * fast: as fast as it goes, with the polls in between, by the first thread (their time counts). paced: at the NIC's own rate, the
 * threads sleeping when they are early, while another thread polls, so that feeding and polling meet. Says what it took as JSON.
 */
#define _GNU_SOURCE
#include "../../nccl_instrument/measure/src/measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES 4096u
#define SECOND UINT64_C(1000000000)
#define PER_SECOND UINT64_C(12207031) /* 400 Gbit/s */
#define ORDER (1u << 20)
#define BATCH 64u
#define AT_ONCE 64u
#define BURST 4u
#define THREADS_MAX 64u

struct feeder {
    _Alignas(128) _Atomic uint64_t fed_ns; /* data time */
    uint32_t *order;                       /* ORDER queue pairs, over and over */
    uint64_t cpu_ns;
    pthread_t thread;
};

static struct dgm *meter;
static struct feeder feeders[THREADS_MAX];
static uint32_t n_flows, n_threads;
static uint64_t n_seconds;
static bool is_paced;
static pthread_barrier_t barrier;
static struct dgm_flow *flows;
static struct dgm_cell *cells;
static const uint64_t cells_room = UINT64_C(16) << 20;
static uint64_t taken_bytes, n_cells, poll_ns, poll_ns_max;
static int n_failed;

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static uint32_t draw(uint64_t *state, uint32_t below) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

/* Far apart in the table, so that no two share a line of it: as hard as it can be. */
static uint32_t qpn_of(uint32_t flow) { return flow * 7919u % (1u << DGM_QPN_BITS); }

static void order_messages(uint32_t *order, uint32_t first, uint32_t mine, uint64_t *state) {
    uint32_t busy[AT_ONCE], left[AT_ONCE] = {0}, n = mine < AT_ONCE ? mine : AT_ONCE, at = 0;
    for (uint32_t turn = 0; at < ORDER; turn = (turn + 1) % n) {
        if (!left[turn]) {
            busy[turn] = first + draw(state, mine);
            left[turn] = 32u << draw(state, 4); /* 128 KiB to 1 MiB */
        }
        for (uint32_t i = 0; i < BURST && left[turn] && at < ORDER; i++, left[turn]--)
            order[at++] = qpn_of(busy[turn]);
    }
}

static void make_order(struct feeder *feeder, uint32_t number, const char *how) {
    uint32_t mine = n_flows / n_threads, first = number * mine;
    uint64_t state = 1 + number;
    feeder->order = malloc(ORDER * sizeof *feeder->order);
    if (!strcmp(how, "messages"))
        order_messages(feeder->order, first, mine, &state);
    for (uint32_t at = 0; strcmp(how, "messages") && at < ORDER; at++)
        feeder->order[at] = qpn_of(first + (strcmp(how, "turn") ? draw(&state, mine) : at % mine));
}

static void take(uint64_t until_ns) {
    uint32_t n = n_flows;
    uint64_t n_mine = cells_room, first, began = now_ns(CLOCK_THREAD_CPUTIME_ID);
    n_failed += dgm_poll(meter, until_ns, &first, flows, &n, cells, &n_mine) != 0;
    uint64_t took = now_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    poll_ns += took;
    poll_ns_max = took > poll_ns_max ? took : poll_ns_max;
    n_cells += n_mine;
    for (uint32_t at = 0; at < n; at++)
        taken_bytes += flows[at].bytes;
}

static void wait_for_pace(uint64_t began, uint64_t data_ns) {
    uint64_t due = began + data_ns, now = now_ns(CLOCK_MONOTONIC);
    if (due > now + 200000) {
        struct timespec until = {(time_t)(due / SECOND), (long)(due % SECOND)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

static void feed_batch(const struct feeder *feeder, uint64_t at, uint64_t n) {
    struct dgm_sent sent[BATCH];
    for (uint64_t i = 0; i < n; i++)
        sent[i] = (struct dgm_sent){.now_ns = (at + i) * n_threads * 8192 / 100, .bytes = BYTES, .qpn = feeder->order[(at + i) % ORDER]};
    dgm_transfers(meter, sent, (uint32_t)n);
}

static void *feed(void *argument) {
    struct feeder *feeder = argument;
    uint64_t at = 0, began = now_ns(CLOCK_MONOTONIC);
    for (uint64_t second = 1; second <= n_seconds; second++) {
        for (uint64_t end = second * PER_SECOND / n_threads; at < end;) {
            uint64_t n = end - at < BATCH ? end - at : BATCH;
            feed_batch(feeder, at, n);
            at += n;
            atomic_store_explicit(&feeder->fed_ns, at * n_threads * 8192 / 100, memory_order_release);
            if (is_paced && at % (16 * BATCH) < BATCH)
                wait_for_pace(began, at * n_threads * 8192 / 100);
        }
        if (!is_paced) {
            pthread_barrier_wait(&barrier);
            if (feeder == feeders)
                take(second * SECOND);
            pthread_barrier_wait(&barrier);
        }
    }
    feeder->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

/* Polls when all feeders are past a data second. */
static void collect(void) {
    for (uint64_t second = 1; second < n_seconds; second++) {
        for (uint32_t at = 0; at < n_threads; at++)
            while (atomic_load_explicit(&feeders[at].fed_ns, memory_order_acquire) < second * SECOND)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        take(second * SECOND);
    }
}

static long resident_kb(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    if (file && fscanf(file, "%*s %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4;
}

static void report(uint64_t wall_ns, uint64_t cpu_ns, long kb) {
    struct dgm_counts counts;
    dgm_counts(meter, &counts);
    bool is_all_taken = !n_failed && taken_bytes == counts.bytes && counts.bytes == counts.transfers * BYTES;
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"poll_cpu_s\": %.6f, \"events\": %llu, \"taken\": %d, \"lost_bytes\": %llu, "
           "\"pool_bytes\": %llu, \"resident_kb\": %ld, \"cells\": %llu, \"handed_over\": %llu, \"early\": %llu, \"late\": %llu}\n",
           (double)wall_ns / 1e9, (double)cpu_ns / 1e9, (double)poll_ns_max / 1e9, (unsigned long long)counts.events, is_all_taken,
           (unsigned long long)counts.lost_bytes, (unsigned long long)counts.pool_bytes, kb, (unsigned long long)n_cells,
           (unsigned long long)counts.handed_over, (unsigned long long)counts.early_events, (unsigned long long)counts.late_events);
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 2;
    n_threads = (uint32_t)atoi(argv[1]);
    n_flows = (uint32_t)atoi(argv[2]);
    n_seconds = strtoull(argv[3], NULL, 10);
    is_paced = !strcmp(argv[5], "paced");
    if (!n_threads || n_threads > THREADS_MAX)
        return 2;
    flows = malloc(n_flows * sizeof *flows);
    cells = malloc(cells_room * sizeof *cells);
    if (!flows || !cells || pthread_barrier_init(&barrier, NULL, n_threads))
        return 1;
    for (uint32_t i = 0; i < n_threads; i++)
        make_order(&feeders[i], i, argv[4]);
    memset(flows, 1, n_flows * sizeof *flows); /* all there before the meter's memory is measured */
    memset(cells, 1, cells_room * sizeof *cells);
    long before_kb = resident_kb();
    struct dgm_settings settings = {32000, BYTES, SECOND, n_flows, UINT64_C(512) << 20};
    meter = dgm_create(&settings, 0);
    if (!meter)
        return 1;
    uint64_t began = now_ns(CLOCK_MONOTONIC), cpu_ns = 0;
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_create(&feeders[i].thread, NULL, feed, &feeders[i]);
    if (is_paced)
        collect();
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(feeders[i].thread, NULL);
    uint64_t wall_ns = now_ns(CLOCK_MONOTONIC) - began;
    for (uint32_t i = 0; i < n_threads; i++)
        cpu_ns += feeders[i].cpu_ns;
    if (is_paced)
        take(n_seconds * SECOND);
    report(wall_ns, cpu_ns + (is_paced ? poll_ns : 0), resident_kb() - before_kb);
    return 0;
}
