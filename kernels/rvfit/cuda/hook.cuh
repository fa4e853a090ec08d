/* Residuals and models of a group of stars on the device, row by row, for the hook. */
#ifndef SPX_RVFIT_CUDA_HOOK_CUH
#define SPX_RVFIT_CUDA_HOOK_CUH

#include "rvfit/cuda/types.cuh"

namespace rv
{

/* Residuals and models of pieces, a block of pixels of one each: flux, ie, good and model as the fit has them, by
 * pieces; residual and models by rows. */
static __global__ void __launch_bounds__(128)
    residual_kernel(const model m, const hook_row *list, const piece *pieces, const double *flux, const double *ie,
                    const uint8_t *good, const double *fitted, float *residual, float *models)
{
    const hook_row s = list[blockIdx.y];
    const piece p = pieces[s.piece];
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= m.arms[p.arm].n)
        return;
    const size_t at = p.pixel0 + (size_t)i;
    models[s.row + (size_t)i] = spx_rv_model(fitted[at]);
    residual[s.row + (size_t)i] = good[at] ? spx_rv_residual(flux[at], ie[at], fitted[at]) : 0.0F;
}

} // namespace rv

#endif
