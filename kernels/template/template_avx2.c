/* Provides the inner loops of the templates for AVX2: the Makefile compiles this file for it, the program chooses at
 * run time. */
#include "template/template_impl.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL      4
#define SPX_KERNELS avx2
#include "template/template_lanes.h"

const spx_template_kernels *spx_template_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_template_kernels *spx_template_kernels_avx2(void)
{
    return NULL;
}
#endif
