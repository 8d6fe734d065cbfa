/* The queue of what happens next, by time, and by age among calls of the same time, so that a run is the same every time.
 * Time is cut into spans. Calls of later spans wait unsorted, a list for each; those of the span being served are sorted
 * when it begins, and what is added to it meanwhile, or is late, goes into a small heap, as does what is far away. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define ARITY 4
#define DIGIT_BITS (SPAN_BITS / 2)
#define FEW 12 /* calls that are sorted faster one by one */

static int is_before(const struct call *a, const struct call *b)
{
    return a->ns < b->ns || (a->ns == b->ns && (int32_t)(a->order - b->order) < 0);
}

static void *grown(void *memory, int64_t *size, size_t each)
{
    *size = *size * 2 + 1024;
    memory = realloc(memory, (size_t)*size * each);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- a four-ary heap ---- */

static void heap_add(struct heap *heap, struct call call)
{
    if (heap->n == heap->size)
        heap->calls = grown(heap->calls, &heap->size, sizeof *heap->calls);
    int64_t at = heap->n++;
    while (at > 0 && is_before(&call, &heap->calls[(at - 1) / ARITY])) {
        heap->calls[at] = heap->calls[(at - 1) / ARITY];
        at = (at - 1) / ARITY;
    }
    heap->calls[at] = call;
}

static int64_t first_child(const struct heap *heap, int64_t at)
{
    int64_t best = at * ARITY + 1, end = best + ARITY;
    for (int64_t i = best + 1; i < end && i < heap->n; i++)
        if (is_before(&heap->calls[i], &heap->calls[best]))
            best = i;
    return best;
}

static struct call heap_take(struct heap *heap)
{
    struct call taken = heap->calls[0], last = heap->calls[--heap->n];
    int64_t at = 0;
    while (at * ARITY + 1 < heap->n) {
        int64_t child = first_child(heap, at);
        if (is_before(&last, &heap->calls[child]))
            break;
        heap->calls[at] = heap->calls[child];
        at = child;
    }
    heap->calls[at] = last;
    return taken;
}

/* ---- spans: a ring of lists, of blocks of calls ---- */

void calls_new(struct calls *calls)
{
    calls->free_block = NONE;
    memset(calls->spans, 0xff, sizeof calls->spans); /* NONE */
}

void calls_free(struct calls *calls)
{
    free(calls->soon.calls);
    free(calls->far.calls);
    free(calls->due);
    free(calls->spare);
    free(calls->blocks);
}

static int32_t block_new(struct calls *calls)
{
    int32_t at = calls->free_block;
    if (at != NONE) {
        calls->free_block = calls->blocks[at].next;
    } else {
        if (calls->n_blocks == calls->blocks_size)
            calls->blocks = grown(calls->blocks, &calls->blocks_size, sizeof *calls->blocks);
        at = (int32_t)calls->n_blocks++;
    }
    calls->blocks[at].n = 0;
    calls->blocks[at].next = NONE;
    return at;
}

static void span_add(struct calls *calls, int64_t number, struct call call)
{
    int32_t at = (int32_t)(number % N_SPANS);
    struct span *span = &calls->spans[at];
    if (span->last == NONE) {
        span->first = span->last = block_new(calls);
        calls->is_filled[at / 64] |= UINT64_C(1) << at % 64;
    } else if (calls->blocks[span->last].n == BLOCK_CALLS) {
        int32_t added = block_new(calls);
        calls->blocks[span->last].next = added;
        span->last = added;
    }
    struct block *block = &calls->blocks[span->last];
    block->calls[block->n++] = call;
}

/* The number of the next span that has calls, NEVER when there is none in the ring. */
static int64_t next_span(const struct calls *calls)
{
    int32_t from = (int32_t)((calls->span + 1) % N_SPANS);
    for (int32_t i = 0; i <= N_SPANS / 64; i++) {
        int32_t word = (from / 64 + i) % (N_SPANS / 64);
        uint64_t found = calls->is_filled[word];
        if (i == 0)
            found &= ~UINT64_C(0) << from % 64;
        if (found != 0)
            return calls->span + 1 + (word * 64 + __builtin_ctzll(found) - from + N_SPANS) % N_SPANS;
    }
    return NEVER;
}

static void due_add(struct calls *calls, const struct call *added, int64_t n)
{
    while (calls->n_due + n > calls->due_size) {
        int64_t size = calls->due_size;
        calls->due = grown(calls->due, &calls->due_size, sizeof *calls->due);
        calls->spare = grown(calls->spare, &size, sizeof *calls->spare);
    }
    memcpy(calls->due + calls->n_due, added, (size_t)n * sizeof *added);
    calls->n_due += n;
}

static void span_take(struct calls *calls, int64_t number)
{
    int32_t at = (int32_t)(number % N_SPANS), block = calls->spans[at].first;
    while (block != NONE) {
        struct block *taken = &calls->blocks[block];
        int32_t next = taken->next;
        due_add(calls, taken->calls, taken->n);
        taken->next = calls->free_block;
        calls->free_block = block;
        block = next;
    }
    calls->spans[at] = (struct span){NONE, NONE};
    calls->is_filled[at / 64] &= ~(UINT64_C(1) << at % 64);
}

/* ---- the order inside a span: by time, and as they were added ---- */

static void sort_few(struct call *calls, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        struct call call = calls[i];
        int64_t at = i;
        for (; at > 0 && call.ns < calls[at - 1].ns; at--)
            calls[at] = calls[at - 1];
        calls[at] = call;
    }
}

static void sort_by_digit(const struct call *from, struct call *to, int64_t n, int shift)
{
    int64_t starts[(1 << DIGIT_BITS) + 1] = {0};
    const int64_t mask = (1 << DIGIT_BITS) - 1;
    for (int64_t i = 0; i < n; i++)
        starts[(from[i].ns >> shift & mask) + 1]++;
    for (int64_t i = 1; i < mask; i++)
        starts[i + 1] += starts[i];
    for (int64_t i = 0; i < n; i++)
        to[starts[from[i].ns >> shift & mask]++] = from[i];
}

static void due_sort(struct calls *calls)
{
    if (calls->n_due <= FEW) {
        sort_few(calls->due, calls->n_due);
        return;
    }
    sort_by_digit(calls->due, calls->spare, calls->n_due, 0);
    sort_by_digit(calls->spare, calls->due, calls->n_due, DIGIT_BITS);
}

/* Goes on to the next span that has calls, 0 when there is none that begins before until_ns. What was far away when it was
 * added is older than what was added since. */
static int span_begin(struct calls *calls, int64_t until_ns)
{
    int64_t number = next_span(calls), far = calls->far.n ? calls->far.calls[0].ns >> SPAN_BITS : NEVER;
    if (far < number)
        number = far;
    if (number == NEVER || number > until_ns >> SPAN_BITS)
        return 0;
    calls->n_due = calls->next_due = 0;
    while (calls->far.n && calls->far.calls[0].ns >> SPAN_BITS == number) {
        struct call call = heap_take(&calls->far);
        due_add(calls, &call, 1);
    }
    span_take(calls, number);
    calls->span = number;
    due_sort(calls);
    return 1;
}

void call_at(struct sim *sim, int64_t ns, enum call_kind kind, int32_t what)
{
    struct calls *calls = &sim->calls;
    struct call call = {ns, sim->order++, (uint32_t)kind << 28 | (uint32_t)what};
    int64_t number = ns >> SPAN_BITS;
    if (ns == NEVER)
        return;
    if (number <= calls->span)
        heap_add(&calls->soon, call);
    else if (number - calls->span < N_SPANS)
        span_add(calls, number, call);
    else
        heap_add(&calls->far, call);
}

/* The next call not after until_ns, 0 when there is none. */
int call_next(struct sim *sim, int64_t until_ns, struct call *call)
{
    struct calls *calls = &sim->calls;
    while (calls->next_due == calls->n_due && calls->soon.n == 0)
        if (!span_begin(calls, until_ns))
            return 0;
    const struct call *due = calls->next_due < calls->n_due ? &calls->due[calls->next_due] : NULL;
    int is_due = due != NULL && (calls->soon.n == 0 || is_before(due, &calls->soon.calls[0]));
    if ((is_due ? due : &calls->soon.calls[0])->ns > until_ns)
        return 0;
    *call = is_due ? *due : heap_take(&calls->soon);
    calls->next_due += is_due;
    return 1;
}

/* What a stopped GPU will do when it goes on. */
void defer(struct sim *sim, enum call_kind kind, int32_t what)
{
    if (sim->n_deferred == sim->deferred_size) {
        sim->deferred_size = sim->deferred_size * 2 + 64;
        sim->deferred = realloc(sim->deferred, (size_t)sim->deferred_size * sizeof *sim->deferred);
        if (sim->deferred == NULL)
            abort();
    }
    sim->deferred[sim->n_deferred++] = (struct call){sim->now, 0, (uint32_t)kind << 28 | (uint32_t)what};
}
