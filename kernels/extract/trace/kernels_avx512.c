/* Whole-trace extraction for processors with AVX-512; compiled for them by the Makefile, used where they are found. */
#include "extract/trace/trace.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL           8
#define SPX_KERNELS      avx512
#define SPX_KERNELS_NAME "avx512"
#include "extract/trace/kernels.inc"

const spx_trace_kernels *spx_trace_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_trace_kernels *spx_trace_kernels_avx512(void)
{
    return NULL;
}
#endif
