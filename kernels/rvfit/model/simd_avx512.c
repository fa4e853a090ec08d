/* The heavy loops of the velocity fit for processors with AVX-512; compiled for them by the Makefile, used where they
 * are found. */
#include "rvfit/model/model.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL      8
#define SPX_KERNELS avx512
#include "rvfit/model/lanes.h"

const spx_rv_kernels *spx_rv_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_rv_kernels *spx_rv_kernels_avx512(void)
{
    return NULL;
}
#endif
