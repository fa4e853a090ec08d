/* Provides the width of a warp, sums over a warp and a block in an order that is fixed: the same kernel gives the same
 * bits; and the keys of order statistics. */
#ifndef SPX_CUDA_REDUCE_CUH
#define SPX_CUDA_REDUCE_CUH

#include <cuda_runtime.h>

#include "ordered_key.h"

namespace spx
{

constexpr int WARP = 32;               /* lanes of a warp */
constexpr unsigned FULL = 0xffffffffu; /* mask of all lanes */

/* Sum over the lanes of a warp, in all of them: of pairs 16 lanes apart, then 8, 4, 2 and 1. */
template <typename T> __device__ inline T warp_sum(T v)
{
#pragma unroll
    for (int s = WARP / 2; s > 0; s /= 2)
        v += __shfl_xor_sync(FULL, v, s);
    return v;
}

/* Largest of the lanes of a warp, in all of them. */
__device__ inline double warp_max(double v)
{
#pragma unroll
    for (int s = WARP / 2; s > 0; s /= 2)
        v = fmax(v, __shfl_xor_sync(FULL, v, s));
    return v;
}

/* Sum over a block, in all threads of its first warp: of each warp, then of these in the same order. partial: shared,
 * one of each of the WARPS warps. */
template <int WARPS, typename T> __device__ inline T block_sum(T v, T *partial)
{
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = v;
    __syncthreads();
    if (threadIdx.x < WARP)
        v = warp_sum(threadIdx.x < WARPS ? partial[threadIdx.x] : T(0));
    return v;
}

/* Unsigned integer that compares as the value does (ordered_key.h), and back: a median is found by counting keys. */
__device__ inline unsigned long long key_of(double v)
{
    return spx_key_of_bits((uint64_t)__double_as_longlong(v));
}

__device__ inline double of_key(unsigned long long key)
{
    return __longlong_as_double((long long)spx_bits_of_key(key));
}

} // namespace spx

#endif
