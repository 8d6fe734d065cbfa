/* The scripts: what one process does to the plugin, each a quirk of NCCL or a corner of the plugin's own. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

const CommSpec spread = {"spread", 0xABC000, 2, 4, 0};
static const CommSpec local = {"local", 0xABD000, 1, 4, 0};
static const CollSpec all_reduce = {0, 1024, "AllReduce", "ncclBfloat16", "RING", "SIMPLE", 0, CHANNELS};

void *coll(void *context, uint64_t seq) {
    CollSpec spec = all_reduce;
    spec.seq = seq;
    DID(ops, 1);
    return call_coll(context, NULL, 0, &spec, &spread);
}

Flow flow(void *context, void *op, int is_send, int n_steps) {
    FlowSpec spec = {getpid(), 0, 1, n_steps, is_send};
    Flow opened;
    flow_open(&opened, context, op, 0, &spec);
    return opened;
}

void run(Flow *moved, void *context) {
    while (!flow_poll(moved, context)) continue;
    call_stop(moved->handle);
}

void whole_op(void *context, uint64_t seq) {
    void *op = coll(context, seq);
    Flow sent = flow(context, op, 1, 5);
    call_stop(op);
    run(&sent, context);
}

static void normal(void) { rank_run(&(RankSpec){.comm = spread, .n_ops = 20, .n_steps = 20}, 2); }
static void paced(void) { rank_run(&(RankSpec){.comm = spread, .n_ops = 6, .n_steps = 20, .pace_us = 2000}, 2); }
static void hang(void) { rank_run(&(RankSpec){.comm = spread, .n_ops = 3, .n_steps = 20, .halts = 1}, 2); }
static void p2p(void) { rank_run(&(RankSpec){.comm = spread, .n_ops = 5, .n_steps = 20, .is_p2p = 1}, 1); }
static void lost_stops(void) {
    rank_run(&(RankSpec){.comm = spread, .n_ops = 10, .n_steps = 20, .loses_stops = 1}, 2);
}

static void nulls(void) {
    void *context = call_init(&spread), *op = coll(context, 0), *handle = NULL;
    Flow sent = flow(context, op, 1, 5);
    for (int time = 0; time < 2; time++) call_stop(NULL);
    for (int time = 0; time < 3; time++) call_record(NULL, SEND_WAIT, NULL);
    call_raw_start(context, NULL, &handle);
    call_raw_start(context, &handle, NULL);
    if (profiler.abi == 3) {
        call_record(sent.handle, 2, NULL);
    } else {
        void *step = call_step(context, sent.handle, 0);
        call_record(step, SEND_GPU_WAIT, NULL);
        call_record(step, SEND_PEER_WAIT, NULL);
        call_record(step, SEND_WAIT, NULL);
    }
    say_ready("done");
}

static void unknown(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    for (int time = 0; time < 2; time++) call_start(context, profiler.abi >= 5 ? 1 << 20 : 0, op, 0, "", 0);
    for (int time = 0; time < 3; time++) call_start(context, 32, op, 0, "", 0);
    call_record(sent.handle, 99, NULL);
    call_record(sent.handle, -5, NULL);
    if (profiler.abi >= 4) {
        void *step = call_step(context, sent.handle, 0);
        call_record(step, 99, NULL);
        call_record(step, 21, NULL);
    }
    call_step(context, sent.handle, 5);
    call_step(context, sent.handle, -1);
    say_ready("done");
}

static void stale(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    call_stop(op);
    run(&sent, context);
    call_stop(sent.handle); /* repeated */
    if (profiler.abi >= 4) {
        call_size(sent.steps[4], SEND_WAIT, 9);
        call_stop(sent.steps[4]);
    } else {
        call_report(sent.handle, 2, 9, 5);
        call_report(sent.handle, 3, 9, 5);
    }
    call_stop((void *)0xDEADBEEFul);
    call_record((void *)0xDEADBEEFul, SEND_WAIT, NULL);
    call_stop((void *)0xF000000000000001ul);
    say_ready("done");
}

static void contexts(void) {
    void *context = call_init(&spread), *gone = call_init(&spread);
    call_finalize(gone);
    if (coll(NULL, 0) || coll(gone, 0) || coll((void *)0x7FFF00001234ul, 0)) _exit(3);
    FlowSpec spec = {getpid(), 0, 1, 5, 1};
    if (call_proxy_op(gone, NULL, 0, &spec)) _exit(3);
    call_finalize(gone);
    call_finalize(NULL);
    say_ready("done");
    call_finalize(context);
}

static void after_finalize(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    flow_poll(&sent, context);
    call_finalize(context);
    say_ready("finalized");
    for (int time = 0; time < 4; time++) flow_poll(&sent, context);
    call_stop(sent.handle);
    call_stop(op);
    coll(context, 1);
    say_ready("done");
}

static void pxn(void) {
    void *context = call_init(&spread);
    FlowSpec spec = {getpid() + 1, 3, 1, 20, 1};
    Flow foreign;
    flow_open(&foreign, (void *)0x7FFF00001234ul, (void *)0x7FFF00005678ul, 0, &spec);
    for (int time = 0; time < 40; time++) flow_poll(&foreign, (void *)0x7FFF00001234ul);
    say_ready("moving");
    run(&foreign, (void *)0x7FFF00001234ul);
    say_ready("done");
    call_finalize(context);
}

static void orphan(void) {
    void *context = call_init(&spread);
    Flow sent = flow(context, NULL, 1, 5);
    run(&sent, context);
    say_ready("done");
}

/* Flows may be through before the launching thread comes back to stop the op. */
static void early(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    run(&sent, context);
    say_ready("through");
    call_stop(op);
    say_ready("done");
}

/* Interface v3: sizes run on from earlier ops, and the report before the first transfer may be missing or say 0. */
static void running_sizes(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow first = flow(context, op, 1, 5), second = flow(context, op, 0, 5);
    for (int steps = 1; steps <= 3; steps++) call_report(first.handle, 2, 1000000 + 1000 * (uint64_t)steps, steps);
    call_report(second.handle, 4, 0, 1);
    for (int steps = 1; steps <= 3; steps++) call_report(second.handle, 5, 1000000 + 1000 * (uint64_t)steps, steps);
    say_ready("done");
}

static void inside_node(void) {
    void *context = call_init(&local);
    for (uint64_t seq = 0; seq < 5; seq++) call_stop(coll(context, seq));
    say_ready("done");
}

static void reopened(void) {
    void *context = call_init(&local), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    call_stop(op);
    say_ready("closed");
    run(&sent, context);
    say_ready("done");
}

/* A flow that begins after a later op has begun: the op was thought complete, and completes once more. */
static void reopened_done(void) {
    void *context = call_init(&spread), *op = coll(context, 0), *later = coll(context, 1);
    Flow first = flow(context, op, 1, 5), second = flow(context, op, 0, 5), next = flow(context, later, 1, 5);
    call_stop(op);
    call_stop(later);
    run(&first, context);
    flow_poll(&next, context);
    say_ready("thought_complete");
    run(&second, context);
    run(&next, context);
    say_ready("done");
}

/* p2p inside the node between network ops: closed, without ever counting as completed, once a later op completes. */
static void mixed(void) {
    void *context = call_init(&spread);
    whole_op(context, 0);
    for (int time = 0; time < 3; time++) call_stop(call_p2p(context, NULL, 0, "Send", 2, &spread));
    call_stop(call_p2p(context, NULL, 0, "Recv", 2, &spread));
    call_stop(call_p2p(context, NULL, 0, "Send", 3, &spread));
    say_ready("open");
    whole_op(context, 1);
    say_ready("done");
}

/* ProxyOps of copies inside the node: started, never recorded, never stopped. */
static void silent(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    flow(context, op, 0, 5);
    call_stop(op);
    run(&sent, context);
    say_ready("open");
    whole_op(context, 1);
    say_ready("done");
}

static void abandoned(void) {
    void *context = call_init(&spread);
    whole_op(context, 0);
    void *op = coll(context, 1);
    Flow sent = flow(context, op, 1, 5);
    call_stop(op);
    for (int time = 0; time < 3; time++) flow_poll(&sent, context);
    call_finalize(context);
    say_ready("done");
}

static void graph(void) {
    void *context = call_init(&spread);
    for (int is_graph = 0; is_graph < 2; is_graph++) {
        void *api = call_api(context, 1, is_graph);
        CollSpec spec = all_reduce;
        spec.seq = (uint64_t)is_graph;
        call_stop(call_coll(context, api, 0, &spec, &spread));
    }
    call_stop(coll(context, 1)); /* a replay: the sequence number stands still */
    call_stop(coll(context, 2));
    say_ready("done");
}

static void queue_pair(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    flow_poll(&sent, context);
    if (call_queue_pair(context, call_step(context, sent.handle, 0), 4711)) _exit(3);
    say_ready("done");
}

static void reinit(void) {
    for (int time = 0; time < 2; time++) {
        void *context = call_init(&spread);
        whole_op(context, 0);
        say_ready("joined");
        call_finalize(context);
        say_ready("finalized");
    }
}

static void many_comms(void) {
    void *contexts_held[300];
    for (int at = 0; at < 300; at++) contexts_held[at] = call_init(&spread);
    if (coll(contexts_held[299], 0)) _exit(3);
    say_ready("full");
    for (int at = 0; at < 300; at++) call_finalize(contexts_held[at]);
    whole_op(call_init(&spread), 0);
    say_ready("done");
}

static void many_ops(void) {
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 4096 + 200; seq++) coll(context, seq);
    say_ready("full");
}

static void many_flows(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    int n_refused = 0;
    for (int at = 0; at < 2048 + 50; at++) n_refused += flow(context, op, 1, 5).handle == NULL;
    if (n_refused != 50) _exit(3);
    say_ready("full");
}

/* Flows that found no row: their op is not complete before a later one is, and never "inside the node". */
static void refused_flows(void) {
    void *context = call_init(&spread), *blocker = coll(context, 0);
    for (int at = 0; at < 2047; at++) flow(context, blocker, 1, 5);
    void *half = coll(context, 1);
    Flow sent = flow(context, half, 1, 5), refused = flow(context, half, 0, 5);
    call_stop(half);
    run(&sent, context);
    say_ready("half");
    whole_op(context, 2);
    say_ready("half_over");
    Flow last = flow(context, blocker, 1, 5);
    void *none = coll(context, 3);
    Flow other = flow(context, none, 1, 5);
    call_stop(none);
    if (refused.handle || other.handle || !last.handle) _exit(3);
    call_stop(last.handle);
    whole_op(context, 4);
    say_ready("done");
}

/* Flows of another process whose stops never come: their rows are taken once they are old. */
static void many_foreign_flows(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    FlowSpec spec = {getpid() + 1, 3, 1, 20, 1};
    Flow foreign;
    for (int at = 0; at < 2048; at++) flow_open(&foreign, (void *)0x7FFF00001234ul, (void *)0x5678ul, 0, &spec);
    if (flow(context, op, 1, 5).handle) _exit(3);
    say_ready("full");
    for (int at = 0; at < 50; at++) flow(context, op, 1, 5);
    say_ready("done");
}

/* On a rank that no ring leaves the node from nothing ever completes. */
static void many_local_ops(void) {
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 3 * 4096; seq++) call_stop(coll(context, seq));
    say_ready("done");
}

/* Aborted ops lose their rows to later ones, and their flows' rows too. */
static void many_lost_ops(void) {
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 3000; seq++) {
        void *op = coll(context, 2 * seq);
        Flow sent = flow(context, op, 1, 5);
        flow_poll(&sent, context);
        call_stop(op);
        whole_op(context, 2 * seq + 1);
    }
    say_ready("done");
}

static void child_of_trainer(void *context, void *op, Flow *sent) {
    call_stop(op);
    flow_poll(sent, context);
    coll(context, 9);
    call_finalize(context);
    void *own = call_init(&spread);
    whole_op(own, 0);
    call_finalize(own);
}

static void forked(void) {
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    pid_t child = fork();
    if (child == 0) {
        child_of_trainer(context, op, &sent);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status) _exit(4);
    say_ready("child gone");
    child = fork(); /* a data loader that lives on when the trainer dies */
    if (child == 0) {
        for (int file = 0; file < 3; file++) close(file);
        sleep(3);
        _exit(0);
    }
    say_ready("child lives");
    call_stop(op);
    run(&sent, context);
    say_ready("done");
}

static void *joiner(void *argument) {
    pthread_barrier_wait(argument);
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 10; seq++) whole_op(context, seq);
    call_finalize(context);
    return NULL;
}

static void concurrent(void) {
    pthread_t threads[64];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 64);
    for (int at = 0; at < 64; at++) pthread_create(&threads[at], NULL, joiner, &start);
    for (int at = 0; at < 64; at++) pthread_join(threads[at], NULL);
    say_ready("done");
}

#define SCRIPT(name) {#name, name}
const Script quirk_scripts[] = {
    SCRIPT(normal),   SCRIPT(paced),      SCRIPT(hang),       SCRIPT(p2p),            SCRIPT(lost_stops),
    SCRIPT(nulls),    SCRIPT(unknown),    SCRIPT(stale),      SCRIPT(contexts),       SCRIPT(after_finalize),
    SCRIPT(pxn),      SCRIPT(orphan),     SCRIPT(inside_node), SCRIPT(reopened),      SCRIPT(mixed),
    SCRIPT(silent),   SCRIPT(abandoned),  SCRIPT(graph),      SCRIPT(queue_pair),     SCRIPT(reinit),
    SCRIPT(many_comms), SCRIPT(many_ops), SCRIPT(many_flows), SCRIPT(many_local_ops), SCRIPT(many_lost_ops),
    SCRIPT(forked),   SCRIPT(concurrent), SCRIPT(early),      SCRIPT(running_sizes),
    SCRIPT(refused_flows), SCRIPT(many_foreign_flows), SCRIPT(reopened_done), {NULL, NULL},
};
