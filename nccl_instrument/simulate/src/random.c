/* Random numbers as a hash of what they are for. Nothing then depends on the order of calls: a fault changes what it
 * touches and no other rank's jitter, and a seed reproduces a run. */
#include <math.h>

#include "sim.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t hash(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = mix(sim->settings.seed * UINT64_C(0x9e3779b97f4a7c15) + a);
    return mix(mix(x + b * UINT64_C(0xd1342543de82ef95)) + c * UINT64_C(0x2545f4914f6cdd1d));
}

double random_unit(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c)
{
    return (double)(hash(sim, a, b, c) >> 11) / 9007199254740992.0;
}

/* Sum of four uniforms, mean 0 and deviation 1: near enough to normal, and bounded. */
double random_around(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t bits = hash(sim, a, b, c);
    double sum = -2;
    for (int i = 0; i < 4; i++)
        sum += (double)(bits >> 16 * i & 0xffff) / 65536.0;
    return sum * 1.7320508;
}

double random_exponential(const struct sim *sim, uint64_t a, uint64_t b, uint64_t c)
{
    return -log(1 - random_unit(sim, a, b, c));
}
