/* Makes one TCP connection per flow: the sender connects to the receiver's NIC address from its own, bound to its own
 * device (two NICs of a node share a subnet), and says which flow it is. */
#define _GNU_SOURCE
#include "wires.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport.h"

#define HELLO_MAGIC 0x4447484cu
#define PORT_POLL_NS (2 * NS_PER_MS)
#define CONNECT_LIMIT_NS (20 * NS_PER_S)
#define IB_BUFFER_BYTES (2 << 20)   /* holds all credited slices, so that the kernel acknowledges for a frozen rank */
#define SOCKET_BUFFER_BYTES (128 << 10)

struct hello {
    uint32_t magic;
    uint32_t src_rank, channel;
    uint64_t comm_hash;
};

static int set_int(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value);
}

static void set_buffers(int fd, int is_ib)
{
    int bytes = is_ib ? IB_BUFFER_BYTES : SOCKET_BUFFER_BYTES;
    if (set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes) != 0)
        set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
    if (!is_ib)
        set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

static void set_options(struct rank *self, int fd)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Credits bound what is in flight. BBR, some machines' default, probes on its own clock and that would be noise. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    set_int(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    /* A link that is down is a fault to look at, not a reason for the kernel to give the connection up. */
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 24 * 3600 * 1000);
    if (self->job.is_ib)
        set_int(fd, SOL_SOCKET, SO_TIMESTAMPING,
                SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
                    SOF_TIMESTAMPING_OPT_TSONLY);
}

static int open_socket(struct rank *self, int rank)
{
    const struct rank_spec *spec = &self->job.ranks[rank];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (strcmp(spec->device, "-") != 0 &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, spec->device, (socklen_t)strlen(spec->device)) != 0) {
        perror("dgrank: cannot bind to the NIC's device");
        close(fd);
        return -1;
    }
    set_buffers(fd, self->job.is_ib);
    return fd;
}

static struct sockaddr_in address_of(struct rank *self, int rank, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, self->job.ranks[rank].address, &address.sin_addr);
    return address;
}

static int listen_for_peers(struct rank *self)
{
    int fd = open_socket(self, self->rank);
    struct sockaddr_in address = address_of(self, self->rank, 0);
    socklen_t length = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        perror("dgrank: cannot listen on the NIC's address");
        return -1;
    }
    atomic_store(&self->page->listen_port, ntohs(address.sin_port));
    return fd;
}

static uint16_t wait_for_port(struct rank *self, int rank)
{
    struct rank_page *page = (struct rank_page *)((char *)self->job_page + (size_t)PAGE_BYTES * (size_t)(1 + rank));
    uint64_t deadline_ns = now_ns() + CONNECT_LIMIT_NS;
    while (atomic_load(&page->listen_port) == 0 && now_ns() < deadline_ns)
        sleep_until_ns(now_ns() + PORT_POLL_NS);
    return (uint16_t)atomic_load(&page->listen_port);
}

static int connect_flow(struct rank *self, struct flow *flow)
{
    struct sockaddr_in address = address_of(self, flow->peer_global, wait_for_port(self, flow->peer_global));
    struct hello hello = {.magic = HELLO_MAGIC, .src_rank = (uint32_t)self->rank, .channel = (uint32_t)flow->channel,
                          .comm_hash = flow->comm->spec.hash};
    flow->fd = open_socket(self, self->rank);
    if (flow->fd < 0 || address.sin_port == 0)
        return -1;
    if (connect(flow->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(flow->fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
        fprintf(stderr, "dgrank: rank %d cannot reach rank %d: %s\n", self->rank, flow->peer_global, strerror(errno));
        return -1;
    }
    set_options(self, flow->fd);
    return 0;
}

static struct flow *flow_of_hello(struct rank *self, const struct hello *hello)
{
    for (int i = 0; i < self->n_flows; i++) {
        struct flow *flow = &self->flows[i];
        if (!flow->is_send && flow->fd < 0 && flow->comm->spec.hash == hello->comm_hash &&
            flow->channel == (int)hello->channel && flow->peer_global == (int)hello->src_rank)
            return flow;
    }
    return NULL;
}

/* Strangers (a port scan, another job's leftover) are closed and not counted. */
static int accept_one(struct rank *self, int listener)
{
    struct hello hello;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return 0;
    struct timeval limit = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct flow *flow = NULL;
    if (recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello && hello.magic == HELLO_MAGIC)
        flow = flow_of_hello(self, &hello);
    if (flow == NULL) {
        close(fd);
        return 0;
    }
    flow->fd = fd;
    set_options(self, fd);
    return 1;
}

int transport_connect(struct rank *self)
{
    int n_expected = 0, listener = listen_for_peers(self);
    if (listener < 0)
        return -1;
    for (int i = 0; i < self->n_flows; i++) {
        self->flows[i].transport = calloc(1, sizeof(struct transport));
        if (!self->flows[i].is_send)
            n_expected++;
        else if (connect_flow(self, &self->flows[i]) != 0)
            return -1;
    }
    while (n_expected > 0)
        n_expected -= accept_one(self, listener);
    close(listener);
    return 0;
}
