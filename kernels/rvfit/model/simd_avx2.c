/* The heavy loops of the velocity fit for processors with AVX2; compiled for them by the Makefile, used where they are
 * found. */
#include "rvfit/model/model.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL      4
#define SPX_KERNELS avx2
#include "rvfit/model/lanes.h"

const spx_rv_kernels *spx_rv_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_rv_kernels *spx_rv_kernels_avx2(void)
{
    return NULL;
}
#endif
