/* The scan of search/scan.c on CUDA devices: the objective all over the range of velocities with a continuum that is
 * linear in blocks of pixels. A warp has 32 velocities, one a lane, whose moments need no exchange. */
#ifndef SPX_RVFIT_CUDA_SCAN_CUH
#define SPX_RVFIT_CUDA_SCAN_CUH

namespace rv
{

enum {
    SCAN_WARPS = 8,
    SCAN_STAGE = 24, /* blocks of pixels whose moments are kept at a time */
    MOMENTS = 5
};

inline size_t scan_shared(int entries)
{
    return (size_t)std::max((int)SCAN_STAGE * MOMENTS, entries) * 32 * sizeof(double);
}

/* Moments of a block of pixels: sums of T^2/e^2, of that times x and x^2, of T f/e^2 and of that times x, where x is
 * from the middle of the block. */
struct moments {
    double s0, s1, s2, d0, d1;

    /* A pixel whose template is between two knots; w = 1/e^2, fw = f/e^2. CUT: it may be beyond the ends of these. */
    template <bool CUT> __device__ void add(const double2 *knots, double at, double last, double w, double fw, double x)
    {
        if (CUT)
            at = fmin(fmax(at, 0.0), last);
        const int k = (int)at;
        const double y = knots[k].x;
        add(fma(at - k, knots[k + 1].x - y, y), w, fw, x);
    }

    /* One whose template is t. */
    __device__ void add(double t, double w, double fw, double x)
    {
        const double tw = t * t * w, td = t * fw;
        s0 += tw;
        s1 = fma(tw, x, s1);
        s2 = fma(tw * x, x, s2);
        d0 += td;
        d1 = fma(td, x, d1);
    }
};

/* Place of the last pixel whose template is between two knots. */
__device__ inline double last_place(const arm &a)
{
    return (double)a.nt - 1.000001;
}

/* Those of pixels i0 ... i0+n-1 at one velocity; adds (f/e)^2 to *square. */
__device__ inline moments block_moments(const arm &a, const double *flux, const double *ie, const double2 *knots,
                                        double shift, int i0, int n, double *square)
{
    const double last = last_place(a), middle = 0.5 * (a.per - 1);
    moments q = {0, 0, 0, 0, 0};
#pragma unroll 4
    for (int j = 0; j < n; j++) { /* the data of several pixels are on their way */
        const int i = i0 + j;
        const double e = __ldg(ie + i), w = e * e, f = __ldg(flux + i), fw = f * w;
        q.add<true>(knots, __ldg(a.place + i) + shift, last, w, fw, j - middle);
        *square = fma(f, fw, *square);
    }
    return q;
}

/* Pixels that the threads of a block have in common. */
template <int N> struct shared_pixels {
    double place[N], w[N], fw[N];

    /* Moments of pixels i0 ... i0+n-1, the first of which is `first` from the middle of its block. */
    template <bool CUT>
    __device__ moments of(const double2 *knots, double shift, double last, int i0, int n, double first) const
    {
        moments q = {0, 0, 0, 0, 0};
#pragma unroll 8
        for (int i = i0; i < i0 + n; i++, first++)
            q.add<CUT>(knots, place[i] + shift, last, w[i], fw[i], first);
        return q;
    }
};

/* The objective of a piece out of its equations g[entries][32], of which this lane has a column. */
__device__ inline double scan_value(int np, int band, double *g, double square)
{
    double *b = g + band_row(band, np) * 32, f = square;
    for (int i = 0; i < np; i++) {
        const int i0 = band_first(band, i);
        double *row = g + (band_row(band, i) - i0) * 32; /* of which element i0 is the first */
        double y = b[i * 32];
        for (int j = i0; j <= i; j++) {
            const double *other = g + (band_row(band, j) - band_first(band, j)) * 32;
            double s = row[j * 32];
            for (int k = i0; k < j; k++)
                s = fma(-row[k * 32], other[k * 32], s);
            if (j == i && !(s > 0 && isfinite(s)))
                return HUGE_VAL;
            row[j * 32] = j < i ? s / other[j * 32] : sqrt(s);
            if (j < i)
                y = fma(-row[j * 32], b[j * 32], y);
        }
        y /= row[i * 32];
        b[i * 32] = y;
        f += 2 * log(row[i * 32]) - y * y;
    }
    return f;
}

/* Block (item, 32 velocities): out[item][nscan]. The items' own velocities have no meaning. PER: entries of a warp.
 */
template <int PER>
__global__ void __launch_bounds__(32 * SCAN_WARPS)
    scan_kernel(model m, const item *items, const piece *pieces, const double *flux, const double *ie,
                const double2 *knots, double *out)
{
    extern __shared__ __align__(16) double workspace[];
    __shared__ double squares[SCAN_WARPS];
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, np = a.npoly, per = a.per;
    const int which = (int)blockIdx.y * 32 + lane, nblock = (a.n + per - 1) / per, entries = scan_entries(np, a.band);
    const double v = m.scan_v0 + min(which, m.nscan - 1) * m.scan_step;
    const double shift = spx_rv_lnshift(v) / a.dlnwave;
    knots += (size_t)it.at * m.samples + a.sample0;
    flux += d.pixel0;
    ie += d.pixel0;
    double gram[PER], square = 0;
    int first[PER], second[PER]; /* functions of the entries of this warp; second -1: the data */
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int e = warp + SCAN_WARPS * i;
        int k = 0;
        while (band_row(a.band, k + 1) <= e && k + 1 < np)
            k++;
        const int right = band_row(a.band, np);
        first[i] = e >= right ? min(e - right, np - 1) : k;
        second[i] = e >= right ? -1 : band_first(a.band, k) + e - band_row(a.band, k);
        gram[i] = 0;
    }
    for (int b0 = 0; b0 < nblock; b0 += SCAN_STAGE) {
        const int b1 = min(nblock, b0 + SCAN_STAGE);
        __syncthreads();
        for (int b = b0 + warp; b < b1; b += SCAN_WARPS) {
            const int i0 = b * per;
            const moments q = block_moments(a, flux, ie, knots, shift, i0, min(per, a.n - i0), &square);
            double *to = workspace + (b - b0) * MOMENTS * 32 + lane;
            to[0] = q.s0;
            to[32] = q.s1;
            to[64] = q.s2;
            to[96] = q.d0;
            to[128] = q.d1;
        }
        __syncthreads();
        for (int b = b0; b < b1; b++) {
            const double *from = workspace + (b - b0) * MOMENTS * 32 + lane;
            const double s0 = from[0], s1 = from[32], s2 = from[64], d0 = from[96], d1 = from[128];
            const double *value = a.line + (size_t)b * 2 * SPX_RVFIT_MAX_POLY, *slope = value + SPX_RVFIT_MAX_POLY;
            const int2 range = a.range[b];
#pragma unroll
            for (int i = 0; i < PER; i++) { /* all lanes have the same functions */
                if (first[i] < range.x || first[i] >= range.y || (second[i] >= 0 && second[i] < range.x))
                    continue;
                const double v0 = value[first[i]], v1 = slope[first[i]];
                if (second[i] < 0) {
                    gram[i] = fma(d0, v0, fma(d1, v1, gram[i]));
                } else {
                    const double g0 = fma(s0, v0, s1 * v1), g1 = fma(s1, v0, s2 * v1);
                    gram[i] = fma(g0, value[second[i]], fma(g1, slope[second[i]], gram[i]));
                }
            }
        }
    }
    if (lane == 0)
        squares[warp] = square;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (warp + SCAN_WARPS * i < entries)
            workspace[(warp + SCAN_WARPS * i) * 32 + lane] = gram[i];
    __syncthreads();
    if (warp > 0)
        return;
    square = 0;
    for (int i = 0; i < SCAN_WARPS; i++)
        square += squares[i];
    const double f = scan_value(np, a.band, workspace + lane, square) + a.lndet + d.sum_lne2;
    if (which < m.nscan)
        out[(size_t)blockIdx.x * m.nscan + which] = isfinite(f) ? f : HUGE_VAL;
}

/* Diagonals of a resolution matrix that a scan takes, at most. */
enum { SCAN_DIAGONALS = 16 };

/* A band of S'S while it is factored from the first function on: those of a window of W functions, lower triangle by
 * rows, and S'D; ln det(S'S) and |L^-1 S'D|^2/D of the functions before. */
template <int W> struct window {
    double a[W * (W + 1) / 2], right[W], ln, gain;
    bool fine;

    /* The window moves on by a function, which no later pixel has. */
    __device__ void advance()
    {
        const double pivot = a[0], over = 1 / pivot;
        fine = fine && pivot > 0 && isfinite(pivot);
        ln += log(pivot);
        gain = fma(right[0] * right[0], over, gain);
        double column[W];
#pragma unroll
        for (int i = 1; i < W; i++)
            column[i] = a[i * (i + 1) / 2];
#pragma unroll
        for (int i = 1; i < W; i++) {
            const double l = -column[i] * over;
            right[i - 1] = fma(l, right[0], right[i]);
#pragma unroll
            for (int j = 1; j <= i; j++)
                a[(i - 1) * i / 2 + j - 1] = fma(l, column[j], a[i * (i + 1) / 2 + j]);
        }
        right[W - 1] = 0;
#pragma unroll
        for (int j = 0; j < W; j++)
            a[(W - 1) * W / 2 + j] = 0;
    }
};

/* The template at the pixels around one, at one velocity, where a resolution matrix has up to ND diagonals. */
template <int ND> struct neighbours {
    const arm &a;
    const double2 *knots;
    const double *band;
    double shift, t[ND]; /* the last one: of the pixel that the last diagonal takes */

    __device__ neighbours(const arm &arm, const double2 *k, const double *b, double s)
        : a(arm), knots(k), band(b), shift(s)
    {
#pragma unroll
        for (int q = 0; q < ND; q++)
            t[q] = 0; /* beyond the ends the band is 0 */
        for (int i = 0; i < reach(); i++)
            take(i);
    }
    __device__ int reach() const
    {
        return a.ndiag - 1 - a.ndiag / 2;
    }
    __device__ void take(int pixel)
    {
        const double x = __ldg(a.place + min(pixel, a.n - 1)) + shift, last = a.nt - 1, at = fmin(fmax(x, 0.0), last);
        const int k = min((int)at, a.nt - 2);
        const double2 p = knots[k], q = knots[k + 1];
        const double right = at - k, left = 1 - right;
#pragma unroll
        for (int i = 0; i + 1 < ND; i++)
            t[i] = t[i + 1];
        t[ND - 1] =
            fma(left, p.x, fma(right, q.x, fma(left * (left * left - 1), p.y, right * (right * right - 1) * q.y)));
    }
    /* Row i of the matrix times the template, for rows one after another. */
    __device__ double row(int i)
    {
        take(i + reach());
        double sum = 0;
#pragma unroll
        for (int q = 0; q < ND; q++) {
            const int k = q - (ND - a.ndiag);
            if (k >= 0)
                sum = fma(__ldg(band + (size_t)k * a.n + i), t[q], sum);
        }
        return sum;
    }
};

template <int ND>
__device__ auto first_neighbours(const arm &a, const double2 *knots, const double *band, size_t band0, double shift)
{
    if constexpr (ND > 0)
        return neighbours<ND>(a, knots, band + band0, shift);
    else
        return 0;
}

/* scan_kernel() where no more than W functions have pixels in common, and functions come and go in their order: a lane
 * has the equations of its velocity in registers, and eliminates a function when its last pixel has been seen. Block
 * (item, NARROW velocities). ND: most diagonals of a resolution matrix; 0: there is none. */
enum { NARROW = 128, PIXELS = 256 /* that are in shared memory at a time, or less: whole blocks */ };
template <int W, int ND>
__global__ void __launch_bounds__(NARROW, W <= 6 ? 4 : 2)
    narrow_scan_kernel(model m, const item *items, const piece *pieces, const double *flux, const double *ie,
                       const double *band, const double2 *knots, double *out)
{
    __shared__ shared_pixels<PIXELS> pixels;
    __shared__ double squares[NARROW / 32];
    const int which = (int)(blockIdx.y * NARROW + threadIdx.x);
    const bool idle = which - (int)threadIdx.x % 32 >= m.nscan; /* the warp is */
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int np = a.npoly, per = a.per, n = a.n, nblock = (n + per - 1) / per, some = PIXELS / per;
    const double v = m.scan_v0 + min(which, m.nscan - 1) * m.scan_step, last = last_place(a), middle = 0.5 * (per - 1);
    const double shift = spx_rv_lnshift(v) / a.dlnwave;
    knots += (size_t)it.at * m.samples + a.sample0;
    flux += d.pixel0;
    ie += d.pixel0;
    window<W> w = {};
    w.fine = true;
    double square = 0;
    int at = 0; /* first function of the window */
    std::conditional_t<(ND > 0), neighbours<ND>, int> around = first_neighbours<ND>(a, knots, band, d.band0, shift);
    for (int b = 0; b < nblock; b++) {
        const int i0 = b % some * per, count = min(per, n - b * per);
        if (i0 == 0) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < some * per && b * per + i < n; i += NARROW) {
                const double e = __ldg(ie + b * per + i), f = __ldg(flux + b * per + i);
                pixels.place[i] = __ldg(a.place + b * per + i);
                pixels.w[i] = e * e;
                pixels.fw[i] = f * pixels.w[i];
                square = fma(f, pixels.fw[i], square);
            }
            __syncthreads();
        }
        if (idle)
            continue;
        moments q = {0, 0, 0, 0, 0};
        if constexpr (ND > 0) {
            for (int i = 0; i < count; i++)
                q.add(around.row(b * per + i), pixels.w[i0 + i], pixels.fw[i0 + i], i - middle);
        } else {
            const bool inside = pixels.place[i0] + shift >= 0 && pixels.place[i0 + count - 1] + shift <= last;
            q = inside ? pixels.template of<false>(knots, shift, last, i0, count, -middle)
                       : pixels.template of<true>(knots, shift, last, i0, count, -middle);
        }
        const int first = a.range[b].x;
        for (; at < first; at++)
            w.advance();
        const double *value = a.line + (size_t)b * 2 * SPX_RVFIT_MAX_POLY, *slope = value + SPX_RVFIT_MAX_POLY;
        double v0[W], v1[W];
#pragma unroll
        for (int k = 0; k < W; k++) { /* 0 of functions that the block does not have */
            const bool is = at + k < np;
            v0[k] = is ? __ldg(value + at + k) : 0;
            v1[k] = is ? __ldg(slope + at + k) : 0;
        }
#pragma unroll
        for (int k = 0; k < W; k++) {
            const double g0 = fma(q.s0, v0[k], q.s1 * v1[k]), g1 = fma(q.s1, v0[k], q.s2 * v1[k]);
            w.right[k] = fma(q.d0, v0[k], fma(q.d1, v1[k], w.right[k]));
#pragma unroll
            for (int l = 0; l <= k; l++)
                w.a[k * (k + 1) / 2 + l] = fma(g0, v0[l], fma(g1, v1[l], w.a[k * (k + 1) / 2 + l]));
        }
    }
    for (; at < np && !idle; at++)
        w.advance();
    square = spx::warp_sum(square);
    if (threadIdx.x % 32 == 0)
        squares[threadIdx.x / 32] = square;
    __syncthreads();
    square = 0;
    for (int i = 0; i < NARROW / 32; i++)
        square += squares[i];
    const double f = square - w.gain + w.ln + a.lndet + d.sum_lne2;
    if (which < m.nscan)
        out[(size_t)blockIdx.x * m.nscan + which] = w.fine && isfinite(f) ? f : HUGE_VAL;
}

} // namespace rv

#endif
