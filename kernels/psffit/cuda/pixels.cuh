/* Provides weights of the pixels of a bundle, and its background: steps of spx_pf_weights() and spx_pf_background(). */
#ifndef SPX_PSFFIT_CUDA_PIXELS_CUH
#define SPX_PSFFIT_CUDA_PIXELS_CUH

#include "psffit/cuda/solve.cuh"

namespace spx_pf
{

/* ---- weights ---- */

/* Variance without light of a pixel, with the floor of the weights. */
__device__ inline float soft_noise(const problem &p, size_t k)
{
    return p.soft != nullptr ? p.soft[k] : p.noise[k];
}

/* Largest light within hx columns of each pixel, out[nexp][height][width]. */
__global__ void __launch_bounds__(THREADS)
    largest_of_row_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, float *out)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const long c = (long)(k % (size_t)p.width);
    float most = 0;
    for (long x = c > p.hx ? c - p.hx : 0; x <= c + p.hx && x < p.width; x++)
        most = fmaxf(most, (float)s.light[k - (size_t)c + (size_t)x]);
    out[k] = most;
}

/* Noise with `part` of the largest of these within hy rows. */
__global__ void __launch_bounds__(THREADS)
    soften_kernel(const __grid_constant__ problem p, const float *of_row, float part, float *out)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const long at = (long)(k % pixels_of(p)), r = at / p.width;
    const float *column = of_row + (k - (size_t)at) + at % p.width;
    float most = 0;
    for (long y = r > p.hy ? r - p.hy : 0; y <= r + p.hy && y < p.height; y++)
        most = fmaxf(most, column[y * p.width]);
    out[k] = p.noise[k] > 0 ? p.noise[k] + part * most : 0;
}

/* |data - m| / sqrt V of all pixels in the place of the root, of a model that is uncertain by a part epsilon of itself;
 * of those that the clip may take, by what that of the nearest fibre is. */
__global__ void __launch_bounds__(THREADS)
    misfit_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double epsilon)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const double m = p.ground[k] + s.light[k], off = fabs(p.data[k] - m);
    const float noise = soft_noise(p, k);
    float t = p.noise[k] > 0 ? (float)(off / sqrt(spx_pf_noise(noise, m, epsilon * epsilon))) : 0;
    if (t > SPX_PF_BESIDE) {
        const size_t row = k / (size_t)p.width;
        const int fibre = spx_pf_nearest(p.nf, p.hx, p.first + row * (size_t)p.nf, (long)(k % (size_t)p.width));
        const double own = fmax(epsilon, p.doubt[fibre]);
        t = (float)(off / sqrt(spx_pf_noise(noise, m, own * own)));
    }
    p.root[k] = t;
}

/* Pixels above the limit, and their neighbours that are above a lower one; roots are misfits. */
__global__ void __launch_bounds__(THREADS) reject_kernel(const __grid_constant__ problem p)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const size_t base = k / pixels_of(p) * pixels_of(p);
    const long r = (long)((k - base) / (size_t)p.width), c = (long)((k - base) % (size_t)p.width);
    int beside = 0;
    for (long y = r > 0 ? r - 1 : 0; y <= r + 1 && y < p.height; y++)
        for (long x = c > 0 ? c - 1 : 0; x <= c + 1 && x < p.width; x++)
            beside |= p.root[base + (size_t)(y * p.width + x)] > SPX_PF_CLIP;
    p.rejected[k] = p.root[k] > SPX_PF_CLIP || (beside && p.root[k] > SPX_PF_BESIDE);
}

/* Root of the weight of pixel k with m electrons, and the goal (spx_pf_kernels::weigh). */
__device__ inline void weigh_pixel(const problem &p, size_t k, double m, double epsilon2, double robust, int rejected)
{
    const double by = robust > 0 ? 1 / (robust * robust) : 0, off = p.data[k] - m;
    const double seen = robust > 0 && p.median[k] > m ? p.median[k] : m;
    const double noise = robust > 0 ? p.noise[k] : soft_noise(p, k);
    const double v = spx_pf_noise(noise, seen, epsilon2), far = by * off * off;
    const float w = (float)(1 / sqrt(v > far ? v : far)), root = p.noise[k] > 0 && !rejected ? w : 0;
    p.root[k] = root;
    p.goal[k] = root * (p.data[k] - p.ground[k]);
}

__global__ void __launch_bounds__(THREADS)
    weights_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, double epsilon2, double robust)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const int rejected = robust > 0 ? 0 : p.rejected[k];
    p.rejected[k] = (uint8_t)rejected;
    weigh_pixel(p, k, p.ground[k] + s.light[k], epsilon2, robust, rejected);
}

/* Robust weights from the medians of 3 x 3 pixels, of those that are good. */
__global__ void __launch_bounds__(THREADS) first_weights_kernel(const __grid_constant__ problem p, double epsilon2)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (k >= (size_t)p.nexp * pixels_of(p))
        return;
    const size_t base = k / pixels_of(p) * pixels_of(p);
    const long r = (long)((k - base) / (size_t)p.width), c = (long)((k - base) % (size_t)p.width);
    float v[9];
    int n = 0;
    for (long y = r > 0 ? r - 1 : 0; y <= r + 1 && y < p.height; y++)
        for (long x = c > 0 ? c - 1 : 0; x <= c + 1 && x < p.width; x++) {
            const size_t at = base + (size_t)(y * p.width + x);
            if (!(p.noise[at] > 0))
                continue;
            int j = n++;
            for (; j > 0 && p.data[at] < v[j - 1]; j--)
                v[j] = v[j - 1];
            v[j] = p.data[at];
        }
    const float median = n == 0 || !(p.noise[k] > 0) ? 0
                         : n % 2                     ? v[n / 2]
                                                     : (float)(0.5 * ((double)v[n / 2 - 1] + (double)v[n / 2]));
    p.median[k] = median;
    p.rejected[k] = 0;
    weigh_pixel(p, k, p.ground[k] + (median - p.ground[k]), epsilon2, SPX_PF_ROBUST, 0);
}

/* Bright pixels of each row (spx_pf_is_bright()), number[nexp height]: a warp a row. */
__global__ void __launch_bounds__(THREADS)
    count_bright_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int *number)
{
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= (size_t)p.nexp * (size_t)p.height)
        return;
    int n = 0;
    for (long c = threadIdx.x % WARP; c < p.width; c += WARP) {
        const size_t k = row * (size_t)p.width + (size_t)c;
        n += spx_pf_is_bright(p.noise[k], p.ground[k] + s.light[k], s.light[k]);
    }
    n = __reduce_add_sync(FULL, n);
    if (threadIdx.x % WARP == 0)
        number[row] = n;
}

/* How many of them are in earlier rows, before[rows], and told[2]: all, and every how many-th of them is a sample, so
 * that there are at most `most`, whose room out[most][SPX_PF_SAMPLE] becomes 0. A block. */
__global__ void __launch_bounds__(THREADS)
    before_bright_kernel(size_t rows, const int *number, size_t most, size_t *before, size_t *told, double *out)
{
    __shared__ size_t sum[THREADS];
    const size_t me = threadIdx.x, each = (rows + THREADS - 1) / THREADS;
    const size_t first = me * each < rows ? me * each : rows, end = first + each < rows ? first + each : rows;
    size_t mine = 0, at = 0;
    for (size_t r = first; r < end; r++)
        mine += (size_t)number[r];
    sum[me] = mine;
    for (size_t k = me; k < SPX_PF_SAMPLE * most; k += THREADS)
        out[k] = 0;
    __syncthreads();
    for (size_t k = 0; k < me; k++)
        at += sum[k];
    for (size_t r = first; r < end; r++) {
        before[r] = at;
        at += (size_t)number[r];
    }
    if (me + 1 < THREADS)
        return;
    size_t step = 1;
    while (at > most * step)
        step *= 2;
    told[0] = at;
    told[1] = step;
}

/* Samples of every told[1]-th of them, before[nexp height] of which are in earlier rows, out[..][SPX_PF_SAMPLE]: a warp
 * a row. */
__global__ void __launch_bounds__(THREADS)
    sample_bright_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const size_t *before,
                         const size_t *told, double *out)
{
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP, step = told[1];
    const int lane = (int)threadIdx.x % WARP;
    if (row >= (size_t)p.nexp * (size_t)p.height)
        return;
    size_t at = before[row];
    for (long c0 = 0; c0 < p.width; c0 += WARP) {
        const size_t k = row * (size_t)p.width + (size_t)(c0 + lane);
        const double m = c0 + lane < p.width ? p.ground[k] + s.light[k] : 0;
        const int has = c0 + lane < p.width && spx_pf_is_bright(p.noise[k], m, s.light[k]);
        const unsigned all = __ballot_sync(FULL, has);
        const size_t mine = at + (size_t)__popc(all & ((1u << lane) - 1));
        if (has && mine % step == 0) {
            const int fibre = spx_pf_nearest(p.nf, p.hx, p.first + row * (size_t)p.nf, c0 + lane);
            spx_pf_bright_sample(p.data[k], p.noise[k], m, fibre, out + SPX_PF_SAMPLE * (mine / step));
        }
        at += (size_t)__popc(all);
    }
}

/* ---- profiles ---- */

/* Cross profile of a fibre where it crosses a row (profile_at() of bundle.c), out[nf nnode][nx], and its first column,
 * of the parameters theta: a block. */
__global__ void __launch_bounds__(SPOT_THREADS)
    nodes_kernel(const __grid_constant__ problem p, const double *theta, const spx_pf_node *node, int nnode,
                 double *out, int32_t *first)
{
    extern __shared__ double shared[];
    double *local = shared, *term = local + MOST_SHAPE, *hx = term + SPX_PF_MOST_TRACE + 8;
    double *hy = hx + p.norder * (p.nx + 1), *across = hy + p.norder * (p.ny + 1);
    const size_t k = blockIdx.x;
    const int i = (int)k / nnode, me = (int)threadIdx.x, orders = p.deg + 1;
    const spx_pf_node at = node[k];
    if (me == 0 && p.fixed == nullptr)
        spx_legendre_basis((size_t)p.nb, 2.0 * (at.wave - p.wmin) / (p.wmax - p.wmin) - 1.0, term);
    __syncthreads();
    for (int q = me; q <= p.nc + 1; q += SPOT_THREADS) {
        double v = q == 2 && p.fixed == nullptr;
        if (p.fixed != nullptr)
            v = spx_legendre_sum((size_t)p.ndeg, p.series + (size_t)((i * (p.nc + 2) + q) * p.ndeg),
                                 spx_psf_u(p.start0, p.start1, at.wave));
        for (int b = 0; b < p.nb && q != 2 && p.fixed == nullptr; b++)
            for (int a = 0; a < p.na; a++)
                v += term[b] * p.vterm[i * p.na + a] *
                     theta[p.shape0 + (size_t)((b * p.na + a) * p.nq + (q < 2 ? q : q - 1))];
        local[q] = v;
    }
    __syncthreads();
    const double sigx2 = local[0] * local[0], sigy = local[1], mx = floor(at.x + 0.5);
    const double sigx = local[0] > 0 ? sqrt(fmin(fmax(sigx2 + at.wider, 0.5 * sigx2), 2 * sigx2)) : 0;
    const double scale = p.fixed != nullptr && local[2] > 0 ? 1 / local[2] : 1; /* GH-0-0 = 1 */
    const bool good = fabs(at.x) < SPX_SPOT_FAR && sigx > 0.05 && sigy > 0.05;
    if (me == 0)
        first[k] = good ? (int32_t)((long)mx - p.hx - p.x0) : -4 * p.nx;
    for (int e = me; e < p.nx + p.ny + 2 && good; e += SPOT_THREADS) {
        const bool along = e > p.nx;
        const int n = along ? p.ny : p.nx, j = along ? e - p.nx - 1 : e;
        spx_gauss_hermite_edge((j - n / 2 - 0.5 - (along ? 0 : at.x - mx)) / (along ? sigy : sigx), orders - 1,
                               (along ? hy : hx) + j, n + 1);
    }
    __syncthreads();
    for (int q = me; q < orders * p.nx && good; q += SPOT_THREADS) {
        double sum = 0;
        for (int m = 0; m < orders; m++) {
            const double *h = hx + m * (p.nx + 1) + q % p.nx;
            sum += (q / p.nx + m == 0 ? 1 : scale * local[2 + m + orders * (q / p.nx)]) * (h[0] - h[1]);
        }
        across[q] = sum;
    }
    __syncthreads();
    for (int x = me; x < p.nx; x += SPOT_THREADS) {
        double sum = 0;
        for (int y = 0; y < p.ny && good; y++) {
            double v = 0;
            for (int j = 0; j < orders; j++) {
                const double *h = hy + j * (p.ny + 1) + y;
                v += (h[0] - h[1]) * across[j * p.nx + x];
            }
            sum += v > 0 ? v : 0;
        }
        out[k * (size_t)p.nx + (size_t)x] = sum;
    }
}

/* Profiles of an exposure, interpolated between rows p.steps apart, node[nf][nstep + 1][nx] from column at[..] on. */
__global__ void __launch_bounds__(THREADS)
    profiles_kernel(const __grid_constant__ problem p, int x, const double *node, const int32_t *at)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x, wide = (size_t)p.wide;
    if (k >= (size_t)p.height * (size_t)p.nf * wide)
        return;
    const long c = (long)(k % wide), i = (long)(k / wide % (size_t)p.nf), r = (long)(k / wide / (size_t)p.nf);
    const long step = i * (p.nstep + 1) + r / p.steps;
    const long lo = at[step], hi = at[step + 1], first = lo < hi ? lo : hi;
    const long a = c + first - lo, b = c + first - hi;
    const double t = (double)(r % p.steps) / p.steps;
    const double va = a >= 0 && a < p.nx ? node[step * p.nx + a] : 0,
                 vb = b >= 0 && b < p.nx ? node[(step + 1) * p.nx + b] : 0;
    p.profile[(size_t)x * (size_t)p.height * (size_t)p.nf * wide + k] = (float)((1 - t) * va + t * vb);
    if (c == 0)
        p.first[(size_t)(x * p.height + r) * (size_t)p.nf + (size_t)i] = (int32_t)first;
}

/* A profile of a row: its first column and pixels, and pixel c of it, 0 beyond its ends. */
struct profile_of {
    long first;
    const float *v;
    int wide;
    bool there; /* some of it is in the bundle */
    __device__ profile_of(const problem &p, long x, long r, long i)
        : first(p.first[(x * p.height + r) * p.nf + i]), v(p.profile + ((x * p.height + r) * p.nf + i) * p.wide),
          wide(p.wide), there(first > -(long)p.wide && first < p.width)
    {
    }
    __device__ double at(long c) const
    {
        return c >= 0 && c < wide ? (double)v[c] : 0.0;
    }
    /* changes by a shift of a pixel, and by half a pixel^2 of variance */
    __device__ double shift(long c) const
    {
        return 0.5 * (at(c - 1) - at(c + 1));
    }
    __device__ double widen(long c) const
    {
        return at(c - 1) - 2 * at(c) + at(c + 1);
    }
};

/* ---- background ---- */

/* Background of a row of exposure x, and the goal, from the coefficients (spx_pf_nground()): a block. */
__global__ void __launch_bounds__(THREADS)
    ground_kernel(const __grid_constant__ problem p, int x, const double *coef, int continuum, int changes)
{
    extern __shared__ double level[]; /* [nf][3] */
    const long r = blockIdx.x, lane = threadIdx.x % WARP;
    double t, value[SPX_PF_SPLINE];
    const size_t spline = spx_pf_interval((size_t)p.nknot, (size_t)p.height, (size_t)r, &t);
    spx_pf_spline_values(t, value);
    t = spx_pf_row_at((size_t)p.height, (size_t)r);
    for (int i = (int)threadIdx.x; i < p.nf; i += THREADS) {
        const double *drift = coef + (size_t)(p.nf * p.nknot + 1 + 6 * i);
        double c = 0;
        for (int k = 0; k < SPX_PF_SPLINE; k++)
            c += coef[(size_t)(i * p.nknot + k) + spline] * value[k];
        level[3 * i] = continuum ? c : 0;
        level[3 * i + 1] = changes ? c * (drift[0] + t * (drift[1] + t * drift[2])) : 0;
        level[3 * i + 2] = changes ? c * (drift[3] + t * (drift[4] + t * drift[5])) : 0;
    }
    __syncthreads();
    for (long c0 = (long)(threadIdx.x / WARP) * WARP; c0 < p.width; c0 += THREADS) {
        double sum = continuum ? coef[p.nf * p.nknot] : 0;
        for (int from = 0; from < p.nf; from += WARP) {
            int has = 0;
            if (from + lane < p.nf) {
                const long first = p.first[(x * p.height + r) * p.nf + from + lane];
                has = first < c0 + WARP && first + p.wide > c0;
            }
            for (unsigned left = __ballot_sync(FULL, has); left != 0; left &= left - 1) {
                const int i = from + __ffs((int)left) - 1;
                const profile_of f(p, x, r, i);
                const long c = c0 + lane - f.first;
                if (c < 0 || c >= p.wide)
                    continue;
                if (level[3 * i + 1] != 0 || level[3 * i + 2] != 0)
                    sum += level[3 * i + 1] * f.shift(c) + level[3 * i + 2] * f.widen(c);
                sum += level[3 * i] * f.at(c);
            }
        }
        if (c0 + lane < p.width) {
            const size_t k = (size_t)x * pixels_of(p) + (size_t)(r * p.width + c0 + lane);
            p.ground[k] = sum;
            p.goal[k] = p.root[k] * (p.data[k] - sum);
        }
    }
}

/* Sums w d v, w d d, w s v, w s s of each fibre in a row, out[rows][nf][4] (spx_pf_kernels::drift): rows
 * row0, row0 + step ..., one a block. */
__global__ void __launch_bounds__(THREADS)
    drift_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, long row0, long step,
                 double *out)
{
    const long r = row0 + (long)blockIdx.x * step;
    const int lane = (int)threadIdx.x % WARP;
    const size_t row = (size_t)x * pixels_of(p) + (size_t)(r * p.width);
    for (int i = (int)threadIdx.x / WARP; i < p.nf; i += WARPS) {
        const profile_of f(p, x, r, i);
        double sum[4] = {0, 0, 0, 0};
        for (long c = lane; c < p.wide && f.there; c += WARP) {
            const long at = f.first + c;
            if (at < 0 || at >= p.width)
                continue;
            const size_t k = row + (size_t)at;
            const double w = (double)p.root[k] * p.root[k], v = w * (p.data[k] - p.ground[k] - s.light[k]);
            const double d = f.shift(c), g = f.widen(c);
            sum[0] += d * v;
            sum[1] += d * d * w;
            sum[2] += g * v;
            sum[3] += g * g * w;
        }
        for (int q = 0; q < 4; q++) {
            sum[q] = spx::warp_sum(sum[q]);
            if (lane == 0)
                out[((size_t)blockIdx.x * (size_t)p.nf + (size_t)i) * 4 + (size_t)q] = sum[q];
        }
    }
}

/* The same of all rows, times powers of the row's place, sums[nf][16]: a block a fibre. */
__global__ void __launch_bounds__(THREADS) drift_sums_kernel(const __grid_constant__ problem p, long row0, long step,
                                                             long nrow, const double *coef, const double *row)
{
    const int i = (int)blockIdx.x;
    double sum[16];
    for (double &v : sum)
        v = 0;
    for (long q = threadIdx.x; q < nrow; q += THREADS) {
        const size_t r = (size_t)(row0 + q * step);
        double t, value[SPX_PF_SPLINE], c = 0, power = 1;
        const size_t spline = spx_pf_interval((size_t)p.nknot, (size_t)p.height, r, &t);
        spx_pf_spline_values(t, value);
        t = spx_pf_row_at((size_t)p.height, r);
        for (int k = 0; k < SPX_PF_SPLINE; k++)
            c += coef[(size_t)(i * p.nknot + k) + spline] * value[k];
        const double *of = row + ((size_t)q * (size_t)p.nf + (size_t)i) * 4;
        for (int k = 0; k < 5; k++, power *= t)
            for (int e = 0; e < 2; e++) {
                sum[8 * e + k] += power * c * c * of[2 * e + 1];
                if (k < 3)
                    sum[8 * e + 5 + k] += power * c * of[2 * e];
            }
    }
    for (int k = 0; k < 16; k++) {
        const double v = sum_block(sum[k]);
        if (threadIdx.x == 0)
            p.sums[16 * i + k] = v;
    }
}

/* Sums of a row of exposure x: of each fibre with its profile and those of the band - 1 fibres after it,
 * row[height][nf][2 + band] (spx_pf_kernels::moments), and of w, w (data - ground) in p.work. */
__global__ void __launch_bounds__(THREADS)
    moments_kernel(const __grid_constant__ problem p, int x, int band, double *row)
{
    const long r = blockIdx.x;
    const int lane = (int)threadIdx.x % WARP;
    const size_t at = (size_t)x * pixels_of(p) + (size_t)(r * p.width);
    double weight = 0, total = 0;
    for (size_t k = at + threadIdx.x; k < at + (size_t)p.width; k += THREADS) {
        const double w = (double)p.root[k] * p.root[k];
        weight += w;
        total += w * (p.data[k] - p.ground[k]);
    }
    weight = sum_block(weight);
    total = sum_block(total);
    if (threadIdx.x == 0) {
        p.work[2 * r] = weight;
        p.work[2 * r + 1] = total;
    }
    /* a fibre's profile has few pixels: eight lanes each */
    constexpr int SHARE = 8, FIBRES = THREADS / SHARE;
    for (int i0 = 0; i0 < p.nf; i0 += FIBRES) {
        const int i = i0 + (int)threadIdx.x / SHARE;
        const profile_of f(p, x, r, i < p.nf ? i : 0);
        double *out = row + ((size_t)r * (size_t)p.nf + (size_t)i) * (size_t)(2 + band);
        for (int e = 0; e < 2 + band; e++) {
            const int j = i + e - 2;
            double sum = 0;
            if (f.there && i < p.nf && (e < 2 || j < p.nf)) {
                const profile_of g(p, x, r, e < 2 ? i : j);
                for (long c = lane % SHARE; c < p.wide && g.there; c += SHARE) {
                    const long column = f.first + c;
                    if (column < 0 || column >= p.width)
                        continue;
                    const size_t k = at + (size_t)column;
                    const double w = (double)p.root[k] * p.root[k];
                    const double by = e == 0 ? p.data[k] - p.ground[k] : e == 1 ? 1 : g.at(column - g.first);
                    sum += w * f.at(c) * by;
                }
            }
            for (int way = SHARE / 2; way > 0; way /= 2)
                sum += __shfl_xor_sync(FULL, sum, way);
            if (lane % SHARE == 0 && i < p.nf)
                out[e] = sum;
        }
    }
}

/* Products of two of the four B-splines of an interval, and one of them. */
constexpr int PRODUCTS = SPX_PF_SPLINE * (SPX_PF_SPLINE + 1) / 2;
__device__ inline int product_of(int k, int l)
{
    const int lo = min(k, l), hi = max(k, l);
    return lo * (2 * SPX_PF_SPLINE - 1 - lo) / 2 + hi;
}

/* Doubles that intervals_kernel() makes of a fibre in an interval. */
__host__ __device__ inline int moments_of(int band)
{
    return PRODUCTS * band + 2 * SPX_PF_SPLINE;
}

/* Sums over the rows of an interval of the B-splines, blockIdx.x, of fibre blockIdx.y: of what row has, times products
 * of two B-splines, [PRODUCTS][band], and times a B-spline, [SPX_PF_SPLINE][2]. */
__global__ void __launch_bounds__(THREADS)
    intervals_kernel(const __grid_constant__ problem p, int band, const double *row, double *out)
{
    const int q = (int)blockIdx.x, i = (int)blockIdx.y, nf = p.nf, n = p.nknot - SPX_PF_SPLINE + 1;
    long r0 = (long)((double)q * (double)p.height / n) - 1, r1 = (long)((double)(q + 1) * (double)p.height / n) + 1;
    double t;
    r0 = r0 < 0 ? 0 : r0;
    r1 = r1 < p.height ? r1 : p.height;
    while (r0 < r1 && spx_pf_interval((size_t)p.nknot, (size_t)p.height, (size_t)r0, &t) != (size_t)q)
        r0++;
    while (r1 > r0 && spx_pf_interval((size_t)p.nknot, (size_t)p.height, (size_t)(r1 - 1), &t) != (size_t)q)
        r1--;
    __shared__ double part[WARPS][WARP];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, all = moments_of(band);
    for (int e0 = 0; e0 < all; e0 += WARP) { /* a lane a sum, a warp every fourth row */
        const int e = e0 + lane < all ? e0 + lane : all - 1;
        const bool pair = e < PRODUCTS * band;
        const int one = (e - PRODUCTS * band) / 2, column = pair ? 2 + e % band : (e - PRODUCTS * band) % 2;
        int first = 0, second;
        while (pair && product_of(first, SPX_PF_SPLINE - 1) < e / band)
            first++;
        for (second = first; pair && product_of(first, second) < e / band;)
            second++;
        double sum = 0;
        for (long r = r0 + warp; r < r1; r += WARPS) {
            double value[SPX_PF_SPLINE];
            (void)spx_pf_interval((size_t)p.nknot, (size_t)p.height, (size_t)r, &t);
            spx_pf_spline_values(t, value);
            const double by = pair ? value[first] * value[second] : value[one];
            sum += by * row[((size_t)r * (size_t)nf + (size_t)i) * (size_t)(2 + band) + (size_t)column];
        }
        part[warp][lane] = sum;
        __syncthreads();
        sum = 0;
        for (int k = 0; k < WARPS; k++)
            sum += part[k][lane];
        __syncthreads();
        if (warp == 0 && e0 + lane < all)
            out[((size_t)q * (size_t)nf + (size_t)i) * (size_t)all + (size_t)e] = sum;
    }
}

/* ---- fluxes and background ---- */

/* Products of a spot with the continuum around it and the constant, the spot's row of w: a warp. */
__global__ void __launch_bounds__(WARP)
    border_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, int x, double *w)
{
    const int k = (int)blockIdx.x, i = k % p.nf, lane = (int)threadIdx.x;
    const line &of = p.lines[k / p.nf];
    const size_t columns = (size_t)(of.nband * p.nf + 1), spot = (size_t)x * spots_of(p) + (size_t)k;
    double *row = w + of.border + (size_t)(k - of.first * p.nf) * columns, all = 0;
    const spx_pf_at at = s.at[spot];
    const double *stamp = p.stamp + spot * (size_t)p.npix;
    for (size_t c = (size_t)lane; c < columns; c += WARP)
        row[c] = 0;
    __syncwarp();
    for (int y = at.y0; y < at.y1; y++) {
        const long r = at.yc + y;
        const float *root = p.root + (size_t)x * pixels_of(p) + (size_t)(r * p.width);
        double t, value[SPX_PF_SPLINE];
        const int spline = (int)spx_pf_interval((size_t)p.nknot, (size_t)p.height, (size_t)r, &t) - of.band;
        spx_pf_spline_values(t, value);
        for (int c = at.x0 + lane; c < at.x1; c += WARP)
            all += stamp[y * p.nx + c] * root[at.xc + c];
        for (int j = i > p.reach ? i - p.reach : 0; j <= i + p.reach && j < p.nf; j++) {
            const profile_of f(p, x, r, j);
            double sum = 0;
            for (int c = at.x0 + lane; c < at.x1; c += WARP)
                sum += stamp[y * p.nx + c] * root[at.xc + c] * f.at(at.xc + c - f.first);
            sum = spx::warp_sum(sum);
            if (lane < SPX_PF_SPLINE)
                row[(size_t)((spline + lane) * p.nf + j)] += sum * value[lane];
        }
    }
    all = spx::warp_sum(all);
    if (lane == 0)
        row[columns - 1] = all;
}

/* L^-1 W of the rows of a group, whose lines begin with group[blockIdx.x]; a thread a column, MANY rows at a time.
 * stride 0: W is the border's; else rows of all spots of that many columns. */
__global__ void __launch_bounds__(THREADS)
    eliminate_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *group, int x,
                     int stride, double *w)
{
    constexpr int MANY = 8;
    const line &of = p.lines[group[blockIdx.x]];
    const int n = (of.last - of.first) * p.nf;
    const size_t columns = stride > 0 ? (size_t)stride : (size_t)(of.nband * p.nf + 1);
    const size_t c = (size_t)blockIdx.y * THREADS + threadIdx.x;
    const double *l = s.factor + (size_t)x * p.nfactor + of.factor;
    double *v = w + (stride > 0 ? (size_t)(of.first * p.nf) * columns : of.border) + c;
    if (c >= columns || (stride > 0 && of.quiet))
        return;
    for (int i0 = 0; i0 < n; i0 += MANY) {
        double sum[MANY];
        const int last = n - 1;
#pragma unroll
        for (int q = 0; q < MANY; q++)
            sum[q] = v[(size_t)min(i0 + q, last) * columns];
#pragma unroll 2
        for (int j = 0; j < i0; j++) {
            const double by = v[(size_t)j * columns], *row = l + (size_t)j * (size_t)n;
#pragma unroll
            for (int q = 0; q < MANY; q++)
                sum[q] = fma(-row[min(i0 + q, last)], by, sum[q]);
        }
#pragma unroll
        for (int q = 0; q < MANY; q++) {
            if (i0 + q >= n)
                break;
            const double *row = l + (size_t)(i0 + q) * (size_t)n;
            sum[q] /= row[i0 + q];
            v[(size_t)(i0 + q) * columns] = sum[q];
#pragma unroll
            for (int t = q + 1; t < MANY; t++)
                sum[t] = fma(-row[min(i0 + t, last)], sum[q], sum[t]);
        }
    }
}

/* The border's constant by itself and by L^-1 b, summed over all fluxes, out[2]: a block. */
__device__ inline void schur_corner(const problem &p, const state &s, const int *group, int ngroup, int x,
                                    const double *w, double *out)
{
    double one = 0, flux = 0;
    for (int k = 0; k < ngroup; k++) {
        const line &of = p.lines[group[k]];
        const size_t m = (size_t)(of.nband * p.nf);
        const double *f = s.flux + (size_t)x * spots_of(p) + (size_t)(of.first * p.nf), *a = w + of.border + m;
        for (int j = (int)threadIdx.x; j < (of.last - of.first) * p.nf; j += THREADS) {
            const double v = a[(size_t)j * (m + 1)];
            one = fma(v, v, one);
            flux = fma(v, f[j], flux);
        }
    }
    one = sum_block(one);
    flux = sum_block(flux);
    if (threadIdx.x == 0) {
        out[0] = one;
        out[1] = flux;
    }
}

/* Products of two columns of the border, summed over all fluxes: out[n][band + 3], a row the column i by those from i
 * to i + band, by L^-1 b (s.flux), and by the constant; then, the last block, schur_corner(). n: nf nknot. */
__global__ void __launch_bounds__(THREADS)
    schur_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *group, int ngroup,
                 int x, int band, const double *w, double *out)
{
    const size_t n = (size_t)(p.nf * p.nknot), e = (size_t)blockIdx.x * THREADS + threadIdx.x,
                 each = (size_t)(band + 3);
    if (blockIdx.x + 1 == gridDim.x) {
        schur_corner(p, s, group, ngroup, x, w, out + n * each);
        return;
    }
    if (e >= n * each)
        return;
    const size_t i = e / each, d = e % each;
    double sum = 0;
    for (int k = 0; k < ngroup; k++) {
        const line &of = p.lines[group[k]];
        const size_t m = (size_t)(of.nband * p.nf), first = (size_t)(of.band * p.nf),
                     rows = (size_t)((of.last - of.first) * p.nf);
        const double *f = s.flux + (size_t)x * spots_of(p) + (size_t)(of.first * p.nf);
        const bool by_flux = d == (size_t)band + 1, by_one = d == (size_t)band + 2;
        if (i < first || i >= first + m || (!by_flux && !by_one && i + d >= first + m))
            continue;
        const double *a = w + of.border + (i - first);
        const double *b = w + of.border + (by_one ? m : i + d - first);
        for (size_t j = 0; j < rows; j++)
            sum += a[j * (m + 1)] * (by_flux ? f[j] : b[j * (m + 1)]);
    }
    out[e] = sum;
}

/* Elements of the matrix of the continuum, columns j and i of the border, spline by spline of all fibres, from the sums
 * of intervals_kernel(); and of its products with data (which 0) and the constant (1). */
__device__ inline double border_element(const problem &p, int band, const double *moments, int j, int i)
{
    const int a = j / p.nf, b = i / p.nf, fibre = min(j % p.nf, i % p.nf), apart = max(j % p.nf, i % p.nf) - fibre;
    double sum = 0;
    for (int q = max(0, b - SPX_PF_SPLINE + 1); q <= min(a, p.nknot - SPX_PF_SPLINE) && apart < band; q++)
        sum += moments[(size_t)(q * p.nf + fibre) * (size_t)moments_of(band) +
                       (size_t)(product_of(a - q, b - q) * band + apart)];
    return sum;
}

__device__ inline double border_one(const problem &p, int band, const double *moments, int j, int which)
{
    const int a = j / p.nf, fibre = j % p.nf;
    double sum = 0;
    for (int q = max(0, a - SPX_PF_SPLINE + 1); q <= min(a, p.nknot - SPX_PF_SPLINE); q++)
        sum += moments[(size_t)(q * p.nf + fibre) * (size_t)moments_of(band) +
                       (size_t)(PRODUCTS * band + 2 * (a - q) + which)];
    return sum;
}

/* Normal equations of continuum and constant, the fluxes eliminated: the matrix of n + 1 columns, of which a block has
 * one, with the right-hand side below it. total: sums of w and w (data - ground); schur: of schur_kernel(). */
__global__ void __launch_bounds__(THREADS)
    border_matrix_kernel(const __grid_constant__ problem p, factored f, int band, const double *moments,
                         const double *total, const double *schur)
{
    const int n = p.nf * p.nknot, j = (int)blockIdx.x, each = f.band + 3;
    for (int i = j + (int)threadIdx.x; i < f.rows; i += THREADS) {
        double v = 0;
        if (i < n)
            v = i / p.nf - j / p.nf < SPX_PF_SPLINE ? border_element(p, band, moments, j, i) : 0;
        else if (j < n)
            v = border_one(p, band, moments, j, i == n);
        else
            v = total[i - n];
        if (i == j)
            v = spx_pf_border_floor(v, total[0]);
        if (i < n && i - j <= f.band)
            v -= schur[j * each + i - j];
        else if (i >= n)
            v -= schur[j * each + (j == n ? i - n : i == n ? f.band + 2 : f.band + 1)];
        f.a[(size_t)j * (size_t)f.rows + (size_t)i] = v;
    }
}

/* The solution x of these in the order of the coefficients, out[nf nknot + 1]; coef is that, or its change. */
__global__ void __launch_bounds__(THREADS)
    coefficients_kernel(const __grid_constant__ problem p, const double *x, int change, double *out, double *coef)
{
    const int n = p.nf * p.nknot, k = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (k > n)
        return;
    const int to = k < n ? k % p.nf * p.nknot + k / p.nf : n;
    out[to] = x[k];
    coef[to] = change ? coef[to] + x[k] : x[k];
}

/* Fluxes of a group beside a background that is known. */
__global__ void __launch_bounds__(THREADS)
    substitute_kernel(const __grid_constant__ problem p, const __grid_constant__ state s, const int *group, int x,
                      const double *coef, const double *w)
{
    extern __shared__ double shared[];
    const line &of = p.lines[group[blockIdx.x]];
    const int me = (int)threadIdx.x, lane = me % WARP;
    const size_t n = (size_t)((of.last - of.first) * p.nf), m = (size_t)(of.nband * p.nf);
    double *f = s.flux + (size_t)x * spots_of(p) + (size_t)(of.first * p.nf), *b = shared;
    double *a = s.factor + (size_t)x * p.nfactor + of.factor;
    for (size_t j = (size_t)(me / WARP); j < n; j += WARPS) {
        const double *row = w + of.border + j * (m + 1);
        double sum = 0;
        for (size_t i = (size_t)lane; i <= m; i += WARP)
            sum += row[i] * (i == m ? coef[p.nf * p.nknot]
                                    : coef[i % (size_t)p.nf * (size_t)p.nknot + (size_t)of.band + i / (size_t)p.nf]);
        sum = spx::warp_sum(sum);
        if (lane == 0)
            b[j] = f[j] - sum;
    }
    substitute({a, b, (int)n, false}, p.bad);
    for (size_t j = me; j < n; j += THREADS)
        f[j] = b[j];
}

} // namespace spx_pf

#endif
