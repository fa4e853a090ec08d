/* Root of N for processors with AVX-512; compiled for them by the Makefile, used where they are found. */
#include "coadd/coadd_lanes.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL           8
#define SPX_KERNELS      avx512
#define SPX_KERNELS_NAME "avx512"
#include "coadd/coadd_root.inc"

const spx_coadd_kernels *spx_coadd_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_coadd_kernels *spx_coadd_kernels_avx512(void)
{
    return NULL;
}
#endif
