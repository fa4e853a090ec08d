/* Provides the subtraction of the sky on a CUDA device: the engine of sky/engine.h. Products with resolution matrices
 * are those of calib/calib.cuh. The quantities of a fibre are one block's work: sums over the bins between two knots
 * are one thread's each, so that their order is fixed; the band of the spline is factorised by one thread, and solved
 * for each column by another. Banded algebra of the whole arm is left to the host (driver.c). */
#include <algorithm>
#include <chrono>
#include <vector>

#include "calib/calib.cuh"
#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"

#define restrict __restrict__
extern "C" {
#include "base/mem.h"
#include "sky/engine.h"
}
#undef restrict
#include "calib/bordered.h"
#include "sky/sky_math.h"

namespace
{

using spx::check;

constexpr int THREADS = 128, WARPS = THREADS / spx::WARP, AROUND = 25;

/* Threads of a fibre's quantities; memory of its system that may be shared, so that two blocks fit in a processor. */
constexpr int MEASURE = 256;
constexpr size_t MOST_SHARED = 100 * 1024;

/* Arrays on the device; sizes as in sky_cpu.c. */
struct view {
    size_t ns, n, nd, nq, nt, nm;
    size_t nterm[3], ninterval, nspline, npartial, rounds; /* of the spline; sums of an interval */
    double step, limit, shift;
    const double *resolution, *flux, *ivar, *wavelength, *legendre, *spline;
    const uint32_t *first, *interval; /* [ninterval + 1] first bin of each interval; [n] interval of each bin */
    double *w, *c, *m, *d1, *d2, *weight, *data, *v, *si;
    double *column; /* [ns][nq + 1][n] of the quantities, and data; 0 in bins that are not in the fit */
    double *s, *mode, *x, *q, *continuum, *noise, *p, *cov, *expected; /* expected[2][nq] */
    double *info, *right, *r, *fit, *system; /* r, fit [ns][n]; system [ns][...], where not shared */
    uint8_t *active, *use, *kind, *bad, *line_class;
    uint32_t *fibre;
    char *state; /* of the host's, behind each other: state_size() */
    double *part, *sum, *band;
    spx_sky_sums *sums;
    spx_sky_chi2 *chi2;
    int has_continuum, has_q;
};

__device__ size_t bin()
{
    return blockIdx.x * (size_t)blockDim.x + threadIdx.x;
}

__global__ void weights_kernel(view g)
{
    const size_t k = bin(), at = blockIdx.y * g.n + k;
    if (k < g.n)
        g.w[at] = g.ivar[at] > 0 && g.ivar[at] < INFINITY ? g.ivar[at] : 0;
}

/* s of each fibre with what varies with its coordinates; shifted by a second launch. */
__global__ void modes_kernel(view g, double *to)
{
    const size_t k = bin(), i = blockIdx.y;
    if (k >= g.n)
        return;
    double s = g.s[k];
    for (size_t q = 0; q < g.nm; q++)
        s += g.x[i * g.nm + q] * g.mode[q * g.n + k];
    to[i * g.n + k] = s;
}

__global__ void shift_kernel(view g, const double *from, double *to)
{
    const size_t k = bin(), i = blockIdx.y;
    if (k < g.n)
        to[i * g.n + k] = spx_interpolate8(g.n, from + i * g.n, k, g.wavelength[k] * g.q[i] / g.step);
}

/* Column q of a fibre's quantities at bin k, but for the scale of shifts and widths. */
__device__ double column(const view &g, size_t i, size_t k, size_t q)
{
    const size_t at = i * g.n + k;
    if (q < g.nt)
        return (g.has_continuum ? g.c[at] - g.continuum[k] : g.c[at]) * g.legendre[q * g.n + k];
    q -= g.nt;
    if (q < g.nterm[1])
        return g.d1[at] * g.legendre[q * g.n + k];
    return 0.5 * g.d2[at] * g.legendre[(q - g.nterm[1]) * g.n + k];
}

/* Part of the model that no quantity multiplies. */
__device__ double fixed_part(const view &g, size_t i, size_t k)
{
    return g.nt == 0 ? g.c[i * g.n + k] : g.has_continuum ? g.continuum[k] : 0;
}

__device__ double model_at(const view &g, size_t i, size_t k)
{
    const double *p = g.p + i * g.nq, t0 = spx_sky_scale_of(g.nt, p);
    double m = fixed_part(g, i, k);
    for (size_t q = 0; q < g.nq; q++)
        m += p[q] * (q < g.nt ? 1 : t0) * column(g, i, k, q);
    return m;
}

__device__ double scale_at(const view &g, size_t i, size_t k)
{
    double t = g.nt > 0 ? 0 : 1;
    for (size_t q = 0; q < g.nt; q++)
        t += g.p[i * g.nq + q] * g.legendre[q * g.n + k];
    return t;
}

__device__ double block_max(double v, double *shared)
{
    for (int s = spx::WARP / 2; s > 0; s /= 2)
        v = fmax(v, __shfl_xor_sync(spx::FULL, v, s));
    if (threadIdx.x % spx::WARP == 0)
        shared[threadIdx.x / spx::WARP] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        v = fmax(v, shared[i]);
    __syncthreads();
    return v;
}

/* Sum over the block, in thread 0; the block waits, so that `shared` can be used again. */
__device__ double total(double v, double *shared)
{
    v = spx::block_sum<WARPS>(v, shared);
    __syncthreads();
    return v;
}

/* Models of active fibres: one block each. */
__global__ void model_kernel(view g, double most)
{
    __shared__ double shared[WARPS];
    const size_t i = blockIdx.x;
    double n = 0, nout = 0, chi2 = 0, change = 0;
    if (!g.active[i])
        return;
    for (size_t k = threadIdx.x; k < g.n; k += THREADS) {
        const size_t at = i * g.n + k;
        const double now = model_at(g, i, k), v = g.w[at], before = g.m[at], r = g.flux[at] - now;
        g.m[at] = now;
        if (g.bad[k])
            continue;
        change = fmax(change, (now - before) * (now - before) * fabs(v));
        nout += v < 0;
        n += v > 0;
        chi2 += v > 0 ? fmin(r * r * v, most) : 0;
    }
    change = block_max(change, shared);
    n = total(n, shared);
    nout = total(nout, shared);
    chi2 = total(chi2, shared);
    if (threadIdx.x == 0)
        g.sums[i] = {n, nout, chi2, sqrt(change)};
}

__global__ void reject_kernel(view g, double limit, double most)
{
    __shared__ double shared[WARPS];
    const size_t i = blockIdx.x;
    double n = 0, nout = 0, chi2 = 0;
    if (!g.active[i])
        return;
    for (size_t k = threadIdx.x; k < g.n; k += THREADS) {
        const size_t at = i * g.n + k;
        const double v = fabs(g.w[at]), r = g.flux[at] - g.m[at];
        if (!(v > 0) || g.bad[k])
            continue;
        const int out = spx_sky_is_out(r, v, g.d1[at], limit, g.shift);
        g.w[at] = out ? -v : v;
        n += !out;
        nout += out;
        chi2 += out ? 0 : fmin(r * r * v, most);
    }
    n = total(n, shared);
    nout = total(nout, shared);
    chi2 = total(chi2, shared);
    if (threadIdx.x == 0)
        g.sums[i] = {n, nout, chi2, g.sums[i].change};
}

/* Weights and data of the normal equations of modes q and r, 0: s itself. */
__global__ void weigh_kernel(view g, size_t q, size_t r)
{
    const size_t k = bin(), i = blockIdx.y, at = i * g.n + k;
    if (k >= g.n || !g.use[i])
        return;
    const double factor = (q > 0 ? g.x[i * g.nm + q - 1] : 1) * (r > 0 ? g.x[i * g.nm + r - 1] : 1);
    const double t = spx_sky_positive(scale_at(g, i, k)), v = g.w[at] > 0 ? g.w[at] : 0;
    g.weight[at] = v * t * t * factor;
    g.data[at] = v > 0 ? (g.flux[at] - g.m[at]) / t : 0;
}

__global__ void mean_kernel(view g, size_t nuse, double *mean)
{
    const size_t k = bin();
    double sum = 0;
    for (size_t u = 0; u < nuse && k < g.n; u++)
        sum += g.c[g.fibre[u] * g.n + k];
    if (k < g.n)
        mean[k] = nuse > 0 ? sum / (double)nuse : 0;
}

/* v += factor(fibre) of: adds a pair's part of the variances of all fibres. */
__global__ void pair_kernel(view g, size_t q, size_t r, const double *of)
{
    const size_t k = bin(), i = blockIdx.y, at = i * g.n + k;
    if (k < g.n)
        g.v[at] =
            (q == 0 ? 0 : g.v[at]) + (q > 0 ? g.x[i * g.nm + q - 1] : 1) * (r > 0 ? g.x[i * g.nm + r - 1] : 1) * of[at];
}

/* Models, variances and sums of chi2 of all fibres: one block each. Models into m, variances into data. */
__global__ void finish_kernel(view g)
{
    __shared__ double shared[WARPS];
    const size_t i = blockIdx.x;
    const double *cov = g.cov + i * g.nq * g.nq, t0 = spx_sky_scale_of(g.nt, g.p + i * g.nq);
    double n[SPX_SKY_CLASSES + 1] = {0}, chi2[SPX_SKY_CLASSES + 1] = {0}, loo[SPX_SKY_CLASSES + 1] = {0};
    for (size_t k = threadIdx.x; k < g.n; k += THREADS) {
        const size_t at = i * g.n + k;
        const double t = scale_at(g, i, k), m = model_at(g, i, k);
        const double of_sky = t * t * (g.v[at] > 0 ? g.v[at] : 0);
        double variance = of_sky, a, b;
        for (size_t q = 0; q < g.nq; q++) {
            const double cq = column(g, i, k, q) * (q < g.nt ? 1 : t0);
            for (size_t r = 0; r <= q; r++)
                variance += (q == r ? 1 : 2) * cov[q * g.nq + r] * cq * column(g, i, k, r) * (r < g.nt ? 1 : t0);
        }
        variance = g.bad[k] ? 0 : fmax(variance, of_sky);
        g.m[at] = g.bad[k] ? 0 : m;
        g.data[at] = variance;
        const double v = g.w[at];
        if (!(v > 0) || g.bad[k] || !spx_sky_terms_of_chi2(g.use[i], g.flux[at] - m, v, of_sky, variance, &a, &b))
            continue;
        for (int c = 0; c <= SPX_SKY_CLASSES; c++)
            if (c == SPX_SKY_CLASSES || (g.line_class[k] >> c & 1)) {
                n[c]++;
                chi2[c] += a;
                loo[c] += b;
            }
    }
    for (int c = 0; c <= SPX_SKY_CLASSES; c++) {
        const double a = total(n[c], shared), b = total(chi2[c], shared), d = total(loo[c], shared);
        if (threadIdx.x == 0) {
            g.chi2[i].n[c] = a;
            g.chi2[i].chi2[c] = b;
            g.chi2[i].loo[c] = d;
        }
    }
}

/* ---- quantities: one block a fibre ---- */

/* Memory of a fibre's system, in numbers. */
__host__ __device__ size_t system_size(const view &g)
{
    return g.ninterval * g.npartial + g.nspline * (5 + 2 * g.nq) + 2 * g.nq * g.nq + g.nq;
}

struct fibre_system {
    double *partial, *band, *border, *x, *fill, *schur, *corner, *z;
};

/* Where it is: shared, or where it is too large for that in g.system. */
__device__ fibre_system system_of(const view &g, double *memory)
{
    fibre_system s;
    s.partial = memory;
    s.band = s.partial + g.ninterval * g.npartial;
    s.border = s.band + 4 * g.nspline;
    s.x = s.border + g.nq * g.nspline;
    s.fill = s.x + g.nspline;
    s.schur = s.fill + g.nq * g.nspline; /* behind fill, as bordered.h has it */
    s.corner = s.schur + g.nq * g.nq;
    s.z = s.corner + g.nq * g.nq;
    return s;
}

/* Is a bin in the fit? */
__device__ bool in_fit(const view &g, size_t k)
{
    return k >= SPX_SKY_EDGE && k + SPX_SKY_EDGE < g.n && !g.bad[k];
}

/* Data that the quantities and the spline stand for. */
__device__ double value_at(const view &g, size_t i, size_t k)
{
    return g.flux[i * g.n + k] - fixed_part(g, i, k);
}

/* Columns, data and weights of a fibre, once for all rounds; bins that are not in the fit are 0 in all of them, so that
 * sums need not look at them. */
__device__ void fill_columns(const view &g, size_t i, double *column_of)
{
    for (size_t k = threadIdx.x; k < g.n; k += MEASURE) {
        const size_t at = i * g.n + k;
        const bool in = in_fit(g, k) && g.w[at] > 0;
        for (size_t q = 0; q < g.nq; q++)
            column_of[q * g.n + k] = in ? column(g, i, k, q) : 0;
        column_of[g.nq * g.n + k] = in ? value_at(g, i, k) : 0;
        g.fit[at] = in ? g.w[at] : 0;
    }
    __syncthreads();
}

/* Sum number e of interval l over its bins: 10 products of the four functions of the spline, then 4 of these with each
 * column, and 4 with the data. */
__device__ double interval_sum(const view &g, const double *fit, const double *column_of, size_t l, size_t e)
{
    size_t a = 0, b = e;
    for (; e < 10 && b >= 4 - a; a++)
        b -= 4 - a;
    const double *f = g.spline + (e < 10 ? a : (e - 10) % 4) * g.n;
    const double *u = e < 10 ? g.spline + (a + b) * g.n : column_of + (e - 10) / 4 * g.n;
    double sum = 0;
    for (size_t k = g.first[l]; k < g.first[l + 1]; k++)
        sum += fit[k] * f[k] * u[k];
    return sum;
}

/* Scale of light that is noise of c: as far as lines tell it, the series p[nt]; and the information on t that is
 * nothing but this noise. */
struct noise_of {
    double p[SPX_SKY_MOST], information;
};

/* Light of column q that is noise of c: spx_sky_measure(). */
__device__ double noise_light(const view &g, const noise_of &noise, size_t k, size_t q)
{
    const size_t l = q < g.nt ? q : q < g.nt + g.nterm[1] ? 0 : q - g.nt - g.nterm[1];
    double t = g.nt > 0 ? 0 : 1;
    for (size_t r = 0; r < g.nt; r++)
        t += noise.p[r] * g.legendre[r * g.n + k];
    return spx_sky_noise(g.nt, g.nterm[1], g.step, q) * g.noise[k] * t * g.legendre[l * g.n + k];
}

/* Right-hand side of the corner: light that is noise of c, behind sum_corner(). A warp a quantity, and one for the
 * information. */
__device__ void sum_noise(const view &g, const double *fit, noise_of &noise, const fibre_system &s)
{
    const size_t lane = threadIdx.x % spx::WARP, warp = threadIdx.x / spx::WARP;
    for (size_t q = warp; q <= g.nq; q += MEASURE / spx::WARP) {
        double sum = 0;
        for (size_t k = lane; k < g.n; k += spx::WARP)
            sum += fit[k] * (q < g.nq ? noise_light(g, noise, k, q) : g.noise[k]);
        sum = spx::warp_sum(sum);
        if (lane == 0 && q < g.nq)
            s.z[q] += sum;
        if (lane == 0 && q == g.nq)
            noise.information = sum;
    }
    __syncthreads();
}

/* Corner of the system and its right-hand side: products of columns over all bins, a warp each. */
__device__ void sum_corner(const view &g, const double *fit, const double *column_of, const fibre_system &s)
{
    const size_t lane = threadIdx.x % spx::WARP, warp = threadIdx.x / spx::WARP, nq = g.nq;
    for (size_t task = warp; task < nq * (nq + 1); task += MEASURE / spx::WARP) {
        const size_t q = task / (nq + 1), r = task % (nq + 1);
        if (r > q && r < nq)
            continue;
        const double *one = column_of + q * g.n, *other = column_of + r * g.n;
        double sum = 0;
        for (size_t k = lane; k < g.n; k += spx::WARP)
            sum += fit[k] * one[k] * other[k];
        sum = spx::warp_sum(sum);
        if (lane == 0)
            (r < nq ? s.corner[q * nq + r] : s.z[q]) = sum;
    }
    __syncthreads();
}

__device__ void sum_spline(const view &g, const double *fit, const double *column_of, const fibre_system &s)
{
    const size_t n = g.nspline;
    for (size_t task = threadIdx.x; task < g.ninterval * g.npartial; task += MEASURE)
        s.partial[task] = interval_sum(g, fit, column_of, task / g.npartial, task % g.npartial);
    __syncthreads();
    /* function j is number a of interval j - a */
    for (size_t task = threadIdx.x; task < n * (5 + g.nq); task += MEASURE) {
        const size_t j = task % n, which = task / n;
        double sum = 0;
        for (size_t a = 0; a < 4; a++) {
            if (j < a || j - a >= g.ninterval)
                continue;
            const double *part = s.partial + (j - a) * g.npartial;
            if (which < 4) { /* band: products of a with a + which */
                if (a + which < 4)
                    sum += part[a * 4 - a * (a - 1) / 2 + which];
            } else {
                sum += part[10 + 4 * (which - 4) + a];
            }
        }
        if (which < 4)
            s.band[which * n + j] = sum;
        else if (which - 4 < g.nq)
            s.border[(which - 4) * n + j] = sum;
        else
            s.x[j] = sum;
    }
    __syncthreads();
}

/* spx_bordered_eliminate() by a block: the factor by one thread, each column by another. */
__device__ void eliminate(const view &g, const fibre_system &s)
{
    const size_t n = g.nspline, nq = g.nq;
    if (threadIdx.x == 0) {
        double most = 0;
        for (size_t j = 0; j < n; j++)
            most = s.band[j] > most ? s.band[j] : most;
        for (size_t j = 0; j < n; j++)
            s.band[j] += 1e-14 * most;
        (void)spx_band_factor(n, 3, s.band, 1e-12, s.band);
    }
    for (size_t t = threadIdx.x; t < nq * n; t += MEASURE)
        s.fill[t] = s.border[t];
    __syncthreads();
    if (threadIdx.x <= nq)
        spx_band_solve(n, 3, s.band, threadIdx.x < nq ? s.fill + threadIdx.x * n : s.x);
    __syncthreads();
    for (size_t t = threadIdx.x; t < nq * (nq + 1); t += MEASURE) {
        const size_t q = t / (nq + 1), r = t % (nq + 1);
        if (r < nq && r > q)
            continue;
        const double *other = r < nq ? s.fill + r * n : s.x;
        double sum = r < nq ? s.corner[q * nq + r] : s.z[q];
        for (size_t j = 0; j < n; j++)
            sum -= s.border[q * n + j] * other[j];
        (r < nq ? s.schur[q * nq + r] : s.z[q]) = sum;
    }
    __syncthreads();
}

/* Weights of the next round: spx_sky_measure(). */
__device__ void reweight(const view &g, size_t i, int last, const double *column_of, const fibre_system &s)
{
    const size_t nq = g.nq;
    if (threadIdx.x == 0) {
        double *z = s.z, *schur = s.schur;
        for (size_t q = 0; q < nq; q++) {
            const double weight = 1 / (g.expected[nq + q] * g.expected[nq + q]);
            schur[q * nq + q] += weight;
            z[q] += g.expected[q] * weight;
        }
        if (spx_small_factor(nq, schur))
            spx_small_solve(nq, schur, z);
        else
            for (size_t q = 0; q < nq; q++)
                z[q] = 0;
    }
    __syncthreads();
    for (size_t j = threadIdx.x; j < g.nspline; j += MEASURE)
        for (size_t q = 0; q < nq; q++)
            s.x[j] -= s.fill[q * g.nspline + j] * s.z[q];
    __syncthreads();
    double *r_of = g.r + i * g.n, *square = g.weight + i * g.n; /* weight: made anew where it is used */
    for (size_t k = threadIdx.x; k < g.n; k += MEASURE) {
        const size_t l = g.interval[k];
        double r = column_of[nq * g.n + k];
        for (size_t a = 0; a < 4; a++)
            r -= s.x[l + a] * g.spline[a * g.n + k];
        for (size_t q = 0; q < nq; q++)
            r -= s.z[q] * column_of[q * g.n + k];
        const double w = g.w[i * g.n + k];
        const bool in = in_fit(g, k) && w > 0;
        r_of[k] = in ? r * sqrt(w) : 0;
        square[k] = in ? fmin(r_of[k] * r_of[k], 25.) : -1;
    }
    __syncthreads();
    for (size_t k = threadIdx.x; k < g.n; k += MEASURE) {
        const size_t from = k < AROUND ? 0 : k - AROUND, to = k + AROUND < g.n ? k + AROUND : g.n - 1;
        double sum = 0;
        int count = 0;
        for (size_t l = from; l <= to; l++) {
            const double x = square[l];
            sum += x >= 0 ? x : 0;
            count += x >= 0;
        }
        const double mean = count > 0 ? sum / count : 0, r = fabs(r_of[k]);
        g.fit[i * g.n + k] =
            square[k] >= 0 ? g.w[i * g.n + k] / (mean > 1 ? mean : 1) * spx_sky_robust_weight(r, last) : 0;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(MEASURE) measure_kernel(view g, int is_shared)
{
    extern __shared__ double system[];
    __shared__ noise_of noise;
    const size_t i = blockIdx.x, nq = g.nq;
    const fibre_system s = system_of(g, is_shared ? system : g.system + i * system_size(g));
    double *info = g.info + i * nq * nq, *right = g.right + i * nq, *column_of = g.column + i * (nq + 1) * g.n;
    const double *fit = g.fit + i * g.n;
    const int star = g.kind[i] == SPX_SKY_STAR;
    if (g.kind[i] == SPX_SKY_LEAVE) {
        for (size_t t = threadIdx.x; t < nq * nq; t += MEASURE)
            info[t] = 0;
        for (size_t t = threadIdx.x; t < nq; t += MEASURE)
            right[t] = 0;
        return;
    }
    for (size_t k = threadIdx.x; star && k < g.n; k += MEASURE)
        g.w[i * g.n + k] = fabs(g.w[i * g.n + k]);
    for (size_t q = threadIdx.x; q < nq; q += MEASURE)
        noise.p[q] = g.expected[q];
    fill_columns(g, i, column_of);
    for (size_t round = 0;; round++) {
        sum_corner(g, fit, column_of, s);
        if (star)
            sum_noise(g, fit, noise, s);
        if (star) {
            sum_spline(g, fit, column_of, s);
            eliminate(g, s);
        }
        if (!star || round >= g.rounds)
            break;
        const double information = s.schur[0];
        __syncthreads();
        reweight(g, i, round + 1 == g.rounds, column_of, s);
        if (threadIdx.x == 0)
            for (size_t q = 0; q < g.nt; q++)
                noise.p[q] = spx_sky_told(g.expected[q], s.z[q], noise.information, information);
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    const double *from = star ? s.schur : s.corner;
    for (size_t q = 0; q < nq; q++) {
        right[q] = s.z[q];
        for (size_t r = 0; r <= q; r++)
            info[q * nq + r] = info[r * nq + q] = from[q * nq + r];
    }
    for (size_t q = 0; q < nq && star; q++) { /* a column that the spline holds already */
        if (info[q * nq + q] > 1e-10 * s.corner[q * nq + q])
            continue;
        for (size_t r = 0; r < nq; r++)
            info[q * nq + r] = info[r * nq + q] = 0;
        right[q] = 0;
    }
}

/* ---- the engine ---- */

/* Memory that stays from frame to frame: to get and to free it takes as long as the rest. One thread of a program works
 * on frames, on one device. */
struct kept {
    spx::device_buffer<char> memory;
    spx::pinned_buffer<char> staging;
};

struct cuda {
    view g;
    size_t shared;              /* bytes of a fibre's system; 0: it is in g.system */
    spx::stream stream, coming; /* coming: resolution matrices, those of the sky fibres first */
    spx::stream rest;           /* and the others', beside the passes, which do not need them */
    kept &k;
    double began;
    double seconds;
    bool measuring; /* begun, and not fetched */
    ~cuda()         /* the caller's matrices are read no more, nor memory that the next call takes over */
    {
        (void)cudaStreamSynchronize(stream.s);
        (void)cudaStreamSynchronize(coming.s);
        (void)cudaStreamSynchronize(rest.s);
    }
};

double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename T> void put(const spx::stream &stream, T *to, const T *from, size_t n)
{
    spx::to_device += n * sizeof(T);
    if (n > 0)
        check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream.s), "copy");
}

template <typename T> void put(const cuda &c, T *to, const T *from, size_t n)
{
    put(c.stream, to, from, n);
}

/* What is launched from now on needs resolution matrices of the active fibres. */
void need_resolution(const cuda &c, const spx_sky_work *w)
{
    bool others = false;
    for (size_t i = 0; i < c.g.ns; i++)
        others |= w->active[i] && w->in->role[i] != SPX_SKY_FIBRE;
    if (spx::order(c.coming.s, c.stream.s) != 0 || (others && spx::order(c.rest.s, c.stream.s) != 0))
        spx::fail("event");
}

/* Sends the matrices of fibres which are sky, or are not. */
void send_resolution(const spx::stream &stream, const view &g, const spx_sky_input *in, bool sky)
{
    const size_t each = g.nd * g.n;
    for (size_t first = 0, last; first < g.ns; first = last) {
        const bool wanted = (in->role[first] == SPX_SKY_FIBRE) == sky;
        for (last = first + 1; last < g.ns && ((in->role[last] == SPX_SKY_FIBRE) == sky) == wanted;)
            last++;
        if (wanted)
            put(stream, const_cast<double *>(g.resolution) + first * each, in->resolution + first * each,
                (last - first) * each);
    }
}

/* Copies n words of page-locked memory. Copies by the device's own engines wait for each other, whatever their streams:
 * those of the passes would wait for the matrices. */
__global__ void words_kernel(size_t n, const uint4 *from, uint4 *to)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i];
}

/* Waits. */
template <typename T> void take(const cuda &c, T *to, const T *from, size_t n)
{
    spx::to_host += n * sizeof(T);
    if (n > 0)
        check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, c.stream.s), "copy");
    check(cudaStreamSynchronize(c.stream.s), "stream");
}

dim3 all_bins(const view &g)
{
    return dim3(spx::blocks(g.n, THREADS), (unsigned)g.ns);
}

/* The arrays that the host changes between two calls, one behind the other, for one copy. base NULL: their size. */
size_t hand_out_state(char *base, view &g)
{
    spx::arena a = {base, 0, 0};
    g.p = a.take<double>(g.ns * g.nq + 1);
    g.x = a.take<double>(g.ns * g.nm + 1);
    g.s = a.take<double>(g.n);
    g.mode = a.take<double>(g.nm * g.n + 1);
    g.continuum = a.take<double>(g.n);
    g.noise = a.take<double>(g.n);
    g.active = a.take<uint8_t>(g.ns);
    g.use = a.take<uint8_t>(g.ns);
    g.kind = a.take<uint8_t>(g.ns);
    g.bad = a.take<uint8_t>(g.n);
    g.fibre = a.take<uint32_t>(g.ns);
    g.sums = a.take<spx_sky_sums>(g.ns);
    return a.used;
}

/* Hands out the arrays; with a.base NULL it counts. */
void hand_out(spx::arena &a, view &g, bool is_shared)
{
    const size_t bins = g.ns * g.n, nq = g.nq, pairs = (g.nd + 1) * g.n;
    double **const of_bins[] = {&g.w, &g.c, &g.m, &g.d1, &g.d2, &g.weight, &g.data, &g.v, &g.r, &g.fit};
    g.resolution = a.take<double>(bins * g.nd);
    g.flux = a.take<double>(bins);
    g.ivar = a.take<double>(bins);
    for (double **p : of_bins)
        *p = a.take<double>(bins);
    g.si = a.take<double>(g.nm > 0 || g.has_q ? 2 * bins : 1);
    g.wavelength = a.take<double>(g.n);
    g.legendre = a.take<double>((nq + 1) * g.n);
    g.spline = a.take<double>(4 * g.n);
    g.first = a.take<uint32_t>(g.ninterval + 1);
    g.interval = a.take<uint32_t>(g.n);
    g.column = a.take<double>((nq + 1) * bins);
    g.q = a.take<double>(g.ns);
    g.cov = a.take<double>(g.ns * nq * nq + 1);
    g.expected = a.take<double>(2 * nq + 1);
    g.info = a.take<double>(g.ns * nq * nq + 1);
    g.right = a.take<double>(g.ns * nq + 1);
    g.system = a.take<double>(is_shared ? 1 : g.ns * system_size(g) + 1);
    g.line_class = a.take<uint8_t>(g.n);
    g.part = a.take<double>(spx::calib::normal_chunks(g.ns) * pairs);
    g.sum = a.take<double>(pairs);
    g.band = a.take<double>(g.nd * g.n);
    g.state = a.take<char>(hand_out_state(nullptr, g));
    (void)hand_out_state(a.base != nullptr ? g.state : nullptr, g);
    g.chi2 = a.take<spx_sky_chi2>(g.ns);
}

/* Sends them; the number of fibres in use, whose list is among them. sums: of the last models; NULL: not needed. */
size_t put_state(cuda &c, const spx_sky_work *w, const spx_sky_sums *sums = nullptr)
{
    const view &g = c.g;
    view h = g; /* the same places, in the staging buffer */
    const size_t bytes = hand_out_state(nullptr, h);
    size_t nuse = 0;
    char *host = c.k.staging.need(bytes);
    (void)hand_out_state(host, h);
    std::copy_n(w->p, g.ns * g.nq, h.p);
    std::copy_n(w->x, g.ns * g.nm, h.x);
    std::copy_n(w->s, g.n, h.s);
    std::copy_n(w->mode, g.nm * g.n, h.mode);
    if (w->continuum != nullptr)
        std::copy_n(w->continuum, g.n, h.continuum);
    std::copy_n(w->noise, g.n, h.noise);
    std::copy_n(w->active, g.ns, h.active);
    std::copy_n(w->use, g.ns, h.use);
    std::copy_n(w->kind, g.ns, h.kind);
    std::copy_n(w->bad, g.n, h.bad);
    for (size_t i = 0; i < g.ns; i++)
        if (w->use[i])
            h.fibre[nuse++] = (uint32_t)i;
    if (sums != nullptr)
        std::copy_n(sums, g.ns, h.sums);
    spx::to_device += bytes;
    const size_t words = bytes / sizeof(uint4); /* arrays are multiples of it */
    words_kernel<<<spx::blocks(words, THREADS), THREADS, 0, c.stream.s>>>(words, (const uint4 *)host, (uint4 *)g.state);
    check(cudaGetLastError(), "launch");
    return nuse;
}

/* Runs `body` with the engine's state; a failure of the device becomes an error. */
template <typename F> spx_status run(spx_sky_engine *e, spx_err *err, F body)
{
    return spx::guarded("sky", err, [&] {
        body(*static_cast<cuda *>(e->state));
        return SPX_OK;
    });
}

spx_status set_weights(spx_sky_engine *engine, const spx_sky_work *w, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        (void)put_state(c, w);
        weights_kernel<<<all_bins(c.g), THREADS, 0, c.stream.s>>>(c.g);
        check(cudaGetLastError(), "launch");
        check(cudaStreamSynchronize(c.stream.s), "stream");
    });
}

spx_status make_spectra(spx_sky_engine *engine, const spx_sky_work *w, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        view &g = c.g;
        const double *s = g.s;
        (void)put_state(c, w);
        need_resolution(c, w);
        if (g.nm > 0 || g.has_q) {
            modes_kernel<<<all_bins(g), THREADS, 0, c.stream.s>>>(g, g.si);
            s = g.si;
        }
        if (g.has_q) {
            put(c, g.q, w->q, g.ns);
            shift_kernel<<<all_bins(g), THREADS, 0, c.stream.s>>>(g, g.si, g.si + g.ns * g.n);
            s = g.si + g.ns * g.n;
        }
        check(cudaGetLastError(), "launch");
        spx::calib::apply(c.stream.s, g.ns, g.n, g.nd, g.resolution, s, s == g.s ? 0 : g.n, g.c, g.active);
        spx::calib::derivative(c.stream.s, g.ns, g.n, g.step, g.c, g.d1, g.active);
        spx::calib::derivative(c.stream.s, g.ns, g.n, g.step, g.d1, g.d2, g.active);
        check(cudaStreamSynchronize(c.stream.s), "stream");
    });
}

spx_status begin_measure(spx_sky_engine *engine, const spx_sky_work *w, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        (void)put_state(c, w);
        measure_kernel<<<(unsigned)c.g.ns, MEASURE, c.shared, c.stream.s>>>(c.g, c.shared > 0);
        check(cudaGetLastError(), "launch");
        c.measuring = true;
    });
}

spx_status measure(spx_sky_engine *engine, const spx_sky_work *w, double *info, double *right, spx_err *e)
{
    const spx_status begun = static_cast<cuda *>(engine->state)->measuring ? SPX_OK : begin_measure(engine, w, e);
    return begun != SPX_OK ? begun : run(engine, e, [&](cuda &c) {
        c.measuring = false;
        take(c, info, c.g.info, c.g.ns * c.g.nq * c.g.nq);
        take(c, right, c.g.right, c.g.ns * c.g.nq);
    });
}

spx_status make_models(spx_sky_engine *engine, const spx_sky_work *w, double most, spx_sky_sums *sums, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        (void)put_state(c, w, sums);
        model_kernel<<<(unsigned)c.g.ns, THREADS, 0, c.stream.s>>>(c.g, most);
        check(cudaGetLastError(), "launch");
        take(c, sums, c.g.sums, c.g.ns);
    });
}

spx_status reject(spx_sky_engine *engine, const spx_sky_work *w, double limit, double most, spx_sky_sums *sums,
                  spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        (void)put_state(c, w, sums);
        reject_kernel<<<(unsigned)c.g.ns, THREADS, 0, c.stream.s>>>(c.g, limit, most);
        check(cudaGetLastError(), "launch");
        take(c, sums, c.g.sums, c.g.ns);
    });
}

spx_status normal(spx_sky_engine *engine, const spx_sky_work *w, double *a, double *y, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        view &g = c.g;
        const size_t nuse = put_state(c, w);
        need_resolution(c, w);
        for (size_t q = 0; q <= g.nm; q++)
            for (size_t r = 0; r <= q; r++) {
                weigh_kernel<<<all_bins(g), THREADS, 0, c.stream.s>>>(g, q, r);
                check(cudaGetLastError(), "launch");
                spx::calib::normal(c.stream.s, nuse, g.fibre, g.n, g.nd, g.resolution, g.weight, g.data, g.part, g.sum);
                take(c, a + spx_sky_pair(q, r) * g.nd * g.n, g.sum, g.nd * g.n);
                if (r == 0)
                    take(c, y + q * g.n, g.sum + g.nd * g.n, g.n);
            }
    });
}

spx_status mean_spectrum(spx_sky_engine *engine, const spx_sky_work *w, double *mean, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        const size_t nuse = put_state(c, w);
        mean_kernel<<<spx::blocks(c.g.n, THREADS), THREADS, 0, c.stream.s>>>(c.g, nuse, c.g.sum);
        check(cudaGetLastError(), "launch");
        take(c, mean, c.g.sum, c.g.n);
    });
}

spx_status finish(spx_sky_engine *engine, const spx_sky_work *w, const double *covariance, const uint8_t *line_class,
                  double *model, double *variance, spx_sky_chi2 *chi2, spx_err *e)
{
    return run(engine, e, [&](cuda &c) {
        view &g = c.g;
        (void)put_state(c, w);
        put(c, g.cov, w->cov, g.ns * g.nq * g.nq);
        put(c, g.line_class, line_class, g.n);
        for (size_t q = 0; q <= g.nm; q++)
            for (size_t r = 0; r <= q; r++) {
                put(c, g.band, covariance + spx_sky_pair(q, r) * g.nd * g.n, g.nd * g.n);
                spx::calib::variance(c.stream.s, g.ns, g.n, g.nd, g.resolution, g.band, g.weight);
                pair_kernel<<<all_bins(g), THREADS, 0, c.stream.s>>>(g, q, r, g.weight);
                check(cudaGetLastError(), "launch");
            }
        finish_kernel<<<(unsigned)g.ns, THREADS, 0, c.stream.s>>>(g);
        check(cudaGetLastError(), "launch");
        take(c, chi2, g.chi2, g.ns);
        c.seconds = now() - c.began;
        (void)spx_mem_pagelocked(model);
        (void)spx_mem_pagelocked(variance);
        take(c, model, g.m, g.ns * g.n);
        take(c, variance, g.data, g.ns * g.n);
    });
}

/* Tables of the grid. */
void put_tables(cuda &c, const spx_sky_input *in, const spx_sky_options *o, const spx_bspline &spline)
{
    view &g = c.g;
    const size_t n = g.n, nterm = g.nq > 0 ? g.nq : 1;
    const double from = in->wavelength[0], last = in->wavelength[n - 1];
    std::vector<double> legendre((g.nq + 1) * n), b(4 * n), expected(2 * g.nq + 1);
    std::vector<uint32_t> first(g.ninterval + 1, (uint32_t)n), interval(n);
    double p[SPX_SKY_MOST + 1], at[4];
    for (size_t k = 0, begun = 0; k < n; k++) {
        spx_legendre(spx_legendre_place(from, last, in->wavelength[k]), nterm, p);
        for (size_t l = 0; l < nterm; l++)
            legendre[l * n + k] = p[l];
        interval[k] = (uint32_t)spx_bspline_at(&spline, from + (double)k * g.step, at);
        for (size_t a = 0; a < 4; a++)
            b[a * n + k] = at[a];
        for (; begun <= interval[k]; begun++) /* intervals that begin here, or had no bin */
            first[begun] = (uint32_t)k;
    }
    for (size_t q = 0; q < g.nq; q++) {
        expected[q] = spx_sky_expected(&o->terms, q);
        expected[g.nq + q] = spx_sky_expected_error(&o->terms, g.step, q);
    }
    put(c, const_cast<double *>(g.legendre), legendre.data(), legendre.size());
    put(c, const_cast<double *>(g.spline), b.data(), b.size());
    put(c, const_cast<uint32_t *>(g.first), first.data(), first.size());
    put(c, const_cast<uint32_t *>(g.interval), interval.data(), interval.size());
    put(c, g.expected, expected.data(), expected.size());
    check(cudaStreamSynchronize(c.stream.s), "stream");
}

void begin(cuda &c, const spx_sky_input *in, const spx_sky_options *o)
{
    view &g = c.g;
    const spx_sky_fit fit = spx_sky_fit_of(in, o);
    const spx_bspline spline = spx_bspline_of(fit.first, fit.first + (double)(fit.nwave - 1) * fit.step, fit.knots);
    spx::arena a = {nullptr, 0, 0};
    g = view{};
    g.ns = in->nspec;
    g.n = in->nwave;
    g.nd = in->ndiag;
    g.nq = spx_sky_count(&o->terms);
    g.nt = g.nterm[0] = o->terms.nt;
    g.nterm[1] = o->terms.nd;
    g.nterm[2] = o->terms.nk;
    g.nm = in->ngradient + (in->side != nullptr);
    g.nspline = spline.n;
    g.ninterval = spline.n - 3;
    g.npartial = 10 + 4 * g.nq + 4;
    g.rounds = fit.rounds;
    g.step = fit.step;
    g.shift = o->shift_error;
    g.has_continuum = o->scale == SPX_SKY_SCALE_LINES;
    g.has_q = in->velocity != nullptr;
    c.shared = system_size(g) * sizeof(double);
    if (c.shared > MOST_SHARED || spx::allow_shared(measure_kernel, c.shared) != cudaSuccess)
        c.shared = 0;
    (void)cudaGetLastError();
    hand_out(a, g, c.shared > 0);
    const size_t bytes = a.used;
    a = {c.k.memory.need(bytes), 0, bytes};
    hand_out(a, g, c.shared > 0);
    for (const double *p : {in->resolution, in->flux, in->ivar})
        (void)spx_mem_pagelocked(p);
    put(c, const_cast<double *>(g.flux), in->flux, g.ns * g.n);
    put(c, const_cast<double *>(g.ivar), in->ivar, g.ns * g.n);
    put(c, const_cast<double *>(g.wavelength), in->wavelength, g.n);
    check(cudaMemsetAsync(g.m, 0, g.ns * g.n * sizeof(double), c.stream.s), "device memory");
    check(cudaMemsetAsync(g.data, 0, g.ns * g.n * sizeof(double), c.stream.s), "device memory");
    put_tables(c, in, o, spline);
    send_resolution(c.coming, g, in, true);
    if (spx::order(c.coming.s, c.rest.s) != 0)
        spx::fail("event");
    send_resolution(c.rest, g, in, false);
}

} // namespace

extern "C" spx_status spx_sky_cuda(spx_backend *b, const spx_sky_input *in, const spx_sky_options *o, spx_sky *out,
                                   spx_err *e)
{
    spx_sky_options used = *o;
    if (o->scale == SPX_SKY_SCALE_NONE)
        used.terms.nt = 0;
    *out = spx_sky{};
    const spx_status st = spx_sky_check(in, &used, e);
    if (st != SPX_OK)
        return st;
    return spx::guarded("sky", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        static thread_local kept memory;
        cuda c{{}, 0, {}, {}, {}, memory, 0, 0, false};
        spx_sky_engine engine = {};
        begin(c, in, &used);
        c.began = now();
        engine.state = &c;
        engine.weights = set_weights;
        engine.spectra = make_spectra;
        engine.measure = measure;
        engine.begin_measure = begin_measure;
        engine.model = make_models;
        engine.reject = reject;
        engine.normal = normal;
        engine.finish = finish;
        engine.mean = mean_spectrum;
        const spx_status status = spx_sky_solve(&engine, in, &used, out, e);
        if (used.quantities)
            c.seconds = now() - c.began;
        spx::note_seconds(b, c.seconds);
        return status;
    });
}
