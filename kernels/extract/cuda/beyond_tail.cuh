/* Provides images of tails on a device, as ../../psf/tail.c makes them: light spread onto two grids of cells, each
 * convolved there, cubics in between, and a table near each source. Light on the grids is added up in whole numbers, so
 * that the order does not matter; near a pixel, in the order of rows and columns. */
#ifndef SPX_EXTRACT_CUDA_BEYOND_TAIL_CUH
#define SPX_EXTRACT_CUDA_BEYOND_TAIL_CUH

#include <climits>

#include "cuda/fourier.cuh"
#include "cuda/reduce.cuh"
#include "cuda/stream.cuh"
#include "extract/cuda/beyond_rows.cuh"

extern "C" {
#include "psf/tail.h"
}

namespace
{

/* Unit of light on the grids: 2^33 electrons of amplitude 1 at most in a cell. */
#define GRID_UNIT (1.0 / (1 << 30))

enum {
    RIM = SPX_TAIL_RIM,
    LINE_THREADS = 256,
    TILE_LINES = 8, /* lines of a block of transforms of tiles, and of the far grid's, which are long */
    FIELD_LINES = 2,
    STRIP_WARPS = 32, /* of a block, each with STRIP_ROWS rows of a strip of the image */
    STRIP_ROWS = 16
};

/* Convolution of light on a grid, in tiles of [ny][nx] cells of which those beyond `reach` from the edges are right. */
struct convolution {
    int ny, nx, reach, grid_ny, grid_nx, inner_y, inner_x, across, ntile;
    const long long *light;          /* [grid_ny][grid_nx] */
    float2 *spectrum;                /* [ntile][ny][nx/2 + 1] */
    const float2 *kernel;            /* [ny][nx/2 + 1] */
    const float2 *along_x, *along_y; /* twiddles */
    float *result;                   /* [grid_ny][grid_nx] */

    __host__ __device__ int half() const
    {
        return nx / 2 + 1;
    }
};

/* Row y of tile t: light, or 0 beyond the grid. */
__device__ inline float light_of(const convolution &c, int t, int y, int x)
{
    const int gy = t / c.across * c.inner_y + y - c.reach, gx = t % c.across * c.inner_x + x - c.reach;
    return y < c.ny && gy >= 0 && gy < c.grid_ny && gx >= 0 && gx < c.grid_nx
               ? (float)((double)c.light[(size_t)gy * c.grid_nx + gx] * GRID_UNIT)
               : 0.0f;
}

/* Rows to their transforms, two as one complex line. Block (lines, tile). */
template <int LINES> __global__ void __launch_bounds__(LINE_THREADS) tile_rows_kernel(convolution c)
{
    extern __shared__ float2 lines[];
    const int tile = blockIdx.y, y0 = 2 * LINES * blockIdx.x, n = c.nx, half = c.half();
    for (int i = threadIdx.x; i < LINES * n; i += LINE_THREADS)
        lines[i] =
            make_float2(light_of(c, tile, y0 + 2 * (i / n), i % n), light_of(c, tile, y0 + 2 * (i / n) + 1, i % n));
    __syncthreads();
    const float2 *z = spx::fourier(lines, lines + LINES * n, n, c.along_x, 1.0f, LINES);
    for (int i = threadIdx.x; i < LINES * half; i += LINE_THREADS) {
        const int y = y0 + 2 * (i / half), k = i % half;
        const float2 a = z[i / half * n + k], b = z[i / half * n + (k == 0 ? 0 : n - k)];
        float2 *to = c.spectrum + ((size_t)tile * c.ny + y) * half + k;
        if (y < c.ny)
            to[0] = make_float2(0.5f * (a.x + b.x), 0.5f * (a.y - b.y));
        if (y + 1 < c.ny)
            to[half] = make_float2(0.5f * (a.y + b.y), 0.5f * (b.x - a.x));
    }
}

/* Columns: forward, times the kernel, and back. Block (columns, tile). */
template <int LINES> __global__ void __launch_bounds__(LINE_THREADS) tile_columns_kernel(convolution c)
{
    extern __shared__ float2 lines[];
    const int n = c.ny, half = c.half(), k0 = LINES * blockIdx.x;
    float2 *const spectrum = c.spectrum + (size_t)blockIdx.y * c.ny * half;
    for (int i = threadIdx.x; i < LINES * n; i += LINE_THREADS) {
        const int k = k0 + i % LINES;
        lines[i % LINES * n + i / LINES] =
            k < half ? spectrum[(size_t)(i / LINES) * half + k] : make_float2(0.0f, 0.0f);
    }
    __syncthreads();
    float2 *z = spx::fourier(lines, lines + LINES * n, n, c.along_y, 1.0f, LINES);
    for (int i = threadIdx.x; i < LINES * n; i += LINE_THREADS) {
        const int k = k0 + i % LINES;
        float2 *at = z + i % LINES * n + i / LINES;
        if (k < half)
            *at = spx::times(*at, c.kernel[(size_t)(i / LINES) * half + k]);
    }
    __syncthreads();
    z = spx::fourier(z, z == lines ? lines + LINES * n : lines, n, c.along_y, -1.0f, LINES);
    for (int i = threadIdx.x; i < LINES * n; i += LINE_THREADS) {
        const int k = k0 + i % LINES;
        if (k < half)
            spectrum[(size_t)(i / LINES) * half + k] = z[i % LINES * n + i / LINES];
    }
}

/* Rows of the result. Block (lines, tile). */
template <int LINES> __global__ void __launch_bounds__(LINE_THREADS) tile_back_kernel(convolution c)
{
    extern __shared__ float2 lines[];
    const int tile = blockIdx.y, y0 = c.reach + 2 * LINES * blockIdx.x, n = c.nx, half = c.half();
    for (int i = threadIdx.x; i < LINES * n; i += LINE_THREADS) {
        const int y = y0 + 2 * (i / n), k = i % n, at = k < half ? k : n - k;
        const float2 *from = c.spectrum + ((size_t)tile * c.ny + y) * half + at;
        const float2 none = make_float2(0.0f, 0.0f);
        float2 a = y < c.ny ? from[0] : none, b = y + 1 < c.ny ? from[half] : none;
        if (at == 0 || 2 * at == n) /* that of a real line */
            a.y = b.y = 0.0f;
        const float sign = k < half ? 1.0f : -1.0f;
        lines[i] = make_float2(a.x - sign * b.y, sign * a.y + b.x);
    }
    __syncthreads();
    const float2 *z = spx::fourier(lines, lines + LINES * n, n, c.along_x, -1.0f, LINES);
    for (int i = threadIdx.x; i < LINES * c.inner_x; i += LINE_THREADS) {
        const int line = i / c.inner_x, x = i % c.inner_x;
        const float2 v = z[line * n + x + c.reach];
        const int gx = tile % c.across * c.inner_x + x;
        for (int odd = 0; odd < 2; odd++) {
            const int inner = y0 + 2 * line + odd - c.reach, gy = tile / c.across * c.inner_y + inner;
            if (inner < c.inner_y && gy < c.grid_ny && gx < c.grid_nx)
                c.result[(size_t)gy * c.grid_nx + gx] = odd ? v.y : v.x;
        }
    }
}

template <int LINES> void convolve(const convolution &c, cudaStream_t s)
{
    const size_t bytes = 2 * LINES * sizeof(float2);
    const auto fit = [&](auto kernel, int n) { spx::check(spx::allow_shared(kernel, bytes * (size_t)n), "kernel"); };
    fit(tile_rows_kernel<LINES>, c.nx);
    fit(tile_columns_kernel<LINES>, c.ny);
    fit(tile_back_kernel<LINES>, c.nx);
    tile_rows_kernel<LINES>
        <<<dim3(spx::blocks((size_t)c.ny, 2 * LINES), (unsigned)c.ntile), LINE_THREADS, bytes *(size_t)c.nx, s>>>(c);
    tile_columns_kernel<LINES>
        <<<dim3(spx::blocks((size_t)c.half(), LINES), (unsigned)c.ntile), LINE_THREADS, bytes *(size_t)c.ny, s>>>(c);
    tile_back_kernel<LINES>
        <<<dim3(spx::blocks((size_t)c.inner_y, 2 * LINES), (unsigned)c.ntile), LINE_THREADS, bytes *(size_t)c.nx, s>>>(
            c);
    spx::check(cudaGetLastError(), "launch");
}

/* ---- light ---- */

/* Lights of one fibre in some rows, for the near part: their pixel across the CCD, the table of the place before them,
 * electrons times amplitude there, and at the place behind. */
struct alignas(16) tail_source {
    int x, table;
    float q[SPX_BEYOND_TOGETHER], next[SPX_BEYOND_TOGETHER];
};

/* What all rows of a number of `rows` tell of their sources, which the light does not change: their order by columns.
 */
struct tail_order {
    int rough;       /* see beyond.h */
    int rows, count; /* rows of a source; sources along the CCD */
    int *rank;       /* [count][nspec] */
    int2 *strips;    /* [count][strips] first source near a strip, and one past the last */
};

/* What tails of a layout have on a device. */
struct tail_tables {
    int ny, nx, edge, near, row, nspec, strips;
    const float *table;
    const double *amplitude;
    const float2 *place;
    const double *range;
    double wmin, wmax;
    convolution fine, coarse;
    long long *fine_light, *coarse_light; /* those of the convolutions */
    float *smooth;                        /* [fine.grid_ny][fine.grid_nx] both parts */
    tail_source *source;
};

/* Places of a fibre in rows y .. y + n - 1: how many, and the means of column and wavelength. */
__device__ inline int mean_place(const tail_tables &t, int f, int y, int n, double *column, double *wave)
{
    const double lo = t.range[2 * f], hi = t.range[2 * f + 1];
    double x = 0.0, lambda = 0.0;
    int count = 0;
    for (int k = y; k < y + n; k++) {
        const float2 at = t.place[(size_t)k * t.nspec + f];
        if (!(at.y >= 0.0f))
            continue;
        x += (double)at.x;
        lambda += lo + (hi - lo) * (double)at.y / (SPX_ROW_KNOTS - 1);
        count++;
    }
    *column = x / count;
    *wave = lambda / count;
    return count;
}

/* Order of sources by columns. Block (lights). shared: [nspec] columns. */
__global__ void tail_order_kernel(tail_tables t, tail_order o)
{
    extern __shared__ int middle[];
    const int i = blockIdx.x, y = i * o.rows, n = min(o.rows, t.ny - y);
    for (int f = threadIdx.x; f < t.nspec; f += blockDim.x) {
        double column, wave;
        middle[f] = mean_place(t, f, y, n, &column, &wave) > 0 ? (int)floor(column + 0.5) : INT_MAX;
    }
    __syncthreads();
    for (int f = threadIdx.x; f < t.nspec; f += blockDim.x) {
        int rank = 0;
        for (int g = 0; g < t.nspec; g++)
            rank += middle[g] < middle[f] || (middle[g] == middle[f] && g < f);
        o.rank[(size_t)i * t.nspec + f] = rank;
    }
    for (int s = threadIdx.x; s < t.strips; s += blockDim.x) {
        int2 at = {0, 0};
        for (int g = 0; g < t.nspec; g++) {
            at.x += middle[g] < s * spx::WARP - t.near;
            at.y += middle[g] < (s + 1) * spx::WARP + t.near;
        }
        o.strips[(size_t)i * t.strips + s] = at;
    }
}

/* Amplitude of a fibre's tail: see along() in psf/tail.c. */
__device__ inline double amplitude_of(const tail_tables &t, int f, double lambda)
{
    const int most = SPX_TAIL_KNOTS;
    const double knot = fmin(fmax((lambda - t.wmin) / (t.wmax - t.wmin), 0.0), 1.0) * (most - 1);
    const int k = knot < 1.0 ? 0 : knot < most - 3 ? (int)knot - 1 : most - 4;
    const double u = knot - (double)(k + 1), *a = t.amplitude + (size_t)f * most + k;
    return -a[0] * u * (u - 1) * (u - 2) / 6 + a[1] * (u + 1) * (u - 1) * (u - 2) / 2 -
           a[2] * (u + 1) * u * (u - 2) / 2 + a[3] * (u + 1) * u * (u - 1) / 6;
}

__device__ inline void cubic_weights(float u, float w[4])
{
    w[0] = -u * (u - 1) * (u - 2) / 6;
    w[1] = (u + 1) * (u - 1) * (u - 2) / 2;
    w[2] = -(u + 1) * u * (u - 2) / 2;
    w[3] = (u + 1) * u * (u - 1) / 6;
}

/* First of the four cells of a pixel, and their weights, or those at a place `step` pixels further, too: see
 * cells_around() in psf/tail.c. */
template <int CELL> __device__ inline int cells_around(int pixel, float more, float w[4], float step, float next[4])
{
    const float u = ((float)(pixel % CELL) + more) * (1.0f / (float)CELL);
    const bool before = u < 0.0f;
    cubic_weights(before ? u + 1.0f : u, w);
    cubic_weights((before ? u + 1.0f : u) + step * (1.0f / (float)CELL), next);
    return pixel / CELL + RIM - 1 - (before ? 1 : 0);
}
template <int CELL> __device__ inline int cells_around(int pixel, float more, float w[4])
{
    float next[4];
    return cells_around<CELL>(pixel, more, w, 0.0f, next);
}

/* Adds N lights at a place across, STEP rows from each other from row y on, to a grid. */
template <int CELL, int N, int STEP>
__device__ inline void spread_light(long long *grid, int stride, int x, int y, float dx, const float q[N],
                                    const float next[N])
{
    enum { CELLS = (CELL - 1 + (N - 1) * STEP) / CELL + 4 };
    float wx[4], wnext[4], a[CELLS] = {}, b[CELLS] = {};
    const int cx = cells_around<CELL>(x, dx, wx, 1.0f / SPX_TAIL_XPHASES, wnext), cy = y / CELL + RIM - 1;
#pragma unroll
    for (int k = 0; k < N; k++) {
        float wy[4];
        const int up = cells_around<CELL>(y + k * STEP, 0.0f, wy) - cy;
#pragma unroll
        for (int j = 0; j < CELLS; j++) {
            const int i = j - up;
            const float w = i == 0 ? wy[0] : i == 1 ? wy[1] : i == 2 ? wy[2] : i == 3 ? wy[3] : 0.0f;
            a[j] += w * q[k];
            b[j] += w * next[k];
        }
    }
#pragma unroll
    for (int j = 0; j < CELLS; j++)
        for (int i = 0; i < 4; i++) {
            const float v = a[j] * wx[i] + b[j] * wnext[i];
            if (v != 0.0f)
                atomicAdd((unsigned long long *)(grid + (size_t)(cy + j) * stride + cx + i),
                          (unsigned long long)llrint((double)v * (1.0 / GRID_UNIT)));
        }
}

enum { SOURCE_THREADS = 128 };

/* Light [ny][nspec] of each fibre in some rows onto the grids, and as a source; sum: [blocks] of all. Thread (source,
 * fibre): see set_light() in ../trace/tail.c. */
template <int ROUGH>
__global__ void __launch_bounds__(SOURCE_THREADS)
    tail_source_kernel(tail_tables t, tail_order o, const float *light, double *sum)
{
    enum {
        ROWS = ROUGH ? (int)SPX_BEYOND_ROUGHLY : (int)SPX_BEYOND_TOGETHER,
        N = ROUGH ? 2 : (int)SPX_BEYOND_TOGETHER,
        STEP = ROUGH ? (int)SPX_BEYOND_APART : 1
    };
    __shared__ double part[SOURCE_THREADS / spx::WARP];
    const size_t item = (size_t)blockIdx.x * SOURCE_THREADS + threadIdx.x;
    double all = 0.0;
    if (item < (size_t)o.count * t.nspec) {
        const int i = (int)(item / t.nspec), f = (int)(item % t.nspec), y = i * ROWS;
        tail_source s = {};
        double column, wave;
        if (mean_place(t, f, y, min(ROWS, t.ny - y), &column, &wave) > 0) {
            const double middle = floor(column + 0.5), phase = (column - middle + 0.5) * SPX_TAIL_XPHASES;
            const int place = phase > 0.0 ? (int)fmin(phase, (double)(SPX_TAIL_XPHASES - 1)) : 0;
            const double dx = (double)place / SPX_TAIL_XPHASES - 0.5, amplitude = amplitude_of(t, f, wave);
            const int gx = (int)middle + t.edge;
            double electrons[N] = {}, moment[N] = {};
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                const float2 at = y + k < t.ny ? t.place[(size_t)(y + k) * t.nspec + f] : make_float2(0.0f, -1.0f);
                if (!(at.y >= 0.0f))
                    continue;
                const double here = (double)light[(size_t)(y + k) * t.nspec + f];
                all += here;
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const double has = here * spx_beyond_part(ROUGH, k, j);
                    electrons[j] += has;
                    moment[j] += has * ((double)at.x - (middle + dx));
                }
            }
            s.x = (int)middle;
            s.table = place;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const double next = moment[j] * SPX_TAIL_XPHASES;
                s.q[j] = (float)(amplitude * (electrons[j] - next));
                s.next[j] = (float)(amplitude * next);
            }
            if (gx >= 0 && gx < t.nx + 2 * t.edge) {
                const int gy = y + spx_beyond_row(ROUGH, 0) + t.edge;
                spread_light<SPX_TAIL_FINE, N, STEP>(t.fine_light, t.fine.grid_nx, gx, gy, (float)dx, s.q, s.next);
                spread_light<SPX_TAIL_COARSE, N, STEP>(t.coarse_light, t.coarse.grid_nx, gx, gy, (float)dx, s.q,
                                                       s.next);
            } else {
                s = {};
            }
        }
        t.source[(size_t)i * t.nspec + o.rank[item]] = s;
    }
    const double sums = spx::block_sum<SOURCE_THREADS / spx::WARP>(all, part);
    if (threadIdx.x == 0)
        sum[blockIdx.x] = sums;
}

/* Both smooth parts on the middle grid, [fine.grid_ny][fine.grid_nx]. Thread (cell). */
__global__ void tail_smooth_kernel(tail_tables t)
{
    enum { RATIO = SPX_TAIL_COARSE / SPX_TAIL_FINE };
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
    if (x >= t.fine.grid_nx)
        return;
    float wx[4], wy[4], sum = 0.0f;
    const int shift = RATIO * RIM - RIM, up = cells_around<RATIO>(y + shift, 0.0f, wy) - RIM,
              left = cells_around<RATIO>(x + shift, 0.0f, wx) - RIM;
    for (int i = 0; i < 4; i++) {
        const float *c = t.coarse.result + (size_t)up * t.coarse.grid_nx + left + i;
        const size_t n = (size_t)t.coarse.grid_nx;
        sum += wx[i] * (wy[0] * c[0] + wy[1] * c[n] + wy[2] * c[2 * n] + wy[3] * c[3 * n]);
    }
    const size_t at = (size_t)y * t.fine.grid_nx + x;
    t.smooth[at] = t.fine.result[at] + sum;
}

/* Elements of the tables of the near part. */
__device__ __host__ inline int tail_table_size(const tail_tables &t)
{
    return (SPX_TAIL_XPHASES + 1) * (2 * t.near + 1) * t.row;
}

/* Pixels that the near part reaches, and columns of a row of its tables, with spots of the usual sizes: loops over rows
 * are compiled for these. */
enum { NEAR_USUAL = 11, ROW_USUAL = 24 };

/* Adds the near part of the sources of some rows, first to end - 1, to column x of the rows of a strip, the first of
 * which has row `top` of a table for their first light. Rows of a table are read once for all lights of a source. */
template <int N, int STEP>
__device__ __forceinline__ void add_near(int near, int row, const float *table, const tail_source *s, int first,
                                         int end, int x, int top, float (&sum)[STRIP_ROWS])
{
    enum { SPAN = (N - 1) * STEP };
    const int side = 2 * near + 1, behind = side * row; /* table of the next place */
    for (int k = first; k < end; k++) {
        const tail_source of = s[k];
        const int column = x - of.x + near;
        if (column < 0 || column >= side)
            continue;
        const float *const from = table + of.table * behind + column;
#pragma unroll
        for (int i = -SPAN; i < STRIP_ROWS; i++) {
            if (top + i < 0 || top + i >= side)
                continue;
            const float v = from[(top + i) * row], w = from[(top + i) * row + behind];
#pragma unroll
            for (int j = 0; j < N; j++)
                if (i + j * STEP >= 0 && i + j * STEP < STRIP_ROWS)
                    sum[i + j * STEP] = fmaf(of.q[j], v, fmaf(of.next[j], w, sum[i + j * STEP]));
        }
    }
}

/* The image of tails, [ny][nx]; sum: [parts] of all. A warp: a strip of some rows; a lane: a column of it. A block has
 * one part of the image after the other; SHARED: and the tables. USUAL: those are. */
template <int ROUGH, bool SHARED, bool USUAL>
__global__ void __launch_bounds__(spx::WARP *STRIP_WARPS)
    tail_image_kernel(tail_tables t, tail_order o, int nparts, float *far, double *sum)
{
    enum {
        N = ROUGH ? 2 : (int)SPX_BEYOND_TOGETHER,
        STEP = ROUGH ? (int)SPX_BEYOND_APART : 1,
        ROWS = ROUGH ? (int)SPX_BEYOND_ROUGHLY : (int)SPX_BEYOND_TOGETHER, /* of a source; a strip has a multiple */
        FIRST = ROUGH ? (int)SPX_BEYOND_FIRST : 0,
        CELLS = (STRIP_ROWS + SPX_TAIL_FINE - 2) / SPX_TAIL_FINE + 4 /* of the middle grid, in a column */
    };
    extern __shared__ float tables[];
    __shared__ double part[STRIP_WARPS];
    for (int i = (int)threadIdx.x; SHARED && i < tail_table_size(t); i += spx::WARP * STRIP_WARPS)
        tables[i] = t.table[i];
    const float *const table = SHARED ? tables : t.table;
    const int near = USUAL ? (int)NEAR_USUAL : t.near, row = USUAL ? (int)ROW_USUAL : t.row;
    __syncthreads();
    for (int of = (int)blockIdx.x; of < nparts; of += (int)gridDim.x) {
        const int strip = of % t.strips, x = strip * spx::WARP + (int)threadIdx.x % spx::WARP;
        const int y0 = (of / t.strips * STRIP_WARPS + (int)threadIdx.x / spx::WARP) * STRIP_ROWS;
        double all = 0.0;
        if (y0 < t.ny) {
            float line[STRIP_ROWS] = {};
#pragma unroll
            for (int d = -(near + FIRST + (N - 1) * STEP) / ROWS; d <= (near - FIRST + STRIP_ROWS - 1) / ROWS; d++) {
                const int i = y0 / ROWS + d;
                if (i < 0 || i >= o.count)
                    continue;
                const int2 range = o.strips[(size_t)i * t.strips + strip];
                add_near<N, STEP>(near, row, table, t.source + (size_t)i * t.nspec, range.x, range.y, x,
                                  near - FIRST - d * ROWS, line);
            }
            float cell[CELLS], w[4];
            const int n = t.fine.grid_nx, left = cells_around<SPX_TAIL_FINE>(min(x, t.nx - 1) + t.edge, 0.0f, w),
                      top = (y0 + t.edge) / SPX_TAIL_FINE + RIM - 1;
#pragma unroll
            for (int j = 0; j < CELLS; j++) {
                const float *from = t.smooth + (size_t)min(top + j, t.fine.grid_ny - 1) * n + left;
                cell[j] = w[0] * from[0] + w[1] * from[1] + w[2] * from[2] + w[3] * from[3];
            }
#pragma unroll
            for (int r = 0; r < STRIP_ROWS; r++) {
                const int up = cells_around<SPX_TAIL_FINE>(y0 + r + t.edge, 0.0f, w) - top;
                float v = 0.0f;
#pragma unroll
                for (int j = 0; j < CELLS; j++) {
                    const int i = j - up;
                    v += (i == 0 ? w[0] : i == 1 ? w[1] : i == 2 ? w[2] : i == 3 ? w[3] : 0.0f) * cell[j];
                }
                v += line[r];
                if (y0 + r < t.ny && x < t.nx) {
                    far[(size_t)(y0 + r) * t.nx + x] = v;
                    all += (double)v;
                }
            }
        }
        all = spx::block_sum<STRIP_WARPS>(all, part);
        if (threadIdx.x == 0)
            sum[of] = all;
        __syncthreads();
    }
}

/* Sum of many, in a fixed order, by one block. */
__global__ void __launch_bounds__(1024) total_kernel(const double *v, size_t n, double *to)
{
    __shared__ double part[1024 / spx::WARP];
    double sum = 0.0;
    for (size_t i = threadIdx.x; i < n; i += 1024)
        sum += v[i];
    sum = spx::block_sum<1024 / spx::WARP>(sum, part);
    if (threadIdx.x == 0)
        *to = sum;
}

/* Blocks of sums: of sources, of the image. */
inline size_t tail_blocks(const tail_tables &t, const tail_order &o)
{
    return std::max((size_t)spx::blocks((size_t)o.count * t.nspec, SOURCE_THREADS),
                    (size_t)t.strips * spx::blocks((size_t)t.ny, STRIP_WARPS * STRIP_ROWS));
}

template <int ROUGH>
void draw_tail_of(const tail_tables &t, const tail_order &o, const float *light, float *far, double *scratch,
                  double *total, cudaStream_t s)
{
    const auto clear = [&](const convolution &c, long long *grid) {
        spx::check(cudaMemsetAsync(grid, 0, (size_t)c.grid_ny * c.grid_nx * sizeof *grid, s), "device memory");
    };
    clear(t.fine, t.fine_light);
    clear(t.coarse, t.coarse_light);
    const unsigned nsource = spx::blocks((size_t)o.count * t.nspec, SOURCE_THREADS);
    tail_source_kernel<ROUGH><<<nsource, SOURCE_THREADS, 0, s>>>(t, o, light, scratch);
    total_kernel<<<1, 1024, 0, s>>>(scratch, nsource, total);
    convolve<TILE_LINES>(t.fine, s);
    convolve<FIELD_LINES>(t.coarse, s);
    tail_smooth_kernel<<<dim3(spx::blocks((size_t)t.fine.grid_nx, 128), (unsigned)t.fine.grid_ny), 128, 0, s>>>(t);
    const unsigned nparts = (unsigned)t.strips * spx::blocks((size_t)t.ny, STRIP_WARPS * STRIP_ROWS);
    const size_t bytes = (size_t)tail_table_size(t) * sizeof(float);
    int most, count;
    const int device = spx::device_in_use();
    spx::check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
    spx::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device");
    const bool shared = bytes + 1024 <= (size_t)most;
    const bool usual = t.near == NEAR_USUAL && t.row == ROW_USUAL;
    const auto kernel = !shared ? tail_image_kernel<ROUGH, false, false>
                        : usual ? tail_image_kernel<ROUGH, true, true>
                                : tail_image_kernel<ROUGH, true, false>;
    if (shared)
        spx::check(spx::allow_shared(kernel, bytes), "kernel");
    kernel<<<shared ? std::min(nparts, (unsigned)count) : nparts, spx::WARP * STRIP_WARPS, shared ? bytes : 0, s>>>(
        t, o, (int)nparts, far, scratch);
    total_kernel<<<1, 1024, 0, s>>>(scratch, nparts, total + 1);
    spx::check(cudaGetLastError(), "launch");
}

/* The image of tails of light [ny][nspec] into far[ny][nx]; total: [2] light of fibres, of tails. scratch: as
 * tail_blocks() says. */
inline void draw_tail(const tail_tables &t, const tail_order &o, const float *light, float *far, double *scratch,
                      double *total, cudaStream_t s)
{
    if (o.rough)
        draw_tail_of<1>(t, o, light, far, scratch, total, s);
    else
        draw_tail_of<0>(t, o, light, far, scratch, total, s);
}

} // namespace

#endif
