/* Provides the light of fibres by rows (../trace/rows.h), and what rows tell of a background (../trace/background.h),
 * on a device: a block a row, a thread a fibre. Fibres whose profiles share columns, directly or by others, are a
 * chain, whose equations one thread solves: chains are those of bundles, unless all fibres lie close. */
#ifndef SPX_EXTRACT_CUDA_BEYOND_ROWS_CUH
#define SPX_EXTRACT_CUDA_BEYOND_ROWS_CUH

#include <climits>

#include "calib/window.cuh"
#include "cuda/reduce.cuh"
#include "cuda/stream.cuh"

extern "C" {
#include "extract/trace/background.h"
#include "extract/trace/beyond.h"
}

namespace
{

enum {
    ROW_THREADS = 512,
    ROW_BLOCKS = 2, /* of a multiprocessor: as many as shared memory leaves of rows with a background */
    ROW_NEAR = SPX_BACKGROUND_NEAR,
    ROW_PAIRS = 10, /* of four splines, with themselves too */
    PIXEL_USED = 1, /* flags of a pixel: those of fibres, and hits */
    PIXEL_HIT = 2
};

/* Tables of the rows of a layout, and the pixels. */
struct row_tables {
    int ny, nx, nspec, width, first, end, pad, hsizex, wide;
    const float *profile;                      /* [nspec][KNOTS][PHASES + 1][width] */
    const float2 *place;                       /* [ny][nspec] */
    const int2 *ends;                          /* [nspec] */
    const float *spread;                       /* [nspec][SIDE + 1] */
    unsigned short *order;                     /* [ny][nspec] fibres that cross a row, by their columns */
    int *count;                                /* [ny] how many */
    float *drawn;                              /* [ny][drawn_row()] their profiles, with a gap behind each */
    int *start;                                /* [ny][nspec] their first columns, those beside the CCD included */
    unsigned short *chain;                     /* [ny][nspec + 2] see row_work */
    unsigned char *use;                        /* [ny][nx] whether a background is fitted to a pixel */
    const float *data, *weight;                /* [ny][nx] */
    float *far;                                /* [ny][nx] */
    unsigned char *flags;                      /* [ny][nx] */
    float *light, *rest, *first_light, *sharp; /* [ny][nspec] */
    unsigned char *seen;                       /* [ny][nspec] 1: by its row, 2: to be filled in, 0: no trace */
    int mirrored;
};

/* Elements of a row of `drawn`, a multiple of 16 bytes. */
__host__ __device__ inline size_t drawn_row(const row_tables &t)
{
    return ((size_t)t.nspec * (size_t)(t.width + 1) + 3) / 4 * 4;
}

/* A background: splines, and their coefficients on the device. */
struct row_background {
    spx_bspline along, across;
    const double *c;
    double *rows; /* [rows used][across.n][NEAR + 1] */
    int every;
    unsigned long long *left_out;
};

/* Fibres of a row by the order of their columns: thread (fibre), block (row). */
__global__ void __launch_bounds__(ROW_THREADS) row_order_kernel(row_tables t)
{
    extern __shared__ float column[];
    const int y = (int)blockIdx.x;
    int here = 0;
    for (int f = (int)threadIdx.x; f < t.nspec; f += ROW_THREADS) {
        const float2 at = t.place[(size_t)y * t.nspec + f];
        column[f] = at.y >= 0.0f ? at.x : INFINITY;
        here += at.y >= 0.0f;
    }
    __shared__ int part[ROW_THREADS / spx::WARP];
    here = spx::block_sum<ROW_THREADS / spx::WARP>(here, part);
    if (threadIdx.x == 0)
        t.count[y] = here;
    for (int f = (int)threadIdx.x; f < t.nspec; f += ROW_THREADS) {
        int rank = 0;
        for (int g = 0; g < t.nspec; g++) {
            const bool before = t.mirrored ? g > f : g < f;
            rank += column[g] < column[f] || (column[g] == column[f] && before);
        }
        if (column[f] < INFINITY)
            t.order[(size_t)y * t.nspec + rank] = (unsigned short)f;
    }
}

/* What a block has of its row: in shared memory, or, where that does not suffice, in the device's. */
struct row_work {
    int n;
    double (*factor)[SPX_ROW_REACH + 1]; /* [n] A's diagonal and columns before; then 1/D, and L */
    double *x;                           /* [n] right side; then the solution */
    double *v;                           /* [NEAR][n] */
    double *pair;                        /* [intervals][ROW_PAIRS + NEAR] */
    float *profile;                      /* [n][width + 1] */
    int *start;                          /* [n] */
    int *knot;                           /* [n] */
    float *data, *weight;                /* [columns] */
    unsigned char *seen, *reach;         /* [n] */
    unsigned short *chain;               /* [n + 2] how many chains; the first fibre of each, and n */
    unsigned char *use;                  /* [columns]; in the place of v, which comes later */
    unsigned char *hidden;               /* [n] pixels of the fibre are left out, for it is not seen */
};

/* Bytes of it, which it hands out if base is not NULL; ground: with what a background needs. */
__host__ __device__ inline size_t row_room(const row_tables &t, int intervals, bool ground, char *base, row_work *w)
{
    const size_t n = (size_t)t.nspec, columns = (size_t)t.nx + 2 * (size_t)t.pad;
    size_t at = 0;
    const auto take = [&](size_t bytes) {
        char *p = base + at;
        at += (bytes + 15) / 16 * 16;
        return p;
    };
    w->factor = (double(*)[SPX_ROW_REACH + 1]) take(n * sizeof *w->factor);
    w->x = (double *)take(n * sizeof *w->x);
    w->profile = (float *)take(drawn_row(t) * sizeof *w->profile);
    w->start = (int *)take(n * sizeof *w->start);
    w->seen = (unsigned char *)take(n);
    w->reach = (unsigned char *)take(n);
    w->chain = (unsigned short *)take((n + 2) * sizeof *w->chain);
    w->data = (float *)take(columns * sizeof *w->data);
    w->weight = (float *)take(columns * sizeof *w->weight);
    if (ground) {
        w->v = (double *)take(ROW_NEAR * n * sizeof *w->v > columns ? ROW_NEAR * n * sizeof *w->v : columns);
        w->use = (unsigned char *)w->v;
        w->pair = (double *)take((size_t)intervals * (ROW_PAIRS + ROW_NEAR) * sizeof *w->pair);
        w->knot = (int *)take(n * sizeof *w->knot);
        w->hidden = (unsigned char *)take(n);
    }
    return at;
}

/* Where the profile of a fibre is found. */
struct profile_place {
    int from; /* in the table */
    float u, v;
};

/* Profiles of a row, which the frames of a layout share: draw_profiles() of the host; and first fibres of its chains.
 * Block (row). shared: [nspec] places, first columns. */
__global__ void __launch_bounds__(ROW_THREADS) row_profiles_kernel(row_tables t)
{
    extern __shared__ double room[];
    profile_place *const places = (profile_place *)room;
    int *const start = (int *)(places + t.nspec);
    const int y = (int)blockIdx.x, n = t.count[y], stride = t.width + 1;
    for (int i = (int)threadIdx.x; i < n; i += ROW_THREADS) {
        const int f = t.order[(size_t)y * t.nspec + i];
        const float2 at = t.place[(size_t)y * t.nspec + f];
        const float middle = floorf(at.x + 0.5f), phase = (at.x - middle + 0.5f) * SPX_ROW_PHASES;
        const int p = phase > 1.5f ? (int)fminf(phase + 0.5f, SPX_ROW_PHASES - 1) : 1,
                  knot = (int)fminf(at.y, SPX_ROW_KNOTS - 2);
        places[i] = {((f * SPX_ROW_KNOTS + knot) * (SPX_ROW_PHASES + 1) + p - 1) * t.width, phase - (float)p,
                     at.y - (float)knot};
        start[i] = (int)middle - t.hsizex + t.pad;
        t.start[(size_t)y * t.nspec + i] = start[i];
    }
    __syncthreads();
    float *const to = t.drawn + (size_t)y * drawn_row(t);
    for (int k = (int)threadIdx.x; k < (int)drawn_row(t); k += ROW_THREADS) {
        const int i = k / stride, c = k % stride;
        float drawn = 0.0f;
        if (i < n && c < t.width) {
            const profile_place at = places[i];
            const float u = at.u, wa = 0.5f * u * (u - 1.0f), wb = 1.0f - u * u, wc = 0.5f * u * (u + 1.0f);
            const float *a = t.profile + at.from + c, *b = a + (SPX_ROW_PHASES + 1) * t.width;
            const float now = wa * a[0] + wb * a[t.width] + wc * a[2 * t.width],
                        next = wa * b[0] + wb * b[t.width] + wc * b[2 * t.width];
            drawn = now + at.v * (next - now);
        }
        to[k] = drawn;
    }
    unsigned short *const chain = t.chain + (size_t)y * (t.nspec + 2);
    if (threadIdx.x == 0) {
        int count = 0;
        for (int i = 0; i < n; i++)
            if (i == 0 || start[i] - start[i - 1] >= t.end - t.first)
                chain[++count] = (unsigned short)i;
        chain[0] = (unsigned short)count;
        chain[1 + count] = (unsigned short)n;
    }
}

/* They arrive, while others load what they need, before wait_for_profiles(); shared: in shared memory. */
__device__ inline void load_profiles(const row_tables &t, int y, bool shared, const row_work &w)
{
    const float *const from = t.drawn + (size_t)y * drawn_row(t);
    const int each = 4, n = (w.n * (t.width + 1) + each - 1) / each;
    for (int k = (int)threadIdx.x; k < n; k += ROW_THREADS)
        if (shared)
            __pipeline_memcpy_async(w.profile + each * k, from + each * k, each * sizeof *from);
        else
            *(float4 *)(w.profile + each * k) = *(const float4 *)(from + each * k);
    __pipeline_commit();
    for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS)
        w.start[i] = t.start[(size_t)y * t.nspec + i];
    const unsigned short *const chain = t.chain + (size_t)y * (t.nspec + 2);
    for (int k = (int)threadIdx.x; k < chain[0] + 2; k += ROW_THREADS)
        w.chain[k] = chain[k];
}

__device__ inline void wait_for_profiles()
{
    __pipeline_wait_prior(0);
    __syncthreads();
}

/* Pixels of a row without far and, if there is one, the background ground(x); on(x): those that have a weight. */
template <class ON, class GROUND>
__device__ inline void load_row(const row_tables &t, int y, const row_work &w, const ON &on, const GROUND &ground)
{
    enum { ASKED = 4 }; /* on their way before one is used */
    const int columns = t.nx + 2 * t.pad;
    for (int from = (int)threadIdx.x; from < columns; from += ASKED * ROW_THREADS) {
        float weight[ASKED], data[ASKED];
#pragma unroll
        for (int k = 0; k < ASKED; k++) {
            const int c = from + k * ROW_THREADS, x = min(max(c - t.pad, 0), t.nx - 1);
            const size_t at = (size_t)y * t.nx + x;
            const bool used = on(at) && x == c - t.pad;
            const float has = t.weight[at];
            data[k] = t.data[at] - t.far[at];
            weight[k] = used ? has : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < ASKED; k++) {
            const int c = from + k * ROW_THREADS;
            if (c < columns) {
                w.weight[c] = weight[k];
                w.data[c] = weight[k] > 0.0f ? data[k] - ground(c - t.pad) : 0.0f;
            }
        }
    }
    __syncthreads();
}

/* Products of profiles with themselves, the pixels, and those before that share columns with them; which are seen. Sums
 * have the order of the host's lanes, so that both see the same fibres. of(fibre): whether they are to be made. */
template <class OF> __device__ inline void find_products(const row_tables &t, const row_work &w, const OF &of)
{
    enum { LANES = SPX_ROW_LANES };
    const int begin = t.first / LANES * LANES;
    for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
        if (!of(i))
            continue;
        const int start = w.start[i];
        const float *g = w.profile + i * (t.width + 1), *weight = w.weight + start, *data = w.data + start;
        float own[LANES] = {}, pixels[LANES] = {}, seen[LANES] = {}, all[LANES] = {};
        for (int c = 0; c < t.width; c += LANES)
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                const float v = g[c + l], u = v * weight[c + l];
                own[l] += u * v;
                pixels[l] += u * data[c + l];
                seen[l] += weight[c + l] > 0.0f ? v : 0.0f;
                all[l] += v;
            }
        const float itself = spx_row_total(own);
        int reach = 0;
        while (reach < SPX_ROW_REACH && reach < i && start - w.start[i - reach - 1] < t.end - t.first) {
            reach++;
            const float *q = w.profile + (i - reach) * (t.width + 1);
            const int before = start - w.start[i - reach];
            float lane[LANES] = {};
            for (int c = begin; c + before < t.end; c += LANES)
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    const float other = c + l + before < t.width ? q[c + l + before] : 0.0f;
                    lane[l] += g[c + l] * weight[c + l] * other;
                }
            w.factor[i][reach] = (double)spx_row_total(lane);
        }
        w.x[i] = (double)spx_row_total(pixels);
        w.factor[i][0] = (double)itself;
        w.seen[i] = itself > 0.0f && spx_row_total(seen) > SPX_ROW_LEAST_SEEN * spx_row_total(all);
        w.reach[i] = (unsigned char)reach;
    }
    __syncthreads();
}

/* do_it(first fibre, one past the last) of each chain: threads of as few warps as there are, for the others to have the
 * multiprocessor. */
template <class DO> __device__ inline void for_chains(const row_work &w, const DO &do_it)
{
    for (int k = (int)threadIdx.x; k < w.chain[0]; k += ROW_THREADS)
        do_it((int)w.chain[1 + k], (int)w.chain[2 + k]);
    __syncthreads();
}

/* A = L D L^T of the fibres that are seen; those that others leave nothing of are not, from then on. x: A's right side.
 * What a fibre needs of those before stays in registers: each waits for the one before. */
__device__ inline void factor_row(const row_work &w)
{
    enum { REACH = SPX_ROW_REACH };
    for_chains(w, [&](int first, int end) {
        double inverse[REACH + 1] = {}, l[REACH + 1][REACH] = {}; /* of the fibres that are so many before */
        bool there[REACH + 1] = {};
        for (int i = first; i < end; i++) {
            const int reach = w.reach[i];
            const double own = w.factor[i][0];
            bool seen = w.seen[i] != 0;
            double u[REACH + 1], to[REACH + 1], left = own;
#pragma unroll
            for (int k = REACH; k > 0; k--)
                u[k] = k <= reach && seen && there[k] ? w.factor[i][k] : 0.0;
#pragma unroll
            for (int k = REACH; k > 0; k--) {
#pragma unroll
                for (int m = k + 1; m <= REACH; m++)
                    u[k] = fma(-u[m], l[k][m - k], u[k]);
                to[k] = u[k] * inverse[k];
                left = fma(-u[k], to[k], left);
            }
            if (seen && !(left > SPX_ROW_LEAST_LEFT * own)) {
                seen = false;
                w.seen[i] = 0;
#pragma unroll
                for (int k = 1; k <= REACH; k++)
                    to[k] = 0.0;
            }
            to[0] = seen ? reciprocal(left) : 1.0;
#pragma unroll
            for (int k = 0; k <= REACH; k++)
                if (k <= reach)
                    w.factor[i][k] = to[k];
            if (!seen)
                w.x[i] = 0.0;
#pragma unroll
            for (int k = REACH; k > 1; k--) {
                inverse[k] = inverse[k - 1];
                there[k] = there[k - 1];
#pragma unroll
                for (int m = 1; m < REACH; m++)
                    l[k][m] = l[k - 1][m];
            }
            inverse[1] = to[0];
            there[1] = seen;
#pragma unroll
            for (int m = 1; m < REACH; m++)
                l[1][m] = to[m];
        }
    });
}

/* L^-1 x; L of a fibre is asked for before the one before is done. */
__device__ inline void forward(const row_work &w, int first, int end)
{
    enum { REACH = SPX_ROW_REACH };
    double before[REACH + 1] = {}, l[REACH + 1], x;
    const auto ask = [&](int i) {
#pragma unroll
        for (int k = 1; k <= REACH; k++)
            l[k] = k <= w.reach[i] ? w.factor[i][k] : 0.0;
        x = w.x[i];
    };
    ask(first);
    for (int i = first; i < end; i++) {
        double now = x;
#pragma unroll
        for (int k = REACH; k > 0; k--) /* the last one's comes last */
            now = fma(-l[k], before[k], now);
        if (i + 1 < end)
            ask(i + 1);
        w.x[i] = now;
#pragma unroll
        for (int k = REACH; k > 1; k--)
            before[k] = before[k - 1];
        before[1] = now;
    }
}

__device__ inline void solve_row(const row_work &w)
{
    enum { REACH = SPX_ROW_REACH };
    for_chains(w, [&](int first, int end) {
        forward(w, first, end);
        double l[REACH + 1], x;
        const auto ask = [&](int i) {
#pragma unroll
            for (int k = 1; k <= REACH; k++)
                l[k] = k <= w.reach[i] ? w.factor[i][k] : 0.0;
            x = w.x[i] * w.factor[i][0];
        };
        double behind[REACH + 1] = {}, of[REACH + 1][REACH + 1] = {}; /* solutions so many behind, and their L */
        ask(end - 1);
        for (int i = end; i-- > first;) {
            double now = x;
#pragma unroll
            for (int k = REACH; k > 0; k--)
                now = fma(-of[k][k], behind[k], now);
#pragma unroll
            for (int k = REACH; k > 1; k--) {
                behind[k] = behind[k - 1];
#pragma unroll
                for (int m = k; m <= REACH; m++)
                    of[k][m] = of[k - 1][m];
            }
            behind[1] = now;
#pragma unroll
            for (int m = 1; m <= REACH; m++)
                of[1][m] = l[m];
            if (i > first)
                ask(i - 1);
            w.x[i] = now;
        }
    });
}

/* Light of the rows `every` apart; of the others none is seen. Block (rows). */
__global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    row_light_kernel(row_tables t, int every, char *scratch, size_t each)
{
    extern __shared__ double room[];
    row_work w;
    (void)row_room(t, 0, false, scratch ? scratch + blockIdx.x * each : (char *)room, &w);
    for (int y = (int)blockIdx.x; y < t.ny; y += (int)gridDim.x) {
        const size_t row = (size_t)y * t.nspec;
        const bool used = y % every == 0;
        for (int f = (int)threadIdx.x; f < t.nspec; f += ROW_THREADS) {
            t.light[row + f] = 0.0f;
            t.seen[row + f] = !used && t.place[row + f].y >= 0.0f ? 2 : 0;
        }
        __syncthreads();
        if (!used)
            continue;
        w.n = t.count[y];
        load_profiles(t, y, scratch == nullptr, w);
        load_row(
            t, y, w, [](size_t) { return true; }, [](int) { return 0.0f; });
        wait_for_profiles();
        find_products(t, w, [](int) { return true; });
        factor_row(w);
        solve_row(w);
        for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
            const int f = t.order[row + i];
            t.light[row + f] = (float)w.x[i];
            t.seen[row + f] = w.seen[i] ? 1 : 2;
        }
        __syncthreads();
    }
}

/* Light between the rows that are seen, as fill() of the host. Thread (fibre, row). */
__global__ void row_fill_kernel(row_tables t)
{
    const int f = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
    if (f >= t.nspec || t.seen[(size_t)y * t.nspec + f] != 2)
        return;
    int before = y, behind = y;
    while (before >= 0 && t.seen[(size_t)before * t.nspec + f] == 2)
        before--;
    while (behind < t.ny && t.seen[(size_t)behind * t.nspec + f] == 2)
        behind++;
    if (before < 0 || behind == t.ny || t.seen[(size_t)before * t.nspec + f] == 0 ||
        t.seen[(size_t)behind * t.nspec + f] == 0)
        return;
    const float a = t.light[(size_t)before * t.nspec + f], b = t.light[(size_t)behind * t.nspec + f];
    t.light[(size_t)y * t.nspec + f] = a + (b - a) * (float)(y - before) / (float)(behind - before);
}

/* What spots have not spread of `from`: from - S from; 0 near the ends of the CCD. */
__device__ inline float not_spread(const row_tables &t, const float *from, int y, int f)
{
    const float *tap = t.spread + (size_t)f * (SPX_ROW_SIDE + 1);
    const auto at = [&](int row) { return from[(size_t)row * t.nspec + f]; };
    if (y < SPX_ROW_SIDE || y >= t.ny - SPX_ROW_SIDE)
        return 0.0f;
    float sum = tap[0] * at(y);
    for (int d = 1; d <= SPX_ROW_SIDE; d++)
        sum += tap[d] * (at(y - d) + at(y + d));
    return at(y) - sum;
}

/* The two terms of sharpen(). Thread (fibre, row). */
__global__ void row_rest_kernel(row_tables t)
{
    const int f = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
    if (f < t.nspec)
        t.rest[(size_t)y * t.nspec + f] = not_spread(t, t.light, y, f);
}

__global__ void row_sharpen_kernel(row_tables t)
{
    const int f = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)blockIdx.y;
    const size_t at = (size_t)y * t.nspec + f;
    if (f < t.nspec)
        t.sharp[at] = t.light[at] + t.rest[at] + not_spread(t, t.rest, y, f);
}

/* Sums of the extrapolation: see extrapolate() in ../trace/tail.c. Thread (fibre, rows); sum: [2][blocks]. */
enum { SHARE_THREADS = 128 };
__global__ void __launch_bounds__(SHARE_THREADS) row_share_kernel(row_tables t, double *sum)
{
    __shared__ double part[SHARE_THREADS / spx::WARP];
    const int f = (int)(blockIdx.x * SHARE_THREADS + threadIdx.x), y = (int)blockIdx.y * SPX_BEYOND_EACH;
    double a = 0.0, b = 0.0;
    for (int k = y; k < t.ny && k < y + SPX_BEYOND_EACH && f < t.nspec; k++) {
        a += (double)t.first_light[(size_t)k * t.nspec + f];
        b += (double)t.sharp[(size_t)k * t.nspec + f];
    }
    const double change = spx::block_sum<SHARE_THREADS / spx::WARP>((a - b) * a, part);
    __syncthreads();
    const double all = spx::block_sum<SHARE_THREADS / spx::WARP>(a * a, part);
    if (threadIdx.x == 0) {
        const size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
        sum[block] = change;
        sum[(size_t)gridDim.x * gridDim.y + block] = all;
    }
}

__global__ void row_extrapolate_kernel(row_tables t, const double *total)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const float share = spx_beyond_share(total[0], total[1]);
    if (i < (size_t)t.ny * t.nspec)
        t.sharp[i] = t.first_light[i] + (t.sharp[i] - t.first_light[i]) / (1.0f + share);
}

/* ---- background ---- */

/* The four splines that are not 0 at a place, of which the first is the one returned, as spx_bspline_at() without its
 * divisions: for each pixel, whose rows have `per` knots a pixel from the first on. */
__device__ inline int splines_at(const spx_bspline &s, double per, int x, double b[4])
{
    const double at = (double)x * per;
    const int i = min((int)at, (int)s.n - 4);
    const double t = at - (double)i, u = 1.0 - t, sixth = 1.0 / 6.0;
    b[0] = u * u * u * sixth;
    b[1] = (3.0 * t - 6.0) * t * t * sixth + 4.0 * sixth;
    b[2] = (3.0 * u - 6.0) * u * u * sixth + 4.0 * sixth;
    b[3] = t * t * t * sixth;
    return i;
}

/* Coefficients of the splines across in row y, of a block. c: [across.n] */
__device__ inline void combine_along(const row_background &g, int y, double *c)
{
    double by[4];
    const double *const from = g.c + (size_t)splines_at(g.along, 1.0 / g.along.step, y, by) * g.across.n;
    const int n = (int)g.across.n;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        c[i] = by[0] * from[i] + by[1] * from[n + i] + by[2] * from[2 * n + i] + by[3] * from[3 * n + i];
    __syncthreads();
}

/* The background at a pixel of the CCD, from those. */
__device__ inline double ground_at(const row_background &g, const double *c, int x)
{
    double bx[4], sum = 0.0;
    const double *from = c + splines_at(g.across, 1.0 / g.across.step, x, bx);
    for (int i = 0; i < 4; i++)
        sum += bx[i] * from[i];
    return sum;
}

/* Pixels of fibres of the PSF, and those beside, but for those of fibres whose trace has ended, which the frames of a
 * layout share: choose_pixels(). Block (row). shared: [columns] */
__global__ void __launch_bounds__(ROW_THREADS) row_use_kernel(row_tables t)
{
    extern __shared__ char use[];
    const int y = (int)blockIdx.x, n = t.count[y], columns = t.nx + 2 * t.pad;
    const int *const start = t.start + (size_t)y * t.nspec;
    for (int c = (int)threadIdx.x; c < columns; c += ROW_THREADS)
        use[c] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += ROW_THREADS)
        for (int c = start[i] - SPX_BACKGROUND_GAP; c < start[i] + t.width + SPX_BACKGROUND_GAP; c++)
            use[c] = 1;
    __syncthreads();
    for (int f = (int)threadIdx.x; f < t.nspec && n < t.nspec; f += ROW_THREADS) {
        const int2 end = t.ends[f];
        if (t.place[(size_t)y * t.nspec + f].y >= 0.0f || end.y == 0)
            continue;
        const int row = y < end.x ? end.x : y < end.y ? y : end.y - 1;
        const int first = (int)floorf(t.place[(size_t)row * t.nspec + f].x + 0.5f) + t.pad - t.width;
        for (int c = max(first, 0); c < first + 2 * t.width && c < columns; c++)
            use[c] = 0;
    }
    __syncthreads();
    for (int x = (int)threadIdx.x; x < t.nx; x += ROW_THREADS)
        t.use[(size_t)y * t.nx + x] = (unsigned char)use[x + t.pad];
}

/* Of fibres: pixels are to be left out, are left out. */
enum { HIDE = 1, HIDDEN = 2 };

/* Leaves out the pixels of fibres that are not seen. Returns whether there were any, to all threads. */
__device__ inline bool hide_unseen(const row_tables &t, const row_work &w)
{
    bool all = false;
    for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
        if (w.seen[i] || w.hidden[i])
            continue;
        const float *const weight = w.weight + w.start[i];
        bool any = false;
#pragma unroll 8
        for (int c = 0; c < t.width; c++)
            any |= weight[c] > 0.0f;
        w.hidden[i] = any ? HIDE : 0;
        all |= any;
    }
    if (!__syncthreads_or(all))
        return false;
    for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
        if (w.hidden[i] != HIDE)
            continue;
        float *const weight = w.weight + w.start[i];
#pragma unroll 8
        for (int c = 0; c < t.width; c++)
            weight[c] = 0.0f;
        w.hidden[i] = HIDDEN;
    }
    __syncthreads();
    return true;
}

/* Whether a fibre that is seen shares columns with one whose pixels were left out. */
__device__ inline bool beside_hidden(const row_tables &t, const row_work &w, int i)
{
    const int start = w.start[i];
    bool is = false;
    if (!w.seen[i])
        return false;
    for (int k = i - 1; k >= 0 && start - w.start[k] < t.width; k--)
        is |= w.hidden[k] != 0;
    for (int k = i + 1; k < w.n && w.start[k] - start < t.width; k++)
        is |= w.hidden[k] != 0;
    return is;
}

/* Whether a fibre is seen by the pixels of columns lo .. hi - 1 of its profile, as find_products() has it. */
__device__ inline bool is_seen(const row_tables &t, const row_work &w, int i, int lo, int hi)
{
    enum { LANES = SPX_ROW_LANES };
    const float *g = w.profile + i * (t.width + 1), *weight = w.weight + w.start[i];
    float own[LANES] = {}, seen[LANES] = {}, all[LANES] = {};
    for (int c = 0; c < t.width; c += LANES)
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const float v = g[c + l], has = c + l >= lo && c + l < hi ? weight[c + l] : 0.0f, u = v * has;
            own[l] += u * v;
            seen[l] += has > 0.0f ? v : 0.0f;
            all[l] += v;
        }
    return spx_row_total(own) > 0.0f && spx_row_total(seen) > SPX_ROW_LEAST_SEEN * spx_row_total(all);
}

/* Which fibres are still seen if the pixels of those that are not are left out, one after the other as far as that goes
 * in the fibres of a warp; of those beside them, what was known before. Returns whether one is seen no more. */
__device__ inline bool see_less(const row_tables &t, const row_work &w)
{
    const int lane = (int)threadIdx.x % spx::WARP;
    bool less = false;
    for (int first = (int)threadIdx.x - lane; first < w.n; first += ROW_THREADS) {
        const int i = first + lane, end = min(first + spx::WARP, w.n);
        const bool in = i < w.n;
        const int start = in ? w.start[i] : 0;
        bool seen = in && w.seen[i];
        int below = INT_MIN / 2, above = INT_MAX / 2; /* first columns of the next ones beside that are not seen */
        for (int k = first - 1; k >= 0 && below < 0 && w.start[first] - w.start[k] < t.width; k--)
            below = w.hidden[k] ? w.start[k] : below;
        for (int k = end; k < w.n && above == INT_MAX / 2 && w.start[k] - w.start[end - 1] < t.width; k++)
            above = w.hidden[k] ? w.start[k] : above;
        int lo = 0, hi = t.width;
        bool again = true;
        while (again) {
            const unsigned off = __ballot_sync(spx::FULL, in && !seen), before = off & ((1u << lane) - 1),
                           behind = off & ~((2u << lane) - 1);
            const int nearest = __shfl_sync(spx::FULL, start, before != 0 ? 31 - __clz((int)before) : 0),
                      next = __shfl_sync(spx::FULL, start, behind != 0 ? __ffs((int)behind) - 1 : 0),
                      from = max(0, (before != 0 ? nearest : below) + t.width - start),
                      to = min(t.width, (behind != 0 ? next : above) - start);
            const bool look = seen && (from > lo || to < hi);
            lo = max(lo, from);
            hi = min(hi, to);
            const bool lost = look && !is_seen(t, w, i, lo, hi);
            if (lost)
                w.seen[i] = 0;
            seen &= !lost;
            less |= lost;
            again = __any_sync(spx::FULL, lost);
        }
    }
    return less;
}

/* Leaves out the pixels of fibres that are not seen, and of those that then are not. Returns whether there are any, to
 * all threads. */
__device__ inline bool hide_all_unseen(const row_tables &t, const row_work &w)
{
    bool any = false, less = true;
    while (less) {
        bool here = false;
        for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
            w.hidden[i] = w.seen[i] ? 0 : HIDDEN;
            here |= !w.seen[i];
        }
        any = __syncthreads_or(here);
        less = any && __syncthreads_or(see_less(t, w));
    }
    for (int i = (int)threadIdx.x; i < w.n && any; i += ROW_THREADS) {
        if (w.seen[i])
            continue;
        float *const weight = w.weight + w.start[i];
#pragma unroll 8
        for (int c = 0; c < t.width; c++)
            weight[c] = 0.0f;
    }
    __syncthreads();
    return any;
}

/* Equations of a row with its pixels as they are. Where pixels are left out, fibres beside them may not be seen any
 * more, one after the other up to the end of a bundle: products are made again when that has ended, and of fibres there
 * alone. */
__device__ inline void factor_seen(const row_tables &t, const row_work &w)
{
    do {
        find_products(t, w, [](int) { return true; });
        if (hide_all_unseen(t, w))
            find_products(t, w, [&](int i) { return beside_hidden(t, w, i); });
        factor_row(w);
    } while (hide_unseen(t, w));
}

/* Pixels of a row in use, without far and the background as it is; flagged: of those alone that have a flag. */
__device__ inline void load_pixels(const row_tables &t, const row_background &g, int y, bool flagged, const row_work &w)
{
    double *const c = w.pair; /* which come later, and are more */
    combine_along(g, y, c);
    load_row(
        t, y, w, [&](size_t at) { return flagged ? (t.flags[at] & PIXEL_USED) != 0 : t.use[at] != 0; },
        [&](int x) { return (float)ground_at(g, c, x); });
}

enum { TABLE_COLUMNS = 32 };

/* The first fibre whose profile ends behind each column of a multiple of these: in the place of `use`. */
__device__ inline unsigned short *find_firsts(const row_tables &t, const row_work &w)
{
    unsigned short *const first = (unsigned short *)w.use;
    const int n = (t.nx + 2 * t.pad + TABLE_COLUMNS - 1) / TABLE_COLUMNS;
    for (int i = (int)threadIdx.x; i <= w.n; i += ROW_THREADS) {
        const int from = i > 0 ? w.start[i - 1] + t.width : 0,
                  end = i < w.n ? min(w.start[i] + t.width, n * TABLE_COLUMNS) : n * TABLE_COLUMNS;
        for (int k = (from + TABLE_COLUMNS - 1) / TABLE_COLUMNS; k * TABLE_COLUMNS < end; k++)
            first[k] = (unsigned short)i;
    }
    __syncthreads();
    return first;
}

/* Light of the model in a column; start: a fibre that is not behind the first whose profile ends behind it. */
__device__ inline float model_of(const row_tables &t, const row_work &w, int start, int c)
{
    int i = start;
    float sum = 0.0f;
    while (i < w.n && w.start[i] + t.width <= c)
        i++;
    for (; i < w.n && w.start[i] <= c; i++)
        sum += (float)w.x[i] * w.profile[i * (t.width + 1) + c - w.start[i]];
    return sum;
}

/* Flags of all pixels, from the background as it is. Block (rows). */
__global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    ground_flags_kernel(row_tables t, row_background g, char *scratch, size_t each)
{
    extern __shared__ double room[];
    row_work w;
    (void)row_room(t, (int)g.across.n - 3, true, scratch ? scratch + blockIdx.x * each : (char *)room, &w);
    for (int y = (int)blockIdx.x; y < t.ny; y += (int)gridDim.x) {
        w.n = t.count[y];
        load_profiles(t, y, scratch == nullptr, w);
        load_pixels(t, g, y, false, w);
        wait_for_profiles();
        factor_seen(t, w);
        solve_row(w);
        const unsigned short *const first = find_firsts(t, w);
        for (int x = (int)threadIdx.x; x < t.nx; x += ROW_THREADS) {
            const int c = x + t.pad;
            const float weight = w.weight[c], off = w.data[c] - model_of(t, w, first[c / TABLE_COLUMNS], c);
            const bool hit = off * off * weight > (float)(SPX_BACKGROUND_CLIP * SPX_BACKGROUND_CLIP);
            t.flags[(size_t)y * t.nx + x] = (unsigned char)((weight > 0.0f ? PIXEL_USED : 0) | (hit ? PIXEL_HIT : 0));
        }
        __syncthreads();
    }
}

/* Leaves out hits, the pixels beside them, and those beside hits of the rows before and behind: leave_out(). */
__device__ inline void leave_out_hits(const row_tables &t, const row_background &g, int y, const row_work &w)
{
    unsigned count = 0;
    const unsigned char *here = t.flags + (size_t)y * t.nx, *before = here - (y > 0 ? t.nx : 0),
                        *behind = here + (y + 1 < t.ny ? t.nx : 0);
    for (int x = (int)threadIdx.x; x < t.nx; x += ROW_THREADS) {
        const int hit =
            (here[max(x - 1, 0)] | here[x] | here[min(x + 1, t.nx - 1)] | before[x] | behind[x]) & PIXEL_HIT;
        if (hit != 0 && w.weight[x + t.pad] > 0.0f) {
            w.weight[x + t.pad] = 0.0f;
            count++;
        }
    }
    if (count > 0)
        atomicAdd(g.left_out, (unsigned long long)count);
    __syncthreads();
}

/* B^T W B and B^T W p of the pixels between two knots: a warp each. pair: [intervals][ROW_PAIRS + NEAR]. */
__device__ inline void add_pixels(const row_tables &t, const row_background &g, const row_work &w)
{
    const int lane = (int)threadIdx.x % spx::WARP, intervals = (int)g.across.n - 3;
    const double per = 1.0 / g.across.step;
    for (int q = (int)threadIdx.x / spx::WARP; q < intervals; q += ROW_THREADS / spx::WARP) {
        const int from = max(0, (int)((double)q * g.across.step) - 1),
                  to = min(t.nx, (int)((double)(q + 1) * g.across.step) + 2);
        double sum[ROW_PAIRS + ROW_NEAR];
        for (int k = 0; k < ROW_PAIRS + ROW_NEAR; k++)
            sum[k] = 0.0;
        for (int x = from + lane; x < to; x += spx::WARP) {
            double b[4];
            const double weight = (double)w.weight[x + t.pad];
            if (splines_at(g.across, per, x, b) != q || !(weight > 0.0))
                continue;
            const double data = (double)w.data[x + t.pad];
            int k = 0;
            for (int i = 0; i < ROW_NEAR; i++) {
                const double v = weight * b[i];
                for (int j = i; j < ROW_NEAR; j++)
                    sum[k++] += v * b[j];
                sum[ROW_PAIRS + i] += v * data;
            }
        }
        for (int k = 0; k < ROW_PAIRS + ROW_NEAR; k++) {
            const double all = spx::warp_sum(sum[k]);
            if (lane == 0)
                w.pair[q * (ROW_PAIRS + ROW_NEAR) + k] = all;
        }
    }
}

/* V = G^T W B of each fibre; within a profile, splines are the cubics that they are in its middle. */
__device__ inline void find_overlaps(const row_tables &t, const row_background &g, const row_work &w)
{
    for (int i = (int)threadIdx.x; i < w.n; i += ROW_THREADS) {
        const int middle = max(0, min(w.start[i] - t.pad + t.width / 2, t.nx - 1));
        const float *p = w.profile + i * (t.width + 1);
        double d[4][4];
        float moment[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        w.knot[i] = (int)spx_bspline_series(&g.across, (double)middle, d);
        for (int c = 0; c < t.width && w.seen[i]; c++) {
            const float u = (float)(w.start[i] + c - t.pad - middle), v = p[c] * w.weight[w.start[i] + c];
            moment[0] += v;
            moment[1] += v * u;
            moment[2] += v * u * u;
            moment[3] += v * u * u * u;
        }
        for (int a = 0; a < ROW_NEAR; a++)
            w.v[a * t.nspec + i] = (double)moment[0] * d[0][a] + (double)moment[1] * d[1][a] +
                                   (double)moment[2] * d[2][a] + (double)moment[3] * d[3][a];
    }
    __syncthreads();
    for_chains(w, [&](int first, int end) {
        forward(w, first, end);
        for (int i = first; i < end; i++) {
            double v[ROW_NEAR];
#pragma unroll
            for (int a = 0; a < ROW_NEAR; a++)
                v[a] = w.v[a * t.nspec + i];
            for (int k = w.reach[i]; k > 0; k--) {
                const int shift = w.knot[i] - w.knot[i - k];
                const double factor = w.factor[i][k];
#pragma unroll
                for (int a = 0; a < ROW_NEAR; a++)
                    v[a] = fma(-factor, a + shift < ROW_NEAR ? w.v[(a + shift) * t.nspec + i - k] : 0.0, v[a]);
            }
#pragma unroll
            for (int a = 0; a < ROW_NEAR; a++)
                w.v[a * t.nspec + i] = v[a];
        }
    });
}

/* S and the right side of a row: a warp an element. */
__device__ inline void write_row(const row_tables &t, const row_background &g, const row_work &w, double *to)
{
    const int n = (int)g.across.n, intervals = n - 3, lane = (int)threadIdx.x % spx::WARP;
    for (int e = (int)threadIdx.x / spx::WARP; e < n * (ROW_NEAR + 1); e += ROW_THREADS / spx::WARP) {
        const int i = e / (ROW_NEAR + 1), k = e % (ROW_NEAR + 1);
        double pixels = 0.0, fibres = 0.0;
        for (int a = ROW_NEAR - 1; a >= 0; a--) {
            const int q = i - a;
            if (q < 0 || q >= intervals || (k < ROW_NEAR && a + k >= ROW_NEAR))
                continue;
            const int pair = k == ROW_NEAR ? ROW_PAIRS + a : a * ROW_NEAR - a * (a - 1) / 2 + k;
            pixels += w.pair[q * (ROW_PAIRS + ROW_NEAR) + pair];
        }
        int first = 0, end = w.n; /* fibres with that spline */
        while (first < end) {
            const int middle = (first + end) / 2;
            if (w.knot[middle] + ROW_NEAR > i)
                end = middle;
            else
                first = middle + 1;
        }
        for (int f = first + lane; f < w.n && w.knot[f] <= i; f += spx::WARP) {
            const int a = i - w.knot[f];
            if (w.seen[f] && (k == ROW_NEAR || a + k < ROW_NEAR))
                fibres += w.v[a * t.nspec + f] * w.factor[f][0] * (k == ROW_NEAR ? w.x[f] : w.v[(a + k) * t.nspec + f]);
        }
        fibres = spx::warp_sum(fibres);
        if (lane == 0)
            to[e] = pixels - fibres;
    }
}

/* What the rows `every` apart tell; flagged: of the pixels in use, without hits. Block (rows). */
__global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    ground_rows_kernel(row_tables t, row_background g, bool flagged, char *scratch, size_t each)
{
    extern __shared__ double room[];
    row_work w;
    (void)row_room(t, (int)g.across.n - 3, true, scratch ? scratch + blockIdx.x * each : (char *)room, &w);
    for (int k = (int)blockIdx.x; k * g.every < t.ny; k += (int)gridDim.x) {
        const int y = k * g.every;
        w.n = t.count[y];
        load_profiles(t, y, scratch == nullptr, w);
        load_pixels(t, g, y, flagged, w);
        wait_for_profiles();
        if (flagged)
            leave_out_hits(t, g, y, w);
        factor_seen(t, w);
        add_pixels(t, g, w);
        find_overlaps(t, g, w);
        write_row(t, g, w, g.rows + (size_t)k * g.across.n * (ROW_NEAR + 1));
        __syncthreads();
    }
}

/* Sums of the rows, as spx_background_solve() takes them: a warp an element. Block (elements, spline along). */
__global__ void __launch_bounds__(ROW_THREADS) ground_sums_kernel(row_tables t, row_background g, double *sums)
{
    const int spline = (int)blockIdx.y, each = (int)g.across.n * (ROW_NEAR + 1), lane = (int)threadIdx.x % spx::WARP;
    const int first = max(0, (int)((double)(spline - 3) * g.along.step) - 1),
              end = min(t.ny, (int)((double)(spline + 1) * g.along.step) + 2);
    const int e = (int)(blockIdx.x * ROW_THREADS + threadIdx.x) / spx::WARP, behind = e / each, element = e % each;
    const double per = 1.0 / g.along.step;
    double sum = 0.0;
    if (behind >= 4)
        return;
    for (int k = (first + g.every - 1) / g.every + lane; k * g.every < end; k += spx::WARP) {
        double by[4];
        const int a = spline - splines_at(g.along, per, k * g.every, by);
        if (a < 0 || a + behind >= 4)
            continue;
        const double with = element % (ROW_NEAR + 1) != ROW_NEAR ? by[a + behind] : behind == 0 ? 1.0 : 0.0;
        sum += by[a] * with * g.rows[(size_t)k * each + element];
    }
    sum = spx::warp_sum(sum);
    if (lane == 0)
        sums[(size_t)(4 * spline) * each + e] = sum;
}

/* Adds the background to far. Block (row). shared: [across.n] */
__global__ void __launch_bounds__(ROW_THREADS) ground_add_kernel(row_tables t, row_background g)
{
    enum { ASKED = 4 }; /* on their way before one is used */
    extern __shared__ double room[];
    const int y = (int)blockIdx.x;
    combine_along(g, y, room);
    float *const far = t.far + (size_t)y * t.nx;
    for (int from = (int)threadIdx.x; from < t.nx; from += ASKED * ROW_THREADS) {
        float has[ASKED];
#pragma unroll
        for (int k = 0; k < ASKED; k++)
            has[k] = far[min(from + k * ROW_THREADS, t.nx - 1)];
#pragma unroll
        for (int k = 0; k < ASKED; k++)
            if (from + k * ROW_THREADS < t.nx)
                far[from + k * ROW_THREADS] = has[k] + (float)ground_at(g, room, from + k * ROW_THREADS);
    }
}

} // namespace

#endif
