/* The bandwidth sweep (sweep.h). Sizes are those of nccl-tests: the whole buffer for AllReduce and Broadcast, the whole
 * gathered (or still unscattered) buffer for AllGather and ReduceScatter, one direction of an exchange for SendRecv,
 * which goes there and back so that neither side runs ahead. */
#define _GNU_SOURCE
#include "sweep.h"

#include <stdio.h>

#include "enqueue.h"
#include "gpu.h"
#include "proxy.h"
#include "schedule.h"

#define SIZE_FIRST 8
#define SIZE_FACTOR 8
#define PASS_POLL_NS (5 * NS_PER_MS)

static const char *const NAMES[] = {[OP_ALL_REDUCE] = "AllReduce", [OP_ALL_GATHER] = "AllGather",
                                    [OP_REDUCE_SCATTER] = "ReduceScatter", [OP_BROADCAST] = "Broadcast",
                                    [N_FUNCS] = "SendRecv"};

static void send_receive(struct rank *self, struct comm *pp, uint64_t n)
{
    if (pp == NULL || pp->me > 1)
        return;
    enqueue_p2p(self, pp, pp->me == 0 ? OP_SEND : OP_RECV, n, pp->me == 0);
    enqueue_p2p(self, pp, pp->me == 0 ? OP_RECV : OP_SEND, n, pp->me == 0);
}

/* One op of `bytes`; N_FUNCS stands for the exchange of a send and a receive. */
static void op(struct rank *self, int func, uint64_t bytes)
{
    struct comm *world = schedule_comm(self, COMM_WORLD);
    uint64_t n = bytes / sizeof(float), n_ranks = (uint64_t)world->spec.n_ranks;
    if (func == N_FUNCS)
        send_receive(self, schedule_comm(self, COMM_PP), n);
    else if (func == OP_ALL_GATHER || func == OP_REDUCE_SCATTER)
        enqueue_collective(self, world, func, (n + n_ranks - 1) / n_ranks, 0);
    else
        enqueue_collective(self, world, func, n, 0);
}

/* Every rank leaves only when the last one has come, however long its check took. */
static void meet(struct rank *self)
{
    op(self, OP_ALL_REDUCE, SIZE_FIRST);
    gpu_synchronize(self);
}

static void check_one(struct rank *self, int func, uint64_t bytes)
{
    self->skips_checks = 0;
    op(self, func, bytes);
    gpu_synchronize(self);
    self->skips_checks = 1;
}

static void measure(struct rank *self, uint64_t pass, int func, uint64_t bytes)
{
    uint64_t n_ops = self->job.sweep_series_bytes / bytes;
    n_ops = n_ops > self->job.sweep_series_ops ? self->job.sweep_series_ops : n_ops < 1 ? 1 : n_ops;
    if (pass == 0)
        check_one(self, func, bytes);
    meet(self);
    uint64_t began_ns = now_ns();
    for (uint64_t i = 0; i < n_ops; i++)
        op(self, func, bytes);
    gpu_synchronize(self);
    uint64_t ended_ns = now_ns();
    if (self->rank == 0)
        printf("sweep %lu %s %lu %lu %lu\n", pass, NAMES[func], bytes, n_ops, ended_ns - began_ns);
}

static void run_pass(struct rank *self, uint64_t pass)
{
    uint64_t bytes_max = self->job.sweep_bytes_max;
    proxy_wait_idle(self);
    profiler_choose((int)atomic_load(&self->job_page->profiler));
    for (int func = 0; func <= N_FUNCS; func++) {
        if (NAMES[func] == NULL)
            continue;
        for (uint64_t bytes = SIZE_FIRST; bytes < bytes_max; bytes *= SIZE_FACTOR)
            measure(self, pass, func, bytes);
        measure(self, pass, func, bytes_max);
    }
    fflush(stdout);
    atomic_store(&self->page->iteration, pass + 1);
}

void sweep_run(struct rank *self)
{
    self->skips_checks = 1;
    rank_set_state(self, STATE_RUNNING);
    for (uint64_t pass = 0; pass < atomic_load(&self->job_page->stop_at); pass++) {
        while (atomic_load(&self->job_page->n_passes) <= pass)
            sleep_until_ns(now_ns() + PASS_POLL_NS);
        run_pass(self, pass);
    }
}
