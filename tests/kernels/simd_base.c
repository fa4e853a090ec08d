/* Operations of kernels/simd for any processor. */
#include "simd_arrays.h"

#define SPX_VL   2
#define SET      base
#define SET_NAME "base"
#include "simd_arrays.inc"

const simd_arrays *simd_base(void)
{
    return &base;
}
