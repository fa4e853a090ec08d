/* Provides bounds and square root of bands that are wider than a warp: one block an item (and pole). */
#ifndef SPX_EXTRACT_CUDA_SQRT_BROAD_CUH
#define SPX_EXTRACT_CUDA_SQRT_BROAD_CUH

#include "extract/cuda/band_block.cuh"
#include "extract/cuda/sqrt_poles.cuh"

namespace
{

__device__ band_block broad_scratch(const batch &o, double *shared, size_t task)
{
    return {o.mm, window_is_shared(o.mm) ? shared + band_shared(o.mm) : o.window + task * band_window(o.mm), shared};
}

/* x = L^-1 b, then x = L^-T D^-1 x, by a warp, in place; ring: [m + 1] shared. */
__device__ void warp_forward(int n, int m, const double *l, double *x, double *ring)
{
    const int lane = threadIdx.x % WARP;
    for (int i = lane; i <= m; i += WARP)
        ring[i] = 0.0;
    __syncwarp();
    for (int j = 0, slot = 0; j < n; j++) {
        const double s = x[j] - ring[slot], *lj = l + (size_t)j * (m + 1);
        __syncwarp();
        if (lane == 0) {
            x[j] = s;
            ring[slot] = 0.0;
        }
        for (int t = 1 + lane; t <= m; t += WARP)
            ring[around_ring(slot, t, m)] += lj[t] * s;
        __syncwarp();
        slot = slot < m ? slot + 1 : 0;
    }
}

__device__ void warp_backward(int n, int m, const double *l, double *x)
{
    const int lane = threadIdx.x % WARP;
    for (int j = n - 1; j >= 0; j--) {
        const double *lj = l + (size_t)j * (m + 1);
        double sum = 0.0;
        for (int t = 1 + lane; t <= m && j + t < n; t += WARP)
            sum = fma(lj[t], x[j + t], sum);
        sum = x[j] * lj[0] - warp_sum(sum);
        __syncwarp();
        if (lane == 0)
            x[j] = sum;
        __syncwarp();
    }
}

/* Element (j, j + d) of A_s of an item, counted from its first bin. */
__device__ double element_of(const params &k, const item &v, int j, int d)
{
    return d <= v.mm ? k.a[((size_t)(v.begin + j) * (k.band + 1) + d) * k.lanes + v.column] : 0.0;
}

/* As bounds_kernel(): block (item). */
__global__ void __launch_bounds__(BAND_THREADS) broad_bounds_kernel(params k, batch o)
{
    extern __shared__ double shared[];
    const item v = o.at[blockIdx.x];
    const int n = v.end - v.begin, m = o.mm, lane = threadIdx.x % WARP;
    const band_block scratch = broad_scratch(o, shared, blockIdx.x);
    double *l = o.lower + (size_t)blockIdx.x * o.rows * (m + 1), *z = o.rhs + (size_t)blockIdx.x * o.rows;
    const bool good = block_factor(
        scratch, n, l, [&](int j, int d) { return element_of(k, v, j, d); }, [](int, double, const double *) {});
    if (threadIdx.x >= WARP)
        return;
    inverse_norm norm(k);
    for (int j = lane; j < n; j += WARP)
        z[j] = (v.begin + j) % 2 == 0 ? 1.0 : -1.0;
    __syncwarp();
    for (int step = 0;; step++) {
        warp_forward(n, m, l, z, shared);
        warp_backward(n, m, l, z);
        double size = 0.0, own = 0.0;
        for (int j = lane; j < n; j += WARP) {
            const double x = fabs(z[j]);
            size = fmax(size, x);
            own = v.begin + j >= v.first && v.begin + j < v.last ? fmax(own, x) : own;
        }
        for (int s = WARP / 2; s > 0; s /= 2) {
            size = fmax(size, __shfl_xor_sync(FULL, size, s));
            own = fmax(own, __shfl_xor_sync(FULL, own, s));
        }
        if (norm.ends(step, size, own))
            break;
        for (int j = lane; j < n && step == 0; j += WARP)
            z[j] = copysign(1.0, z[j]);
        __syncwarp();
    }
    if (lane != 0)
        return;
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
    raise_to(&k.bound[v.column], norm.most);
}

/* As wide_root_kernel(): block (pole, item). */
__global__ void __launch_bounds__(BAND_THREADS) broad_root_kernel(params k, batch o)
{
    extern __shared__ double shared[];
    const item v = o.at[blockIdx.y];
    const int n = v.end - v.begin, m = o.mm, h = k.h, lane = threadIdx.x % WARP, side = threadIdx.x / WARP;
    const int pole = o.pole0 + blockIdx.x;
    if (pole >= k.npole[v.column])
        return;
    const int end = min(v.last + EXTRA, k.n) - v.begin, stop = v.first - v.begin, own_end = v.last - v.begin;
    const size_t lanes = k.lanes, task = (size_t)blockIdx.y * o.npole + blockIdx.x;
    const double shift = k.shift[(size_t)pole * lanes + v.column];
    const double weight = k.pole_weight[(size_t)pole * lanes + v.column], scale = -weight * shift;
    const double *x = k.x + v.begin * lanes + v.column;
    double *l = o.lower + task * o.rows * (m + 1), *rhs = o.rhs + task * 2 * o.rows;
    double *share = o.share + task * o.span * (h + 3);
    const band_block scratch = broad_scratch(o, shared, task);
    /* right-hand sides 1 and x, a warp each: what is known of the next m elements, then the last m of the solution */
    double *ring = shared + (2 + BAND_WARPS + 1 + side) * (m + 1);
    for (int i = lane; i <= m && side < 2; i += WARP)
        ring[i] = 0.0;
    const bool good = block_factor(
        scratch, n, l, [&](int j, int d) { return element_of(k, v, j, d) + (d == 0 ? shift : 0.0); },
        [&](int j, double inverse, const double *column) {
            if (side >= 2)
                return;
            const int slot = j % (m + 1);
            const double s = (side == 0 ? 1.0 : x[(size_t)j * lanes]) - ring[slot];
            __syncwarp();
            if (lane == 0) {
                rhs[side * o.rows + j] = s;
                ring[slot] = 0.0;
            }
            for (int t = 1 + lane; t <= m; t += WARP)
                ring[around_ring(slot, t, m)] += column[t] * inverse * s;
            __syncwarp();
        });
    for (int i = lane; i <= m && side < 2; i += WARP)
        ring[i] = 0.0;
    __syncthreads();
    block_inverse(
        scratch, n, stop, l,
        [&](int j, int d, double z) {
            if (j < end && d <= h)
                share[(size_t)(j - stop) * (h + 3) + d] = scale * z;
            if (pole == 0 && d == 0 && j < own_end)
                k.variance[(v.begin + j) * lanes + v.column] = z;
        },
        [&](int j, const double *column) {
            if (side >= 2)
                return;
            const int slot = j % (m + 1);
            double sum = 0.0;
            for (int t = 1 + lane; t <= m; t += WARP)
                sum = fma(column[t], ring[around_ring(slot, t, m)], sum);
            const double s = rhs[side * o.rows + j] * column[0] - warp_sum(sum);
            __syncwarp();
            if (lane == 0) {
                ring[slot] = s;
                if (j < end)
                    share[(size_t)(j - stop) * (h + 3) + h + 1 + side] =
                        weight * fma(-shift, s, side == 0 ? 1.0 : x[(size_t)j * lanes]);
            }
            __syncwarp();
        });
    if (!good && threadIdx.x == 0)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
}

} // namespace

#endif
