/* Provides reductions by their definition, in long double. */
#ifndef REDUCE_PLAIN_H
#define REDUCE_PLAIN_H

#include <math.h>
#include <stdlib.h>

#include "reduce/reduce.h"

static inline int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One result by its definition; the sum in long double, large values apart. */
static inline void expect(const double *data, size_t n, size_t inner, spx_reduce_op op, double *line, double *value,
                          int64_t *index, uint64_t *count)
{
    long double sum = 0, large = 0;
    size_t m = 0;
    *value = 0;
    *index = 0;
    for (size_t a = 0; a < n; a++) {
        const double x = data[a * inner];
        if (!isfinite(x))
            continue;
        if (m == 0 || ((op == SPX_REDUCE_MINIMUM || op == SPX_REDUCE_ARGMIN) ? x < *value : x > *value)) {
            *value = x;
            *index = (int64_t)a;
        }
        *(fabs(x) > 1e10 ? &large : &sum) += (long double)x;
        line[m++] = x;
    }
    sum += large;
    *count = m;
    qsort(line, m, sizeof *line, ascending);
    if (op == SPX_REDUCE_SUM || op == SPX_REDUCE_MEAN)
        *value = (double)(op == SPX_REDUCE_SUM || m == 0 ? sum : sum / (long double)m);
    if (op == SPX_REDUCE_MEDIAN)
        *value = m == 0 ? 0 : m % 2 == 1 ? line[m / 2] : line[m / 2 - 1] + (line[m / 2] - line[m / 2 - 1]) / 2;
    if (op != SPX_REDUCE_ARGMIN && op != SPX_REDUCE_ARGMAX && op != SPX_REDUCE_MINIMUM && op != SPX_REDUCE_MAXIMUM)
        *index = 0;
}

#endif
