/*
 * Transfers that found their flow taken, on their way to the next poll: a bounded queue, many threads put, one takes. Each place
 * says whose turn it is, so that neither side ever waits for the other.
 */
#ifndef DG_HANDED_H
#define DG_HANDED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HANDED_MAX 65536u /* a power of two: what a card can post while a poll sleeps for a few hundred milliseconds */

struct transfer {
    uint64_t now_ns, bytes;
    uint32_t qpn;
};

struct handed_place {
    _Atomic uint64_t turn; /* n: free for the n-th put; n + 1: holds it */
    struct transfer transfer;
};

struct handed {
    struct handed_place *places;
    _Atomic uint64_t head;
    uint64_t tail; /* the taker's */
};

bool handed_make(struct handed *queue);
void handed_free(struct handed *queue);
bool handed_put(struct handed *queue, const struct transfer *transfer); /* false: no room, or too many at once */
bool handed_take(struct handed *queue, struct transfer *transfer);

#endif
