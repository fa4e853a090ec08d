/* Provides the inner loops of the normal equations for AVX2; used where the processor has it. */
#include "psffit/fit.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_KERNELS avx2
#define SPX_VL      4
#include "psffit/fit_lanes.h"

const spx_pf_kernels *spx_pf_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_pf_kernels *spx_pf_kernels_avx2(void)
{
    return NULL;
}
#endif
