/* Operations of kernels/simd for processors with AVX-512. */
#include "simd_arrays.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL   8
#define SET      avx512
#define SET_NAME "avx512"
#include "simd_arrays.inc"

const simd_arrays *simd_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const simd_arrays *simd_avx512(void)
{
    return NULL;
}
#endif
