/* Provides Fourier transforms of lines in shared memory, of lengths that are products of 2, 3, 4 and 5: Stockham's
 * algorithm, one radix a step, between two buffers. For convolutions of a few thousand lines: no library is loaded for
 * them, and sums have an order that no version changes. */
#ifndef SPX_CUDA_FOURIER_CUH
#define SPX_CUDA_FOURIER_CUH

#include <cmath>
#include <vector>

#include "cuda/memory.cuh"

namespace spx
{

/* exp(-2 pi i k/n), [n]. */
inline std::vector<float2> twiddles(size_t n)
{
    std::vector<float2> t(n);
    for (size_t k = 0; k < n; k++) {
        const double angle = -2.0 * M_PI * (double)k / (double)n;
        t[k] = make_float2((float)cos(angle), (float)sin(angle));
    }
    return t;
}

__device__ inline float2 times(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* sign 1: as it is; -1: its conjugate, for the inverse. */
__device__ inline float2 turned(float2 w, float sign)
{
    return make_float2(w.x, sign * w.y);
}

/* One step of radix R, behind which parts of `done` R values are transformed. */
template <int R>
__device__ void fourier_step(const float2 *from, float2 *to, int n, int done, const float2 *tw, float sign, int lines)
{
    const int m = n / R, step = m / done;
    for (int t = threadIdx.x; t < lines * m; t += blockDim.x) {
        const int line = t / m, j = t % m, k = j % done;
        const float2 *a = from + line * n + j;
        float2 *b = to + line * n + (j - k) * R + k;
        float2 v[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            v[r] = r == 0 ? a[0] : times(a[r * m], turned(tw[r * k * step], sign));
        if constexpr (R == 2) {
            b[0] = make_float2(v[0].x + v[1].x, v[0].y + v[1].y);
            b[done] = make_float2(v[0].x - v[1].x, v[0].y - v[1].y);
        } else if constexpr (R == 4) {
            const float2 e = make_float2(v[0].x + v[2].x, v[0].y + v[2].y),
                         f = make_float2(v[0].x - v[2].x, v[0].y - v[2].y),
                         g = make_float2(v[1].x + v[3].x, v[1].y + v[3].y),
                         h = make_float2(sign * (v[1].y - v[3].y), sign * (v[3].x - v[1].x));
            b[0] = make_float2(e.x + g.x, e.y + g.y);
            b[done] = make_float2(f.x + h.x, f.y + h.y);
            b[2 * done] = make_float2(e.x - g.x, e.y - g.y);
            b[3 * done] = make_float2(f.x - h.x, f.y - h.y);
        } else {
#pragma unroll
            for (int s = 0; s < R; s++) {
                float2 sum = v[0];
#pragma unroll
                for (int r = 1; r < R; r++) {
                    const float2 part = times(v[r], turned(tw[r * s % R * m], sign));
                    sum = make_float2(sum.x + part.x, sum.y + part.y);
                }
                b[s * done] = sum;
            }
        }
    }
    __syncthreads();
}

/* Transforms lines [lines][n] of shared memory, by all threads of the block, when all are there; returns where they are
 * then: a or b. sign: 1 forward, -1 inverse, not divided by n. */
__device__ inline float2 *fourier(float2 *a, float2 *b, int n, const float2 *tw, float sign, int lines)
{
    int done = 1;
    while (done < n) {
        const int rest = n / done, radix = rest % 4 == 0 ? 4 : rest % 5 == 0 ? 5 : rest % 3 == 0 ? 3 : 2;
        if (radix == 4)
            fourier_step<4>(a, b, n, done, tw, sign, lines);
        else if (radix == 5)
            fourier_step<5>(a, b, n, done, tw, sign, lines);
        else if (radix == 3)
            fourier_step<3>(a, b, n, done, tw, sign, lines);
        else
            fourier_step<2>(a, b, n, done, tw, sign, lines);
        float2 *const other = a;
        a = b;
        b = other;
        done *= radix;
    }
    return a;
}

} // namespace spx

#endif
