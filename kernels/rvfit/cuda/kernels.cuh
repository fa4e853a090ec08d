/* Kernels of the velocity fit for CUDA devices. What they compute is what model/model.c and search/ccf.c do; sums have
 * a fixed order that depends on nothing but the star. Products are fused where it is written out: fma().
 *
 * Values that fix the minimum (templates, splines of templates, sums over pixels) are double precision; derivatives of
 * templates, which only tell the search where to go and how wide the minimum is, are kept in single precision. */
#ifndef SPX_RVFIT_CUDA_KERNELS_CUH
#define SPX_RVFIT_CUDA_KERNELS_CUH

#include "rvfit/cuda/types.cuh"

/* What follows needs what is above it, and what comes before. */

#include "rvfit/cuda/coarsen.cuh"

#include "rvfit/cuda/coefficients.cuh"

#include "rvfit/cuda/components.cuh"

#include "rvfit/cuda/resample.cuh"

#include "rvfit/cuda/pixels.cuh"

#include "rvfit/cuda/scan.cuh"

#include "rvfit/cuda/value.cuh"

#include "rvfit/cuda/ccf.cuh"

#include "rvfit/cuda/spectrum.cuh"

#include "rvfit/cuda/jitter.cuh"

#include "rvfit/cuda/inform.cuh"

#include "rvfit/cuda/read.cuh"

#include "rvfit/cuda/band.cuh"

#include "rvfit/cuda/shifted.cuh"

#include "rvfit/cuda/hook.cuh"

#endif
