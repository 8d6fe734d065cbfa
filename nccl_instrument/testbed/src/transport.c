/* The byte side of a flow: credits, headers, slices, acknowledgements (transport.h). A lost connection (the peer was
 * killed) leaves the flow stuck for ever: jobs hang there, they do not end. */
#define _GNU_SOURCE
#include "transport.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wires.h"

#define BLOCKED_RETRY_NS (20 * NS_PER_MS)  /* paced links: how soon a NIC that came back is noticed */
#define UNACKED_RETRY_NS (20 * NS_PER_MS)  /* a missed acknowledgement notice costs at most this */

static int is_link_up(struct rank *self, const struct flow *flow)
{
    return !self->job.is_paced || (atomic_load(&rank_nic(self, flow->nic)->is_up) &&
                                   atomic_load(&rank_nic(self, flow->peer_nic)->is_up));
}

/* A paced slice occupies the sending NIC, then the receiving one; it leaves when both have served it. */
static uint64_t pace(struct rank *self, const struct flow *flow, uint32_t size_bytes)
{
    if (!self->job.is_paced)
        return 0;
    struct nic_page *from = rank_nic(self, flow->nic), *to = rank_nic(self, flow->peer_nic);
    uint64_t from_cost = size_bytes * NS_PER_S / atomic_load(&from->bytes_per_s);
    uint64_t to_cost = size_bytes * NS_PER_S / atomic_load(&to->bytes_per_s);
    uint64_t sent = reserve_ns(&from->tx_busy_until_ns, now_ns(), from_cost);
    uint64_t received = reserve_ns(&to->rx_busy_until_ns, sent - from_cost, to_cost);
    return received > sent ? received : sent;
}

static void count_bytes(struct rank *self, const struct flow *flow, uint64_t sent, uint64_t received)
{
    atomic_fetch_add(&rank_nic(self, flow->nic)->tx_bytes, sent);
    atomic_fetch_add(&rank_nic(self, flow->nic)->rx_bytes, received);
}

static void drain_error_queue(int fd)
{
    char control[256];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    while (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
        message.msg_controllen = sizeof control;
}

void transport_notice(struct flow *flow, uint32_t epoll_bits)
{
    struct transport *t = flow->transport;
    t->is_readable |= (epoll_bits & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0;
    t->is_writable |= (epoll_bits & EPOLLOUT) != 0;
    if (epoll_bits & EPOLLERR)
        drain_error_queue(flow->fd);
}

static void lose(struct flow *flow)
{
    epoll_ctl(flow->transport->epoll_fd, EPOLL_CTL_DEL, flow->fd, NULL);
    flow->transport->is_lost = 1;
}

static int is_hard_error(ssize_t n)
{
    return n < 0 && errno != EAGAIN && errno != EINTR && errno != ENETUNREACH && errno != EHOSTUNREACH &&
           errno != ENETDOWN;
}

/* ---- sender ---- */

int transport_isend(struct rank *self, struct flow *flow, uint32_t step, uint32_t size_bytes)
{
    struct transport *t = flow->transport;
    if (self->job.is_ib && (int32_t)(t->n_credits - step) <= 0)
        return 0;
    struct outgoing *slice = &t->outgoing[step % N_SLOTS];
    slice->header = (struct slice_header){.magic = SLICE_MAGIC, .step = step, .size_bytes = size_bytes};
    slice->release_ns = pace(self, flow, size_bytes);
    slice->end_byte = t->queued_bytes += sizeof slice->header + size_bytes;
    t->n_queued = step + 1;
    return 1;
}

static ssize_t write_slice(struct flow *flow, const struct outgoing *slice)
{
    struct transport *t = flow->transport;
    uint64_t total = sizeof slice->header + slice->header.size_bytes;
    uint64_t done = total - (slice->end_byte - t->written_bytes);
    uint64_t header_left = done < sizeof slice->header ? sizeof slice->header - done : 0;
    uint64_t data_done = done - (sizeof slice->header - header_left);
    struct iovec parts[2] = {
        {(char *)&slice->header + (sizeof slice->header - header_left), header_left},
        {fifo_slot(flow->link.fifo, slice->header.step) + data_done, slice->header.size_bytes - data_done},
    };
    struct msghdr message = {.msg_iov = header_left ? parts : parts + 1, .msg_iovlen = header_left ? 2 : 1};
    return sendmsg(flow->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static uint64_t flush_slices(struct rank *self, struct flow *flow, uint64_t now)
{
    struct transport *t = flow->transport;
    while (t->n_written != t->n_queued) {
        struct outgoing *slice = &t->outgoing[t->n_written % N_SLOTS];
        if (!is_link_up(self, flow))
            return now + BLOCKED_RETRY_NS;
        if (now < slice->release_ns)
            return slice->release_ns;
        ssize_t n = t->is_writable ? write_slice(flow, slice) : -1;
        if (n < 0) {
            if (t->is_writable && is_hard_error(n))
                lose(flow);
            t->is_writable = 0;
            return NEVER_NS;
        }
        t->written_bytes += (uint64_t)n;
        if (self->job.is_paced)
            count_bytes(self, flow, (uint64_t)n, 0);
        t->n_written += t->written_bytes == slice->end_byte;
    }
    return NEVER_NS;
}

static void read_credits(struct flow *flow)
{
    char credits[64];
    struct transport *t = flow->transport;
    while (t->is_readable) {
        ssize_t n = recv(flow->fd, credits, sizeof credits, MSG_DONTWAIT);
        if (n > 0) {
            t->n_credits += (uint32_t)n;
            continue;
        }
        if (n == 0 || is_hard_error(n))
            lose(flow);
        t->is_readable = 0;
    }
}

int transport_is_sent(struct rank *self, struct flow *flow, uint32_t step)
{
    struct transport *t = flow->transport;
    int unacked = 0;
    if (t->is_lost || (int32_t)(t->n_written - step) <= 0)
        return 0;
    if (!self->job.is_ib)
        return 1;
    if (!is_link_up(self, flow) || ioctl(flow->fd, SIOCOUTQ, &unacked) != 0)
        return 0;
    if (t->written_bytes - (uint64_t)unacked < t->outgoing[step % N_SLOTS].end_byte)
        return 0;
    t->n_acked = step + 1;
    return 1;
}

/* ---- receiver ---- */

int transport_irecv(struct rank *self, struct flow *flow, uint32_t step)
{
    struct transport *t = flow->transport;
    /* Credits that cannot leave are the IB request queue being full: then irecv is refused and tried again. */
    if (self->job.is_ib && t->n_posted - t->n_credits >= N_SLOTS / 2)
        return 0;
    t->n_posted = step + 1;
    return 1;
}

static uint64_t flush_credits(struct rank *self, struct flow *flow, uint64_t now)
{
    static const char CREDITS[N_SLOTS];
    struct transport *t = flow->transport;
    if (!self->job.is_ib || t->n_credits == t->n_posted)
        return NEVER_NS;
    if (!is_link_up(self, flow))
        return now + BLOCKED_RETRY_NS;
    uint32_t n_owed = t->n_posted - t->n_credits;
    ssize_t n = send(flow->fd, CREDITS, n_owed < N_SLOTS ? n_owed : N_SLOTS, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        t->n_credits += (uint32_t)n;
    else if (is_hard_error(n))
        lose(flow);
    return t->n_credits == t->n_posted ? NEVER_NS : now + BLOCKED_RETRY_NS;
}

/* Wake up only when the rest of the slice is there, not once per packet. */
static void want_bytes(struct transport *t, int fd, uint64_t bytes)
{
    int wanted = (int)bytes;
    if (t->wanted_bytes == wanted)
        return;
    t->wanted_bytes = wanted;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

static ssize_t read_part(struct rank *self, struct flow *flow, void *to, uint64_t bytes)
{
    ssize_t n = recv(flow->fd, to, bytes, MSG_DONTWAIT);
    if (n > 0 && self->job.is_paced)
        count_bytes(self, flow, 0, (uint64_t)n);
    if (n > 0)
        return n;
    if (n == 0 || is_hard_error(n))
        lose(flow);
    flow->transport->is_readable = 0;
    return 0;
}

static void read_slice(struct rank *self, struct flow *flow)
{
    struct transport *t = flow->transport;
    struct slice_header *header = &t->incoming;
    if (t->header_bytes < sizeof *header) {
        t->header_bytes += (uint32_t)read_part(self, flow, (char *)header + t->header_bytes,
                                               sizeof *header - t->header_bytes);
        if (t->header_bytes < sizeof *header)
            return;
        if (header->magic != SLICE_MAGIC || header->step != t->n_received || header->size_bytes > SLOT_BYTES)
            rank_fail(self, "wrong data: slice %u of a flow from rank %d came with a wrong header", t->n_received,
                      flow->peer_global);
        t->data_bytes = 0;
    }
    if (t->data_bytes < header->size_bytes) {
        uint8_t *slot = fifo_slot(flow->link.fifo, header->step);
        t->data_bytes += (uint32_t)read_part(self, flow, slot + t->data_bytes, header->size_bytes - t->data_bytes);
    }
    if (t->data_bytes < header->size_bytes) {
        want_bytes(t, flow->fd, header->size_bytes - t->data_bytes);
        return;
    }
    t->received_bytes[header->step % N_SLOTS] = header->size_bytes;
    t->n_received++;
    t->header_bytes = 0;
    want_bytes(t, flow->fd, 1);
}

static uint64_t read_slices(struct rank *self, struct flow *flow, uint64_t now)
{
    struct transport *t = flow->transport;
    while (t->is_readable && !t->is_lost && t->n_received != t->n_posted) {
        if (!is_link_up(self, flow))
            return now + BLOCKED_RETRY_NS;
        read_slice(self, flow);
    }
    return NEVER_NS;
}

int transport_is_received(struct rank *self, struct flow *flow, uint32_t step, uint32_t *size_bytes)
{
    struct transport *t = flow->transport;
    (void)self;
    *size_bytes = t->received_bytes[step % N_SLOTS];
    return (int32_t)(t->n_received - step) > 0;
}

uint64_t transport_flush(struct rank *self, struct flow *flow, uint64_t now)
{
    struct transport *t = flow->transport;
    if (t->is_lost)
        return NEVER_NS;
    if (flow->is_send) {
        read_credits(flow);
        uint64_t retry = t->is_lost ? NEVER_NS : flush_slices(self, flow, now);
        int is_unacked = self->job.is_ib && flow->first != NULL && t->n_written != t->n_acked;
        return is_unacked && retry > now + UNACKED_RETRY_NS ? now + UNACKED_RETRY_NS : retry;
    }
    uint64_t credits = flush_credits(self, flow, now);
    uint64_t slices = read_slices(self, flow, now);
    return credits < slices ? credits : slices;
}
