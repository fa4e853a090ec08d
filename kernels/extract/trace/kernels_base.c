/* Whole-trace extraction for any processor: vectors of two doubles. */
#define SPX_VL           2
#define SPX_KERNELS      base
#define SPX_KERNELS_NAME "base"
#include "extract/trace/kernels.inc"

const spx_trace_kernels *spx_trace_kernels_base(void)
{
    return &base;
}
