/* Provides spots of a bundle, their products, and their fluxes: steps of spx_pf_spots() and spx_pf_fluxes(). */
#ifndef SPX_PSFFIT_CUDA_SPOTS_CUH
#define SPX_PSFFIT_CUDA_SPOTS_CUH

#include "psffit/cuda/cholesky.cuh"

namespace spx_pf
{

constexpr int SPOT_THREADS = 64;
/* Numbers of a spot's shape: widths, and coefficients with c_00, which is no parameter. */
constexpr int MOST_SHAPE = SPX_PF_MOST_LOCAL + 1;

/* Doubles of shared memory that spots_kernel needs. */
inline size_t spot_room(const problem &p)
{
    return MOST_SHAPE + SPX_PF_MOST_TRACE + 8 + (size_t)p.norder * (size_t)(p.nx + p.ny + 2) + (size_t)(p.side * p.nx);
}

/* Shape, trace, Gauss-Hermite functions and pixels of a spot, which a block makes. */
__global__ void __launch_bounds__(SPOT_THREADS)
    spots_kernel(const __grid_constant__ problem p, const __grid_constant__ state s)
{
    extern __shared__ double shared[];
    double *local = shared, *term = local + MOST_SHAPE, *place = term + SPX_PF_MOST_TRACE, *hx = place + 8;
    double *hy = hx + p.norder * (p.nx + 1), *across = hy + p.norder * (p.ny + 1);
    __shared__ spx_pf_at at;
    __shared__ int good;
    const size_t k = blockIdx.x;
    const int i = (int)(k % (size_t)p.nf), l = (int)(k / (size_t)p.nf % (size_t)p.nl);
    const int x = (int)(k / spots_of(p)), me = (int)threadIdx.x;
    const line &of = p.lines[l];
    if (me == 0) {
        const double wave = of.free > 0 ? of.wave + s.theta[p.free0 + (size_t)of.free - 1] : of.wave;
        spx_legendre_basis((size_t)p.ntr, 2.0 * (wave - p.wmin) / (p.wmax - p.wmin) - 1.0, term);
    }
    __syncthreads();
    /* widths, then c_00 = 1 and the others */
    for (int q = me; q <= p.nc + 1; q += SPOT_THREADS) {
        double v = 0;
        if (p.fixed != nullptr)
            v = p.fixed[(size_t)(l * p.nf + i) * (size_t)(2 + p.nc) + (size_t)q];
        else if (q == 2)
            v = 1;
        else
            for (int b = 0; b < p.nb; b++)
                for (int a = 0; a < p.na; a++)
                    v += term[b] * p.vterm[i * p.na + a] *
                         s.theta[p.shape0 + (size_t)((b * p.na + a) * p.nq + (q < 2 ? q : q - 1))];
        local[q] = v;
    }
    if (me < 2) {
        double v = 0;
        const double *t = s.theta + (size_t)(2 * i + me) * (size_t)p.ntr;
        for (int m = 0; m < p.ntr; m++)
            v += t[m] * term[m];
        if (x > 0 && p.nshift > 0)
            v += s.theta[p.shift0 + (size_t)(2 * (x - 1) + me)];
        place[me] = v;
    }
    __syncthreads();
    const double sigx = local[0], sigy = local[1];
    if (me == 0) {
        good = sigx > 0.15 && sigy > 0.15 && sigx < 4 * p.nx && sigy < 4 * p.ny && fabs(place[0]) < SPX_SPOT_FAR &&
               fabs(place[1]) < SPX_SPOT_FAR;
        if (!good)
            atomicOr(s.bad, 1);
        at.x = place[0];
        at.y = place[1];
        at.sigx = sigx;
        at.sigy = sigy;
        const double mx = good ? floor(place[0] + 0.5) : 0, my = good ? floor(place[1] + 0.5) : 0;
        place[2] = place[0] - mx;
        place[3] = place[1] - my;
        at.xc = (long)mx - p.hx - p.x0;
        at.yc = (long)my - p.hy;
        const long left = -at.xc, right = p.width - at.xc, down = -at.yc, up = p.height - at.yc;
        at.x0 = left > 0 ? (int)(left < p.nx ? left : p.nx) : 0;
        at.x1 = right < p.nx ? (int)(right > 0 ? right : 0) : p.nx;
        at.y0 = down > 0 ? (int)(down < p.ny ? down : p.ny) : 0;
        at.y1 = up < p.ny ? (int)(up > 0 ? up : 0) : p.ny;
        if (at.x1 <= at.x0 || at.y1 <= at.y0 || !good)
            at.x0 = at.x1 = at.y0 = at.y1 = 0;
        s.at[k] = at;
    }
    __syncthreads();
    if (!good)
        return;
    for (int e = me; e < p.nx + p.ny + 2; e += SPOT_THREADS) {
        const bool along = e > p.nx;
        const int n = along ? p.ny : p.nx, j = along ? e - p.nx - 1 : e;
        spx_gauss_hermite_edge((j - n / 2 - 0.5 - place[along ? 3 : 2]) / (along ? sigy : sigx), p.norder - 1,
                               (along ? hy : hx) + j, n + 1);
    }
    for (int q = me; q < p.nc; q += SPOT_THREADS)
        s.c[k * (size_t)p.nc + (size_t)q] = local[2 + q];
    __syncthreads();
    double *gx = s.gx + k * (size_t)(p.norder * p.nx), *gy = s.gy + k * (size_t)(p.norder * p.ny);
    for (int q = me; q < p.norder * p.nx; q += SPOT_THREADS)
        gx[q] = hx[q / p.nx * (p.nx + 1) + q % p.nx] - hx[q / p.nx * (p.nx + 1) + q % p.nx + 1];
    for (int q = me; q < p.norder * p.ny; q += SPOT_THREADS)
        gy[q] = hy[q / p.ny * (p.ny + 1) + q % p.ny] - hy[q / p.ny * (p.ny + 1) + q % p.ny + 1];
    __syncthreads();
    for (int q = me; q < p.side * p.nx; q += SPOT_THREADS) {
        double sum = 0;
        for (int m = 0; m < p.side; m++)
            sum += local[2 + m + p.side * (q / p.nx)] * gx[m * p.nx + q % p.nx];
        across[q] = sum;
    }
    __syncthreads();
    for (int q = me; q < p.npix; q += SPOT_THREADS) {
        double sum = 0;
        for (int j = 0; j < p.side; j++)
            sum += gy[j * p.ny + q / p.nx] * across[j * p.nx + q % p.nx];
        s.spot[k * (size_t)p.npix + (size_t)q] = at.y0 < at.y1 && sum > 0 ? sum : 0;
    }
}

/* Rows that the spots of each line have in each exposure. */
__global__ void __launch_bounds__(THREADS)
    rows_kernel(const __grid_constant__ problem p, const __grid_constant__ state s)
{
    const int k = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (k >= p.nexp * p.nl)
        return;
    int lo = (int)p.height, hi = 0;
    for (int i = 0; i < p.nf; i++) {
        const spx_pf_at &at = s.at[(size_t)k * (size_t)p.nf + (size_t)i];
        if (at.y0 == at.y1)
            continue;
        lo = at.yc + at.y0 < lo ? (int)at.yc + at.y0 : lo;
        hi = at.yc + at.y1 > hi ? (int)at.yc + at.y1 : hi;
    }
    s.rows[2 * k] = lo;
    s.rows[2 * k + 1] = hi;
}

/* root S of the spots from spot0 on. */
__global__ void __launch_bounds__(SPOT_THREADS)
    weigh_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, size_t spot0)
{
    const size_t k = spot0 + blockIdx.x;
    const spx_pf_at at = s.at[k];
    const float *root = p.root + k / spots_of(p) * pixels_of(p);
    for (int q = (int)threadIdx.x; q < p.npix; q += SPOT_THREADS) {
        const int y = q / p.nx, x = q % p.nx;
        double v = 0;
        if (x >= at.x0 && x < at.x1 && y >= at.y0 && y < at.y1)
            v = root[(at.yc + y) * p.width + at.xc + x] * s.spot[k * (size_t)p.npix + (size_t)q];
        p.stamp[k * (size_t)p.npix + (size_t)q] = v;
    }
}

/* Sum of products of an overlap, by the lanes of a warp. */
__device__ inline double dot_overlap(const problem &p, const spx_pf_overlap &o, const double *a, const double *b)
{
    double sum = 0;
    for (int q = (int)threadIdx.x % WARP; q < o.w * o.h; q += WARP) {
        const int at = q / o.w * p.nx + q % o.w;
        sum = fma(a[o.a + (size_t)at], b[o.b + (size_t)at], sum);
    }
    return spx::warp_sum(sum);
}

/* (root S)^2 of each spot, out[nspot]: a warp a spot. */
__global__ void __launch_bounds__(THREADS) power_kernel(const __grid_constant__ problem p, double *out)
{
    const size_t k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (k >= (size_t)p.nexp * spots_of(p))
        return;
    const spx_pf_overlap whole = {p.nx, p.ny, 0, 0};
    const double *v = p.stamp + k * (size_t)p.npix, sum = dot_overlap(p, whole, v, v);
    if (threadIdx.x % WARP == 0)
        out[k] = sum;
}

/* N_ff, lower triangles by columns, and its right-hand sides in s.flux, of the spots from spot0 to spot1: a warp a
 * spot. */
__global__ void __launch_bounds__(THREADS)
    gram_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, size_t spot0, size_t spot1)
{
    const size_t k = spot0 + (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (k >= spot1)
        return;
    const size_t x = k / spots_of(p), base = x * spots_of(p);
    const int i = (int)(k % (size_t)p.nf), l = (int)((k - base) / (size_t)p.nf), lane = (int)threadIdx.x % WARP;
    const line &of = p.lines[l];
    const spx_pf_at at = s.at[k];
    const double *v = p.stamp + k * (size_t)p.npix, *goal = p.goal + x * pixels_of(p);
    const size_t n = (size_t)((of.last - of.first) * p.nf), row = k - base - (size_t)(of.first * p.nf);
    double *a = s.factor + x * p.nfactor + of.factor + row * n, sum = 0;
    const int w = at.x1 - at.x0;
    for (int q = lane; q < w * (at.y1 - at.y0); q += WARP) {
        const int y = at.y0 + q / w, c = at.x0 + q % w;
        sum = fma(v[y * p.nx + c], goal[(at.yc + y) * p.width + at.xc + c], sum);
    }
    sum = spx::warp_sum(sum);
    if (lane == 0)
        s.flux[k] = sum;
    for (int m = l; m < of.last; m++)
        for (int j = i > p.reach ? i - p.reach : 0; j <= i + p.reach && j < p.nf; j++) {
            const size_t other = base + (size_t)(m * p.nf + j);
            if (other < k)
                continue;
            const spx_pf_overlap o = spx_pf_overlap_of(p.nx, &at, &s.at[other]);
            if (o.h == 0)
                continue;
            const double d = dot_overlap(p, o, v, p.stamp + other * (size_t)p.npix);
            if (lane == 0)
                a[other - base - (size_t)(of.first * p.nf)] = d;
        }
}

constexpr int FACTOR_THREADS = 256, FACTOR_WARPS = FACTOR_THREADS / WARP;

/* Lower triangle by columns, all of it in global memory, or packed in shared; and below it a row x[n]. */
struct triangle {
    double *m, *x;
    int n;
    bool packed;
    __device__ double &operator()(int i, int j) const
    {
        const size_t column = (size_t)j, rows = (size_t)n;
        return i == n ? x[j] : m[(packed ? column * rows - column * (column + 1) / 2 : column * rows) + (size_t)i];
    }
};

/* Doubles of shared memory for a group of n fluxes; packed: its matrix, too. */
inline size_t factor_room(size_t n, bool packed)
{
    return n + (packed ? n * (n + 1) / 2 : 0);
}

/* Largest group whose matrix shared memory of `bytes` takes. */
inline size_t most_packed(size_t bytes)
{
    size_t n = 0;
    while (factor_room(n + 1, true) * sizeof(double) <= bytes)
        n++;
    return n;
}

/* x = L'^-1 x of a factor, by a block, and whether x is finite. */
__device__ inline void substitute(const triangle &l, int *bad)
{
    const int me = (int)threadIdx.x, lane = me % WARP;
    for (int j0 = (l.n - 1) / PANEL * PANEL; j0 >= 0; j0 -= PANEL) {
        const int w = min(l.n - j0, PANEL);
        __syncthreads();
        if (me < WARP) {
            double column[PANEL], v = lane < w ? l.x[j0 + lane] : 0;
            const double by = lane < w ? 1 / l(j0 + lane, j0 + lane) : 1;
#pragma unroll
            for (int k = 0; k < PANEL; k++)
                column[k] = lane < k && k < w ? l(j0 + k, j0 + lane) : 0;
#pragma unroll
            for (int j = PANEL - 1; j >= 0; j--) {
                const double at = __shfl_sync(FULL, v * by, j);
                v = lane == j ? at : fma(-column[j], at, v);
            }
            if (lane < w)
                l.x[j0 + lane] = v;
            if (!isfinite(v))
                atomicOr(bad, 1);
        }
        __syncthreads();
        for (int k = me; k < j0; k += (int)blockDim.x) {
            double sum = 0;
            for (int t = 0; t < w; t++)
                sum = fma(l(j0 + t, k), l.x[j0 + t], sum);
            l.x[k] -= sum;
        }
    }
    __syncthreads();
}

/* Takes the panel from column j0 on off the columns behind it and their row x, by a block: MANY columns a warp. */
__device__ inline void take_panel(const triangle &m, int j0)
{
    constexpr int MANY = 4;
    const int lane = (int)threadIdx.x % WARP;
    for (int k0 = j0 + PANEL + (int)threadIdx.x / WARP * MANY; k0 < m.n; k0 += FACTOR_WARPS * MANY)
        for (int i = k0 + lane; i <= m.n; i += WARP) {
            double sum[MANY] = {0, 0, 0, 0};
            for (int t = j0; t < j0 + PANEL; t++) {
                const double v = m(i, t);
#pragma unroll
                for (int q = 0; q < MANY; q++)
                    sum[q] = fma(v, m(min(k0 + q, m.n - 1), t), sum[q]);
            }
#pragma unroll
            for (int q = 0; q < MANY; q++)
                if (k0 + q < m.n && i >= k0 + q)
                    m(i, k0 + q) -= sum[q];
        }
}

/* Cholesky factor of the group of a block, group[blockIdx.x] its first line, in place, and L^-1 b; where `whole`, the
 * fluxes. n up to `packed` have their matrix in shared memory meanwhile. */
__global__ void __launch_bounds__(FACTOR_THREADS)
    factor_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *group, int x0,
                  size_t packed, int whole)
{
    extern __shared__ double shared[];
    __shared__ double l[PANEL][PANEL + 1];
    const int x = x0 + (int)blockIdx.y, me = (int)threadIdx.x, lane = me % WARP, first = group[blockIdx.x];
    const line &of = p.lines[first];
    const int n = (of.last - of.first) * p.nf;
    double *a = s.factor + (size_t)x * p.nfactor + of.factor;
    double *f = s.flux + (size_t)x * spots_of(p) + (size_t)(first * p.nf);
    const triangle m = {(size_t)n <= packed ? shared + n : a, shared, n, (size_t)n <= packed};
    double most = 0;
    for (int i = lane; i < n; i += WARP)
        most = fmax(most, a[(size_t)i * (size_t)(n + 1)]);
    most = spx::warp_max(most);
    __syncthreads();
    for (int i = me; i < n; i += FACTOR_THREADS)
        m.x[i] = f[i];
    for (int j = me / WARP; j < n; j += FACTOR_WARPS)
        for (int i = j + lane; i < n; i += WARP)
            m(i, j) = a[(size_t)j * (size_t)n + (size_t)i] + (i == j ? (most > 0 ? SPX_PF_FLOOR * most : 1) : 0);
    for (int j0 = 0; j0 < n; j0 += PANEL) {
        const int w = min(n - j0, PANEL);
        double v[PANEL];
        __syncthreads();
        if (me < WARP) {
#pragma unroll
            for (int k = 0; k < PANEL; k++)
                v[k] = lane < w && k <= lane ? m(j0 + lane, j0 + k) : k == lane;
            if (!factor_block(v, l) && lane == 0)
                atomicOr(p.bad, 1);
#pragma unroll
            for (int k = 0; k < PANEL; k++)
                if (lane < w && k <= lane)
                    m(j0 + lane, j0 + k) = v[k];
        }
        __syncthreads();
        for (int i = j0 + w + me; i <= n; i += FACTOR_THREADS) {
#pragma unroll
            for (int k = 0; k < PANEL; k++)
                v[k] = k < w ? m(i, j0 + k) : 0;
            solve_row(l, v);
#pragma unroll
            for (int k = 0; k < PANEL; k++)
                if (k < w)
                    m(i, j0 + k) = v[k];
        }
        __syncthreads();
        take_panel(m, j0);
    }
    __syncthreads();
    if (whole)
        substitute(m, p.bad);
    for (int i = me; i < n; i += FACTOR_THREADS)
        f[i] = m.x[i];
    for (int j = me / WARP; j < n && m.packed; j += FACTOR_WARPS)
        for (int i = j + lane; i < n; i += WARP)
            a[(size_t)j * (size_t)n + (size_t)i] = m(i, j);
}

/* Variances of the fluxes of a group from its factor, the diagonal of L'^-1 L^-1, out[nexp nl nf]: a block, a thread a
 * column of L^-1, which it leaves in work, [nexp][factors] as they are ordered. */
__global__ void __launch_bounds__(THREADS)
    variance_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *group, double *work,
                    double *out)
{
    const int x = (int)blockIdx.y;
    const line &of = p.lines[group[blockIdx.x]];
    const size_t n = (size_t)((of.last - of.first) * p.nf), at = (size_t)x * p.nfactor + of.factor;
    const double *l = s.factor + at;
    double *y = work + at;
    for (size_t i = threadIdx.x; i < n; i += THREADS) {
        double square = 0;
        for (size_t j = i; j < n; j++) {
            double sum = i == j;
            for (size_t k = i; k < j; k++)
                sum = fma(-l[k * n + j], y[k * n + i], sum);
            sum /= l[j * n + j];
            y[j * n + i] = sum;
            square = fma(sum, sum, square);
        }
        out[(size_t)x * spots_of(p) + (size_t)(of.first * p.nf) + i] = square;
    }
}

/* Light of a row with the fluxes of its spots, and sum (goal - root light)^2 into p.work: a block. Columns are a
 * warp's, 32 of them at a time, which adds the spots that are there one after another. */
__global__ void __launch_bounds__(THREADS)
    draw_kernel(const __grid_constant__ problem p, const __grid_constant__ state s)
{
    extern __shared__ double shared[];
    int *in = reinterpret_cast<int *>(shared);
    __shared__ int nin;
    const int r = (int)blockIdx.x, x = (int)blockIdx.y, lane = (int)threadIdx.x % WARP;
    if (threadIdx.x < WARP) { /* lines that the row has */
        int n = 0;
        for (int first = 0; first < p.nl; first += WARP) {
            const int l = first + lane, *rows = s.rows + 2 * (x * p.nl + l);
            const unsigned has = __ballot_sync(FULL, l < p.nl && rows[0] <= r && r < rows[1]);
            if (has >> lane & 1)
                in[n + __popc(has & ((1u << lane) - 1))] = l;
            n += __popc(has);
        }
        if (lane == 0)
            nin = n;
    }
    __syncthreads();
    double sum = 0;
    const size_t row = (size_t)x * pixels_of(p) + (size_t)r * (size_t)p.width;
    for (long c0 = (long)(threadIdx.x / WARP) * WARP; c0 < p.width; c0 += THREADS) {
        double light = 0;
        const long c = c0 + lane;
        for (int m = 0; m < nin; m++) {
            const size_t base = ((size_t)x * (size_t)p.nl + (size_t)in[m]) * (size_t)p.nf;
            for (int first = 0; first < p.nf; first += WARP) {
                const int i = first + lane;
                int has = 0;
                if (i < p.nf) {
                    const spx_pf_at &at = s.at[base + (size_t)i];
                    has = at.yc + at.y0 <= r && r < at.yc + at.y1 && at.xc + at.x0 < c0 + WARP && at.xc + at.x1 > c0;
                }
                for (unsigned left = __ballot_sync(FULL, has); left != 0; left &= left - 1) {
                    const size_t k = base + (size_t)(first + __ffs((int)left) - 1);
                    const spx_pf_at &at = s.at[k];
                    const long q = c - at.xc;
                    if (q >= at.x0 && q < at.x1)
                        light = fma(s.flux[k], s.spot[k * (size_t)p.npix + (size_t)((r - at.yc) * p.nx + q)], light);
                }
            }
        }
        if (c < p.width) {
            s.light[row + (size_t)c] = light;
            const double t = p.goal[row + (size_t)c] - p.root[row + (size_t)c] * light;
            sum = fma(t, t, sum);
        }
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0)
        p.work[(size_t)x * (size_t)p.height + (size_t)r] = sum;
}

} // namespace spx_pf

#endif
