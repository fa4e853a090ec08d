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
    STRIP_COLUMNS = 256, /* of the image, of a warp */
    STRIP_ROWS = 8,      /* warps of a block */
    AT_ONCE = 4          /* sources whose tables are read at one time */
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

/* Light of one fibre in some rows, for the near part: its pixel on the CCD, its table, electrons times amplitude. */
struct alignas(16) tail_source {
    int x, y, table;
    float q;
};

/* What all rows of a number of `rows` tell of their sources, which the light does not change: their order by columns.
 */
struct tail_order {
    int rows, count; /* rows of a light; lights along the CCD */
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
            at.x += middle[g] < s * STRIP_COLUMNS - t.near;
            at.y += middle[g] < (s + 1) * STRIP_COLUMNS + t.near;
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

/* First of the four cells of a pixel, and their weights: see cells_of() in psf/tail.c. */
template <int CELL> __device__ inline int cells_around(int pixel, float more, float w[4])
{
    const float u = ((float)(pixel % CELL) + more) * (1.0f / (float)CELL);
    const bool before = u < 0.0f;
    cubic_weights(before ? u + 1.0f : u, w);
    return pixel / CELL + RIM - 1 - (before ? 1 : 0);
}

template <int CELL>
__device__ inline void spread_light(long long *grid, int stride, int x, int y, float dx, float dy, float q)
{
    float wx[4], wy[4];
    const int cx = cells_around<CELL>(x, dx, wx), cy = cells_around<CELL>(y, dy, wy);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++)
            atomicAdd((unsigned long long *)(grid + (size_t)(cy + j) * stride + cx + i),
                      (unsigned long long)llrint((double)(q * wy[j] * wx[i]) * (1.0 / GRID_UNIT)));
}

__device__ inline int phase_among(float d, int n)
{
    const float p = (d + 0.5f) * (float)n;
    return p > 0.0f ? (int)fminf(p, (float)(n - 1)) : 0;
}

enum { SOURCE_THREADS = 128 };

/* Light [ny][nspec] of each fibre in some rows onto the grids, and as a source; sum: [blocks] of all. Thread (light,
 * fibre): see set_light() in ../trace/tail.c. */
__global__ void __launch_bounds__(SOURCE_THREADS)
    tail_source_kernel(tail_tables t, tail_order o, const float *light, double *sum)
{
    __shared__ double part[SOURCE_THREADS / spx::WARP];
    const size_t item = (size_t)blockIdx.x * SOURCE_THREADS + threadIdx.x;
    double all = 0.0;
    if (item < (size_t)o.count * t.nspec) {
        const int i = (int)(item / t.nspec), f = (int)(item % t.nspec), y = i * o.rows, n = min(o.rows, t.ny - y);
        double moment = 0.0, middle = 0.0, least = 0.0, column, wave;
        for (int k = 0; k < n; k++) {
            if (!(t.place[(size_t)(y + k) * t.nspec + f].y >= 0.0f))
                continue;
            const double here = (double)light[(size_t)(y + k) * t.nspec + f];
            all += here;
            moment += here * (double)k;
            middle += (double)k;
            least = fmin(least, here);
        }
        const int count = mean_place(t, f, y, n, &column, &wave);
        tail_source s = {0, 0, 0, 0.0f};
        if (count > 0 && all != 0.0) {
            middle /= count;
            const double row = (double)y + (least < 0.0 || !(all > 0.0) ? middle : moment / all);
            const double my = floor(row + 0.5), mx = floor(column + 0.5);
            const float dx = (float)(column - mx), dy = (float)(row - my);
            const int gx = (int)mx + t.edge, gy = (int)my + t.edge;
            if (gx >= 0 && gy >= 0 && gx < t.nx + 2 * t.edge && gy < t.ny + 2 * t.edge) {
                const float q = (float)(all * amplitude_of(t, f, wave));
                s = {(int)mx, (int)my,
                     phase_among(dx, SPX_TAIL_XPHASES) * SPX_TAIL_YPHASES + phase_among(dy, SPX_TAIL_YPHASES), q};
                spread_light<SPX_TAIL_FINE>(t.fine_light, t.fine.grid_nx, gx, gy, dx, dy, q);
                spread_light<SPX_TAIL_COARSE>(t.coarse_light, t.coarse.grid_nx, gx, gy, dx, dy, q);
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

/* Adds the near part of the sources of some rows, first to end - 1, to row y of the image, columns x0 ..: one after the
 * other, a lane a column of a table. */
__device__ inline void add_near(const tail_tables &t, const tail_source *s, int first, int end, int y, int x0,
                                float *line)
{
    const int side = 2 * t.near + 1, lane = (int)threadIdx.x % spx::WARP;
    for (int k = first; k < end; k += AT_ONCE)
        for (int i = lane; i < side + lane; i += spx::WARP) {
            float v[AT_ONCE];
            int column[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const tail_source of = s[min(k + j, end - 1)];
                const int dy = y - of.y + t.near, c = of.x - t.near - x0 + i;
                const bool on = k + j < end && dy >= 0 && dy < side && i < side && c >= 0 && c < STRIP_COLUMNS;
                column[j] = on ? c : -1;
                v[j] = on ? of.q * t.table[((size_t)of.table * side + dy) * t.row + i] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                if (column[j] >= 0)
                    line[column[j]] += v[j];
                __syncwarp();
            }
        }
}

/* The image of tails, [ny][nx]; sum: [blocks] of all. A warp: some columns of a row. */
__global__ void __launch_bounds__(spx::WARP *STRIP_ROWS)
    tail_image_kernel(tail_tables t, tail_order o, float *far, double *sum)
{
    __shared__ float lines[STRIP_ROWS][STRIP_COLUMNS];
    __shared__ double part[STRIP_ROWS];
    const int lane = (int)threadIdx.x % spx::WARP, strip = (int)blockIdx.x, x0 = strip * STRIP_COLUMNS;
    const int y = (int)blockIdx.y * STRIP_ROWS + (int)threadIdx.x / spx::WARP;
    float *const line = lines[threadIdx.x / spx::WARP];
    double all = 0.0;
    if (y < t.ny) {
        float wx[4], wy[4];
        const int n = t.fine.grid_nx, up = cells_around<SPX_TAIL_FINE>(y + t.edge, 0.0f, wy);
        for (int c = lane; c < STRIP_COLUMNS; c += spx::WARP) {
            const int left = cells_around<SPX_TAIL_FINE>(min(x0 + c, t.nx - 1) + t.edge, 0.0f, wx);
            const float *from = t.smooth + (size_t)up * n + left;
            float v = 0.0f;
            for (int i = 0; i < 4; i++)
                v +=
                    wx[i] * (wy[0] * from[i] + wy[1] * from[n + i] + wy[2] * from[2 * n + i] + wy[3] * from[3 * n + i]);
            line[c] = v;
        }
        __syncwarp();
        const int first = max(0, (y - t.near) / o.rows - 1), last = min(o.count - 1, (y + t.near) / o.rows);
        for (int i = first; i <= last; i++) {
            const int2 range = o.strips[(size_t)i * t.strips + strip];
            add_near(t, t.source + (size_t)i * t.nspec, range.x, range.y, y, x0, line);
        }
        for (int c = lane; c < STRIP_COLUMNS && x0 + c < t.nx; c += spx::WARP) {
            far[(size_t)y * t.nx + x0 + c] = line[c];
            all += (double)line[c];
        }
    }
    all = spx::block_sum<STRIP_ROWS>(all, part);
    if (threadIdx.x == 0)
        sum[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = all;
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

/* The image of tails of light [ny][nspec] into far[ny][nx]; total: [2] light of fibres, of tails. scratch: as
 * tail_blocks() says. */
inline size_t tail_blocks(const tail_tables &t, const tail_order &o)
{
    return std::max((size_t)spx::blocks((size_t)o.count * t.nspec, SOURCE_THREADS),
                    (size_t)t.strips * spx::blocks((size_t)t.ny, STRIP_ROWS));
}

inline void draw_tail(const tail_tables &t, const tail_order &o, const float *light, float *far, double *scratch,
                      double *total, cudaStream_t s)
{
    const auto clear = [&](const convolution &c, long long *grid) {
        spx::check(cudaMemsetAsync(grid, 0, (size_t)c.grid_ny * c.grid_nx * sizeof *grid, s), "device memory");
    };
    clear(t.fine, t.fine_light);
    clear(t.coarse, t.coarse_light);
    const unsigned nsource = spx::blocks((size_t)o.count * t.nspec, SOURCE_THREADS);
    tail_source_kernel<<<nsource, SOURCE_THREADS, 0, s>>>(t, o, light, scratch);
    total_kernel<<<1, 1024, 0, s>>>(scratch, nsource, total);
    convolve<TILE_LINES>(t.fine, s);
    convolve<FIELD_LINES>(t.coarse, s);
    tail_smooth_kernel<<<dim3(spx::blocks((size_t)t.fine.grid_nx, 128), (unsigned)t.fine.grid_ny), 128, 0, s>>>(t);
    const dim3 strips((unsigned)t.strips, spx::blocks((size_t)t.ny, STRIP_ROWS));
    tail_image_kernel<<<strips, spx::WARP * STRIP_ROWS, 0, s>>>(t, o, far, scratch);
    total_kernel<<<1, 1024, 0, s>>>(scratch, (size_t)strips.x * strips.y, total + 1);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
