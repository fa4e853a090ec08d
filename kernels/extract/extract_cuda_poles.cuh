/* Bounds of the eigenvalues of A_s, the poles of its square root, and what all ways to the root share. */
#ifndef SPX_EXTRACT_CUDA_POLES_CUH
#define SPX_EXTRACT_CUDA_POLES_CUH

#include "extract/extract_cuda_band.cuh"

namespace
{

/* A fibre whose bandwidth is larger than there are loops for is worked on by a whole warp, one lane a diagonal. */
__device__ __host__ inline bool is_wide(int mm)
{
    return mm > 9 && mm < WARP;
}

/* The largest of all that is seen; nothing is below 0. */
__device__ void raise_to(double *most, double v)
{
    atomicMax((unsigned long long *)most, (unsigned long long)__double_as_longlong(v));
}

/* Largest sum of magnitudes of rows [first, last) (Gershgorin). */
__device__ double largest_row(const work &k, const segment &s, int column, int step, int from)
{
    double most = 0.0;
    for (int j = s.first + from; j < s.last; j += step)
        most = fmax(most, k.q[(size_t)j * k.lanes + column]);
    return most;
}

/* Bounds of the eigenvalues of a fibre (see smallest() and root_of() of the CPU): block (lanes, segment). Segments
 * begin and end two halos off, one for each of two solutions. */
template <int M> __global__ void bounds_kernel(work k, int mm)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes)
        return;
    if (k.wanted[column] < 0 || k.need[column] != mm)
        return;
    const segment s(k, blockIdx.y, 2 * k.halo);
    const int n = s.end - s.begin, block = blockIdx.y * gridDim.x + blockIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes, lrow = (size_t)(mm + 1) * WARP;
    const size_t rows = k.seg + 4 * k.halo;
    const double *a = k.a + s.begin * arow + column;
    double *l = k.lower + block * rows * lrow + threadIdx.x, *z = k.rhs + block * rows * WARP + threadIdx.x;
    double inverse = 0.0;
    bool good;
    if constexpr (M > 0)
        good = factor<M>(
            n, a, arow, lanes, 0.0, [&](int j) { return l + j * lrow; }, WARP, shared + threadIdx.x, nothing());
    else
        good = factor_any(n, mm, a, arow, lanes, 0.0, l, lrow, WARP, k.window + column, lanes, nothing());
    for (int step = 0; step < 2; step++) {
        __threadfence_block();
        /* the first right-hand side is made here, whatever is read */
        solve_banded<M>(
            n, 0, mm, l, lrow, WARP, z, WARP, step == 0 ? a : z, step == 0 ? arow : WARP, shared + threadIdx.x,
            [&](int j, double v) { return step == 0 ? ((s.begin + j) % 2 == 0 ? 1.0 : -1.0) : copysign(1.0, v); },
            [&](int j, double v) {
                z[(size_t)j * WARP] = v;
                if (s.begin + j >= s.first && s.begin + j < s.last)
                    inverse = fmax(inverse, fabs(v));
            });
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
    raise_to(&k.bound[column], inverse);
    raise_to(&k.bound[lanes + column], largest_row(k, s, column, 1, 0));
}

/* Poles of each fibre: one block a lane, a thread a pole, and they look at the error together. */
__global__ void poles_kernel(work k)
{
    __shared__ double shift[SPX_MAX_POLES], weight[SPX_MAX_POLES];
    __shared__ int enough;
    const int column = blockIdx.x, me = threadIdx.x;
    if (k.wanted[column] < 0 || (k.bad[column / k.nl] & BAD_ROOT))
        return;
    const double b = k.bound[k.lanes + column], least = 0.5 / k.bound[column], a = least < b ? least : b;
    if (!(least > 0.0 && b < INFINITY)) {
        if (me == 0)
            atomicOr(&k.bad[column / k.nl], BAD_ROOT);
        return;
    }
    const double tolerance = 0.1 * k.tolerance;
    int n = (int)(0.7 * log(1.0 / tolerance) * (log(b / a) + 6.0) / 19.7392);
    n = n < 1 ? 1 : n > SPX_MAX_POLES ? SPX_MAX_POLES : n;
    for (;; n++) {
        const spx_sqrt_mean mean = spx_sqrt_mean_of(a, b);
        if (me < n)
            spx_sqrt_pole(&mean, a, n, me, &shift[me], &weight[me]);
        if (me == 0)
            enough = 1;
        __syncthreads();
        if (n >= SPX_MAX_POLES)
            break;
        const int samples = 96;
        const double step = log(b / a) / (samples - 1);
        for (int i = me; i < samples; i += blockDim.x) {
            double v = a * exp(step * i), sum = 0.0;
            for (int j = 0; j < n; j++)
                sum += weight[j] * (v / (v + shift[j]));
            if (fabs(sum / sqrt(v) - 1.0) > tolerance)
                atomicAnd(&enough, 0);
        }
        __syncthreads();
        const bool done = enough != 0;
        __syncthreads();
        if (done)
            break;
    }
    for (int j = me; j < n; j += blockDim.x) {
        k.shift[(size_t)j * k.lanes + column] = shift[j];
        k.pole_weight[(size_t)j * k.lanes + column] = weight[j];
    }
    if (me == 0) {
        double total = 0.0;
        for (int j = 0; j < n; j++)
            total += weight[j];
        k.npole[column] = n;
        k.total[column] = total;
    }
}

/* Where the share of a task has bin j; row 0 of the segment after it has the bin after its last. */
__device__ size_t share_row(const work &k, int task, int j)
{
    const int seg = j / k.seg;
    return ((size_t)task * k.nseg + seg) * (k.seg + EXTRA) + (j - seg * k.seg);
}

/* Whether two segments have the same for a bin: share[0 .. h + 2] of both, `stride` apart; a sum over the poles is s.
 * What remains is far below the tolerance of ivar and resolution, relative, and of the flux in standard deviations. */
__device__ bool fits(const work &k, const double *one, const double *other, size_t stride, size_t at, int column)
{
    const double *sum = k.sum + at * (k.h + 3) * k.lanes + column;
    const double s = fmax(fabs(sum[(size_t)(k.h + 1) * k.lanes]), 1e-5 * sqrt(k.bound[k.lanes + column]));
    const double x = fabs(sum[(size_t)(k.h + 2) * k.lanes]), least = fmax(0.01 * k.tolerance, 1e-12);
    bool good = true;
    for (int c = 0; c <= k.h + 1; c++)
        good &= fabs(one[c * stride] - other[c * stride]) <= least * s;
    return good && fabs(one[(k.h + 2) * stride] - other[(k.h + 2) * stride]) <= 10.0 * k.tolerance + least * x;
}

/* Doubles of one task of the square root, all segments. */
size_t task_size(work k, int mm)
{
    cut(k, LONG, mm);
    const size_t rows = has_loop(mm) ? (size_t)k.nseg * (k.seg + 2 * k.halo) : (size_t)k.n;
    return WARP * (rows * (mm + 1 + 2) + (size_t)k.nseg * (k.seg + EXTRA) * (k.h + 3) + (size_t)(mm + 1) * (mm + 1)) +
           128;
}

/* Of one with a warp of its own. */
size_t wide_size(const work &k)
{
    return (size_t)k.nseg * ((k.seg + 2 * k.halo) * (size_t)(k.band + 1 + 2) + (k.seg + EXTRA) * (size_t)(k.h + 3)) + 8;
}

/* Doubles for the bounds of the eigenvalues, bandwidth mm. */
size_t bounds_size(work k, int mm)
{
    cut(k, SHORT, mm);
    if (!has_loop(mm))
        one_piece(k);
    const size_t warps = (size_t)(k.lanes + WARP - 1) / WARP;
    return warps * WARP * (k.nseg * (k.seg + 4 * (size_t)k.halo) * (mm + 2) + (size_t)(mm + 1) * (mm + 1)) + 128;
}

} // namespace

#endif
