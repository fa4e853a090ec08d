/* Provides the arithmetic of shift-and-stack, for host and device. */
#ifndef SPX_STACK_MATH_H
#define SPX_STACK_MATH_H

#include <stddef.h>
#include <stdint.h>

#include "hostdevice.h"

/* Traces whose terms are summed in their own type; such partial sums are added in double. */
enum { SPX_STACK_BLOCK = 32 };

/* First sample of the window in trace j: sample t of the window is sample t - first of the trace. */
SPX_HD int64_t spx_stack_first(int32_t offset, int32_t shift, int64_t t0)
{
    return (int64_t)offset + shift - t0;
}

/* 1 when value x at index i replaces the maximum so far; the first of equal values wins. */
SPX_HD int spx_stack_before(double x, int64_t i, double most, int64_t where)
{
    return x > most || (!(x < most) && i < where);
}

#endif
