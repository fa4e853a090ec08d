/* Bounds and square root where bands are wider than there are loops for, beside masks: one warp an item (and pole). */
#ifndef SPX_EXTRACT_CUDA_WIDE_CUH
#define SPX_EXTRACT_CUDA_WIDE_CUH

#include "extract/extract_cuda_poles.cuh"

namespace
{

/* State of a warp that works on one item. Bin b of it belongs to lane b % 32, and so does what of the last 32 bins is
 * in `ring`: row b % 32 is what the recurrences need of bin b, column c % 32 of it the element that couples it to bin
 * c. A bin reaches m <= WIDEST others, so that in each step two lanes are free: they solve for two right-hand sides,
 * whose elements stand in columns WARP and WARP + 1, with the same instructions as the other columns. */
struct wide_warp {
    /* What comes from memory is on its way this many steps before it is used. */
    enum { EARLY = 3 };
    enum { PITCH = WARP + 3, RING = 2 * WARP * PITCH };

    int lane, n, m;
    double *ring, *line, *diag; /* twice [WARP][PITCH], so that rows are never looked for; [WARP] what the sums of a
                                 * step are weighted with; [WARP] D of bins */

    __device__ void clear() const
    {
        for (int i = lane; i < RING; i += WARP)
            ring[i] = 0.0;
        diag[lane] = 0.0;
        __syncwarp();
    }
    /* Which right-hand side this lane has in step j, -1: none. */
    __device__ int side(int j) const
    {
        return (lane - j + 1) % WARP == 0 ? 0 : (lane - j + 2) % WARP == 0 ? 1 : -1;
    }
    __device__ void keep(int row, int column, double v) const
    {
        ring[row * PITCH + column] = v;
        ring[(row + WARP) * PITCH + column] = v;
    }
    /* sum_t line[t] ring(j + way t, column), t = 1 .. limit <= m. */
    template <int WAY> __device__ double dot(int j, int column, int limit) const
    {
        const double *row = ring + ((j & (WARP - 1)) + (WAY < 0 ? WARP : 0)) * PITCH + column;
        double even = 0.0, odd = 0.0;
#pragma unroll 4
        for (int t = 1; t <= m; t += 2) {
            const double a = row[WAY * t * PITCH], b = row[WAY * (t + 1) * PITCH];
            if (t <= limit)
                odd = fma(line[t], a, odd);
            if (t < limit)
                even = fma(line[t + 1], b, even);
        }
        return odd + even;
    }

    /* A value that element(j) gives for each of the steps j, j + way, ..., asked for EARLY steps before it is taken. */
    template <class ELEMENT> struct queue {
        ELEMENT element;
        int next, way;
        double waiting[EARLY];

        __device__ queue(ELEMENT of, int first, int step) : element(of), next(first), way(step)
        {
#pragma unroll
            for (int i = 0; i < EARLY; i++, next += way)
                waiting[i] = element(next);
        }
        __device__ double take()
        {
            const double value = waiting[0];
#pragma unroll
            for (int i = 0; i + 1 < EARLY; i++)
                waiting[i] = waiting[i + 1];
            waiting[EARLY - 1] = element(next);
            next += way;
            return value;
        }
    };
    template <class ELEMENT> __device__ static queue<ELEMENT> queued(ELEMENT of, int first, int way)
    {
        return queue<ELEMENT>(of, first, way);
    }

    /* L D L^T: 1/D and L to l[n][m + 1]; L^-1 b of two right-hand sides: right(j, i) is element j of side i, and put(j,
     * i, s) gets that of the solution. */
    template <class RIGHT, class PUT>
    __device__ bool factor(const double *a, size_t arow, size_t aelem, double shift, double *l, RIGHT right, PUT put)
    {
        bool good = true;
        const auto element = [&](int j) {
            const int off = (lane - j) & (WARP - 1), i = side(j);
            return j >= n     ? 0.0
                   : off <= m ? a[(size_t)j * arow + (size_t)off * aelem] + (off == 0 ? shift : 0.0)
                   : i >= 0   ? right(j, i)
                              : 0.0;
        };
        clear();
        auto values = queued(element, 0, 1);
        for (int j = 0; j < n; j++) {
            const int off = (lane - j) & (WARP - 1), here = j & (WARP - 1), i = side(j), then = (j - lane) & (WARP - 1);
            const double own = values.take();
            line[lane] = lane >= 1 && lane <= m ? ring[then * PITCH + here] * diag[then] : 0.0;
            __syncwarp();
            const double sum = own - dot<-1>(j, i >= 0 ? WARP + i : lane, i >= 0 ? m : off <= m ? m - off : 0);
            double pivot = __shfl_sync(FULL, sum, here);
            if (!(pivot > 0.0 && pivot < INFINITY)) {
                good = false;
                pivot = 1.0;
            }
            const double inverse = 1.0 / pivot, value = sum * inverse;
            keep(here, lane, off >= 1 && off <= m ? value : 0.0);
            if (i >= 0) {
                keep(here, WARP + i, value);
                put(j, i, sum);
            }
            if (off == 0)
                diag[here] = pivot;
            if (off <= m)
                l[(size_t)j * (m + 1) + off] = off == 0 ? inverse : value;
            __syncwarp();
        }
        return good;
    }

    /* Rows of the inverse of the matrix in the band, and L^-T D^-1 f of two right-hand sides: put(j, d, z) gets Z(j, j
     * + d), put_x(j, i, x, b) side i of the solution and what before(j, i) gives; down to bin `stop`. */
    template <class RIGHT, class BEFORE, class PUT, class PUTX>
    __device__ void inverse(const double *l, int stop, RIGHT right, BEFORE before, PUT put, PUTX put_x)
    {
        const auto element = [&](int j) { return lane <= m && j >= 0 ? l[(size_t)j * (m + 1) + lane] : 0.0; };
        const auto given = [&](int j) { return side(j) >= 0 && j >= 0 ? right(j, side(j)) : 0.0; };
        clear();
        auto values = queued(element, n - 1, -1);
        auto sides = queued(given, n - 1, -1);
        auto sides_before = queued([&](int j) { return side(j) >= 0 && j >= 0 ? before(j, side(j)) : 0.0; }, n - 1, -1);
        for (int j = n - 1; j >= stop; j--) {
            const int off = (lane - j) & (WARP - 1), here = j & (WARP - 1), i = side(j);
            const double lt = values.take(), inverse = __shfl_sync(FULL, lt, 0), f = sides.take(),
                         b = sides_before.take();
            line[lane] = lane >= 1 ? lt : 0.0;
            __syncwarp();
            const bool inside = off >= 1 && off <= m;
            const double sum = dot<1>(j, i >= 0 ? WARP + i : lane, i >= 0 || inside ? m : 0);
            const double own = inverse + warp_sum(inside ? line[off] * sum : 0.0);
            const double z = off == 0 ? own : -sum;
            __syncwarp(); /* what is written below has been read */
            if (off <= m) {
                keep(here, lane, z);
                keep(lane, here, z);
                put(j, off, z);
            }
            if (i >= 0) {
                const double x = fma(f, inverse, -sum);
                keep(here, WARP + i, x);
                put_x(j, i, x, b);
            }
            __syncwarp();
        }
    }

    /* L^-1 b with the factor in l: lane t has the bin t back. */
    template <class RIGHT, class PUT> __device__ void forward(const double *l, RIGHT right, PUT put)
    {
        double back = 0.0;
        const auto element = [&](int j) {
            return lane >= 1 && lane <= m && lane <= j && j < n ? l[(size_t)(j - lane) * (m + 1) + lane] : 0.0;
        };
        auto values = queued(element, 0, 1);
        auto sides = queued([&](int j) { return j < n ? right(j) : 0.0; }, 0, 1);
        for (int j = 0; j < n; j++) {
            const double s = sides.take() - warp_sum(values.take() * back);
            back = shifted(back, s);
            put(j, s);
        }
    }

    /* L^-T D^-1 f. */
    template <class RIGHT, class PUT> __device__ void backward(const double *l, RIGHT right, PUT put)
    {
        double ahead = 0.0;
        const auto element = [&](int j) { return lane <= m && j >= 0 ? l[(size_t)j * (m + 1) + lane] : 0.0; };
        auto values = queued(element, n - 1, -1);
        auto sides = queued([&](int j) { return j >= 0 ? right(j) : 0.0; }, n - 1, -1);
        for (int j = n - 1; j >= 0; j--) {
            const double lt = values.take(), inverse = __shfl_sync(FULL, lt, 0), below = lane == 0 ? 0.0 : lt;
            const double x = fma(sides.take(), inverse, -warp_sum(below * ahead));
            ahead = shifted(ahead, x);
            put(j, x);
        }
    }

    /* v of the lane before; lane 1 gets `first`, lane 0 has no part. */
    __device__ double shifted(double v, double first) const
    {
        const double up = __shfl_up_sync(FULL, v, 1);
        return lane == 1 ? first : lane == 0 ? 0.0 : up;
    }
};

/* As bounds_kernel(): block (item), one warp. */
__global__ void wide_bounds_kernel(work k, batch o)
{
    __shared__ double ring[wide_warp::RING], line[WARP], diag[WARP];
    const item v = o.at[blockIdx.x];
    const int n = v.end - v.begin, lane = threadIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    double *l = o.lower + (size_t)blockIdx.x * o.rows * (o.mm + 1), *rhs = o.rhs + (size_t)blockIdx.x * o.rows;
    double inverse = 0.0;
    wide_warp w = {lane, n, v.mm, ring, line, diag};
    const bool good = w.factor(
        k.a + v.begin * arow + v.column, arow, lanes, 0.0, l,
        [&](int j, int i) { return i == 1                   ? 0.0
                                   : (v.begin + j) % 2 == 0 ? 1.0
                                                            : -1.0; },
        [&](int j, int i, double s) {
            if (i == 0)
                rhs[j] = s;
        });
    __syncwarp();
    double last = 1.0;
    for (int step = 0; step < BOUND_STEPS; step++) {
        double size = 0.0;
        w.backward(
            l, [&](int j) { return rhs[j]; },
            [&](int j, double x) {
                size = fmax(size, fabs(x));
                if (step < 2 && v.begin + j >= v.first && v.begin + j < v.last)
                    inverse = fmax(inverse, fabs(x));
                if (lane == 0)
                    rhs[j] = step == 0 ? copysign(1.0, x) : x;
            });
        if (step >= 2)
            inverse = fmax(inverse, size / last);
        last = size;
        __syncwarp();
        if (step + 1 < BOUND_STEPS)
            w.forward(
                l, [&](int j) { return rhs[j]; },
                [&](int j, double s) {
                    if (lane == 0)
                        rhs[j] = s;
                });
        __syncwarp();
    }
    raise_to(&k.bound[lanes + v.column], largest_row(k, v, WARP, lane));
    if (lane != 0)
        return;
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
    raise_to(&k.bound[v.column], inverse);
}

/* As root_kernel(), but what a pole adds goes to its share, for gather_kernel(): block (pole, item), one warp. */
__global__ void wide_root_kernel(work k, batch o)
{
    __shared__ double ring[wide_warp::RING], line[WARP], diag[WARP];
    const item v = o.at[blockIdx.y];
    const int n = v.end - v.begin, h = k.h, lane = threadIdx.x, pole = o.pole0 + blockIdx.x;
    if (pole >= k.npole[v.column])
        return;
    const int end = min(v.last + EXTRA, k.n) - v.begin, stop = v.first - v.begin;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t task = (size_t)blockIdx.y * o.npole + blockIdx.x;
    const double shift = k.shift[(size_t)pole * lanes + v.column];
    const double weight = k.pole_weight[(size_t)pole * lanes + v.column], scale = -weight * shift;
    const double *x = k.x + v.begin * lanes + v.column;
    double *l = o.lower + task * o.rows * (o.mm + 1), *rhs = o.rhs + task * 2 * o.rows;
    double *share = o.share + task * o.span * (h + 3);
    wide_warp w = {lane, n, v.mm, ring, line, diag};
    const bool good = w.factor(
        k.a + v.begin * arow + v.column, arow, lanes, shift, l,
        [&](int j, int i) { return i == 0 ? 1.0 : x[(size_t)j * lanes]; },
        [&](int j, int i, double s) { rhs[i * o.rows + j] = s; });
    __syncwarp();
    w.inverse(
        l, stop, [&](int j, int i) { return rhs[i * o.rows + j]; },
        [&](int j, int i) { return i == 0 ? 1.0 : x[(size_t)j * lanes]; },
        [&](int j, int d, double z) {
            if (j < end && d <= h)
                share[(size_t)(j - stop) * (h + 3) + d] = scale * z;
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
