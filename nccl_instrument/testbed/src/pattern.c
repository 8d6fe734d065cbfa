/* Fills inputs and checks outputs of ops (pattern.h). Element i of rank r in op n is r + (i + n) mod 64. */
#define _GNU_SOURCE
#include "pattern.h"

#include <string.h>

static const char *const NAMES[] = {"Broadcast", "AllGather", "ReduceScatter", "AllReduce", "Send", "Recv"};

/* Element i of the expected run is scale * ((first + i + number) mod 64) + bias. */
struct expected {
    uint64_t first, number;
    float scale, bias;
};

static inline float value_at(const struct expected *e, uint64_t i)
{
    return e->scale * (float)(int)((uint32_t)(e->first + i + e->number) & 63) + e->bias;
}

static void fill(float *to, uint64_t n, struct expected e)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = value_at(&e, i);
}

static void check(struct rank *self, const struct checked_op *op, const float *got, uint64_t n, struct expected e)
{
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < n; i++)
        wrong += got[i] != value_at(&e, i);
    atomic_fetch_add(&self->page->n_elements_checked, n);
    if (wrong == 0)
        return;
    uint64_t i = 0;
    while (got[i] == value_at(&e, i))
        i++;
    rank_fail(self, "wrong data: %s %lu of communicator %s: element %lu is %g, should be %g (%u of %lu wrong)",
              NAMES[op->func], op->number, op->comm->spec.name, i, (double)got[i], (double)value_at(&e, i), wrong, n);
}

static struct expected own_values(const struct comm *comm, int comm_rank, uint64_t number)
{
    return (struct expected){.number = number, .scale = 1, .bias = (float)comm->spec.members[comm_rank]};
}

static struct expected summed_values(const struct comm *comm, uint64_t number)
{
    float bias = 0;
    for (int i = 0; i < comm->spec.n_ranks; i++)
        bias += (float)comm->spec.members[i];
    return (struct expected){.number = number, .scale = (float)comm->spec.n_ranks, .bias = bias};
}

void pattern_fill(const struct checked_op *op)
{
    struct comm *comm = op->comm;
    struct expected own = own_values(comm, comm->me, op->number);
    uint64_t n = op->n_elements * (op->func == OP_REDUCE_SCATTER ? (uint64_t)comm->spec.n_ranks : 1);
    if (op->func == OP_RECV || (op->func == OP_BROADCAST && op->root != comm->me))
        return;
    fill(comm->send_buffer, n, own);
}

static void check_gathered(struct rank *self, const struct checked_op *op)
{
    for (int r = 0; r < op->comm->spec.n_ranks; r++)
        check(self, op, op->comm->recv_buffer + (uint64_t)r * op->n_elements, op->n_elements,
              own_values(op->comm, r, op->number));
}

void pattern_check(struct rank *self, const struct checked_op *op)
{
    struct comm *comm = op->comm;
    struct expected sum = summed_values(comm, op->number);
    switch (op->func) {
    case OP_ALL_GATHER:
        check_gathered(self, op);
        break;
    case OP_REDUCE_SCATTER:
        sum.first = (uint64_t)comm->me * op->n_elements;
        check(self, op, comm->recv_buffer, op->n_elements, sum);
        break;
    case OP_ALL_REDUCE:
        check(self, op, comm->recv_buffer, op->n_elements, sum);
        break;
    case OP_BROADCAST:
    case OP_RECV:
        check(self, op, comm->recv_buffer, op->n_elements, own_values(comm, op->root, op->number));
        break;
    default:
        break;
    }
}
