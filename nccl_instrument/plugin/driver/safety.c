/* What a training process does to itself while it is traced: forks in every way, execs, crashes, many threads and
 * communicators, signals, the library closed and opened again, a second copy of it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define THREADS 64
#define OPS_OF_A_THREAD 100
#define COMMUNICATORS 10000
#define WARM 1000
#define FORKS 24

static volatile int is_over;
static uint64_t next_seq = 1;

static uint64_t take_seq(void) { return __atomic_fetch_add(&next_seq, 1, __ATOMIC_RELAXED); }

static void *work(void *context) {
    for (int time = 0; time < OPS_OF_A_THREAD; time++) whole_op(context, take_seq());
    return NULL;
}

static void *work_on(void *context) {
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) whole_op(context, take_seq());
    return NULL;
}

static void threads_start(pthread_t *threads, int n, void *(*body)(void *)) {
    for (int at = 0; at < n; at++) pthread_create(&threads[at], NULL, body, call_init(&spread));
}

static void threads_join(const pthread_t *threads, int n) {
    for (int at = 0; at < n; at++) pthread_join(threads[at], NULL);
}

/* More than NCCL does: all on one communicator, each with its own progress, so that ops overtake each other. */
static void crowd(void) {
    pthread_t threads[THREADS];
    void *shared = call_init(&spread);
    whole_op(shared, 0); /* interface v3: the first op tells whose communicator it is */
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, work, shared);
    threads_join(threads, THREADS);
    say_ready("done");
    call_finalize(shared);
}

/* The trainer dies in the middle of other threads' callbacks. */
static void die(int number) {
    pthread_t threads[4];
    threads_start(threads, 4, work_on);
    say_ready("running");
    if (number == SIGSEGV) *(volatile int *)(uintptr_t)8 = 1;
    if (number == SIGABRT) abort();
    pause();
}

static void aborts(void) { die(SIGABRT); }
static void faults(void) { die(SIGSEGV); }
static void hammers(void) { die(0); }

static void churn(void) {
    for (int number = 0; number < COMMUNICATORS; number++) {
        CommSpec comm = spread;
        comm.id += (uint64_t)number;
        comm.n_ranks = 2 + number * 37 % 3000;
        void *context = call_init(&comm);
        whole_op(context, 0);
        call_stop(call_p2p(context, NULL, 0, "Send", comm.n_ranks - 1, &comm));
        DID(ops, 1);
        call_finalize(context);
        if (number == WARM) say_ready("warm");
    }
    say_ready("done");
}

/* Every callback on what the parent had, then a life of its own. No malloc, no stdio: other threads may hold their locks. */
static void child_runs(void *context, void *op, Flow sent) {
    void *step = profiler.abi == 3 ? sent.handle : call_step(context, sent.handle, 1);
    flow_poll(&sent, context);
    call_stop(step);
    call_stop(op);
    coll(context, 9);
    flow(context, op, 0, 5);
    call_stop(call_start(context, GROUP, NULL, 0, "", 0));
    call_finalize(context);
    void *own = call_init(&spread);
    whole_op(own, 0);
    call_finalize(own);
}

static pid_t fork_in_some_way(int number) {
    if (number % 3 == 0) return fork();
    if (number % 3 == 1) return _Fork();
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* 0 when it ended as it was told to. */
static int child_ends(int number, int status) {
    return number % 2 ? !(WIFEXITED(status) && WEXITSTATUS(status) == 0)
                      : !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void forks(void) {
    pthread_t threads[3];
    threads_start(threads, 3, work_on);
    void *context = call_init(&spread), *op = coll(context, 0);
    Flow sent = flow(context, op, 1, 5);
    for (int number = 0; number < FORKS; number++) {
        int status = -1;
        pid_t child = fork_in_some_way(number);
        if (child == 0) {
            child_runs(context, op, sent);
            if (number % 2) execl("/bin/true", "true", (char *)NULL);
            kill(getpid(), SIGKILL);
        }
        if (waitpid(child, &status, 0) != child || child_ends(number, status)) _exit(4);
    }
    is_over = 1;
    threads_join(threads, 3);
    call_stop(op);
    run(&sent, context);
    say_ready("done");
}

/* The same process number goes on as another program, which is traced anew. */
static void execs(void) {
    char abi[8];
    void *context = call_init(&spread);
    coll(context, 0);
    say_ready("before");
    snprintf(abi, sizeof abi, "%d", profiler.abi);
    execl("/proc/self/exe", "driver", profiler.path, abi, "hang", (char *)NULL);
    _exit(5);
}

static void reloads(void) {
    const char *path = profiler.path;
    for (int time = 0; time < 20; time++) {
        void *context = call_init(&spread);
        whole_op(context, 0);
        call_finalize(context);
        profiler_unload();
        profiler_load(path, profiler.abi);
    }
    say_ready("done");
}

/* Another path, another library: both are called, as two NCCLs in one process would. */
static void copies(void) {
    void *first_context = call_init(&spread);
    Profiler first = profiler;
    profiler_load(getenv("DRIVER_COPY"), profiler.abi);
    Profiler second = profiler;
    void *second_context = call_init(&spread);
    say_ready("both");
    for (uint64_t seq = 0; seq < 10; seq++) {
        profiler = second;
        call_stop(call_start(second_context, GROUP, NULL, 0, "", 0));
        if (call_coll(second_context, NULL, 0, &(CollSpec){seq, 1, "AllReduce", "ncclInt8", "RING", "LL", 0, 1}, &spread))
            _exit(3);
        profiler = first;
        whole_op(first_context, seq);
    }
    profiler = second;
    call_finalize(second_context);
    profiler_unload();
    profiler = first;
    say_ready("done");
    call_finalize(first_context);
}

static void nothing(int number) { (void)number; }

/* A sampling profiler's timer, faster than a segment can be allocated. */
static void ticks(void) {
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, nothing);
    setitimer(ITIMER_REAL, &often, NULL);
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 100; seq++) whole_op(context, seq);
    setitimer(ITIMER_REAL, &never, NULL);
    say_ready("done");
}

/* Slow enough to be disturbed from outside between two ops. */
static void steady(void) {
    void *context = call_init(&spread);
    for (uint64_t seq = 0; seq < 5; seq++) {
        whole_op(context, seq);
        say_ready("op");
    }
    call_finalize(context);
    say_ready("done");
}

#define SCRIPT(name) {#name, name}
const Script safety_scripts[] = {
    SCRIPT(crowd), SCRIPT(aborts), SCRIPT(faults), SCRIPT(hammers), SCRIPT(churn),  SCRIPT(forks),
    SCRIPT(execs), SCRIPT(reloads), SCRIPT(copies), SCRIPT(ticks),  SCRIPT(steady), {NULL, NULL},
};
