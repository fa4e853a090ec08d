/* Normal matrix M = A^T W A, A^T W p and the flux weights, from overlaps of spots; regularisation.
 *
 * Overlaps are 4.4 GFLOP for a frame of 500 fibres x 2326 bins and could take 0.2 ms on an H200, but a product a pair
 * of bins spends its time on addresses and on adding up lanes: 9.9. As products of 8 x 8 bins over the pixels that both
 * groups cover, zeros where a spot has none, the tensor cores add them up (m8n8k4): 4.1. What is left is the wait for
 * the partners' spots, although up to three pixels a lane of up to three groups are on their way together, and own
 * spots are weighted once, in shared memory. More pixels at a time need more registers than there are: the compiler
 * then waits for each load to spill it (7.5). Without shared memory, and so with half as many warps more and addresses
 * that are only counted up, every spot is asked for more often: 6.8 where these took 5.4; blocks that go along a trace
 * and hold its partners in shared memory do too much for a group besides its products: 15. */
#ifndef SPX_EXTRACT_CUDA_OVERLAP_CUH
#define SPX_EXTRACT_CUDA_OVERLAP_CUH

#include "extract/extract_cuda_spots.cuh"

namespace
{

/* Pixels: x0 <= x < x1, y0 <= y < y1. */
struct box {
    int x0, x1, y0, y1;

    __device__ bool empty() const
    {
        return x0 >= x1 || y0 >= y1;
    }
};

/* Eight bins of a trace: lane l has bin l/4. */
struct eight {
    const double *spot;
    int xc, yc;
    bool there;

    __device__ eight(const work &k, int bin, int column)
    {
        const bool in = bin >= 0 && bin < k.n && column >= 0;
        const size_t at = in ? (size_t)bin * k.lanes + column : 0;
        there = in && k.state[at] == SPX_TRACE_SPOT;
        spot = k.spot + at * k.npix;
        xc = there ? k.at[at].xc : 0;
        yc = there ? k.at[at].yc : 0;
    }
    /* What their spots cover. */
    __device__ box cover(const work &k) const
    {
        return {__reduce_min_sync(FULL, there ? xc : INT_MAX), __reduce_max_sync(FULL, there ? xc + k.nx : INT_MIN),
                __reduce_min_sync(FULL, there ? yc : INT_MAX), __reduce_max_sync(FULL, there ? yc + k.ny : INT_MIN)};
    }
};

enum { TILES = 3, OVERLAP_TRACES = 2, OVERLAP_GROUPS = 4, AT_ONCE = 7 };

/* Products of eight bins with TILES times eight others of one trace, as they grow. */
struct products {
    double tile[TILES][2];
    const double *spot[TILES];
    int xc[TILES], yc[TILES];
    box cover[TILES];

    /* Pixels of `both`, 4 STEPS at a time: all of these are on their way before one is used. weighted: [8][npix], the
     * eight spots times W. */
    template <int STEPS> __device__ void add(const work &k, const eight &own, const double *weighted, const box &both)
    {
        const int q = threadIdx.x % 4;
        for (int y = both.y0; y < both.y1; y++) {
            const int dy = y - own.yc;
            const bool in_row = own.there && (unsigned)dy < (unsigned)k.ny;
            const double *row = weighted + (in_row ? dy * k.nx : 0);
            for (int x0 = both.x0 + q; x0 - q < both.x1; x0 += 4 * STEPS) {
                double mine[STEPS], other[TILES][STEPS];
#pragma unroll
                for (int j = 0; j < TILES; j++) {
                    if (y < cover[j].y0 || y >= cover[j].y1)
                        continue;
                    const int dj = y - yc[j];
                    const bool in_its = (unsigned)dj < (unsigned)k.ny;
                    const double *its = spot[j] + (in_its ? dj * k.nx : 0);
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
                        const int d = x0 + 4 * i - xc[j];
                        other[j][i] = in_its && (unsigned)d < (unsigned)k.nx ? its[d] : 0.0;
                    }
                }
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    const int d = x0 + 4 * i - own.xc;
                    mine[i] = in_row && (unsigned)d < (unsigned)k.nx ? row[d] : 0.0;
                }
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    if (y >= cover[j].y0 && y < cover[j].y1)
#pragma unroll
                        for (int i = 0; i < STEPS; i++)
                            multiply_add(tile[j], mine[i], other[j][i]);
            }
        }
    }
};

/* Elements of M of eight bins of a trace, and A^T W p, A^T W 1, A^T [W > 0]: one warp. Products with eight bins of a
 * trace are a matrix product over the pixels that both cover, which the tensor cores do, four pixels at a time; TILES
 * of them share what is read of these bins. Block: 2 traces x 4 groups of bins (or less), whose partners are the same.
 * Shared memory a warp: [8][npix]. */
__global__ void __launch_bounds__(OVERLAP_TRACES *OVERLAP_GROUPS *WARP, 2) overlaps_kernel(work k)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, r = lane / 4, q = lane % 4;
    const int column = blockIdx.y * OVERLAP_TRACES + warp % OVERLAP_TRACES;
    const int bin0 = (blockIdx.x * (blockDim.x / (OVERLAP_TRACES * WARP)) + warp / OVERLAP_TRACES) * 8;
    if (column >= k.lanes || bin0 >= k.n)
        return;
    const int b = column / k.nl, f = column % k.nl, mine = bin0 + r, y0 = k.y0[b], y1 = k.y1[b];
    const eight own(k, mine, column);
    const box here = own.cover(k);
    double *weighted = shared + (warp * 8 + r) * k.npix, value = 0.0, weight = 0.0, seen = 0.0;
    for (int i0 = q, dx = q, dy = 0; i0 < k.npix && own.there; i0 += 4 * AT_ONCE) {
        double s[AT_ONCE];
        float ivar[AT_ONCE], data[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, dx += 4) {
            for (; dx >= k.nx; dx -= k.nx)
                dy++;
            const int x = own.xc + dx, y = own.yc + dy;
            const bool there = i0 + 4 * i < k.npix, in = there && x >= 0 && x < k.ccd_nx && y >= y0 && y < y1;
            const size_t pixel = in ? (size_t)y * k.ccd_nx + x : 0;
            s[i] = there ? own.spot[i0 + 4 * i] : 0.0;
            ivar[i] = in ? k.weight[pixel] : 0.0f;
            data[i] = in ? k.data[pixel] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const double a = s[i] * (double)ivar[i];
            if (i0 + 4 * i < k.npix)
                weighted[i0 + 4 * i] = a;
            if (ivar[i] > 0.0f) {
                value = fma(a, (double)data[i], value);
                weight += a;
                seen += s[i];
            }
        }
    }
    __syncwarp();
    for (int s = 1; s <= 2; s *= 2) {
        value += __shfl_xor_sync(FULL, value, s);
        weight += __shfl_xor_sync(FULL, weight, s);
        seen += __shfl_xor_sync(FULL, seen, s);
    }
    if (q == 0 && mine < k.n) {
        const size_t at = (size_t)mine * k.lanes + column;
        k.y[at] = value;
        k.w[at] = weight;
        k.seen[at] = seen;
    }
    products p;
    for (int df = 0; df <= k.reach; df++) {
        const int t0 = k.lo[df] >= 0 ? k.lo[df] / 8 : -((7 - k.lo[df]) / 8), t1 = (k.hi[df] + 7) / 8;
        for (int t = t0; t <= t1; t += TILES) {
            box both = {INT_MAX, INT_MIN, INT_MAX, INT_MIN};
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                const bool in = t + j <= t1 && f + df < k.nl;
                const eight other(k, bin0 + 8 * (t + j) + r, in ? column + df : -1);
                p.tile[j][0] = p.tile[j][1] = 0.0;
                p.spot[j] = other.spot;
                p.cover[j] = other.cover(k);
                p.xc[j] = other.xc;
                p.yc[j] = other.there ? other.yc : INT_MAX / 2; /* no row is one of its */
                if (!p.cover[j].empty())
                    both = {min(both.x0, p.cover[j].x0), max(both.x1, p.cover[j].x1), min(both.y0, p.cover[j].y0),
                            max(both.y1, p.cover[j].y1)};
            }
            both = {max(both.x0, here.x0), min(both.x1, here.x1), max(both.y0, here.y0), min(both.y1, here.y1)};
            const int steps = both.empty() ? 0 : (both.x1 - both.x0 + 3) / 4;
            if (steps == 3 || steps > 4)
                p.add<3>(k, own, weighted, both);
            else if (steps > 1)
                p.add<2>(k, own, weighted, both);
            else if (steps == 1)
                p.add<1>(k, own, weighted, both);
            if (mine < k.n)
#pragma unroll
                for (int j = 0; j < TILES; j++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int dk = 8 * (t + j) + 2 * q + i - r;
                        if (dk >= k.lo[df] && dk <= k.hi[df])
                            k.mat[((size_t)mine * k.nelem + k.first[df] + dk - k.lo[df]) * k.lanes + column] =
                                p.tile[j][i];
                    }
        }
    }
}

/* ---- regularisation ---- */

__global__ void largest_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.nbundle)
        return;
    const double *w = k.w + (size_t)(i / k.nbundle) * k.lanes + (size_t)(i % k.nbundle) * k.nl;
    double most = 0.0;
    for (int f = 0; f < k.nl; f++)
        most = fmax(most, w[f]);
    k.largest[i] = most;
}

/* Largest weight of the bins around each; of all where these have none: such bins stand alone, any diagonal will do.
 * One block of 128 a bundle and 128 bins. */
__global__ void around_kernel(work k)
{
    __shared__ double most[128];
    const int bin = blockIdx.x * 128 + threadIdx.x, b = blockIdx.y;
    double everywhere = 0.0, v = 0.0;
    for (int j = threadIdx.x; j < k.n; j += 128)
        everywhere = fmax(everywhere, k.largest[(size_t)j * k.nbundle + b]);
    most[threadIdx.x] = everywhere;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step)
            most[threadIdx.x] = fmax(most[threadIdx.x], most[threadIdx.x + step]);
        __syncthreads();
    }
    if (bin >= k.n)
        return;
    const int k0 = bin > k.half ? bin - k.half : 0, k1 = k.half < k.n - bin ? bin + k.half : k.n - 1;
    for (int j = k0; j <= k1 && j < k.n; j++)
        v = fmax(v, k.largest[(size_t)j * k.nbundle + b]);
    k.around[(size_t)bin * k.nbundle + b] = v > 0.0 ? v : most[0];
}

__global__ void regularise_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, b = column / k.nl;
    const size_t at = (size_t)bin * k.nelem * k.lanes + column;
    if (k.fibre[column] >= 0) {
        const double least = 1e-4 * k.around[(size_t)bin * k.nbundle + b], w = k.w[i];
        const double alpha = w < least ? least - w : k.regularize;
        k.mat[at] += alpha * alpha + SPX_TRACE_PRIOR;
    }
    k.inverse[i] = 1.0 / (k.mat[at] + SPX_TRACE_PRIOR);
}

spx_status equations(work &k, size_t most_shared, slot *s, spx_err *e)
{
    const size_t bytes = sizeof(double) * 8 * OVERLAP_TRACES * (size_t)k.npix;
    const int groups = bytes * OVERLAP_GROUPS <= most_shared ? OVERLAP_GROUPS : 1;
    const dim3 tiles(blocks(k.n, 8 * (unsigned)groups), blocks(k.lanes, OVERLAP_TRACES));
    if (bytes > most_shared)
        return spx_fail(e, SPX_EDEVICE, "cuda: spots of %d x %d pixels are too large for the device: use --device cpu",
                        k.nx, k.ny);
    overlaps_kernel<<<tiles, OVERLAP_TRACES * groups * WARP, bytes * groups, s->stream>>>(k);
    largest_kernel<<<blocks((size_t)k.n * k.nbundle, 128), 128, 0, s->stream>>>(k);
    around_kernel<<<dim3(blocks(k.n, 128), k.nbundle), 128, 0, s->stream>>>(k);
    regularise_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

} // namespace

#endif
