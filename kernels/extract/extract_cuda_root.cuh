/* Square root of A_s by poles: flux, ivar and resolution. */
#ifndef SPX_EXTRACT_CUDA_ROOT_CUH
#define SPX_EXTRACT_CUDA_ROOT_CUH

#include "extract/extract_cuda_wide.cuh"

namespace
{

/* Steps of the root take long: less has to be on its way, so that more warps find room. */
enum { ROOT_AHEAD = 8 };

/* One warp 32 items and a pole: block (pole, group). What the pole adds to the diagonals of Q, to Q 1 and Q x goes to
 * `share`. M = 0: any bandwidth mm, with a window in shared memory where it fits. */
template <int M> __global__ void root_kernel(work k, batch o)
{
    extern __shared__ double shared[];
    const int in = threadIdx.x, i = blockIdx.y * WARP + in, pole = o.pole0 + blockIdx.x, mm = o.mm;
    if (i >= o.count)
        return;
    const item v = o.at[i];
    if (pole >= k.npole[v.column])
        return;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes, lrow = (size_t)(mm + 1) * WARP;
    const int h = k.h, begin = v.begin, n = v.end - begin;
    const int stop = v.first, end = min(v.last + EXTRA, k.n); /* bins that are written */
    const size_t task = (size_t)blockIdx.y * o.npole + blockIdx.x;
    const double shift = k.shift[(size_t)pole * lanes + v.column];
    const double weight = k.pole_weight[(size_t)pole * lanes + v.column], scale = -weight * shift;
    const double *a = k.a + begin * arow + v.column, *x = k.x + begin * lanes + v.column;
    double *l = o.lower + task * o.rows * lrow + in, *buffer = shared + in;
    double *one = o.rhs + task * 2 * o.rows * WARP + in, *flux = one + (size_t)o.rows * WARP;
    double *share = o.share + task * o.span * (h + 3) * WARP + in;
    bool good;
    if constexpr (M > 0) {
        double back1[M + 1], backx[M + 1], z[M + 1][M + 1]; /* z[i][d] = Z(j+1+i, j+1+i+d) */
#pragma unroll
        for (int t = 0; t <= M; t++) {
            back1[t] = backx[t] = 0.0;
#pragma unroll
            for (int d = 0; d <= M; d++)
                z[t][d] = 0.0;
        }
        good = factor<M, ROOT_AHEAD>(
            n, a, arow, lanes, shift, [&](int j) { return l + j * lrow; }, WARP, buffer,
            [&](int j, double(&before)[M + 1]) {
                double s1 = 1.0, sx = x[(size_t)j * lanes];
#pragma unroll
                for (int t = M; t >= 1; t--) {
                    s1 = fma(-before[t], back1[t], s1);
                    sx = fma(-before[t], backx[t], sx);
                }
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    back1[t] = back1[t - 1];
                    backx[t] = backx[t - 1];
                }
                back1[1] = s1;
                backx[1] = sx;
                one[(size_t)j * WARP] = s1;
                flux[(size_t)j * WARP] = sx;
            });
        __threadfence_block();
#pragma unroll
        for (int t = 0; t <= M; t++)
            back1[t] = backx[t] = 0.0;
        stream<M + 4, ROOT_AHEAD>(
            begin + n - stop, buffer,
            [&](int step, int i) {
                const size_t j = (size_t)(n - 1 - step);
                return i <= M       ? (const double *)l + j * lrow + (size_t)i * WARP
                       : i == M + 1 ? (const double *)one + j * WARP
                       : i == M + 2 ? (const double *)flux + j * WARP
                                    : x + j * lanes;
            },
            [&](int step, double(&v)[M + 4]) {
                double s1 = v[M + 1] * v[0], sx = v[M + 2] * v[0], own = v[0], column_z[M + 1];
#pragma unroll
                for (int i = 1; i <= M; i++)
                    column_z[i] = 0.0;
#pragma unroll
                for (int t = M; t >= 1; t--) {
                    s1 = fma(-v[t], back1[t], s1);
                    sx = fma(-v[t], backx[t], sx);
#pragma unroll
                    for (int i = 1; i <= M; i++) /* Z(j+i, j+t) */
                        column_z[i] = fma(-v[t], i < t ? z[i - 1][t - i] : z[t - 1][i - t], column_z[i]);
                }
#pragma unroll
                for (int t = M; t >= 1; t--)
                    own = fma(-v[t], column_z[t], own);
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    back1[t] = back1[t - 1];
                    backx[t] = backx[t - 1];
                }
                back1[1] = s1;
                backx[1] = sx;
#pragma unroll
                for (int i = M - 1; i >= 1; i--) {
#pragma unroll
                    for (int d = 0; d + i < M; d++)
                        z[i][d] = z[i - 1][d];
                }
                z[0][0] = own;
#pragma unroll
                for (int d = 1; d < M; d++)
                    z[0][d] = column_z[d];
                const int bin = begin + n - 1 - step;
                if (bin >= end)
                    return;
                double *to = share + (size_t)(bin - stop) * (h + 3) * WARP;
                to[0] = scale * own;
#pragma unroll
                for (int d = 1; d <= M; d++)
                    if (d <= h)
                        to[(size_t)d * WARP] = scale * column_z[d];
                to[(size_t)(h + 1) * WARP] = weight * fma(-shift, s1, 1.0);
                to[(size_t)(h + 2) * WARP] = weight * fma(-shift, sx, v[M + 3]);
            });
    } else {
        double *window = o.in_shared ? buffer : o.window + task * (mm + 1) * lrow + in;
        int j = 0;
        double s1 = 1.0, sx = x[0];
        good = factor_any(n, mm, a, arow, lanes, shift, l, lrow, WARP, window, WARP, [&](int t, double lt) {
            if (t > 0) {
                s1 = fma(-lt, one[(size_t)(j - t) * WARP], s1);
                sx = fma(-lt, flux[(size_t)(j - t) * WARP], sx);
                return;
            }
            one[(size_t)j * WARP] = s1;
            flux[(size_t)j * WARP] = sx;
            j++;
            s1 = 1.0;
            sx = j < n ? x[(size_t)j * lanes] : 0.0;
        });
        /* Z(j, j+d) of the last rows in the window, slot 0 .. mm; the row that is made is in the place after them */
        const size_t wrow = (size_t)(mm + 1) * WARP;
        int slot = 0;
        for (j = n - 1; j >= 0; j--) {
            const double *lj = l + (size_t)j * lrow;
            const int rest = n - 1 - j < mm ? n - 1 - j : mm;
            slot = slot > 0 ? slot - 1 : mm;
            double *now = window + slot * wrow;
            s1 = one[(size_t)j * WARP] * lj[0];
            sx = flux[(size_t)j * WARP] * lj[0];
            for (int i = 1; i <= mm; i++)
                now[i * WARP] = 0.0;
            for (int t = rest; t >= 1; t--) {
                const double lt = lj[t * WARP];
                s1 = fma(-lt, one[(size_t)(j + t) * WARP], s1);
                sx = fma(-lt, flux[(size_t)(j + t) * WARP], sx);
                const double *then = window + (slot + t <= mm ? slot + t : slot + t - mm - 1) * wrow;
                for (int i = t; i <= rest; i++)
                    now[i * WARP] = fma(-lt, then[(i - t) * WARP], now[i * WARP]);
                for (int i = 1; i < t; i++) {
                    const double *row = window + (slot + i <= mm ? slot + i : slot + i - mm - 1) * wrow;
                    now[i * WARP] = fma(-lt, row[(t - i) * WARP], now[i * WARP]);
                }
            }
            double own = lj[0];
            for (int t = rest; t >= 1; t--)
                own = fma(-lj[t * WARP], now[t * WARP], own);
            now[0] = own;
            one[(size_t)j * WARP] = s1;
            flux[(size_t)j * WARP] = sx;
            double *to = share + (size_t)j * (h + 3) * WARP; /* such an item is a whole trace */
            to[0] = scale * own;
            for (int d = 1; d <= h; d++)
                to[(size_t)d * WARP] = scale * now[d * WARP];
            to[(size_t)(h + 1) * WARP] = weight * fma(-shift, s1, 1.0);
            to[(size_t)(h + 2) * WARP] = weight * fma(-shift, sx, x[(size_t)j * lanes]);
        }
    }
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
}

/* Sums over the poles, in their order: block (rows of the share, group of WIDTH items). Those of bins of the next
 * segment are kept apart. */
template <int WIDTH> __global__ void gather_kernel(work k, batch o)
{
    const int h3 = k.h + 3, at = blockIdx.x * blockDim.x + threadIdx.x, row = at / WIDTH, in = at % WIDTH;
    const int i = blockIdx.y * WIDTH + in;
    if (i >= o.count || row >= o.span * h3)
        return;
    const item v = o.at[i];
    const int bin = v.first + row / h3, c = row % h3, npole = min(o.npole, k.npole[v.column] - o.pole0);
    if (bin >= min(v.last + EXTRA, k.n))
        return;
    const size_t each = (size_t)o.span * h3 * WIDTH, lanes = k.lanes;
    const double *share = o.share + blockIdx.y * o.npole * each + at;
    const int seg = bin / k.seg, beyond = bin - seg * k.seg;
    double *over = k.over + (((size_t)(seg - 1) * EXTRA + beyond) * h3 + c) * lanes + v.column;
    double *sum = bin < v.last ? k.sum + ((size_t)bin * h3 + c) * lanes + v.column : over;
    double value = o.pole0 > 0 ? *sum : 0.0;
    for (int pole = 0; pole < npole; pole++)
        value += share[pole * each];
    *sum = value;
    if (sum != over && bin - v.first >= k.seg && beyond < EXTRA) /* the whole trace is one item */
        *over = value;
}

/* Whether two segments have the same for a bin. What remains is far below the tolerance of ivar and resolution,
 * relative, and of the flux in standard deviations: block (lanes, bin beyond the segment, segment). */
__global__ void root_seams_kernel(work k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, seg = blockIdx.z, bin = (seg + 1) * k.seg + blockIdx.y;
    if (column >= k.lanes || bin >= k.n || k.npole[column] == 0)
        return;
    const size_t lanes = k.lanes, width = (size_t)(k.h + 3) * lanes;
    const double *is = k.sum + bin * width + column;
    const double *was = k.over + ((size_t)seg * EXTRA + blockIdx.y) * width + column;
    const double s = fmax(fabs(is[(k.h + 1) * lanes]), 1e-5 * sqrt(k.bound[lanes + column]));
    const double x = fabs(is[(k.h + 2) * lanes]), least = fmax(0.01 * k.tolerance, 1e-12);
    bool good = fabs(is[(k.h + 2) * lanes] - was[(k.h + 2) * lanes]) <= 10.0 * k.tolerance + least * x;
    for (int c = 0; c <= k.h + 1; c++)
        good &= fabs(is[c * lanes] - was[c * lanes]) <= least * s;
    if (!good) {
        k.redo[seg * lanes + column] = 1;
        k.redo[(seg + 1) * lanes + column] = 1;
    }
}

/* flux, ivar, pixmask_fraction and R: a block turns a tile of 32 bins and 32 lanes, which lie side by side on the
 * device, into rows of bins. Threads: 32 x 8. */
__global__ void turn_kernel(work k)
{
    __shared__ double tile[WARP][WARP + 1];
    const int lane0 = blockIdx.y * WARP, bin0 = blockIdx.x * WARP, d = blockIdx.z; /* d: diagonal; last: flux, ... */
    const int ndiag = 2 * k.h + 1, what = d - ndiag;
    const size_t row = (size_t)(k.h + 3) * k.lanes, norm = (size_t)(k.h + 1) * k.lanes, flux = norm + k.lanes;
    const int column = lane0 + threadIdx.x;
    for (int i = threadIdx.y; i < WARP; i += blockDim.y) {
        const int bin = bin0 + i, j = bin + k.pad;
        double v = 0.0;
        if (column < k.lanes && bin < k.nwave && k.wanted[column] >= 0) {
            if (what < 0) {
                const int off = d - k.h, to = j + off, low = off < 0 ? to : j;
                if (to >= 0 && to < k.n) {
                    const double s = k.sum[(size_t)to * row + norm + column];
                    const double q = k.sum[(size_t)low * row + (size_t)(off < 0 ? -off : off) * k.lanes + column];
                    v = s != 0.0 ? (off == 0 ? q + k.total[column] : q) / s : 0.0;
                }
            } else if (what == 2) {
                const double seen = k.seen[(size_t)j * k.lanes + column];
                v = seen < 1.0 ? 1.0 - seen : 0.0;
            } else {
                const double s = k.sum[(size_t)j * row + norm + column];
                v = what == 1 ? s * s : s != 0.0 ? k.sum[(size_t)j * row + flux + column] / s : 0.0;
            }
            if (!isfinite(v))
                atomicOr(&k.bad[column / k.nl], BAD_ROOT);
        }
        tile[i][threadIdx.x] = v;
    }
    __syncthreads();
    const int bin = bin0 + threadIdx.x;
    for (int i = threadIdx.y; i < WARP; i += blockDim.y) {
        if (lane0 + i >= k.lanes || bin >= k.nwave || k.wanted[lane0 + i] < 0)
            continue;
        const size_t out = (size_t)(k.wanted[lane0 + i] - k.row0);
        const double v = tile[threadIdx.x][i];
        if (what < 0)
            k.out_res[(out * ndiag + d) * k.nwave + bin] = v;
        else
            (what == 0 ? k.out_flux : what == 1 ? k.out_ivar : k.out_seen)[out * k.nwave + bin] = v;
    }
}

/* Bounds of the eigenvalues, and poles, for the half-bandwidths t.need. The numbers of poles go to t.npole. */
spx_status bounds(work k, arena m, tables &t, slot *s, spx_err *e)
{
    list l;
    cut(k, BOUNDS, 0);
    PASS(zero(s, k.npole, sizeof(int) * k.lanes, e));
    PASS(zero(s, k.total, sizeof(double) * k.lanes, e));
    PASS(zero(s, k.bound, sizeof(double) * 2 * k.lanes, e));
    PASS(zero(s, k.sum, sizeof(double) * (size_t)k.n * (k.h + 3) * k.lanes, e));
    list_items(k, t, NULL, USUAL, l);
    PASS(in_batches(
        m, l, t, 1, 0, s,
        [&](const kind &v, const batch &b, int groups, cudaStream_t stream) {
            if (v.wide)
                wide_bounds_kernel<<<groups, WARP, 0, stream>>>(k, b);
            else if (v.mm == WIDER)
                bounds_kernel<WIDER><<<groups, WARP, sizeof(double) * AHEAD * WARP *(WIDER + 2), stream>>>(k, b);
            else
                BY_BAND(v.mm, bounds_kernel, <<<groups, WARP, stream_bytes(v.mm, v.mm + 2), stream>>>(k, b))
        },
        [](const kind &, const batch &, int, cudaStream_t) {}, e));
    poles_kernel<<<k.lanes, 96, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return get(s, t.npole, k.npole, k.lanes, e);
}

/* What the square root works on, when the numbers of poles are there. */
void list_roots(work k, tables &t, int how, list &l)
{
    cut(k, LONG, 0);
    list_items(k, t, t.npole, how, l);
}

/* Sums over the poles of what is in the list. */
spx_status sums(const work &k, arena m, tables &t, const list &l, size_t most_shared, slot *s, spx_err *e)
{
    return in_batches(
        m, l, t, 2, (size_t)k.h + 3, s,
        [&](const kind &v, batch b, int groups, cudaStream_t stream) {
            const dim3 tasks((unsigned)b.npole, (unsigned)groups);
            const size_t window = sizeof(double) * (size_t)(v.mm + 1) * (size_t)(v.mm + 1) * WARP;
            b.in_shared = !has_loop(v.mm) && window <= most_shared;
            if (v.wide && v.mm == WIDER)
                wide_root_kernel<WIDER><<<tasks, WARP, 0, stream>>>(k, b);
            else if (v.wide)
                wide_root_kernel<0><<<tasks, WARP, 0, stream>>>(k, b);
            else
                BY_BAND(
                    v.mm, root_kernel,
                    <<<tasks, WARP, b.in_shared ? window : stream_bytes(v.mm, v.mm + 4, ROOT_AHEAD), stream>>>(k, b))
        },
        [&](const kind &v, const batch &b, int groups, cudaStream_t stream) {
            const unsigned rows = (unsigned)(b.span * (k.h + 3));
            if (v.wide)
                gather_kernel<1><<<dim3(blocks(rows, 128), (unsigned)groups), 128, 0, stream>>>(k, b);
            else
                gather_kernel<WARP><<<dim3(blocks((size_t)rows * WARP, 128), (unsigned)groups), 128, 0, stream>>>(k, b);
        },
        e);
}

/* From the list of list_roots(). */
spx_status root(work &k, arena m, tables &t, list &l, size_t most_shared, slot *s, spx_err *e)
{
    const size_t lanes = (size_t)k.lanes;
    work w = k;
    cut(w, LONG, 0);
    /* where segments do not fit together, once more with longer ones, and then in one piece */
    for (int how = USUAL;; list_roots(k, t, ++how, l)) {
        PASS(sums(w, m, t, l, most_shared, s, e));
        if (w.nseg == 1 || how == WHOLE)
            break;
        PASS(zero(s, w.redo, sizeof(int) * w.nseg * lanes, e));
        root_seams_kernel<<<dim3(blocks(lanes, 128), EXTRA, (unsigned)(w.nseg - 1)), 128, 0, s->stream>>>(w);
        TRY(cudaGetLastError());
        PASS(get(s, t.redo, w.redo, w.nseg * lanes, e));
        TRY(cudaStreamSynchronize(s->stream));
        bool again = false;
        for (size_t i = 0; i < w.nseg * lanes; i++)
            again |= t.redo[i] != 0;
        if (!again)
            break;
    }
    turn_kernel<<<dim3(blocks(k.nwave, WARP), blocks(k.lanes, WARP), 2 * k.h + 4), dim3(WARP, 8), 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

} // namespace

#endif
