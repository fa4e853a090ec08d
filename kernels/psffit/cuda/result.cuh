/* Provides what the residuals of a bundle tell after its passes, on the device: light along traces that no line
 * explains, wavelengths of lines (psffit/lines.c), pixels near fibres and the error of the PSF (psffit/finish.c). */
#ifndef SPX_PSFFIT_CUDA_RESULT_CUH
#define SPX_PSFFIT_CUDA_RESULT_CUH

#include "psffit/cuda/pixels.cuh"

namespace spx_pf
{

/* Sums of profile r / V and profile^2 / V of a fibre in a row, all exposures: num[nf][height], den[nf][height]. A warp
 * a row of a fibre. */
__global__ void __launch_bounds__(THREADS)
    residuals_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double *num, double *den)
{
    const size_t k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const long r = (long)(k / (size_t)p.nf), i = (long)(k % (size_t)p.nf);
    if (r >= p.height)
        return;
    double one = 0, two = 0;
    for (int x = 0; x < p.nexp; x++) {
        const profile_of f(p, x, r, i);
        for (long c = threadIdx.x % WARP; c < p.wide && f.there; c += WARP) {
            const long at = f.first + c;
            if (at < 0 || at >= p.width)
                continue;
            const size_t q = (size_t)x * pixels_of(p) + (size_t)(r * p.width + at);
            const double m = p.ground[q] + s.light[q], g = f.at(c);
            const double w = p.noise[q] > 0 ? 1 / spx_pf_noise(p.noise[q], m, 0) : 0;
            one += g * (w * (p.data[q] - m));
            two += g * g * w;
        }
    }
    one = spx::warp_sum(one);
    two = spx::warp_sum(two);
    if (threadIdx.x % WARP == 0) {
        num[i * p.height + r] = one;
        den[i * p.height + r] = two;
    }
}

/* Of exposure x, derivatives of spots by wavelength, slope dS/dY, slope[nl][nf], stamp[nl nf][npix] root f dS/dY: the
 * square of their sum over the fibres of a line and its gradient, what each spot adds to them, out[nl nf][2]. A warp a
 * spot. */
__global__ void __launch_bounds__(THREADS)
    wavelength_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, const double *slope,
                      const double *stamp, double *out)
{
    const size_t n = spots_of(p), k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP, npix = (size_t)p.npix;
    const int lane = (int)threadIdx.x % WARP, i = (int)(k % (size_t)p.nf);
    if (k >= n)
        return;
    const spx_pf_at at = s.at[(size_t)x * n + k];
    const double *v = stamp + k * npix;
    double info = 0, gradient = 0;
    const int w = at.x1 - at.x0;
    for (int q = lane; q < w * (at.y1 - at.y0); q += WARP) {
        const int y = at.y0 + q / w, c = at.x0 + q % w;
        const size_t pixel = (size_t)x * pixels_of(p) + (size_t)((at.yc + y) * p.width + at.xc + c);
        gradient = fma(v[y * p.nx + c], p.goal[pixel] - p.root[pixel] * s.light[pixel], gradient);
    }
    for (int j = i; j <= i + p.reach && j < p.nf; j++) {
        const size_t other = k + (size_t)(j - i);
        const spx_pf_overlap o = spx_pf_overlap_of(p.nx, &at, &s.at[(size_t)x * n + other]);
        if (o.h > 0)
            info += (j > i ? 2 : 1) * slope[other] * dot_overlap(p, o, v, stamp + other * npix);
    }
    gradient = spx::warp_sum(gradient);
    if (lane == 0) {
        out[2 * k] = slope[k] * info;
        out[2 * k + 1] = slope[k] * gradient;
    }
}

/* Products of these with root S of the spots of the line's group, out[before[l] ..], in their order. Blocks
 * (line, spots of a group): a warp a spot. */
__global__ void __launch_bounds__(THREADS)
    wavelength_rows_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x,
                           const double *slope, const double *stamp, const size_t *before, double *out)
{
    const size_t n = spots_of(p), base = (size_t)x * n, npix = (size_t)p.npix;
    const int l = (int)blockIdx.x, k = (int)(blockIdx.y * WARPS + threadIdx.x / WARP);
    const line &of = p.lines[l];
    if (k >= (of.last - of.first) * p.nf)
        return;
    const size_t spot = (size_t)(of.first * p.nf + k);
    const int i = k % p.nf;
    double sum = 0;
    for (int j = i > p.reach ? i - p.reach : 0; j <= i + p.reach && j < p.nf; j++) {
        const size_t other = (size_t)(l * p.nf + j);
        const spx_pf_overlap o = spx_pf_overlap_of(p.nx, &s.at[base + spot], &s.at[base + other]);
        if (o.h > 0)
            sum += slope[other] * dot_overlap(p, o, p.stamp + (base + spot) * npix, stamp + other * npix);
    }
    if (threadIdx.x % WARP == 0)
        out[before[l] + (size_t)k] = sum;
}

/* Pixels near the spots of a fibre (look_near() of finish.c), out[nf][4]: a block a fibre. A line has the rows that
 * none of those before it has, in the order of rows. */
__global__ void __launch_bounds__(THREADS)
    near_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double *out)
{
    const int i = (int)blockIdx.x;
    const bool up = s.at[i].y < s.at[(size_t)((p.nl - 1) * p.nf + i)].y;
    double sum[4] = {0, 0, 0, 0};
    for (int e = (int)threadIdx.x; e < p.nexp * p.nl; e += THREADS) {
        const int x = e / p.nl, l = e % p.nl;
        const auto place = [&](int k) {
            return s.at[(size_t)x * spots_of(p) + (size_t)((up ? k : p.nl - 1 - k) * p.nf + i)];
        };
        const spx_pf_at at = place(l);
        long first = at.yc + at.y0;
        for (int k = 0; k < l; k++) {
            const spx_pf_at before = place(k);
            if (before.y0 < before.y1 && before.yc + before.y1 > first)
                first = before.yc + before.y1;
        }
        for (long r = first; r < at.yc + at.y1; r++)
            for (long c = at.xc + at.x0; c < at.xc + at.x1; c++) {
                const size_t k = (size_t)x * pixels_of(p) + (size_t)(r * p.width + c);
                if (fabs((double)(c + p.x0) - at.x) > SPX_PF_NEAR)
                    continue;
                sum[3]++;
                sum[2] += !(p.noise[k] > 0);
                if (!(p.root[k] > 0))
                    continue;
                const double t = p.goal[k] - p.root[k] * s.light[k];
                sum[0] += t * t;
                sum[1]++;
            }
    }
    for (int q = 0; q < 4; q++) {
        const double v = sum_block(sum[q]);
        if (threadIdx.x == 0)
            out[4 * i + q] = v;
    }
}

/* Pixels near a fibre in each part of the rows (look_at_parts() of finish.c), out[nexp][nparts][nf][2]: a warp a part
 * of a fibre. */
__global__ void __launch_bounds__(THREADS)
    parts_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double *out)
{
    const size_t k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP, nparts = spx_pf_nparts((size_t)p.height);
    if (k >= (size_t)p.nexp * nparts * (size_t)p.nf)
        return;
    const long i = (long)(k % (size_t)p.nf), part = (long)(k / (size_t)p.nf % nparts);
    const long x = (long)(k / (size_t)p.nf / nparts);
    double sum = 0, n = 0;
    for (long r = part * SPX_PF_PART + threadIdx.x % WARP; r < (part + 1) * SPX_PF_PART; r += WARP) {
        const long middle = p.first[(x * p.height + r) * p.nf + i] + p.hx;
        for (long c = middle - (long)SPX_PF_NEAR; c <= middle + (long)SPX_PF_NEAR; c++) {
            const size_t q = (size_t)x * pixels_of(p) + (size_t)(r * p.width + c);
            if (c < 0 || c >= p.width || !(p.root[q] > 0))
                continue;
            const double t = p.goal[q] - p.root[q] * s.light[q];
            sum += t * t;
            n++;
        }
    }
    sum = spx::warp_sum(sum);
    n = spx::warp_sum(n);
    if (threadIdx.x % WARP == 0) {
        out[2 * k] = sum;
        out[2 * k + 1] = n;
    }
}

/* Peak of each spot, and the cell of its phase, -1: its residuals are not wanted. A warp a spot. */
__global__ void __launch_bounds__(THREADS)
    peaks_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *bright, double *peak,
                 int *cell)
{
    const size_t k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (k >= (size_t)p.nexp * spots_of(p))
        return;
    double most = 0;
    for (int q = (int)threadIdx.x % WARP; q < p.npix; q += WARP)
        most = fmax(most, s.spot[k * (size_t)p.npix + (size_t)q]);
    for (int way = WARP / 2; way > 0; way /= 2)
        most = fmax(most, __shfl_xor_sync(FULL, most, way));
    if (threadIdx.x % WARP == 0) {
        peak[k] = most;
        cell[k] = bright[k] ? spx_pf_phase_of(s.at[k].y) * SPX_PF_PHASES + spx_pf_phase_of(s.at[k].x) : -1;
    }
}

/* Sums that tell how far bright spots are from their places (spx_pf_look_at_spot()), out[nspot][SPX_PF_OFFSET],
 * and what they tell: a warp a spot. */
__global__ void __launch_bounds__(THREADS)
    offsets_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *bright,
                   const double *peak, double *out, spx_pf_offset *told)
{
    const size_t k = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (k >= (size_t)p.nexp * spots_of(p))
        return;
    const spx_pf_at at = s.at[k];
    const double *gx = s.gx + k * (size_t)(p.norder * p.nx), *gy = s.gy + k * (size_t)(p.norder * p.ny);
    const double *c = s.c + k * (size_t)p.nc, f = s.flux[k];
    double sum[SPX_PF_OFFSET] = {};
    const int w = at.x1 - at.x0;
    for (int e = (int)threadIdx.x % WARP; e < w * (at.y1 - at.y0) && bright[k]; e += WARP) {
        const int y = at.y0 + e / w, x = at.x0 + e % w;
        const size_t pixel = k / spots_of(p) * pixels_of(p) + (size_t)((at.yc + y) * p.width + at.xc + x);
        const double spot = s.spot[k * (size_t)p.npix + (size_t)(y * p.nx + x)], m = p.ground[pixel] + s.light[pixel];
        if (!spx_pf_is_core(f, spot, peak[k], m) || !(p.root[pixel] > 0))
            continue;
        double by[2];
        spx_pf_spot_gradient(p.side, p.nx, p.ny, gx, gy, c, &at, x, y, by);
        spx_pf_add_to_offset(f, by, spot, p.data[pixel], p.noise[pixel], m, sum);
    }
    for (int e = 0; e < SPX_PF_OFFSET; e++) {
        sum[e] = spx::warp_sum(sum[e]);
        if (threadIdx.x % WARP == 0)
            out[k * SPX_PF_OFFSET + (size_t)e] = sum[e];
    }
    if (threadIdx.x % WARP == 0)
        told[k] = spx_pf_solve_offset(sum);
}

/* Residuals of spots, stacked by phase (spx_pf_look_at_spot()), out[SPX_PF_PHASES^2][npix][SPX_PF_CELL]: a
 * thread a pixel. */
__global__ void __launch_bounds__(SPOT_THREADS)
    stack_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const double *peak,
                 const int *cell, const spx_pf_offset *off, double *out)
{
    const int mine = (int)blockIdx.x, q = (int)(blockIdx.y * SPOT_THREADS + threadIdx.x);
    if (q >= p.npix)
        return;
    const int y = q / p.nx, c = q % p.nx;
    double sum[SPX_PF_CELL] = {};
    for (size_t k = 0; k < (size_t)p.nexp * spots_of(p); k++) {
        if (cell[k] != mine)
            continue;
        const spx_pf_at &at = s.at[k];
        if (y < at.y0 || y >= at.y1 || c < at.x0 || c >= at.x1)
            continue;
        const size_t pixel = k / spots_of(p) * pixels_of(p) + (size_t)((at.yc + y) * p.width + at.xc + c);
        const double spot = s.spot[k * (size_t)p.npix + (size_t)q], m = p.ground[pixel] + s.light[pixel];
        if (!spx_pf_is_core(s.flux[k], spot, peak[k], m) || !(p.root[pixel] > 0))
            continue;
        double by[2];
        spx_pf_spot_gradient(p.side, p.nx, p.ny, s.gx + k * (size_t)(p.norder * p.nx),
                             s.gy + k * (size_t)(p.norder * p.ny), s.c + k * (size_t)p.nc, &at, c, y, by);
        spx_pf_add_to_cell(s.flux[k], by, spot, p.data[pixel], p.noise[pixel], m, &off[k], sum);
    }
    for (int e = 0; e < SPX_PF_CELL; e++)
        out[((size_t)mine * (size_t)p.npix + (size_t)q) * SPX_PF_CELL + (size_t)e] = sum[e];
}

/* Rejected pixels of each row, number[nexp height]: a warp a row. */
__global__ void __launch_bounds__(THREADS) count_rejected_kernel(const __grid_constant__ problem p, int *number)
{
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= (size_t)p.nexp * (size_t)p.height)
        return;
    int n = 0;
    for (long c = threadIdx.x % WARP; c < p.width; c += WARP)
        n += p.rejected[row * (size_t)p.width + (size_t)c];
    n = __reduce_add_sync(FULL, n);
    if (threadIdx.x % WARP == 0)
        number[row] = n;
}

} // namespace spx_pf

#endif
