/* dgrank: one rank of the testbed's job. Started by the orchestrator with the job's text file, its rank, two shared
 * memory files (control page and exchange) and, when links are real, the network namespace of its node.
 *   dgrank JOB_FILE RANK CONTROL_FD EXCHANGE_FD [NAMESPACE_FILE]
 *   dgrank --offsets        prints the control page's layout */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gpu.h"
#include "proxy.h"
#include "schedule.h"
#include "sent_log.h"
#include "sweep.h"
#include "transport.h"

#define EXIT_WRONG_DATA 3
#define TIMER_SLACK_NS 1000UL
#define FAREWELL_LIMIT_NS (5 * NS_PER_S)

struct bell *rank_bell(struct rank *self, int rank, int which)
{
    return &self->bells[rank * N_BELLS + which];
}

struct nic_page *rank_nic(struct rank *self, int nic)
{
    char *first = (char *)self->job_page + (size_t)PAGE_BYTES * (size_t)(1 + self->job.n_ranks);
    return (struct nic_page *)(void *)(first + (size_t)nic * NIC_PAGE_BYTES);
}

void rank_set_state(struct rank *self, enum rank_state state)
{
    atomic_store(&self->page->state, state);
}

void rank_fail(struct rank *self, const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fprintf(stderr, "dgrank: rank %d: %s\n", self->rank, sentence);
    rank_set_state(self, STATE_FAILED);
    _exit(EXIT_WRONG_DATA);
}

static int print_offsets(void)
{
    printf("{\"page_bytes\": %d, \"nic_page_bytes\": %d, \"n_recent_iterations\": %d", PAGE_BYTES, NIC_PAGE_BYTES,
           N_RECENT_ITERATIONS);
#define PRINT(type, field) printf(", \"%s.%s\": %zu", #type, #field, offsetof(struct type, field))
    PRINT(job_page, stop_at), PRINT(job_page, pause_at), PRINT(job_page, pause_ns);
    PRINT(job_page, profiler), PRINT(job_page, n_passes);
    PRINT(rank_page, copy_factor_milli), PRINT(rank_page, compute_factor_milli), PRINT(rank_page, is_stuck_before);
    PRINT(rank_page, proxy_sleep_until_ns), PRINT(rank_page, checkpoint_ns), PRINT(rank_page, corrupt_next);
    PRINT(rank_page, state), PRINT(rank_page, iteration), PRINT(rank_page, n_ops_enqueued);
    PRINT(rank_page, n_ops_done), PRINT(rank_page, listen_port), PRINT(rank_page, n_elements_checked);
    PRINT(rank_page, iteration_us);
    PRINT(nic_page, is_up), PRINT(nic_page, bytes_per_s), PRINT(nic_page, tx_bytes), PRINT(nic_page, rx_bytes);
    printf("}\n");
    return 0;
}

static int enter_namespace(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        fprintf(stderr, "dgrank: cannot enter network namespace %s: %s\n", path, strerror(errno));
        return -1;
    }
    return close(fd);
}

static int map_control_page(struct rank *self, int fd)
{
    size_t bytes = (size_t)PAGE_BYTES * (size_t)(1 + self->job.n_ranks) +
                   (size_t)NIC_PAGE_BYTES * (size_t)self->job.n_nics;
    char *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("dgrank: cannot map the control page");
        return -1;
    }
    self->job_page = (struct job_page *)(void *)page;
    self->page = (struct rank_page *)(void *)(page + (size_t)PAGE_BYTES * (size_t)(1 + self->rank));
    return 0;
}

static void init_comms(struct rank *self)
{
    profiler_load();
    for (int i = 0; i < self->n_comms; i++)
        profiler_init_comm(&self->comms[i].profiled);
}

/* A closed connection looks like a lost one: nobody leaves while a neighbour still waits for an acknowledgement. */
static void wait_for_everybody(struct rank *self)
{
    uint64_t deadline_ns = now_ns() + FAREWELL_LIMIT_NS;
    int n_finished = 0;
    while (n_finished < self->job.n_ranks && now_ns() < deadline_ns) {
        n_finished = 0;
        for (int rank = 0; rank < self->job.n_ranks; rank++) {
            char *page = (char *)self->job_page + (size_t)PAGE_BYTES * (size_t)(1 + rank);
            n_finished += atomic_load(&((struct rank_page *)(void *)page)->state) == STATE_FINISHED;
        }
        sleep_until_ns(now_ns() + 2 * NS_PER_MS);
    }
}

/* The proxy thread is shared, so it ends before the last communicator is finalized. */
static void finalize_comms(struct rank *self)
{
    proxy_stop(self);
    for (int i = self->n_comms - 1; i >= 0; i--)
        profiler_finalize_comm(&self->comms[i].profiled);
    profiler_unload();
    rank_set_state(self, STATE_FINISHED);
    wait_for_everybody(self);
}

static int run(struct rank *self)
{
    init_comms(self);
    sent_log_open(self);
    if (transport_connect(self) != 0 || proxy_start(self) != 0 || gpu_start(self) != 0) {
        fprintf(stderr, "dgrank: rank %d could not start\n", self->rank);
        return EXIT_FAILURE;
    }
    if (self->job.sweep_bytes_max > 0)
        sweep_run(self);
    else
        schedule_run(self);
    finalize_comms(self);
    return EXIT_SUCCESS;
}

/* Dies with the orchestrator, whatever kills that; the check closes the race with a parent that died before. */
static void die_with_parent(void)
{
    const char *parent = getenv("DIOGENES_TESTBED_PID");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (parent != NULL && getppid() != (pid_t)atoi(parent))
        _exit(EXIT_FAILURE);
}

/* A cluster's rhythm does not depend on how busy the machine is that watches it. Ranks sleep nearly all the time, so a
 * real-time class harms nobody; without the right to it (not root) the job is only less regular on a busy machine.
 * DIOGENES_TESTBED_REALTIME=0 declines it, for several jobs at once. */
static void ask_for_regular_time(void)
{
    struct sched_param priority = {.sched_priority = 1};
    const char *wanted = getenv("DIOGENES_TESTBED_REALTIME");
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    if (wanted == NULL || strcmp(wanted, "0") != 0)
        (void)sched_setscheduler(0, SCHED_RR, &priority);
}

int main(int argc, char **argv)
{
    static struct rank self;
    if (argc == 2 && strcmp(argv[1], "--offsets") == 0)
        return print_offsets();
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: dgrank JOB_FILE RANK CONTROL_FD EXCHANGE_FD [NAMESPACE_FILE]\n");
        return EXIT_FAILURE;
    }
    die_with_parent();
    ask_for_regular_time();
    self.rank = atoi(argv[2]);
    if (job_read(&self.job, argv[1]) != 0 || (argc == 6 && enter_namespace(argv[5]) != 0) ||
        map_control_page(&self, atoi(argv[3])) != 0 || topology_build(&self, atoi(argv[4])) != 0)
        return EXIT_FAILURE;
    return run(&self);
}
