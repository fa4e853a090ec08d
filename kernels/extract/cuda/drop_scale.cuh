/* Provides the scale of the drop tolerances where bins are narrow, and how narrow they are: the functions of
 * trace/drop_scale.h; a block has a trace. */
#ifndef SPX_EXTRACT_CUDA_DROP_SCALE_CUH
#define SPX_EXTRACT_CUDA_DROP_SCALE_CUH

#include "extract/cuda/band_block.cuh"

namespace
{

/* [n][lanes] each. */
struct drop_scratch {
    double *unmasked, *around, *whole, *blocks;
};

drop_scratch take_drop_scratch(arena &m, const params &k)
{
    const size_t bins = (size_t)k.n * k.lanes;
    drop_scratch w = {};
    for (double **v : {&w.unmasked, &w.around, &w.whole, &w.blocks})
        *v = m.take<double>(bins);
    return w;
}

/* v[bin][lanes] becomes the largest within its block of SPX_TRACE_AROUND bins and the two beside it. */
__device__ void largest_around(const params &k, int column, double *v, double *blocks)
{
    const int n = (k.n + SPX_TRACE_AROUND - 1) / SPX_TRACE_AROUND;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double most = 0.0;
        for (int j = i * SPX_TRACE_AROUND; j < min((i + 1) * SPX_TRACE_AROUND, k.n); j++)
            most = fmax(most, v[(size_t)j * k.lanes + column]);
        blocks[(size_t)i * k.lanes + column] = most;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const int i = j / SPX_TRACE_AROUND;
        double most = blocks[(size_t)i * k.lanes + column];
        most = i > 0 ? fmax(most, blocks[(size_t)(i - 1) * k.lanes + column]) : most;
        most = i + 1 < n ? fmax(most, blocks[(size_t)(i + 1) * k.lanes + column]) : most;
        v[(size_t)j * k.lanes + column] = most;
    }
    __syncthreads();
}

/* Values of bins that are not whole become the largest of bins around them that are. */
__device__ void from_unmasked(const params &k, const drop_scratch &w, int column, double *v)
{
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const size_t at = (size_t)j * k.lanes + column;
        w.around[at] = w.unmasked[at] == 1.0 ? v[at] : 0.0;
    }
    __syncthreads();
    largest_around(k, column, w.around, w.blocks);
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const size_t at = (size_t)j * k.lanes + column;
        const double half = w.unmasked[at] > 0.0 ? v[at] : 0.0;
        w.around[at] = w.around[at] > 0.0 ? w.around[at] : half;
    }
    __syncthreads();
    largest_around(k, column, w.around, w.blocks);
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const size_t at = (size_t)j * k.lanes + column;
        if (w.unmasked[at] != 1.0 && w.around[at] > 0.0)
            v[at] = w.around[at];
    }
    __syncthreads();
}

/* Z M of the wanted bins at most, masks aside, in the place of narrow_kernel()'s k.narrow, or any value with which the
 * tolerance is reached; and k.drop_scale, where there is one. Block (lane) of BAND_THREADS. */
__global__ void __launch_bounds__(BAND_THREADS) drop_scale_kernel(params k, drop_scratch w)
{
    const int column = blockIdx.x, m = k.m;
    const size_t lanes = k.lanes, mrow = (size_t)k.nelem * lanes;
    const bool there = k.fibre[column] >= 0;
    const auto scale_of = [&](int j) {
        const double z = k.variance[(size_t)j * lanes + column],
                     v = SPX_TRACE_MAX_INVERSE / (z * k.mat[j * mrow + column]);
        return v < 1.0 ? fmax(v, 0.0) : 1.0;
    };
    int narrow = k.drop_scale != NULL;
    for (int j = threadIdx.x; j < k.n && there && !narrow; j += blockDim.x)
        narrow = scale_of(j) < k.least_scale;
    if (threadIdx.x == 0)
        k.narrow[column] = there ? SPX_TRACE_MAX_INVERSE : 0.0;
    if (!__syncthreads_or(narrow)) /* as nearly all are: none of its bins is so narrow that the tolerance is missed */
        return;
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const size_t at = (size_t)j * lanes + column;
        w.around[at] = there ? k.seen[at] : 0.0;
        w.whole[at] = there ? scale_of(j) : 1.0;
        if (k.drop_scale)
            k.drop_scale[at] = w.whole[at];
    }
    if (!there)
        return;
    __syncthreads();
    largest_around(k, column, w.around, w.blocks);
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const double most = w.around[(size_t)j * lanes + column];
        bool is = true;
        for (int i = max(j - m, 0); i <= min(j + m, k.n - 1); i++)
            is &= k.seen[(size_t)i * lanes + column] > SPX_TRACE_UNMASKED * most;
        w.unmasked[(size_t)j * lanes + column] = is ? 1.0 : k.seen[(size_t)j * lanes + column] > 0.5 * most ? 0.5 : 0.0;
    }
    __syncthreads();
    from_unmasked(k, w, column, w.whole);
    double smallest = 1.0;
    for (int j = threadIdx.x; j < k.n; j += blockDim.x) {
        const size_t at = (size_t)j * lanes + column;
        if (j >= k.pad && j < k.pad + k.nwave)
            smallest = fmin(smallest, w.whole[at]);
        if (k.drop_scale)
            k.drop_scale[at] = fmax(k.drop_scale[at], w.unmasked[at] == 1.0 ? k.least_scale : k.rounding_scale);
    }
    for (int s = WARP / 2; s > 0; s /= 2)
        smallest = fmin(smallest, __shfl_xor_sync(FULL, smallest, s));
    if (threadIdx.x % WARP == 0)
        raise_to(&k.narrow[column], SPX_TRACE_MAX_INVERSE / smallest);
}

} // namespace

#endif
