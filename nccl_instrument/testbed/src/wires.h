/* The state of a flow's TCP connection, and how connections are made. */
#ifndef DG_WIRES_H
#define DG_WIRES_H

#include "rank.h"

#define SLICE_MAGIC 0x44474c53u

struct slice_header {
    uint32_t magic, step, size_bytes, reserved;
};

struct outgoing {
    struct slice_header header;
    uint64_t release_ns, end_byte; /* end_byte: position of its last byte in the connection */
};

struct transport {
    int epoll_fd, is_readable, is_writable, is_lost;
    uint32_t n_credits; /* sender: received; receiver: given */
    /* sender, counts of slices and bytes */
    struct outgoing outgoing[N_SLOTS];
    uint32_t n_queued, n_written, n_acked;
    uint64_t queued_bytes, written_bytes;
    /* receiver */
    struct slice_header incoming;
    uint32_t n_posted, n_received, header_bytes, data_bytes;
    int wanted_bytes;
    uint32_t received_bytes[N_SLOTS];
};

#endif
