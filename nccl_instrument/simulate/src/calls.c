/* The queue of what happens next: a four-ary heap by time, and by age among calls of the same time, so that a run is the
 * same every time. */
#include <stdlib.h>

#include "sim.h"

#define ARITY 4

static int is_before(const struct call *a, const struct call *b)
{
    return a->ns < b->ns || (a->ns == b->ns && (int32_t)(a->order - b->order) < 0);
}

void call_at(struct sim *sim, int64_t ns, enum call_kind kind, int32_t what)
{
    struct call call = {ns, sim->order++, (uint32_t)kind << 28 | (uint32_t)what};
    if (ns == NEVER)
        return;
    if (sim->n_calls == sim->calls_size) {
        sim->calls_size = sim->calls_size * 2 + 1024;
        sim->calls = realloc(sim->calls, (size_t)sim->calls_size * sizeof *sim->calls);
        if (sim->calls == NULL)
            abort();
    }
    int64_t at = sim->n_calls++;
    while (at > 0 && is_before(&call, &sim->calls[(at - 1) / ARITY])) {
        sim->calls[at] = sim->calls[(at - 1) / ARITY];
        at = (at - 1) / ARITY;
    }
    sim->calls[at] = call;
}

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

static int64_t first_child(const struct sim *sim, int64_t at)
{
    int64_t best = at * ARITY + 1, end = best + ARITY;
    for (int64_t i = best + 1; i < end && i < sim->n_calls; i++)
        if (is_before(&sim->calls[i], &sim->calls[best]))
            best = i;
    return best;
}

/* The next call not after until_ns, 0 when there is none. */
int call_next(struct sim *sim, int64_t until_ns, struct call *call)
{
    if (sim->n_calls == 0 || sim->calls[0].ns > until_ns)
        return 0;
    *call = sim->calls[0];
    struct call last = sim->calls[--sim->n_calls];
    int64_t at = 0;
    while (at * ARITY + 1 < sim->n_calls) {
        int64_t child = first_child(sim, at);
        if (is_before(&last, &sim->calls[child]))
            break;
        sim->calls[at] = sim->calls[child];
        at = child;
    }
    sim->calls[at] = last;
    return 1;
}
