/* How the tokens of a mixture of experts spread over the ranks of an expert group. Each rank has a popularity that
 * lasts (per layer), a smaller part that changes every step, and a factor for a hot expert. */
#include <math.h>

#include "sim.h"

#define WOBBLE 0.2 /* of the lasting spread, anew in every step */

void moe_weights(const struct sim *sim, const struct group *group, int32_t layer, int32_t iteration, double *weights)
{
    const struct member *members = &sim->members[group->spec.first_member];
    double sum = 0, spread = sim->settings.moe_spread;
    for (int32_t i = 0; i < group->spec.n_ranks; i++) {
        uint64_t rank = (uint64_t)members[i].spec.rank;
        double lasting = random_around(sim, 11, rank, (uint64_t)layer);
        double now = random_around(sim, 12, rank, (uint64_t)layer << 32 | (uint64_t)iteration);
        double weight = 1 + spread * (lasting + WOBBLE * now);
        weights[i] = fmax(weight, 0.1) * sim->ranks[rank].expert_factor[iteration >= sim->ranks[rank].expert_at];
        sum += weights[i];
    }
    for (int32_t i = 0; i < group->spec.n_ranks; i++)
        weights[i] *= group->spec.n_ranks / sum;
}
