/* Provides banded L D L^T, and the band of the inverse, by a block, for any half-bandwidth: of bundles whose fibres or
 * bins are strongly coupled, for which there are neither loops of constant length nor lanes enough in a warp. A step is
 * some m^2/2 products, which the threads share; the last m columns are in shared memory where they fit. */
#ifndef SPX_EXTRACT_CUDA_BAND_BLOCK_CUH
#define SPX_EXTRACT_CUDA_BAND_BLOCK_CUH

#include "extract/cuda/params.cuh"

namespace
{

enum {
    BAND_WARPS = 4,
    BAND_THREADS = BAND_WARPS * WARP,
    BAND_EACH = 4, /* elements of a column that a thread asks for a step before it needs them */
    BAND_CHUNKS = (SPX_TRACE_MOST_BAND + WARP - 1) / WARP
};

/* A block's scratch for half-bandwidth m: `shared` has band_shared(m) doubles, `window` band_window(m), in shared
 * memory or not. */
struct band_block {
    int m;
    double *window, *shared;
};

__device__ __host__ inline int band_pitch(int m)
{
    return m + 1 + m % 2; /* odd: columns of the window are in different banks */
}
__device__ __host__ inline size_t band_window(int m)
{
    return (size_t)(m + 1) * band_pitch(m);
}
/* Two columns, sums of the warps, two right-hand sides. */
__device__ __host__ inline size_t band_shared(int m)
{
    return (size_t)(m + 1) * (2 + BAND_WARPS + 1 + 2);
}

/* Shared memory of a block, of which two have room on a multiprocessor; whether the window is in it, and its bytes. */
enum { BAND_SHARED = 96 << 10 };

__device__ __host__ inline bool window_is_shared(int m)
{
    return (band_shared(m) + band_window(m)) * sizeof(double) <= BAND_SHARED;
}
inline size_t band_bytes(int m)
{
    return (band_shared(m) + (window_is_shared(m) ? band_window(m) : 0)) * sizeof(double);
}

/* Place in a ring of m + 1. */
__device__ inline int around_ring(int slot, int step, int m)
{
    return slot + step <= m ? slot + step : slot + step - m - 1;
}

/* L D L^T: element(j, d) is element (j, j + d), d <= m, of n x n; l[n][m + 1] gets 1/D and L. each(j, inverse, column)
 * is called by all threads when column j of L D is in `column`. Two columns at a time, each of which has an array in
 * o.shared, so that what comes after them is read and written half as often. All threads of the block; false: a pivot
 * is not positive. Ends with a barrier. */
template <class ELEMENT, class EACH>
__device__ bool block_factor(const band_block &o, int n, double *l, ELEMENT element, EACH each)
{
    const int me = threadIdx.x, lane = me % WARP, warp = me / WARP, m = o.m, wide = m + 1, pitch = band_pitch(m);
    double next[2][BAND_EACH], *const column[2] = {o.shared, o.shared + wide}, inverse[2];
    bool good = true;
    const auto ask = [&](int j) {
#pragma unroll
        for (int c = 0; c < 2; c++)
#pragma unroll
            for (int i = 0; i < BAND_EACH; i++) {
                const int d = me + i * BAND_THREADS;
                next[c][i] = d <= m && j + c + d < n ? element(j + c, d) : 0.0;
            }
    };
    const auto invert = [&](double pivot) {
        const bool is = pivot > 0.0 && pivot < INFINITY;
        good &= is;
        return is ? 1.0 / pivot : 1.0;
    };
    for (int i = me; i < (int)band_window(m); i += BAND_THREADS)
        o.window[i] = 0.0;
    ask(0);
    __syncthreads();
    for (int j = 0, slot = 0; j < n; j += 2) {
        const int following = around_ring(slot, 1, m), count = min(2, n - j);
#pragma unroll
        for (int c = 0; c < 2; c++) { /* the second one, less what the first gives it */
            double *now = o.window + (c == 0 ? slot : following) * pitch;
            const double first = c == 0 ? 0.0 : column[0][min(1, m)] * inverse[0];
            const auto take = [&](int d, double own) {
                const double sum = c == 1 && d < m ? fma(first, column[0][d + 1], now[d]) : now[d];
                column[c][d] = own - sum;
                now[d] = 0.0;
            };
#pragma unroll
            for (int i = 0; i < BAND_EACH; i++) {
                const int d = me + i * BAND_THREADS;
                if (d <= m && c < count)
                    take(d, next[c][i]);
            }
            for (int d = me + BAND_EACH * BAND_THREADS; d <= m && c < count; d += BAND_THREADS)
                take(d, j + c + d < n ? element(j + c, d) : 0.0);
            __syncthreads();
            inverse[c] = c < count ? invert(column[c][0]) : 1.0;
        }
        if (j + 2 < n)
            ask(j + 2);
#pragma unroll
        for (int c = 0; c < 2; c++)
            for (int d = me; d <= m && c < count; d += BAND_THREADS)
                l[(size_t)(j + c) * wide + d] = d == 0 ? inverse[c] : column[c][d] * inverse[c];
        for (int t = 2 + warp; t <= wide && j + 2 < n; t += BAND_WARPS) { /* row t after the first */
            const double l0 = t <= m ? column[0][t] * inverse[0] : 0.0, l1 = column[1][t - 1] * inverse[1];
            double *row = o.window + around_ring(slot, t, m) * pitch;
            for (int d = lane; d <= wide - t; d += WARP) {
                const double sum = t + d <= m ? fma(l0, column[0][t + d], row[d]) : row[d];
                row[d] = fma(l1, column[1][t - 1 + d], sum);
            }
        }
        each(j, inverse[0], (const double *)column[0]);
        if (count > 1)
            each(j + 1, inverse[1], (const double *)column[1]);
        __syncthreads();
        slot = around_ring(following, 1, m);
    }
    return good;
}

/* Rows of the inverse in the band, from n - 1 down to `stop`, m <= SPX_TRACE_MOST_BAND: put(j, d, z) gets Z(j, j + d),
 * by one of the threads; solve(j, inverse, column) is called by all of them with column j of L, between two barriers.
 * Ends with a barrier. The window has row and column b % (m + 1) of bin b. */
template <class PUT, class SOLVE>
__device__ void block_inverse(const band_block &o, int n, int stop, const double *l, PUT put, SOLVE solve)
{
    const int me = threadIdx.x, lane = me % WARP, warp = me / WARP, m = o.m, wide = m + 1, pitch = band_pitch(m);
    double *columns = o.shared, *sums = columns + 2 * wide, *z = sums + BAND_WARPS * wide;
    for (int i = me; i < (int)band_window(m); i += BAND_THREADS)
        o.window[i] = 0.0;
    double next = me <= m ? l[(size_t)(n - 1) * wide + me] : 0.0;
    for (int j = n - 1, here = (n - 1) % wide; j >= stop; j--) {
        double *column = columns + (j & 1) * wide;
        if (me <= m)
            column[me] = next;
        __syncthreads();
        if (me <= m && j > stop)
            next = l[(size_t)(j - 1) * wide + me];
        double sum[BAND_CHUNKS] = {};
        for (int t = 1 + warp; t <= m; t += BAND_WARPS) {
            const double lt = column[t], *row = o.window + around_ring(here, t, m) * pitch;
#pragma unroll
            for (int i = 0; i < BAND_CHUNKS; i++) {
                const int d = 1 + lane + i * WARP;
                if (d <= m)
                    sum[i] = fma(lt, row[around_ring(here, d, m)], sum[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < BAND_CHUNKS; i++)
            if (1 + lane + i * WARP <= m)
                sums[warp * wide + 1 + lane + i * WARP] = sum[i];
        __syncthreads();
        for (int d = 1 + me; d <= m; d += BAND_THREADS) {
            double v = 0.0;
            for (int w = 0; w < BAND_WARPS; w++)
                v -= sums[w * wide + d];
            const int there = around_ring(here, d, m);
            z[d] = v;
            o.window[here * pitch + there] = v;
            o.window[there * pitch + here] = v;
            put(j, d, v);
        }
        __syncthreads();
        if (warp == 0) {
            double own = 0.0;
            for (int t = 1 + lane; t <= m; t += WARP)
                own = fma(column[t], z[t], own);
            own = column[0] - warp_sum(own);
            if (lane == 0) {
                o.window[here * pitch + here] = own;
                put(j, 0, own);
            }
        }
        solve(j, (const double *)column);
        here = here > 0 ? here - 1 : m;
    }
    __syncthreads();
}

/* The next of `count` items, for all threads of a block; `count` or more: there are none left. */
__device__ inline int next_item(int *counter)
{
    __shared__ int item;
    __syncthreads();
    if (threadIdx.x == 0)
        item = atomicAdd(counter, 1);
    __syncthreads();
    return item;
}

} // namespace

#endif
