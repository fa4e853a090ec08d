/* Root of N for processors with AVX2; compiled for them by the Makefile, used where they are found. */
#include "coadd/coadd_lanes.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL           4
#define SPX_KERNELS      avx2
#define SPX_KERNELS_NAME "avx2"
#include "coadd/coadd_root.inc"

const spx_coadd_kernels *spx_coadd_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_coadd_kernels *spx_coadd_kernels_avx2(void)
{
    return NULL;
}
#endif
