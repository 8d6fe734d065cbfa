/* One communicator as NCCL runs it: an API thread that launches ops and a progress thread that moves their flows. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver.h"

#define QUEUE 4

typedef struct Rank {
    const RankSpec *spec;
    CommSpec comm;
    void *context;
    void *queue[QUEUE]; /* op handles */
    int n_queued, n_taken, is_over;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t api, progress;
} Rank;

static pthread_barrier_t halted;

static void queue_put(Rank *rank, void *op) {
    pthread_mutex_lock(&rank->mutex);
    while (rank->n_queued - rank->n_taken == QUEUE) pthread_cond_wait(&rank->changed, &rank->mutex);
    rank->queue[rank->n_queued++ % QUEUE] = op;
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->mutex);
}

static int queue_take(Rank *rank, void **op) {
    pthread_mutex_lock(&rank->mutex);
    while (rank->n_queued == rank->n_taken && !rank->is_over) pthread_cond_wait(&rank->changed, &rank->mutex);
    int is_there = rank->n_queued > rank->n_taken;
    if (is_there) *op = rank->queue[rank->n_taken++ % QUEUE];
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->mutex);
    return is_there;
}

static void *launch(Rank *rank, void *parent, int number) {
    const CommSpec *comm = &rank->comm;
    int next = (comm->rank + 1) % comm->n_ranks;
    CollSpec coll = {(uint64_t)number, 1024, "AllReduce", "ncclBfloat16", "RING", "SIMPLE", 0, CHANNELS};
    DID(ops, 1);
    if (rank->spec->is_p2p) return call_p2p(rank->context, parent, comm->rank, "Send", next, comm);
    return call_coll(rank->context, parent, comm->rank, &coll, comm);
}

static void *api_thread(void *argument) {
    Rank *rank = argument;
    for (int number = 0; number < rank->spec->n_ops; number++) {
        void *api = profiler.abi >= 5 ? call_api(rank->context, !rank->spec->is_p2p, 0) : NULL;
        void *group = call_start(rank->context, GROUP, api, 0, "", 0);
        void *op = launch(rank, api ? api : group, number);
        queue_put(rank, op);
        call_stop(op);
        call_stop(group);
        if (api) call_stop(api);
    }
    pthread_mutex_lock(&rank->mutex);
    rank->is_over = 1;
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->mutex);
    return NULL;
}

/* Where the halting op's flows stop: (posted, ready, transmitted, done) 10 7 6 4, (posted, received, …) 9 3 3 1. */
static void halt(Flow *flow) {
    static const int send[4] = {10, 7, 6, 4}, receive[4] = {9, 3, 3, 1};
    for (int stage = 0; stage < 4; stage++) flow->halt_at[stage] = flow->spec.is_send ? send[stage] : receive[stage];
}

static int is_halted(const Flow *flow) {
    int n_reached = 0;
    for (int stage = 0; stage < 4; stage++) n_reached += flow->counters[stage] == flow->halt_at[stage];
    return n_reached == 4;
}

static void flows_open(Rank *rank, Flow *flows, void *op, int is_halting) {
    int n_ranks = rank->comm.n_ranks;
    for (int at = 0; at < FLOWS; at++) {
        int is_send = at % 2 == 0, step = (at / 2 % 2 == 0) == is_send ? 1 : n_ranks - 1;
        FlowSpec spec = {getpid(), at / 2, (rank->comm.rank + step) % n_ranks, rank->spec->n_steps, is_send};
        flow_open(&flows[at], rank->context, op, rank->comm.rank, &spec);
        flows[at].loses_stops = rank->spec->loses_stops && !is_send;
        if (is_halting) halt(&flows[at]);
        if (profiler.abi >= 4) call_record(flows[at].handle, IN_PROGRESS, NULL);
    }
}

static void op_progress(Rank *rank, void *op, int is_halting) {
    Flow flows[FLOWS];
    void *kernels[CHANNELS] = {0};
    int is_asked = __atomic_load_n(&profiler.mask, __ATOMIC_RELAXED) & KERNEL_CH;
    for (int channel = 0; channel < CHANNELS && is_asked; channel++)
        kernels[channel] = call_kernel(rank->context, op, channel);
    flows_open(rank, flows, op, is_halting);
    for (int n_over = 0; n_over < FLOWS;) {
        n_over = 0;
        for (int at = 0; at < FLOWS; at++) {
            n_over += flow_poll(&flows[at], rank->context) || is_halted(&flows[at]);
        }
        if (rank->spec->pace_us) usleep((useconds_t)rank->spec->pace_us);
    }
    for (int at = 0; at < FLOWS && !is_halting; at++) call_stop(flows[at].handle);
    for (int channel = 0; channel < CHANNELS && is_asked && !is_halting; channel++) call_kernel_stop(kernels[channel]);
}

static void *progress_thread(void *argument) {
    Rank *rank = argument;
    void *op;
    for (int number = 1; queue_take(rank, &op); number++)
        op_progress(rank, op, rank->spec->halts && number == rank->spec->n_ops);
    pthread_barrier_wait(&halted);
    return NULL;
}

static void rank_start(Rank *rank, const RankSpec *spec, int number) {
    char *name = malloc(32);
    snprintf(name, 32, "group %d", number);
    rank->spec = spec;
    rank->comm = spec->comm;
    rank->comm.id += (uint64_t)number;
    rank->comm.rank = (spec->comm.rank + number) % spec->comm.n_ranks;
    rank->comm.name = name;
    rank->n_queued = rank->n_taken = rank->is_over = 0;
    pthread_mutex_init(&rank->mutex, NULL);
    pthread_cond_init(&rank->changed, NULL);
    rank->context = call_init(&rank->comm);
    free(name); /* NCCL's commName may dangle after init */
    rank->comm.name = "dangled";
    pthread_create(&rank->progress, NULL, progress_thread, rank);
    pthread_create(&rank->api, NULL, api_thread, rank);
}

void rank_run(const RankSpec *spec, int n_ranks) {
    Rank *ranks = calloc((size_t)n_ranks, sizeof *ranks);
    pthread_barrier_init(&halted, NULL, (unsigned)n_ranks + 1);
    for (int number = 0; number < n_ranks; number++) rank_start(&ranks[number], spec, number);
    if (spec->pace_us) say_ready("running");
    pthread_barrier_wait(&halted);
    say_ready("moved");
    for (int number = 0; number < n_ranks; number++) {
        pthread_join(ranks[number].api, NULL);
        pthread_join(ranks[number].progress, NULL);
        call_finalize(ranks[number].context);
    }
    say_ready("finalized");
    free(ranks);
}
