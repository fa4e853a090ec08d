/* Provides the Gauss-Newton matrix of a bundle with its fluxes eliminated, and its gradient: steps of spx_pf_normal().
 *
 * J is the Jacobian of root times the model. The host multiplies spots by spots; here
 *
 *     E_l    derivatives by the shape of all spots of a line, added up over its fibres with their factors P_a(v), as
 *            images of the line's strip: the shape's part of J is sum_l P_b(u_l) E_l
 *     U      root S, and root f dS/dX, root f dS/dY, of each spot, times J: rows of H_f,theta, and, added up with the
 *            traces' factors, rows of H
 *     E_l' E_k   for the shape by the shape, times P_b(u_l) P_b'(u_k)
 *
 * A strip has the rows of its spots in each column. E_l has single precision: H and U are those of one Jacobian then,
 * whose elements are changed by 6e-8 of themselves, and most of the time goes into reading it. */
#ifndef SPX_PSFFIT_CUDA_NORMAL_CUH
#define SPX_PSFFIT_CUDA_NORMAL_CUH

#include "cuda/tensor.cuh"
#include "psffit/cuda/spots.cuh"

namespace spx_pf
{

/* ---- gradient ---- */

inline size_t gradient_room(const problem &p)
{
    return (size_t)(p.npix + p.norder * p.nx + p.norder * p.norder);
}

/* f sum root rest dS/dq of each spot, by its place and its shape, out[nspot][2 + active]: as kernels->gradient. */
__global__ void __launch_bounds__(SPOT_THREADS)
    spot_gradient_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double *out)
{
    extern __shared__ double shared[];
    double *rest = shared, *along = rest + p.npix, *m = along + p.norder * p.nx;
    const size_t k = blockIdx.x, x = k / spots_of(p);
    const int me = (int)threadIdx.x, l = (int)(k / (size_t)p.nf % (size_t)p.nl), orders = p.norder, nx = p.nx;
    const spx_pf_at at = s.at[k];
    out += k * (size_t)(2 + p.active);
    if (at.y0 == at.y1 || p.lines[l].weak) {
        for (int q = me; q < 2 + p.active; q += SPOT_THREADS)
            out[q] = 0;
        return;
    }
    const double *gx = s.gx + k * (size_t)(orders * nx), *gy = s.gy + k * (size_t)(orders * p.ny);
    const double *c = s.c + k * (size_t)p.nc, flux = s.flux[k];
    for (int q = me; q < p.npix; q += SPOT_THREADS) {
        const int r = q / nx, col = q % nx;
        double v = 0;
        if (r >= at.y0 && r < at.y1 && col >= at.x0 && col < at.x1 && s.spot[k * (size_t)p.npix + (size_t)q] > 0) {
            const size_t pixel = x * pixels_of(p) + (size_t)((at.yc + r) * p.width + at.xc + col);
            v = flux * p.root[pixel] * (p.goal[pixel] - p.root[pixel] * s.light[pixel]);
        }
        rest[q] = v;
    }
    __syncthreads();
    for (int q = me; q < orders * nx; q += SPOT_THREADS) {
        double sum = 0;
        for (int y = 0; y < p.ny; y++)
            sum = fma(gy[q / nx * p.ny + y], rest[y * nx + q % nx], sum);
        along[q] = sum;
    }
    __syncthreads();
    for (int q = me; q < orders * orders; q += SPOT_THREADS) { /* m[j][i] */
        double sum = 0;
        for (int i = 0; i < nx; i++)
            sum = fma(along[q / orders * nx + i], gx[q % orders * nx + i], sum);
        m[q] = sum;
    }
    __syncthreads();
    if (me < 4 && me < 2 + p.active) {
        double sum = 0;
        for (int j = 0; j < p.side; j++)
            for (int i = 0; i < p.side; i++) {
                const double *of = m + j * orders + i;
                const double v = me == 0   ? of[1]
                                 : me == 1 ? of[orders]
                                 : me == 2 ? of[2] + i * of[0]
                                           : of[2 * orders] + j * of[0];
                sum += c[i + p.side * j] * v;
            }
        out[me] = sum / (me % 2 == 0 ? at.sigx : at.sigy);
    }
    for (int q = 2 + me; q < p.active; q += SPOT_THREADS)
        out[2 + q] = m[(q - 1) / p.side * orders + (q - 1) % p.side];
}

/* The shape's part of a line, added up over its fibres: out[nexp nl][ns]. */
__global__ void __launch_bounds__(THREADS)
    line_gradient_kernel(const __grid_constant__ problem p, const double *spot, double *out)
{
    const size_t k = blockIdx.x;
    for (int e = (int)threadIdx.x; e < p.ns; e += THREADS) {
        double sum = 0;
        for (int i = 0; i < p.nf; i++)
            sum += p.vterm[i * p.na + e / p.active] *
                   spot[(k * (size_t)p.nf + (size_t)i) * (size_t)(2 + p.active) + (size_t)(2 + e % p.active)];
        out[k * (size_t)p.ns + (size_t)e] = sum;
    }
}

/* The gradient, out[n]: a warp a column. */
__global__ void __launch_bounds__(THREADS)
    gradient_kernel(const __grid_constant__ problem p, const double *spot, const double *by_line, double *out)
{
    const size_t c = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int lane = (int)threadIdx.x % WARP, nline = p.nexp * p.nl, each = 2 + p.active;
    if (c >= (size_t)p.n)
        return;
    double sum = 0;
    if (c < p.shift0) {
        const int i = (int)c / (2 * p.ntr), y = (int)c / p.ntr % 2, k = (int)c % p.ntr;
        for (int l = lane; l < nline; l += WARP)
            sum += p.lines[l % p.nl].term[k] * spot[(size_t)(l * p.nf + i) * (size_t)each + (size_t)y];
    } else if (c < p.free0) {
        const int x = 1 + (int)(c - p.shift0) / 2, y = (int)(c - p.shift0) % 2;
        for (int m = lane; m < p.nl * p.nf; m += WARP)
            sum += spot[(size_t)(x * p.nl * p.nf + m) * (size_t)each + (size_t)y];
    } else if (c < p.shape0) {
        for (int m = lane; m < nline * p.nf; m += WARP) {
            const int l = m / p.nf % p.nl;
            if (p.lines[l].free == (int)(c - p.free0) + 1)
                for (int y = 0; y < 2; y++)
                    sum += p.slope[2 * (l * p.nf + m % p.nf) + y] * spot[(size_t)m * (size_t)each + (size_t)y];
        }
    } else {
        const size_t q = c - p.shape0;
        for (int l = lane; l < nline; l += WARP)
            sum += p.lines[l % p.nl].term[q / (size_t)p.ns] * by_line[(size_t)l * (size_t)p.ns + q % (size_t)p.ns];
    }
    sum = spx::warp_sum(sum);
    if (lane == 0)
        out[c] = sum;
}

/* ---- derivatives ---- */

/* Stamps of the derivatives of the spots of exposure x, as kernels->derive makes them, [nl nf][npix] of each from
 * SPX_PF_BY_X on. */
__global__ void __launch_bounds__(SPOT_THREADS)
    derive_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, double *stamp)
{
    extern __shared__ double shared[];
    double *across = shared, *right = across + p.side * p.nx, *wide = right + p.side * p.nx;
    const size_t n = spots_of(p), k = (size_t)x * n + blockIdx.x, npix = (size_t)p.npix;
    const int me = (int)threadIdx.x, nx = p.nx, ny = p.ny;
    const spx_pf_at at = s.at[k];
    const double *gx = s.gx + k * (size_t)(p.norder * nx), *gy = s.gy + k * (size_t)(p.norder * ny);
    const double *c = s.c + k * (size_t)p.nc, flux = s.flux[k];
    const float *root = p.root + (size_t)x * pixels_of(p);
    stamp += blockIdx.x * npix;
    if (at.y0 == at.y1) {
        for (size_t q = me; q < npix; q += SPOT_THREADS)
            for (int e = 0; e < (p.ns > 0 ? 5 : 2); e++)
                stamp[(size_t)e * n * npix + q] = 0;
        return;
    }
    for (int q = me; q < p.side * nx; q += SPOT_THREADS) {
        double a = 0, b = 0, w = 0;
        for (int i = 0; i < p.side; i++) {
            const double f = c[i + p.side * (q / nx)], *g = gx + i * nx + q % nx;
            a = fma(f, g[0], a);
            b = fma(f, g[nx], b);
            w = fma(f, g[2 * nx] + i * g[0], w);
        }
        across[q] = a;
        right[q] = b / at.sigx;
        wide[q] = w / at.sigx;
    }
    __syncthreads();
    for (int q = me; q < p.npix; q += SPOT_THREADS) {
        const int y = q / nx, col = q % nx;
        double lit = 0, sum[4] = {0, 0, 0, 0};
        if (y >= at.y0 && y < at.y1 && col >= at.x0 && col < at.x1 && s.spot[k * npix + (size_t)q] > 0)
            lit = root[(at.yc + y) * p.width + at.xc + col] * flux;
        for (int j = 0; j < p.side && lit != 0; j++) {
            const double g = gy[j * ny + y], a = across[j * nx + col];
            sum[0] = fma(g, right[j * nx + col], sum[0]);
            sum[1] = fma(gy[(j + 1) * ny + y], a, sum[1]);
            sum[2] = fma(g, wide[j * nx + col], sum[2]);
            sum[3] = fma(gy[(j + 2) * ny + y] + j * g, a, sum[3]);
        }
        for (int e = 0; e < (p.ns > 0 ? 4 : 2); e++)
            stamp[(size_t)e * n * npix + (size_t)q] = lit * (e % 2 == 0 ? sum[e] : sum[e] / at.sigy);
        if (p.ns > 0)
            stamp[4 * n * npix + (size_t)q] = lit;
    }
}

/* First row of each column of a line's strip, strip[nl][width], and the largest number of rows, *most. */
__global__ void __launch_bounds__(THREADS)
    strip_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, int *strip, int *most)
{
    const int l = (int)blockIdx.x;
    for (long c = threadIdx.x; c < p.width; c += THREADS) {
        long lo = p.height, hi = 0;
        for (int i = 0; i < p.nf; i++) {
            const spx_pf_at &at = s.at[(size_t)x * spots_of(p) + (size_t)(l * p.nf + i)];
            if (at.xc + at.x0 <= c && c < at.xc + at.x1) {
                lo = at.yc + at.y0 < lo ? at.yc + at.y0 : lo;
                hi = at.yc + at.y1 > hi ? at.yc + at.y1 : hi;
            }
        }
        strip[(size_t)l * (size_t)p.width + (size_t)c] = lo < hi ? (int)lo : 0;
        if (lo < hi)
            atomicMax(most, (int)(hi - lo));
    }
}

/* A spot that a column of a line's strip has: its fibre, its rows of the bundle, and where row 0 would be in its
 * stamps, g_i(x) and g_j(y). */
struct crossing {
    int fibre, y0, y1;
    long stamp, gx, gy;
};

/* E_l of a column: image[line - line0][width][rows][ns]; a block a line and column. */
__global__ void __launch_bounds__(THREADS)
    image_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, int line0, int rows,
                 const int *strip, const double *stamp, float *image)
{
    extern __shared__ double shared[];
    crossing *in = reinterpret_cast<crossing *>(shared);
    __shared__ int nin;
    const int l = line0 + (int)blockIdx.x, lane = (int)threadIdx.x % WARP;
    const long c = blockIdx.y;
    const size_t n = spots_of(p), base = (size_t)(l * p.nf), npix = (size_t)p.npix;
    const spx_pf_at *place = s.at + (size_t)x * n + base;
    if (p.lines[l].weak)
        return;
    if (threadIdx.x < WARP) { /* fibres that the column has */
        int some = 0;
        for (int first = 0; first < p.nf; first += WARP) {
            const int i = first + lane;
            const unsigned has =
                __ballot_sync(FULL, i < p.nf && place[i].xc + place[i].x0 <= c && c < place[i].xc + place[i].x1);
            if (has >> lane & 1) {
                const spx_pf_at &at = place[i];
                const long col = c - at.xc, spot = (long)base + i, k = (long)((size_t)x * n) + spot;
                in[some + __popc(has & ((1u << lane) - 1))] = crossing{i,
                                                                       (int)at.yc + at.y0,
                                                                       (int)at.yc + at.y1,
                                                                       spot * (long)npix - at.yc * p.nx + col,
                                                                       k * (p.norder * p.nx) + col,
                                                                       k * (p.norder * p.ny) - at.yc};
            }
            some += __popc(has);
        }
        if (lane == 0)
            nin = some;
    }
    __syncthreads();
    const int row0 = strip[(size_t)l * (size_t)p.width + (size_t)c];
    image += ((size_t)blockIdx.x * (size_t)p.width + (size_t)c) * (size_t)rows * (size_t)p.ns;
    for (int e = (int)threadIdx.x; e < p.ns; e += THREADS) {
        const int a = e / p.active, q = e % p.active, i = q < 2 ? 0 : (q - 1) % p.side,
                  j = q < 2 ? 0 : (q - 1) / p.side;
        const double *by = stamp + (size_t)(q < 2 ? 2 + q : 4) * n * npix, *gx = s.gx + i * p.nx, *gy = s.gy + j * p.ny;
        for (int r = 0; r < rows; r++) {
            double sum = 0;
            for (int m = 0; m < nin; m++) {
                const crossing &of = in[m];
                const int row = row0 + r;
                if (row < of.y0 || row >= of.y1)
                    continue;
                double v = by[of.stamp + row * p.nx];
                if (q >= 2)
                    v = v * gx[of.gx] * gy[of.gy + row];
                sum = fma(p.vterm[of.fibre * p.na + a], v, sum);
            }
            image[(size_t)r * (size_t)p.ns + (size_t)e] = (float)sum;
        }
    }
}

/* ---- products ---- */

/* Of products of two matrices, A' B by tiles of TILE x TILE, a block of eight warps each: a warp has 16 x 32 elements,
 * STEPS parts of 16 x 8, by the tensor cores of double precision. DEPTH rows of A and B at a time are in shared
 * memory, whose rows are PITCH apart: four rows by eight columns are in different banks. */
constexpr int TILE = 64, DEPTH = 16, PITCH = TILE + 4, TILE_THREADS = 256;
constexpr int STEPS = 4, PART = 8;

/* A thread's elements of a tile. */
struct tile_sum {
    double d[STEPS][4];
    __device__ tile_sum()
    {
        for (int j = 0; j < STEPS; j++)
            for (int e = 0; e < 4; e++)
                d[j][e] = 0;
    }
    __device__ static int row0()
    {
        return (int)threadIdx.x / WARP / 2 * 2 * PART;
    }
    __device__ static int column0()
    {
        return (int)threadIdx.x / WARP % 2 * STEPS * PART;
    }
    /* += A' B of `depth` rows, a multiple of 4; the parts beyond rows and columns of the tile are left out */
    __device__ void add(const double (*a)[PITCH], const double (*b)[PITCH], int depth, int rows, int columns)
    {
        const int lane = (int)threadIdx.x % WARP, r = row0() + lane / 4, c = column0() + lane / 4;
        if (row0() >= rows || column0() >= columns)
            return;
#pragma unroll 4
        for (int k = lane % 4; k < depth; k += 4) {
            const double a0 = a[k][r], a1 = a[k][r + PART];
#pragma unroll
            for (int j = 0; j < STEPS; j++)
                if (column0() + j * PART < columns)
                    spx::multiply_add(d[j], a0, a1, b[k][c + j * PART]);
        }
    }
    /* f(row, column, value) of all of them */
    template <typename F> __device__ void each(F f) const
    {
        const int lane = (int)threadIdx.x % WARP, r = row0() + lane / 4, c = column0() + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < STEPS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                f(r + e / 2 * PART, c + j * PART + e % 2, d[j][e]);
    }
};

/* Tiles of products of the images of two lines, PAIR x PAIR, as many as the shape of degree 6 has rows and columns: so
 * images are read once. A warp has 16 rows and half of the columns, by parts of 16 x 8. */
constexpr int PAIR = 104, PAIR_ROWS = 2 * PART, PAIR_BANDS = (PAIR + PAIR_ROWS - 1) / PAIR_ROWS;
constexpr int PAIR_PITCH = PAIR + 12, PAIR_STEPS = 7, PAIR_THREADS = 2 * PAIR_BANDS * WARP;

/* E_l' E_k of pairs of lines, pair[..][2] of a chunk whose first line is line0: out[pair][ns][ns], of a line by itself
 * the upper triangle. */
__global__ void __launch_bounds__(PAIR_THREADS)
    pair_kernel(const __grid_constant__ problem p, int line0, int rows, const int *strip, const int2 *pair,
                const float *image, double *out)
{
    __shared__ double a[DEPTH][PAIR_PITCH], b[DEPTH][PAIR_PITCH];
    const int l = pair[blockIdx.x].x, k = pair[blockIdx.x].y, me = (int)threadIdx.x, ns = p.ns;
    const int r0 = (int)blockIdx.y * PAIR, c0 = (int)blockIdx.z * PAIR, width = (int)p.width, n = width * rows;
    const bool itself = l == k && r0 == c0;
    if (l == k && r0 > c0)
        return;
    const size_t each = (size_t)n * (size_t)ns;
    const float *el = image + (size_t)(l - line0) * each, *ek = image + (size_t)(k - line0) * each;
    const int *at_l = strip + (size_t)l * (size_t)width, *at_k = strip + (size_t)k * (size_t)width;
    /* pixels of the rows that this thread fetches, while those before are multiplied */
    constexpr int MINE = (DEPTH * PAIR + PAIR_THREADS - 1) / PAIR_THREADS;
    float va[MINE], vb[MINE];
    const auto fetch = [&](int k0) {
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            const int of = me + e * PAIR_THREADS, i = of % PAIR, pixel = of / PAIR < DEPTH ? k0 + of / PAIR : n;
            const int c = pixel / rows, r = pixel % rows;
            const int other = l == k ? r : pixel < n ? r + at_l[c] - at_k[c] : -1;
            const bool both = pixel < n && other >= 0 && other < rows;
            va[e] = both && r0 + i < ns ? el[(size_t)pixel * (size_t)ns + (size_t)(r0 + i)] : 0;
            vb[e] = both && !itself && c0 + i < ns ? ek[(size_t)(c * rows + other) * (size_t)ns + (size_t)(c0 + i)] : 0;
        }
    };
    const int band = me / WARP % PAIR_BANDS, half = me / WARP / PAIR_BANDS, lane = me % WARP;
    const int row = band * PAIR_ROWS, column = half * PAIR_STEPS * PART;
    double d[PAIR_STEPS][4];
    for (int j = 0; j < PAIR_STEPS; j++)
        for (double &v : d[j])
            v = 0;
    fetch(0);
    for (int k0 = 0; k0 < n; k0 += DEPTH) {
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            const int of = me + e * PAIR_THREADS;
            if (of >= DEPTH * PAIR)
                continue;
            a[of / PAIR][of % PAIR] = va[e];
            if (!itself)
                b[of / PAIR][of % PAIR] = vb[e];
        }
        __syncthreads();
        fetch(k0 + DEPTH);
        const double(*const by)[PAIR_PITCH] = itself ? a : b;
#pragma unroll
        for (int t = lane % 4; t < DEPTH; t += 4) {
            const double a0 = a[t][row + lane / 4], a1 = a[t][row + PART + lane / 4];
#pragma unroll
            for (int j = 0; j < PAIR_STEPS; j++) {
                const int c = column + j * PART;
                if (c < PAIR && c0 + c < ns && r0 + row < ns && (!itself || c + PART > row))
                    spx::multiply_add(d[j], a0, a1, by[t][c + lane / 4]);
            }
        }
        __syncthreads();
    }
    out += (size_t)blockIdx.x * (size_t)ns * (size_t)ns;
#pragma unroll
    for (int j = 0; j < PAIR_STEPS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = row + lane / 4 + e / 2 * PART, c = column + j * PART + lane % 4 * 2 + e % 2;
            if (r < PAIR && c < PAIR && r0 + r < ns && c0 + c < ns)
                out[(size_t)(r0 + r) * (size_t)ns + (size_t)(c0 + c)] = d[j][e];
        }
}

/* The shape by the shape: H += sum over pairs of lines P_b(u_l) P_b'(u_k) E_l' E_k, both ways. */
__global__ void __launch_bounds__(THREADS)
    shape_kernel(const __grid_constant__ problem p, int npair, const int2 *pair, const double *product, double *h)
{
    const size_t e = (size_t)blockIdx.x * THREADS + threadIdx.x, all = (size_t)(p.nb * p.ns), ns = (size_t)p.ns;
    if (e >= all * all || e / all > e % all)
        return;
    const size_t r = e / all, c = e % all, i = r % ns, j = c % ns;
    const int s = (int)(r / ns), t = (int)(c / ns);
    double sum = 0;
    for (int k = 0; k < npair; k++) {
        const double *tl = p.lines[pair[k].x].term, *tk = p.lines[pair[k].y].term;
        const double *v = product + (size_t)k * ns * ns;
        if (pair[k].x != pair[k].y)
            sum += tl[s] * tk[t] * v[i * ns + j] + tk[s] * tl[t] * v[j * ns + i];
        else
            sum += tl[s] * tk[t] * v[i < j ? i * ns + j : j * ns + i];
    }
    h[(p.shape0 + r) * (size_t)p.n + p.shape0 + c] += sum;
}

/* Rows of U of a spot of exposure x, u[3][nl nf][n]: a block. stamp: the derivatives'. dots: work, [nl nf][lines of the
 * largest group][2 (2 reach + 1)][3]. Lines of the groups from line0 to line1. */
__global__ void __launch_bounds__(THREADS)
    spot_rows_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, int line0, int rows,
                     int most, const int *strip, const double *stamp, const float *image, double *dots, double *u)
{
    extern __shared__ double shared[]; /* [3][npix] */
    const size_t n = spots_of(p), npix = (size_t)p.npix, base = (size_t)x * n;
    const size_t spot = (size_t)(line0 * p.nf) + blockIdx.x, columns = (size_t)p.n;
    const int l = (int)(spot / (size_t)p.nf), i = (int)(spot % (size_t)p.nf), me = (int)threadIdx.x, lane = me % WARP;
    const line &of = p.lines[l];
    const int nq = of.weak ? 1 : 3, side = 2 * p.reach + 1;
    const spx_pf_at at = s.at[base + spot];
    if (of.quiet)
        return;
    for (int e = me; e < 3 * p.npix; e += THREADS)
        shared[e] = e < p.npix ? p.stamp[(base + spot) * npix + (size_t)e]
                               : stamp[(size_t)(e / p.npix - 1) * n * npix + spot * npix + (size_t)(e % p.npix)];
    dots += spot * (size_t)(most * side * 6);
    __syncthreads();
    /* by the places of spots around: [line][fibre][y][3] */
    for (int e = me / WARP; e < (of.last - of.first) * side * 2; e += WARPS) {
        const int m = of.first + e / (2 * side), j = i - p.reach + e / 2 % side;
        double sum[3] = {0, 0, 0};
        if (j >= 0 && j < p.nf && !p.lines[m].weak) {
            const size_t other = (size_t)(m * p.nf + j);
            const spx_pf_overlap o = spx_pf_overlap_of(p.nx, &at, &s.at[base + other]);
            const double *d = stamp + (size_t)(e % 2) * n * npix + other * npix + o.b;
            for (int k = lane; k < o.w * o.h; k += WARP) {
                const int pixel = k / o.w * p.nx + k % o.w;
                for (int q = 0; q < nq; q++)
                    sum[q] = fma(shared[(size_t)q * npix + o.a + (size_t)pixel], d[pixel], sum[q]);
            }
        }
        for (int q = 0; q < nq; q++) {
            sum[q] = spx::warp_sum(sum[q]);
            if (lane == 0)
                dots[3 * e + q] = sum[q];
        }
    }
    __syncthreads();
    for (int c = me; c < (int)p.shape0; c += THREADS) {
        double sum[3] = {0, 0, 0};
        const int j = c / (2 * p.ntr) - i + p.reach, y = c / p.ntr % 2;
        for (int m = 0; m < of.last - of.first; m++) {
            const line &by = p.lines[of.first + m];
            if (by.weak)
                continue;
            const double *v = dots + 6 * m * side;
            for (int q = 0; q < nq; q++)
                if (c < (int)p.shift0) {
                    if (j >= 0 && j < side)
                        sum[q] += by.term[c % p.ntr] * v[3 * (2 * j + y) + q];
                } else if (c < (int)p.free0) {
                    for (int f = 0; f < side && c / 2 == (int)p.shift0 / 2 + x - 1; f++)
                        sum[q] += v[3 * (2 * f + (c - (int)p.shift0) % 2) + q];
                } else if (by.free == c - (int)p.free0 + 1) {
                    for (int f = 0; f < 2 * side; f++) {
                        const int fibre = i - p.reach + f / 2;
                        if (fibre >= 0 && fibre < p.nf)
                            sum[q] += p.slope[2 * ((of.first + m) * p.nf + fibre) + f % 2] * v[3 * f + q];
                    }
                }
        }
        for (int q = 0; q < nq; q++)
            u[((size_t)q * n + spot) * columns + (size_t)c] = sum[q];
    }
    /* by the shape */
    const size_t each = (size_t)p.width * (size_t)rows * (size_t)p.ns;
    for (int c = me; c < p.ns; c += THREADS) {
        for (int q = 0; q < nq; q++)
            for (int t = 0; t < p.nb; t++)
                u[((size_t)q * n + spot) * columns + p.shape0 + (size_t)(t * p.ns + c)] = 0;
        for (int m = of.first; m < of.last; m++) {
            const int *has = s.rows + 2 * (x * p.nl + m);
            if (p.lines[m].weak || has[1] <= at.yc + at.y0 || has[0] >= at.yc + at.y1)
                continue;
            double sum[3] = {0, 0, 0};
            for (int col = at.x0; col < at.x1; col++) {
                const long to = at.yc - strip[(size_t)m * (size_t)p.width + (size_t)(at.xc + col)];
                const float *e = image + (size_t)(m - line0) * each + (size_t)((at.xc + col) * rows) * (size_t)p.ns + c;
                const int y0 = to + at.y0 < 0 ? (int)-to : at.y0, y1 = to + at.y1 > rows ? (int)(rows - to) : at.y1;
#pragma unroll 4
                for (int y = y0; y < y1; y++) {
                    const double v = e[(size_t)(to + y) * (size_t)p.ns];
                    for (int q = 0; q < nq; q++)
                        sum[q] = fma(shared[q * p.npix + y * p.nx + col], v, sum[q]);
                }
            }
            for (int q = 0; q < nq; q++)
                for (int t = 0; t < p.nb; t++)
                    u[((size_t)q * n + spot) * columns + p.shape0 + (size_t)(t * p.ns + c)] +=
                        p.lines[m].term[t] * sum[q];
        }
    }
}

/* Rows of H of traces, shifts and free lines, from U of exposure x: H += sum over spots, upper triangle. A block a row.
 */
__global__ void __launch_bounds__(THREADS)
    trace_rows_kernel(const __grid_constant__ problem p, int x, const double *u, double *h)
{
    const int r = (int)blockIdx.x, c = (int)(blockIdx.y * THREADS + threadIdx.x);
    const size_t n = spots_of(p), columns = (size_t)p.n;
    if (c < r || c >= p.n)
        return;
    double sum = 0;
    if (r < (int)p.shift0) {
        const int i = r / (2 * p.ntr), y = r / p.ntr % 2;
        for (int l = 0; l < p.nl; l++)
            if (!p.lines[l].weak)
                sum += p.lines[l].term[r % p.ntr] *
                       u[((size_t)(1 + y) * n + (size_t)(l * p.nf + i)) * columns + (size_t)c];
    } else if (r < (int)p.free0) {
        const int y = (r - (int)p.shift0) % 2;
        for (int m = 0; m < p.nl * p.nf && (r - (int)p.shift0) / 2 == x - 1; m++)
            if (!p.lines[m / p.nf].weak)
                sum += u[((size_t)(1 + y) * n + (size_t)m) * columns + (size_t)c];
    } else {
        for (int l = 0; l < p.nl; l++)
            for (int i = 0; i < p.nf && p.lines[l].free == r - (int)p.free0 + 1 && !p.lines[l].weak; i++)
                for (int y = 0; y < 2; y++)
                    sum += p.slope[2 * (l * p.nf + i) + y] *
                           u[((size_t)(1 + y) * n + (size_t)(l * p.nf + i)) * columns + (size_t)c];
    }
    h[(size_t)r * columns + (size_t)c] += sum;
}

/* H += by W' W, upper triangle, of the first n of each row of W[rows][stride]: a block a tile. */
__global__ void __launch_bounds__(TILE_THREADS)
    add_rows_kernel(int n, int rows, size_t stride, const double *w, double by, double *h)
{
    __shared__ double a[DEPTH][PITCH], b[DEPTH][PITCH];
    const int r0 = (int)blockIdx.y * TILE, c0 = (int)blockIdx.x * TILE, me = (int)threadIdx.x, i = me % TILE;
    if (c0 < r0)
        return;
    constexpr int MINE = DEPTH * TILE / TILE_THREADS;
    double va[MINE], vb[MINE];
    const auto fetch = [&](int k0) {
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            const int k = k0 + me / TILE + e * (TILE_THREADS / TILE);
            va[e] = k < rows && r0 + i < n ? w[(size_t)k * stride + (size_t)(r0 + i)] : 0;
            vb[e] = k < rows && c0 + i < n ? w[(size_t)k * stride + (size_t)(c0 + i)] : 0;
        }
    };
    tile_sum sum;
    fetch(0);
    for (int k0 = 0; k0 < rows; k0 += DEPTH) {
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            a[me / TILE + e * (TILE_THREADS / TILE)][i] = va[e];
            b[me / TILE + e * (TILE_THREADS / TILE)][i] = vb[e];
        }
        __syncthreads();
        fetch(k0 + DEPTH);
        sum.add(a, b, DEPTH, n - r0, n - c0);
        __syncthreads();
    }
    sum.each([&](int r, int c, double v) {
        if (r0 + r <= c0 + c && c0 + c < n)
            h[(size_t)(r0 + r) * (size_t)n + (size_t)(c0 + c)] += by * v;
    });
}

} // namespace spx_pf

#endif
