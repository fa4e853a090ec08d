/* Provides the arithmetic of reductions, for host and device. */
#ifndef SPX_REDUCE_MATH_H
#define SPX_REDUCE_MATH_H

#include <stdint.h>

#include "hostdevice.h"
#include "reduce/reduce.h"

/* TwoSum: (value, rest) += x without loss: s + r = a + b exactly. */
SPX_HD void spx_reduce_two_sum(double x, double *value, double *rest)
{
    const double sum = *value + x, of_x = sum - *value;
    const double lost = (*value - (sum - of_x)) + (x - of_x);
    const double low = *rest + lost;
    *value = sum + low;
    *rest = low - (*value - sum);
}

/* Updates one result with x, element i of the axis. */
SPX_HD void spx_reduce_one(spx_reduce_op op, double x, int64_t i, double *value, double *rest, int64_t *index,
                           uint64_t *count)
{
    if (op == SPX_REDUCE_SUM || op == SPX_REDUCE_MEAN) {
        spx_reduce_two_sum(x, value, rest);
    } else if (*count == 0 || ((op == SPX_REDUCE_MINIMUM || op == SPX_REDUCE_ARGMIN) ? x < *value : x > *value)) {
        *value = x;
        *index = i;
    }
    ++*count;
}

/* Merges partial results of two parts of a line; the first argument is of the earlier part. */
SPX_HD void spx_reduce_merge(spx_reduce_op op, double x, double x_rest, int64_t i, uint64_t n, double *value,
                             double *rest, int64_t *index, uint64_t *count)
{
    if (n == 0)
        return;
    if (op == SPX_REDUCE_SUM || op == SPX_REDUCE_MEAN) {
        spx_reduce_two_sum(x, value, rest);
        spx_reduce_two_sum(x_rest, value, rest);
    } else if (*count == 0 ||
               ((op == SPX_REDUCE_MINIMUM || op == SPX_REDUCE_ARGMIN) ? x < *value || (x == *value && i < *index)
                                                                      : x > *value || (x == *value && i < *index))) {
        *value = x;
        *index = i;
    }
    *count += n;
}

#endif
