/* Provides banded factorisation and solution along a trace: one thread a lane, or a segment of it.
 *
 * Recurrences along a trace are chains of some 2400 steps of 0.15 to 0.6 us, and there are only 500 traces, so that
 * most of a device waited. Segments cut the chains to a sixth for a third more work, and run beside each other: when
 * they came, the solution of a frame of 500 x 2326 went from 5.1 to 3.2 ms on an H200, its square root from 24 to 12. A
 * warp that is alone issues an instruction every 2.5 cycles, and beside throughput kernels every 10: so what a step
 * costs is its instructions, and loops take more than one step at a time, which moves windows in registers less often.
 */
#ifndef SPX_EXTRACT_CUDA_BAND_CUH
#define SPX_EXTRACT_CUDA_BAND_CUH

#include "calib/window.cuh"
#include "extract/cuda/params.cuh"

namespace
{

/* What a recurrence reads is on its way to shared memory AHEAD steps before it is used. Each thread copies for itself,
 * so nobody waits for others. */
enum { AHEAD = 12 };

__device__ void fetch(double *to, const double *from)
{
    __pipeline_memcpy_async(to, from, sizeof(double));
}

/* A loop over n steps, forth or back, each of which reads COUNT doubles that `where(step, i)` points to; `body(step,
 * value)` gets them. buffer: [AHEAD][COUNT][WARP], of this lane. */
template <int COUNT, class WHERE, class BODY> __device__ void stream(int n, double *buffer, WHERE where, BODY body)
{
    for (int j = 0; j < AHEAD - 1; j++) {
        if (j < n)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                fetch(buffer + (j * COUNT + i) * WARP, where(j, i));
        __pipeline_commit();
    }
    int slot = 0, free_slot = AHEAD - 1;
#pragma unroll 2 /* windows move half as often */
    for (int j = 0; j < n; j++) {
        if (j + AHEAD - 1 < n)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                fetch(buffer + (free_slot * COUNT + i) * WARP, where(j + AHEAD - 1, i));
        __pipeline_commit();
        __pipeline_wait_prior(AHEAD - 1);
        double value[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[i] = buffer[(slot * COUNT + i) * WARP];
        body(j, value);
        slot = slot + 1 < AHEAD ? slot + 1 : 0;
        free_slot = free_slot + 1 < AHEAD ? free_slot + 1 : 0;
    }
    __pipeline_wait_prior(0);
}

/* Segments. What a recurrence knows of bins far back fades away: it falls by ten every four bins or so of the usual
 * size. So the bins of a trace are worked on in segments, side by side, each of which begins `halo` bins early (and,
 * backwards, late) with nothing. Whether that was enough is seen at the seams, where what two segments have for the
 * same bin must agree; where it does not, they are begun earlier still, and at last the trace is worked on in one
 * piece. */
struct segment {
    int first, last, begin, end; /* own bins; those that are worked on */

    __device__ segment(const params &k, int i, int halo)
    {
        first = i * k.seg;
        last = min(first + k.seg, k.n);
        begin = max(first - halo, 0);
        end = min(last + halo, k.n);
    }
};

/* A whole trace, or a segment. Column j (1/D, then L) goes to row(j), if that is not NULL. each(j, column) is called
 * with the column of L, so that a right-hand side is solved for on the way. */
template <int M, class ROW, class EACH>
__device__ bool factor(int n, const double *a, size_t arow, size_t aelem, double shift, ROW row, size_t lelem,
                       double *buffer, EACH each)
{
    factor_window<M> window;
    stream<M + 1>(
        n, buffer, [&](int j, int i) { return a + (size_t)j * arow + (size_t)i * aelem; },
        [&](int j, double(&in)[M + 1]) {
            const double inverse = window.next(in, shift);
            each(j, in);
            double *lj = row(j);
            if (lj) {
                lj[0] = inverse;
#pragma unroll
                for (int i = 1; i <= M; i++)
                    lj[(size_t)i * lelem] = in[i];
            }
        });
    return window.good;
}

/* The same for any bandwidth: the last m columns are in `window`, [m + 1][m + 1][stride] of this lane; D in the place
 * of the diagonal. */
template <class EACH>
__device__ bool factor_any(int n, int m, const double *a, size_t arow, size_t aelem, double shift, double *l,
                           size_t lrow, size_t lelem, double *window, size_t stride, EACH each)
{
    bool good = true;
    const size_t wrow = (size_t)(m + 1) * stride;
    int slot = 0;
    for (int j = 0; j < n; j++) {
        const double *aj = a + (size_t)j * arow;
        double *lj = l + (size_t)j * lrow, *now = window + slot * wrow;
        for (int i = 0; i <= m; i++)
            now[i * stride] = aj[(size_t)i * aelem];
        now[0] += shift;
        for (int t = j < m ? j : m; t >= 1; t--) {
            const double *then = window + (slot >= t ? slot - t : slot - t + m + 1) * wrow;
            const double lt = then[t * stride], u = lt * then[0];
            each(t, lt);
            for (int i = 0; i <= m - t; i++)
                now[i * stride] = fma(-then[(t + i) * stride], u, now[i * stride]);
        }
        double pivot = now[0];
        if (!(pivot > 0.0 && pivot < INFINITY)) {
            good = false;
            pivot = 1.0;
            now[0] = pivot;
        }
        const double inverse = 1.0 / pivot;
        lj[0] = inverse;
        for (int i = 1; i <= m; i++) {
            const double value = now[i * stride] * inverse;
            now[i * stride] = value;
            lj[(size_t)i * lelem] = value;
        }
        each(0, inverse);
        slot = slot < m ? slot + 1 : 0;
    }
    return good;
}

/* For each() of factor(): no right-hand side. */
struct nothing {
    template <class A, class B> __device__ void operator()(A, B) const
    {
    }
};

/* Factors of a fibre's own block, in a segment. */
template <int M> __device__ void factorise(const params &k, int column, int number, double *shared)
{
    const segment s(k, number, k.halo);
    const double *a = k.mat + column;
    double *l = k.ldl + column;
    const size_t arow = (size_t)k.nelem * k.lanes, lrow = (size_t)(k.m + 1) * k.lanes;
    bool good;
    if constexpr (M > 0) {
        double *seam = k.seam + (size_t)number * M * lrow + column;
        good = factor<M>(
            s.last - s.begin, a + s.begin * arow, arow, k.lanes, 0.0,
            [&](int j) {
                const int bin = s.begin + j;
                return bin >= s.first       ? l + bin * lrow
                       : bin >= s.first - M ? seam + (bin - s.first + M) * lrow
                                            : (double *)nullptr;
            },
            k.lanes, shared + threadIdx.x, nothing());
    } else {
        good = factor_any(k.n, k.m, a, arow, k.lanes, 0.0, l, lrow, k.lanes, k.window + column, k.lanes, nothing());
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_FACTOR);
}

/* Of all fibres; block (lanes, segment). */
template <int M> __global__ void factorise_kernel(params k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column < k.lanes && k.fibre[column] >= 0)
        factorise<M>(k, column, blockIdx.y, shared);
}

/* Whether a segment of the factors fits to the one before; `row` of M rows. */
__device__ void look_at_seam(const params &k, int column, int row, int seg)
{
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *is = k.ldl + (size_t)(seg * k.seg - k.m + row) * lrow + column;
    const double *was = k.seam + (size_t)(seg * k.m + row) * lrow + column;
    const double far = fmax(1e-3 * k.tolerance, 1e-12);
    bool torn = !(fabs(is[0] - was[0]) <= far * fabs(is[0]));
    for (int i = 1; i <= k.m; i++)
        torn |= !(fabs(is[i * lanes] - was[i * lanes]) <= far);
    if (torn)
        atomicOr(k.torn, 1);
}

/* All of them: block (lanes, m, segment - 1). */
__global__ void seams_kernel(params k)
{
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column < k.lanes && k.fibre[column] >= 0)
        look_at_seam(k, column, blockIdx.y, blockIdx.z + 1);
}

/* s = L^-1 b for one lane: b(j) = each_right(j, right[j rrow]), result in scratch [n] with stride `srow`. */
template <int M, class RIGHT>
__device__ void solve_forth(int n, int m, const double *l, size_t lrow, size_t lelem, double *scratch, size_t srow,
                            const double *right, size_t rrow, double *buffer, RIGHT each_right)
{
    if constexpr (M > 0) {
        double back[M + 1];
#pragma unroll
        for (int t = 0; t <= M; t++)
            back[t] = 0.0;
        stream<M + 1>(
            n, buffer,
            [&](int j, int i) {
                return i == 0 ? right + (size_t)j * rrow : l + (size_t)(j > i ? j - i : 0) * lrow + (size_t)i * lelem;
            },
            [&](int j, double(&v)[M + 1]) {
                double sum = each_right(j, v[0]), other = 0.0; /* the value of the last bin comes last */
#pragma unroll
                for (int t = M; t >= 2; t--) { /* back is 0 before the first bin */
                    if (t % 2 == 0)
                        other = fma(-v[t], back[t], other);
                    else
                        sum = fma(-v[t], back[t], sum);
                }
                sum = fma(-v[1], back[1], sum + other);
#pragma unroll
                for (int t = M; t >= 2; t--)
                    back[t] = back[t - 1];
                back[1] = sum;
                scratch[(size_t)j * srow] = sum;
            });
    } else {
        for (int j = 0; j < n; j++) {
            double sum = each_right(j, right[(size_t)j * rrow]);
            for (int t = j < m ? j : m; t >= 1; t--)
                sum = fma(-l[(size_t)(j - t) * lrow + t * lelem], scratch[(size_t)(j - t) * srow], sum);
            scratch[(size_t)j * srow] = sum;
        }
    }
    __threadfence_block(); /* what was written is read again by copies */
}

/* x = L^-T D^-1 s for one lane, s in scratch; result through put(j, x, p) for j >= stop, where p adds up to
 * the inner product of x and L s. */
template <int M, class PUT>
__device__ void solve_back(int n, int stop, int m, const double *l, size_t lrow, size_t lelem, double *scratch,
                           size_t srow, double *buffer, PUT put)
{
    if constexpr (M > 0) {
        double back[M + 1];
#pragma unroll
        for (int t = 0; t <= M; t++)
            back[t] = 0.0;
        stream<M + 2>(
            n - stop, buffer,
            [&](int step, int i) {
                const size_t j = (size_t)(n - 1 - step);
                return i == M + 1 ? (const double *)scratch + j * srow : l + j * lrow + (size_t)i * lelem;
            },
            [&](int step, double(&v)[M + 2]) {
                double sum = v[M + 1] * v[0], other = 0.0;
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    if (t % 2 == 0)
                        other = fma(-v[t], back[t], other);
                    else
                        sum = fma(-v[t], back[t], sum);
                }
                sum = fma(-v[1], back[1], sum + other);
#pragma unroll
                for (int t = M; t >= 2; t--)
                    back[t] = back[t - 1];
                back[1] = sum;
                put(n - 1 - step, sum, v[M + 1] * (v[M + 1] * v[0]));
            });
    } else {
        for (int j = n - 1; j >= 0; j--) {
            double sum = scratch[(size_t)j * srow] * l[(size_t)j * lrow];
            const double part = scratch[(size_t)j * srow] * sum;
            for (int t = n - 1 - j < m ? n - 1 - j : m; t >= 1; t--)
                sum = fma(-l[(size_t)j * lrow + t * lelem], scratch[(size_t)(j + t) * srow], sum);
            scratch[(size_t)j * srow] = sum;
            put(j, sum, part);
        }
    }
}

/* Bytes of shared memory that loops of constant length need to read `count` doubles a step. */
size_t stream_bytes(int mm, int count)
{
    return has_loop(mm) ? sizeof(double) * AHEAD * WARP * (size_t)count : 0;
}

} // namespace

#endif
