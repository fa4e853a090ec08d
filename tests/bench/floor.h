/* Rates of this machine, of which benchmarks make their floors. */
#ifndef FLOOR_H
#define FLOOR_H

#include <stddef.h>

#include "base/clock.h"

/* Seconds in which one core reads n doubles once. */
static inline double floor_read(const double *r, size_t n)
{
    double part[8] = {0};
    const double begin = spx_seconds();
    for (size_t k = 0; k < n / 8; k++)
        for (size_t l = 0; l < 8; l++)
            part[l] += r[8 * k + l];
    __asm__ volatile("" : : "r"(part) : "memory"); /* the sums must not be left out */
    return spx_seconds() - begin;
}

/* Products of two operands with a sum, a second, of one core whose arrays lie in the first cache. */
static inline double floor_products(void)
{
    enum { N = 256, TIMES = 200000 };
    static double a[N], b[N], c[N];
    for (int i = 0; i < N; i++)
        a[i] = b[i] = 1e-3 * i;
    const double begin = spx_seconds();
    for (int t = 0; t < TIMES; t++) {
#pragma omp simd
        for (int i = 0; i < N; i++)
            c[i] += a[i] * b[i];
        __asm__ volatile("" : : "r"(c) : "memory");
    }
    return (double)N * TIMES / (spx_seconds() - begin);
}

#endif
