/* Provides multilinear interpolation on CUDA devices: unlike the smooth interpolators it evaluates the 2^axes templates
 * around a point themselves (template_kernel), and broadens them as rvspecfit does (finish_template() of
 * model/model.c). */
#ifndef SPX_RVFIT_CUDA_GRID_CUH
#define SPX_RVFIT_CUDA_GRID_CUH

namespace rv
{

/* Derivative by the internal unit of vsini of what the weights are derived by: h, or its square. per_kms: template
 * pixels a km/s; square_dx: derivative of vsini^2 by the internal unit, which is vsini itself in multilinear
 * interpolation. */
__device__ inline double rotation_unit(int interpolator, double per_kms, double square_dx)
{
    return interpolator == SPX_INTERPOLATE_GRID ? per_kms : square_dx * per_kms * per_kms;
}

} // namespace rv

#endif
