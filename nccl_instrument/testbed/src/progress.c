/* NCCL's sendProxyProgress and recvProxyProgress, told again: same order of checks, same profiler calls (progress.h).
 * A refused send is announced on every pass, as are receives that cannot be posted yet: plugins must bear both. */
#define _GNU_SOURCE
#include "progress.h"

#include "sent_log.h"
#include "transport.h"

static void tell_gpu(struct rank *self, struct flow *flow)
{
    bell_ring(rank_bell(self, self->rank, (int)flow->comm->stream));
}

static void begin(struct proxy_op *op)
{
    op->base = op->flow->base;
    profiler_record_op(op->handle, OP_IN_PROGRESS);
    op->is_started = 1;
}

static void record_step(struct proxy_op *op, uint32_t step, enum proxy_state state)
{
    profiler_record_step(op->steps[step % N_SLOTS], state, op->size_bytes);
}

static void stop_step(struct proxy_op *op, uint32_t step)
{
    profiler_stop(op->steps[step % N_SLOTS]);
    op->steps[step % N_SLOTS] = NULL;
}

static int offer_buffer_to_gpu(struct proxy_op *op)
{
    uint32_t step = op->posted;
    if (step == op->n_steps || step >= op->done + op->depth)
        return 0;
    op->steps[step % N_SLOTS] = profiler_start_step(&op->flow->comm->profiled, op->handle, (int)step);
    record_step(op, step, STEP_SEND_GPU_WAIT);
    op->posted++;
    profiler_record_op_steps(op->handle, OP_SEND_POSTED, (int)op->posted, op->total_bytes);
    return 1;
}

static int send_ready_slice(struct rank *self, struct proxy_op *op)
{
    uint32_t step = op->transmitted, place = op->base + step;
    struct fifo *fifo = op->flow->link.fifo;
    if (step == op->posted || !fifo_has(fifo, place))
        return 0;
    record_step(op, step, STEP_SEND_PEER_WAIT); /* with the previous slice's size, as NCCL does */
    profiler_record_op_steps(op->handle, OP_SEND_REM_FIFO_WAIT, (int)step + 1, op->total_bytes);
    uint32_t size_bytes = fifo->size_bytes[place % N_SLOTS];
    uint64_t after_ns = now_ns();
    op->is_refused = !transport_isend(self, op->flow, place, size_bytes);
    if (op->is_refused)
        return 0;
    op->size_bytes = size_bytes;
    op->total_bytes += size_bytes;
    record_step(op, step, STEP_SEND_WAIT);
    op->sent[step % N_SLOTS] = (struct sent_slice){after_ns, now_ns(), size_bytes};
    op->transmitted++;
    profiler_record_op_steps(op->handle, OP_SEND_TRANSMITTED, (int)op->transmitted, op->total_bytes);
    return 1;
}

static int free_sent_slice(struct rank *self, struct proxy_op *op)
{
    uint32_t step = op->done;
    if (step == op->transmitted)
        return 0;
    uint64_t after_ns = now_ns();
    if (!transport_is_sent(self, op->flow, op->base + step))
        return 0;
    stop_step(op, step);
    sent_log_append(self, op, step, after_ns);
    op->done++;
    profiler_record_op_steps(op->handle, OP_SEND_DONE, (int)op->done, op->total_bytes);
    atomic_store(&op->flow->link.fifo->head, op->base + op->done);
    tell_gpu(self, op->flow);
    return 1;
}

int progress_send(struct rank *self, struct proxy_op *op)
{
    if (!op->is_started)
        begin(op);
    return offer_buffer_to_gpu(op) || send_ready_slice(self, op) || free_sent_slice(self, op);
}

static int post_receive(struct rank *self, struct proxy_op *op)
{
    uint32_t step = op->posted;
    if (step == op->n_steps || step >= op->done + op->depth)
        return 0;
    op->steps[step % N_SLOTS] = profiler_start_step(&op->flow->comm->profiled, op->handle, (int)step);
    op->is_refused = !transport_irecv(self, op->flow, op->base + step);
    if (op->is_refused)
        return 0;
    record_step(op, step, STEP_RECV_WAIT);
    op->posted++;
    profiler_record_op_steps(op->handle, OP_RECV_POSTED, (int)op->posted, op->total_bytes);
    return 1;
}

static int take_received_slice(struct rank *self, struct proxy_op *op)
{
    uint32_t step = op->received, size_bytes;
    if (step == op->posted || !transport_is_received(self, op->flow, op->base + step, &size_bytes))
        return 0;
    op->received++;
    op->size_bytes = size_bytes;
    op->total_bytes += size_bytes;
    op->flow->link.fifo->size_bytes[(op->base + step) % N_SLOTS] = size_bytes;
    record_step(op, step, STEP_RECV_FLUSH_WAIT);
    profiler_record_op_steps(op->handle, OP_RECV_RECEIVED, (int)op->received, op->total_bytes);
    return 1;
}

/* There is nothing to flush here: the data is in place as soon as it has arrived. */
static int hand_slice_to_gpu(struct rank *self, struct proxy_op *op)
{
    uint32_t step = op->flushed;
    if (step == op->received)
        return 0;
    op->flushed++;
    record_step(op, step, STEP_RECV_GPU_WAIT);
    profiler_record_op_steps(op->handle, OP_RECV_TRANSMITTED, (int)op->flushed, op->total_bytes);
    atomic_store(&op->flow->link.fifo->tail, op->base + op->flushed);
    tell_gpu(self, op->flow);
    return 1;
}

static int take_buffer_back(struct proxy_op *op)
{
    uint32_t step = op->done, place = op->base + step;
    if (step == op->flushed || (int32_t)(atomic_load(&op->flow->link.fifo->head) - place) <= 0)
        return 0;
    stop_step(op, step);
    op->done++;
    profiler_record_op_steps(op->handle, OP_RECV_DONE, (int)op->done, op->total_bytes);
    return 1;
}

int progress_receive(struct rank *self, struct proxy_op *op)
{
    if (!op->is_started)
        begin(op);
    return post_receive(self, op) || take_received_slice(self, op) || hand_slice_to_gpu(self, op) ||
           take_buffer_back(op);
}
