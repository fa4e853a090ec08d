/* Provides random numbers for tests: a fixed sequence, which begins with `random_start(seed)`. */
#ifndef RANDOM_H
#define RANDOM_H

#include <math.h>
#include <stdint.h>

static uint64_t random_state;

static inline void random_start(uint64_t seed)
{
    random_state = seed;
}

/* Within [0, 1): xorshift64 of G. Marsaglia (2003), J. Stat. Soft. 8, 14. */
static inline double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Of mean 0 and variance 1, by Box and Muller. */
static inline double gauss(void)
{
    double radius = sqrt(-2 * log(1 - uniform()));
    return radius * cos(2 * M_PI * uniform());
}

#endif
