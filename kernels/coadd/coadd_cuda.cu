/* Provides coadds on a CUDA device (coadd/coadd.h). All targets go through each step of the CPU's coadd_target()
 * together; the host sees how many are left after each.
 *
 * N of all targets lies side by side, element (j, j+d) of target t at [j][d][t], and y(j) behind them at d = M + 1: one
 * thread a target factors, solves and bounds the eigenvalues, from columns that other warps bring (sweep()). The root
 * has a warp a target, whose lanes are its poles, which read a column together; what they add to Q is summed over the
 * warp. Bandwidths are M = 10, for DESI's 11 diagonals, or 20; wider ones are left to the CPU. Sums have a fixed order.
 */
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "calib/poles.cuh"
#include "calib/window.cuh"
#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
extern "C" {
#include "base/mem.h"
#include "calib/series.h"
#include "coadd/coadd_math.h"
}

namespace
{

using spx::blocks;
using spx::WARP;

enum { THREADS = 128, WARPS = THREADS / WARP, STEPS = 16, MOST_BAND = 20 };

/* Arrays of a call on the device. */
struct view {
    size_t nt, n, ndiag, m, h, out; /* targets; bins; diagonals; half-bandwidths of N and of the coadd; its diagonals */
    double reject;
    int method;
    const unsigned long long *first;
    const unsigned *of; /* [nexp] target of an exposure */
    const double *flux, *ivar, *resolution;
    const uint32_t *mask;
    double *w, *d, *model;                             /* [nexp][n] */
    uint8_t *gone;                                     /* [nexp][n] rejected */
    double *scale, *next_scale, *mm;                   /* [nexp] */
    unsigned *most;                                    /* [nexp] bins that may be rejected still */
    uint8_t *todo;                                     /* [nt] the step is for this target */
    uint8_t *live;                                     /* [nt] not yet settled */
    uint8_t *several;                                  /* [nt] several exposures with information */
    double *sum, *median, *x;                          /* [nt][n]; [nt]; [nt][n] */
    double *a, *l;                                     /* [n][M + 2][nt]; [n][M + 1][nt] 1/D and L */
    uint8_t *dead, *optimal;                           /* [nt][n]; [nt] */
    double *far;                                       /* [nt][n] */
    unsigned *worst;                                   /* [nt][n] */
    double *spread;                                    /* [nt] */
    double *least, *greatest, *total, *shift, *weight; /* [nt] each; [nt][SPX_MAX_POLES] */
    int *npole, *bad;                                  /* [nt] */
    double *q;                                         /* [nt][n][h + 3]: diagonals of Q, Q 1, Q x */
    double *o_flux, *o_ivar, *o_res, *o_chi2, *line;   /* of the result; line: [nt][n] */
    uint32_t *o_mask, *o_good, *o_gone;
    unsigned *count; /* targets or bins that a step found */
};

__device__ inline double at_resolution(const view &v, size_t i, size_t b, size_t c)
{
    return v.resolution != nullptr ? v.resolution[(i * v.ndiag + b) * v.n + c] : 1.0;
}

__device__ inline double inside(const view &v, size_t i, size_t k)
{
    return v.resolution != nullptr ? spx_coadd_inside(v.n, v.ndiag, v.resolution + i * v.ndiag * v.n, k) : 1.0;
}

/* Weights with scales, and fluxes but for light from beyond the arm's ends. Bin: x; target: y. */
__global__ void take_kernel(view v, bool all)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y;
    if (k >= v.n || !(all || v.todo[t]))
        return;
    double sum = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        const size_t at = i * v.n + k;
        const double weight = spx_coadd_weight(v.flux[at], v.ivar[at], v.mask != nullptr ? v.mask[at] : 0);
        v.w[at] = v.gone[at] ? 0 : weight * v.scale[i] * v.scale[i];
        v.d[at] = weight > 0 ? v.flux[at] / v.scale[i] * inside(v, i, k) : 0;
        sum += v.w[at];
    }
    v.sum[t * v.n + k] = sum;
}

/* Bins with weight of an exposure, a tenth of which may be rejected. Exposure: blockIdx.x. */
__global__ void count_kernel(view v)
{
    __shared__ unsigned partial[WARPS];
    const size_t i = blockIdx.x;
    unsigned good = 0;
    for (size_t k = threadIdx.x; k < v.n; k += blockDim.x)
        good += v.w[i * v.n + k] > 0;
    good = spx::block_sum<WARPS>(good, partial);
    if (threadIdx.x == 0)
        v.most[i] = good;
}

/* Targets with several exposures that have information. */
__global__ void begin_kernel(view v)
{
    const size_t t = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (t >= v.nt)
        return;
    unsigned with = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        with += v.most[i] > 0;
        v.most[i] /= 10;
    }
    v.several[t] = v.live[t] = v.todo[t] = with > 1 && v.first[t + 1] - v.first[t] > 1;
}

/* N and y of bin x, diagonal y (the last: y), target z. */
template <int M> __global__ void normal_kernel(view v)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x, e = blockIdx.y, t = blockIdx.z;
    if (j >= v.n || !v.todo[t])
        return;
    const bool right = e == M + 1;
    double sum = 0;
    if (right || (e <= v.m && j + e < v.n))
        for (size_t i = v.first[t]; i < v.first[t + 1]; i++)
            for (size_t b = right ? 0 : e; b < v.ndiag; b++) {
                const long k = (long)j + (long)b - (long)(v.ndiag / 2);
                if (k < 0 || k >= (long)v.n)
                    continue;
                const double w = v.w[i * v.n + (size_t)k];
                const double wr = at_resolution(v, i, b, j) * w;
                if (w > 0)
                    sum += wr * (right ? v.d[i * v.n + (size_t)k] : at_resolution(v, i, b - e, j + e));
            }
    v.a[(j * (M + 2) + e) * v.nt + t] = sum;
    if (e == 0)
        v.line[t * v.n + j] = sum;
}

/* Value of rank `rank` among those for which key(k) is not 0, which are positive numbers: by bits, from the highest.
 * All threads of a block. */
template <typename KEY> __device__ unsigned long long of_rank(size_t n, unsigned rank, unsigned *partial, KEY key)
{
    __shared__ unsigned below;
    unsigned long long value = 0;
    for (int bit = 62; bit >= 0; bit--) {
        const unsigned long long upto = value | 1ull << bit;
        unsigned count = 0;
        for (size_t k = threadIdx.x; k < n; k += blockDim.x) {
            const unsigned long long x = key(k);
            count += x != 0 && x < upto;
        }
        count = spx::block_sum<WARPS>(count, partial);
        if (threadIdx.x == 0)
            below = count;
        __syncthreads();
        if (below <= rank)
            value = upto;
        __syncthreads();
    }
    return value;
}

/* Median of the positive diagonal elements of N. Target: blockIdx.x. */
__global__ void median_kernel(view v)
{
    __shared__ unsigned partial[WARPS], all;
    const size_t t = blockIdx.x;
    if (!v.todo[t])
        return;
    const auto key = [&](size_t k) {
        const double x = v.line[t * v.n + k];
        return x > 0 ? (unsigned long long)__double_as_longlong(x) : 0ull;
    };
    unsigned some = 0;
    for (size_t k = threadIdx.x; k < v.n; k += blockDim.x)
        some += key(k) != 0;
    some = spx::block_sum<WARPS>(some, partial);
    if (threadIdx.x == 0)
        all = some;
    __syncthreads();
    some = all;
    double median = 1;
    if (some > 0) {
        const double low = __longlong_as_double((long long)of_rank(v.n, (some - 1) / 2, partial, key));
        const double high = __longlong_as_double((long long)of_rank(v.n, some / 2, partial, key));
        median = some % 2 ? low : (low + high) / 2;
    }
    if (threadIdx.x == 0)
        v.median[t] = median;
}

__global__ void dead_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y;
    if (k < v.n && v.todo[t])
        v.dead[t * v.n + k] = !(v.line[t * v.n + k] > SPX_COADD_NOTHING * v.median[t]);
}

/* Regularises N. Bin: x; diagonal: y; target: z. */
template <int M> __global__ void ridge_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, e = blockIdx.y, t = blockIdx.z;
    if (k >= v.n || !v.todo[t])
        return;
    double *a = &v.a[(k * (M + 2) + e) * v.nt + t];
    const bool dead = v.dead[t * v.n + k];
    if (e == 0)
        *a = dead ? v.median[t] : *a + (SPX_COADD_RIDGE * *a + SPX_COADD_PRIOR * v.median[t]);
    else if (dead || (e <= M && k + e < v.n && v.dead[t * v.n + k + e]))
        *a = 0;
}

/* ---- recurrences along the bins: one thread a target ----
 *
 * A block has WARP targets. Its first warp goes along the columns; the others bring the next ones to shared memory
 * meanwhile, for a thread that waited for each column would take ten times as long. */

enum { SWEEP = 128, BRINGERS = SWEEP / WARP - 1 };

/* Columns that are brought together, of M + 2 numbers a target. */
template <int M> struct columns {
    enum { COUNT = M <= 10 ? 8 : 4, SIZE = M + 2 };
    double at[2][COUNT][SIZE][WARP];
};

/* Calls step(j, column) with columns j = 0 ... n - 1, or from the last one on, in the first warp for targets that are
 * active; number e of target t is column[e * WARP] = from(j, e, t). All threads of the block; any: one of its targets
 * is active. What a sweep has stored the next one finds. */
template <int M, bool BACK, typename FROM, typename STEP>
__device__ void sweep(columns<M> &c, const view &v, bool any, bool active, FROM from, STEP step)
{
    constexpr int COUNT = columns<M>::COUNT, SIZE = columns<M>::SIZE, EACH = (SIZE + BRINGERS - 1) / BRINGERS;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t chunks = (v.n + COUNT - 1) / COUNT, mine = blockIdx.x * (size_t)WARP + lane, t = min(mine, v.nt - 1);
    if (!any)
        return;
    for (size_t chunk = 0; chunk <= chunks; chunk++) {
        if (warp > 0 && chunk < chunks) {
            double value[COUNT][EACH]; /* all on their way before the first is stored */
#pragma unroll
            for (int s = 0; s < COUNT; s++)
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const size_t j = min(chunk * COUNT + s, v.n - 1);
                    const int e = warp - 1 + i * BRINGERS;
                    value[s][i] = e < SIZE ? from(BACK ? v.n - 1 - j : j, e, t) : 0.0;
                }
#pragma unroll
            for (int s = 0; s < COUNT; s++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    if (warp - 1 + i * BRINGERS < SIZE)
                        c.at[chunk % 2][s][warp - 1 + i * BRINGERS][lane] = value[s][i];
        }
        if (warp == 0 && chunk > 0 && active) {
            const size_t begin = (chunk - 1) * COUNT;
            for (size_t s = 0; s < COUNT && begin + s < v.n; s++)
                step(BACK ? v.n - 1 - (begin + s) : begin + s, &c.at[(chunk - 1) % 2][s][0][lane]);
        }
        __syncthreads();
    }
}

/* x(j) from the right-hand side b, that of L^-1 b already divided by D, and the elements behind it in back[1 ... M]. */
template <int M> __device__ double substitute(double b, const double *column, double *back)
{
    double x = b * column[0];
#pragma unroll
    for (int e = 1; e <= M; e++)
        x -= column[e * WARP] * back[e];
#pragma unroll
    for (int e = M; e >= 2; e--)
        back[e] = back[e - 1];
    back[1] = x;
    return x;
}

/* L D L^T and x. */
template <int M> __global__ void __launch_bounds__(SWEEP, 1) solve_kernel(view v)
{
    extern __shared__ double memory[];
    columns<M> &c = *reinterpret_cast<columns<M> *>(memory);
    const size_t t = blockIdx.x * (size_t)WARP + threadIdx.x % WARP, T = v.nt;
    const bool active = t < T && v.todo[t], any = __syncthreads_or(active);
    factor_window<M> window;
    forth_window<M> forth;
    sweep<M, false>(
        c, v, any, active, [&](size_t j, int e, size_t of) { return v.a[(j * (M + 2) + (size_t)e) * T + of]; },
        [&](size_t j, const double *column) {
            double in[M + 1];
#pragma unroll
            for (int e = 0; e <= M; e++)
                in[e] = column[e * WARP];
            const double inverse = window.next(in, 0.0);
            v.x[t * v.n + j] = forth.next(column[(M + 1) * WARP], in);
            v.l[j * (M + 1) * T + t] = inverse;
#pragma unroll
            for (int e = 1; e <= M; e++)
                v.l[(j * (M + 1) + e) * T + t] = in[e];
        });
    double back[M + 1] = {0.0};
    sweep<M, true>(
        c, v, any, active,
        [&](size_t j, int e, size_t of) {
            return e <= M ? v.l[(j * (M + 1) + (size_t)e) * T + of] : v.x[of * v.n + j];
        },
        [&](size_t j, const double *column) {
            v.x[t * v.n + j] = substitute<M>(column[(M + 1) * WARP], column, back);
        });
}

/* R_i x. Bin: x; exposure: y. */
__global__ void model_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, i = blockIdx.y, t = v.of[i];
    if (k >= v.n || !v.todo[t])
        return;
    double sum = 0;
    for (size_t b = 0; b < v.ndiag; b++) {
        const long j = (long)k + (long)(v.ndiag / 2) - (long)b;
        if (j >= 0 && j < (long)v.n)
            sum += at_resolution(v, i, b, (size_t)j) * v.x[t * v.n + (size_t)j];
    }
    v.model[i * v.n + k] = sum;
}

/* Scale of an exposure. Exposure: blockIdx.x. */
__global__ void scale_kernel(view v)
{
    __shared__ double partial[WARPS];
    const size_t i = blockIdx.x;
    if (!v.todo[v.of[i]])
        return;
    double dm = 0, mm = 0, good = 0;
    for (size_t k = threadIdx.x; k < v.n; k += blockDim.x) {
        const size_t at = i * v.n + k;
        const double w = v.w[at], model = v.model[at], robust = spx_coadd_robust(w, v.d[at] - model);
        dm += robust * v.d[at] * model;
        mm += robust * model * model;
        good += w > 0;
    }
    dm = spx::block_sum<WARPS>(dm, partial);
    __syncthreads();
    mm = spx::block_sum<WARPS>(mm, partial);
    __syncthreads();
    good = spx::block_sum<WARPS>(good, partial);
    if (threadIdx.x == 0) {
        const double a = v.scale[i];
        v.next_scale[i] = spx_coadd_scale(dm / a, mm / (a * a), good);
        v.mm[i] = mm / (a * a);
    }
}

/* Scales with a mean of 1; targets whose scales have changed stay in the step. */
__global__ void settle_kernel(view v)
{
    const size_t t = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (t >= v.nt || !v.todo[t])
        return;
    double mean = 0, all = 0, change = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        mean += v.mm[i] * v.next_scale[i];
        all += v.mm[i];
    }
    mean = all > 0 ? mean / all : 1;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        const double a = v.next_scale[i] / mean;
        change = fmax(change, fabs(a / v.scale[i] - 1));
        v.scale[i] = a;
    }
    v.todo[t] = !(change < SPX_COADD_SETTLED);
    if (v.todo[t])
        atomicAdd(v.count, 1u);
}

/* The worst residual of each bin. Bin: x; target: y. */
__global__ void residual_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y, to = t * v.n + k;
    if (k >= v.n || !v.live[t])
        return;
    double far = 0;
    unsigned worst = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        const size_t at = i * v.n + k;
        const double z = spx_coadd_residual(v.w[at], v.sum[to], v.d[at], v.model[at]);
        if (i == v.first[t] || spx_coadd_worse(z, far)) {
            far = z;
            worst = (unsigned)(i - v.first[t]);
        }
    }
    v.far[to] = far;
    v.worst[to] = worst;
}

/* Rejects bins. Target: blockIdx.x. A target without any is settled. */
__global__ void reject_kernel(view v)
{
    __shared__ unsigned partial[WARPS], all;
    const size_t t = blockIdx.x;
    if (!v.live[t])
        return;
    const double *far = v.far + t * v.n;
    unsigned total = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        const auto key = [&](size_t k) {
            const bool is =
                v.worst[t * v.n + k] == i - v.first[t] && fabs(far[k]) > v.reject && spx_coadd_stands_out(v.n, far, k);
            return is ? (unsigned long long)__double_as_longlong(fabs(far[k])) : 0ull;
        };
        unsigned count = 0;
        for (size_t k = threadIdx.x; k < v.n; k += blockDim.x)
            count += key(k) != 0;
        count = spx::block_sum<WARPS>(count, partial);
        if (threadIdx.x == 0)
            all = count;
        __syncthreads();
        count = all;
        const unsigned most = v.most[i];
        __syncthreads();
        unsigned long long limit = 0;
        if (count > most)
            limit = of_rank(v.n, count - 1 - most, partial, key);
        unsigned gone = 0;
        for (size_t k = threadIdx.x; k < v.n && most > 0; k += blockDim.x) {
            const unsigned long long x = key(k);
            if (x > limit) {
                v.gone[i * v.n + k] = 1;
                gone++;
            }
        }
        gone = spx::block_sum<WARPS>(gone, partial);
        if (threadIdx.x == 0) {
            v.most[i] -= gone;
            total += gone;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        v.live[t] = total > 0;
        if (total > 0)
            atomicAdd(v.count, 1u);
    }
}

/* Spread of the widths, bin by bin, then their mean. Target: blockIdx.x. */
__global__ void spread_kernel(view v)
{
    __shared__ double partial[WARPS];
    const size_t t = blockIdx.x;
    double total = 0, rows = 0;
    if (!v.live[t] || v.resolution == nullptr)
        return;
    for (size_t k = threadIdx.x; k < v.n; k += blockDim.x) {
        double mean = 0, rms = 0;
        for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
            double sum = 0, square = 0;
            for (size_t b = 0; b < v.ndiag; b++) {
                const long c = (long)k + (long)(v.ndiag / 2) - (long)b;
                const double r = c >= 0 && c < (long)v.n ? at_resolution(v, i, b, (size_t)c) : 0.0;
                sum += r;
                square += r * r;
            }
            const double width = spx_resolution_width(sum, square), w = v.w[i * v.n + k];
            mean += w * width;
            rms += w * width * width;
        }
        const double all = v.sum[t * v.n + k];
        if (!(all > 0 && mean > 0))
            continue;
        const double at = mean / all, x = rms / all - at * at;
        total += x > 0 ? sqrt(x) / at : 0;
        rows += 1;
    }
    total = spx::block_sum<WARPS>(total, partial);
    __syncthreads();
    rows = spx::block_sum<WARPS>(rows, partial);
    if (threadIdx.x == 0)
        v.spread[t] = rows > 0 ? total / rows : 0;
}

/* Which targets get a root: those that had several exposures with information. */
__global__ void choose_kernel(view v)
{
    const size_t t = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (t < v.nt)
        v.optimal[t] =
            v.several[t] && v.ndiag > 1 &&
            (v.method == SPX_COADD_OPTIMAL || (v.method == SPX_COADD_AUTO && v.spread[t] > SPX_COADD_SPREAD));
}

/* chi^2 and counts of an exposure. Exposure: blockIdx.x. */
__global__ void judge_kernel(view v)
{
    __shared__ double partial[WARPS];
    const size_t i = blockIdx.x, t = v.of[i];
    double chi2 = 0, dof = 0, good = 0, gone = 0;
    for (size_t k = threadIdx.x; k < v.n; k += blockDim.x) {
        const size_t at = i * v.n + k;
        const double w = v.w[at], r = v.d[at] - v.model[at], all = v.sum[t * v.n + k];
        gone += v.gone[at];
        good += w > 0;
        if (w > 0 && w < (1 - 1e-9) * all) {
            chi2 += w * r * r;
            dof += 1 - w / all;
        }
    }
    double *const part[4] = {&chi2, &dof, &good, &gone};
    for (double *p : part) {
        *p = spx::block_sum<WARPS>(*p, partial);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        v.o_chi2[i] = dof >= 1 ? chi2 / dof : 0;
        v.o_good[i] = (uint32_t)good;
        v.o_gone[i] = (uint32_t)gone;
    }
}

/* Simple flux, ivar and masks. Bin: x; target: y. */
__global__ void simple_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y, to = t * v.n + k;
    if (k >= v.n)
        return;
    double sum = 0, one = 0;
    unsigned count = 0;
    uint32_t mask = 0;
    for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
        const size_t at = i * v.n + k;
        mask |= v.mask != nullptr ? v.mask[at] : 0;
        mask |= v.gone[at] ? (uint32_t)SPX_COADD_REJECTED : 0;
        if (v.w[at] > 0) {
            one = v.flux[at] / v.scale[i];
            sum += v.w[at] * one;
            count++;
        }
    }
    v.o_flux[to] = count == 0 ? 0 : count == 1 ? one : sum / v.sum[to];
    v.o_ivar[to] = v.sum[to];
    v.o_mask[to] = v.sum[to] > 0 ? 0 : mask != 0 ? mask : (uint32_t)SPX_COADD_NODATA;
}

/* Simple R. Column: x; diagonal of the result: y; target: z. */
__global__ void rows_kernel(view v)
{
    const size_t c = blockIdx.x * (size_t)blockDim.x + threadIdx.x, to = blockIdx.y, t = blockIdx.z;
    const long b = (long)to - (long)(v.out / 2) + (long)(v.ndiag / 2), k = (long)c - ((long)(v.out / 2) - (long)to);
    if (c >= v.n)
        return;
    double value = 0;
    if (b >= 0 && b < (long)v.ndiag && k >= 0 && k < (long)v.n) {
        double sum = 0, plain = 0, one = 0;
        unsigned count = 0;
        for (size_t i = v.first[t]; i < v.first[t + 1]; i++) {
            const double r = at_resolution(v, i, (size_t)b, c), w = v.w[i * v.n + (size_t)k];
            plain += r;
            if (w > 0) {
                sum += w * r;
                one = r;
                count++;
            }
        }
        value = count == 0   ? plain / (double)(v.first[t + 1] - v.first[t])
                : count == 1 ? one
                             : sum / v.sum[t * v.n + (size_t)k];
    }
    v.o_res[(t * v.out + to) * v.n + c] = value;
}

/* Bounds of the eigenvalues, as smallest() of calib/root_lanes.h. One thread a target, as solve_kernel(). */
template <int M> __global__ void __launch_bounds__(SWEEP, 1) bounds_kernel(view v)
{
    extern __shared__ double memory[];
    columns<M> &c = *reinterpret_cast<columns<M> *>(memory);
    const size_t t = blockIdx.x * (size_t)WARP + threadIdx.x % WARP, T = v.nt;
    const bool active = t < T && v.optimal[t], any = __syncthreads_or(active);
    double most = 0, row[M + 1] = {0.0}; /* row: sums of the rows that are not complete yet */
    sweep<M, false>(
        c, v, any, active,
        [&](size_t j, int e, size_t of) { return e <= M ? v.a[(j * (M + 2) + (size_t)e) * T + of] : 0.0; },
        [&](size_t, const double *column) {
            double sum = fabs(column[0]) + row[0];
#pragma unroll
            for (int e = 1; e <= M; e++) {
                const double x = fabs(column[e * WARP]);
                sum += x;
                row[e - 1] = row[e] + x;
            }
            row[M] = 0;
            most = fmax(most, sum);
        });
    double *y = v.line, norm = 0, last = 1; /* y: [n][T] */
    const auto with_y = [&](size_t j, int e, size_t of) {
        return e <= M ? v.l[(j * (M + 1) + (size_t)e) * T + of] : y[j * T + of];
    };
    for (int step = 0; step < 4; step++) {
        double size = 0, ahead[M + 1] = {0.0}, back[M + 1] = {0.0};
        sweep<M, false>(c, v, any, active, with_y, [&](size_t j, const double *column) {
            const double before = column[(M + 1) * WARP];
            const double b = step == 0 ? (j % 2 == 0 ? 1.0 : -1.0) : step == 1 ? copysign(1.0, before) : before;
            const double x = b - ahead[0];
#pragma unroll
            for (int e = 1; e <= M; e++)
                ahead[e - 1] = (e < M ? ahead[e] : 0.0) + column[e * WARP] * x;
            y[j * T + t] = x;
        });
        sweep<M, true>(c, v, any, active, with_y, [&](size_t j, const double *column) {
            const double x = substitute<M>(column[(M + 1) * WARP], column, back);
            size = fmax(size, fabs(x));
            y[j * T + t] = x;
        });
        norm = fmax(norm, size / last);
        last = step == 0 ? 1 : size;
    }
    if (threadIdx.x >= WARP || !active)
        return;
    const double low = 0.5 / norm;
    const bool good = low > 0 && most < INFINITY;
    if (!good)
        v.bad[t] = 1;
    v.least[t] = !good ? 1 : low < most ? low : most;
    v.greatest[t] = good ? most : 1;
}

/* Poles. Target: blockIdx.x. */
__global__ void __launch_bounds__(POLE_THREADS *TRIES) poles_kernel(view v)
{
    __shared__ pole_tries tries;
    const size_t t = blockIdx.x;
    if (!v.optimal[t])
        return;
    const pole_choice p = choose_poles(tries, v.least[t], v.greatest[t], SPX_COADD_ERROR);
    for (int j = (int)threadIdx.x; j < p.n; j += POLE_THREADS) {
        v.shift[t * SPX_MAX_POLES + j] = p.shift[j];
        v.weight[t * SPX_MAX_POLES + j] = p.weight[j];
    }
    if (threadIdx.x == 0 && p.n > 0) {
        double total = 0;
        for (int j = 0; j < p.n; j++)
            total += p.weight[j];
        v.npole[t] = p.n;
        v.total[t] = total;
    }
}

/* Root of N: a warp a target, a lane a pole; see add_pole() of calib/root_lanes.h. lower: [gridDim][n][M + 3][WARP] */
template <int M> __global__ void root_kernel(view v, const unsigned *list, double *lower)
{
    __shared__ double column[STEPS][M + 2];
    const size_t t = list[blockIdx.x], n = v.n, T = v.nt, lane = threadIdx.x, h3 = v.h + 3;
    double *l = lower + blockIdx.x * n * (M + 3) * WARP + lane;
    bool good = true;
    for (int pole0 = 0; pole0 < v.npole[t]; pole0 += WARP) {
        const int pole = pole0 + (int)lane;
        const bool active = pole < v.npole[t];
        const double shift = v.shift[t * SPX_MAX_POLES + (active ? pole : pole0)];
        const double weight = active ? v.weight[t * SPX_MAX_POLES + pole] : 0.0, scale = weight * shift;
        {
            factor_window<M> window;
            forth_window<M> ones, fluxes;
            for (size_t j0 = 0; j0 < n; j0 += STEPS) {
                const size_t steps = n - j0 < STEPS ? n - j0 : (size_t)STEPS;
                __syncwarp();
                for (size_t i = lane; i < steps * (M + 2); i += WARP) {
                    const size_t j = j0 + i / (M + 2), e = i % (M + 2);
                    column[i / (M + 2)][e] = e <= M ? v.a[(j * (M + 2) + e) * T + t] : v.x[t * n + j];
                }
                __syncwarp();
                for (size_t s = 0; s < steps; s++) {
                    double in[M + 1];
#pragma unroll
                    for (int e = 0; e <= M; e++)
                        in[e] = column[s][e];
                    double *to = l + (j0 + s) * (M + 3) * WARP;
                    to[0] = window.next(in, shift);
                    to[(M + 1) * WARP] = ones.next(1.0, in);
                    to[(M + 2) * WARP] = fluxes.next(column[s][M + 1], in);
#pragma unroll
                    for (int e = 1; e <= M; e++)
                        to[e * WARP] = in[e];
                }
            }
            good &= window.good || !active;
        }
        double back1[M + 1] = {0.0}, backx[M + 1] = {0.0};
        inverse_window<M> z;
        double next[M + 3];
#pragma unroll
        for (int e = 0; e < M + 3; e++)
            next[e] = l[((n - 1) * (M + 3) + e) * WARP];
        for (size_t j = n; j-- > 0;) {
            double now[M + 3], row[M + 1];
#pragma unroll
            for (int e = 0; e < M + 3; e++) {
                now[e] = next[e];
                next[e] = j > 0 ? l[((j - 1) * (M + 3) + e) * WARP] : 0.0;
            }
            double s1 = now[M + 1] * now[0], sx = now[M + 2] * now[0], diagonal = now[0];
#pragma unroll
            for (int i = 0; i <= M; i++)
                row[i] = 0.0;
#pragma unroll
            for (int e = 1; e <= M; e++) {
                s1 -= now[e] * back1[e];
                sx -= now[e] * backx[e];
#pragma unroll
                for (int i = 1; i <= M; i++)
                    row[i] -= now[e] * z.at(i, e);
            }
#pragma unroll
            for (int e = 1; e <= M; e++)
                diagonal -= now[e] * row[e];
#pragma unroll
            for (int e = M; e >= 2; e--) {
                back1[e] = back1[e - 1];
                backx[e] = backx[e - 1];
            }
            back1[1] = s1;
            backx[1] = sx;
            z.next(diagonal, row);
            row[0] = diagonal;
            double mine = 0;
#pragma unroll
            for (int d = 0; d <= M; d++) {
                const double sum = d <= (int)v.h ? spx::warp_sum(-scale * row[d]) : 0.0;
                mine = (int)lane == d ? sum : mine;
            }
            const double sum1 = spx::warp_sum(weight * (1.0 - shift * s1));
            const double sumx = spx::warp_sum(weight * (v.x[t * n + j] - shift * sx));
            mine = lane == v.h + 1 ? sum1 : lane == v.h + 2 ? sumx : mine;
            double *to = v.q + (t * n + j) * h3 + lane;
            if (lane < h3)
                *to = pole0 > 0 ? *to + mine : mine;
        }
    }
    if (!good)
        v.bad[t] = 1;
}

/* Element (k, c) of Q. */
__device__ inline double element(const view &v, size_t t, size_t k, size_t c)
{
    const size_t low = k < c ? k : c, d = k < c ? c - k : k - c;
    return v.q[(t * v.n + low) * (v.h + 3) + d] + (d == 0 ? v.total[t] : 0.0);
}

/* Targets whose Q holds a value that is not finite. Bin: x; target: y. */
__global__ void check_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y;
    if (k >= v.n || !v.optimal[t] || v.dead[t * v.n + k])
        return;
    const double *q = v.q + (t * v.n + k) * (v.h + 3), s = q[v.h + 1];
    bool good = s != 0 && fabs(q[v.h + 2] / s) < INFINITY && s * s < INFINITY;
    for (size_t d = 0; d <= v.h; d++)
        good = good && fabs(q[d] / s) < INFINITY;
    if (!good)
        atomicOr(&v.bad[t], 1);
}

/* flux, ivar and R of optimal targets. Bin: x; target: y. */
__global__ void optimal_kernel(view v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, t = blockIdx.y, to = t * v.n + k;
    if (k >= v.n || !v.optimal[t] || v.bad[t])
        return;
    if (v.dead[to]) {
        v.o_flux[to] = v.o_ivar[to] = 0;
        v.o_mask[to] = v.o_mask[to] != 0 ? v.o_mask[to] : (uint32_t)SPX_COADD_NODATA;
        return;
    }
    const double *q = v.q + to * (v.h + 3), s = q[v.h + 1];
    v.o_flux[to] = q[v.h + 2] / s;
    v.o_ivar[to] = s * s;
    double kept = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t b = 0; b < v.out; b++) {
            const long c = (long)k + (long)v.h - (long)b;
            if (c < 0 || c >= (long)v.n)
                continue;
            const double value = element(v, t, k, (size_t)c);
            if (pass == 0)
                kept += value;
            else
                v.o_res[(t * v.out + b) * v.n + (size_t)c] = value / spx_coadd_norm(kept, s);
        }
}

/* What stays from call to call: to get and to free it takes as long as the rest. */
struct kept {
    spx::device_buffer<char> memory;
    spx::device_buffer<double> roots; /* factors of the poles: */
    size_t nroots = 0;
};

/* Those that no call has: calls from several threads have one each. */
std::mutex unused_lock;
std::vector<std::unique_ptr<kept>> unused;

std::unique_ptr<kept> acquire()
{
    const std::lock_guard<std::mutex> lock(unused_lock);
    if (unused.empty())
        return std::make_unique<kept>();
    std::unique_ptr<kept> k = std::move(unused.back());
    unused.pop_back();
    return k;
}

void release(std::unique_ptr<kept> k)
{
    const std::lock_guard<std::mutex> lock(unused_lock);
    unused.push_back(std::move(k));
}

/* Arrays of a call, and its launches. */
class call
{
  public:
    call(const spx_coadd_input *in, const spx_coadd_options *o)
        : in_(in), o_(o), nt_(in->ntarget), nexp_(in->first[in->ntarget]), n_(in->nwave), kept_(acquire())
    {
        v_.nt = nt_;
        v_.n = n_;
        v_.ndiag = in->ndiag > 0 ? in->ndiag : 1;
        v_.m = v_.ndiag - 1;
        v_.h = o->ndiag_out / 2;
        v_.out = o->ndiag_out;
        v_.reject = o->reject;
        v_.method = (int)o->method;
    }

    call(const call &) = delete;
    call &operator=(const call &) = delete;
    ~call() /* the caller's arrays are read and written no more, nor memory that the next call takes over */
    {
        (void)cudaStreamSynchronize(stream_.s);
        release(std::move(kept_));
    }

    double run(spx_coadd *out)
    {
        return std::max(v_.m, v_.h) <= 10 ? run_band<10>(out) : run_band<MOST_BAND>(out);
    }

  private:
    const spx_coadd_input *in_;
    const spx_coadd_options *o_;
    size_t nt_, nexp_, n_;
    view v_{};
    unsigned *list_ = nullptr; /* [nt] targets that get a root */
    std::vector<unsigned> of_; /* of the copies to the device */
    std::vector<double> ones_;
    std::unique_ptr<kept> kept_;
    spx::stream stream_;

    template <typename T> void put(const T *to, const void *from, size_t n)
    {
        spx::to_device += n * sizeof(T);
        spx::check(cudaMemcpyAsync(const_cast<T *>(to), from, n * sizeof(T), cudaMemcpyHostToDevice, stream_.s),
                   "copy to the device");
    }
    /* There after wait(). */
    template <typename T> void get(const T *from, T *to, size_t n)
    {
        spx::to_host += n * sizeof(T);
        spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, stream_.s), "copy from the device");
    }
    void wait()
    {
        spx::check(cudaStreamSynchronize(stream_.s), "stream");
    }
    static void launched()
    {
        spx::check(cudaGetLastError(), "launch");
    }

    dim3 bins(size_t y, size_t z = 1) const
    {
        return dim3(blocks(n_, THREADS), (unsigned)y, (unsigned)z);
    }
    unsigned targets() const
    {
        return blocks(nt_, THREADS);
    }

    /* Hands out the arrays, those of the input first; with a.base NULL it counts. Returns where those of the input end.
     */
    template <int M> size_t hand_out(spx::arena &a)
    {
        const size_t bins = nexp_ * n_, all = nt_ * n_;
        view &v = v_;
        v.first = a.take<unsigned long long>(nt_ + 1);
        v.of = a.take<unsigned>(nexp_);
        v.flux = a.take<double>(bins);
        v.ivar = a.take<double>(bins);
        v.mask = in_->mask != nullptr ? a.take<uint32_t>(bins) : nullptr;
        v.resolution = in_->ndiag > 0 ? a.take<double>(bins * v.ndiag) : nullptr;
        v.scale = a.take<double>(nexp_);
        const size_t input = a.used;
        for (double **p : {&v.w, &v.d, &v.model})
            *p = a.take<double>(bins);
        for (double **p : {&v.sum, &v.x, &v.far, &v.line, &v.o_flux, &v.o_ivar})
            *p = a.take<double>(all);
        for (double **p : {&v.next_scale, &v.mm, &v.o_chi2})
            *p = a.take<double>(nexp_);
        for (double **p : {&v.median, &v.spread, &v.least, &v.greatest, &v.total})
            *p = a.take<double>(nt_);
        for (double **p : {&v.shift, &v.weight})
            *p = a.take<double>(nt_ * SPX_MAX_POLES);
        v.gone = a.take<uint8_t>(bins);
        v.dead = a.take<uint8_t>(all);
        for (uint8_t **p : {&v.todo, &v.live, &v.several, &v.optimal})
            *p = a.take<uint8_t>(nt_);
        v.a = a.take<double>(n_ * (M + 2) * nt_);
        v.l = a.take<double>(n_ * (M + 1) * nt_);
        v.q = a.take<double>(o_->method == SPX_COADD_SIMPLE ? 1 : all * (v.h + 3));
        v.o_res = a.take<double>(all * v.out);
        for (unsigned **p : {&v.most, &v.o_good, &v.o_gone})
            *p = a.take<unsigned>(nexp_);
        for (int **p : {&v.npole, &v.bad})
            *p = a.take<int>(nt_);
        v.worst = a.take<unsigned>(all);
        v.o_mask = a.take<uint32_t>(all);
        v.count = a.take<unsigned>(1);
        list_ = a.take<unsigned>(nt_);
        return input;
    }

    template <int M> void allocate()
    {
        spx::arena a = {nullptr, 0, 0};
        (void)hand_out<M>(a);
        a = {kept_->memory.need(a.used), 0, a.used};
        const size_t input = hand_out<M>(a);
        spx::check(cudaMemsetAsync(a.base + input, 0, a.used - input, stream_.s), "device memory");
        of_.resize(nexp_);
        ones_.assign(nexp_, 1.0);
        for (size_t t = 0; t < nt_; t++)
            for (size_t i = in_->first[t]; i < in_->first[t + 1]; i++)
                of_[i] = (unsigned)t;
        for (const void *p :
             {(const void *)in_->flux, (const void *)in_->ivar, (const void *)in_->mask, (const void *)in_->resolution})
            if (p != nullptr)
                (void)spx_mem_pagelocked(p);
        static_assert(sizeof *v_.first == sizeof *in_->first, "same elements");
        put(v_.first, in_->first, nt_ + 1);
        put(v_.of, of_.data(), nexp_);
        put(v_.scale, ones_.data(), nexp_);
        put(v_.flux, in_->flux, nexp_ * n_);
        put(v_.ivar, in_->ivar, nexp_ * n_);
        if (in_->mask != nullptr)
            put(v_.mask, in_->mask, nexp_ * n_);
        if (in_->ndiag > 0)
            put(v_.resolution, in_->resolution, nexp_ * v_.ndiag * n_);
    }

    void zero_count()
    {
        spx::check(cudaMemsetAsync(v_.count, 0, sizeof(unsigned), stream_.s), "device memory");
    }
    unsigned counted()
    {
        unsigned count;
        get(v_.count, &count, 1);
        wait();
        return count;
    }
    void take(bool all)
    {
        take_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_, all);
        launched();
    }
    template <int M> void solve()
    {
        normal_kernel<M><<<bins(M + 2, nt_), THREADS, 0, stream_.s>>>(v_);
        median_kernel<<<(unsigned)nt_, THREADS, 0, stream_.s>>>(v_);
        dead_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_);
        ridge_kernel<M><<<bins(M + 2, nt_), THREADS, 0, stream_.s>>>(v_);
        solve_kernel<M><<<blocks(nt_, WARP), SWEEP, sizeof(columns<M>), stream_.s>>>(v_);
        model_kernel<<<bins(nexp_), THREADS, 0, stream_.s>>>(v_);
        launched();
    }
    void todo_is_live()
    {
        spx::check(cudaMemcpyAsync(v_.todo, v_.live, nt_, cudaMemcpyDeviceToDevice, stream_.s), "copy");
    }

    /* Scales, rejection and x: the rounds of the CPU's coadd_target(). */
    template <int M> void rounds()
    {
        for (int round = 0;; round++) {
            todo_is_live();
            solve<M>();
            for (int again = 0; o_->scale && again < SPX_COADD_SCALINGS; again++) {
                zero_count();
                scale_kernel<<<(unsigned)nexp_, THREADS, 0, stream_.s>>>(v_);
                settle_kernel<<<targets(), THREADS, 0, stream_.s>>>(v_);
                launched();
                if (counted() == 0)
                    break;
                take(false);
                solve<M>();
            }
            if (round == SPX_COADD_ROUNDS || !(o_->reject > 0))
                break;
            zero_count();
            residual_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_);
            reject_kernel<<<(unsigned)nt_, THREADS, 0, stream_.s>>>(v_);
            launched();
            if (counted() == 0)
                break;
            todo_is_live();
            take(false);
        }
    }

    /* Roots of the targets that are to be coadded optimally, as many at a time as memory is free for. */
    template <int M> void roots()
    {
        std::vector<uint8_t> optimal(nt_);
        std::vector<unsigned> list;
        get(v_.optimal, optimal.data(), nt_);
        wait();
        for (size_t t = 0; t < nt_; t++)
            if (optimal[t] != 0)
                list.push_back((unsigned)t);
        if (list.empty())
            return;
        put(list_, list.data(), list.size());
        const size_t each = n_ * (M + 3) * WARP, own = kept_->nroots * sizeof(double);
        const size_t fit = std::max<size_t>(spx::usable_memory(0, own) / 2 / (each * sizeof(double)), 1),
                     some = std::min(fit, list.size());
        double *lower = kept_->roots.need(some * each);
        kept_->nroots = std::max(kept_->nroots, some * each);
        bounds_kernel<M><<<blocks(nt_, WARP), SWEEP, sizeof(columns<M>), stream_.s>>>(v_);
        poles_kernel<<<(unsigned)nt_, dim3(POLE_THREADS, TRIES), 0, stream_.s>>>(v_);
        for (size_t i = 0; i < list.size(); i += some)
            root_kernel<M><<<(unsigned)std::min(some, list.size() - i), WARP, 0, stream_.s>>>(v_, list_ + i, lower);
        check_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_);
        optimal_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_);
        launched();
        wait(); /* for `list`, too */
    }

    template <int M> double run_band(spx_coadd *out)
    {
        allocate<M>();
        spx::stopwatch watch(stream_.s);
        take(true);
        count_kernel<<<(unsigned)nexp_, THREADS, 0, stream_.s>>>(v_);
        begin_kernel<<<targets(), THREADS, 0, stream_.s>>>(v_);
        spread_kernel<<<(unsigned)nt_, THREADS, 0, stream_.s>>>(v_);
        launched();
        rounds<M>();
        judge_kernel<<<(unsigned)nexp_, THREADS, 0, stream_.s>>>(v_);
        simple_kernel<<<bins(nt_), THREADS, 0, stream_.s>>>(v_);
        if (v_.out > 0)
            rows_kernel<<<bins(v_.out, nt_), THREADS, 0, stream_.s>>>(v_);
        choose_kernel<<<targets(), THREADS, 0, stream_.s>>>(v_);
        launched();
        roots<M>();
        const double seconds = watch.stop();
        std::vector<int> bad(nt_);
        for (const void *p :
             {(const void *)out->flux, (const void *)out->ivar, (const void *)out->mask, (const void *)out->resolution})
            if (p != nullptr)
                (void)spx_mem_pagelocked(p);
        get(v_.bad, bad.data(), nt_);
        get(v_.o_flux, out->flux, nt_ * n_);
        get(v_.o_ivar, out->ivar, nt_ * n_);
        get(v_.o_mask, out->mask, nt_ * n_);
        if (v_.out > 0)
            get(v_.o_res, out->resolution, nt_ * v_.out * n_);
        get(v_.optimal, out->optimal, nt_);
        get(v_.spread, out->spread, nt_);
        get(v_.scale, out->scale, nexp_);
        get(v_.o_chi2, out->chi2, nexp_);
        get(v_.o_good, out->good, nexp_);
        get(v_.o_gone, out->rejected, nexp_);
        wait();
        for (size_t t = 0; t < nt_; t++) {
            out->failed += out->optimal[t] && bad[t] != 0;
            out->optimal[t] = out->optimal[t] && bad[t] == 0;
            if (in_->first[t + 1] - in_->first[t] == 1)
                spx_coadd_copy(in_, t, out);
        }
        return seconds;
    }
};

} // namespace

extern "C" spx_status spx_coadd_cuda(spx_backend *b, const spx_coadd_input *in, const spx_coadd_options *o,
                                     spx_coadd *out, spx_err *e)
{
    spx::note_seconds(b, 0);
    if (in->ndiag > MOST_BAND + 1 || o->ndiag_out / 2 > MOST_BAND || in->first[in->ntarget] == 0) {
        const spx_status left = spx_coadd_cpu(in, o, out, e);
        out->on_cpu = in->ntarget;
        return left;
    }
    const spx_status st = spx_coadd_begin(in, o, out, e);
    if (st != SPX_OK)
        return st;
    return spx::guarded("coadd", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        call c(in, o);
        spx::note_seconds(b, c.run(out));
        spx_progress_step(o->progress, in->ntarget);
        return SPX_OK;
    });
}
