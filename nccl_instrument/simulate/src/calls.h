/* What the queue of calls is made of (calls.c). Times are nanoseconds since the job's start. */
#ifndef DG_CALLS_H
#define DG_CALLS_H

#include <stdint.h>

struct call {
    int64_t ns;
    uint32_t order, code; /* kind << 28 | what */
};

#define SPAN_BITS 12 /* ns of a span of time, a power of two */
#define N_SPANS 4096
#define BLOCK_CALLS 15

struct heap {
    struct call *calls;
    int64_t n, size;
};

struct block {
    struct call calls[BLOCK_CALLS];
    int32_t n, next;
    int64_t unused; /* so that it fills whole lines of the cache */
};

struct span {
    int32_t first, last; /* blocks */
};

/* span: number of the one that is served; its calls are `due` from next_due on, in order, and `soon`. */
struct calls {
    int64_t span, n_due, next_due, due_size;
    struct call *due, *spare; /* due_size each */
    struct heap soon, far;
    struct block *blocks;
    int64_t n_blocks, blocks_size;
    int32_t free_block;
    struct span spans[N_SPANS]; /* by number, modulo */
    uint64_t is_filled[N_SPANS / 64];
};

void calls_new(struct calls *calls);
void calls_free(struct calls *calls);

#endif
