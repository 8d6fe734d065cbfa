/*
 * Division by a number that is known beforehand: a multiplication and a shift, exact for dividends below 2**63 (Granlund and
 * Montgomery 1994, theorem 4.2 with N = 63). A processor of a network card takes tens of cycles for a division, if it has one.
 */
#ifndef DG_DIVIDE_H
#define DG_DIVIDE_H

#include <stdint.h>

struct divisor {
    uint64_t times; /* 2**(63 + shift + 1) / by, rounded up */
    uint32_t shift, by;
};

/* by: at least 2. */
static inline struct divisor divisor_of(uint32_t by) {
    uint32_t bits = 32u - (uint32_t)__builtin_clz(by - 1); /* 2**bits is the power of two that is not below `by` */
    unsigned __int128 power = (unsigned __int128)1 << (63 + bits);
    return (struct divisor){(uint64_t)((power + by - 1) / by), bits - 1, by};
}

static inline uint64_t divided(uint64_t n, const struct divisor *divisor) {
    return (uint64_t)((unsigned __int128)n * divisor->times >> 64) >> divisor->shift;
}

#endif
