/* Runs a kernel's lanes on a stream thread: wait for a full buffer and a free one, occupy the copy engine, move the
 * numbers, pass both buffers on. The thread sleeps on the stream's bell whenever no lane can move. */
#define _GNU_SOURCE
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "pattern.h"
#include "proxy.h"
#include "reported.h"

#define SHORT_COPY_NS 20000 /* not worth a sleep */
#define ACTIONS_AT_FIRST 32

struct kernel *kernel_new(void)
{
    return calloc(1, sizeof(struct kernel));
}

struct lane *kernel_add_lane(struct kernel *kernel, struct link *in, struct link *out, int slices_per_action)
{
    struct lane *lane = calloc(1, sizeof *lane);
    lane->in = in;
    lane->out = out;
    lane->slices_per_action = slices_per_action;
    lane->depth = N_SLOTS / slices_per_action;
    kernel->lanes[kernel->n_lanes++] = lane;
    return lane;
}

void lane_add(struct lane *lane, int flags, uint64_t in_offset, uint64_t out_offset, uint64_t n)
{
    if (lane->n_actions == lane->n_actions_max) {
        lane->n_actions_max = lane->n_actions_max == 0 ? ACTIONS_AT_FIRST : 2 * lane->n_actions_max;
        lane->actions = realloc(lane->actions, (size_t)lane->n_actions_max * sizeof *lane->actions);
    }
    lane->actions[lane->n_actions++] = (struct action){.flags = (uint8_t)flags, .in_offset = (uint32_t)in_offset,
                                                       .out_offset = (uint32_t)out_offset, .n = (uint32_t)n};
}

int lane_n_slices(const struct lane *lane, enum action_flag direction)
{
    int n = 0;
    for (int i = 0; i < lane->n_actions; i++)
        n += (lane->actions[i].flags & direction) != 0;
    return n * lane->slices_per_action;
}

struct slice {
    const struct action *action;
    uint32_t first, n;
};

static struct slice current_slice(const struct lane *lane)
{
    const struct action *action = &lane->actions[lane->action];
    uint32_t size = (action->n + (uint32_t)lane->slices_per_action - 1) / (uint32_t)lane->slices_per_action;
    uint32_t first = size * (uint32_t)lane->slice;
    first = first < action->n ? first : action->n;
    uint32_t n = action->n - first < size ? action->n - first : size;
    return (struct slice){action, first, n};
}

static void add(float *restrict to, const float *restrict from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* The numbers end up in the send buffer's slot if there is one, else in the output. */
static void move_numbers(struct rank *self, struct lane *lane, struct slice slice)
{
    int flags = slice.action->flags;
    size_t bytes = slice.n * sizeof(float);
    float *output = lane->output + slice.action->out_offset + slice.first;
    const float *input = lane->input + slice.action->in_offset + slice.first;
    float *target = flags & A_SEND ? (float *)(void *)fifo_slot(lane->out->fifo, lane->out->step) : output;
    const float *source = flags & A_RECV ? (float *)(void *)fifo_slot(lane->in->fifo, lane->in->step) : input;
    memcpy(target, source, bytes);
    if ((flags & A_RECV) && (flags & A_INPUT))
        add(target, input, slice.n);
    if (slice.n > 0 && atomic_exchange(&self->page->corrupt_next, 0) != 0)
        target[0] += 1;
    if ((flags & A_STORE) && target != output)
        memcpy(output, target, bytes);
}

static void tell_far_end(struct link *link)
{
    if (link->flow == NULL)
        bell_ring(link->far_bell);
    else
        proxy_kick(link->proxy);
}

static void pass_buffers_on(struct lane *lane, struct slice slice)
{
    if (slice.action->flags & A_SEND) {
        struct link *out = lane->out;
        out->fifo->size_bytes[out->step % N_SLOTS] = slice.n * (uint32_t)sizeof(float);
        atomic_store(&out->fifo->tail, ++out->step);
        tell_far_end(out);
    }
    if (slice.action->flags & A_RECV) {
        atomic_store(&lane->in->fifo->head, ++lane->in->step);
        tell_far_end(lane->in);
    }
}

static int is_ready(const struct lane *lane, int flags)
{
    if ((flags & A_RECV) && !fifo_has(lane->in->fifo, lane->in->step))
        return 0;
    return !(flags & A_SEND) || fifo_has_room(lane->out->fifo, lane->out->step, (uint32_t)lane->depth);
}

/* Returns 1 when the lane moved on; *deadline_ns is lowered to the end of a copy under way. */
static int advance_lane(struct rank *self, struct lane *lane, uint64_t now, uint64_t *deadline_ns)
{
    struct slice slice = current_slice(lane);
    int flags = slice.action->flags;
    if (lane->copy_end_ns == 0) {
        if (!is_ready(lane, flags))
            return 0;
        lane->copy_end_ns = gpu_copy_end_ns(self, flags & A_RECV ? lane->in : NULL, flags & A_SEND ? lane->out : NULL,
                                            slice.n * sizeof(float), now);
    }
    if (now + SHORT_COPY_NS < lane->copy_end_ns) {
        *deadline_ns = lane->copy_end_ns < *deadline_ns ? lane->copy_end_ns : *deadline_ns;
        return 0;
    }
    move_numbers(self, lane, slice);
    pass_buffers_on(lane, slice);
    lane->copy_end_ns = 0;
    if (++lane->slice == lane->slices_per_action) {
        lane->slice = 0;
        lane->action++;
    }
    return 1;
}

static void run_lanes(struct rank *self, struct kernel *kernel, struct bell *bell)
{
    for (;;) {
        uint32_t seen = bell_read(bell);
        uint64_t now = now_ns(), deadline_ns = NEVER_NS;
        int n_running = 0, n_moved = 0;
        for (int i = 0; i < kernel->n_lanes; i++) {
            struct lane *lane = kernel->lanes[i];
            if (lane->action == lane->n_actions)
                continue;
            n_running++;
            n_moved += advance_lane(self, lane, now, &deadline_ns);
        }
        if (n_running == 0)
            return;
        if (n_moved == 0)
            bell_wait(bell, seen, deadline_ns);
    }
}

void kernel_run(struct rank *self, struct kernel *kernel, struct bell *bell)
{
    for (int i = 0; i < kernel->n_ops; i++)
        pattern_fill(&kernel->ops[i]);
    report_begun(kernel->report);
    run_lanes(self, kernel, bell);
    report_ended(kernel->report);
    for (int i = 0; i < kernel->n_ops; i++)
        pattern_check(self, &kernel->ops[i]);
    for (int i = 0; i < kernel->n_lanes; i++) {
        free(kernel->lanes[i]->actions);
        free(kernel->lanes[i]);
    }
    free(kernel);
}
