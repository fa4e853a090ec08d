/* Provides A_s of bundles whose fibres or bins are strongly coupled (traces that lie close or cross, masks that hit
 * several fibres, bins of less than a pixel), as the CPU makes it: with the drop scale of trace/drop_scale.h, with as
 * many neighbours as matter (trace/coupling.h, trace/schur.h), and with as many diagonals as Z = A_s^-1 says
 * (trace/sqrt.h). Such bundles are left over by schur.cuh, and are worked on again as pieces of their own.
 *
 * A fibre's columns of T, COUPLED_RUN of them, are an item of a block, which takes the next one when it is done, and
 * has memory of its own for the factor of the neighbours' block of M and for V. */
#ifndef SPX_EXTRACT_CUDA_COUPLED_CUH
#define SPX_EXTRACT_CUDA_COUPLED_CUH

#include "extract/cuda/band_block.cuh"
#include "extract/cuda/schur.cuh"
#include "extract/cuda/sqrt_poles.cuh"

namespace
{

/* COUPLED_HALO: bins around those that a half-bandwidth is needed of, for their Z. Blocks of a multiprocessor, and all
 * of them where there is memory; shared memory of one; diagonals of T that a warp makes at a time. */
enum {
    COUPLED_RUN = 64,
    COUPLED_HALO = 48,
    COUPLED_EACH = 5,
    COUPLED_BLOCKS = 132 * COUPLED_EACH,
    COUPLED_SHARED = 44 << 10,
    COUPLED_DIAGONALS = 8,
    COUPLED_ROWS = 16
};

/* Change of T, as a multiple of the tolerance, that ends the search for neighbours. On the CPU, where it is 0.1, the
 * fibres of a vector go on together; of a single one, with as much, ivar was 3e-7 off beside a mask. */
__device__ constexpr double SETTLED = 0.002;

/* The same of a change that falls: what all more neighbours would change is that of a geometric series, and FALLEN
 * times its next is within SETTLED. Behind a gap each neighbour changes a ten-thousandth of what the one before has. */
__device__ constexpr double FALLS = 0.1, FALLEN = 10.0;

__device__ bool has_settled(double tolerance, double change, double before)
{
    return change <= SETTLED * tolerance || (change <= FALLS * tolerance && isfinite(before) &&
                                             FALLEN * change * change <= SETTLED * tolerance * before);
}

/* Neighbours from which on a change that does not fall is taken for rounding: see SPX_TRACE_STALL. On the CPU it is the
 * largest of a vector's fibres; a single one stalled at 3 to 5 of six, with ivar 1.8e-7 off. */
enum { STALL_REACH = 8 };

/* Counters of the items of kernels. */
enum { COUPLED_ITEMS, LARGE_ITEMS, NEED_ITEMS, COUPLED_COUNTERS };

/* Columns of a run: with the next neighbours alone; with more; with so many that they need more memory than most blocks
 * have. */
enum { COUPLED_NOT, COUPLED_IS, COUPLED_LARGE };

struct coupled_work {
    double *memory;      /* [blocks][each] */
    size_t each, shared; /* doubles of a block's memory, and of its shared memory */
    drop_scratch scale;
    double *value;    /* [n][lanes] diagonal of T with the next fibres alone; scratch before */
    unsigned *strong; /* [coupled_runs()][lanes] COUPLED_... */
    unsigned what;    /* those that a launch works on */
    int *counter;     /* [COUPLED_COUNTERS] */
};

__device__ __host__ inline int coupled_runs(const geometry &k)
{
    return (k.n + COUPLED_RUN - 1) / COUPLED_RUN;
}

/* ---- where one neighbour on each side at a time is not enough ---- */

/* See find_strong() of the CPU: one thread a bin. Fibres near a marked one are marked, too, as on the CPU all those of
 * a vector: what is between two that overlap needs both, and beside masks less than the limit may matter. */
__global__ void find_coupled_kernel(params k, coupled_work w)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, f = column % k.nl, around = strong_bins(k);
    if (k.fibre[column] < 0)
        return;
    const size_t trow = (size_t)(k.band + 1) * k.lanes;
    const double limit = SPX_TRACE_STRONG * k.tolerance * k.drop_scale[i], inverse = k.inverse[i];
    bool strong = false;
    w.value[i] = k.t[0][(size_t)bin * trow + column] + k.t[1][(size_t)bin * trow + column];
    for (int side = 0; side < 2; side++) {
        const int g = 2 * side - 1;
        if (f + g < 0 || f + g >= k.nl || k.fibre[column + g] < 0)
            continue;
        const double own = k.t[side][(size_t)bin * trow + column] * inverse;
        const double direct = most_direct(k, side, bin, column);
        if (1.5 * (own + direct) <= limit)
            continue;
        const double both = own * most_subtracted(k, side, bin, column + g, around);
        strong |= both + sqrt(both * direct) + direct > limit;
    }
    const int beside = max(k.reach, (int)SPX_TRACE_LANES) - 1;
    /* What more fibres add to T is E >= 0, so that |E_ij| <= sqrt(E_ii E_jj): all elements of a strong bin feel it,
     * also those with bins whose own E_jj is far below the limit. */
    if (strong)
        for (int run = max(bin - k.band, 0) / COUPLED_RUN; run <= min(bin + k.band, k.n - 1) / COUPLED_RUN; run++)
            for (int g = max(f - beside, 0); g <= min(f + beside, k.nl - 1); g++)
                if (k.fibre[column - f + g] >= 0)
                    atomicOr(&w.strong[(size_t)run * k.lanes + column - f + g], (unsigned)COUPLED_IS);
}

/* Columns j0 .. j1 - 1 of T of a fibre, and rows from `low` on, with q other fibres at once. */
struct coupled_block {
    int column0, f, q; /* lane of the bundle's first fibre; the fibre; others */
    int other[64];     /* their places in the bundle, in order */
    int low, j0, j1;
    int tail;
    int r0, r1;           /* bins of which the others' equations are solved */
    int m;                /* half-bandwidth of these, ordered by bin and then by fibre */
    int bin0, rows, ncol; /* of V: first bin, rows, and columns, from `low` on */
    double *l, *v, *window;
};

/* Element of M between bins (f, k) and (g, k + dk) of the bundle. */
__device__ double coupling(const params &k, int column0, int f, int g, int bin, int dk)
{
    const int df = abs(g - f), step = g > f ? dk : g < f ? -dk : abs(dk);
    if (df > k.reach || step < k.lo[df] || step > k.hi[df])
        return 0.0;
    const int row = g > f || (g == f && dk >= 0) ? bin : bin + dk;
    return k.mat[((size_t)row * k.nelem + k.first[df] + step - k.lo[df]) * k.lanes + column0 + min(f, g)];
}

/* The others as far as `reach`, and memory for them. By one thread; false: they need more than there is. */
__device__ bool choose_others(const params &k, const coupled_work &w, double *memory, int reach, int tail,
                              coupled_block &o)
{
    o.q = 0;
    for (int g = max(o.f - reach, 0); g <= min(o.f + reach, k.nl - 1); g++)
        if (g != o.f && k.fibre[o.column0 + g] >= 0) {
            if (o.q == 64)
                return false;
            o.other[o.q++] = g;
        }
    o.tail = tail;
    o.r0 = max(o.low - k.depth - 2 * tail, 0);
    o.r1 = min(o.j1 + k.depth + tail + 1, k.n);
    o.m = k.depth * o.q + o.q - 1;
    o.bin0 = o.low - k.depth;
    o.ncol = o.j1 - o.low;
    o.rows = (o.ncol + 2 * k.depth + tail) * o.q;
    const size_t factor = (size_t)(o.r1 - o.r0) * o.q * (o.m + 1), columns = (size_t)o.rows * o.ncol;
    const size_t room = w.shared, column = 2 * ((size_t)o.m + 1);
    const size_t window = column + band_window(o.m) <= room ? 0 : band_window(o.m);
    o.l = memory;
    o.v = o.l + factor;
    o.window = window > 0 ? o.v + columns : NULL;
    return factor + columns + window <= w.each && column <= room;
}

/* Subtracts from COUPLED_ROWS rows, `after` the row v of which l is the column of L, what that row gives them. */
template <bool WHOLE> __device__ void take_row(double *sum, const double *l, double v, int after, int m)
{
#pragma unroll
    for (int u = 0; u < COUPLED_ROWS; u++)
        if (WHOLE || after + u <= m)
            sum[u] = fma(-l[after + u], v, sum[u]);
}

/* V = L^-1 B, a warp 32 columns, a lane one: COUPLED_ROWS rows at a time, so that rows before them are asked for once
 * for all, and sums do not wait for each other. */
__device__ void coupled_columns(const params &k, const coupled_block &o)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, q = o.q, m = o.m, wide = o.m + 1;
    const size_t all = (size_t)o.rows * o.ncol;
    for (size_t i = threadIdx.x; i < all; i += BAND_THREADS)
        o.v[i] = 0.0;
    __syncthreads();
    for (int c0 = warp * WARP; c0 < o.ncol; c0 += BAND_THREADS) {
        const int c = c0 + lane, j = o.low + c, last = min(o.low + c0 + WARP, o.j1) - 1 + k.depth + o.tail;
        const bool in = c < o.ncol;
        const int first = max(o.low + c0 - k.depth, o.r0), n = (min(last, o.r1 - 1) - first + 1) * q;
        double *v = o.v + (size_t)(first - o.bin0) * q * o.ncol + (in ? c : 0);
        const double *l = o.l + (size_t)(first - o.r0) * q * wide;
        for (int row0 = 0; row0 < n; row0 += COUPLED_ROWS) {
            double sum[COUPLED_ROWS];
#pragma unroll
            for (int u = 0; u < COUPLED_ROWS; u++) {
                const int bin = first + (row0 + u) / q;
                sum[u] = in && row0 + u < n && abs(bin - j) <= k.depth
                             ? coupling(k, o.column0, o.f, o.other[(row0 + u) % q], j, bin - j)
                             : 0.0;
            }
            int row = max(row0 - m, 0);
            for (; row < min(row0 + COUPLED_ROWS - 1 - m, row0); row++)
                take_row<false>(sum, l + (size_t)row * wide, v[(size_t)row * o.ncol], row0 - row, m);
#pragma unroll 2
            for (; row < row0; row++)
                take_row<true>(sum, l + (size_t)row * wide, v[(size_t)row * o.ncol], row0 - row, m);
#pragma unroll
            for (int u = 0; u < COUPLED_ROWS; u++) {
                if (row0 + u >= n)
                    break;
                const double *of = l + (size_t)(row0 + u) * wide;
                const double own = first + (row0 + u) / q <= j + k.depth + o.tail ? sum[u] : 0.0;
                if (in)
                    v[(size_t)(row0 + u) * o.ncol] = own;
#pragma unroll
                for (int w = u + 1; w < COUPLED_ROWS; w++)
                    if (w - u <= m)
                        sum[w] = fma(-of[w - u], own, sum[w]);
            }
        }
    }
    __syncthreads();
}

/* Sum of v^2/D of a column in bins first .. last - 1 after its own. */
__device__ double column_share(const coupled_block &o, int c, int first, int last)
{
    double sum = 0.0;
    for (int bin = max(o.low + c + first, o.r0); bin < min(o.low + c + last, o.r1); bin++)
        for (int i = 0; i < o.q; i++) {
            const double v = o.v[(size_t)((bin - o.bin0) * o.q + i) * o.ncol + c];
            sum = fma(v * v, o.l[(size_t)((bin - o.r0) * o.q + i) * (o.m + 1)], sum);
        }
    return sum;
}

/* The largest of a block's values, in all of its threads. */
__device__ double largest_of_block(double v)
{
    __shared__ double most[BAND_WARPS];
    for (int s = WARP / 2; s > 0; s /= 2)
        v = fmax(v, __shfl_xor_sync(FULL, v, s));
    if (threadIdx.x % WARP == 0)
        most[threadIdx.x / WARP] = v;
    __syncthreads();
    for (int i = 0; i < BAND_WARPS; i++)
        v = fmax(v, most[i]);
    __syncthreads();
    return v;
}

/* A change of T_jj as a fraction of the diagonal of M times the drop scale. */
__device__ double relative_change(const params &k, int j, int column, double change)
{
    const double own = k.mat[(size_t)j * k.nelem * k.lanes + column] + SPX_TRACE_PRIOR;
    return fabs(change) / (k.drop_scale[(size_t)j * k.lanes + column] * own);
}

/* T = V^T D^-1 V into k.t[0], k.t[1] becomes 0; a warp 32 columns and COUPLED_DIAGONALS. Returns, in all threads, the
 * largest change of a diagonal as a fraction of that of M times the drop scale. */
__device__ double coupled_term(const params &k, const coupled_block &o)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, q = o.q, wide = o.m + 1;
    const int groups = (k.band + COUPLED_DIAGONALS) / COUPLED_DIAGONALS, turns = (o.j1 - o.j0 + WARP - 1) / WARP;
    const size_t lanes = k.lanes, trow = (size_t)(k.band + 1) * lanes;
    double change = 0.0;
    for (int task = warp; task < groups * turns; task += BAND_WARPS) {
        const int d0 = task % groups * COUPLED_DIAGONALS, jg = o.j0 + task / groups * WARP, j = jg + lane;
        const bool in = j < o.j1;
        const int c = in ? j - o.low : 0;
        const int begin = max(jg - k.depth, o.r0), end = min(min(jg + WARP, o.j1) - d0 + k.depth + o.tail, o.r1);
        double sum[COUPLED_DIAGONALS] = {};
        for (int bin = begin; bin < end; bin++)
            for (int i = 0; i < q; i++) {
                const double *row = o.v + (size_t)((bin - o.bin0) * q + i) * o.ncol;
                const double mine = row[c] * o.l[(size_t)((bin - o.r0) * q + i) * wide];
#pragma unroll
                for (int u = 0; u < COUPLED_DIAGONALS; u++)
                    sum[u] = fma(mine, row[max(c - d0 - u, 0)], sum[u]);
            }
        const int column = o.column0 + o.f;
#pragma unroll
        for (int u = 0; u < COUPLED_DIAGONALS; u++) {
            const int d = d0 + u;
            if (!in || d > k.band || c < d)
                continue;
            const size_t at = (size_t)(j - d) * trow + d * lanes + column;
            if (d == 0) {
                const double was = k.t[0][at] + k.t[1][at];
                change = fmax(change, relative_change(k, j, column, sum[u] - was));
            }
            k.t[0][at] = sum[u];
            k.t[1][at] = 0.0;
        }
    }
    return largest_of_block(change);
}

/* The same of rows low .. j0 - 1, which another item has the diagonal of: *was, of the thread's row, is the one with
 * the others so far. What more of them add to T is positive semidefinite, so that the square of a change of an element
 * is at most the product of those of its two diagonal ones. Without it items beside one where traces cross had elements
 * with it from the next few fibres alone: fluxes were 2.1e-6 of their errors off. */
__device__ double change_before(const params &k, const coupled_block &o, double *was)
{
    static_assert((int)SPX_TRACE_MOST_BAND <= (int)BAND_THREADS, "a row a thread");
    double change = 0.0;
    const int c = threadIdx.x;
    if (o.low + c < o.j0) {
        const double now = column_share(o, c, -k.depth, k.depth + o.tail + 1);
        change = relative_change(k, o.low + c, o.column0 + o.f, now - *was);
        *was = now;
    }
    return largest_of_block(change);
}

/* Whether columns are longer than the tail, when T is there. Of an element (i, j), i < j, the bins beyond the end of
 * column i have a share of which the square is at most T_jj times what column i takes off there (Cauchy and Schwarz),
 * which the last bins of the column stand for: see follow() of the CPU. With M_ii in the place of T_jj, and for
 * elements ten times as large, ivar of a bin with a thousandth of what its neighbours have was 2.1e-8 off. */
__device__ bool is_cut(const params &k, const coupled_block &o)
{
    const size_t lanes = k.lanes, trow = (size_t)(k.band + 1) * lanes, column = o.column0 + o.f;
    const auto own = [&](int j) { /* in units of the drop tolerance */
                                  return k.mat[(size_t)j * k.nelem * lanes + column] *
                                         k.drop_scale[(size_t)j * lanes + column];
    };
    const double little = SPX_TRACE_LITTLE * k.tolerance;
    bool cut = false;
    for (int c = threadIdx.x; c < o.ncol && !cut; c += BAND_THREADS) {
        const int i = o.low + c, end = k.depth + o.tail + 1;
        const double least = little * little * own(i), last = column_share(o, c, end - SPX_TRACE_LAST, end);
        for (int j = max(i, o.j0); j < min(i + k.band + 1, o.j1) && last > 0.0 && !cut; j++)
            cut = last * k.t[0][(size_t)j * trow + column] > least * own(j);
    }
    return __syncthreads_or(cut);
}

/* Whether fibres do not lie side by side in the order of their numbers near columns j0 .. j1 - 1, so that those next to
 * one may say nothing of those beyond them: traces cross, overlap with others that have two or more between them, or
 * have no light where there is some on both sides. */
__device__ bool traces_cross(const params &k, int column0, int j0, int j1)
{
    enum { RISES = 1, FALLS = 2, OVERLAP = 4 };
    __shared__ unsigned long long lit; /* fibres with light, of the first 64 */
    __shared__ int said;
    const int begin = max(j0 - strong_bins(k), 0), end = min(j1 + strong_bins(k), k.n);
    int mine = 0;
    if (threadIdx.x == 0)
        lit = said = 0;
    __syncthreads();
    for (int bin = begin + (int)threadIdx.x; bin < end; bin += BAND_THREADS) {
        unsigned long long with = 0;
        for (int f = 0, last = -1; f < k.nl; f++) {
            const size_t at = (size_t)bin * k.lanes + column0 + f;
            if (k.fibre[column0 + f] < 0 || k.state[at] != SPX_TRACE_SPOT)
                continue;
            const int step = last < 0 ? 0 : k.at[at].xc - k.at[(size_t)bin * k.lanes + column0 + last].xc;
            mine |= step > 0 ? RISES : step < 0 ? FALLS : 0;
            with |= k.w[at] > 0.0 && f < 64 ? 1ull << f : 0;
            last = f;
        }
        atomicOr(&lit, with);
    }
    for (int i = threadIdx.x; i < (end - begin) * k.nl; i += BAND_THREADS) {
        const int bin = begin + i / k.nl, f = i % k.nl, column = column0 + f;
        for (int df = 3; df <= k.reach && f + df < k.nl && k.fibre[column] >= 0 && k.fibre[column + df] >= 0; df++)
            for (int dk = max(k.lo[df], -bin); dk <= min(k.hi[df], k.n - 1 - bin); dk++) {
                const double v = k.mat[((size_t)bin * k.nelem + k.first[df] + dk - k.lo[df]) * k.lanes + column];
                const double both =
                    k.inverse[(size_t)bin * k.lanes + column] * k.inverse[(size_t)(bin + dk) * k.lanes + column + df];
                mine |= 10.0 * v * v * both > SPX_TRACE_STRONG * k.tolerance ? OVERLAP : 0;
            }
    }
    if (mine != 0)
        atomicOr(&said, mine);
    __syncthreads();
    const unsigned long long seen = lit, after = (seen | (seen - 1)) + 1; /* all bits after the lowest run of ones */
    const bool ordered = (said & OVERLAP) == 0 && said != (RISES | FALLS) && (after & seen) == 0;
    __syncthreads();
    return !ordered;
}

/* T of the columns that are marked, with more and more fibres on both sides until nothing changes; with all of the
 * bundle where traces cross. */
__global__ void __launch_bounds__(BAND_THREADS, COUPLED_EACH) coupled_kernel(params k, coupled_work w)
{
    extern __shared__ double shared[];
    __shared__ coupled_block o;
    __shared__ int enough;
    double *memory = w.memory + blockIdx.x * w.each;
    for (int at; (at = next_item(&w.counter[w.what == COUPLED_LARGE ? LARGE_ITEMS : COUPLED_ITEMS])) <
                 coupled_runs(k) * k.lanes;) {
        const int run = at / k.lanes, column = at % k.lanes;
        if (w.strong[at] != w.what || k.fibre[column] < 0)
            continue;
        if (threadIdx.x == 0) {
            o.f = column % k.nl;
            o.column0 = column - o.f;
            o.j0 = run * COUPLED_RUN;
            o.j1 = min(o.j0 + COUPLED_RUN, k.n);
            o.low = o.j0;
            for (int r = run; r > 0 && o.low > o.j0 - k.band && w.strong[(size_t)(r - 1) * k.lanes + column]; r--)
                o.low = max(o.j0 - k.band, (r - 1) * COUPLED_RUN);
        }
        __syncthreads();
        const bool all = k.nf[column / k.nl] > 3 && traces_cross(k, o.column0, o.low, o.j1);
        double before[2] = {INFINITY, INFINITY}, change = INFINITY, more = 0.0, behind = 0.0;
        double was =
            o.low + (int)threadIdx.x < o.j0 ? w.value[(size_t)(o.low + (int)threadIdx.x) * k.lanes + column] : 0.0;
        int tail = SPX_TRACE_TAIL, used = 0;
        bool again = w.what == COUPLED_LARGE; /* T is that of the launch before, which the first round repeats */
        for (int reach = all ? k.nl : 2; !has_settled(k.tolerance, change, before[0]); reach++) {
            if (threadIdx.x == 0)
                enough = choose_others(k, w, memory, reach, tail, o);
            __syncthreads();
            if (!enough && threadIdx.x == 0) {
                if (w.what == COUPLED_LARGE)
                    atomicOr(&k.bad[column / k.nl], BAD_STRONG);
                else
                    w.strong[at] = COUPLED_LARGE;
            }
            if (!enough || o.q == used)
                break;
            const band_block scratch = {o.m, o.window ? o.window : shared + 2 * (o.m + 1), shared};
            (void)block_factor(
                scratch, (o.r1 - o.r0) * o.q, o.l,
                [&](int i, int s) {
                    const int bin = o.r0 + i / o.q, c = i % o.q + s;
                    return coupling(k, o.column0, o.other[i % o.q], o.other[c % o.q], bin, c / o.q);
                },
                [](int, double, const double *) {});
            coupled_columns(k, o);
            more = fmax(more, coupled_term(k, o));
            behind = fmax(behind, change_before(k, o, &was));
            const bool cut = is_cut(k, o);
            if (cut && tail < SPX_TRACE_LONG_TAIL) { /* once more, with what it has to become */
                tail = SPX_TRACE_LONG_TAIL;
                reach--;
                continue;
            }
            used = o.q;
            if (again && !all) {
                again = false;
                more = behind = 0.0;
                __syncthreads();
                continue;
            }
            before[1] = before[0];
            before[0] = change;
            change = fmax(more, sqrt(more * behind));
            more = behind = 0.0;
            if (all || reach >= SPX_TRACE_MAX_REACH ||
                (reach >= STALL_REACH && change < SPX_TRACE_ROUNDED && change > SPX_TRACE_STALL * before[0] &&
                 before[0] > SPX_TRACE_STALL * before[1]))
                break;
            __syncthreads();
        }
        __syncthreads();
    }
}

/* ---- A_s, and the diagonals that it needs ---- */

/* A_s = M_ss - T: one thread a bin. */
__global__ void subtract_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    const size_t lanes = k.lanes, at = (size_t)j * (k.band + 1) * lanes + column;
    const bool there = k.fibre[column] >= 0;
    for (int d = 0; d <= k.band; d++) {
        double v = there && d <= k.m ? k.mat[((size_t)j * k.nelem + d) * lanes + column] : 0.0;
        if (there && k.reach >= 1 && j + d < k.n)
            v -= k.t[0][at + d * lanes] + k.t[1][at + d * lanes];
        k.a[at + d * lanes] = there ? v : d == 0 ? 1.0 : 0.0;
    }
}

/* Half-bandwidths, see bandwidth() of the CPU: those of elements that are above a limit in units of 1/Z. An item is a
 * lane and NEED bins. */
__global__ void __launch_bounds__(BAND_THREADS) need_kernel(params k, coupled_work w)
{
    extern __shared__ double shared[];
    __shared__ int most, far;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const int me = threadIdx.x;
    for (int at; (at = next_item(&w.counter[NEED_ITEMS])) < need_blocks(k) * k.lanes;) {
        const int column = at % k.lanes, first = at / k.lanes * NEED, last = min(first + NEED, k.n);
        if (k.wanted[column] < 0)
            continue;
        const int r0 = max(first - COUPLED_HALO, 0), r1 = min(last + k.band + COUPLED_HALO, k.n);
        const double *a = k.a + column, trim = SPX_TRACE_TRIM * k.drop_tolerance;
        const auto scale = [&](int j) { return 1.0 / (a[j * arow] * k.drop_scale[(size_t)j * lanes + column]); };
        if (me == 0)
            most = far = k.m;
        __syncthreads();
        int mine = k.m, any = k.m;
        for (int j = r0 + me; j < r1; j += BAND_THREADS)
            for (int d = k.m + 1; d <= k.band && j + d < r1; d++) {
                const double e = a[j * arow + d * lanes];
                if (e == 0.0)
                    continue;
                any = d > any && j >= first && j < last ? d : any;
                if (d > mine && e * e * scale(j) * scale(j + d) > trim * trim)
                    mine = d;
            }
        atomicMax(&most, mine);
        atomicMax(&far, any);
        __syncthreads();
        const int m = most, beyond = far, n = r1 - r0;
        int need = m;
        if (beyond > m) {
            double *z = w.memory + blockIdx.x * w.each, *l = z + NEED + SPX_TRACE_MOST_BAND + 2 * COUPLED_HALO;
            const band_block scratch = {
                m, band_shared(m) + band_window(m) <= w.shared ? shared + band_shared(m) : l + (size_t)n * (m + 1),
                shared};
            (void)block_factor(
                scratch, n, l, [&](int j, int d) { return a[(r0 + j) * arow + d * lanes]; },
                [](int, double, const double *) {});
            block_inverse(
                scratch, n, 0, l,
                [&](int j, int d, double v) {
                    if (d == 0)
                        z[j] = fmin(v, SPX_TRACE_MAX_INVERSE /
                                           (fmin(k.drop_scale[(size_t)(r0 + j) * lanes + column], k.least_scale) *
                                            a[(r0 + j) * arow]));
                },
                [](int, const double *) {});
            __syncthreads();
            const double limit = SPX_TRACE_EDGE * k.drop_tolerance;
            for (int j = first + me; j < last; j += BAND_THREADS)
                for (int d = m + 1; d <= beyond && j + d < r1; d++) {
                    const double e = a[j * arow + d * lanes];
                    if (d > need && e * e * z[j - r0] * z[j + d - r0] > limit * limit)
                        need = d;
                }
        }
        atomicMax(&k.need[(size_t)(first / NEED) * lanes + column], need);
        for (int to = first / NEED; to <= min(last - 1 + need, k.n - 1) / NEED; to++)
            atomicMax(&k.need[(size_t)to * lanes + column], need);
        __syncthreads();
    }
}

/* ---- host ---- */

/* Doubles of a block of coupled_kernel() for `fibres` others and a tail, or of need_kernel(). */
size_t coupled_size(const params &k, int fibres, int tail)
{
    const size_t ncol = (size_t)std::min((int)COUPLED_RUN + k.band, k.n), q = (size_t)std::max(fibres, 1);
    const size_t bins = std::min(ncol + 2 * (size_t)k.depth + 3 * (size_t)tail + 1, (size_t)k.n);
    const size_t m = k.depth * q + q - 1;
    const size_t strong =
        bins * q * (m + 1) + (ncol + 2 * (size_t)k.depth + (size_t)tail) * q * ncol + band_window((int)m);
    const size_t span = NEED + SPX_TRACE_MOST_BAND + 2 * COUPLED_HALO;
    const size_t need = span * (k.band + 2) + band_window(k.band);
    return std::max(strong, need);
}

/* Of most blocks, and of those that work on what needs more. */
size_t coupled_each(const params &k, bool large)
{
    enum { USUAL_OTHERS = 8 };
    const int all = std::min(k.nl - 1, 2 * (int)SPX_TRACE_MAX_REACH);
    return coupled_size(k, large ? all : std::min(all, (int)USUAL_OTHERS),
                        large ? SPX_TRACE_LONG_TAIL : SPX_TRACE_TAIL);
}

/* Doubles of a piece: for as many of most blocks, for one of the others at least, for columns of V, and for the drop
 * scale. */
size_t coupled_memory(const params &k, size_t blocks)
{
    const size_t lanes = (size_t)k.lanes, n = (size_t)k.n;
    return std::max(std::max(coupled_each(k, false) * blocks, coupled_each(k, true)),
                    lanes * std::max(n * (size_t)k.rows, own_size(k)));
}

coupled_work take_coupled(arena &m, const params &k, size_t blocks)
{
    coupled_work w = {};
    w.scale = take_drop_scratch(m, k);
    w.value = w.scale.blocks;
    w.strong = m.take<unsigned>((size_t)coupled_runs(k) * k.lanes);
    w.counter = m.take<int>(COUPLED_COUNTERS);
    w.memory = m.take<double>(coupled_memory(k, blocks));
    return w;
}

/* A_s in k.a, and what bounds() needs of it: as schur_complement(), for pieces with k.coupled. */
void coupled_complement(params k, arena m, int *need, slot *s)
{
    const size_t bins = (size_t)k.n * k.lanes, nneed = (size_t)need_blocks(k) * k.lanes;
    const unsigned each = blocks(bins, 128);
    size_t most = COUPLED_BLOCKS;
    for (arena counted = {NULL, m.used, m.size}; most > 1; most--, counted = {NULL, m.used, m.size}) {
        (void)take_coupled(counted, k, most);
        if (counted.used <= m.size)
            break;
    }
    coupled_work w = take_coupled(m, k, most);
    zero(s, k.need, sizeof(int) * nneed);
    zero(s, w.strong, sizeof(unsigned) * (size_t)coupled_runs(k) * k.lanes);
    zero(s, w.counter, sizeof(int) * COUPLED_COUNTERS);
    zero(s, k.schur_flags, sizeof(int) * schur_segments(k) * k.lanes);
    zero(s, k.taken, sizeof(double) * 2 * k.lanes);
    own_variances(k, w.memory, s);
    drop_scale_kernel<<<k.lanes, BAND_THREADS, 0, s->stream>>>(k, w.scale);
    if (k.reach >= 1) {
        params columns = k;
        columns.v = w.memory;
        for (int side = -1; side <= 1; side += 2) {
            columns_kernel<<<each, 128, 0, s->stream>>>(columns, side);
            diagonals_kernel<<<each, 128, 0, s->stream>>>(columns, side);
        }
        if (k.coupled < 2)
            beyond_kernel<<<each, 128, 0, s->stream>>>(k);
        find_coupled_kernel<<<each, 128, 0, s->stream>>>(k, w);
        const size_t all = coupled_memory(k, most);
        for (const unsigned what : {(unsigned)COUPLED_IS, (unsigned)COUPLED_LARGE}) {
            const size_t bytes = what == COUPLED_LARGE ? (size_t)BAND_SHARED : (size_t)COUPLED_SHARED;
            w.what = what;
            w.each = coupled_each(k, what == COUPLED_LARGE);
            w.shared = bytes / sizeof(double);
            coupled_kernel<<<(unsigned)std::min(all / w.each, (size_t)COUPLED_BLOCKS), BAND_THREADS, bytes,
                             s->stream>>>(k, w);
        }
        subtract_kernel<<<each, 128, 0, s->stream>>>(k);
        w.each = coupled_each(k, false);
        w.shared = COUPLED_SHARED / sizeof(double);
        need_kernel<<<(unsigned)std::min(all / w.each, (size_t)COUPLED_BLOCKS), BAND_THREADS, COUPLED_SHARED,
                      s->stream>>>(k, w);
    } else {
        subtract_kernel<<<each, 128, 0, s->stream>>>(k);
    }
    spx::check(cudaGetLastError(), "launch");
    get(s, need, k.need, nneed);
}

} // namespace

#endif
