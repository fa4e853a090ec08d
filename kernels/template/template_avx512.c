/* Provides the inner loops of the templates for AVX-512: the Makefile compiles this file for it, the program chooses at
 * run time. */
#include "template/template_impl.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL      8
#define SPX_KERNELS avx512
#include "template/template_lanes.h"

const spx_template_kernels *spx_template_kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_template_kernels *spx_template_kernels_avx512(void)
{
    return NULL;
}
#endif
