/* Bounds and square root of fibres whose bands are wider than there are loops for, beside masks: one warp a fibre (and
 * pole), one lane a diagonal. */
#ifndef SPX_EXTRACT_CUDA_WIDE_CUH
#define SPX_EXTRACT_CUDA_WIDE_CUH

#include "extract/extract_cuda_poles.cuh"

namespace
{

/* State of a warp that works on one fibre: lane i has element i of the column at hand, lane t >= 1 what the recurrences
 * need of the bin t back (or ahead). ring: [m + 1][m + 2] last columns of L, or rows of Z; line: [WARP]. */
struct wide_warp {
    int lane, n, m;
    double *ring, *line;

    __device__ int place(int slot) const
    {
        return slot * (m + 2);
    }
    __device__ double shifted(double v, double first) const
    {
        const double up = __shfl_up_sync(FULL, v, 1);
        return lane == 1 ? first : lane == 0 ? 0.0 : up;
    }

    /* L D L^T, and L^-1 b of two right-hand sides that right(j, b) gives: 1/D and L to l[n][m + 1], solutions to put.
     */
    template <class RIGHT, class PUT>
    __device__ bool factor(const double *a, size_t arow, size_t aelem, double shift, double *l, RIGHT right, PUT put)
    {
        bool good = true;
        double diag = 0.0, back[2] = {0.0, 0.0};
        const double *mine = a + (size_t)(lane <= m ? lane : 0) * aelem;
        double next = lane <= m ? mine[0] : 0.0, after = lane <= m && n > 1 ? mine[arow] : 0.0;
        int slot = 0;
        for (int j = 0; j < n; j++) {
            double sum = next + (lane == 0 ? shift : 0.0);
            next = after;
            after = lane <= m && j + 2 < n ? mine[(size_t)(j + 2) * arow] : 0.0;
            const int then = slot - lane < 0 ? slot - lane + m + 1 : slot - lane;
            const double lt = lane >= 1 && lane <= m && lane <= j ? ring[place(then) + lane] : 0.0;
            line[lane] = lt * diag;
            __syncwarp();
            for (int t = 1; t <= m - lane && t <= j; t++) {
                const int at = slot - t < 0 ? slot - t + m + 1 : slot - t;
                sum = fma(-ring[place(at) + t + lane], line[t], sum);
            }
            double b[2];
            right(j, b);
            const double s0 = b[0] - warp_sum(lt * back[0]), s1 = b[1] - warp_sum(lt * back[1]);
            double pivot = __shfl_sync(FULL, sum, 0);
            if (!(pivot > 0.0 && pivot < INFINITY)) {
                good = false;
                pivot = 1.0;
            }
            const double inverse = 1.0 / pivot, value = lane == 0 ? inverse : sum * inverse;
            __syncwarp();
            if (lane <= m) {
                ring[place(slot) + lane] = value;
                l[(size_t)j * (m + 1) + lane] = value;
            }
            diag = shifted(diag, pivot);
            back[0] = shifted(back[0], s0);
            back[1] = shifted(back[1], s1);
            put(j, s0, s1);
            slot = slot < m ? slot + 1 : 0;
            __syncwarp();
        }
        return good;
    }

    /* L^-1 b with the factor in l. */
    template <class RIGHT, class PUT> __device__ void forward(const double *l, RIGHT right, PUT put)
    {
        double back = 0.0;
        const auto element = [&](int j) {
            return lane >= 1 && lane <= m && lane <= j && j < n ? l[(size_t)(j - lane) * (m + 1) + lane] : 0.0;
        };
        double next = element(0), after = element(1);
        for (int j = 0; j < n; j++) {
            const double s = right(j) - warp_sum(next * back);
            next = after;
            after = element(j + 2);
            back = shifted(back, s);
            put(j, s);
        }
    }

    /* L^-T D^-1 f of two right-hand sides, and where INVERSE, row j of the inverse of the matrix in the band: lane d
     * has Z(j, j+d) in put(j, x0, x1, z); down to bin `stop`. */
    template <bool INVERSE, class RIGHT, class PUT>
    __device__ void backward(const double *l, int stop, RIGHT right, PUT put)
    {
        double ahead[2] = {0.0, 0.0};
        const auto element = [&](int j) { return lane <= m && j >= 0 ? l[(size_t)j * (m + 1) + lane] : 0.0; };
        double next = element(n - 1), after = element(n - 2);
        int slot = 0;
        for (int j = n - 1; j >= stop; j--) {
            const double lt = next, inverse = __shfl_sync(FULL, lt, 0), below = lane == 0 ? 0.0 : lt;
            next = after;
            after = element(j - 2);
            double f[2], z = 0.0;
            right(j, f);
            const double x0 = f[0] * inverse - warp_sum(below * ahead[0]);
            const double x1 = f[1] * inverse - warp_sum(below * ahead[1]);
            if (INVERSE) {
                const int rest = n - 1 - j < m ? n - 1 - j : m;
                line[lane] = below;
                __syncwarp();
                slot = slot > 0 ? slot - 1 : m;
                if (lane >= 1 && lane <= rest)
                    for (int t = 1; t <= rest; t++) {
                        const int row = lane < t ? lane : t, off = lane < t ? t - lane : lane - t;
                        const int at = slot + row > m ? slot + row - m - 1 : slot + row;
                        z = fma(-line[t], ring[place(at) + off], z);
                    }
                const double own = inverse - warp_sum(below * z);
                z = lane == 0 ? own : z;
                __syncwarp();
                if (lane <= m)
                    ring[place(slot) + lane] = z;
                __syncwarp();
            }
            ahead[0] = shifted(ahead[0], x0);
            ahead[1] = shifted(ahead[1], x1);
            put(j, x0, x1, z);
        }
    }
};

/* As bounds_kernel(), one warp a fibre and segment: block (fibre of k.wide_task, segment). */
__global__ void wide_bounds_kernel(work k)
{
    __shared__ double ring[WARP * (WARP + 1)], line[WARP];
    const segment s(k, blockIdx.y, 2 * k.halo);
    const int column = k.wide_task[blockIdx.x], m = k.need[column], n = s.end - s.begin, lane = threadIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t block = (size_t)blockIdx.x * gridDim.y + blockIdx.y, rows = k.seg + 4 * k.halo;
    double *l = k.lower + block * rows * (k.band + 1), *rhs = k.rhs + block * rows, inverse = 0.0;
    wide_warp w = {lane, n, m, ring, line};
    bool good = w.factor(
        k.a + s.begin * arow + column, arow, lanes, 0.0, l,
        [&](int j, double(&b)[2]) {
            b[0] = (s.begin + j) % 2 == 0 ? 1.0 : -1.0;
            b[1] = 0.0;
        },
        [&](int j, double s0, double) {
            if (lane == 0)
                rhs[j] = s0;
        });
    __syncwarp();
    for (int step = 0; step < 2; step++) {
        w.backward<false>(
            l, 0,
            [&](int j, double(&f)[2]) {
                f[0] = rhs[j];
                f[1] = 0.0;
            },
            [&](int j, double x0, double, double) {
                if (s.begin + j >= s.first && s.begin + j < s.last)
                    inverse = fmax(inverse, fabs(x0));
                if (lane == 0)
                    rhs[j] = copysign(1.0, x0);
            });
        __syncwarp();
        if (step == 0)
            w.forward(
                l, [&](int j) { return rhs[j]; },
                [&](int j, double v) {
                    if (lane == 0)
                        rhs[j] = v;
                });
        __syncwarp();
    }
    raise_to(&k.bound[lanes + column], largest_row(k, s, column, WARP, lane));
    if (lane != 0)
        return;
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
    raise_to(&k.bound[column], inverse);
}

/* As root_kernel(), one warp a fibre, pole and segment: block (task, segment); k.wide_task[2 task], [2 task + 1]. */
__global__ void wide_root_kernel(work k)
{
    __shared__ double ring[WARP * (WARP + 1)], line[WARP];
    const int task = blockIdx.x, column = k.wide_task[2 * task], pole = k.wide_task[2 * task + 1];
    const segment s(k, blockIdx.y, k.halo);
    const int m = k.need[column], n = s.end - s.begin, h = k.h, lane = threadIdx.x, end = s.last + EXTRA;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t block = (size_t)task * gridDim.y + blockIdx.y, rows = k.seg + 2 * k.halo;
    const double shift = k.shift[(size_t)pole * lanes + column], weight = k.pole_weight[(size_t)pole * lanes + column];
    const double scale = -weight * shift, *x = k.x + s.begin * lanes + column;
    double *l = k.lower + block * rows * (k.band + 1), *one = k.rhs + block * 2 * rows, *flux = one + rows;
    double *share = k.share + share_row(k, task, s.first) * (h + 3);
    wide_warp w = {lane, n, m, ring, line};
    const bool good = w.factor(
        k.a + s.begin * arow + column, arow, lanes, shift, l,
        [&](int j, double(&b)[2]) {
            b[0] = 1.0;
            b[1] = x[(size_t)j * lanes];
        },
        [&](int j, double s0, double s1) {
            if (lane == 0) {
                one[j] = s0;
                flux[j] = s1;
            }
        });
    __syncwarp();
    w.backward<true>(
        l, s.first - s.begin,
        [&](int j, double(&f)[2]) {
            f[0] = one[j];
            f[1] = flux[j];
        },
        [&](int j, double x0, double x1, double z) {
            if (s.begin + j >= end)
                return;
            double *to = share + (size_t)(s.begin + j - s.first) * (h + 3);
            if (lane <= h)
                to[lane] = scale * z;
            if (lane == 0) {
                to[h + 1] = weight * fma(-shift, x0, 1.0);
                to[h + 2] = weight * fma(-shift, x1, x[(size_t)j * lanes]);
            }
        });
    if (!good && lane == 0)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
}

/* Their sums over the poles: fibre range[3 i] has tasks range[3 i + 1] .. range[3 i + 2] - 1. */
__global__ void wide_gather_kernel(work k, const int *range)
{
    const int *mine = range + 3 * blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, width = k.h + 3;
    if (i >= k.n * width)
        return;
    double sum = 0.0;
    for (int task = mine[1]; task < mine[2]; task++)
        sum += k.share[share_row(k, task, i / width) * width + i % width];
    k.sum[(size_t)i * k.lanes + mine[0]] = sum;
}

/* As that for those with a warp each: thread bin. */
__global__ void wide_seams_kernel(work k)
{
    const int task = blockIdx.x, seg = blockIdx.y, bin = (seg + 1) * k.seg + threadIdx.x;
    const int column = k.wide_task[2 * task], width = k.h + 3;
    if (bin >= k.n || threadIdx.x >= EXTRA)
        return;
    const size_t row = ((size_t)task * k.nseg + seg) * (k.seg + EXTRA);
    if (!fits(k, k.share + (row + k.seg + threadIdx.x) * width, k.share + share_row(k, task, bin) * width, 1, bin,
              column))
        atomicOr(&k.redo[column], 1);
}

/* Fibres with a warp for each pole. */
struct wide_work {
    work k;
    int ntask, nfibre;
    int *range; /* on the device */
};

/* The tasks of fibres `next` and on for which pick(i) holds, as many as fit in `room` doubles; next goes to the first
 * that is left. */
template <typename PICK>
spx_status wide_tasks(const work &k, arena &m, size_t room, int &next, tables &t, wide_work &w, slot *s, PICK pick,
                      spx_err *e)
{
    const size_t each = wide_size(k);
    w.k = k;
    w.ntask = w.nfibre = 0;
    for (; next < k.lanes; next++) {
        const int npole = t.npole[next];
        if (!pick(next) || npole == 0)
            continue;
        if ((size_t)(w.ntask + npole) * each > room)
            break;
        int *range = t.wide_range + 3 * w.nfibre++;
        range[0] = next;
        range[1] = w.ntask;
        for (int pole = 0; pole < npole; pole++, w.ntask++) {
            t.wide_task[2 * w.ntask] = next;
            t.wide_task[2 * w.ntask + 1] = pole;
        }
        range[2] = w.ntask;
    }
    if (w.ntask == 0)
        return next < k.lanes
                   ? spx_fail(e, SPX_EDEVICE,
                              "cuda: too little memory on the device for one trace: give more (--max-device-mem), or "
                              "use --device cpu")
                   : SPX_OK;
    int *task = m.take<int>(2 * (size_t)w.ntask);
    w.range = m.take<int>(3 * (size_t)w.nfibre);
    PASS(put(s, task, t.wide_task, 2 * (size_t)w.ntask, e));
    PASS(put(s, w.range, t.wide_range, 3 * (size_t)w.nfibre, e));
    const size_t rows = (size_t)w.ntask * k.nseg * (k.seg + 2 * k.halo);
    w.k.wide_task = task;
    w.k.lower = m.take<double>(rows * (k.band + 1));
    w.k.rhs = m.take<double>(rows * 2);
    w.k.share = m.take<double>((size_t)w.ntask * k.nseg * (k.seg + EXTRA) * (k.h + 3));
    return SPX_OK;
}

spx_status wide_sums(const wide_work &w, slot *s, spx_err *e)
{
    const work &k = w.k;
    wide_gather_kernel<<<dim3(blocks((size_t)k.n * (k.h + 3), 256), w.nfibre), 256, 0, s->stream>>>(k, w.range);
    if (k.nseg > 1)
        wide_seams_kernel<<<dim3(w.ntask, k.nseg - 1), WARP, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* Traces pick(i) one after another, as many as there is room for at a time. */
template <typename PICK> spx_status wide_root(const work &k, arena m, tables &t, slot *s, PICK pick, spx_err *e)
{
    for (int next = 0; next < k.lanes;) {
        arena rest = m;
        wide_work w;
        const size_t reserve = 4096 + sizeof(int) * 5 * (size_t)k.lanes * SPX_MAX_POLES, left = m.size - m.used;
        TRY(cudaStreamSynchronize(s->stream)); /* tables are free */
        PASS(wide_tasks(k, rest, left > reserve ? (left - reserve) / sizeof(double) : 0, next, t, w, s, pick, e));
        if (w.ntask == 0)
            break;
        wide_root_kernel<<<dim3(w.ntask, k.nseg), WARP, 0, s->stream>>>(w.k);
        PASS(wide_sums(w, s, e));
    }
    return SPX_OK;
}

} // namespace

#endif
