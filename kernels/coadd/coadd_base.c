/* Root of N for any processor: vectors of two doubles. */
#define SPX_VL           2
#define SPX_KERNELS      base
#define SPX_KERNELS_NAME "base"
#include "coadd/coadd_root.inc"

const spx_coadd_kernels *spx_coadd_kernels_base(void)
{
    return &base;
}
