/* Provides the square root of A_s by its poles: flux, ivar and resolution. */
#ifndef SPX_EXTRACT_CUDA_SQRT_CUH
#define SPX_EXTRACT_CUDA_SQRT_CUH

#include "extract/cuda/sqrt_broad.cuh"
#include "extract/cuda/sqrt_wide.cuh"

namespace
{

/* A block works on an item: the lanes of its warps, one or two, are its poles, all of which read a column of the matrix
 * together, and what they add to Q never leaves the multiprocessor. Each pole has two lanes, which come from the two
 * ends of the item at a time and meet in the middle: chains are half as long, and no rows of factors are made beyond
 * the item's bins only to begin with. STRIDE steps are worked on at a time: windows move in registers once a stride,
 * and sums over the poles wait for each other less. FORTH and BACK: columns of the matrix and of its factor that are in
 * shared memory or on their way there. */
enum { FORTH = 8, BACK = 4, TERMS_PITCH = WARP + 3 };

/* Pairs of doubles: of a column of the matrix and an element of x; of 1/D, a column of L and elements of L^-1 1 and
 * L^-1 x. */
__device__ __host__ constexpr int column_pairs(int mm)
{
    return (mm + 3) / 2;
}
__device__ __host__ constexpr int factor_pairs(int mm)
{
    return (mm + FACTOR_MORE + 2) / 2;
}

/* What `steps` bins of all poles add to the diagonals of Q, to Q 1 and to Q x, before the sum is taken: [step][h + 3]
 * rows, of a lane each. */
__device__ __host__ inline size_t terms_size(const params &k, int steps)
{
    return (size_t)steps * (k.h + 3) * TERMS_PITCH;
}

/* Doubles of shared memory that a warp of root_kernel() needs for a bandwidth that there are loops for. */
__device__ __host__ inline size_t root_terms(const params &k, int mm)
{
    const size_t forth = (size_t)FORTH * ENDS * column_pairs(mm);
    const size_t back = (size_t)BACK * WARP * factor_pairs(mm) + (size_t)BACK * WARP / 2;
    return 2 * ((terms_size(k, STRIDE) + 1) / 2 + (forth > back ? forth : back));
}

/* Where the sum over the poles of quantity c (diagonal, Q 1 or Q x) of a bin goes. What is of bins of the next segment
 * is kept apart. */
__device__ void put_sum(const params &k, const item &v, int bin, int c, double value, bool more)
{
    const size_t lanes = k.lanes, h3 = k.h + 3;
    const int seg = bin / k.seg, beyond = bin - seg * k.seg;
    double *over = k.over + (((size_t)(seg - 1) * EXTRA + beyond) * h3 + c) * lanes + v.column;
    double *sum = bin < v.last ? k.sum + (bin * h3 + c) * lanes + v.column : over;
    value += more ? *sum : 0.0;
    *sum = value;
    if (sum != over && bin - v.first >= k.seg && beyond < EXTRA) /* the whole trace is one item */
        *over = value;
}

/* Bins of an item from its two ends: side 0 goes from bin middle - n up to middle + M - 1, side 1 from middle + M - 1 +
 * n down to middle. The M bins in the middle are worked on by both; those beyond a trace are equations of their own. */
struct two_sides {
    int middle, n, last, way, bin0; /* last: end of what is written; of this lane: direction, and first bin */

    __device__ two_sides(const params &k, const item &v, int m, int length, int side) : n(length)
    {
        last = min(v.last + EXTRA, k.n);
        middle = middle_of(v.first, last, m);
        way = side ? -1 : 1;
        bin0 = side ? middle + m - 1 + n : middle - n;
    }
};

/* Square root of an item by a block, with its poles side by side: block (item). L D L^T of A + shift from both ends;
 * see add_pole() of the CPU. In the middle what both sides take off the equations is added up, so that each of them has
 * all that it needs for rows of the inverse from there on back to its end. Rows of factors are kept from the item's own
 * bins on. */
template <int M> __global__ void root_kernel(params k, batch o)
{
    constexpr int COLUMN = column_pairs(M), LINE = factor_pairs(M);
    extern __shared__ double2 pairs[];
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP, side = lane / POLES;
    const item v = o.at[blockIdx.x];
    const int h = k.h, n = rows_to_middle(v, min(v.last + EXTRA, k.n)), size = (int)root_terms(k, M);
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const auto wait = [&]() {
        if (warps == 1)
            __syncwarp();
        else
            __syncthreads();
    };
    const two_sides own(k, v, M, n, side);
    const int npole = k.npole[v.column];
    /* rows that are kept: from the item's own bins on, and on side 1 so many more that diagonals there are complete */
    const int skip = side ? max(own.bin0 - (own.last + h - 1), 0) : max(v.first - own.bin0, 0);
    double *all_terms = (double *)pairs, *terms = all_terms + warp * size;
    double2 *ring = (double2 *)terms + (terms_size(k, STRIDE) + 1) / 2;
    double2 *l = (double2 *)o.lower + ((size_t)blockIdx.x * warps + warp) * (o.rows + M) * LINE * WARP + lane;
    bool good = true;
    for (int pole0 = 0; pole0 < npole; pole0 += warps * POLES) {
        const int pole = pole0 + warp * POLES + lane % POLES;
        const bool active = pole < npole, keeps = pole < round_to(npole, 2); /* whole sectors of lines */
        const size_t at = (size_t)min(pole, npole - 1) * lanes + v.column;
        const double shift = k.shift[at], weight = k.pole_weight[at], scale = -weight * shift;
        {
            /* what is read, of both sides: [FORTH][ENDS][COLUMN] */
            const int theirs = lane / (M + 2), element = lane % (M + 2), off = element <= M ? element : 0;
            const two_sides of(k, v, M, n, theirs);
            const bool fetches = theirs < ENDS;
            const size_t row = element <= M ? arow : lanes;
            const double *const base = (element <= M ? k.a + off * lanes : k.x) + v.column;
            double *const to = (double *)(ring + theirs * COLUMN) + element;
            int bin = of.bin0, slot = 0;
            const auto ahead = [&]() {
                if (fetches) {
                    const int other = bin + of.way * off, low = min(bin, other), high = max(bin, other);
                    if (low >= 0 && high < k.n)
                        fetch(to + slot * ENDS * 2 * COLUMN, base + low * row);
                    else
                        to[slot * ENDS * 2 * COLUMN] = element == 0 ? 1.0 : 0.0;
                }
                __pipeline_commit();
                slot = (slot + 1) & (FORTH - 1);
                bin += of.way;
            };
            for (int j = 0; j < FORTH - 1; j++)
                ahead();
            factor_window<M> window;
            forth_window<M> ones, fluxes;
            const double2 *mine = ring + side * COLUMN;
            double2 *lj = l - (long)skip * LINE * WARP;
            /* reach: bins ahead that are coupled to bin j, of M */
            const auto step = [&](int j, int reach) {
                __pipeline_wait_prior(FORTH - 2);
                __syncwarp();
                ahead();
                double in[2 * COLUMN];
#pragma unroll
                for (int i = 0; i < COLUMN; i++) {
                    const double2 pair = mine[(j & (FORTH - 1)) * ENDS * COLUMN + i];
                    in[2 * i] = pair.x;
                    in[2 * i + 1] = pair.y;
                }
                const double x = in[M + 1];
#pragma unroll
                for (int i = 1; i <= M; i++)
                    in[i] = i <= reach ? in[i] : 0.0;
                const double inverse = window.next(in, shift);
                const double s1 = ones.next(1.0, in), sx = fluxes.next(x, in);
                if (j >= skip && keeps) {
                    double line[2 * LINE];
                    line[0] = inverse;
#pragma unroll
                    for (int i = 1; i <= M; i++)
                        line[i] = in[i];
                    line[M + 1] = s1;
                    line[M + 2] = sx;
                    line[2 * LINE - 1] = M % 2 == 0 ? 0.0 : sx;
#pragma unroll
                    for (int i = 0; i < LINE; i++)
                        __stcs(lj + i * WARP, make_double2(line[2 * i], line[2 * i + 1]));
                }
                lj += LINE * WARP;
            };
            for (int j0 = 0; j0 < n; j0 += STRIDE)
#pragma unroll
                for (int j = j0; j < j0 + STRIDE; j++)
                    step(j, M);
            window.meet();
            ones.meet();
            fluxes.meet();
#pragma unroll
            for (int j = 0; j < M; j++)
                step(n + j, M - 1 - j);
            __pipeline_wait_prior(0);
            good &= window.good || !active;
        }
        __threadfence_block(); /* what was written is read again by copies */
        __syncwarp();
        for (int i = lane; i < STRIDE * (h + 3) * TERMS_PITCH; i += WARP)
            terms[i] = 0.0; /* there may be fewer poles than lanes */
        __syncwarp();
        const int most = n + M, least = min(__shfl_sync(FULL, skip, 0), __shfl_sync(FULL, skip, POLES));
        double *xs = (double *)(ring + BACK * LINE * WARP) + lane;
        int to = 0, slot = 0, next = most - 1;
        const auto ahead = [&]() {
            const int row = max(next - skip, 0), bin = min(max(own.bin0 + own.way * next, 0), k.n - 1);
#pragma unroll
            for (int i = 0; i < LINE && keeps; i++)
                __pipeline_memcpy_async(ring + (to * LINE + i) * WARP + lane, l + ((size_t)row * LINE + i) * WARP,
                                        sizeof(double2));
            fetch(xs + to * WARP, k.x + bin * lanes + v.column);
            __pipeline_commit();
            to = to + 1 < BACK ? to + 1 : 0;
            next--;
        };
        for (int i = 0; i < BACK - 1; i++)
            ahead();
        double back1[M + 1] = {0.0}, backx[M + 1] = {0.0};
        inverse_window<M> z;
        for (int top = most - 1; top >= least; top -= STRIDE) {
#pragma unroll
            for (int part = 0; part < STRIDE; part++) {
                __pipeline_wait_prior(BACK - 2);
                double line[2 * LINE];
#pragma unroll
                for (int i = 0; i < LINE; i++) {
                    const double2 pair = ring[(slot * LINE + i) * WARP + lane];
                    line[2 * i] = pair.x;
                    line[2 * i + 1] = pair.y;
                }
                const double x = xs[slot * WARP];
                slot = slot + 1 < BACK ? slot + 1 : 0;
                ahead();
                double s1 = line[M + 1] * line[0], sx = line[M + 2] * line[0], diagonal = line[0], column[M + 1];
#pragma unroll
                for (int i = 1; i <= M; i++)
                    column[i] = 0.0;
#pragma unroll
                for (int t = M; t >= 1; t--) {
                    s1 = fma(-line[t], back1[t], s1);
                    sx = fma(-line[t], backx[t], sx);
#pragma unroll
                    for (int i = 1; i <= M; i++) /* Z(j+i, j+t) */
                        column[i] = fma(-line[t], z.at(i, t), column[i]);
                }
#pragma unroll
                for (int t = M; t >= 1; t--)
                    diagonal = fma(-line[t], column[t], diagonal);
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    back1[t] = back1[t - 1];
                    backx[t] = backx[t - 1];
                }
                back1[1] = s1;
                backx[1] = sx;
                z.next(diagonal, column);
                double *row = terms + part * (h + 3) * TERMS_PITCH + lane + side;
                const int bin = own.bin0 + own.way * (top - part);
                if (pole == 0 && bin >= (side ? own.middle + M : v.first) && bin < (side ? v.last : own.middle + M))
                    k.variance[(size_t)bin * lanes + v.column] = diagonal;
                if (active) {
                    row[0] = scale * diagonal;
#pragma unroll
                    for (int d = 1; d <= M; d++)
                        if (d <= h)
                            row[d * TERMS_PITCH] = scale * column[d];
                    row[(h + 1) * TERMS_PITCH] = weight * fma(-shift, s1, 1.0);
                    row[(h + 2) * TERMS_PITCH] = weight * fma(-shift, sx, x);
                }
            }
            wait();
            /* sums over the poles, in their order: threads have step, quantity and side */
            const int step = lane / (WARP / STRIDE), theirs = lane % ENDS, back = top - step;
            const two_sides of(k, v, M, n, theirs);
            const int bin = of.bin0 + of.way * back;
            enum { AT_A_TIME_OF_WARP = WARP / STRIDE / ENDS };
            for (int c = warp * AT_A_TIME_OF_WARP + lane % (WARP / STRIDE) / ENDS; c < h + 3;
                 c += warps * AT_A_TIME_OF_WARP) {
                /* pairs of bins: on side 0 with one above, on side 1 with one below; in the middle side 0 has them */
                const int d = c <= h ? c : 0, low = theirs ? bin - d : bin;
                if (theirs ? bin < of.middle + M : bin + d >= of.middle + M || bin < v.first)
                    continue;
                if (low >= of.last || back < 0)
                    continue;
                const double *row = all_terms + (step * (h + 3) + c) * TERMS_PITCH + theirs * (POLES + 1);
                double even = 0.0, odd = 0.0;
                for (int w = 0; w < warps; w++, row += size)
#pragma unroll
                    for (int i = 0; i < POLES; i += 2) {
                        even += row[i];
                        odd += row[i + 1];
                    }
                put_sum(k, v, low, c, even + odd, pole0 > 0);
            }
            wait();
        }
        __pipeline_wait_prior(0);
        __syncwarp(); /* the next poles have the same room */
    }
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
}

/* The same for any bandwidth mm, of a whole trace: poles side by side, from the first bin to the last and back. The
 * window is in shared memory where it fits. */
template <> __global__ void root_kernel<0>(params k, batch o)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x, h = k.h, mm = o.mm, n = k.n;
    const item v = o.at[blockIdx.x];
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t lrow = (size_t)(mm + 1 + FACTOR_MORE) * WARP, wrow = (size_t)(mm + 1) * WARP;
    const double *a = k.a + v.column, *x = k.x + v.column;
    double *l = o.lower + (size_t)blockIdx.x * o.rows * lrow + lane, *one = l + (mm + 1) * WARP, *flux = one + WARP;
    double *window = o.in_shared ? shared + terms_size(k, 1) + lane : o.window + blockIdx.x * (mm + 1) * wrow + lane;
    const int npole = k.npole[v.column];
    bool good = true;
    for (int pole0 = 0; pole0 < npole; pole0 += WARP) {
        const int pole = pole0 + lane, count = min(npole - pole0, (int)WARP);
        const bool active = pole < npole;
        const size_t at = (size_t)min(pole, npole - 1) * lanes + v.column;
        const double shift = k.shift[at], weight = k.pole_weight[at], scale = -weight * shift;
        int j = 0;
        double s1 = 1.0, sx = x[0];
        const bool made = factor_any(n, mm, a, arow, lanes, shift, l, lrow, WARP, window, WARP, [&](int t, double lt) {
            if (t > 0) {
                s1 = fma(-lt, one[(size_t)(j - t) * lrow], s1);
                sx = fma(-lt, flux[(size_t)(j - t) * lrow], sx);
                return;
            }
            one[(size_t)j * lrow] = s1;
            flux[(size_t)j * lrow] = sx;
            j++;
            s1 = 1.0;
            sx = j < n ? x[(size_t)j * lanes] : 0.0;
        });
        good &= made || !active;
        /* Z(j, j+d) of the last rows in the window, slot 0 .. mm; the row that is made is in the place after them */
        int slot = 0;
        for (j = n - 1; j >= 0; j--) {
            const double *lj = l + (size_t)j * lrow;
            const int rest = n - 1 - j < mm ? n - 1 - j : mm;
            slot = slot > 0 ? slot - 1 : mm;
            double *now = window + slot * wrow;
            s1 = one[(size_t)j * lrow] * lj[0];
            sx = flux[(size_t)j * lrow] * lj[0];
            for (int i = 1; i <= mm; i++)
                now[i * WARP] = 0.0;
            for (int t = rest; t >= 1; t--) {
                const double lt = lj[t * WARP];
                s1 = fma(-lt, one[(size_t)(j + t) * lrow], s1);
                sx = fma(-lt, flux[(size_t)(j + t) * lrow], sx);
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
            one[(size_t)j * lrow] = s1;
            flux[(size_t)j * lrow] = sx;
            double *row = shared + lane;
            row[0] = scale * own;
            if (pole == 0)
                k.variance[(size_t)j * lanes + v.column] = own;
            for (int d = 1; d <= h; d++)
                row[d * TERMS_PITCH] = scale * now[d * WARP];
            row[(h + 1) * TERMS_PITCH] = weight * fma(-shift, s1, 1.0);
            row[(h + 2) * TERMS_PITCH] = weight * fma(-shift, sx, x[(size_t)j * lanes]);
            __syncwarp();
            for (int c = lane; c < h + 3; c += WARP) {
                double sum = 0.0;
                for (int i = 0; i < count; i++)
                    sum += shared[c * TERMS_PITCH + i];
                put_sum(k, v, j, c, sum, pole0 > 0);
            }
            __syncwarp();
        }
    }
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
}

/* Sums over the poles that had warps of their own, in their order: block (rows of the share, item). Those of bins of
 * the next segment are kept apart. */
__global__ void gather_kernel(params k, batch o)
{
    const int h3 = k.h + 3, row = blockIdx.x * blockDim.x + threadIdx.x;
    const item v = o.at[blockIdx.y];
    const int bin = v.first + row / h3, c = row % h3, npole = min(o.npole, k.npole[v.column] - o.pole0);
    if (row >= o.span * h3 || bin >= min(v.last + EXTRA, k.n))
        return;
    const size_t each = (size_t)o.span * h3;
    const double *share = o.share + blockIdx.y * o.npole * each + row;
    double value = 0.0;
    for (int pole = 0; pole < npole; pole++)
        value += share[pole * each];
    put_sum(k, v, bin, c, value, o.pole0 > 0);
}

/* Whether two segments have the same for a bin. What remains is far below the tolerance of ivar and resolution,
 * relative, and of the flux in standard deviations: block (lanes, bin beyond the segment, segment). */
__global__ void root_seams_kernel(params k)
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

/* Of an element of A_s, as a multiple of the tolerance: of one on the outermost diagonal, and of one that is left out.
 * Those of a frame of camera z with ordinary masks reach 0.6, with which fluxes are 5e-9 of their errors off; with 4.1
 * on the outermost diagonal a flux was 2.2e-6 of its error off, with 23 left out 6.9e-6. */
__device__ constexpr double EDGE = 1.0, LEFT_OUT = 1.0;

/* The same of the flux, in its errors: element (i, j) that is left out changes that of bin i by A_ij sqrt(Z_ii) x_j,
 * which is above the tolerance by the signal-to-noise ratio of bin j, whether that is in the output or in the padding.
 * In proportion to the fibre's brightness, see rounding_kernel(). In that frame of camera z it reaches 1.6; without
 * this limit fluxes beside hits, with 125, and those of a fibre whose padding is brighter than its spectrum, 207,
 * were 1.0e-6 and 1.1e-6 of that off. */
__device__ constexpr double FLUX_OUT = 20.0;

/* The square root feels what is left out of A_s as a fraction of what is known of the two bins when nothing is known of
 * others, which is 1/Z_jj with Z = A_s^-1 (see bandwidth() of the CPU; the first shift is far below the eigenvalues).
 * Where an element beyond the half-bandwidth that was needed without Z is not small in these units, or the outermost
 * diagonals do not fall, so that more than there is room for matters (see goes_on() of the CPU), others have to do it:
 * one thread a bin. */
__global__ void edge_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    if (k.npole[column] == 0)
        return;
    const int need = max(k.need[(size_t)(j / NEED) * k.lanes + column], k.m);
    const bool far = k.coupled || (schur_flags_of(k, column, j, j + k.band) & (SCHUR_LARGE | SCHUR_WIDE));
    const double out = LEFT_OUT * k.drop_tolerance, bright = fmax(k.narrow[3 * (size_t)k.lanes + column], 1.0);
    const int least = far ? max(min(need, k.band - SPX_TRACE_RIM), k.m) : k.band - 1;
    const auto wanted = [&](int bin) { return bin >= k.pad && bin < k.pad + k.nwave; };
    double edge = (k.coupled ? SPX_TRACE_EDGE : EDGE) * k.drop_tolerance, flux = FLUX_OUT * k.drop_tolerance * bright;
    for (int d = k.band; d > least; d--, edge *= SPX_TRACE_FALL, flux *= SPX_TRACE_FALL) {
        const double limit = d > need ? fmin(out, edge) : edge;
        const double e = j + d < k.n ? k.a[((size_t)j * (k.band + 1) + d) * k.lanes + column] : 0.0;
        if (e == 0.0)
            continue;
        const size_t to = (size_t)i + (size_t)d * k.lanes;
        const double z = k.variance[i], its = k.variance[to], e2 = e * e;
        bool off = e2 * z * its > limit * limit;
        if (!k.coupled) {
            const double most = d > need ? FLUX_OUT * k.drop_tolerance * bright : flux;
            const double of_j = wanted(j) ? z * k.x[to] * k.x[to] : 0.0,
                         of_its = wanted(j + d) ? its * k.x[i] * k.x[i] : 0.0;
            off |= e2 * fmax(of_j, of_its) > most * most;
        }
        if (off)
            atomicOr(&k.bad[column / k.nl], BAD_BAND);
    }
}

/* What the bound of rounding in the fluxes follows from, see SPX_TRACE_LAST_PLACE: of each lane what amplifies and what
 * is amplified, into k.narrow[lanes + lane] and [2 lanes + lane], and the signal-to-noise ratio above a hundred that
 * divides it into [3 lanes + lane]; and whether the norm of the inverse, from which the poles follow, is one: no
 * element of the inverse is above it. Block (lanes, bins), a thread MAGNITUDES bins. */
__global__ void rounding_kernel(params k)
{
    constexpr double SEEN = 0.8;
    const int column = blockIdx.x * WARP + threadIdx.x, first = (blockIdx.y * blockDim.y + threadIdx.y) * MAGNITUDES;
    if (column >= k.lanes || first >= k.n || k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, row = (size_t)(k.h + 3) * lanes;
    const bool rooted = k.npole[column] > 0;
    double amplifies = 0.0, amplified = 0.0, brightest = 1.0, largest = 0.0;
    for (int bin = first; bin < min(first + MAGNITUDES, k.n); bin++) {
        const size_t at = (size_t)bin * lanes + column;
        const double z = k.variance[at];
        const double m = k.mat[(size_t)bin * k.nelem * lanes + column];
        largest = fmax(largest, z);
        amplifies = fmax(amplifies, spx_trace_amplifies(z, m));
        amplified = fmax(amplified, spx_trace_amplified(z, m, k.x[at]));
        if (rooted && bin >= k.pad && bin < k.pad + k.nwave)
            brightest = fmax(brightest, 0.01 * fabs(k.sum[bin * row + (k.h + 2) * lanes + column]));
    }
    raise_to(&k.narrow[lanes + column], amplifies);
    raise_to(&k.narrow[2 * lanes + column], amplified);
    if (brightest > 1.0)
        raise_to(&k.narrow[3 * lanes + column], brightest);
    if (rooted && largest * SEEN > k.bound[column])
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
}

/* flux, ivar, pixmask_fraction and R: a block turns a tile of 32 bins and 32 lanes, which lie side by side on the
 * device, into rows of bins. Threads: 32 x 8. */
__global__ void turn_kernel(params k)
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
        const size_t out = (size_t)(k.wanted[lane0 + i] - k.others[(lane0 + i) / k.nl]);
        const double v = tile[threadIdx.x][i];
        if (what < 0)
            k.out_res[(out * ndiag + d) * k.nwave + bin] = v;
        else
            (what == 0 ? k.out_flux : what == 1 ? k.out_ivar : k.out_seen)[out * k.nwave + bin] = v;
    }
}

/* What bounds() and root() begin with, before there is anything that waits for it. */
void begin_roots(const params &k, slot *s)
{
    zero(s, k.narrow, sizeof(double) * 4 * k.lanes);
    zero(s, k.npole, sizeof(int) * k.lanes);
    zero(s, k.total, sizeof(double) * k.lanes);
    zero(s, k.bound, sizeof(double) * 2 * k.lanes);
    zero(s, k.sum, sizeof(double) * (size_t)k.n * (k.h + 3) * k.lanes);
}

/* Bounds of the eigenvalues, and poles, for the half-bandwidths t.need. The numbers of poles go to t.npole. */
void bounds(params k, arena m, tables &t, slot *s)
{
    list l;
    cut(k, BOUNDS, 0);
    bool magnitudes = false;
    list_items(k, t, NULL, USUAL, l);
    in_batches(
        m, l, t, 1, 0, s,
        [&](const kind &v, const batch &b, int groups, cudaStream_t stream) {
            if (v.wide && v.mm > WIDEST)
                broad_bounds_kernel<<<groups, BAND_THREADS, band_bytes(v.mm), stream>>>(k, b);
            else if (v.wide)
                wide_bounds_kernel<<<groups, WARP, 0, stream>>>(k, b);
            else
                BY_BAND(v.mm, bounds_kernel, <<<groups, WARP, stream_bytes(v.mm, v.mm + 2), stream>>>(k, b))
        },
        [&](const kind &, const batch &, int,
            cudaStream_t) { /* beside them, where nobody else is yet */
                            if (!magnitudes)
                                magnitudes_kernel<<<dim3(blocks(k.lanes, WARP), blocks(k.n, 4 * MAGNITUDES)),
                                                    dim3(WARP, 4), 0, s->stream>>>(k);
                            magnitudes = true;
        });
    poles_kernel<<<k.lanes, dim3(POLE_THREADS, TRIES), 0, s->stream>>>(k);
    spx::check(cudaGetLastError(), "launch");
    get(s, t.npole, k.npole, k.lanes);
}

/* What the square root works on, when the numbers of poles are there. */
void list_roots(params k, tables &t, int how, list &l)
{
    cut(k, LONG, 0);
    list_items(k, t, t.npole, how, l);
}

/* Sums over the poles of what is in the list. */
void sums(const params &k, arena m, tables &t, const list &l, size_t most_shared, slot *s)
{
    in_batches(
        m, l, t, 2, (size_t)k.h + 3, s,
        [&](const kind &v, batch b, int groups, cudaStream_t stream) {
            if (v.wide && v.mm > WIDEST) {
                broad_root_kernel<<<dim3((unsigned)b.npole, (unsigned)groups), BAND_THREADS, band_bytes(v.mm),
                                    stream>>>(k, b);
                return;
            }
            if (v.wide) {
                wide_root_kernel<<<dim3((unsigned)b.npole, (unsigned)groups), WARP, 0, stream>>>(k, b);
                return;
            }
            const bool together = has_lanes(v.mm);
            const size_t each = sizeof(double) * (together ? root_terms(k, v.mm) : terms_size(k, 1)); /* of a warp */
            const int threads = (size_t)(v.lanes / WARP) * each <= most_shared ? v.lanes : (int)WARP;
            size_t bytes = (size_t)(threads / WARP) * each;
            const size_t window = sizeof(double) * (size_t)(v.mm + 1) * (size_t)(v.mm + 1) * WARP;
            b.in_shared = !together && bytes + window <= most_shared;
            if (b.in_shared)
                bytes += window;
            if (v.mm == WIDER)
                root_kernel<WIDER><<<groups, threads, bytes, stream>>>(k, b);
            else
                BY_BAND(v.mm, root_kernel, <<<groups, threads, bytes, stream>>>(k, b))
        },
        [&](const kind &v, const batch &b, int groups, cudaStream_t stream) {
            if (v.wide)
                gather_kernel<<<dim3(blocks((size_t)b.span * (k.h + 3), 128), (unsigned)groups), 128, 0, stream>>>(k,
                                                                                                                   b);
        });
}

/* From the list of list_roots(). */
void root(params &k, arena m, tables &t, list &l, size_t most_shared, slot *s)
{
    const size_t lanes = (size_t)k.lanes;
    params w = k;
    cut(w, LONG, 0);
    /* where segments do not fit together, once more with longer ones, and then in one piece */
    for (int how = USUAL;; list_roots(k, t, ++how, l)) {
        sums(w, m, t, l, most_shared, s);
        if (w.nseg == 1 || how == WHOLE)
            break;
        zero(s, w.redo, sizeof(int) * w.nseg * lanes);
        root_seams_kernel<<<dim3(blocks(lanes, 128), EXTRA, (unsigned)(w.nseg - 1)), 128, 0, s->stream>>>(w);
        spx::check(cudaGetLastError(), "launch");
        get(s, t.redo, w.redo, w.nseg * lanes);
        wait_for(s->stream, s->stepped);
        bool again = false;
        for (size_t i = 0; i < w.nseg * lanes; i++)
            again |= t.redo[i] != 0;
        if (!again)
            break;
    }
    cudaStream_t beside;
    fork(s, 0, &beside);
    rounding_kernel<<<dim3(blocks(k.lanes, WARP), blocks(k.n, 4 * MAGNITUDES)), dim3(WARP, 4), 0, beside>>>(k);
    if (k.reach >= 1 && (k.coupled < 2 || k.band == SPX_TRACE_MOST_BAND)) /* else there are no more diagonals */
        edge_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, beside>>>(k);
    turn_kernel<<<dim3(blocks(k.nwave, WARP), blocks(k.lanes, WARP), 2 * k.h + 4), dim3(WARP, 8), 0, s->stream>>>(k);
    join(s, 1);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
