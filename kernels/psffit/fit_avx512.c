/* Provides the inner loops of the normal equations for AVX-512; used where the processor has it. */
#include "psffit/fit.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_KERNELS avx512
#define SPX_VL      8
#include "psffit/fit_lanes.h"

const spx_pf_kernels *spx_pf_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_pf_kernels *spx_pf_kernels_avx512(void)
{
    return NULL;
}
#endif
