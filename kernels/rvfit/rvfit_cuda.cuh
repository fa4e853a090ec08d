/* Kernels of the velocity fit for CUDA devices. What they compute is what rvfit_model.c and rvfit_ccf.c do; sums have a
 * fixed order that depends on nothing but the star. Products are fused where it is written out: fma().
 *
 * Values that fix the minimum (templates, splines of templates, sums over pixels) are double precision; derivatives of
 * templates, which only tell the search where to go and how wide the minimum is, are kept in single precision. */
#ifndef SPX_RVFIT_CUDA_CUH
#define SPX_RVFIT_CUDA_CUH

#include <cstdint>

#include "cuda.cuh"

#define restrict __restrict__
extern "C" {
#include "rvfit/rvfit_fit.h"
#include "template/continuum.h"
#include "template/nn_math.h"
#include "template/rotation_math.h"
}
#undef restrict

#include "rvfit/rvfit_cuda_grid.cuh"

namespace rv
{

enum {
    POINTS = 16,   /* of a tile of templates, and */
    COLUMNS = 128, /* samples of it */
    LANES = 8,     /* of a row of coefficients */
    KNOTS = 349, /* of a template that one block of 128 threads bends and samples: with what lies beside them 3 x 128 */
    TAIL = 16,   /* terms of the spline's impulse response on each side: 0.268^16 = 7e-10 of a small correction */
    NEAR_REACH = 32, /* rotation kernels up to here work in shared memory */
    NODES = 128,     /* templates whose weights are in shared memory at a time */
    THREADS = 192,   /* of a block that makes coefficients */
    WARPS = 4,       /* of a block that sums over pixels */
    ROW = 36         /* stride of its staged rows: 32 pixels, and no bank conflicts */
};

/* One arm on the device; offsets into arrays that hold all arms side by side. */
struct arm {
    int n, nt, ncomp, nlarge;   /* pixels, samples, components, those that are summed in double precision */
    int columns;                /* samples, padded to COLUMNS */
    int pixel0, sample0, comp0; /* where the arm begins in a point's pixels, samples, coefficients */
    int stride;                 /* of basis rows */
    int ndiag, of_flux;
    double dlnwave, lndet;
    const float *comp;   /* [ncomp][columns] */
    const double *mean;  /* [columns] */
    const double *coef;  /* [ntemp][ncomp] */
    const int *node;     /* rows of the grid's nodes; NULL: nodes are rows */
    const float *lnflux; /* [ntemp][nt], where there are no components */
    const double *place, *basis;
    int per;            /* pixels of a block of a survey, with */
    const double *line; /* lines of the basis in each; 0: the objective itself is surveyed */
    spx_nn nn;
    /* cross-correlation */
    int nccf, nfreq, ccf0;            /* ccf0: first of the arm's components among all arms' */
    int nsample, cyclic;              /* samples of the inverse transform that lags need; 1: all there are */
    size_t freq0, samples0;           /* first of the arm's frequencies, and of its components' samples */
    const float *ccf_comp, *response; /* [nccf][2][nfreq][2]; [2 nfreq][nsample] of the samples */
    int nwave_ccf, nbin;              /* samples of the set; bins of the continuum, */
    double bin_ln0, bin_width;        /* from here on, so wide in ln(wavelength), */
    const int *bin, *rebin_at;        /* pixels bin[b] ... bin[b+1]-1; spx_rv_arm's */
    const double *rebin, *lnwave;
    const int *lag_at;        /* [nlag] first of a lag's four samples, */
    const float4 *lag_weight; /* and how much of each */
};

/* What all stars share. */
struct model {
    const arm *arms;
    int narm, ng, nfree, npoly, lanes; /* lanes = 1 + ng */
    int nbent, bent[SPX_MAX_FIT];      /* derivatives of templates that pass through rotation: axis, or -1: vsini */
    int free_v;                        /* 1: v is the first of the free quantities */
    int interpolator;
    int step[SPX_MAX_PAR]; /* of the grid's axes */
    size_t gpar[SPX_MAX_PAR];
    int pixels, samples, ncomp, nccf;    /* of a point: sums over arms */
    size_t nfreq, ccf_samples, most_ccf; /* frequencies: sum over arms; samples of all components; most of a set */
    int reach;                           /* longest rotation kernel: weights 0 ... reach */
    int width;                           /* of the networks */
    int nsurvey;                         /* velocities survey_v0 + i survey_step */
    double survey_v0, survey_step;
    spx_rv_set set;
    const float *ccf_coef; /* [ntemp][nccf] */
};

/* Where a piece's data are. */
struct piece {
    int arm;
    size_t pixel0, band0;
    double sum_lne2;
};

/* A sum over the pixels of a piece: template number `at`, at velocity v. */
struct item {
    int at, piece;
    double v;
};

/* ---- coefficients ---- */

/* The longest kernel that the CPU takes, too. */
enum { MAX_REACH = 4096 };

__device__ inline double half_width(const arm &a, double vsini)
{
    return fmin(vsini / (SPX_C_KMS * a.dlnwave), (double)MAX_REACH - 2);
}

/* Weights of nodes n0 ... n0+n-1 of the stencil, [n][lanes], and their rows of the arm. */
template <int L>
__device__ inline void expand(const model &m, const arm &a, const spx_rv_stencil &s, int n0, int n, double *weight,
                              int *row)
{
    for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x) {
        int node, left = n0 + k;
        double w[L];
        if (m.interpolator == SPX_INTERPOLATE_SIMPLEX) {
            node = s.corner[left];
#pragma unroll
            for (int l = 0; l < L; l++)
                w[l] = s.weight[left * m.lanes + l];
        } else {
            node = s.base;
#pragma unroll
            for (int l = 0; l < L; l++)
                w[l] = 1;
            for (int g = m.ng - 1; g >= 0; g--) {
                const int j = left % s.count[g];
                left /= s.count[g];
                node += j * m.step[g];
#pragma unroll
                for (int l = 0; l < L; l++)
                    w[l] *= l == 1 + g ? s.slope[g][j] : s.value[g][j];
            }
        }
        row[k] = a.node != nullptr ? a.node[node] : node;
#pragma unroll
        for (int l = 0; l < L; l++)
            weight[k * L + l] = w[l];
    }
}

__device__ inline int count_nodes(const model &m, const spx_rv_stencil &s)
{
    if (m.interpolator == SPX_INTERPOLATE_SIMPLEX)
        return m.ng + 1;
    int n = 1;
    for (int g = 0; g < m.ng; g++)
        n *= s.count[g];
    return n;
}

/* Coefficients of component k: lanes in single precision, the value of the first nlarge in double. */
__device__ inline void put_coefficients(const arm &a, int k, int lanes, const double *sum, float *single, double *large)
{
    const bool big = k < a.nlarge;
    if (big)
        large[k] = sum[0];
    for (int l = 0; l < LANES; l++)
        single[(size_t)k * LANES + l] = l < lanes && !(big && l == 0) ? (float)sum[l] : 0;
}

/* A network's coefficients; a warp takes a neuron at a time. work[2][width][lanes] of this block. */
__device__ inline void network(const model &m, const arm &a, const spx_rv_stencil &s, int lanes, double *work,
                               float *single, double *large)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    const spx_nn &nn = a.nn;
    const float *w = nn.weight, *b = nn.bias;
    if (threadIdx.x == 0)
        spx_nn_input(&nn, s.x, (size_t)lanes, m.gpar, work);
    __syncthreads();
    for (size_t layer = 0; layer < nn.nlayer; layer++) {
        const int nin = (int)nn.size[layer], nout = (int)nn.size[layer + 1];
        const bool last = layer + 1 == nn.nlayer;
        const double *in = work + layer % 2 * (size_t)m.width * lanes;
        double *out = work + (layer + 1) % 2 * (size_t)m.width * lanes;
        for (int i = warp; i < nout; i += warps) {
            double sum[1 + SPX_MAX_PAR] = {0}, d = 1;
            for (int j = lane; j < nin; j += 32)
                for (int l = 0; l < lanes; l++)
                    sum[l] = fma((double)w[(size_t)i * nin + j], in[j * lanes + l], sum[l]);
            for (int l = 0; l < lanes; l++)
                for (int o = 16; o > 0; o /= 2)
                    sum[l] += __shfl_xor_sync(0xffffffffu, sum[l], o);
            sum[0] += (double)b[i];
            if (!last) {
                sum[0] = spx_nn_activate(nn.activation, nn.slope, sum[0], &d);
                for (int l = 1; l < lanes; l++)
                    sum[l] *= d;
            }
            if (lane == 0 && !last)
                for (int l = 0; l < lanes; l++)
                    out[i * lanes + l] = sum[l];
            if (lane == 0 && last) {
                for (int g = 0; g + 1 < lanes; g++)
                    sum[1 + g] = s.clamped[g] ? 0 : sum[1 + g];
                put_coefficients(a, i, lanes, sum, single, large);
            }
        }
        __syncthreads();
        w += (size_t)nin * nout;
        b += nout;
    }
}

/* Block (point, arm): coefficients of the components, and the rotation kernel: rotation[2][1+reach] of the point and
 * arm. L: lanes. */
template <int L>
__global__ void __launch_bounds__(THREADS) coefficient_kernel(model m, const spx_rv_stencil *stencils, float *single,
                                                              double *large, double *rotation, double *work)
{
    __shared__ double weight[NODES * L];
    __shared__ int row[NODES];
    const arm &a = m.arms[blockIdx.y];
    const spx_rv_stencil &s = stencils[blockIdx.x];
    const size_t point = blockIdx.x;
    single += (point * m.ncomp + a.comp0) * LANES;
    large += (point * m.narm + blockIdx.y) * SPX_RV_LARGE;
    rotation += (point * m.narm + blockIdx.y) * 2 * (m.reach + 1);
    const double h = half_width(a, s.vsini);
    const int reach = (int)spx_rotation_reach(h);
    for (int k = (int)threadIdx.x; k <= reach; k += (int)blockDim.x)
        rotation[k] = rotation_weight(m.interpolator, k, h, &rotation[m.reach + 1 + k]);
    if (m.interpolator == SPX_INTERPOLATE_NN) {
        network(m, a, s, L, work + (point * m.narm + blockIdx.y) * 2 * m.width * (size_t)L, single, large);
        return;
    }
    const int nnode = count_nodes(m, s);
    for (int k0 = 0; k0 < a.ncomp; k0 += THREADS) {
        const int k = k0 + (int)threadIdx.x;
        double sum[L];
#pragma unroll
        for (int l = 0; l < L; l++)
            sum[l] = 0;
        for (int n0 = 0; n0 < nnode; n0 += NODES) {
            const int n = min(NODES, nnode - n0);
            __syncthreads();
            expand<L>(m, a, s, n0, n, weight, row);
            __syncthreads();
            if (k < a.ncomp) {
#pragma unroll 4
                for (int i = 0; i < n; i++) {
                    const double c = __ldg(a.coef + (size_t)row[i] * a.ncomp + k);
#pragma unroll
                    for (int l = 0; l < L; l++)
                        sum[l] = fma(weight[i * L + l], c, sum[l]);
                }
            }
        }
        if (k < a.ncomp)
            put_coefficients(a, k, L, sum, single, large);
    }
}

/* ---- templates ---- */

/* Flux of a template whose components are those of flux itself; less has no logarithm. */
#define LEAST_FLUX 1e-10

/* Template `value` (ln, or flux) and its derivatives by the axes, which are slope[l] times it. */
__device__ inline double flux_of(const arm &a, double value, double *factor)
{
    if (a.of_flux) {
        *factor = value > LEAST_FLUX;
        return fmax(value, LEAST_FLUX);
    }
    return *factor = exp(fmax(-300.0, fmin(300.0, value)));
}

} // namespace rv

#include "rvfit/rvfit_cuda_components.cuh"

namespace rv
{

/* The same from the templates themselves, for arms without components; block (samples, point, arm). */
template <int L>
__global__ void __launch_bounds__(128)
    template_kernel(model m, const spx_rv_stencil *stencils, double *flux, float *slope)
{
    __shared__ double weight[NODES * L];
    __shared__ int row[NODES];
    const arm &a = m.arms[blockIdx.z];
    const int column = (int)(blockIdx.x * 128 + threadIdx.x);
    if ((int)blockIdx.x * 128 >= a.columns || a.comp != nullptr)
        return;
    const size_t point = blockIdx.y;
    const spx_rv_stencil &s = stencils[point];
    double sum[L] = {0}, factor;
    const int nnode = count_nodes(m, s);
    for (int n0 = 0; n0 < nnode; n0 += NODES) {
        const int n = min(NODES, nnode - n0);
        __syncthreads();
        expand<L>(m, a, s, n0, n, weight, row);
        __syncthreads();
        for (int i = 0; i < n && column < a.nt; i++) {
            const double f = (double)a.lnflux[(size_t)row[i] * a.nt + column];
#pragma unroll
            for (int l = 0; l < L; l++)
                sum[l] = fma(weight[i * L + l], f, sum[l]);
        }
    }
    flux[point * m.samples + a.sample0 + column] = flux_of(a, sum[0], &factor);
#pragma unroll
    for (int l = 1; l < L; l++)
        slope[(point * (L - 1) + (l - 1)) * m.samples + a.sample0 + column] = (float)(factor * sum[l]);
}

/* ---- rotation, spline, sampling ---- */

enum {
    BENT = KNOTS + 2 * TAIL + 3,      /* broadened samples that a block needs */
    FLAT = BENT + 2 * NEAR_REACH + 1, /* samples that those come from, at most */
    BENDS = KNOTS + 2 * TAIL + 1,     /* second differences */
    EACH = (KNOTS + 128) / 128        /* knots of a thread */
};

/* Bytes of shared memory for `n` derivatives. */
inline size_t bend_shared(int n)
{
    return (size_t)(FLAT + BENT + KNOTS + 2) * sizeof(double) + (size_t)n * (FLAT + BENT + KNOTS + 1) * sizeof(float);
}

/* First pixel whose place is not below `at`; all lanes of a warp look for it, a load after another is slow. */
__device__ inline int first_pixel(const arm &a, double shift, double at)
{
    const int lane = (int)threadIdx.x % 32;
    int lo = 0, hi = a.n;
    while (lo < hi) {
        const int step = (hi - lo + 31) / 32, i = lo + (lane + 1) * step - 1;
        const int below = __popc(__ballot_sync(0xffffffffu, i < hi && a.place[i] + shift < at));
        hi = min(hi, lo + (below + 1) * step - 1);
        lo += below * step;
    }
    return lo;
}

/* Sample j of the broadened template: w[0..reach] over f, which is constant beyond its ends. */
template <typename T> __device__ inline T broadened(const T *f, int j, int last, const double *w, int reach)
{
    T s = (T)w[0] * f[j];
    for (int k = 1; k <= reach; k++)
        s = fma((T)w[k], f[max(j - k, 0)] + f[min(j + k, last)], s);
    return s;
}

/* The same for all BENT samples of a block, each of them `reach` beyond its place in f: y = scale times that. */
template <typename T, typename Y> __device__ inline void broaden(const T *f, const T *w, int reach, T scale, Y *y)
{
    static_assert(BENT == 3 * 128, "three samples a thread");
    const int tid = (int)threadIdx.x;
    f += tid + reach;
    T s0 = w[0] * f[0], s1 = w[0] * f[128], s2 = w[0] * f[256];
    for (int k = 1; k <= reach; k++) {
        const T wk = w[k];
        s0 = fma(wk, f[-k] + f[k], s0);
        s1 = fma(wk, f[128 - k] + f[128 + k], s1);
        s2 = fma(wk, f[256 - k] + f[256 + k], s2);
    }
    y[tid] = (Y)(scale * s0);
    y[tid + 128] = (Y)(scale * s1);
    y[tid + 256] = (Y)(scale * s2);
}

/* Second differences of the samples y[BENT], from knot k0 - TAIL on, into r[BENDS], near the ends of the template: odd
 * about them, where nothing bends; what lies farther beyond them than the template is long has no weight. */
template <typename T> __device__ inline void differences(const T *y, int k0, int last, T *r)
{
    for (int i = (int)threadIdx.x; i < BENDS; i += 128) {
        int j = (k0 - TAIL + i) % (2 * last);
        j = j < 0 ? j + 2 * last : j;
        const bool odd = j > last;
        j = odd ? 2 * last - j : j;
        const int q = j - (k0 - TAIL - 1);
        const bool inside = j > 0 && j < last && q > 0 && q < BENT - 1;
        r[i] = inside ? (odd ? -1 : 1) * ((y[q - 1] - y[q]) + (y[q + 1] - y[q])) : 0;
    }
}

/* Second derivatives of the spline at the EACH knots of this thread, from the second differences r(i), i from TAIL
 * before the first knot of the block on: their impulse response A z^|d|, A = 1/(2 sqrt(3)), by recursion from both
 * sides, each with `tail` terms beyond the thread's knots. The last knots are BENDS - 1 - TAIL at most. */
template <int tail, typename T, typename R> __device__ inline void respond(R r, T *m)
{
    const T z = (T)-0.26794919243112270647, amplitude = (T)0.28867513459481288225;
    const int s = EACH * (int)threadIdx.x + TAIL;
    T left = 0, right = 0, out[EACH];
    if (EACH * (int)threadIdx.x > KNOTS)
        return;
#pragma unroll
    for (int i = -tail; i < 0; i++)
        left = fma(z, left, r(s + i));
#pragma unroll
    for (int i = EACH - 1 + tail; i >= EACH; i--)
        right = z * (right + r(min(s + i, BENDS - 1)));
#pragma unroll
    for (int i = 0; i < EACH; i++)
        out[i] = left = fma(z, left, r(min(s + i, BENDS - 1)));
#pragma unroll
    for (int i = EACH - 1; i >= 0; i--) {
        if (s - TAIL + i <= KNOTS)
            m[s - TAIL + i] = amplitude * (out[i] + right);
        right = z * (right + r(min(s + i, BENDS - 1)));
    }
}

/* The same of samples y, far from the ends of the template (`inner`), or of r, which has room for BENDS. */
template <int tail, typename T> __device__ inline void bend(const T *y, bool inner, int k0, int last, T *r, T *m)
{
    if (inner) {
        respond<tail>([y](int i) { return (y[i] - y[i + 1]) + (y[i + 2] - y[i + 1]); }, m);
        return;
    }
    differences(y, k0, last, r);
    __syncthreads();
    respond<tail>([r](int i) { return r[i]; }, m);
}

/* Block (tile of KNOTS, point, arm): broadens and bends the template. The spline's second derivatives are its impulse
 * response A z^|d|, z = sqrt(3)-2, A = 1/(2 sqrt(3)), over the second differences, which are odd about the ends (that
 * is the natural boundary). With derivatives (`deriv`): samples it at the point's velocity, t[point][pixels] and
 * dt[point][nfree][pixels]; without: knots[slot[point]][samples] (value, second derivative). */
__global__ void __launch_bounds__(128)
    bend_kernel(model m, int deriv, const spx_rv_stencil *stencils, const double *velocity, const double *flux,
                const float *slope, const double *rotation, double *t, float *dt, const int *slot, double2 *knots)
{
    extern __shared__ __align__(16) double room[];
    __shared__ int range[2];
    const arm &a = m.arms[blockIdx.z];
    const int k0 = (int)blockIdx.x * KNOTS, last = a.nt - 1, tid = (int)threadIdx.x;
    if (k0 >= last)
        return;
    const size_t point = blockIdx.y;
    const int nb = deriv ? m.nbent : 0;
    double *f0 = room, *y0 = f0 + FLAT, *m0 = y0 + BENT;
    float *fl = reinterpret_cast<float *>(m0 + KNOTS + 2), *yl = fl + nb * FLAT, *ml = yl + nb * BENT;
    flux += point * m.samples + a.sample0;
    slope += point * m.ng * (size_t)m.samples + a.sample0;
    const double *w = rotation + (point * m.narm + blockIdx.z) * 2 * (m.reach + 1), *dw = w + m.reach + 1;
    const double scale = rotation_unit(m.interpolator, 1 / (SPX_C_KMS * a.dlnwave), stencils[point].vsini_square_dx);
    const int reach = (int)spx_rotation_reach(half_width(a, stencils[point].vsini));
    const int y_first = k0 - TAIL - 1;
    const bool near = reach <= NEAR_REACH;
    __shared__ double weight[2][NEAR_REACH + 1];
    __shared__ float single[NEAR_REACH + 1];
    if (near) {
        for (int i = tid; i < BENT + 2 * reach; i += 128) {
            const int j = min(max(y_first - reach + i, 0), last);
            f0[i] = flux[j];
            for (int b = 0; b < nb; b++)
                if (m.bent[b] >= 0)
                    fl[b * FLAT + i] = slope[(size_t)m.bent[b] * m.samples + j];
        }
        if (tid <= reach) {
            weight[0][tid] = w[tid];
            weight[1][tid] = dw[tid];
            single[tid] = (float)w[tid];
        }
    }
    if (tid < 64 && deriv) { /* a warp for each end */
        const int end = k0 + tid / 32 * KNOTS;
        const double shift = spx_rv_lnshift(velocity[point]) / a.dlnwave;
        const int found = end == 0 ? 0 : (end >= last ? a.n : first_pixel(a, shift, (double)end));
        if (tid % 32 == 0)
            range[tid / 32] = found;
    }
    __syncthreads();
    if (near) {
        broaden(f0, weight[0], reach, 1.0, y0);
        for (int b = 0; b < nb; b++)
            if (m.bent[b] < 0)
                broaden(f0, weight[1], reach, scale, yl + b * BENT);
            else
                broaden(fl + b * FLAT, single, reach, 1.0f, yl + b * BENT);
    } else {
        for (int i = tid; i < BENT; i += 128) {
            const int j = min(max(y_first + i, 0), last);
            y0[i] = broadened(flux, j, last, w, reach);
            for (int b = 0; b < nb; b++)
                yl[b * BENT + i] = m.bent[b] < 0 ? (float)(scale * broadened(flux, j, last, dw, reach))
                                                 : broadened(slope + (size_t)m.bent[b] * m.samples, j, last, w, reach);
        }
    }
    __syncthreads();
    /* where the samples were is room for their differences */
    const bool inner = k0 > TAIL && k0 + KNOTS + TAIL < last;
    bend<TAIL>(y0, inner, k0, last, f0, m0);
    for (int b = 0; b < nb; b++)
        bend<TAIL / 2>(yl + b * BENT, inner, k0, last, fl + b * FLAT, ml + b * (KNOTS + 1));
    __syncthreads();
    if (!deriv) {
        for (int i = tid; i < KNOTS && k0 + i <= last; i += 128)
            knots[(size_t)slot[point] * m.samples + a.sample0 + k0 + i] = make_double2(y0[i + TAIL + 1], m0[i]);
        /* the last tile ends with the last knot, which begins none */
        if (tid == 0 && k0 + KNOTS == last)
            knots[(size_t)slot[point] * m.samples + a.sample0 + last] = make_double2(y0[KNOTS + TAIL + 1], m0[KNOTS]);
        return;
    }
    const double shift = spx_rv_lnshift(velocity[point]) / a.dlnwave;
    const double dshift = spx_rv_lnshift_dv(velocity[point]) / a.dlnwave;
    t += point * m.pixels + a.pixel0;
    dt += point * m.nfree * (size_t)m.pixels + a.pixel0;
    for (int i = range[0] + tid; i < range[1]; i += 128) {
        double u[4], d[4];
        const int k = (int)spx_rv_spline_weights(a.place[i] + shift, (size_t)a.nt, u, d) - k0;
        const double *y = y0 + k + TAIL + 1, *bend = m0 + k;
        t[i] = fma(u[0], y[0], fma(u[1], y[1], fma(u[2], bend[0], u[3] * bend[1])));
        if (m.free_v)
            dt[i] = (float)(fma(d[0], y[0], fma(d[1], y[1], fma(d[2], bend[0], d[3] * bend[1]))) * dshift);
        for (int b = 0; b < nb; b++) {
            const float *yb = yl + b * BENT + k + TAIL + 1, *mb = ml + b * (KNOTS + 1) + k;
            dt[(size_t)(m.free_v + b) * m.pixels + i] =
                fmaf((float)u[0], yb[0], fmaf((float)u[1], yb[1], fmaf((float)u[2], mb[0], (float)u[3] * mb[1])));
        }
    }
}

/* ---- sums over pixels ---- */

enum { VALUE = 0, DERIVATIVES = 1, MODEL = 2, CONTINUUM = 3 };

/* c += a b of 8 x 4 and 4 x 8 on the tensor cores, each product and sum as fma() would. */
__device__ inline void mma(double &c0, double &c1, double a, double b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c0), "+d"(c1)
                 : "d"(a), "d"(b));
}

/* What a piece's pixels see of the template. */
struct view {
    const arm *a;
    int mode;
    double shift;
    const double2 *knots;
    const double *t, *band;

    __device__ double raw(int i) const
    {
        if (mode == CONTINUUM)
            return 1;
        if (mode == DERIVATIVES)
            return t[i];
        double u[4], d[4];
        const int k = (int)spx_rv_spline_weights(a->place[i] + shift, (size_t)a->nt, u, d);
        const double2 p = knots[k], q = knots[k + 1];
        return fma(u[0], p.x, fma(u[1], q.x, fma(u[2], p.y, u[3] * q.y)));
    }
    __device__ double at(int i) const
    {
        if (band == nullptr)
            return raw(i);
        const int h = a->ndiag / 2;
        double s = 0;
        for (int k = max(h - i, 0); k < min(a->ndiag, a->n - i + h); k++)
            s = fma(band[(size_t)i * a->ndiag + k], raw(i + k - h), s);
        return s;
    }
    __device__ double slope(const float *dt, int i) const
    {
        if (band == nullptr)
            return (double)dt[i];
        const int h = a->ndiag / 2;
        double s = 0;
        for (int k = max(h - i, 0); k < min(a->ndiag, a->n - i + h); k++)
            s = fma(band[(size_t)i * a->ndiag + k], (double)dt[i + k - h], s);
        return s;
    }
};

/* sum[tile][64] of all warps, in their order. */
template <int N> __device__ inline void add_up(const double (*c)[2], double *sum)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < 2; j++) {
                    double *to = sum + i * 64 + (lane / 4) * 8 + lane % 4 * 2 + j;
                    *to = w == 0 ? c[i][j] : *to + c[i][j];
                }
        __syncthreads();
    }
}

/* Sums of a block that has `tiles` tiles of eight rows of S: bytes of shared memory. */
inline size_t pixel_shared(int tiles)
{
    const int rows = (tiles + 1) * 8, pairs = tiles * (tiles + 1) / 2;
    return ((size_t)WARPS * rows * ROW + (size_t)(pairs > tiles + 1 ? pairs : tiles + 1) * 64 +
            (size_t)tiles * 8 * (tiles * 8 + 1)) *
           sizeof(double);
}

/* Continuum functions at pixel i, 0 beyond the last; all loads are on their way together. */
template <int N> __device__ inline void basis_at(const arm &a, int np, int i, bool in, double *b)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        b[k] = in && k < np ? __ldg(a.basis + (size_t)k * a.stride + i) : 0;
}

/* By one warp, lane k with row k of a symmetric G (row[N], lower triangle): np columns of its factor L, and of the rows
 * below them what these leave; returns whether the first np rows are positive definite. *lndet of those; *over: 1/L_kk
 * of this lane. */
template <int N> __device__ inline bool factor(int np, double *row, double *lndet, double *over)
{
    const int lane = (int)threadIdx.x % 32;
    bool fine = true;
    *over = 1;
    *lndet = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j >= np)
            break;
        const double pivot = __shfl_sync(0xffffffffu, row[j], j & 31);
        fine = fine && pivot > 0 && isfinite(pivot);
        const double scale = fine ? rsqrt(pivot) : 1;
        *lndet += fine ? log(pivot) : 0;
        *over = lane == j ? scale : *over;
        row[j] *= scale;
#pragma unroll
        for (int k = j + 1; k < N; k++) {
            const double l = __shfl_sync(0xffffffffu, row[j], k & 31);
            row[k] = fma(-row[j], l, row[k]);
        }
    }
    return fine;
}

/* By one warp, lane k with row k of G = S'S (row[N], lower triangle; below np): its factor L and inverse[k][j] = L^-1,
 * N x `stride`, zero above the diagonal and beyond np; returns whether G is positive definite. *lndet of G. */
template <int N> __device__ inline bool invert_factor(int np, double *row, double *inverse, int stride, double *lndet)
{
    const int lane = (int)threadIdx.x % 32;
    double mine;
    const bool fine = factor<N>(np, row, lndet, &mine);
    /* column `lane` of the inverse; all lanes take part in the exchange */
    double w[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        w[k] = 0;
        if (k < np) {
            double s = k == lane ? 1 : 0;
#pragma unroll
            for (int j = 0; j < k; j++) {
                const double l = __shfl_sync(0xffffffffu, row[j], k & 31);
                s = fma(-l, w[j], s);
            }
            const double over = __shfl_sync(0xffffffffu, mine, k & 31);
            w[k] = k < lane ? 0 : s * over;
        }
        for (int c = lane; c < N; c += 32)
            inverse[k * stride + c] = c == lane && c < np ? w[k] : 0;
    }
    return fine;
}

/* S'S and S'D of the pixels first ... first + 31, those `step` farther, and so on: tiles c[pairs][2] of one warp, by
 * its room `stage`. */
template <int TILES>
__device__ inline void equations(const view &v, int np, int first, int step, const double *flux, const double *ie,
                                 double *stage, double (*c)[2])
{
    constexpr int N = TILES * 8;
    const arm &a = *v.a;
    const int lane = (int)threadIdx.x % 32;
    double b[N];
    basis_at<N>(a, np, first + lane, first + lane < a.n, b);
    for (int i0 = first; i0 < a.n; i0 += step) {
        const int i = i0 + lane;
        const bool in = i < a.n;
        const double e = in ? ie[i] : 0, f = in ? flux[i] : 0, te = in ? v.at(i) * e : 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            stage[k * ROW + lane] = k == np ? f * e : b[k] * te;
        basis_at<N>(a, np, i + step, i + step < a.n, b); /* on their way while these are summed */
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            double x[TILES];
#pragma unroll
            for (int p = 0; p < TILES; p++)
                x[p] = stage[(p * 8 + lane / 4) * ROW + 4 * k + lane % 4];
#pragma unroll
            for (int p = 0; p < TILES; p++)
#pragma unroll
                for (int q = 0; q <= p; q++)
                    mma(c[p * (p + 1) / 2 + q][0], c[p * (p + 1) / 2 + q][1], x[p], x[q]);
        }
        __syncwarp();
    }
}

/* Block: a piece with a template: result[item][1 + nfree + nfree^2]: objective, gradient, curvature (only the first
 * unless `mode` is DERIVATIVES), or with MODEL and CONTINUUM chi^2 over good pixels; HUGE_VAL where S'S is singular.
 * TILES: of eight rows, for the npoly + 1 of S and D. See rvfit_model.c for the equations; with u = q e dT (q: the
 * continuum) and S = L Q', curvature is u'u - (Q'u)'(Q'u), Q'u = L^-1 (S'u), and what ln det(S'S) adds to the gradient
 * is |L^-1 S_i|^2 dT_i / T_i. */
template <int TILES>
__global__ void __launch_bounds__(32 * WARPS, TILES <= 2 ? 4 : 1)
    pixel_kernel(model m, int mode, const item *items, const piece *pieces, const double *flux, const double *ie,
                 const uint8_t *good, const double *band, const double2 *knots, const double *t, const float *dt,
                 double *result, double *models)
{
    constexpr int PAIRS = TILES * (TILES + 1) / 2, STAGE = (TILES + 1) * 8, N = TILES * 8;
    constexpr int SUMS = PAIRS > TILES + 1 ? PAIRS : TILES + 1;
    extern __shared__ __align__(16) double room[];
    __shared__ double coef[N], part[WARPS][1 + SPX_MAX_FIT], qu[SPX_RVFIT_MAX_POLY * SPX_MAX_FIT], lndet;
    __shared__ __align__(16) float lever_of[N][N];
    __shared__ int ok;
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int np = m.npoly, nf = m.nfree, n = a.n;
    const int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32;
    double *stage = room + (size_t)warp * STAGE * ROW, *sum = room + (size_t)WARPS * STAGE * ROW;
    double *inverse = sum + SUMS * 64; /* L^-1, [N][N + 1] */
    const view v = {&a,
                    mode,
                    spx_rv_lnshift(it.v) / a.dlnwave,
                    knots + (size_t)it.at * m.samples + a.sample0,
                    t + (size_t)it.at * m.pixels + a.pixel0,
                    band != nullptr ? band + d.band0 : nullptr};
    dt += (size_t)it.at * nf * m.pixels + a.pixel0;
    flux += d.pixel0;
    ie += d.pixel0;
    good += d.pixel0;

    /* S'S and S'D */
    for (int i = lane; i < STAGE * ROW; i += 32)
        stage[i] = 0;
    double c[PAIRS][2];
    for (int i = 0; i < PAIRS; i++)
        c[i][0] = c[i][1] = 0;
    __syncwarp();
    equations<TILES>(v, np, 32 * warp, 32 * WARPS, flux, ie, stage, c);
    add_up<PAIRS>(c, sum);
    if (warp == 0) {
        double row[N], ln;
        const int mine = min(lane, N - 1);
#pragma unroll
        for (int j = 0; j < N; j++) /* row `lane`, of which the lower triangle is there */
            row[j] =
                j <= mine && lane < np ? sum[(mine / 8 * (mine / 8 + 1) / 2 + j / 8) * 64 + mine % 8 * 8 + j % 8] : 0;
        const bool fine = invert_factor<N>(np, row, inverse, N + 1, &ln);
        __syncwarp();
        /* a = L'^-1 (L^-1 S'D) */
        double y = 0, x = 0;
        for (int j = 0; j < np && lane < np; j++)
            y = fma(inverse[lane * (N + 1) + j], sum[(np / 8 * (np / 8 + 1) / 2 + j / 8) * 64 + np % 8 * 8 + j % 8], y);
        for (int k = 0; k < np; k++)
            x = fma(inverse[k * (N + 1) + mine], __shfl_sync(0xffffffffu, y, k), x);
        for (int k = lane; k < N; k += 32)
            coef[k] = k < np ? x : 0;
        if (lane == 0) {
            lndet = ln;
            ok = fine;
        }
    }
    __syncthreads();
    for (int i = tid; i < N * N && mode == DERIVATIVES; i += 32 * WARPS)
        lever_of[i / N][i % N] = (float)inverse[i / N * (N + 1) + i % N];
    __syncthreads();

    const int width = mode == DERIVATIVES ? 1 + nf + nf * nf : 1;
    double *out = result + (size_t)blockIdx.x * width, *model = models + d.pixel0;
    if (!ok) {
        for (int i = tid; i < width; i += 32 * WARPS)
            out[i] = i == 0 ? HUGE_VAL : 0;
        for (int i = tid; i < n && mode == MODEL; i += 32 * WARPS)
            model[i] = 0;
        return;
    }

    /* residuals; S'u and u'u; the gradient a thread at a time */
    double g[TILES + 1][2], grad[SPX_MAX_FIT], chisq = 0;
    for (int i = 0; i <= TILES; i++)
        g[i][0] = g[i][1] = 0;
#pragma unroll
    for (int l = 0; l < SPX_MAX_FIT; l++)
        grad[l] = 0;
    double *right = stage + N * ROW;
    for (int i0 = 32 * warp; i0 < n; i0 += 32 * WARPS) {
        const int i = i0 + lane;
        const bool in = i < n;
        double b[N], slope[SPX_MAX_FIT];
        basis_at<N>(a, np, i, in, b);
        const double e = in ? ie[i] : 0, f = in ? flux[i] : 0, t0 = in ? v.at(i) : 0;
        if (mode == DERIVATIVES) {
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                slope[l] = in && l < nf ? v.slope(dt + (size_t)l * m.pixels, i) : 0;
        }
        double q = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            q = fma(coef[k], b[k], q);
        const double r = (f - q * t0) * e;
        if (mode == VALUE || mode == DERIVATIVES || (in && good[i]))
            chisq = fma(r, r, chisq);
        if (mode == MODEL && in)
            model[i] = q * t0;
        if (mode != DERIVATIVES)
            continue;
        const double qe = q * e, te = t0 * e;
        float s[N], lever = 0; /* |L^-1 S_i|^2 */
#pragma unroll
        for (int k = 0; k < N; k++) {
            b[k] *= te;
            s[k] = (float)b[k];
            stage[k * ROW + lane] = b[k];
        }
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            if (l < nf)
                right[l * ROW + lane] = qe * slope[l];
#pragma unroll
        for (int k = 0; k < N; k++)
            if (k < np) {
                float z = 0;
#pragma unroll
                for (int j = 0; j <= k; j++)
                    z = fmaf(lever_of[k][j], s[j], z);
                lever = fmaf(z, z, lever);
            }
        __syncwarp();
        const double w = (t0 != 0 ? (double)lever / t0 : 0) - r * qe;
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            grad[l] = fma(w, slope[l], grad[l]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const double y = right[lane / 4 * ROW + 4 * k + lane % 4];
#pragma unroll
            for (int p = 0; p < TILES; p++)
                mma(g[p][0], g[p][1], stage[(p * 8 + lane / 4) * ROW + 4 * k + lane % 4], y);
            mma(g[TILES][0], g[TILES][1], y, y);
        }
        __syncwarp();
    }
    /* of the warp, then of all of them in their order */
#pragma unroll
    for (int o = 16; o > 0; o /= 2) {
        chisq += __shfl_xor_sync(0xffffffffu, chisq, o);
        if (mode == DERIVATIVES)
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                grad[l] += __shfl_xor_sync(0xffffffffu, grad[l], o);
    }
    if (lane == 0) {
        part[warp][0] = chisq;
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            part[warp][1 + l] = grad[l];
    }
    __syncthreads();
    if (tid == 0 || (tid <= nf && mode == DERIVATIVES)) {
        double s = 0;
        for (int i = 0; i < WARPS; i++)
            s += part[i][tid];
        if (tid > 0)
            out[tid] = 2 * s;
        else
            out[0] = mode == VALUE || mode == DERIVATIVES ? s + lndet + a.lndet + d.sum_lne2 : s;
    }
    if (mode != DERIVATIVES)
        return;
    add_up<TILES + 1>(g, sum);
    for (int i = tid; i < np * nf; i += 32 * WARPS) { /* Q'u */
        const int k = i / nf, l = i % nf;
        double s = 0;
        for (int j = 0; j <= k; j++)
            s = fma(inverse[k * (N + 1) + j], sum[j / 8 * 64 + j % 8 * 8 + l], s);
        qu[i] = s;
    }
    __syncthreads();
    for (int i = tid; i < nf * nf; i += 32 * WARPS) {
        double s = sum[TILES * 64 + i / nf * 8 + i % nf];
        for (int k = 0; k < np; k++)
            s = fma(-qu[k * nf + i / nf], qu[k * nf + i % nf], s);
        out[1 + nf + i] = 2 * s;
    }
}

} // namespace rv

#include "rvfit/rvfit_cuda_spectrum.cuh"
#include "rvfit/rvfit_cuda_survey.cuh"
#include "rvfit/rvfit_cuda_value.cuh"

namespace rv
{

/* ---- cross-correlation ---- */

enum { ROWS = 128, FEW_ROWS = 64, GEMM_DEPTH = 16, SAMPLES = 96, LAGS = 64 };

/* Tile of TALL x COLS of C = A B by 256 threads. a(i, k) is two values, of k and k + 1, k even; b(k, j) one; both are
 * read through functions, within `rows`, `depth` (even) and `columns`; c(i, j, value) takes the result. */
template <int TALL, int COLS, typename A, typename B, typename C>
__device__ inline void multiply(int rows, int depth, int columns, int row0, int column0, A a, B b, C c)
{
    __shared__ __align__(16) float as[GEMM_DEPTH][TALL + 4], bs[GEMM_DEPTH][COLS + 4];
    const int tid = (int)threadIdx.x, tx = tid % 16, ty = tid / 16;
    constexpr int AS = TALL * GEMM_DEPTH / 2 / 256, BS = COLS * GEMM_DEPTH / 256, PER = COLS / 16, HIGH = TALL / 16;
    static_assert(PER % 2 == 0 && HIGH % 4 == 0, "columns of a thread are read in pairs, rows in fours");
    float2 next_a[AS];
    float next_b[BS], sum[HIGH][PER];
    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < PER; j++)
            sum[i][j] = 0;
    auto fetch = [&](int k0) {
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 256 * n, k = k0 + 2 * (i % (GEMM_DEPTH / 2)), r = row0 + i / (GEMM_DEPTH / 2);
            next_a[n] = r < rows && k < depth ? a(r, k) : make_float2(0, 0);
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 256 * n, j = column0 + i % COLS, k = k0 + i / COLS;
            next_b[n] = j < columns && k < depth ? b(k, j) : 0;
        }
    };
    fetch(0);
    for (int k0 = 0; k0 < depth; k0 += GEMM_DEPTH) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 256 * n, k = 2 * (i % (GEMM_DEPTH / 2)), r = i / (GEMM_DEPTH / 2);
            as[k][r] = next_a[n].x;
            as[k + 1][r] = next_a[n].y;
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 256 * n;
            bs[i / COLS][i % COLS] = next_b[n];
        }
        __syncthreads();
        if (k0 + GEMM_DEPTH < depth)
            fetch(k0 + GEMM_DEPTH);
#pragma unroll
        for (int k = 0; k < GEMM_DEPTH; k++) {
            __align__(16) float x[HIGH], y[PER];
#pragma unroll
            for (int i = 0; i < HIGH; i += 4)
                *reinterpret_cast<float4 *>(&x[i]) = *reinterpret_cast<const float4 *>(&as[k][ty * HIGH + i]);
#pragma unroll
            for (int j = 0; j < PER; j += 2)
                *reinterpret_cast<float2 *>(&y[j]) = *reinterpret_cast<const float2 *>(&bs[k][tx * PER + j]);
#pragma unroll
            for (int i = 0; i < HIGH; i++)
#pragma unroll
                for (int j = 0; j < PER; j++)
                    sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (row0 + ty * HIGH + i < rows && column0 + tx * PER + j < columns)
                c(row0 + ty * HIGH + i, column0 + tx * PER + j, sum[i][j]);
}

/* chi^2 of the components of arm blockIdx.z at the samples of the inverse transform that the lags lie between,
 * samples[star][nccf][nsample] of the arm, nstar * samples0 from the beginning: transforms s and v of the star's data,
 * data[star][nfreq of all arms][4], times the conjugate ones of the components, back transformed. */
__global__ void __launch_bounds__(256, 2) sample_kernel(model m, int nstar, const float *data, float *samples)
{
    const arm &a = m.arms[blockIdx.z];
    const int nccf = a.nccf, nfreq = a.nfreq, nsample = a.nsample, rows = nstar * nccf;
    const int row0 = (int)blockIdx.y * FEW_ROWS, sample0 = (int)blockIdx.x * SAMPLES;
    if (row0 >= rows || sample0 >= nsample)
        return;
    const float2 *comp = reinterpret_cast<const float2 *>(a.ccf_comp);
    const float4 *spectrum = reinterpret_cast<const float4 *>(data) + a.freq0;
    samples += (size_t)nstar * a.samples0;
    multiply<FEW_ROWS, SAMPLES>(
        rows, 2 * nfreq, nsample, row0, sample0,
        [&](int row, int k) {
            const int star = row / nccf;
            const float2 *p = comp + (size_t)(row - star * nccf) * 2 * nfreq + k / 2;
            const float4 s = spectrum[(size_t)star * m.nfreq + k / 2];
            const float2 f = p[0], g = p[nfreq];
            return make_float2(s.x * f.x + s.y * f.y + s.z * g.x + s.w * g.y,
                               s.y * f.x - s.x * f.y + s.w * g.x - s.z * g.y);
        },
        [&](int k, int i) { return a.response[(size_t)k * nsample + i]; },
        [&](int row, int i, float value) { samples[(size_t)row * nsample + i] = value; });
}

/* The same at all lags, lags[star][nccf of all arms][nlag]; block (lags, component of all arms, star). */
__global__ void __launch_bounds__(128) lag_kernel(model m, const float *samples, float *lags)
{
    const size_t nlag = m.set.nlag, lag = (size_t)blockIdx.x * 128 + threadIdx.x;
    int which = 0;
    while (which + 1 < m.narm && (int)blockIdx.y >= m.arms[which + 1].ccf0)
        which++;
    const arm &a = m.arms[which];
    if (lag >= nlag)
        return;
    const int first = a.lag_at[lag], n = a.nsample;
    const float4 w = a.lag_weight[lag];
    const float *p =
        samples + gridDim.z * a.samples0 + ((size_t)blockIdx.z * a.nccf + (blockIdx.y - (unsigned)a.ccf0)) * n;
    auto at = [&](int i) { return p[a.cyclic && first + i >= n ? first + i - n : first + i]; };
    lags[((size_t)blockIdx.z * m.nccf + blockIdx.y) * nlag + lag] =
        w.x * at(0) + w.y * at(1) + w.z * at(2) + w.w * at(3);
}

/* chi^2 of all entries at all lags, chi[star][entries][nlag]; block (lags, entries, star). */
__global__ void __launch_bounds__(256) entry_kernel(model m, const float *lags, float *chi)
{
    const size_t star = blockIdx.z, nlag = m.set.nlag;
    multiply<ROWS, LAGS>(
        (int)m.set.ntemp, m.nccf + m.nccf % 2, (int)nlag, (int)blockIdx.y * ROWS, (int)blockIdx.x * LAGS,
        [&](int entry, int k) {
            const float *p = m.ccf_coef + (size_t)entry * m.nccf + k;
            return make_float2(p[0], k + 1 < m.nccf ? p[1] : 0);
        },
        [&](int k, int lag) { return k < m.nccf ? lags[(star * m.nccf + k) * nlag + lag] : 0; },
        [&](int entry, int lag, float value) { chi[(star * m.set.ntemp + entry) * nlag + lag] = value; });
}

/* Block: starts of a star; curve[star][nlag] is the least chi^2 of each lag. */
__global__ void __launch_bounds__(128)
    pick_kernel(model m, const float *chi, float *curve, int *entry, spx_rv_pick *pick)
{
    const size_t star = blockIdx.x, nlag = m.set.nlag;
    chi += star * m.set.ntemp * nlag;
    curve += star * nlag;
    entry += star * nlag;
    for (size_t i = threadIdx.x; i < nlag; i += blockDim.x)
        spx_rv_pick_best(&m.set, chi, i, &curve[i], &entry[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        spx_rv_pick_starts(&m.set, chi, curve, entry, &pick[star]);
}

} // namespace rv

#endif
