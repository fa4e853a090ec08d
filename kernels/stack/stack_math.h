/* Arithmetic of shift-and-stack that host and device share. */
#ifndef SPX_STACK_MATH_H
#define SPX_STACK_MATH_H

#include <stddef.h>
#include <stdint.h>

#include "hostdevice.h"

/* Traces whose terms are added in their own type; such sums are added in double. */
enum { SPX_STACK_BLOCK = 32 };

/* First sample of the window that trace j reaches: sample t of the window is sample t - first of the trace. */
SPX_HD int64_t spx_stack_first(int32_t offset, int32_t shift, int64_t t0)
{
    return (int64_t)offset + shift - t0;
}

/* One stack at sample t of the window, as defined (stack.h): terms in the order of the traces. `T` is float or
 * double. start, offset: of the traces; shift, weight: row of this set of shifts. */
#define SPX_STACK_DEFINE_AT(name, T)                                                                                   \
    SPX_HD double name(size_t ntrace, const uint64_t *start, const int32_t *offset, const T *data,                     \
                       const int32_t *shift, const T *weight, int64_t t0, int64_t t, double earlier)                   \
    {                                                                                                                  \
        double sum = earlier;                                                                                          \
        for (size_t block = 0; block < ntrace; block += SPX_STACK_BLOCK) {                                             \
            size_t end = ntrace - block < SPX_STACK_BLOCK ? ntrace : block + SPX_STACK_BLOCK;                          \
            T part = 0;                                                                                                \
            for (size_t j = block; j < end; j++) {                                                                     \
                int64_t i = t - spx_stack_first(offset[j], shift[j], t0);                                              \
                if (i >= 0 && (uint64_t)i < start[j + 1] - start[j])                                                   \
                    part += weight[j] * data[start[j] + (uint64_t)i];                                                  \
            }                                                                                                          \
            sum += (double)part;                                                                                       \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

#endif
