/* The progress thread (proxy.h): takes posted ops, moves every flow's first op on until nothing moves, then sleeps in
 * epoll until a socket, the GPU or a new op has something for it. NCCL spins here; this thread only polls, every few
 * milliseconds, while a send or receive is refused. */
#define _GNU_SOURCE
#include "proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "transport.h"
#include "wires.h"

#define REFUSED_POLL_NS (5 * NS_PER_MS)
#define SLEEP_CHECK_NS (20 * NS_PER_MS)
#define IDLE_POLL_NS (NS_PER_MS / 5)
#define MAX_POSTS 256
#define MAX_NOTICES 32

struct proxy {
    struct rank *self;
    pthread_t thread;
    int epoll_fd, kick_fd;
    _Atomic uint32_t n_kicks, is_asleep, is_stopping;
    pthread_mutex_t lock; /* of posts */
    pthread_cond_t has_room;
    struct proxy_post posts[MAX_POSTS];
    int n_posts;
    _Atomic int n_active; /* ops posted and not finished */
};

void proxy_kick(struct proxy *proxy)
{
    uint64_t one = 1;
    atomic_fetch_add(&proxy->n_kicks, 1);
    if (atomic_exchange(&proxy->is_asleep, 0) && write(proxy->kick_fd, &one, sizeof one) < 0)
        return; /* the counter is full: the thread is awake anyway */
}

void proxy_post(struct rank *self, const struct proxy_post *posts, int n_posts)
{
    struct proxy *proxy = self->proxy;
    pthread_mutex_lock(&proxy->lock);
    while (proxy->n_posts + n_posts > MAX_POSTS)
        pthread_cond_wait(&proxy->has_room, &proxy->lock);
    for (int i = 0; i < n_posts; i++)
        proxy->posts[proxy->n_posts++] = posts[i];
    atomic_fetch_add(&proxy->n_active, n_posts);
    pthread_mutex_unlock(&proxy->lock);
    proxy_kick(proxy);
}

static void append_op(struct proxy *proxy, const struct proxy_post *post)
{
    struct flow *flow = post->flow;
    struct profiled_flow profiled = {.channel = flow->channel, .peer = flow->peer, .n_steps = post->n_steps,
                                     .chunk_bytes = post->slices_per_action * SLOT_BYTES, .is_send = flow->is_send};
    struct proxy_op *op = calloc(1, sizeof *op);
    op->flow = flow;
    op->call = post->call;
    op->n_steps = (uint32_t)post->n_steps;
    op->depth = (uint32_t)(N_SLOTS / post->slices_per_action);
    op->handle = profiler_start_proxy_op(&flow->comm->profiled, post->op_handle, &profiled);
    if (flow->first == NULL)
        flow->first = op;
    else
        flow->last->next = op;
    flow->last = op;
}

static void take_posts(struct proxy *proxy)
{
    struct proxy_post posts[MAX_POSTS];
    pthread_mutex_lock(&proxy->lock);
    int n = proxy->n_posts;
    for (int i = 0; i < n; i++)
        posts[i] = proxy->posts[i];
    proxy->n_posts = 0;
    pthread_cond_signal(&proxy->has_room);
    pthread_mutex_unlock(&proxy->lock);
    for (int i = 0; i < n; i++)
        append_op(proxy, &posts[i]);
}

static void finish_first_op(struct proxy *proxy, struct flow *flow)
{
    struct proxy_op *op = flow->first;
    profiler_stop(op->handle);
    flow->base += op->n_steps;
    flow->first = op->next;
    free(op);
    atomic_fetch_sub(&proxy->n_active, 1);
}

static int progress_flow(struct proxy *proxy, struct flow *flow)
{
    int n_moved = 0;
    if (flow->first == NULL)
        return 0;
    while (flow->is_send ? progress_send(proxy->self, flow->first) : progress_receive(proxy->self, flow->first))
        n_moved++;
    if (!op_is_done(flow->first))
        return n_moved;
    finish_first_op(proxy, flow);
    return n_moved + 1;
}

/* One pass over all flows; lowers *deadline_ns to the next time something may move without a notice. */
static int pass(struct proxy *proxy, uint64_t *deadline_ns)
{
    struct rank *self = proxy->self;
    int n_moved = 0;
    uint64_t now = now_ns();
    *deadline_ns = NEVER_NS;
    for (int i = 0; i < self->n_flows; i++) {
        struct flow *flow = &self->flows[i];
        /* Bytes first: what they bring is then seen in this pass, what this pass brings is flushed in the next. */
        uint64_t retry = transport_flush(self, flow, now);
        n_moved += progress_flow(proxy, flow);
        if (flow->first != NULL && flow->first->is_refused && retry > now + REFUSED_POLL_NS)
            retry = now + REFUSED_POLL_NS;
        *deadline_ns = retry < *deadline_ns ? retry : *deadline_ns;
    }
    return n_moved;
}

static uint64_t move_all(struct proxy *proxy)
{
    uint64_t deadline_ns;
    do {
        take_posts(proxy);
    } while (pass(proxy, &deadline_ns) > 0);
    return deadline_ns;
}

static void take_notices(struct proxy *proxy, const struct epoll_event *notices, int n)
{
    uint64_t count;
    for (int i = 0; i < n; i++) {
        if (notices[i].data.ptr != NULL)
            transport_notice(notices[i].data.ptr, notices[i].events);
        else if (read(proxy->kick_fd, &count, sizeof count) < 0)
            continue; /* read by an earlier notice */
    }
}

static void sleep_in_epoll(struct proxy *proxy, uint64_t deadline_ns)
{
    struct epoll_event notices[MAX_NOTICES];
    uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    /* epoll_wait's milliseconds are too coarse for paced slices. */
    long n = syscall(SYS_epoll_pwait2, proxy->epoll_fd, notices, MAX_NOTICES, deadline_ns == NEVER_NS ? NULL : &timeout,
                     NULL, 0);
    take_notices(proxy, notices, (int)n);
}

/* The proxy-sleep fault: the thread is alive but does nothing, as when it is not scheduled. */
static void sleep_if_told(struct rank *self)
{
    while (atomic_load(&self->page->proxy_sleep_until_ns) > now_ns())
        sleep_until_ns(now_ns() + SLEEP_CHECK_NS);
}

static void *proxy_main(void *argument)
{
    struct proxy *proxy = argument;
    while (!atomic_load(&proxy->is_stopping) || atomic_load(&proxy->n_active) > 0) {
        sleep_if_told(proxy->self);
        uint32_t n_kicks = atomic_load(&proxy->n_kicks);
        uint64_t deadline_ns = move_all(proxy);
        atomic_store(&proxy->is_asleep, 1);
        if (atomic_load(&proxy->n_kicks) == n_kicks && !(atomic_load(&proxy->is_stopping) && atomic_load(&proxy->n_active) == 0))
            sleep_in_epoll(proxy, deadline_ns);
        atomic_store(&proxy->is_asleep, 0);
    }
    return NULL;
}

static int watch(struct proxy *proxy, struct flow *flow)
{
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = flow};
    flow->transport->epoll_fd = proxy->epoll_fd;
    flow->transport->is_readable = flow->transport->is_writable = 1;
    flow->link.proxy = proxy;
    return epoll_ctl(proxy->epoll_fd, EPOLL_CTL_ADD, flow->fd, &wanted);
}

int proxy_start(struct rank *self)
{
    struct proxy *proxy = self->proxy = calloc(1, sizeof *proxy);
    struct epoll_event kick = {.events = EPOLLIN, .data.ptr = NULL};
    proxy->self = self;
    proxy->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    proxy->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->has_room, NULL);
    if (epoll_ctl(proxy->epoll_fd, EPOLL_CTL_ADD, proxy->kick_fd, &kick) != 0)
        return -1;
    for (int i = 0; i < self->n_flows; i++)
        if (watch(proxy, &self->flows[i]) != 0)
            return -1;
    return pthread_create(&proxy->thread, NULL, proxy_main, proxy);
}

void proxy_wait_idle(struct rank *self)
{
    while (atomic_load(&self->proxy->n_active) > 0)
        sleep_until_ns(now_ns() + IDLE_POLL_NS);
}

void proxy_stop(struct rank *self)
{
    atomic_store(&self->proxy->is_stopping, 1);
    proxy_kick(self->proxy);
    pthread_join(self->proxy->thread, NULL);
}
