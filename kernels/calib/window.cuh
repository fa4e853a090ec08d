/* Provides L D L^T of a band and L^-1 of right-hand sides for one lane of a warp, column by column, in registers: what
 * the last M columns take off those that follow is kept there, so that neither they nor D are remembered. */
#ifndef SPX_CALIB_WINDOW_CUH
#define SPX_CALIB_WINDOW_CUH

#include "cuda/reduce.cuh"

namespace
{

/* Lanes that come from the two ends of an item are half a warp apart. */
enum { ENDS = 2 };

__device__ double from_other_end(double v)
{
    return __shfl_xor_sync(spx::FULL, v, spx::WARP / ENDS);
}

/* 1 / v of a number > 0 that is neither tiny nor huge, to the last bit or two. What a division does for the others is a
 * branch, which nothing goes beside. */
__device__ double reciprocal(double v)
{
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(v));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const double rest = fma(-v, r, 1.0);
        r = fma(r, fma(rest, rest, rest), r);
    }
    return r;
}

/* L D L^T, column by column, for half-bandwidths M. What the last M columns take off those that follow is in registers,
 * so that neither they nor D are remembered. */
template <int M> struct factor_window {
    double less[M][M + 1]; /* less[i][d]: off element (j+i, j+i+d), d < M - i */
    bool good;

    __device__ factor_window() : good(true)
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int d = 0; d <= M; d++)
                less[i][d] = 0.0;
    }
    /* Column j of the matrix, from the diagonal on, becomes that of L, without the diagonal. Returns 1/D. */
    __device__ double next(double *in, double shift)
    {
        in[0] += shift;
#pragma unroll
        for (int d = 0; d < M; d++)
            in[d] -= less[0][d];
        if (!(in[0] > 0.0 && in[0] < INFINITY)) {
            good = false;
            in[0] = 1.0;
        }
        const double inverse = reciprocal(in[0]);
#pragma unroll
        for (int i = 1; i <= M; i++) {
            const double below = in[i] * inverse;
#pragma unroll
            for (int d = 0; i + d <= M; d++)
                less[i - 1][d] = fma(below, in[i + d], i < M && d < M - i ? less[i][d] : 0.0);
            in[i] = below;
        }
        return inverse;
    }
    /* Two lanes that come from two ends meet: what the other one takes off the next M equations, which are its last
     * from the other end. */
    __device__ void meet()
    {
#pragma unroll
        for (int d = 0; d < M; d++)
#pragma unroll
            for (int i = 0; 2 * i < M - d; i++) {
                const int to = M - 1 - d - i;
                const double first = from_other_end(less[to][d]), last = from_other_end(less[i][d]);
                less[i][d] += first;
                if (i < to)
                    less[to][d] += last;
            }
    }
};

/* L^-1 b on the way: what is known of the next M elements. */
template <int M> struct forth_window {
    double less[M + 1];

    __device__ forth_window()
    {
#pragma unroll
        for (int t = 0; t <= M; t++)
            less[t] = 0.0;
    }
    /* Element j from that of b and column j of L. */
    __device__ double next(double b, const double *column)
    {
        const double s = b - less[0];
#pragma unroll
        for (int t = 1; t <= M; t++)
            less[t - 1] = fma(column[t], s, t < M ? less[t] : 0.0);
        return s;
    }
    __device__ void meet()
    {
#pragma unroll
        for (int i = 0; 2 * i < M; i++) {
            const int to = M - 1 - i;
            const double first = from_other_end(less[to]), last = from_other_end(less[i]);
            less[i] += first;
            if (i < to)
                less[to] += last;
        }
    }
};

/* Elements of the inverse within the band by Takahashi's recurrence, from the last bin back: those of the M bins after
 * bin j. */
template <int M> struct inverse_window {
    double z[M + 1][M + 1]; /* z[i][d] = Z(j+1+i, j+1+i+d) */

    __device__ inverse_window()
    {
#pragma unroll
        for (int i = 0; i <= M; i++)
#pragma unroll
            for (int d = 0; d <= M; d++)
                z[i][d] = 0.0;
    }
    /* Z(j+i, j+t), i and t from 1 to M. */
    __device__ double at(int i, int t) const
    {
        return i < t ? z[i - 1][t - i] : z[t - 1][i - t];
    }
    /* From bin j to the one before: row[d] is Z(j, j+d). */
    __device__ void next(double diagonal, const double (&row)[M + 1])
    {
#pragma unroll
        for (int i = M - 1; i >= 1; i--)
#pragma unroll
            for (int d = 0; d + i < M; d++)
                z[i][d] = z[i - 1][d];
        z[0][0] = diagonal;
#pragma unroll
        for (int d = 1; d < M; d++)
            z[0][d] = row[d];
    }
};

} // namespace

#endif
