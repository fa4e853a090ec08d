/* Provides increasing order of numbers, for qsort() and bsearch(). No value may be NaN. */
#ifndef SPX_ORDER_H
#define SPX_ORDER_H

#include <stdint.h>

static inline int spx_by_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline int spx_by_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

#endif
