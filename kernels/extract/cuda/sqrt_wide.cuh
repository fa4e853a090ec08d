/* Provides bounds and square root of wide bands, which masks make and no unrolled loop has: one warp an item (and
 * pole).
 */
#ifndef SPX_EXTRACT_CUDA_SQRT_WIDE_CUH
#define SPX_EXTRACT_CUDA_SQRT_WIDE_CUH

#include "extract/cuda/sqrt_poles.cuh"

namespace
{

/* A warp that works on one item. Bin b of it belongs to lane b % 32, and so does what of the last 32 bins is in `ring`:
 * row b % 32 is what the recurrences need of bin b, column c % 32 of it the element that couples it to bin c. A bin
 * reaches m <= WIDEST others, so that in each step two lanes are free: they solve for two right-hand sides, whose
 * elements stand in columns WARP and WARP + 1, with the same instructions as the other columns.
 *
 * A step needs all of the one before only for a single term: the sums of all others are taken while that is made. */
struct wide_warp {
    /* What comes from memory is on its way this many steps before it is used, of factors and of solutions. TERMS: of a
     * sum, those beyond a band with weights that are 0. */
    enum { EARLY = 4, EARLIER = 8, TERMS = WIDEST + 1 };
    enum { PITCH = WARP + 3, RING = 2 * WARP * PITCH };

    int lane, n, m;
    double *ring, *line, *coming; /* twice [WARP][PITCH], so that rows are never looked for; [WARP] what the sums of a
                                   * step are weighted with, from the second bin on; [EARLIER][WARP] */

    __device__ void clear() const
    {
        for (int i = lane; i < RING; i += WARP)
            ring[i] = 0.0;
        __syncwarp();
    }
    /* How far bin j is from that of this lane. */
    __device__ int ahead(int j) const
    {
        return (lane - j) & (WARP - 1);
    }
    /* Which right-hand side a lane has that is so far from a step's bin, -1: none. */
    __device__ static int side(int off)
    {
        return off == WARP - 1 ? 0 : off == WARP - 2 ? 1 : -1;
    }
    __device__ void keep(int row, int column, double v) const
    {
        ring[row * PITCH + column] = v;
        ring[(row + WARP) * PITCH + column] = v;
    }
    /* sum_t line[t - 2] ring(j + way t, column), t = 2 .. TERMS + 1; line: 0 beyond m. */
    template <int WAY> __device__ double dot(int j, int column) const
    {
        const double *row = ring + ((j & (WARP - 1)) + (WAY < 0 ? WARP : 0)) * PITCH + column;
        const double2 *weights = (const double2 *)line;
        double sums[4] = {0.0};
#pragma unroll
        for (int t = 2; t < TERMS + 2; t += 2) {
            const double2 weight = weights[t / 2 - 1];
            double &even = sums[t & 2], &odd = sums[(t & 2) + 1];
            even = fma(weight.x, row[WAY * t * PITCH], even);
            odd = fma(weight.y, row[WAY * (t + 1) * PITCH], odd);
        }
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    /* Steps 0 .. n - 1: body(step, value) with what element(step) gives, asked for `BEFORE` steps before. */
    template <int BEFORE, class ELEMENT, class BODY> __device__ static void steps(int n, ELEMENT element, BODY body)
    {
        decltype(element(0)) waiting[BEFORE];
#pragma unroll
        for (int i = 0; i < BEFORE; i++)
            waiting[i] = element(i);
        for (int step0 = 0; step0 < n; step0 += BEFORE)
#pragma unroll
            for (int i = 0; i < BEFORE; i++) {
                const auto value = waiting[i];
                waiting[i] = element(step0 + i + BEFORE);
                if (step0 + i < n)
                    body(step0 + i, value);
            }
    }

    /* L D L^T: 1/D and L to l[n][m + 1]; L^-1 b of two right-hand sides: right(j, i, to) puts element j of side i
     * there, or has it fetched, and put(j, i, s) gets that of the solution. Columns of the matrix come through shared
     * memory: of loads to registers a warp can tell few apart, and it waited for those that it had just asked for. */
    template <class RIGHT, class PUT>
    __device__ bool factor(const double *a, size_t arow, size_t aelem, double shift, double *l, RIGHT right, PUT put)
    {
        bool good = true;
        const auto ask = [&](int j) {
            const int off = ahead(j), i = side(off);
            double *to = coming + (j & (EARLIER - 1)) * WARP + lane;
            if (j < n && off <= m)
                fetch(to, a + (size_t)j * arow + (size_t)off * aelem);
            else if (j < n && i >= 0)
                right(j, i, to);
            else
                *to = 0.0;
            __pipeline_commit();
        };
        /* of row j: what all rows but the last take off, the last one's element of column j before it was divided by
         * its diagonal, and its elements after that. Of bin `lane`: D. */
        double rest = 0.0, last = 0.0, value = 0.0, diagonal = 0.0;
        clear();
        for (int j = 0; j < EARLIER - 1; j++)
            ask(j);
#pragma unroll 2
        for (int j = 0; j < n; j++) {
            __pipeline_wait_prior(EARLIER - 2);
            ask(j + EARLIER - 1);
            const double own = coming[(j & (EARLIER - 1)) * WARP + lane];
            const int off = ahead(j), here = j & (WARP - 1), next = (j + 1) & (WARP - 1), i = side(off);
            const double sum = fma(-last, value, own + (off == 0 ? shift : 0.0) - rest);
            double pivot = __shfl_sync(FULL, sum, here);
            last = __shfl_sync(FULL, sum, next);
            const int back = (j + 1 - lane) & (WARP - 1); /* from the next bin to that of this lane */
            line[(back - 2) & (WARP - 1)] = back >= 2 && back <= m ? ring[lane * PITCH + next] * diagonal : 0.0;
            keep(lane, here, 0.0); /* a column that is done: its place is that of a bin further on */
            __syncwarp();
            const int side_next = side(ahead(j + 1));
            rest = dot<-1>(j + 1, side_next >= 0 ? WARP + side_next : lane);
            if (!(pivot > 0.0 && pivot < INFINITY)) {
                good = false;
                pivot = 1.0;
            }
            const double inverse = reciprocal(pivot);
            value = (off >= 1 && off <= m) || i >= 0 ? sum * inverse : 0.0;
            keep(here, i >= 0 ? WARP + i : lane, value);
            if (i >= 0)
                put(j, i, sum);
            if (off == 0)
                diagonal = pivot;
            if (off <= m)
                l[(size_t)j * (m + 1) + off] = off == 0 ? inverse : value;
            const double before = __shfl_sync(FULL, value, (lane + WARP - 1) & (WARP - 1));
            value = side_next >= 0 ? before : i >= 0 ? 0.0 : value; /* right-hand sides go from lane to lane */
            __syncwarp();
        }
        __pipeline_wait_prior(0);
        return good;
    }

    /* Rows of the inverse of the matrix in the band, and L^-T D^-1 f of two right-hand sides: put(j, d, z) gets Z(j, j
     * + d), put_x(j, i, x, b) side i of the solution and what before(j, i) gives; down to bin `stop`. */
    template <class RIGHT, class BEFORE, class PUT, class PUTX>
    __device__ void inverse(const double *l, int stop, RIGHT right, BEFORE before, PUT put, PUTX put_x)
    {
        struct needs {
            double l, f, b; /* of a step: L of the row after it, by bins; of a right-hand side */
        };
        const auto column = [&](int j) {
            const int off = ahead(j);
            return j >= 0 && off <= m ? l[(size_t)j * (m + 1) + off] : 0.0;
        };
        const auto element = [&](int step) {
            const int j = n - 1 - step, i = side(ahead(j));
            const bool solves = j >= 0 && i >= 0;
            return needs{column(j - 1), solves ? right(j, i) : 0.0, solves ? before(j, i) : 0.0};
        };
        /* of row j: sum over all rows but the next one, that row, and L */
        double rest = 0.0, z = 0.0, lt = column(n - 1);
        clear();
        steps<EARLY>(n - stop, element, [&](int step, const needs &v) {
            const int j = n - 1 - step, off = ahead(j), here = j & (WARP - 1), i = side(off);
            const bool inside = off >= 1 && off <= m;
            const double inverse = __shfl_sync(FULL, lt, here), first = __shfl_sync(FULL, lt, (j + 1) & (WARP - 1));
            const double sum = fma(first, z, rest);
            const int off_next = ahead(j - 1), side_next = side(off_next);
            line[(off_next - 2) & (WARP - 1)] = off_next >= 2 && off_next <= m ? v.l : 0.0;
            if (inside) {
                keep(here, lane, -sum);
                keep(lane, here, -sum);
                put(j, off, -sum);
            }
            const double x = fma(v.f, inverse, -sum);
            if (i >= 0) {
                keep(here, WARP + i, x);
                put_x(j, i, x, v.b);
            }
            __syncwarp();
            rest = dot<1>(j - 1, side_next >= 0 ? WARP + side_next : lane);
            const double own = inverse + warp_sum(inside ? lt * sum : 0.0);
            const double x_there = __shfl_sync(FULL, x, (lane + 1) & (WARP - 1));
            if (off == 0) {
                keep(here, here, own);
                put(j, 0, own);
            }
            z = side_next >= 0 ? x_there : off == 0 ? own : -sum;
            lt = v.l;
            __syncwarp();
        });
    }

    /* L^-1 b with the factor in l. */
    template <class RIGHT, class PUT> __device__ void forward(const double *l, RIGHT right, PUT put)
    {
        double less = 0.0; /* known of the bin of this lane */
        const auto element = [&](int j) {
            const int off = ahead(j);
            return make_double2(j < n && off <= m ? l[(size_t)j * (m + 1) + off] : 0.0, j < n ? right(j) : 0.0);
        };
        steps<EARLIER>(n, element, [&](int j, double2 v) {
            const double s = v.y - __shfl_sync(FULL, less, j & (WARP - 1));
            less = ahead(j) == 0 ? 0.0 : fma(v.x, s, less);
            put(j, s);
        });
    }

    /* L^-T D^-1 f. */
    template <class RIGHT, class PUT> __device__ void backward(const double *l, RIGHT right, PUT put)
    {
        double less = 0.0;
        const auto element = [&](int step) {
            const int j = n - 1 - step, back = (j - lane) & (WARP - 1), bin = j - back;
            return make_double2(back <= m && bin >= 0 ? l[(size_t)bin * (m + 1) + back] : 0.0, j >= 0 ? right(j) : 0.0);
        };
        steps<EARLIER>(n, element, [&](int step, double2 v) {
            const int j = n - 1 - step, here = j & (WARP - 1);
            const double x = v.y * __shfl_sync(FULL, v.x, here) - __shfl_sync(FULL, less, here);
            less = lane == here ? 0.0 : fma(v.x, x, less);
            put(j, x);
        });
    }
};

/* As bounds_kernel(): block (item), one warp. */
__global__ void wide_bounds_kernel(params k, batch o)
{
    __shared__ double ring[wide_warp::RING];
    __shared__ double2 line[WARP / 2];
    __shared__ double coming[wide_warp::EARLIER * WARP];
    const item v = o.at[blockIdx.x];
    const int n = v.end - v.begin, lane = threadIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    double *l = o.lower + (size_t)blockIdx.x * o.rows * (o.mm + 1), *rhs = o.rhs + (size_t)blockIdx.x * o.rows;
    inverse_norm norm(k);
    wide_warp w = {lane, n, v.mm, ring, (double *)line, coming};
    const bool good = w.factor(
        k.a + v.begin * arow + v.column, arow, lanes, 0.0, l,
        [&](int j, int i, double *to) { *to = i == 1                   ? 0.0
                                              : (v.begin + j) % 2 == 0 ? 1.0
                                                                       : -1.0; },
        [&](int j, int i, double s) {
            if (i == 0)
                rhs[j] = s;
        });
    __syncwarp();
    for (int step = 0;; step++) {
        double size = 0.0, own = 0.0;
        w.backward(
            l, [&](int j) { return rhs[j]; },
            [&](int j, double x) {
                size = fmax(size, fabs(x));
                if (step < 2 && v.begin + j >= v.first && v.begin + j < v.last)
                    own = fmax(own, fabs(x));
                if (lane == 0)
                    rhs[j] = step == 0 ? copysign(1.0, x) : x;
            });
        if (norm.ends(step, size, own))
            break;
        __syncwarp();
        w.forward(
            l, [&](int j) { return rhs[j]; },
            [&](int j, double s) {
                if (lane == 0)
                    rhs[j] = s;
            });
        __syncwarp();
    }
    if (lane != 0)
        return;
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
    raise_to(&k.bound[v.column], norm.most);
}

/* As root_kernel(), but what a pole adds goes to its share, for gather_kernel(): block (pole, item), one warp. */
__global__ void wide_root_kernel(params k, batch o)
{
    __shared__ double ring[wide_warp::RING];
    __shared__ double2 line[WARP / 2];
    __shared__ double coming[wide_warp::EARLIER * WARP];
    const item v = o.at[blockIdx.y];
    const int n = v.end - v.begin, h = k.h, lane = threadIdx.x, pole = o.pole0 + blockIdx.x;
    if (pole >= k.npole[v.column])
        return;
    const int end = min(v.last + EXTRA, k.n) - v.begin, stop = v.first - v.begin, own_end = v.last - v.begin;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t task = (size_t)blockIdx.y * o.npole + blockIdx.x;
    const double shift = k.shift[(size_t)pole * lanes + v.column];
    const double weight = k.pole_weight[(size_t)pole * lanes + v.column], scale = -weight * shift;
    const double *x = k.x + v.begin * lanes + v.column;
    double *l = o.lower + task * o.rows * (o.mm + 1), *rhs = o.rhs + task * 2 * o.rows;
    double *share = o.share + task * o.span * (h + 3);
    wide_warp w = {lane, n, v.mm, ring, (double *)line, coming};
    const bool good = w.factor(
        k.a + v.begin * arow + v.column, arow, lanes, shift, l,
        [&](int j, int i, double *to) {
            if (i == 0)
                *to = 1.0;
            else
                fetch(to, x + (size_t)j * lanes);
        },
        [&](int j, int i, double s) { rhs[i * o.rows + j] = s; });
    __syncwarp();
    w.inverse(
        l, stop, [&](int j, int i) { return rhs[i * o.rows + j]; },
        [&](int j, int i) { return i == 0 ? 1.0 : x[(size_t)j * lanes]; },
        [&](int j, int d, double z) {
            if (j < end && d <= h)
                share[(size_t)(j - stop) * (h + 3) + d] = scale * z;
            if (pole == 0 && d == 0 && j < own_end)
                k.variance[(v.begin + j) * lanes + v.column] = z;
        },
        [&](int j, int i, double s, double b) {
            if (j < end)
                share[(size_t)(j - stop) * (h + 3) + h + 1 + i] = weight * fma(-shift, s, b);
        });
    if (!good && lane == 0)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
}

} // namespace

#endif
