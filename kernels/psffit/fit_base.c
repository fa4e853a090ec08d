/* Provides the inner loops of the normal equations for any processor. */
#define SPX_KERNELS base
#define SPX_VL      2
#include "psffit/fit_lanes.h"

const spx_pf_kernels *spx_pf_kernels_base(void)
{
    return &base;
}
