/* Provides the search for cosmic-ray hits (trace/reject.c, whose steps and thresholds these are; which pixel is a hit
 * is decided by the same functions, trace/reject_math.h), and the light that the variance of a model is made of
 * (trace/smooth.c).
 *
 * All bundles of a piece take part in a round until they find nothing new; the host sees how many pixels each has
 * found. Windows of pixels stand one after another, BEYOND rows beyond the CCD included, as excesses need neighbours.
 * Spots are there: what the model gains is gathered from the bins that cover a pixel. Bins that are solved again are
 * cut into runs that M does not couple, each of which is an iteration of its own, as on the CPU; long runs are worked
 * on in parts, whose recurrences begin `halo` bins early.
 *
 * Masks are the CPU's unless an excess is as close to a threshold as rounding. */
#ifndef SPX_EXTRACT_CUDA_REJECT_CUH
#define SPX_EXTRACT_CUDA_REJECT_CUH

#include <algorithm>
#include <vector>

#include "extract/cuda/cg.cuh"
#include "extract/cuda/chi2.cuh"
#include "extract/cuda/normal.cuh"
#include "extract/cuda/weights.cuh"

extern "C" {
#include "extract/end_math.h"
#include "extract/trace/reject_math.h"
}

namespace
{

enum {
    BEYOND = 2,     /* rows of a window before the CCD, and behind it */
    PART_MOST = 64, /* bins of a run that are worked on together at most, else there are parts */
    PART_BINS = 48, /* of that many at most, and of PART_LEAST at least */
    PART_LEAST = 32,
    RUN_THREADS = 256, /* of the block that cuts the bins of a bundle into runs */
    PIXEL_THREADS = 256,
    FIND_ROWS = 4, /* rows of a window that a block looks at */
    RENEW_WARPS = 4,
    LIST_BLOCKS = 2048, /* blocks at most of kernels that go through a list */
    RUN_BLOCKS = 3,     /* blocks for the bins of a part */
    MOST_RUN_STEPS = 100
};

const double MOST_LIGHT = 1e9; /* of a pixel, electrons */

/* Of a run: its bins first .. last - 1, worked on from begin to end - 1; `number` of the parts of run `run`, which
 * begin in the scratch memory at row `scratch`. */
struct run_part {
    int first, last, begin, end, run, number, scratch;
};

/* What the search has on the device; arrays of pixels are [nbundle][high][wide]. */
struct search {
    int high;
    size_t npixel;             /* high * wide */
    int most_runs, most_parts; /* of a bundle */
    int scratch_rows;          /* of a bundle */
    double *model;
    float *data, *ivar, *free;        /* ivar: with nothing rejected; free: 1 - leverage */
    float *most_ivar, *readnoise;     /* 1/variance, or more; NULL: the variance is 1/ivar */
    unsigned char *flag;              /* SPX_REJECT_... */
    unsigned char *dirty;             /* [nbundle][high] rows with another model, or others rejected, and around */
    int *row_begin, *row_end;         /* [high][lanes] bins that touch a row: first, and one past the last */
    double *first, *diagonal, *whole; /* [n][lanes] diagonal of M at first and now, seen at first */
    double *in_model, *step;          /* [n][lanes] flux that the model has, and gets */
    double *untied;                   /* [n][lanes] element of M with the next bin, where they are tied: without that */
    double *inverse;                  /* [n][m + 1][lanes] of the fibres' own blocks */
    double *scratch;                  /* [scratch_rows][lanes] L^-1 r */
    int *tile_begin, *tile_end;       /* as in the workspace, of tiles of windows */
    unsigned char *tied;              /* [n][lanes] tied to the next */
    unsigned *touched;                /* [n][lanes] bits: bins to get new equations, */
    unsigned char *near;              /* [nbundle][n] bins of which any fibre's are, */
    int *ntouched;                    /* [1] and their number, */
    unsigned *bin;                    /* [n][lanes] and a list of them, but for those whose ties are others */
    size_t touched_bytes;             /* of these, but for the list */
    unsigned char *run;               /* [nbundle][n] bins near these, in runs */
    unsigned char *busy;              /* [nbundle][nseg] segments with such bins */
    run_part *part;                   /* [nbundle][most_parts] */
    int *nrun, *npart;                /* [nbundle] */
    int *parts_of;                    /* [nbundle][most_runs] */
    double *sums, *scalar;            /* [nbundle][most_runs][sums_of()], [SCALARS] */
    int *ready, *stuck;               /* [nbundle][most_runs] */
    int *active, *state;              /* [nbundle] takes part; RUNS_... */
    int *count;                       /* [nbundle + 1] pixels that were found, and, in the end, of all bundles */
    unsigned long long *found;        /* [nbundle][npixel] a list of them: twice the place, 1 more for a strong one */
    unsigned *list;                   /* [nbundle][npixel] in the place of `free`: pixels of the frame, in the end */
};

enum { RUNS_DONE, RUNS_BUSY, RUNS_FAILED };
enum { FIND_NEW, FIND_BACK, FIND_SPILLED, FIND_OUTSIDE };

__device__ __host__ inline size_t sums_of(const params &k, const search &v)
{
    return (size_t)v.most_parts * (bundle_blocks(k) > RUN_BLOCKS ? bundle_blocks(k) : (int)RUN_BLOCKS);
}

/* Bins between runs of different iterations. */
__device__ __host__ inline int run_gap(const params &k)
{
    return (int)spx_reject_apart((size_t)k.depth);
}

/* Tiles of a window. */
__device__ __host__ inline int window_tiles(const params &k, const search &v)
{
    return (v.high + k.tile_rows - 1) / k.tile_rows;
}

void lay_out_search(arena &m, params &k, search &v)
{
    const size_t n = k.n, lanes = k.lanes, row = n * lanes, nb = k.nbundle;
    lay_out_solution(m, k);
    v = {};
    v.high = (int)k.ccd_ny + 2 * BEYOND;
    v.npixel = (size_t)v.high * k.wide;
    v.most_runs = k.n / (SPX_REJECT_AROUND + 1 + run_gap(k)) + 2;
    v.most_parts = k.n / PART_LEAST + v.most_runs + 1;
    v.scratch_rows = k.n + v.most_parts * 2 * k.halo;
    v.model = m.take<double>(nb * v.npixel);
    v.data = m.take<float>(nb * v.npixel);
    v.ivar = m.take<float>(nb * v.npixel);
    v.free = m.take<float>(nb * v.npixel);
    v.list = (unsigned *)v.free;
    v.most_ivar = k.model_variance ? m.take<float>(nb * v.npixel) : v.ivar;
    v.readnoise = k.model_variance ? m.take<float>(nb * v.npixel) : NULL;
    v.flag = m.take<unsigned char>(nb * v.npixel);
    v.dirty = m.take<unsigned char>(nb * v.high);
    v.row_begin = m.take<int>(v.high * lanes);
    v.row_end = m.take<int>(v.high * lanes);
    v.first = m.take<double>(row);
    v.diagonal = m.take<double>(row);
    v.whole = m.take<double>(row);
    v.in_model = m.take<double>(row);
    v.step = m.take<double>(row);
    v.untied = m.take<double>(row);
    v.inverse = m.take<double>(row * (k.m + 1));
    v.scratch = m.take<double>((size_t)v.scratch_rows * lanes);
    v.tile_begin = m.take<int>((size_t)window_tiles(k, v) * lanes);
    v.tile_end = m.take<int>((size_t)window_tiles(k, v) * lanes);
    v.tied = m.take<unsigned char>(row);
    const size_t before = m.used;
    v.touched = m.take<unsigned>((row + 31) / 32);
    v.near = m.take<unsigned char>(nb * n);
    v.ntouched = m.take<int>(1);
    v.touched_bytes = m.used - before;
    v.bin = m.take<unsigned>(row);
    v.run = m.take<unsigned char>(nb * n);
    v.busy = m.take<unsigned char>(nb * k.nseg);
    v.part = m.take<run_part>(nb * v.most_parts);
    v.nrun = m.take<int>(nb);
    v.npart = m.take<int>(nb);
    v.parts_of = m.take<int>(nb * v.most_runs);
    v.sums = m.take<double>(nb * v.most_runs * sums_of(k, v));
    v.scalar = m.take<double>(nb * v.most_runs * SCALARS);
    v.ready = m.take<int>(nb * v.most_runs);
    v.stuck = m.take<int>(nb * v.most_runs);
    v.active = m.take<int>(nb);
    v.count = m.take<int>(nb + 1);
    v.found = m.take<unsigned long long>(nb * v.npixel);
    v.state = m.take<int>(nb);
}

/* ---- pixels ---- */

__device__ spx_reject_window window_of(const params &k, const search &v, int b)
{
    const size_t at = b * v.npixel;
    return {(size_t)k.wide, k.reject,     v.data + at, v.most_ivar + at, v.readnoise ? v.readnoise + at : NULL,
            v.free + at,    v.model + at, v.flag + at};
}

/* Pixels and weights of the windows; nothing is known of them. Thread (pixel, bundle). */
__global__ void windows_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int b = blockIdx.y;
    if (i >= v.npixel)
        return;
    const long y = (long)(i / k.wide) - BEYOND, x = (long)(i % k.wide) + k.x0[b];
    const bool in = y >= k.y0[b] && y < k.y1[b] && x >= 0 && x < k.ccd_nx;
    const float weight = in ? k.weight[y * k.ccd_nx + x] : 0.0f;
    const size_t at = b * v.npixel + i;
    v.ivar[at] = weight;
    v.data[at] = weight > 0.0f ? k.data[y * k.ccd_nx + x] : 0.0f;
    v.model[at] = 0.0;
    v.flag[at] = 0;
    if (v.readnoise)
        v.readnoise[at] = in ? k.readnoise[y * k.ccd_nx + x] : 1.0f;
}

/* What the bins of a trace that cover a row have there. */
struct row_of_trace {
    int y, column, begin, end; /* row of the CCD; bins */

    __device__ row_of_trace(const params &k, const search &v, int window_row, int column_)
        : y(window_row - BEYOND), column(column_), begin(v.row_begin[(size_t)window_row * k.lanes + column_]),
          end(v.row_end[(size_t)window_row * k.lanes + column_])
    {
    }
    /* Columns x0 .. x1 - 1 that they cover. */
    __device__ void columns(const params &k, int *x0, int *x1) const
    {
        *x0 = INT_MAX;
        *x1 = INT_MIN;
        for (int bin = begin; bin < end; bin++)
            if (covers(k, bin)) {
                const int xc = k.at[(size_t)bin * k.lanes + column].xc;
                *x0 = min(*x0, xc);
                *x1 = max(*x1, xc + k.nx);
            }
    }
    __device__ bool covers(const params &k, int bin) const
    {
        const size_t i = (size_t)bin * k.lanes + column;
        return k.state[i] == SPX_TRACE_SPOT && y >= k.at[i].yc && y < k.at[i].yc + k.ny;
    }
    /* Part of a bin's light in column x; 0 where it has none. *lit: whether its spot covers the pixel. */
    __device__ double light(const params &k, int bin, int x, bool *lit) const
    {
        const size_t i = (size_t)bin * k.lanes + column;
        const int dx = x - k.at[i].xc;
        *lit = covers(k, bin) && dx >= 0 && dx < k.nx;
        return *lit ? k.spot[i * k.npix + (size_t)(y - k.at[i].yc) * k.nx + dx] : 0.0;
    }
};

/* Trace of a thread in kernels of (columns of a spot, rows, traces that share no pixel, bundles); -1: none. */
__device__ int trace_beside(const params &k, int beside)
{
    const int f = beside + (int)blockIdx.y * (k.reach + 1), column = (int)blockIdx.z * k.nl + f;
    return f < k.nl && k.fibre[column] >= 0 ? column : -1;
}

/* Rows near the CCD's end to end: of windows, where excesses need a model. */
__device__ int window_row(const search &v)
{
    const int row = (int)(blockIdx.x * blockDim.y + threadIdx.y) + 1;
    return row < v.high - 1 ? row : -1;
}

/* Leverage of the pixels, w a^T M^-1 a with M of single fibres, into the model; and where hits are looked for, and
 * kept: not where there is light of wavelengths beyond the padding. M: half-bandwidth, or 0 for any. */
template <int M> __global__ void leverage_kernel(params k, search v, int beside)
{
    const int column = trace_beside(k, beside), row = window_row(v), b = blockIdx.z;
    if (column < 0 || row < 0)
        return;
    const row_of_trace t(k, v, row, column);
    int x0, x1;
    t.columns(k, &x0, &x1);
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *inverse = v.inverse + column;
    for (int x = x0 + (int)threadIdx.x; x < x1; x += blockDim.x) {
        double sum = 0.0, back[M + 1] = {};
        int flag = 0;
        bool lit;
        for (int bin = t.begin; bin < t.end; bin++) {
            const double a = t.light(k, bin, x, &lit);
            if (lit) {
                flag |= bin >= k.pad / 4 && bin < k.n - k.pad / 4 ? (int)SPX_REJECT_SEEN : 0;
                flag |= bin >= k.pad / 2 && bin < k.n - k.pad / 2 ? (int)SPX_REJECT_INNER : 0;
            }
            double other = inverse[bin * lrow] * a;
            if constexpr (M > 0) {
#pragma unroll
                for (int d = 1; d <= M; d++) /* without a branch, so that all are on their way together */
                    other += 2.0 * inverse[max(bin - d, 0) * lrow + d * lanes] * back[d];
#pragma unroll
                for (int d = M; d >= 2; d--)
                    back[d] = back[d - 1];
                back[1] = a;
            } else {
                for (int d = 1; d <= k.m && d <= bin - t.begin && a != 0.0; d++)
                    other += 2.0 * inverse[(bin - d) * lrow + d * lanes] * t.light(k, bin - d, x, &lit);
            }
            sum += a * other;
        }
        const int wx = x - k.x0[b];
        const size_t at = b * v.npixel + (size_t)row * k.wide + wx;
        if (wx >= 0 && wx < k.wide && v.ivar[at] > 0.0f) {
            v.model[at] += (double)v.ivar[at] * sum;
            v.flag[at] |= (unsigned char)flag;
        }
    }
}

/* Thread (pixel, bundle). */
__global__ void free_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y * v.npixel + i;
    if (i >= v.npixel)
        return;
    v.free[at] = spx_reject_free(v.model[at]);
    v.model[at] = 0.0;
}

/* Adds the steps of the bins of a trace, as far as there are any, to a tile, one after another; the next one's pixels
 * are on their way meanwhile. `spot`: this lane's first pixel of the trace's first bin. */
__device__ void add_steps(const params &k, const search &v, const tile &t, int column, int begin, int end,
                          const double *spot)
{
    const int lane = threadIdx.x % WARP;
    for (int bin0 = begin; bin0 < end; bin0 += WARP) {
        const double mine = bin0 + lane < end ? v.step[(size_t)(bin0 + lane) * k.lanes + column] : 0.0;
        const int place = mine != 0.0 ? t.place(k, bin0 + lane, end, column) : (int)NOWHERE;
        double ahead[PIXELS];
        unsigned left = __ballot_sync(FULL, place != NOWHERE);
        const auto fetch = [&]() {
            const int j = __ffs((int)left) - 1;
            t.fetch(spot + (size_t)(bin0 + j) * k.lanes * k.npix, __shfl_sync(FULL, place, j), ahead);
        };
        if (left != 0)
            fetch();
        while (left != 0) {
            const int j = __ffs((int)left) - 1, here = __shfl_sync(FULL, place, j);
            const double step = __shfl_sync(FULL, mine, j);
            double now[PIXELS];
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                now[i] = ahead[i];
            left &= left - 1;
            if (left != 0)
                fetch();
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                if (t.has(here + t.offset[i]))
                    t.at[here + t.offset[i]] = fma(step, now[i], t.at[here + t.offset[i]]);
            __syncwarp();
        }
    }
}

/* Adds A step to the model in rows that are dirty: one block a tile of a window, as fit_kernel(). Shared memory:
 * [tile_rows][row]. */
__global__ void __launch_bounds__(TILE_WARPS *WARP, 2) render_kernel(params k, search v)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP, b = blockIdx.y;
    const int row0 = (int)blockIdx.x * k.tile_rows, rows = min(k.tile_rows, v.high - row0);
    bool any = false;
    for (int r = threadIdx.x; r < rows && v.active[b]; r += blockDim.x)
        any |= v.dirty[(size_t)b * v.high + row0 + r] != 0;
    if (!__syncthreads_or(any))
        return;
    const int *begin = v.tile_begin + blockIdx.x * k.lanes + b * k.nl;
    const int *end = v.tile_end + blockIdx.x * k.lanes + b * k.nl;
    tile t = {shared, k.tile_rows * k.row, row0 - BEYOND, k.x0[b], {}};
    for (int i = threadIdx.x; i < t.size; i += blockDim.x)
        shared[i] = 0.0;
    for (int first = 0; first < k.npix; first += PIXELS * WARP) {
        t.begin_part(k, first);
        for (int beside = 0; beside <= k.reach; beside++) {
            __syncthreads();
            for (int f = beside + warp * (k.reach + 1); f < k.nl; f += warps * (k.reach + 1)) {
                const int column = b * k.nl + f;
                if (k.fibre[column] >= 0)
                    add_steps(k, v, t, column, begin[f], end[f], k.spot + (size_t)column * k.npix + first + lane);
            }
        }
    }
    __syncthreads();
    double *model = v.model + b * v.npixel + (size_t)row0 * k.wide;
    for (int i = threadIdx.x; i < rows * k.wide; i += blockDim.x)
        model[i] += shared[i / k.wide * k.row + i % k.wide];
}

/* Lists pixels, and counts them; all threads of a warp are here. */
__device__ void list_found(const params &k, const search &v, int b, size_t i, bool found, bool strong)
{
    const int lane = threadIdx.x % WARP;
    const unsigned all = __ballot_sync(FULL, found);
    int place = 0;
    if (all == 0)
        return;
    if (lane == 0) {
        atomicAdd(&v.count[b], __popc(all));
        place = atomicAdd(&v.count[k.nbundle], __popc(all));
    }
    place = __shfl_sync(FULL, place, 0) + __popc(all & ((1u << lane) - 1));
    if (found)
        v.found[place] = 2 * (b * v.npixel + i) + (unsigned)strong;
}

/* Finds pixels: block (rows, bundle). Those to be rejected have to be large beside the pixels around, which a warp
 * looks at for each candidate. Shared memory: [FIND_ROWS wide] places of candidates. */
__global__ void find_kernel(params k, search v, int what)
{
    extern __shared__ int candidate[];
    __shared__ int ncandidate;
    const int b = blockIdx.y, row0 = BEYOND + (int)blockIdx.x * FIND_ROWS, lane = threadIdx.x % WARP;
    const size_t base = (size_t)row0 * k.wide;
    if (!v.active[b])
        return;
    const spx_reject_window w = window_of(k, v, b);
    if (threadIdx.x == 0)
        ncandidate = 0;
    __syncthreads();
    for (int first = 0; first < FIND_ROWS * k.wide; first += PIXEL_THREADS) {
        const int at = first + (int)threadIdx.x, row = row0 + at / k.wide, y = row - BEYOND;
        bool found = false;
        if (at < FIND_ROWS * k.wide && y >= k.y0[b] && y < k.y1[b]) {
            const size_t i = base + at;
            if (what == FIND_NEW) {
                if (v.dirty[(size_t)b * v.high + row] && spx_reject_candidate(&w, i) > 0.0)
                    candidate[atomicAdd(&ncandidate, 1)] = at;
            } else if (what == FIND_BACK) {
                found = spx_reject_comes_back(&w, i);
            } else if (what == FIND_SPILLED) {
                found = spx_reject_is_spilled_on(&w, i);
            } else {
                found = spx_reject_is_outside(&w, i);
            }
        }
        list_found(k, v, b, base + at, found, false);
    }
    __syncthreads();
    for (int j = threadIdx.x / WARP; j < ncandidate; j += PIXEL_THREADS / WARP) {
        const size_t i = base + candidate[j];
        double most = lane < 25 ? spx_reject_excess_beside(&w, i, lane % 5 - 2, lane / 5 - 2) : 0.0;
        const double z = __shfl_sync(FULL, most, 12); /* its own */
        for (int s = (int)WARP / 2; s > 0; s /= 2)
            most = fmax(most, __shfl_xor_sync(FULL, most, s));
        list_found(k, v, b, i, lane == 0 && z >= SPX_REJECT_WORST * most, z > fmax(SPX_REJECT_STRONG, w.sigma));
    }
}

/* Which of the rejected pixels are strong: what was may have been another's light. Thread (pixel, bundle). */
__global__ void strong_hits_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int b = blockIdx.y;
    if (i >= v.npixel || !v.active[b] || !(v.flag[b * v.npixel + i] & SPX_REJECT_HIT))
        return;
    const spx_reject_window w = window_of(k, v, b);
    unsigned char *flag = v.flag + b * v.npixel + i;
    *flag = (unsigned char)((*flag & ~SPX_REJECT_IS_STRONG) | (spx_reject_is_strong(&w, i) ? SPX_REJECT_IS_STRONG : 0));
}

/* A bin's equations are to be made anew: whether nobody has said so before. */
__device__ bool touch(const params &k, const search &v, size_t i)
{
    v.near[(i % k.lanes / k.nl) * k.n + i / k.lanes] = 1;
    return !(atomicOr(&v.touched[i / 32], 1u << i % 32) >> i % 32 & 1);
}

__device__ bool is_touched(const search &v, size_t i)
{
    return v.touched[i / 32] >> i % 32 & 1;
}

/* Rejects the pixels that were found, or takes them back; bins whose spots cover them are touched. A warp each. */
__global__ void apply_kernel(params k, search v, bool back)
{
    const int lane = threadIdx.x % WARP, warps = (int)(gridDim.x * blockDim.x / WARP), n = v.count[k.nbundle];
    for (int j = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP); j < n; j += warps) {
        const unsigned long long found = v.found[j];
        const size_t at = found / 2, pixel = at % v.npixel;
        const int b = (int)(at / v.npixel), row = (int)(pixel / k.wide), x = (int)(pixel % k.wide) + k.x0[b];
        if (!v.active[b])
            continue;
        if (lane == 0)
            v.flag[at] = (unsigned char)(back ? v.flag[at] & ~(SPX_REJECT_HIT | SPX_REJECT_IS_STRONG)
                                              : v.flag[at] | SPX_REJECT_HIT | (found & 1 ? SPX_REJECT_IS_STRONG : 0));
        for (int f = lane; f < k.nl; f += WARP) {
            const int column = b * k.nl + f;
            if (k.fibre[column] < 0)
                continue;
            const row_of_trace t(k, v, row, column);
            for (int bin = t.begin; bin < t.end; bin++) {
                const size_t i = (size_t)bin * k.lanes + column;
                bool lit;
                (void)t.light(k, bin, x, &lit);
                if (lit && touch(k, v, i))
                    v.bin[atomicAdd(v.ntouched, 1)] = (unsigned)i;
            }
        }
    }
}

/* ---- equations ---- */

/* The diagonal of M before regularisation, and what is seen of the spots. One thread a bin. */
__global__ void keep_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (size_t)k.n * k.lanes)
        return;
    v.first[i] = v.diagonal[i] = k.mat[i / k.lanes * k.nelem * k.lanes + i % k.lanes];
    v.whole[i] = k.seen[i];
    v.tied[i] = 0;
}

/* Spectra that are smoothed where they have no lines, as spx_trace_smooth_light() has them, into `step`: the median of
 * the bins around, or, with `lines`, the flux itself where it is more than 4 errors away from that. One thread a bin.
 */
__global__ void smooth_kernel(params k, search v, bool lines)
{
    enum { HALF = SPX_TRACE_SMOOTH_HALF };
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const auto known = [&](int at) {
        const size_t j = (size_t)at * k.lanes + column;
        return at >= 0 && at < k.n && k.state[j] == SPX_TRACE_SPOT && k.w[j] > 0.0;
    };
    if (!v.active[column / k.nl] || k.fibre[column] < 0) {
        v.step[i] = 0.0;
        return;
    }
    double flux[2 * HALF + 1], upper = 0.0, lower = 0.0;
    int count = 0;
#pragma unroll
    for (int j = 0; j <= 2 * HALF; j++) {
        const bool there = known(bin + j - HALF);
        flux[j] = there ? k.x[(size_t)(bin + j - HALF) * k.lanes + column] : INFINITY;
        count += there;
    }
#pragma unroll
    for (int j = 0; j <= 2 * HALF; j++) { /* its rank; of equal ones the first comes first */
        int rank = 0;
#pragma unroll
        for (int l = 0; l <= 2 * HALF; l++)
            rank += l < j ? flux[l] <= flux[j] : l > j ? flux[l] < flux[j] : 0;
        upper = rank == count / 2 && count > 0 ? flux[j] : upper;
        lower = rank == count / 2 - 1 ? flux[j] : lower;
    }
    const double middle = count == 0 ? 0.0 : count % 2 != 0 ? upper : lower + (upper - lower) / 2.0;
    const double own = k.x[i], off = own - middle;
    const double variance = v.inverse[((size_t)bin * (k.m + 1)) * k.lanes + column];
    v.step[i] =
        lines && known(bin) && off * off > SPX_TRACE_SMOOTH_LINE * SPX_TRACE_SMOOTH_LINE * variance ? own : middle;
}

/* 1/variance of the pixels, or more, from the light of smoothed spectra, which is no model. Thread (pixel, bundle). */
__global__ void most_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y * v.npixel + i;
    if (i >= v.npixel)
        return;
    v.most_ivar[at] =
        v.ivar[at] > 0.0f ? (float)(1.0 / spx_model_variance((double)v.readnoise[at], v.model[at])) : 0.0f;
    v.model[at] = 0.0;
}

/* Adds the light of the windows to that of the frame. Thread (pixel, bundle). */
__global__ void light_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int b = blockIdx.y;
    const long y = (long)(i / k.wide) - BEYOND, x = (long)(i % k.wide) + k.x0[b];
    if (i >= v.npixel || !v.active[b] || y < k.y0[b] || y >= k.y1[b] || x < 0 || x >= k.ccd_nx)
        return;
    const double light = fmin(fmax(v.model[b * v.npixel + i], -MOST_LIGHT), MOST_LIGHT);
    if (light != 0.0)
        atomicAdd((unsigned long long *)k.light + y * k.ccd_nx + x, (unsigned long long)llrint(light / LIGHT_UNIT));
}

/* All of the flux is to be in the model. One thread a bin. */
__global__ void all_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (size_t)k.n * k.lanes)
        v.step[i] = v.in_model[i] = k.x[i];
}

/* Band of the inverse of the fibres' own blocks from their factors (Takahashi's recurrence, as inverse_row() of
 * calib/band_lanes.h): Z(j, j + d) at d; block (lanes, segment). */
template <int M> __global__ void inverse_kernel(params k, search v)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const segment s(k, blockIdx.y, k.halo);
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *l = k.ldl + column;
    double *to = v.inverse + column;
    if constexpr (M > 0) {
        inverse_window<M> z;
        stream<M + 1>(
            s.end - s.first, shared + threadIdx.x,
            [&](int step, int i) { return l + (size_t)(s.end - 1 - step) * lrow + (size_t)i * lanes; },
            [&](int step, double(&in)[M + 1]) {
                const int j = s.end - 1 - step;
                double now[M + 1];
                now[0] = in[0];
#pragma unroll
                for (int i = 1; i <= M; i++) {
                    double sum = 0.0;
#pragma unroll
                    for (int t = 1; t <= M; t++)
                        sum = fma(-in[t], z.at(i, t), sum);
                    now[i] = sum;
                    now[0] = fma(-in[i], sum, now[0]);
                }
                z.next(now[0], now);
                if (j < s.last)
#pragma unroll
                    for (int i = 0; i <= M; i++)
                        to[j * lrow + i * lanes] = now[i];
            });
    } else {
        for (int j = k.n - 1; j >= 0; j--) {
            const double *lj = l + j * lrow;
            double own = lj[0];
            for (int i = 1; i <= k.m; i++) {
                double sum = 0.0;
                for (int t = 1; t <= k.m && j + i < k.n; t++)
                    if (j + t < k.n)
                        sum = fma(-lj[t * lanes], to[(j + min(i, t)) * lrow + abs(t - i) * lanes], sum);
                to[j * lrow + i * lanes] = sum;
                own = fma(-lj[i * lanes], sum, own);
            }
            to[j * lrow] = own;
        }
    }
}

/* Takes the ties to the next bins off M, but for its diagonal. One thread a bin. */
__global__ void untie_kernel(params k, search v)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes && v.active[i % k.lanes / k.nl] && v.tied[i])
        k.mat[((size_t)(i / k.lanes) * k.nelem + 1) * k.lanes + i % k.lanes] = v.untied[i];
}

/* Equations of a touched bin, by a warp. weighted: shared memory [npix], the spot times weights. */
__device__ void renew(const params &k, const search &v, int i, double *weighted)
{
    const int lane = threadIdx.x % WARP, bin = i / k.lanes, column = i % k.lanes, b = column / k.nl, f = column % k.nl;
    const spx_bin_geometry at = k.at[i];
    const double *spot = k.spot + (size_t)i * k.npix;
    const size_t window = b * v.npixel;
    double value = 0.0, weight = 0.0, seen = 0.0, own = 0.0;
    for (int p = lane; p < k.npix; p += WARP) {
        const long row = at.yc + p / k.nx + BEYOND, wx = at.xc + p % k.nx - k.x0[b];
        double w = 0.0, pixel = 0.0;
        if (row >= 0 && row < v.high && wx >= 0 && wx < k.wide) {
            const size_t from = window + (size_t)(row * k.wide + wx);
            w = v.flag[from] & SPX_REJECT_HIT ? 0.0 : (double)v.ivar[from];
            pixel = (double)v.data[from];
        }
        const double s = spot[p], ws = s * w;
        weighted[p] = ws;
        weight += ws;
        value = fma(ws, pixel, value);
        seen += w > 0.0 ? s : 0.0;
        own = fma(ws, s, own);
    }
    value = warp_sum(value);
    weight = warp_sum(weight);
    seen = warp_sum(seen);
    own = warp_sum(own);
    double *mat = k.mat + (size_t)bin * k.nelem * k.lanes + column;
    if (lane == 0) {
        k.y[i] = value;
        k.w[i] = weight;
        k.seen[i] = seen;
        v.diagonal[i] = *mat = own;
    }
    __syncwarp();
    const int width = k.nx <= WARP / 2 ? WARP / 2 : (int)WARP;
    for (int df = 0; df <= k.reach && f + df < k.nl; df++)
        for (int dk = df == 0 ? 1 : k.lo[df]; dk <= k.hi[df]; dk++) {
            if (bin + dk < 0 || bin + dk >= k.n)
                continue;
            const size_t other = (size_t)(bin + dk) * k.lanes + column + df;
            if (!is_touched(v, other))
                continue;
            const spx_bin_geometry its = k.at[other];
            const double *another = k.spot + other * k.npix;
            const int x0 = max(at.xc, its.xc), x1 = min(at.xc, its.xc) + k.nx;
            const int y0 = max(at.yc, its.yc), y1 = min(at.yc, its.yc) + k.ny;
            if (x0 >= x1 || y0 >= y1)
                continue;
            double sum = 0.0;
            for (int y = y0 + lane / width; y < y1; y += WARP / width)
                for (int x = x0 + lane % width; x < x1; x += width)
                    sum = fma(weighted[(y - at.yc) * k.nx + x - at.xc],
                              another[(size_t)(y - its.yc) * k.nx + x - its.xc], sum);
            sum = warp_sum(sum);
            if (lane == 0)
                mat[(size_t)(k.first[df] + dk - k.lo[df]) * k.lanes] = sum;
        }
}

/* Equations of the bins in the list, all of which have spots: a warp each. Shared memory: [RENEW_WARPS][npix]. */
__global__ void __launch_bounds__(RENEW_WARPS *WARP) renew_kernel(params k, search v)
{
    extern __shared__ double shared[];
    const int warp = threadIdx.x / WARP, n = *v.ntouched;
    for (int j = blockIdx.x * RENEW_WARPS + warp; j < n; j += gridDim.x * RENEW_WARPS) {
        renew(k, v, (int)v.bin[j], shared + warp * k.npix);
        __syncwarp();
    }
}

/* Whether a bin has lost so much light that it is tied to the next, or the next to it. */
__device__ bool is_tied(const params &k, const search &v, int bin, int column)
{
    if (bin < 0 || bin + 1 >= k.n || k.hi[0] < 1)
        return false;
    const size_t i = (size_t)bin * k.lanes + column, next = i + k.lanes;
    const double left = 1.0 - SPX_REJECT_TIED_LOSS;
    return k.state[i] == SPX_TRACE_SPOT && k.state[next] == SPX_TRACE_SPOT &&
           (k.seen[i] < left * v.whole[i] || k.seen[next] < left * v.whole[next]);
}

/* Regularisation, and ties of bins that have lost much of their light: a bin without any makes a hole that looks like
 * a hit. Where there are others than before, bins are touched. The iterations begin with no direction. One thread a
 * bin. */
__global__ void tie_kernel(params k, search v)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    if (!v.active[column / k.nl] || k.fibre[column] < 0)
        return;
    double *mat = k.mat + (size_t)bin * k.nelem * k.lanes + column,
           own = v.diagonal[i] + regularisation(k, bin, column);
    if (is_tied(k, v, bin - 1, column))
        own += SPX_REJECT_TIED_STRENGTH * v.first[i - k.lanes];
    const bool tied = is_tied(k, v, bin, column);
    if (tied) {
        own += SPX_REJECT_TIED_STRENGTH * v.first[i];
        v.untied[i] = mat[k.lanes];
        mat[k.lanes] -= SPX_REJECT_TIED_STRENGTH * v.first[i];
    }
    *mat = own;
    if (tied != (v.tied[i] != 0)) {
        (void)touch(k, v, i);
        (void)touch(k, v, i + k.lanes);
    }
    v.tied[i] = tied;
    k.d[i] = 0.0;
}

/* ---- runs ---- */

/* Bins beside those of `bits` up to `reach` bins further, reach < 32, in both directions: those of word `word`. */
__device__ unsigned widened(const unsigned *bits, int words, int word, int reach)
{
    const auto at = [&](int i) { return i >= 0 && i < words ? (unsigned long long)bits[i] : 0ull; };
    unsigned long long up = at(word) << 32 | at(word - 1), down = at(word + 1) << 32 | at(word);
    for (int have = 0; have < reach;) { /* bits are `have` further at most */
        const int more = min(have + 1, reach - have);
        up |= up << more;
        down |= down >> more;
        have += more;
    }
    return (unsigned)(up >> 32) | (unsigned)down;
}

/* The next bin from `bin` on that is in `bits`, or not; n: none. */
__device__ int next_bin(const unsigned *bits, int n, int bin, bool in)
{
    for (int word = bin / WARP; word * WARP < n; word++) {
        unsigned left = in ? bits[word] : ~bits[word];
        left &= word == bin / WARP ? FULL << bin % WARP : FULL;
        if (left != 0)
            return min(word * (int)WARP + __ffs((int)left) - 1, n);
    }
    return n;
}

/* The last bin up to `bin` that is in `bits`; -1: none. */
__device__ int last_bin(const unsigned *bits, int bin)
{
    for (int word = bin / WARP; word >= 0; word--) {
        const unsigned left = bits[word] & (word == bin / WARP ? FULL >> (WARP - 1 - bin % WARP) : FULL);
        if (left != 0)
            return word * (int)WARP + WARP - 1 - __clz((int)left);
    }
    return -1;
}

/* Bins to solve again, in runs: one block a bundle. Shared memory: two bits for each bin. */
__global__ void runs_kernel(params k, search v)
{
    extern __shared__ unsigned bits[];
    static_assert(SPX_REJECT_AROUND < 32, "bins beside a word are in the next one");
    const int b = blockIdx.x, n = k.n, words = (n + WARP - 1) / WARP, gap = run_gap(k);
    unsigned *around = bits + words;
    if (!v.active[b])
        return;
    for (int bin = threadIdx.x; bin < words * (int)WARP; bin += blockDim.x) {
        const unsigned all = __ballot_sync(FULL, bin < n && v.near[(size_t)b * n + bin]);
        if (bin % WARP == 0)
            bits[bin / WARP] = all;
    }
    __syncthreads();
    for (int word = threadIdx.x; word < words; word += blockDim.x)
        around[word] = widened(bits, words, word, SPX_REJECT_AROUND) &
                       (n - word * (int)WARP >= (int)WARP ? FULL : (1u << (n - word * (int)WARP)) - 1);
    __syncthreads();
    for (int bin = threadIdx.x; bin < words * (int)WARP; bin += blockDim.x) {
        bool in = bin < n && around[bin / WARP] >> bin % WARP & 1;
        if (bin < n && !in) { /* between two that are close to each other */
            const int before = last_bin(around, bin), after = next_bin(around, n, bin, true);
            in = before >= 0 && after < n && after - before - 1 < gap;
        }
        if (bin < n)
            v.run[(size_t)b * n + bin] = in;
        const unsigned all = __ballot_sync(FULL, in);
        if (bin % WARP == 0)
            bits[bin / WARP] = all;
    }
    __syncthreads();
    for (int s = threadIdx.x; s < k.nseg; s += blockDim.x) {
        const segment own(k, s, 0);
        v.busy[b * k.nseg + s] = next_bin(bits, n, own.first, true) < own.last;
    }
    if (threadIdx.x != 0)
        return;
    int nrun = 0, npart = 0, rows = 0;
    for (int begin = next_bin(bits, n, 0, true); begin < n && nrun < v.most_runs;) {
        const int end = next_bin(bits, n, begin, false), length = end - begin;
        const int parts = k.nseg > 1 && length > PART_MOST ? (length + PART_BINS - 1) / PART_BINS : 1;
        for (int i = 0; i < parts; i++) {
            run_part p;
            p.first = begin + (int)((long)length * i / parts);
            p.last = begin + (int)((long)length * (i + 1) / parts);
            p.begin = parts > 1 ? max(p.first - k.halo / 2, begin) : p.first;
            p.end = parts > 1 ? min(p.last + k.halo / 2, end) : p.last;
            p.run = nrun;
            p.number = i;
            p.scratch = rows;
            rows += p.end - p.begin;
            v.part[(size_t)b * v.most_parts + npart++] = p;
        }
        const size_t at = (size_t)b * v.most_runs + nrun++;
        v.parts_of[at] = parts;
        v.ready[at] = v.stuck[at] = 0;
        begin = next_bin(bits, n, end, true);
    }
    v.nrun[b] = nrun;
    v.npart[b] = npart;
}

/* Rows that the bins of runs touch, and those near them. One thread a bin. */
__global__ void dirty_kernel(params k, search v)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, b = i % k.lanes / k.nl;
    if (!v.active[b] || !v.run[(size_t)b * k.n + bin] || k.state[i] != SPX_TRACE_SPOT)
        return;
    const int row = k.at[i].yc + BEYOND;
    for (int y = max(row - 2, 0); y < min(row + k.ny + 2, v.high); y++)
        v.dirty[(size_t)b * v.high + y] = 1;
}

/* Factors where runs are; block (lanes, segment). */
template <int M> __global__ void run_factors_kernel(params k, search v)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const int b = column / k.nl;
    if (v.active[b] && v.busy[b * k.nseg + blockIdx.y])
        factorise<M>(k, column, blockIdx.y, shared);
}

__global__ void run_seams_kernel(params k, search v)
{
    const int column = blockIdx.x * WARP + threadIdx.x, seg = blockIdx.z + 1;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const int b = column / k.nl;
    if (v.active[b] && v.busy[b * k.nseg + seg] && v.busy[b * k.nseg + seg - 1])
        look_at_seam(k, column, blockIdx.y, seg);
}

__device__ iteration of_run(const params &k, const search &v, int b, int run)
{
    const size_t i = (size_t)b * v.most_runs + run;
    return {v.sums + i * sums_of(k, v), &v.ready[i], v.scalar + SCALARS * i, &v.stuck[i], SPX_REJECT_TOLERANCE, false};
}

/* The part of a block (part, bundle) of threads; NULL: none. */
__device__ const run_part *part_of(const search &v, int number, int b)
{
    return v.active[b] && number < v.npart[b] ? v.part + (size_t)b * v.most_parts + number : NULL;
}

/* Bins of a part: body(bin, fibre in the bundle, lane) by the threads of blocks (part, bundle, some of these). */
template <class BODY> __device__ void for_bins(const params &k, const run_part *p, int b, BODY body)
{
    const int first = blockIdx.z * blockDim.x + threadIdx.x, next = gridDim.z * blockDim.x;
    for (int i = first; i < (p->last - p->first) * k.nl; i += next) {
        const int f = i % k.nl, column = b * k.nl + f;
        if (k.fibre[column] >= 0)
            body(p->first + i / k.nl, f, column);
    }
}

/* What is left of y: r = y - M x. */
__global__ void __launch_bounds__(MULTIPLY_THREADS, 2) run_start_kernel(params k, search v)
{
    const int b = blockIdx.y;
    const run_part *p = part_of(v, blockIdx.x, b);
    if (p == NULL)
        return;
    for_bins(k, p, b, [&](int bin, int f, int column) {
        const size_t at = (size_t)bin * k.lanes + column;
        k.r[at] = k.y[at] - product_at(k, bin, f, column, k.x);
    });
}

/* q = M d, and the inner product of both; runs that are done make no step any more. */
__global__ void __launch_bounds__(MULTIPLY_THREADS, 2) run_multiply_kernel(params k, search v)
{
    __shared__ double partial[MULTIPLY_THREADS / WARP];
    const int b = blockIdx.y;
    const run_part *p = part_of(v, blockIdx.x, b);
    if (p == NULL)
        return;
    const iteration of = of_run(k, v, b, p->run);
    if (!is_above_limit(of.scalar)) {
        if (p->number == 0 && threadIdx.x == 0 && blockIdx.z == 0)
            of.scalar[ALPHA] = 0.0;
        return;
    }
    double product = 0.0;
    for_bins(k, p, b, [&](int bin, int f, int column) {
        const size_t at = (size_t)bin * k.lanes + column;
        const double q = product_at(k, bin, f, column, k.d);
        k.q[at] = q;
        product = fma(q, k.d[at], product);
    });
    product = spx::block_sum<MULTIPLY_THREADS / WARP>(product, partial);
    add_up(of, p->number * (int)gridDim.z + (int)blockIdx.z,
           v.parts_of[(size_t)b * v.most_runs + p->run] * (int)gridDim.z, product, STEP);
}

/* r -= alpha q. */
__global__ void run_remainder_kernel(params k, search v)
{
    const int b = blockIdx.y;
    const run_part *p = part_of(v, blockIdx.x, b);
    if (p == NULL)
        return;
    const double alpha = of_run(k, v, b, p->run).scalar[ALPHA];
    if (alpha != 0.0)
        for_bins(k, p, b, [&](int bin, int, int column) {
            const size_t at = (size_t)bin * k.lanes + column;
            k.r[at] -= alpha * k.q[at];
        });
}

/* z = P^-1 r and the inner product of both; block (lanes of a part, bundle). */
template <int M> __global__ void run_precondition_kernel(params k, search v, int what)
{
    extern __shared__ double shared[];
    const int b = blockIdx.y, block = blockIdx.x % bundle_blocks(k), f = block * WARP + threadIdx.x;
    const run_part *p = part_of(v, blockIdx.x / bundle_blocks(k), b);
    if (p == NULL)
        return;
    const iteration of = of_run(k, v, b, p->run);
    if (what == NEXT && of.scalar[ALPHA] == 0.0)
        return;
    const int column = b * k.nl + f;
    double product = 0.0;
    if (f < k.nl && k.fibre[column] >= 0)
        product = precondition<M>(k, column, p->first, p->last, p->begin, p->end,
                                  v.scratch + (size_t)p->scratch * k.lanes + column, shared + threadIdx.x);
    product = warp_sum(product);
    add_up(of, p->number * bundle_blocks(k) + block, v.parts_of[(size_t)b * v.most_runs + p->run] * bundle_blocks(k),
           product, what);
}

/* x += alpha d, and the next direction. */
__global__ void run_direction_kernel(params k, search v, int what)
{
    const int b = blockIdx.y;
    const run_part *p = part_of(v, blockIdx.x, b);
    if (p == NULL)
        return;
    const double *scalar = of_run(k, v, b, p->run).scalar, alpha = scalar[ALPHA], beta = scalar[BETA];
    if (what == NEXT && alpha == 0.0)
        return;
    for_bins(k, p, b, [&](int bin, int, int column) {
        const size_t at = (size_t)bin * k.lanes + column;
        const double d = k.d[at];
        if (what == NEXT)
            k.x[at] += alpha * d;
        k.d[at] = what == NEXT ? k.z[at] + beta * d : k.z[at];
    });
}

/* How far the runs of a bundle are: one thread each. */
__global__ void state_kernel(params k, search v)
{
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= k.nbundle || !v.active[b])
        return;
    int state = RUNS_DONE;
    for (int run = 0; run < v.nrun[b]; run++) {
        const iteration of = of_run(k, v, b, run);
        if (!is_above_limit(of.scalar))
            continue;
        state = max(state, *of.bad || !isfinite(of.scalar[RZ]) ? (int)RUNS_FAILED : (int)RUNS_BUSY);
    }
    v.state[b] = k.bad[b] ? (int)RUNS_FAILED : state;
}

/* What the model lacks of the flux. One thread a bin. */
__global__ void step_kernel(params k, search v)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes || !v.active[i % k.lanes / k.nl])
        return;
    const double step = k.x[i] - v.in_model[i];
    v.step[i] = step * step * v.first[i] > SPX_REJECT_SAME * SPX_REJECT_SAME ? step : 0.0;
    v.in_model[i] += v.step[i];
}

/* ---- results ---- */

/* Rejected pixels of the bundles, as pixels of the frame, in any order. Thread (pixel, bundle). */
__global__ void list_kernel(params k, search v)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int b = blockIdx.y;
    if (i >= v.npixel || !v.active[b] || !(v.flag[b * v.npixel + i] & SPX_REJECT_HIT))
        return;
    const long y = (long)(i / k.wide) - BEYOND, x = (long)(i % k.wide) + k.x0[b];
    v.list[b * v.npixel + atomicAdd(&v.count[b], 1)] = (unsigned)(y * k.ccd_nx + x);
}

/* Bins that have lost light to hits, into `tied`, which is not needed any more. One thread a bin. */
__global__ void cosmic_kernel(params k, search v)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes)
        v.tied[i] = v.active[i % k.lanes / k.nl] && v.whole[i] - k.seen[i] > SPX_COSMIC_LOSS;
}

/* What a bundle has found. */
struct found_hits {
    std::vector<unsigned> pixel; /* of the frame, in order */
    size_t ncosmic = 0;          /* bins that are COSMIC */
};

/* The search in a piece whose equations are solved. */
class hit_search
{
  public:
    hit_search(params &k, const search &v, size_t most_shared, slot *s, tables &t)
        : k_(k), v_(v), s_(s), nb_(k.nbundle), seen_(t.most), set_(t.npole), torn_(t.bad), searched_(k.nbundle),
          changed_(k.nbundle), pixels_(blocks(v.npixel, PIXEL_THREADS), (unsigned)k.nbundle),
          bins_(blocks((size_t)k.n * k.lanes, 128)), parts_((unsigned)v.most_parts, (unsigned)k.nbundle, RUN_BLOCKS),
          tile_bytes_(sizeof(double) * (size_t)k.tile_rows * (size_t)k.row)
    {
        if (tile_bytes_ > most_shared)
            spx::fail(TOO_WIDE, k.wide);
    }
    /* Before the equations are regularised. */
    static void keep(const params &k, const search &v, slot *s)
    {
        keep_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k, v);
        spx::check(cudaGetLastError(), "launch");
    }
    /* Finds the hits. */
    void run()
    {
        std::vector<char> now = searched_;
        begin_search();
        converge(now);
        now = left();
        for (int chance = 0; chance < SPX_REJECT_CHANCES && some(now); chance++) {
            put_active(now);
            strong_hits_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
            find(FIND_BACK, now);
            if (!some(now))
                break;
            change(true, now);
            converge(now);
            for (int b = 0; b < nb_; b++)
                now[b] = now[b] && searched_[b];
        }
        now = left();
        if (k_.model_variance) { /* the flux is needed without the last ones, too */
            for (const int what : {FIND_SPILLED, FIND_OUTSIDE}) {
                put_active(now);
                find(what, now);
                if (some(now))
                    change(what == FIND_OUTSIDE, now);
                now = left();
            }
        } else if (some(now)) { /* the flux is not needed any more */
            put_active(now);
            find(FIND_SPILLED, now, false);
            zero(s_, v_.touched, v_.touched_bytes);
            apply(false);
            find(FIND_OUTSIDE, now, false);
            apply(true);
            renew_touched();
        }
    }
    /* Makes light of the variance of bundles with a solution. solved[nbundle]: that the search has still a solution of.
     */
    void add_light(std::vector<char> &solved)
    {
        for (int b = 0; b < nb_; b++) {
            solved[b] = solved[b] && searched_[b];
            changed_[b] = changed_[b] && searched_[b];
        }
        put_active(solved);
        invert();
        smooth(true);
        light_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
        spx::check(cudaGetLastError(), "launch");
    }
    /* Before everything else: bundles that have a solution. */
    void begin(const std::vector<char> &solved)
    {
        searched_ = solved;
        params rows = k_;
        rows.tile_rows = 1;
        rows.ntile = v_.high;
        rows.tile_begin = v_.row_begin;
        rows.tile_end = v_.row_end;
        put_active(solved);
        find_tiles(rows, BEYOND, s_);
        rows.tile_rows = k_.tile_rows;
        rows.ntile = window_tiles(k_, v_);
        rows.tile_begin = v_.tile_begin;
        rows.tile_end = v_.tile_end;
        find_tiles(rows, BEYOND, s_);
        windows_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
        spx::check(cudaGetLastError(), "launch");
    }
    /* What was found: pixels, and [n][lanes] bins that are COSMIC into `cosmic`, page-locked. */
    void collect(found_hits *found, unsigned char *cosmic)
    {
        put_active(changed_);
        zero(s_, v_.count, sizeof(int) * (nb_ + 1));
        list_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
        cosmic_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        get(s_, cosmic, v_.tied, (size_t)k_.n * k_.lanes);
        look(v_.count);
        for (int b = 0; b < nb_; b++) {
            found[b].pixel.resize((size_t)seen_[b]);
            spx::to_host += sizeof(unsigned) * (size_t)seen_[b];
            if (seen_[b] > 0)
                spx::check(cudaMemcpyAsync(found[b].pixel.data(), v_.list + b * v_.npixel, sizeof(unsigned) * seen_[b],
                                           cudaMemcpyDeviceToHost, s_->stream),
                           "copy");
        }
        wait_for(s_->stream, s_->stepped);
        for (int b = 0; b < nb_; b++)
            std::sort(found[b].pixel.begin(), found[b].pixel.end());
    }

  private:
    params &k_;
    search v_;
    slot *s_;
    int nb_, *seen_, *set_, *torn_;        /* page-locked, [nbundle] */
    bool put_ = false;                     /* the device may not have read set_ */
    std::vector<char> searched_, changed_; /* bundles with a solution so far; with hits */
    dim3 pixels_;
    unsigned bins_;
    dim3 parts_;
    size_t tile_bytes_;

    static bool some(const std::vector<char> &set)
    {
        return std::find(set.begin(), set.end(), (char)1) != set.end();
    }
    /* Bundles with hits whose equations have a solution. */
    std::vector<char> left() const
    {
        std::vector<char> set(changed_);
        for (int b = 0; b < nb_; b++)
            set[b] = changed_[b] && searched_[b];
        return set;
    }
    void wait()
    {
        spx::check(cudaEventRecord(s_->stepped, s_->stream), "event");
        while (!is_over(s_->stepped)) {
        }
        put_ = false;
    }
    void put_active(const std::vector<char> &set)
    {
        if (put_)
            wait();
        std::copy(set.begin(), set.end(), set_);
        put(s_, v_.active, set_, (size_t)nb_);
        put_ = true;
    }
    /* Numbers of the bundles into seen_. */
    void look(const int *numbers)
    {
        get(s_, seen_, numbers, (size_t)nb_);
        wait();
    }

    void begin_search()
    {
        invert();
        for (int beside = 0; beside <= k_.reach; beside++)
            BY_BAND(k_.m, leverage_kernel, <<<trace_rows(), trace_threads(), 0, s_->stream>>>(k_, v_, beside))
        free_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
        if (v_.readnoise) { /* noise of the model must not make the variance small */
            smooth(false);
            most_kernel<<<pixels_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
        }
        all_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        spx::check(cudaMemsetAsync(v_.dirty, 1, (size_t)nb_ * v_.high, s_->stream), "device memory");
        render();
        spx::check(cudaGetLastError(), "launch");
    }
    /* The band of the inverse from the factors. */
    void invert()
    {
        const dim3 segments(blocks(k_.lanes, WARP), k_.nseg);
        BY_BAND(k_.m, inverse_kernel, <<<segments, WARP, stream_bytes(k_.m, k_.m + 1), s_->stream>>>(k_, v_))
    }
    /* Light of smoothed spectra into the model. */
    void smooth(bool lines)
    {
        smooth_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_, lines);
        zero(s_, v_.model, sizeof(double) * (size_t)nb_ * v_.npixel);
        spx::check(cudaMemsetAsync(v_.dirty, 1, (size_t)nb_ * v_.high, s_->stream), "device memory");
        render();
    }
    /* A thread a column of a spot. */
    dim3 trace_threads() const
    {
        return k_.nx < 16 ? dim3(16, 16) : dim3(WARP, 8);
    }
    dim3 trace_rows() const
    {
        return dim3(blocks((size_t)v_.high - 2, trace_threads().y), blocks((size_t)k_.nl, (size_t)k_.reach + 1), nb_);
    }
    void render()
    {
        const int apart = (k_.nl + k_.reach) / (k_.reach + 1), turns = (apart + TILE_WARPS - 1) / TILE_WARPS;
        render_kernel<<<dim3((unsigned)window_tiles(k_, v_), (unsigned)nb_), (apart + turns - 1) / turns * WARP,
                        tile_bytes_, s_->stream>>>(k_, v_);
    }

    /* Finds pixels; bundles that have none leave `now`, if they are looked at. */
    void find(int what, std::vector<char> &now, bool look_at = true)
    {
        zero(s_, v_.count, sizeof(int) * (nb_ + 1));
        find_kernel<<<dim3(blocks((size_t)k_.ccd_ny, FIND_ROWS), (unsigned)nb_), PIXEL_THREADS,
                      sizeof(int) * FIND_ROWS * k_.wide, s_->stream>>>(k_, v_, what);
        spx::check(cudaGetLastError(), "launch");
        if (what == FIND_NEW)
            zero(s_, v_.dirty, (size_t)nb_ * v_.high);
        if (!look_at)
            return;
        look(v_.count);
        for (int b = 0; b < nb_; b++)
            now[b] = now[b] && seen_[b] > 0;
        put_active(now);
    }

    void apply(bool back)
    {
        apply_kernel<<<(unsigned)LIST_BLOCKS / 4, PIXEL_THREADS, 0, s_->stream>>>(k_, v_, back);
    }

    void renew_touched()
    {
        untie_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        renew_kernel<<<std::min(blocks((size_t)k_.n * k_.lanes, RENEW_WARPS), (unsigned)LIST_BLOCKS),
                       RENEW_WARPS * WARP, sizeof(double) * RENEW_WARPS * k_.npix, s_->stream>>>(k_, v_);
        spx::check(cudaGetLastError(), "launch");
    }

    /* Rejects what is marked, or takes it back, and makes flux and model anew; bundles without a solution leave `now`.
     */
    void change(bool back, std::vector<char> &now)
    {
        zero(s_, v_.touched, v_.touched_bytes);
        apply(back);
        renew_touched();
        weights_around(k_, s_);
        tie_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        runs_kernel<<<nb_, RUN_THREADS, 2 * sizeof(unsigned) * ((k_.n + WARP - 1) / WARP), s_->stream>>>(k_, v_);
        dirty_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        while (!solve_runs(now)) {
        }
        step_kernel<<<bins_, 128, 0, s_->stream>>>(k_, v_);
        render();
        spx::check(cudaGetLastError(), "launch");
    }

    /* Factors and iterations of the runs; false where segments of the factors do not fit together: they are none any
     * more, and it has to be done again. */
    bool solve_runs(std::vector<char> &now)
    {
        const dim3 segments(blocks(k_.lanes, WARP), k_.nseg);
        const size_t bytes = stream_bytes(k_.m, k_.m + 2);
        const dim3 recurrences((unsigned)(v_.most_parts * bundle_blocks(k_)), (unsigned)nb_);
        zero(s_, k_.bad, sizeof(int) * (nb_ + 1));
        BY_BAND(k_.m, run_factors_kernel, <<<segments, WARP, bytes, s_->stream>>>(k_, v_))
        if (k_.nseg > 1)
            run_seams_kernel<<<dim3(segments.x, k_.m, k_.nseg - 1), WARP, 0, s_->stream>>>(k_, v_);
        run_start_kernel<<<parts_, MULTIPLY_THREADS, 0, s_->stream>>>(k_, v_);
        for (int step = 0; step <= MOST_RUN_STEPS; step++) {
            const int what = step == 0 ? START : NEXT;
            if (step > 0) {
                run_multiply_kernel<<<parts_, MULTIPLY_THREADS, 0, s_->stream>>>(k_, v_);
                run_remainder_kernel<<<parts_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_);
            }
            BY_BAND(k_.m, run_precondition_kernel, <<<recurrences, WARP, bytes, s_->stream>>>(k_, v_, what))
            run_direction_kernel<<<parts_, PIXEL_THREADS, 0, s_->stream>>>(k_, v_, what);
            spx::check(cudaGetLastError(), "launch");
            if (step < LEAST_STEPS || (step % 2 != 0 && step < MOST_RUN_STEPS))
                continue;
            state_kernel<<<blocks((size_t)nb_, 32), 32, 0, s_->stream>>>(k_, v_);
            get(s_, torn_, k_.torn, 1);
            look(v_.state);
            if (*torn_ != 0 && k_.nseg > 1) {
                one_piece(k_);
                return whole_runs();
            }
            bool busy = false, failed = false;
            for (int b = 0; b < nb_; b++) {
                if (!now[b])
                    continue;
                const bool fails = seen_[b] == RUNS_FAILED || (seen_[b] == RUNS_BUSY && step == MOST_RUN_STEPS);
                busy |= seen_[b] == RUNS_BUSY;
                failed |= fails;
                if (fails)
                    now[b] = searched_[b] = 0;
            }
            if (failed)
                put_active(now);
            if (!busy)
                break;
        }
        return true;
    }
    /* Runs again, as there are no segments any more. */
    bool whole_runs()
    {
        runs_kernel<<<nb_, RUN_THREADS, 2 * sizeof(unsigned) * ((k_.n + WARP - 1) / WARP), s_->stream>>>(k_, v_);
        spx::check(cudaGetLastError(), "launch");
        return false;
    }

    /* Rounds, until nothing is new. */
    void converge(std::vector<char> now)
    {
        for (int round = 0; round < SPX_REJECT_ROUNDS && some(now); round++) {
            find(FIND_NEW, now);
            if (!some(now))
                break;
            for (int b = 0; b < nb_; b++)
                changed_[b] |= now[b];
            change(false, now);
        }
    }
};

} // namespace

#endif
