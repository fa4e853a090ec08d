/* Provides the products of calib/resolution.h and the derivatives of calib/series.h for many fibres on a device.
 * Layouts are the host's: resolution[nspec][ndiag][n], spectra [nspec][n], bands by diagonals [m+1][n]. Sums over
 * fibres are taken in chunks of FIBRES, in order, so that results are the same bits from run to run; from the CPU they
 * differ by rounding.
 *
 * Recurrences along the band (calib/band.h) are left to the host: a factor of 2 300 bins takes 0.2 ms there, and a
 * chain of dependent steps on one warp ten times that. */
#ifndef SPX_CALIB_CALIB_CUH
#define SPX_CALIB_CALIB_CUH

#include <cstdint>

#include "calib/series.h"
#include "cuda/memory.cuh"
#include "cuda/stream.cuh"

namespace spx
{
namespace calib
{

constexpr int THREADS = 128;
constexpr size_t FIBRES = 16; /* of a chunk of the normal equations */

/* y[i] = R_i x_i, with x_i = x + i * stride: stride 0 is a spectrum that all have in common. Fibre: blockIdx.y; those
 * with active[i] 0 keep theirs, NULL: all are. */
static __global__ void apply_kernel(size_t n, size_t ndiag, const double *resolution, const double *x, size_t stride,
                                    const uint8_t *active, double *y)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, i = blockIdx.y;
    if (k >= n || (active != nullptr && !active[i]))
        return;
    const double *r = resolution + i * ndiag * n;
    x += i * stride;
    double sum = 0;
    for (size_t b = 0; b < ndiag; b++) {
        const long j = (long)k + (long)(ndiag / 2) - (long)b;
        if (j >= 0 && j < (long)n)
            sum += r[b * n + (size_t)j] * x[j];
    }
    y[i * n + k] = sum;
}

inline void apply(cudaStream_t s, size_t nspec, size_t n, size_t ndiag, const double *resolution, const double *x,
                  size_t stride, double *y, const uint8_t *active = nullptr)
{
    if (nspec > 0)
        apply_kernel<<<dim3(blocks(n, THREADS), (unsigned)nspec), THREADS, 0, s>>>(n, ndiag, resolution, x, stride,
                                                                                   active, y);
    check(cudaGetLastError(), "launch");
}

/* v[i] = diag(R_i C R_i^T), c[ndiag][n] the band of C. Fibre: blockIdx.y. */
static __global__ void variance_kernel(size_t n, size_t ndiag, const double *resolution, const double *c, double *v)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, i = blockIdx.y;
    if (k >= n)
        return;
    const double *r = resolution + i * ndiag * n;
    double sum = 0;
    for (size_t b = 0; b < ndiag; b++) {
        const long j = (long)k + (long)(ndiag / 2) - (long)b;
        if (j < 0 || j >= (long)n)
            continue;
        const double at = r[b * n + (size_t)j];
        for (size_t d = 0; d <= b && j + (long)d < (long)n; d++)
            sum += (d == 0 ? 1 : 2) * at * r[(b - d) * n + (size_t)j + d] * c[d * n + (size_t)j];
    }
    v[i * n + k] = sum;
}

inline void variance(cudaStream_t s, size_t nspec, size_t n, size_t ndiag, const double *resolution, const double *c,
                     double *v)
{
    if (nspec > 0)
        variance_kernel<<<dim3(blocks(n, THREADS), (unsigned)nspec), THREADS, 0, s>>>(n, ndiag, resolution, c, v);
    check(cudaGetLastError(), "launch");
}

/* Chunk blockIdx.z of the fibres: part[chunk][ndiag + 1][n], diagonal blockIdx.y of the normal matrix, and in the last
 * row R^T W d. fibre[nuse]: those that are in, NULL: all. */
static __global__ void normal_kernel(size_t nuse, const uint32_t *fibre, size_t n, size_t ndiag,
                                     const double *resolution, const double *w, const double *d, double *part)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x, diagonal = blockIdx.y, chunk = blockIdx.z;
    if (j >= n)
        return;
    const size_t last = (chunk + 1) * FIBRES < nuse ? (chunk + 1) * FIBRES : nuse;
    const bool right = diagonal == ndiag;
    double sum = 0;
    for (size_t u = chunk * FIBRES; u < last && (right || j + diagonal < n); u++) {
        const size_t i = fibre != nullptr ? fibre[u] : u;
        const double *r = resolution + i * ndiag * n;
        for (size_t b = right ? 0 : diagonal; b < ndiag; b++) {
            const long k = (long)j + (long)b - (long)(ndiag / 2);
            if (k < 0 || k >= (long)n)
                continue;
            const double weight = w[i * n + (size_t)k];
            if (weight > 0)
                sum += r[b * n + j] * weight * (right ? d[i * n + (size_t)k] : r[(b - diagonal) * n + j + diagonal]);
        }
    }
    part[(chunk * (ndiag + 1) + diagonal) * n + j] = sum;
}

/* The same element of all chunks, in order. */
static __global__ void chunks_kernel(size_t size, size_t nchunk, const double *part, double *sum)
{
    const size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (at >= size)
        return;
    double total = 0;
    for (size_t c = 0; c < nchunk; c++)
        total += part[c * size + at];
    sum[at] = total;
}

inline size_t normal_chunks(size_t nuse)
{
    return (nuse + FIBRES - 1) / FIBRES;
}

/* Normal equations of a common spectrum: sum[ndiag][n] by diagonals, then sum[ndiag] the right-hand side R^T W d, [n].
 * part: work, [normal_chunks(nuse)][ndiag + 1][n]. */
inline void normal(cudaStream_t s, size_t nuse, const uint32_t *fibre, size_t n, size_t ndiag, const double *resolution,
                   const double *w, const double *d, double *part, double *sum)
{
    const size_t size = (ndiag + 1) * n, chunks = normal_chunks(nuse);
    if (chunks == 0) {
        check(cudaMemsetAsync(sum, 0, size * sizeof *sum, s), "device memory");
        return;
    }
    normal_kernel<<<dim3(blocks(n, THREADS), (unsigned)(ndiag + 1), (unsigned)chunks), THREADS, 0, s>>>(
        nuse, fibre, n, ndiag, resolution, w, d, part);
    check(cudaGetLastError(), "launch");
    chunks_kernel<<<blocks(size, THREADS), THREADS, 0, s>>>(size, chunks, part, sum);
    check(cudaGetLastError(), "launch");
}

/* dx[i][k] = derivative of x[i] at bin k (calib/series.h). Fibre, and active: as in apply(). */
static __global__ void derivative_kernel(size_t n, double dw, const double *x, const uint8_t *active, double *dx)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, i = blockIdx.y;
    if (k < n && (active == nullptr || active[i]))
        dx[i * n + k] = spx_derivative(n, dw, x + i * n, k);
}

inline void derivative(cudaStream_t s, size_t nspec, size_t n, double dw, const double *x, double *dx,
                       const uint8_t *active = nullptr)
{
    if (nspec > 0)
        derivative_kernel<<<dim3(blocks(n, THREADS), (unsigned)nspec), THREADS, 0, s>>>(n, dw, x, active, dx);
    check(cudaGetLastError(), "launch");
}

} // namespace calib
} // namespace spx

#endif
