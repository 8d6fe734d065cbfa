/* What GPUs say of their kernels, as the plugin counts it (plugin/kernels.c). The proxy's thread hears of a begin or an
 * end when it polls, so one that sleeps or is stopped tells what it heard last. */
#include <stddef.h>

#include "sim.h"

static struct member *member_of(struct sim *sim, const struct rank *rank, const struct op_spec *spec)
{
    int32_t group = rank->spec.groups[spec->slot];
    return group == NONE ? NULL : &sim->members[sim->groups[group].spec.first_member + rank->spec.places[spec->slot]];
}

void kernels_hear(struct sim *sim, int32_t at)
{
    for (int32_t i = sim->rank_members_first[at]; i < sim->rank_members_first[at + 1]; i++) {
        struct member *member = &sim->members[sim->rank_members[i]];
        if (member->heard.n_begun == member->kernels.n_begun && member->heard.n_open == member->kernels.n_open)
            continue;
        member->heard = member->kernels;
        member->heard.last_ns = sim->now;
    }
}

static void hear_at_once(struct sim *sim, int32_t at)
{
    if (proxy_is_polling(sim, &sim->ranks[at]))
        kernels_hear(sim, at);
}

void kernel_begins(struct sim *sim, int32_t at, int32_t stream, const struct task_spec *task)
{
    struct rank *rank = &sim->ranks[at];
    rank->streams[stream].kernel = task;
    for (int32_t i = 0; i < task->n_ops; i++) {
        const struct op_spec *spec = &sim->specs[task->first_op + i];
        struct member *member = member_of(sim, rank, spec);
        if (member == NULL)
            continue;
        member->kernels.n_begun += op_parts(sim, rank, spec);
        member->kernels.n_open += sim->groups[member->spec.group].spec.n_channels;
    }
    hear_at_once(sim, at);
}

/* Also called where the task that is over was no kernel. */
void kernel_ends(struct sim *sim, int32_t at, int32_t stream)
{
    struct rank *rank = &sim->ranks[at];
    const struct task_spec *task = rank->streams[stream].kernel;
    if (task == NULL)
        return;
    rank->streams[stream].kernel = NULL;
    for (int32_t i = 0; i < task->n_ops; i++) {
        struct member *member = member_of(sim, rank, &sim->specs[task->first_op + i]);
        if (member != NULL)
            member->kernels.n_open -= sim->groups[member->spec.group].spec.n_channels;
    }
    hear_at_once(sim, at);
}
