/* Operations of kernels/simd for processors with AVX2. */
#include "simd_arrays.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL   4
#define SET      avx2
#define SET_NAME "avx2"
#include "simd_arrays.inc"

const simd_arrays *simd_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const simd_arrays *simd_avx2(void)
{
    return NULL;
}
#endif
