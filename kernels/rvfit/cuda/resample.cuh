/* Rotation, spline and sampling of templates on CUDA devices. */
#ifndef SPX_RVFIT_CUDA_RESAMPLE_CUH
#define SPX_RVFIT_CUDA_RESAMPLE_CUH

#include <cuda_pipeline.h>

namespace rv
{

enum {
    KNOTS = 356,    /* of a template that one block of 128 threads resamples: with those beside them, 3 x 128 */
    TAIL = 12,      /* terms of the spline's impulse response on each side: 0.268^12 = 1e-7 of a small correction */
    NEAR_REACH = 32 /* rotation kernels up to here work in shared memory */
};

enum {
    BROADENED = KNOTS + 2 * TAIL + 4,             /* broadened samples that a block needs, and one */
    UNBROADENED = BROADENED + 2 * NEAR_REACH + 1, /* samples that those come from, at most */
    DIFFERENCES = KNOTS + 2 * TAIL + 1,           /* second differences */
    EACH = 3,                                     /* of them in a thread, so that */
    NEIGHBOURS = TAIL / EACH,                     /* so many threads on each side have a part in a knot, and */
    FEW_NEIGHBOURS = 3                            /* in one of derivatives: 0.268^9 = 7e-6 */
};
static_assert(DIFFERENCES % EACH == 0 && DIFFERENCES <= EACH * 128 && TAIL % EACH == 0,
              "threads have all of their differences, or none");
#define POLE (-0.26794919243112270647) /* sqrt(3) - 2 */

/* Bytes of shared memory for `n` derivatives: unbroadened samples, whose place second derivatives take, and broadened
 * ones. */
inline size_t resample_shared(int n)
{
    return (size_t)(UNBROADENED + BROADENED) * (sizeof(double) + (size_t)n * sizeof(float));
}

/* First pixel whose place is not below `at`; all lanes of a warp look for it, a load after another is slow. */
__device__ inline int first_pixel(const arm &a, double shift, double at)
{
    const int lane = (int)threadIdx.x % 32;
    int lo = 0, hi = a.n;
    while (lo < hi) {
        const int step = (hi - lo + 31) / 32, i = lo + (lane + 1) * step - 1;
        const int below = __popc(__ballot_sync(FULL, i < hi && a.place[i] + shift < at));
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

/* The same for all BROADENED samples of a block, each of them `reach` beyond its place: of values f, into y, and of NB
 * derivatives, into yl; those by vsini, which are the first if there are any, come from the values, by dw. */
template <int NB>
__device__ inline void broaden(const double *f, const float *fl, const double *w, const double *dw, const float *single,
                               int reach, double scale, bool by_vsini, double *y, float *yl)
{
    constexpr int EVERY = 128; /* threads */
    static_assert(BROADENED == 3 * EVERY, "three samples a thread");
    const int tid = (int)threadIdx.x;
    double s[3], d[3];
    float g[NB > 0 ? NB : 1][3];
    f += tid + reach;
    fl += tid + reach;
#pragma unroll
    for (int q = 0; q < 3; q++) {
        s[q] = w[0] * f[EVERY * q];
        d[q] = dw[0] * f[EVERY * q];
#pragma unroll
        for (int b = 0; b < NB; b++)
            g[b][q] = b > 0 || !by_vsini ? single[0] * fl[b * UNBROADENED + EVERY * q] : 0;
    }
#pragma unroll 1
    for (int k = 1; k <= reach; k++) {
        const double wk = w[k], dwk = dw[k];
        const float single_k = single[k];
#pragma unroll
        for (int q = 0; q < 3; q++) {
            const double both = f[EVERY * q - k] + f[EVERY * q + k];
            s[q] = fma(wk, both, s[q]);
            if (NB > 0 && by_vsini)
                d[q] = fma(dwk, both, d[q]);
        }
#pragma unroll
        for (int b = 0; b < NB; b++)
            if (b > 0 || !by_vsini)
#pragma unroll
                for (int q = 0; q < 3; q++) {
                    const float *at = fl + b * UNBROADENED + EVERY * q;
                    g[b][q] = fma(single_k, at[-k] + at[k], g[b][q]);
                }
    }
#pragma unroll
    for (int q = 0; q < 3; q++) {
        y[tid + EVERY * q] = s[q];
#pragma unroll
        for (int b = 0; b < NB; b++)
            yl[b * BROADENED + tid + EVERY * q] = b > 0 || !by_vsini ? g[b][q] : (float)(scale * d[q]);
    }
}

/* Second differences of the samples y[BROADENED], from knot k0 - TAIL on, into r[DIFFERENCES], near the ends of the
 * template: odd about them, where nothing is curved; what lies farther beyond them than the template is long has no
 * weight. */
template <typename T> __device__ inline void differences(const T *y, int k0, int last, T *r)
{
    for (int i = (int)threadIdx.x; i < DIFFERENCES; i += 128) {
        int j = (k0 - TAIL + i) % (2 * last);
        j = j < 0 ? j + 2 * last : j;
        const bool odd = j > last;
        j = odd ? 2 * last - j : j;
        const int q = j - (k0 - TAIL - 1);
        const bool inside = j > 0 && j < last && q > 0 && q < BROADENED - 1;
        r[i] = inside ? (odd ? -1 : 1) * ((y[q - 1] - y[q]) + (y[q + 1] - y[q])) : 0;
    }
}

/* Second differences of which this thread has EACH, from the samples y far from the ends of the template (`inner`), or
 * else from where differences() put them. */
template <typename T> __device__ inline void own_differences(const T *y, const T *differences, bool inner, T *r)
{
    const int first = EACH * (int)threadIdx.x;
    const bool has = first < DIFFERENCES; /* the last thread has none, and those of another are written meanwhile */
#pragma unroll
    for (int i = 0; i < EACH; i++)
        r[i] = !has    ? 0
               : inner ? (y[first + i] - y[first + i + 1]) + (y[first + i + 2] - y[first + i + 1])
                       : differences[first + i];
}

/* What the second differences of a thread add to the response right after their last, and right before their first. */
template <typename T> __device__ inline void add_up(const T *r, T *left, T *right)
{
    *left = r[0];
    *right = 0;
#pragma unroll
    for (int i = 1; i < EACH; i++)
        *left = fma((T)POLE, *left, r[i]);
#pragma unroll
    for (int i = EACH - 1; i >= 0; i--)
        *right = (T)POLE * (*right + r[i]);
}

/* Of threads beside the ends of a warp, for the warp beside it: sums to the left of its last, and right of its first.
 */
template <typename T> struct warp_ends {
    T left[4][NEIGHBOURS], right[4][NEIGHBOURS];

    __device__ void keep(T from_left, T from_right)
    {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        if (lane >= 32 - NEIGHBOURS)
            left[warp][lane - 32 + NEIGHBOURS] = from_left;
        if (lane < NEIGHBOURS)
            right[warp][lane] = from_right;
    }
};

/* Second derivatives of the spline at the knots of this thread's second differences r: their impulse response
 * A z^|d|, A = 1/(2 sqrt(3)), by recursion from both sides, to which `threads` on each side add theirs. */
template <int threads, typename T> __device__ inline void respond(const T *r, const warp_ends<T> &ends, T *out)
{
    const T amplitude = (T)0.28867513459481288225, beyond = (T)(POLE * POLE * POLE);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    T mine_left, mine_right, left = 0, right = 0;
    add_up(r, &mine_left, &mine_right);
#pragma unroll
    for (int d = threads; d > 0; d--) {
        T before = __shfl_up_sync(FULL, mine_left, d), after = __shfl_down_sync(FULL, mine_right, d);
        if (lane < d)
            before = warp > 0 ? ends.left[warp - 1][NEIGHBOURS + lane - d] : 0;
        if (lane >= 32 - d)
            after = warp < 3 ? ends.right[warp + 1][lane + d - 32] : 0;
        left = fma(beyond, left, before);
        right = fma(beyond, right, after);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        out[i] = left = fma((T)POLE, left, r[i]);
#pragma unroll
    for (int i = EACH - 1; i >= 0; i--) {
        out[i] = amplitude * (out[i] + right);
        right = (T)POLE * (right + r[i]);
    }
}

/* The same into m, at the places of the differences: knot k0 is at TAIL. */
template <int threads, typename T> __device__ inline void bend(const T *r, const warp_ends<T> &ends, T *m)
{
    T out[EACH];
    respond<threads>(r, ends, out);
#pragma unroll
    for (int i = 0; i < EACH && EACH * (int)threadIdx.x < DIFFERENCES; i++)
        m[EACH * (int)threadIdx.x + i] = out[i];
}

/* A thread's differences, r, and their sums, for bend(). */
template <typename T> __device__ inline void keep_ends(const T *y, const T *m, bool inner, T *r, warp_ends<T> *ends)
{
    T left, right;
    own_differences(y, m, inner, r);
    add_up(r, &left, &right);
    ends->keep(left, right);
}

/* Block (tile of KNOTS, point, arm): broadens the template and makes its spline. The spline's second derivatives are
 * its impulse response A z^|d|, z = sqrt(3)-2, A = 1/(2 sqrt(3)), over the second differences, which are odd about the
 * ends (that is the natural boundary). With derivatives (`deriv`): samples it at the point's velocity, t[point][pixels]
 * and dt[point][nfree][pixels]; without: knots[slot[point]][samples] (value, second derivative). NB: derivatives that
 * are broadened. */
template <int NB>
__global__ void __launch_bounds__(128, 8)
    resample_kernel(model m, int deriv, const spx_rv_stencil *stencils, const double *velocity, const double *flux,
                    const float *slope, const double *rotation, double *t, float *dt, const int *slot, double2 *knots)
{
    extern __shared__ __align__(16) double workspace[];
    __shared__ int range[2];
    __shared__ double moved[2]; /* samples by which the velocity shifts the pixels, and its derivative */
    const arm &a = m.arms[blockIdx.z];
    const int k0 = (int)blockIdx.x * KNOTS, last = a.nt - 1, tid = (int)threadIdx.x;
    if (k0 >= last)
        return;
    const size_t point = blockIdx.y;
    const bool by_vsini = NB > 0 && m.broadened[0] < 0;
    double *f0 = workspace, *y0 = f0 + UNBROADENED, *m0 = f0;
    float *fl = reinterpret_cast<float *>(y0 + BROADENED), *yl = fl + NB * UNBROADENED, *ml = fl;
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
        for (int i = tid; i < BROADENED + 2 * reach; i += 128) {
            const int j = min(max(y_first - reach + i, 0), last);
            __pipeline_memcpy_async(&f0[i], &flux[j], sizeof *f0);
#pragma unroll
            for (int b = 0; b < NB; b++)
                if (b > 0 || !by_vsini)
                    __pipeline_memcpy_async(&fl[b * UNBROADENED + i], &slope[(size_t)m.broadened[b] * m.samples + j],
                                            sizeof *fl);
        }
        __pipeline_commit();
        if (tid <= reach) {
            weight[0][tid] = w[tid];
            weight[1][tid] = dw[tid];
            single[tid] = (float)w[tid];
        }
    }
    if (tid < 64 && deriv) { /* a warp for each end */
        const int end = k0 + tid / 32 * KNOTS;
        const double shift = spx_rv_lnshift(velocity[point]) / a.dlnwave;
        if (tid == 0)
            moved[0] = shift;
        if (tid == 32)
            moved[1] = spx_rv_lnshift_dv(velocity[point]) / a.dlnwave;
        const int found = end == 0 ? 0 : (end >= last ? a.n : first_pixel(a, shift, (double)end));
        if (tid % 32 == 0)
            range[tid / 32] = found;
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    if (near) {
        broaden<NB>(f0, fl, weight[0], weight[1], single, reach, scale, by_vsini, y0, yl);
    } else {
        for (int i = tid; i < BROADENED; i += 128) {
            const int j = min(max(y_first + i, 0), last);
            y0[i] = broadened(flux, j, last, w, reach);
            for (int b = 0; b < NB; b++)
                yl[b * BROADENED + i] = b == 0 && by_vsini
                                            ? (float)(scale * broadened(flux, j, last, dw, reach))
                                            : broadened(slope + (size_t)m.broadened[b] * m.samples, j, last, w, reach);
        }
    }
    __syncthreads();
    const bool inner = k0 > TAIL && k0 + KNOTS + TAIL < last;
    __shared__ warp_ends<double> ends;
    __shared__ warp_ends<float> slope_ends[NB > 0 ? NB : 1];
    if (!inner) {
        differences(y0, k0, last, m0);
#pragma unroll 1
        for (int b = 0; b < NB; b++)
            differences(yl + b * BROADENED, k0, last, ml + b * UNBROADENED);
        __syncthreads();
    }
    double r0[EACH];
    float r[NB > 0 ? NB : 1][EACH];
    keep_ends(y0, m0, inner, r0, &ends);
#pragma unroll
    for (int b = 0; b < NB; b++)
        keep_ends(yl + b * BROADENED, ml + b * UNBROADENED, inner, r[b], &slope_ends[b]);
    __syncthreads();
    bend<NEIGHBOURS>(r0, ends, m0);
#pragma unroll
    for (int b = 0; b < NB; b++)
        bend<FEW_NEIGHBOURS>(r[b], slope_ends[b], ml + b * UNBROADENED);
    __syncthreads();
    if (!deriv) {
        for (int i = tid; i < KNOTS && k0 + i <= last; i += 128)
            knots[(size_t)slot[point] * m.samples + a.sample0 + k0 + i] = make_double2(y0[i + TAIL + 1], m0[i + TAIL]);
        /* the last tile ends with the last knot, which begins none */
        if (tid == 0 && k0 + KNOTS == last)
            knots[(size_t)slot[point] * m.samples + a.sample0 + last] =
                make_double2(y0[KNOTS + TAIL + 1], m0[KNOTS + TAIL]);
        return;
    }
    const double shift = moved[0], dshift = moved[1];
    t += point * m.pixels + a.pixel0;
    dt += point * m.nfree * (size_t)m.pixels + a.pixel0;
    for (int i = range[0] + tid; i < range[1]; i += 128) {
        double u[4], d[4];
        const int k = (int)spx_rv_spline_weights(a.place[i] + shift, (size_t)a.nt, u, d) - k0;
        const double *y = y0 + k + TAIL + 1, *bend = m0 + k + TAIL;
        t[i] = fma(u[0], y[0], fma(u[1], y[1], fma(u[2], bend[0], u[3] * bend[1])));
        if (m.free_v)
            dt[i] = (float)(fma(d[0], y[0], fma(d[1], y[1], fma(d[2], bend[0], d[3] * bend[1]))) * dshift);
#pragma unroll
        for (int b = 0; b < NB; b++) {
            const float *yb = yl + b * BROADENED + k + TAIL + 1, *mb = ml + b * UNBROADENED + k + TAIL;
            dt[(size_t)(m.free_v + b) * m.pixels + i] =
                fmaf((float)u[0], yb[0], fmaf((float)u[1], yb[1], fmaf((float)u[2], mb[0], (float)u[3] * mb[1])));
        }
    }
}

} // namespace rv

#endif
