/* Provides the model of the image and chi^2 of the bins.
 *
 * Every spot is needed twice: for the model, and, when that is complete, for the sum of chi^2 over its pixels. A thread
 * a pixel, which looked for the bins that cover it, and then a warp a bin took 2.7 ms for 500 fibres x 2326 bins on an
 * H200, most of it for looking. Here a block has some rows of a bundle in shared memory; warps add the bins' spots
 * there, and take the sums from there: 1.3. A spot that two blocks share is read in parts, and its sums are put
 * together at the end: 1.12 with parts of 32 rows, 1.19 with 24, 1.17 with 40. What is left is the wait for spots, 3.5
 * GB: more warps have too few registers for what they ask
 * for ahead (2.5). */
#ifndef SPX_EXTRACT_CUDA_CHI2_CUH
#define SPX_EXTRACT_CUDA_CHI2_CUH

#include "extract/cuda/spots.cuh"

namespace
{

/* Shared memory for the rows of a block, and most of these; pixels of a row, and bins, that a lane asks for at a
 * time; warps of a block at most; and what added to itself is still off any tile. */
enum { TILE_BYTES = 58 << 10, TILE_ROWS = 32, TILE_PIXELS = 8, TILE_BINS = 2, TILE_WARPS = 13, NOWHERE = INT_MIN / 2 };

const char TOO_WIDE[] = "bundles of %d columns are too wide for the device: use {device} cpu";

/* Rows of tiles. Their length keeps lanes that work on neighbouring pixels of a spot out of each other's banks. */
void cut_tiles(params &k)
{
    k.row = k.wide + ((k.nx - k.wide) % 16 + 16) % 16;
    const int rows = TILE_BYTES / (int)sizeof(double) / k.row;
    k.tile_rows = rows > TILE_ROWS ? (int)TILE_ROWS : rows > 1 ? rows : 1;
    k.ntile = (int)((k.ccd_ny + k.tile_rows - 1) / k.tile_rows);
    k.nshare = (k.ny + k.tile_rows - 2) / k.tile_rows + 1;
}

__device__ int tile_of(const params &k, int y)
{
    return y >= 0 ? y / k.tile_rows : -((k.tile_rows - 1 - y) / k.tile_rows);
}

/* Of each trace, the first and the last bin whose spot touches a tile; the first begins `before` rows before the CCD.
 */
__global__ void tiles_kernel(params k, int before)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes || k.state[i] != SPX_TRACE_SPOT)
        return;
    const int yc = k.at[i].yc + before, bin = i / k.lanes, column = i % k.lanes;
    const int t0 = max(tile_of(k, yc), 0), t1 = min(tile_of(k, yc + k.ny - 1), k.ntile - 1);
    for (int t = t0; t <= t1; t++) {
        atomicMin(&k.tile_begin[t * k.lanes + column], bin);
        atomicMax(&k.tile_end[t * k.lanes + column], bin + 1);
    }
}

/* A tile, and what a lane has to do with it. */
struct tile {
    double *at;
    int size, row0, x0;
    int offset[PIXELS]; /* of its pixels of a spot from the spot's first */

    /* From now on for the pixels of spots from `first` on. */
    __device__ void begin_part(const params &k, int first)
    {
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            const int pixel = first + (int)(threadIdx.x % WARP) + i * WARP;
            offset[i] = pixel < k.npix ? pixel / k.nx * k.row + pixel % k.nx : (int)NOWHERE;
        }
    }
    /* The first pixel of a bin's spot; NOWHERE for one without a pixel here: traces may turn back between two that have
     * one. */
    __device__ int place(const params &k, int bin, int end, int column) const
    {
        const size_t i = (size_t)bin * k.lanes + column;
        if (bin >= end || k.state[i] != SPX_TRACE_SPOT)
            return NOWHERE;
        const int y = k.at[i].yc - row0;
        return y > -k.ny && y < k.tile_rows ? y * k.row + k.at[i].xc - x0 : (int)NOWHERE;
    }
    __device__ bool has(int pixel) const
    {
        return (unsigned)pixel < (unsigned)size;
    }
    /* Pixels of a spot that are in it. */
    __device__ void fetch(const double *spot, int first, double (&v)[PIXELS]) const
    {
#pragma unroll
        for (int i = 0; i < PIXELS; i++)
            if (has(first + offset[i]))
                v[i] = spot[i * WARP];
    }
};

/* Adds the bins of a trace to the model, one after another; the next one's pixels are on their way meanwhile. `spot`:
 * this lane's first pixel of the trace's first bin. */
__device__ void add_trace(const params &k, const tile &t, int column, int begin, int end, const double *spot)
{
    const int lane = threadIdx.x % WARP;
    const size_t step = (size_t)k.lanes * k.npix;
    for (int bin0 = begin; bin0 < end; bin0 += WARP) {
        const int place = t.place(k, bin0 + lane, end, column);
        const double flux = bin0 + lane < end ? k.x[(size_t)(bin0 + lane) * k.lanes + column] : 0.0;
        const int n = min(end - bin0, (int)WARP);
        const double *next = spot + (size_t)bin0 * step;
        double ahead[PIXELS];
        int there = __shfl_sync(FULL, place, 0);
        t.fetch(next, there, ahead);
        for (int j = 0; j < n; j++) {
            const int here = there;
            const double x = __shfl_sync(FULL, flux, j);
            double v[PIXELS], sum[PIXELS];
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                v[i] = ahead[i];
            if (j + 1 < n) {
                next += step;
                there = __shfl_sync(FULL, place, j + 1);
                t.fetch(next, there, ahead);
            }
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                if (t.has(here + t.offset[i]))
                    sum[i] = t.at[here + t.offset[i]];
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                if (t.has(here + t.offset[i]))
                    t.at[here + t.offset[i]] = fma(x, v[i], sum[i]);
            __syncwarp();
        }
    }
}

/* Sums of chi^2 over the spots of the bins of a trace, as far as they are in the tile, added to this lane's bins. */
__device__ void sum_trace(const params &k, const tile &t, int column, int begin, int end, const double *spot)
{
    const int lane = threadIdx.x % WARP, which = (int)blockIdx.x;
    const size_t step = (size_t)k.lanes * k.npix;
    for (int bin0 = begin; bin0 < end; bin0 += WARP) {
        const int place = t.place(k, bin0 + lane, end, column), n = min(end - bin0, (int)WARP);
        double mine = 0.0;
        for (int j = 0; j < n; j += TILE_BINS) {
            double v[TILE_BINS][PIXELS];
            int there[TILE_BINS];
#pragma unroll
            for (int b = 0; b < TILE_BINS; b++) {
                there[b] = __shfl_sync(FULL, place, (j + b) % WARP);
                there[b] = j + b < n ? there[b] : NOWHERE;
                t.fetch(spot + (size_t)(bin0 + j + b) * step, there[b], v[b]);
            }
#pragma unroll
            for (int b = 0; b < TILE_BINS; b++) {
                double sum = 0.0;
#pragma unroll
                for (int i = 0; i < PIXELS; i++)
                    if (t.has(there[b] + t.offset[i]))
                        sum = fma(v[b][i], t.at[there[b] + t.offset[i]], sum);
                sum = sum_of_lanes(sum);
                mine = lane == j + b ? sum : mine;
            }
        }
        if (place != NOWHERE) {
            const int share = which - tile_of(k, k.at[(size_t)(bin0 + lane) * k.lanes + column].yc);
            k.chi2[((size_t)share * k.lanes + column) * k.n + bin0 + lane] += mine;
        }
    }
}

/* One block some rows of a bundle: the model there; (p - M)^2 / (1/ivar + (psf_error M)^2), 0 without ivar; and its
 * sums over the spots of the wanted bins. Traces that are reach + 1 apart share no pixel, and are added to the model at
 * the same time, a warp each; then those beside them, and so on: the order is fixed. Shared memory: [tile_rows][row] */
__global__ void __launch_bounds__(TILE_WARPS *WARP, 2) fit_kernel(params k)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP, b = blockIdx.y;
    const int *begin = k.tile_begin + blockIdx.x * k.lanes + b * k.nl;
    const int *end = k.tile_end + blockIdx.x * k.lanes + b * k.nl;
    tile t = {shared, k.tile_rows * k.row, (int)blockIdx.x * k.tile_rows, k.x0[b], {}};
    for (int i = threadIdx.x; i < t.size; i += blockDim.x)
        shared[i] = 0.0;
    for (int first = 0; first < k.npix; first += PIXELS * WARP) {
        t.begin_part(k, first);
        for (int beside = 0; beside <= k.reach; beside++) {
            __syncthreads();
            for (int f = beside + warp * (k.reach + 1); f < k.nl; f += warps * (k.reach + 1)) {
                const int column = b * k.nl + f;
                add_trace(k, t, column, begin[f], end[f], k.spot + (size_t)column * k.npix + first + lane);
            }
        }
    }
    __syncthreads();
    for (int r = warp; r < k.tile_rows; r += warps) {
        const int y = t.row0 + r;
        const bool in_row = y >= k.y0[b] && y < k.y1[b];
        for (int c0 = lane; c0 < k.wide; c0 += TILE_PIXELS * WARP) {
            float weight[TILE_PIXELS], data[TILE_PIXELS];
#pragma unroll
            for (int i = 0; i < TILE_PIXELS; i++) {
                const int c = c0 + i * WARP, x = t.x0 + c;
                const bool in = in_row && c < k.wide && x >= 0 && x < k.ccd_nx;
                weight[i] = in ? k.weight[(size_t)y * k.ccd_nx + x] : 0.0f;
                data[i] = in ? k.data[(size_t)y * k.ccd_nx + x] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < TILE_PIXELS; i++) {
                const int c = c0 + i * WARP;
                if (c >= k.wide)
                    continue;
                const double model = shared[r * k.row + c], ivar = (double)weight[i];
                const double error = k.psf_error * model, rest = (double)data[i] - model;
                shared[r * k.row + c] = ivar > 0.0 ? rest * rest * ivar / (error * error * ivar + 1.0) : 0.0;
            }
        }
    }
    __syncthreads();
    for (int first = 0; first < k.npix; first += PIXELS * WARP) {
        t.begin_part(k, first);
        for (int f = warp; f < k.nl; f += warps) {
            const int column = b * k.nl + f;
            if (k.wanted[column] >= 0)
                sum_trace(k, t, column, max(begin[f], k.pad), min(end[f], k.pad + k.nwave),
                          k.spot + (size_t)column * k.npix + first + lane);
        }
    }
}

/* chi2pix [row][nwave]: the sums over tiles by the part of the spot on usable pixels. Thread (bin, lane). */
__global__ void chi2_kernel(params k)
{
    const int bin = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y;
    if (bin >= k.nwave || k.wanted[column] < 0)
        return;
    double total = 0.0;
    for (int i = 0; i < k.nshare; i++)
        total += k.chi2[((size_t)i * k.lanes + column) * k.n + k.pad + bin];
    const double seen = k.seen[(size_t)(k.pad + bin) * k.lanes + column];
    k.out_chi2[(size_t)(k.wanted[column] - k.others[column / k.nl]) * k.nwave + bin] = total > 0.0 ? total / seen : 0.0;
}

void find_tiles(const params &k, int before, slot *s)
{
    const size_t touched = (size_t)k.ntile * k.lanes;
    spx::check(cudaMemsetAsync(k.tile_begin, 0x7f, touched * sizeof(int), s->stream),
               "device memory"); /* beyond all bins */
    zero(s, k.tile_end, touched * sizeof(int));
    tiles_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k, before);
}

/* Model and chi^2 of a piece, into k.out_chi2. Fails where no row of a bundle fits into shared memory. */
void fit(const params &k, size_t most_shared, slot *s)
{
    const size_t bytes = sizeof(double) * (size_t)k.tile_rows * (size_t)k.row;
    const int apart = (k.nl + k.reach) / (k.reach + 1), turns = (apart + TILE_WARPS - 1) / TILE_WARPS;
    if (bytes > most_shared)
        spx::fail(TOO_WIDE, k.wide);
    zero(s, k.chi2, (size_t)k.nshare * k.lanes * k.n * sizeof(double));
    find_tiles(k, 0, s);
    fit_kernel<<<dim3(k.ntile, k.nbundle), (apart + turns - 1) / turns * WARP, bytes, s->stream>>>(k);
    chi2_kernel<<<dim3(blocks(k.nwave, 128), k.lanes), 128, 0, s->stream>>>(k);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
