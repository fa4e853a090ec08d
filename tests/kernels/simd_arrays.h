/* Operations of kernels/simd over arrays, one table for each instruction set, for test_simd: simd_arrays.inc, compiled
 * as simd_base.c, simd_avx2.c and simd_avx512.c with the flags of the kernels. n is a multiple of 16. */
#ifndef SIMD_ARRAYS_H
#define SIMD_ARRAYS_H

#include <stddef.h>

typedef struct {
    const char *name;
    size_t lanes;
    void (*exp)(size_t n, const double *x, double *y);
    void (*log)(size_t n, const double *x, double *y);
    void (*half_erf)(size_t n, const double *x, double *y, double *gauss);
    void (*expf)(size_t n, const float *x, float *y);
    void (*clamp)(size_t n, const double *x, double low, double high, double *y);
    void (*choose)(size_t n, const double *x, const double *y, double *greater, double *magnitude);
    /* of one vector */
    double (*sum_lanes)(const double *x);
    double (*sum_in_order)(const double *x);
    int (*any_above)(const double *x, double limit);
    int (*all_above)(const double *x, double limit);
} simd_arrays;

/* NULL: not for this processor. */
const simd_arrays *simd_base(void);
const simd_arrays *simd_avx2(void);
const simd_arrays *simd_avx512(void);

#endif
