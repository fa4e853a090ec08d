/* Square root of A_s by poles: flux, ivar and resolution. */
#ifndef SPX_EXTRACT_CUDA_ROOT_CUH
#define SPX_EXTRACT_CUDA_ROOT_CUH

#include "extract/extract_cuda_wide.cuh"

namespace
{

/* One warp a task, which is 32 lanes and one of their poles, and a segment: block (task, segment). What the pole adds
 * to the diagonals of Q, to Q 1 and Q x goes to `share`. M = 0: any bandwidth mm, in one piece, with a window in shared
 * memory. */
template <int M> __global__ void root_kernel(work k, int mm)
{
    extern __shared__ double shared[];
    const int task = k.task0 + blockIdx.x, in = threadIdx.x;
    const int column = k.task[2 * task] * WARP + in, pole = k.task[2 * task + 1];
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const int h = k.h;
    const segment s(k, blockIdx.y, k.halo);
    const int begin = M > 0 ? s.begin : 0, n = (M > 0 ? s.end : k.n) - begin;
    const int stop = M > 0 ? s.first : 0, end = M > 0 ? min(s.last + EXTRA, k.n) : k.n; /* bins that are written */
    double *share = k.share + in;
    if (column >= k.lanes || pole >= k.npole[column] || is_wide(k.need[column])) {
        for (int j = stop; j < min(end, M > 0 ? s.last : k.n); j++)
            for (int c = 0; c < h + 3; c++)
                share[(share_row(k, task, j) * (h + 3) + c) * WARP] = 0.0;
        return;
    }
    share += share_row(k, task, stop) * (h + 3) * WARP;
    const double shift = k.shift[(size_t)pole * lanes + column], weight = k.pole_weight[(size_t)pole * lanes + column];
    const double scale = -weight * shift, *a = k.a + begin * arow + column, *x = k.x + begin * lanes + column;
    const size_t lrow = (size_t)(mm + 1) * WARP, block = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    const size_t rows = M > 0 ? k.seg + 2 * k.halo : k.n;
    double *l = k.lower + block * rows * lrow + in, *buffer = shared + in;
    double *one = k.rhs + block * 2 * rows * WARP + in, *flux = one + rows * WARP;
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
        good = factor<M>(
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
        stream<M + 4>(
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
        double *window = k.wide_shared ? buffer : k.window + (size_t)blockIdx.x * (mm + 1) * (mm + 1) * WARP + in;
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
            double *to = k.share + in + share_row(k, task, j) * (h + 3) * WARP;
            to[0] = scale * own;
            for (int d = 1; d <= h; d++)
                to[(size_t)d * WARP] = scale * now[d * WARP];
            to[(size_t)(h + 1) * WARP] = weight * fma(-shift, s1, 1.0);
            to[(size_t)(h + 2) * WARP] = weight * fma(-shift, sx, x[(size_t)j * lanes]);
        }
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
}

/* Sums over the poles, in their order: tasks range[2 warp] .. range[2 warp + 1] - 1 are those of a warp. */
__global__ void gather_kernel(work k, const int *range)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, row = (size_t)(k.h + 3) * k.lanes;
    if (i >= k.n * row)
        return;
    const size_t j = i / row, c = i % row / k.lanes, column = i % k.lanes;
    const int warp = (int)(column / WARP), in = (int)(column % WARP);
    double sum = 0.0;
    for (int task = range[2 * warp]; task < range[2 * warp + 1]; task++)
        sum += k.share[(share_row(k, task, (int)j) * (k.h + 3) + c) * WARP + in];
    k.sum[i] += sum;
}

__global__ void root_seams_kernel(work k)
{
    const int task = k.task0 + blockIdx.x, seg = blockIdx.y, bin = (seg + 1) * k.seg + blockIdx.z;
    const int column = k.task[2 * task] * WARP + threadIdx.x;
    if (bin >= k.n || column >= k.lanes || k.task[2 * task + 1] >= k.npole[column] || is_wide(k.need[column]))
        return;
    const size_t width = (size_t)(k.h + 3) * WARP, row = ((size_t)task * k.nseg + seg) * (k.seg + EXTRA);
    const double *was = k.share + (row + k.seg + blockIdx.z) * width + threadIdx.x;
    const double *is = k.share + share_row(k, task, bin) * width + threadIdx.x;
    if (!fits(k, was, is, WARP, bin, column))
        atomicOr(&k.redo[column], 1);
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

/* Bounds of the eigenvalues, bandwidth by bandwidth: side by side where there is room. */
spx_status bounds(work k, arena m, tables &t, slot *s, spx_err *e)
{
    const unsigned column = blocks(k.lanes, WARP);
    bool found[SPX_TRACE_MOST_BAND + 1] = {false};
    int nwide = 0, widest = 0;
    for (int i = 0; i < k.lanes; i++) {
        if (is_wide(t.need[i]) && t.wanted[i] >= 0) {
            t.wide_task[nwide++] = i;
            widest = t.need[i] > widest ? t.need[i] : widest;
        } else {
            found[t.need[i]] = true;
        }
    }
    PASS(zero(s, k.bound, sizeof(double) * 2 * k.lanes, e));
    int *list = m.take<int>((size_t)nwide + 1);
    PASS(put(s, list, t.wide_task, (size_t)nwide, e));
    PASS(fork(s, e));
    arena rest = m;
    int count = 0;
    for (int mm = 0; mm <= SPX_TRACE_MOST_BAND; mm++) {
        if (!found[mm])
            continue;
        if (bounds_size(k, mm) * sizeof(double) + 4096 > rest.size - rest.used) {
            PASS(join(s, e));
            PASS(fork(s, e));
            rest = m;
        }
        work w = k;
        cut(w, SHORT, mm);
        w.halo /= 2; /* these are only bounds */
        if (!has_loop(mm))
            one_piece(w);
        const size_t rows = (size_t)column * WARP * w.nseg * (w.seg + 4 * w.halo);
        w.lower = rest.take<double>(rows * (mm + 1));
        w.rhs = rest.take<double>(rows);
        w.window = rest.take<double>((size_t)(mm + 1) * (mm + 1) * k.lanes);
        cudaStream_t stream = s->beside[count++ % BESIDE];
        BY_BAND(mm, bounds_kernel, <<<dim3(column, w.nseg), WARP, stream_bytes(mm, mm + 2), stream>>>(w, mm))
    }
    for (int first = 0; first < nwide;) {
        work w = k;
        cut(w, SHORT, widest);
        w.halo /= 2;
        const size_t rows = (size_t)w.nseg * (w.seg + 4 * w.halo), each = rows * (k.band + 2) * sizeof(double);
        if (each + 4096 > rest.size - rest.used) {
            PASS(join(s, e));
            PASS(fork(s, e));
            rest = m;
        }
        const size_t fit = (rest.size - rest.used - 4096) / each, left = (size_t)(nwide - first);
        const int now = (int)(fit < left ? fit : left);
        if (now == 0)
            return spx_fail(e, SPX_EDEVICE, "cuda: too little memory on the device for one trace: use --device cpu");
        w.wide_task = list + first;
        w.lower = rest.take<double>((size_t)now * rows * (k.band + 1));
        w.rhs = rest.take<double>((size_t)now * rows);
        wide_bounds_kernel<<<dim3(now, w.nseg), WARP, 0, s->beside[count++ % BESIDE]>>>(w);
        first += now;
    }
    PASS(join(s, e));
    poles_kernel<<<k.lanes, 96, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

spx_status root(work &k, arena m, tables &t, size_t most_shared, slot *s, spx_err *e)
{
    const int nwarp = (k.lanes + WARP - 1) / WARP;
    PASS(get(s, t.need, k.need, k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    PASS(bounds(k, m, t, s, e));
    PASS(get(s, t.npole, k.npole, k.lanes, e));
    PASS(zero(s, k.sum, sizeof(double) * (size_t)k.n * (k.h + 3) * k.lanes, e));
    PASS(zero(s, k.redo, sizeof(int) * k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    int widest = 0;
    for (int i = 0; i < nwarp; i++)
        t.warps[i] = {0, 0};
    for (int i = 0; i < k.lanes; i++) {
        warp_work &w = t.warps[i / WARP];
        if (t.npole[i] > 0 && is_wide(t.need[i])) {
            widest = t.need[i] > widest ? t.need[i] : widest;
        } else if (t.npole[i] > 0) {
            w.mm = t.need[i] > w.mm ? t.need[i] : w.mm;
            w.npole = t.npole[i] > w.npole ? t.npole[i] : w.npole;
        }
    }
    const size_t reserve = 4096 + sizeof(int) * 5 * (size_t)k.lanes * SPX_MAX_POLES;
    const auto room = [&]() { return m.size - m.used > reserve ? (m.size - m.used - reserve) / sizeof(double) : 0; };
    /* fibres with a warp for each pole: all of them beside the others, if half of the room is enough */
    const auto is_wide_fibre = [&](int i) { return is_wide(t.need[i]); };
    work wide = k;
    wide_work beside = {};
    cut(wide, LONG, widest);
    wide.halo /= 2; /* it is not the whole width that is strong */
    if (widest > 0) {
        size_t count = 0;
        for (int i = 0; i < k.lanes; i++)
            count += is_wide_fibre(i) ? (size_t)t.npole[i] : 0;
        int next = 0;
        if (count * wide_size(wide) < room() / 2)
            PASS(wide_tasks(wide, m, room(), next, t, beside, s, is_wide_fibre, e));
    }
    /* tasks by bandwidth, as many warps at a time as there is room for; those of different bandwidth side by side */
    bool launched = beside.ntask == 0;
    for (int mm = 1, at = 0, pole = 0; mm <= SPX_TRACE_MOST_BAND || !launched;) {
        struct {
            int mm, first, count;
        } part[SPX_TRACE_MOST_BAND + 1];
        int nparts = 0, ntask = 0;
        size_t used = 0;
        bool full = false;
        TRY(cudaStreamSynchronize(s->stream)); /* tables are free */
        for (int i = 0; i < nwarp; i++)
            t.range[2 * i] = t.range[2 * i + 1] = 0;
        for (; mm <= SPX_TRACE_MOST_BAND && !full; full ? 0 : (mm++, at = 0)) {
            const size_t each = task_size(k, mm);
            part[nparts] = {mm, ntask, 0};
            for (; at < nwarp && !full; full ? 0 : (at++, pole = 0)) {
                const warp_work &w = t.warps[at];
                if (w.mm != mm)
                    continue;
                t.range[2 * at] = ntask;
                for (; pole < w.npole && used + each <= room(); pole++, ntask++) {
                    used += each;
                    t.task[2 * ntask] = at;
                    t.task[2 * ntask + 1] = pole;
                }
                t.range[2 * at + 1] = ntask;
                full = pole < w.npole;
            }
            part[nparts].count = ntask - part[nparts].first;
            nparts += part[nparts].count > 0;
        }
        if (full && ntask == 0)
            return spx_fail(e, SPX_EDEVICE,
                            "cuda: too little memory on the device for one group of traces: give more "
                            "(--max-device-mem), or use --device cpu");
        arena rest = m;
        work w = k;
        cut(w, LONG, 1);
        int *where = rest.take<int>(2 * (size_t)nwarp);
        w.share = rest.take<double>((size_t)ntask * w.nseg * (w.seg + EXTRA) * (k.h + 3) * WARP);
        PASS(put(s, k.task, (const int *)t.task, 2 * (size_t)ntask, e));
        PASS(put(s, (const int *)where, (const int *)t.range, 2 * (size_t)nwarp, e));
        PASS(fork(s, e));
        if (!launched)
            wide_root_kernel<<<dim3(beside.ntask, wide.nseg), WARP, 0, s->beside[BESIDE - 1]>>>(beside.k);
        launched = true;
        for (int i = 0; i < nparts; i++) {
            const int band = part[i].mm, count = part[i].count;
            const size_t window = sizeof(double) * (size_t)(band + 1) * (band + 1) * WARP;
            size_t bytes = stream_bytes(band, band + 4), rows = (size_t)count * WARP * k.n;
            w.task0 = part[i].first;
            w.halo = HALO * band;
            if (has_loop(band))
                rows = (size_t)count * WARP * w.nseg * (w.seg + 2 * w.halo);
            w.lower = rest.take<double>(rows * (band + 1));
            w.rhs = rest.take<double>(rows * 2);
            w.window = rest.take<double>((size_t)count * (band + 1) * (band + 1) * WARP);
            w.wide_shared = !has_loop(band) && window <= most_shared;
            if (w.wide_shared)
                bytes = window;
            const dim3 tasks(count, has_loop(band) ? w.nseg : 1);
            BY_BAND(band, root_kernel, <<<tasks, WARP, bytes, s->beside[i % (BESIDE - 1)]>>>(w, band))
            TRY(cudaGetLastError());
        }
        PASS(join(s, e));
        if (ntask > 0)
            gather_kernel<<<blocks((size_t)k.n * (k.h + 3) * k.lanes, 256), 256, 0, s->stream>>>(w, where);
        for (int i = 0; i < nparts && w.nseg > 1; i++)
            if (has_loop(part[i].mm)) {
                w.task0 = part[i].first;
                root_seams_kernel<<<dim3(part[i].count, w.nseg - 1, EXTRA), WARP, 0, s->stream>>>(w);
            }
        TRY(cudaGetLastError());
    }
    if (beside.ntask > 0)
        PASS(wide_sums(beside, s, e));
    else if (widest > 0)
        PASS(wide_root(wide, m, t, s, is_wide_fibre, e));
    /* in one piece where segments do not fit together */
    PASS(get(s, t.redo, k.redo, k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    work whole = k;
    one_piece(whole);
    PASS(wide_root(
        whole, m, t, s, [&](int i) { return t.redo[i] != 0; }, e));
    turn_kernel<<<dim3(blocks(k.nwave, WARP), blocks(k.lanes, WARP), 2 * k.h + 4), dim3(WARP, 8), 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

} // namespace

#endif
