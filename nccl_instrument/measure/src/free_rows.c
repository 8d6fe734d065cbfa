#define _GNU_SOURCE
#include "free_rows.h"

#include <stdlib.h>

bool free_rows_make(struct free_rows *rows, uint32_t n_max) {
    rows->n_max = n_max;
    rows->next = calloc(n_max ? n_max : 1, sizeof *rows->next);
    return rows->next;
}

void free_rows_free(struct free_rows *rows) { free((void *)rows->next); }

void free_rows_give(struct free_rows *rows, uint32_t at) { free_rows_give_all(rows, &at, 1); }

void free_rows_give_all(struct free_rows *rows, const uint32_t *at, uint32_t n) {
    if (!n)
        return;
    for (uint32_t i = 0; i + 1 < n; i++)
        atomic_store_explicit(&rows->next[at[i]], at[i + 1] + 1, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&rows->head, memory_order_relaxed);
    do
        atomic_store_explicit(&rows->next[at[n - 1]], (uint32_t)head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&rows->head, &head, ((head >> 32) + 1) << 32 | (at[0] + 1), memory_order_release,
                                                  memory_order_relaxed));
}

uint32_t free_rows_take(struct free_rows *rows) {
    uint64_t head = atomic_load_explicit(&rows->head, memory_order_acquire);
    for (int tries = 0; tries < FREE_ROWS_TRIES_MAX && (uint32_t)head; tries++) {
        uint32_t at = (uint32_t)head, next = atomic_load_explicit(&rows->next[at - 1], memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&rows->head, &head, ((head >> 32) + 1) << 32 | next, memory_order_acquire,
                                                  memory_order_acquire))
            return at;
    }
    uint32_t made = atomic_load_explicit(&rows->n_made, memory_order_relaxed);
    while (made < rows->n_max)
        if (atomic_compare_exchange_weak_explicit(&rows->n_made, &made, made + 1, memory_order_relaxed, memory_order_relaxed))
            return made + 1;
    return 0;
}
