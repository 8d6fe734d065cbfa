#define _DEFAULT_SOURCE
/* What engine.py calls: make a job, let time pass, read what an agent would see at this moment. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

struct sim *sim_new(const struct settings *settings, const struct rank_spec *ranks, const int64_t *nic_rates,
                    const struct group_spec *groups, const struct member_spec *members, const struct link_spec *links,
                    const struct lane_spec *lanes, const struct class_spec *classes, const struct task_spec *tasks,
                    const int32_t *stream_tasks, const struct op_spec *specs, const struct action *actions);
void sim_free(struct sim *sim);
void sim_befall(struct sim *sim, const struct action *actions, int64_t n);
int64_t sim_run(struct sim *sim, int64_t until_ns, int64_t calls_max);
int64_t sim_served(const struct sim *sim);
void sim_sizes(int64_t *sizes);
int64_t sim_flows(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct flow_row *rows, int64_t rows_max);
int64_t sim_live_ops(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct op_row *rows, int64_t rows_max);
int64_t sim_progress(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct progress_row *rows, int64_t rows_max);
void sim_processes(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct process_row *rows);
int64_t sim_finished(struct sim *sim, struct op_row *rows, int64_t rows_max);
int64_t sim_steps(struct sim *sim, struct step_row *rows, int64_t rows_max);
void sim_nics(struct sim *sim, uint64_t *counted, uint8_t *is_down);

/* Large tables are visited at random: with pages of 2 MiB the processor finds them without a walk each time. */
static void *zeroed(int64_t n, size_t size)
{
    size_t bytes = (size_t)largest(n, 1) * size, page = 2u << 20;
    if (bytes < 2 * page)
        page = 64;
    bytes = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, bytes);
    if (memory == NULL)
        abort();
    if (page > 64)
        madvise(memory, bytes, MADV_HUGEPAGE);
    return memset(memory, 0, bytes);
}

static void *copied(const void *from, int64_t n, size_t size)
{
    void *memory = zeroed(n, size);
    memcpy(memory, from, (size_t)n * size);
    return memory;
}

static void end_new(struct end *end, int is_send)
{
    *end = (struct end){.first = NONE, .last = NONE, .is_send = (uint8_t)is_send};
}

static void make_parts(struct sim *sim, const struct rank_spec *ranks, const int64_t *nic_rates,
                       const struct group_spec *groups, const struct member_spec *members, const struct link_spec *links,
                       const struct lane_spec *lanes)
{
    int32_t widest = 1;
    for (int32_t i = 0; i < sim->settings.n_ranks; i++) {
        struct rank *rank = &sim->ranks[i];
        *rank = (struct rank){.spec = ranks[i], .compute_factor = 1, .copy_factor = 1, .dma_factor = 1, .expert_factor = {1, 1},
                              .background = 1, .mismatch_at = NONE, .first_live = NONE};
    }
    for (int32_t i = 0; i < sim->settings.n_nics; i++)
        sim->nics[i] = (struct nic){.bytes_per_s = nic_rates[i], .share = 1, .wire_share = 1, .pcie_share = 1};
    for (int32_t i = 0; i < sim->settings.n_groups; i++) {
        sim->groups[i].spec = groups[i];
        widest = (int32_t)largest(widest, groups[i].n_ranks);
    }
    for (int32_t i = 0; i < sim->settings.n_members; i++) {
        sim->members[i].spec = members[i];
        memset(sim->members[i].recent, 0xff, sizeof sim->members[i].recent);
    }
    for (int32_t i = 0; i < sim->settings.n_links; i++) {
        sim->links[i].spec = links[i];
        end_new(&sim->links[i].send, 1);
        end_new(&sim->links[i].receive, 0);
    }
    for (int32_t i = 0; i < sim->settings.n_lanes; i++)
        sim->lanes[i].spec = lanes[i];
    sim->parts = zeroed(2 * (int64_t)widest, sizeof *sim->parts);
    sim->weights = zeroed(widest, sizeof *sim->weights);
}

/* Lists, for each rank, what belongs to it: counted, summed up, filled in. */
static void list_by_rank(const struct sim *sim, int64_t n, int32_t (*rank_of)(const struct sim *, int64_t), int32_t **list,
                         int32_t **first)
{
    int32_t *starts = zeroed(sim->settings.n_ranks + 2, sizeof *starts), *found = zeroed(n, sizeof *found);
    for (int64_t i = 0; i < n; i++)
        if (rank_of(sim, i) != NONE)
            starts[rank_of(sim, i) + 2]++;
    for (int32_t i = 2; i < sim->settings.n_ranks + 2; i++)
        starts[i] += starts[i - 1];
    for (int64_t i = 0; i < n; i++)
        if (rank_of(sim, i) != NONE)
            found[starts[rank_of(sim, i) + 1]++] = (int32_t)i;
    *list = found;
    *first = starts;
}

static int32_t rank_of_end(const struct sim *sim, int64_t end)
{
    const struct link_spec *spec = &sim->links[end / 2].spec;
    if (!spec->is_network)
        return NONE;
    return end % 2 ? spec->to_rank : spec->from_rank;
}

static int32_t rank_of_member(const struct sim *sim, int64_t member)
{
    return sim->members[member].spec.rank;
}

struct sim *sim_new(const struct settings *settings, const struct rank_spec *ranks, const int64_t *nic_rates,
                    const struct group_spec *groups, const struct member_spec *members, const struct link_spec *links,
                    const struct lane_spec *lanes, const struct class_spec *classes, const struct task_spec *tasks,
                    const int32_t *stream_tasks, const struct op_spec *specs, const struct action *actions)
{
    struct sim *sim = zeroed(1, sizeof *sim);
    sim->settings = *settings;
    sim->free_op = sim->free_proxy_op = NONE;
    sim->pause_at = NONE;
    calls_new(&sim->calls);
    sim->ranks = zeroed(settings->n_ranks, sizeof *sim->ranks);
    sim->nics = zeroed(settings->n_nics, sizeof *sim->nics);
    sim->groups = zeroed(settings->n_groups, sizeof *sim->groups);
    sim->members = zeroed(settings->n_members, sizeof *sim->members);
    sim->links = zeroed(settings->n_links, sizeof *sim->links);
    sim->lanes = zeroed(settings->n_lanes, sizeof *sim->lanes);
    sim->classes = copied(classes, settings->n_classes, sizeof *classes);
    sim->tasks = copied(tasks, settings->n_tasks, sizeof *tasks);
    sim->stream_tasks = copied(stream_tasks, settings->n_tasks, sizeof *stream_tasks);
    sim->specs = copied(specs, settings->n_specs, sizeof *specs);
    sim->actions = copied(actions, settings->n_actions, sizeof *actions);
    make_parts(sim, ranks, nic_rates, groups, members, links, lanes);
    list_by_rank(sim, 2 * (int64_t)settings->n_links, rank_of_end, &sim->rank_ends, &sim->rank_ends_first);
    list_by_rank(sim, settings->n_members, rank_of_member, &sim->rank_members, &sim->rank_members_first);
    for (int32_t i = 0; i < settings->n_actions; i++)
        call_at(sim, actions[i].at_ns, C_ACTION, i);
    for (int32_t i = 0; i < settings->n_ranks; i++)
        call_at(sim, 1, C_HOST, i);
    return sim;
}

/* More turns of fate, none of them in the past. */
void sim_befall(struct sim *sim, const struct action *actions, int64_t n)
{
    int32_t known = sim->settings.n_actions;
    struct action *all = zeroed(known + n, sizeof *all);
    memcpy(all, sim->actions, (size_t)known * sizeof *all);
    memcpy(all + known, actions, (size_t)n * sizeof *all);
    free(sim->actions);
    sim->actions = all;
    sim->settings.n_actions += (int32_t)n;
    for (int32_t i = known; i < sim->settings.n_actions; i++)
        call_at(sim, all[i].at_ns, C_ACTION, i);
}

void sim_free(struct sim *sim)
{
    void *parts[] = {sim->deferred, sim->ranks, sim->nics, sim->groups, sim->members, sim->links, sim->lanes, sim->classes,
                     sim->tasks, sim->stream_tasks, sim->specs, sim->actions, sim->rank_ends, sim->rank_ends_first,
                     sim->rank_members, sim->rank_members_first, sim->ops, sim->proxy_ops, sim->finished, sim->steps, sim->slices, sim->parts,
                     sim->weights};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    calls_free(&sim->calls);
    free(sim);
}

static void fall_asleep(struct sim *sim, int32_t at)
{
    struct rank *rank = &sim->ranks[at];
    if (rank->sleep_every_ns == 0)
        return;
    double wait = random_exponential(sim, 5, (uint64_t)at, (uint64_t)sim->now) * (double)rank->sleep_every_ns;
    rank->asleep_until_ns = largest(rank->asleep_until_ns, sim->now + rank->sleep_ns);
    call_at(sim, rank->asleep_until_ns, C_WAKE, at);
    call_at(sim, rank->asleep_until_ns + (int64_t)wait, C_SLEEP, at);
}

static void serve(struct sim *sim, enum call_kind kind, int32_t what)
{
    switch (kind) {
    case C_COPY: lane_copied(sim, what); break;
    case C_START:
        sim->links[what].has_start_call = 0;
        path_start(sim, what);
        break;
    case C_ARRIVE: path_arrive(sim, what); break;
    case C_ACK:
        sim->links[what].has_ack_call = 0;
        proxy_touch(sim, what, 0);
        if (sim->links[what].waits_room)
            lane_try(sim, sim->links[what].spec.from_lane);
        break;
    case C_CREDIT:
        sim->links[what].has_credit_call = 0;
        proxy_touch(sim, what, 0);
        break;
    case C_FLUSH: proxy_touch(sim, what, 1); break;
    case C_COMPUTE: stream_task_done(sim, what / N_STREAMS, what % N_STREAMS); break;
    case C_BARRIER: barrier_done(sim, what); break;
    case C_HOST: host_resume(sim, what); break;
    case C_WAKE:
        sim->ranks[what].has_wake = 0;
        proxy_look(sim, what);
        break;
    case C_SLEEP: fall_asleep(sim, what); break;
    case C_ACTION: action_apply(sim, what); break;
    }
}

#define LOOK_AHEAD 4 /* calls */

static void prefetch(const void *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)memory + at);
}

/* What is served next is in another corner of memory: fetched while the calls before it are served, a lane before its
 * links, which it names. */
static void prefetch_next(const struct sim *sim)
{
    const struct calls *calls = &sim->calls;
    for (int64_t i = 1; i <= LOOK_AHEAD; i += LOOK_AHEAD - 1) {
        if (calls->next_due + i >= calls->n_due)
            return;
        uint32_t code = calls->due[calls->next_due + i].code;
        enum call_kind kind = (enum call_kind)(code >> 28);
        int32_t what = (int32_t)(code & 0xfffffff);
        if (kind == C_COPY && i == LOOK_AHEAD) {
            prefetch(&sim->lanes[what], sizeof(struct lane));
        } else if (kind == C_COPY) {
            const struct lane_spec *lane = &sim->lanes[what].spec;
            if (lane->in[0] != NONE)
                prefetch(&sim->links[lane->in[0]], sizeof(struct link));
            if (lane->out[0] != NONE)
                prefetch(&sim->links[lane->out[0]], sizeof(struct link));
        } else if (i == 1 && (kind == C_START || kind == C_ARRIVE || kind == C_ACK || kind == C_CREDIT || kind == C_FLUSH)) {
            prefetch(&sim->links[what], sizeof(struct link));
        }
    }
}

/* Lets time pass until until_ns, or calls_max calls; returns the time reached. */
int64_t sim_run(struct sim *sim, int64_t until_ns, int64_t calls_max)
{
    struct call call;
    for (int64_t n = 0; n < calls_max; n++) {
        if (!call_next(sim, until_ns, &call)) {
            sim->now = until_ns;
            break;
        }
        sim->now = call.ns;
        sim->n_served++;
        prefetch_next(sim);
        serve(sim, (enum call_kind)(call.code >> 28), (int32_t)(call.code & 0xfffffff));
    }
    return sim->now;
}

int64_t sim_served(const struct sim *sim)
{
    return (int64_t)sim->n_served;
}

/* So that engine.py can refuse a library built from other structs. */
void sim_sizes(int64_t *sizes)
{
    size_t all[] = {sizeof(struct settings), sizeof(struct rank_spec), sizeof(struct group_spec), sizeof(struct member_spec),
                    sizeof(struct link_spec), sizeof(struct lane_spec), sizeof(struct class_spec), sizeof(struct task_spec),
                    sizeof(struct op_spec), sizeof(struct action), sizeof(struct op_row), sizeof(struct flow_row),
                    sizeof(struct progress_row), sizeof(struct process_row), sizeof(struct step_row), sizeof(struct slice_row),
                    sizeof(struct transfer_row)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sizes[i] = (int64_t)all[i];
}

/* ---- what an agent sees ---- */

static struct flow_row flow_row(const struct sim *sim, const struct link *link, int is_receive, const struct proxy_op *queued,
                                int is_front)
{
    const struct end *end = is_receive ? &link->receive : &link->send;
    const struct op_row *op = &sim->ops[queued->op].row;
    struct flow_row row = {.rank = op->rank, .group = op->group, .place = op->place, .func = op->func,
                           .number = op->number, .channel = link->spec.channel, .direction = is_receive,
                           .flags = op->flags & OP_P2P, .peer = is_receive ? link->spec.from : link->spec.to,
                           .total = queued->n_steps, .stuck_ns = largest(sim->now - queued->queued_ns, 0)};
    if (!is_front || !end->is_begun)
        return row;
    memcpy(row.counters, end->count, sizeof row.counters);
    row.bytes = (int64_t)end->bytes;
    row.gpu_wait_ns = end->gpu_wait_ns;
    row.peer_wait_ns = end->peer_wait_ns;
    row.net_wait_ns = end->net_wait_ns;
    if (end->last_progress_ns > 0)
        row.stuck_ns = largest(sim->now - end->last_progress_ns, 0);
    return row;
}

/* Every flow of these ranks in progress; a polling proxy has seen all acknowledgements that have come. */
int64_t sim_flows(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct flow_row *rows, int64_t rows_max)
{
    int64_t n = 0;
    for (int64_t r = 0; r < n_ranks; r++) {
        for (int32_t i = sim->rank_ends_first[ranks[r]]; i < sim->rank_ends_first[ranks[r] + 1]; i++) {
            int32_t is_receive = sim->rank_ends[i] % 2, at = sim->rank_ends[i] / 2;
            struct link *link = &sim->links[at];
            struct end *end = is_receive ? &link->receive : &link->send;
            if (end->first != NONE && !is_receive && proxy_is_polling(sim, &sim->ranks[ranks[r]]))
                proxy_touch(sim, at, 0);
            int is_front = 1;
            for (int32_t p = end->first; p != NONE; p = sim->proxy_ops[p].next, is_front = 0, n++)
                if (n < rows_max)
                    rows[n] = flow_row(sim, link, is_receive, &sim->proxy_ops[p], is_front);
        }
    }
    return n;
}

int64_t sim_live_ops(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct op_row *rows, int64_t rows_max)
{
    int64_t n = 0;
    for (int64_t r = 0; r < n_ranks; r++)
        for (int32_t at = sim->ranks[ranks[r]].first_live; at != NONE; at = sim->ops[at].next, n++)
            if (n < rows_max)
                rows[n] = sim->ops[at].row;
    return n;
}

int64_t sim_progress(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct progress_row *rows, int64_t rows_max)
{
    int64_t n = 0;
    for (int64_t r = 0; r < n_ranks; r++) {
        for (int32_t i = sim->rank_members_first[ranks[r]]; i < sim->rank_members_first[ranks[r] + 1]; i++, n++) {
            const struct member *m = &sim->members[sim->rank_members[i]];
            if (n < rows_max)
                rows[n] = (struct progress_row){m->spec.rank, m->spec.group, m->spec.place, m->network_seen,
                                                (int64_t)m->n_enqueued, (int64_t)m->n_done, (int64_t)m->n_p2p_enqueued,
                                                (int64_t)m->n_p2p_done, m->last_enqueued_ns, m->last_done_ns,
                                                m->heard.n_begun, m->heard.n_open, m->heard.last_ns};
        }
    }
    return n;
}

void sim_processes(struct sim *sim, const int32_t *ranks, int64_t n_ranks, struct process_row *rows)
{
    for (int64_t r = 0; r < n_ranks; r++) {
        const struct rank *rank = &sim->ranks[ranks[r]];
        rows[r] = (struct process_row){ranks[r], rank->is_frozen, rank->is_killed, rank->iteration, rank->last_callback_ns,
                                       io_bytes_now(sim, rank)};
    }
}

/* Records of ops that ended since the last call; rows beyond rows_max stay for the next one. */
int64_t sim_finished(struct sim *sim, struct op_row *rows, int64_t rows_max)
{
    int64_t n = sim->n_finished;
    if (rows == NULL)
        return n;
    n = n < rows_max ? n : rows_max;
    memcpy(rows, sim->finished, (size_t)n * sizeof *rows);
    memmove(sim->finished, sim->finished + n, (size_t)(sim->n_finished - n) * sizeof *rows);
    sim->n_finished -= n;
    return n;
}

/* What was recorded since the last call. rows may be NULL to ask how many there are. */
int64_t sim_steps(struct sim *sim, struct step_row *rows, int64_t rows_max)
{
    int64_t n = sim->n_steps;
    if (rows == NULL)
        return n;
    n = n < rows_max ? n : rows_max;
    memcpy(rows, sim->steps, (size_t)n * sizeof *rows);
    memmove(sim->steps, sim->steps + n, (size_t)(sim->n_steps - n) * sizeof *rows);
    sim->n_steps -= n;
    return n;
}

/* counted: bytes received and sent by every NIC, of whomever, and ns that its port waited. */
void sim_nics(struct sim *sim, uint64_t *counted, uint8_t *is_down)
{
    for (int32_t i = 0; i < sim->settings.n_nics; i++) {
        uint64_t others = others_bytes_now(sim, &sim->nics[i]);
        counted[3 * i] = sim->nics[i].rx_bytes + others;
        counted[3 * i + 1] = sim->nics[i].tx_bytes + others;
        counted[3 * i + 2] = waited_now(sim, &sim->nics[i]);
        is_down[i] = sim->nics[i].is_down;
    }
}
