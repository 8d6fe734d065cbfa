/* The stage recorder beside the plugin: time of the main thread, charged to the stage it is in. Where it waits for the GPU at
 * the end of a step, as a loop does that reads its loss or the norm of its gradients, it waits for gradients first: another
 * rank's lateness then shows in the backward, where the collective that waits for it is. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int32_t stage_now(const struct sim *sim, const struct rank *rank)
{
    const struct class_spec *class = &sim->classes[rank->spec.class];
    if (rank->pc == 0)
        return STAGE_DATA; /* between two steps */
    if (rank->pc < class->n_tasks)
        return sim->tasks[class->first_task + rank->pc].stage;
    for (int i = 0; i < N_STREAMS; i++)
        if (rank->streams[i].n_done < class->before_update[i])
            return STAGE_BACKWARD;
    return STAGE_OPTIMIZER;
}

/* Called whenever the stage may have changed. */
void stage_look(struct sim *sim, struct rank *rank)
{
    rank->stage_ns[rank->stage] += sim->now - rank->stage_since_ns;
    rank->stage_since_ns = sim->now;
    rank->stage = stage_now(sim, rank);
}

void stage_step_end(struct sim *sim, int32_t at)
{
    struct rank *rank = &sim->ranks[at];
    stage_look(sim, rank);
    if (sim->n_steps == sim->steps_size) {
        sim->steps_size = sim->steps_size * 2 + 1024;
        sim->steps = realloc(sim->steps, (size_t)sim->steps_size * sizeof *sim->steps);
        if (sim->steps == NULL)
            abort();
    }
    int64_t callbacks_ns = rank->callbacks_ns < rank->stage_ns[STAGE_DATA] ? rank->callbacks_ns : rank->stage_ns[STAGE_DATA];
    rank->stage_ns[STAGE_DATA] -= callbacks_ns;
    rank->stage_ns[STAGE_CALLBACKS] += callbacks_ns;
    struct step_row *row = &sim->steps[sim->n_steps++];
    *row = (struct step_row){.rank = at, .step = rank->iteration, .ended_ns = sim->now};
    memcpy(row->stage_ns, rank->stage_ns, sizeof row->stage_ns);
    memset(rank->stage_ns, 0, sizeof rank->stage_ns);
    rank->callbacks_ns = 0;
    rank->stage = STAGE_DATA;
}
