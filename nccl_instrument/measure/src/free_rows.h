/*
 * Numbers of free rows of a table, taken and given back by any thread without waiting: a stack whose head also counts how often
 * it changed, so that a row that was taken and given back meanwhile is not mistaken for one that never left.
 */
#ifndef DG_FREE_ROWS_H
#define DG_FREE_ROWS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FREE_ROWS_TRIES_MAX 8 /* of a thread that must not wait */

struct free_rows {
    alignas(64) _Atomic uint64_t head; /* changes << 32 | number + 1 */
    _Atomic uint32_t *next;
    _Atomic uint32_t n_made; /* rows that were ever taken */
    uint32_t n_max;
};

bool free_rows_make(struct free_rows *rows, uint32_t n_max);
void free_rows_free(struct free_rows *rows);
void free_rows_give(struct free_rows *rows, uint32_t at);
void free_rows_give_all(struct free_rows *rows, const uint32_t *at, uint32_t n);
uint32_t free_rows_take(struct free_rows *rows); /* number + 1; 0: there is none */

#endif
