/* Provides a bundle of the fit of PSFs as the kernels of a device see it. */
#ifndef SPX_PSFFIT_CUDA_PROBLEM_CUH
#define SPX_PSFFIT_CUDA_PROBLEM_CUH

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"

#define restrict __restrict__
extern "C" {
#include "psf/psf_math.h"
#include "psffit/step_math.h"
}
#undef restrict

namespace spx_pf
{

using spx::FULL;
using spx::WARP;

constexpr int THREADS = 128; /* of most blocks */
constexpr int WARPS = THREADS / WARP;

/* A line, and the group that it is in. */
struct line {
    double wave, term[SPX_PF_MOST_TRACE];
    int weak, free;  /* as in spx_pf_line */
    int first, last; /* lines of the group */
    int quiet;       /* all of the group are weak */
    int band;        /* first B-spline that the group touches, and how many (border.cuh) */
    int nband;
    size_t factor; /* of the group's matrix, among the factors of an exposure */
    size_t border; /* of its rows of the border */
};

/* spx_pf_state. Spots are [nexp][nl][nf]. */
struct state {
    double *theta;
    spx_pf_at *at;
    double *gx, *gy, *c, *spot, *flux, *factor, *light;
    int *rows; /* [nexp nl][2] first row of a line's spots, and the one after the last */
    int *bad;  /* not 0: a width or a place is out of range */
};

/* The bundle. Arrays of pixels are [nexp][height][width]. */
struct problem {
    int deg, norder, nc, nq, hx, hy, nx, ny, npix, ntr, na, nb, side;
    int nf, nl, nexp, nshift, reach, wide, nknot;
    int n, ns, active; /* columns of a pass, those of the shape of one term in wavelength, and its local parameters */
    int steps, nstep;  /* rows between profiles that are given */
    long height, width, x0;
    size_t shift0, free0, shape0, nground, nfactor;
    double wmin, wmax;
    const line *lines;
    const double *vterm, *slope;
    const double *doubt; /* [nf] spx_pf_bundle */
    const double *fixed; /* the shape of each spot, where it is the start's, [nl][nf][2 + nc]; NULL: it is free */
    const double
        *series; /* then Legendre series of the same, [nf][2 + nc][ndeg], of wavelengths from start0 to start1 */
    int ndeg;
    double start0, start1;
    const float *data, *noise;
    const float *soft;              /* noise with the floor of the weights (spx_pf_soften()); NULL: there is none */
    float *median, *root, *profile; /* profile [nexp][height][nf][wide] */
    double *ground, *goal;
    uint8_t *rejected;
    int32_t *first; /* column of a profile [nexp][height][nf] */
    double *stamp;  /* [nexp nl nf][npix]: root S */
    double *sums;   /* results for the host */
    double *work;   /* [nexp height][2] sums of rows */
    int *bad;       /* not 0: a matrix is not positive definite */
};

__device__ inline size_t spots_of(const problem &p)
{
    return (size_t)p.nl * (size_t)p.nf;
}

__device__ inline size_t pixels_of(const problem &p)
{
    return (size_t)p.height * (size_t)p.width;
}

/* Sum over a block of THREADS, in all of its threads. */
__device__ inline double sum_block(double v)
{
    __shared__ double part[WARPS];
    v = spx::warp_sum(v);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < WARPS; i++)
        v += part[i];
    return v;
}

/* out[k] = sum of n values v[.][stride] from v + k on, for each block k. */
__global__ void __launch_bounds__(THREADS) total_kernel(const double *v, size_t n, int stride, double *out)
{
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += THREADS)
        sum += v[i * (size_t)stride + blockIdx.x];
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

} // namespace spx_pf

#endif
