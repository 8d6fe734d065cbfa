#define _GNU_SOURCE
#include "handed.h"

#include <stdlib.h>

#define TRIES_MAX 64

bool handed_make(struct handed *queue) {
    queue->places = calloc(HANDED_MAX, sizeof *queue->places);
    for (uint32_t at = 0; queue->places && at < HANDED_MAX; at++)
        atomic_init(&queue->places[at].turn, at);
    return queue->places;
}

void handed_free(struct handed *queue) { free(queue->places); }

bool handed_put(struct handed *queue, const struct transfer *transfer) {
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        struct handed_place *place = &queue->places[head % HANDED_MAX];
        uint64_t turn = atomic_load_explicit(&place->turn, memory_order_acquire);
        if (turn < head) /* still holds what was put a lap ago */
            return false;
        if (turn > head) { /* another thread was faster */
            head = atomic_load_explicit(&queue->head, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&queue->head, &head, head + 1, memory_order_relaxed, memory_order_relaxed))
            continue;
        place->transfer = *transfer;
        atomic_store_explicit(&place->turn, head + 1, memory_order_release);
        return true;
    }
    return false;
}

bool handed_take(struct handed *queue, struct transfer *transfer) {
    struct handed_place *place = &queue->places[queue->tail % HANDED_MAX];
    if (atomic_load_explicit(&place->turn, memory_order_acquire) != queue->tail + 1)
        return false;
    *transfer = place->transfer;
    atomic_store_explicit(&place->turn, queue->tail + HANDED_MAX, memory_order_release);
    queue->tail++;
    return true;
}
