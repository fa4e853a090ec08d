/* Whole-trace extraction for processors with AVX2; compiled for them by the Makefile, used where they are found. */
#include "extract/trace/trace.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL           4
#define SPX_KERNELS      avx2
#define SPX_KERNELS_NAME "avx2"
#include "extract/trace/kernels.inc"

const spx_trace_kernels *spx_trace_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_trace_kernels *spx_trace_kernels_avx2(void)
{
    return NULL;
}
#endif
