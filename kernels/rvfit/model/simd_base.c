/* The heavy loops of the velocity fit for any processor. */
#include "rvfit/model/model.h"

#define SPX_VL      2
#define SPX_KERNELS base
#include "rvfit/model/lanes.h"

const spx_rv_kernels *spx_rv_kernels_base(void)
{
    return &base;
}
