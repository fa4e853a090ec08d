/* Provides parts of Cholesky's factor of a matrix: panels of PANEL columns, of which a warp factors the block on the
 * diagonal, and threads solve for the rows below it. */
#ifndef SPX_PSFFIT_CUDA_CHOLESKY_CUH
#define SPX_PSFFIT_CUDA_CHOLESKY_CUH

#include "psffit/cuda/problem.cuh"

namespace spx_pf
{

constexpr int PANEL = WARP;

/* Factor of a block, by a warp: v, of each lane its row, up to the diagonal, and the same in l by rows, with 1 / L_jj
 * on its diagonal. false: it is not positive definite. */
__device__ inline bool factor_block(double (&v)[PANEL], double (*l)[PANEL + 1])
{
    const int lane = (int)threadIdx.x % WARP;
    bool positive = true;
#pragma unroll
    for (int j = 0; j < PANEL; j++) {
        const double pivot = __shfl_sync(FULL, v[j], j), by = rsqrt(pivot);
        positive = positive && pivot > 0;
        v[j] = lane < j ? 0 : v[j] * by;
        l[lane][j] = lane == j ? by : v[j];
        __syncwarp();
#pragma unroll
        for (int k = j + 1; k < PANEL; k++)
            v[k] = fma(-v[j], l[k][j], v[k]);
    }
    return positive;
}

/* A row below that block, which l has: read for each row, as registers do not have room for it. */
__device__ inline void solve_row(const double (*l)[PANEL + 1], double (&v)[PANEL])
{
    asm volatile("" ::: "memory");
#pragma unroll
    for (int k = 0; k < PANEL; k++) {
        v[k] *= l[k][k];
#pragma unroll
        for (int t = k + 1; t < PANEL; t++)
            v[t] = fma(-v[k], l[t][k], v[t]);
    }
}

} // namespace spx_pf

#endif
