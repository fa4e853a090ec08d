/* Data of stars as the coarse model sees them, on CUDA devices. */
#ifndef SPX_RVFIT_CUDA_COARSEN_CUH
#define SPX_RVFIT_CUDA_COARSEN_CUH

namespace rv
{

/* Block (piece, pixels): flux and 1/e of pieces[blockIdx.x], whose arm is one of the coarse model m, from piece
 * from[blockIdx.x] of the model; 0 beyond the last pixel. */
static __global__ void __launch_bounds__(128)
    coarsen_kernel(model m, const int *from, const piece *fine, const double *fine_flux, const double *fine_ie,
                   const piece *pieces, double *flux, double *ie)
{
    const piece &d = pieces[blockIdx.x];
    const arm &a = m.arms[d.arm];
    const int i = (int)(blockIdx.y * 128 + threadIdx.x);
    if (i >= a.stride)
        return;
    const size_t at = fine[from[blockIdx.x]].pixel0 + (size_t)i * SPX_RV_BIN;
    double e = 0;
    flux[d.pixel0 + i] = i < a.n ? spx_rv_coarse_pixel(SPX_RV_BIN, fine_flux + at, fine_ie + at, &e) : 0;
    ie[d.pixel0 + i] = e;
}

} // namespace rv

#endif
