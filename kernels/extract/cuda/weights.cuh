/* Provides pixel weights from ivar and mask, and the counts of pixels that decide on an extraction (see
 * spx_extract_pixel_weights() and spx_extract_check_coverage(), whose counts these are). */
#ifndef SPX_EXTRACT_CUDA_WEIGHTS_CUH
#define SPX_EXTRACT_CUDA_WEIGHTS_CUH

#include "extract/cuda/spots.cuh"

extern "C" {
#include "extract/trace/reject_math.h"
}

namespace
{

enum { PIXELS_BAD, PIXELS_MASKED, PIXELS_SEEN, PIXELS_BLIND, PIXEL_COUNTS };

/* Adds what the threads of a block have counted. */
__device__ void count_up(unsigned long long *to, unsigned n)
{
    const unsigned sum = __reduce_add_sync(FULL, n);
    if (threadIdx.x % WARP == 0 && sum > 0)
        atomicAdd(to, (unsigned long long)sum);
}

/* Weights in the place of ivar, of columns x0 .. x1 - 1; mask may be NULL. Thread (column, row), and the rows after. */
__global__ void weights_kernel(params k, const unsigned *mask, size_t x0, size_t x1, float *ivar,
                               unsigned long long *count)
{
    const size_t x = x0 + (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned bad = 0, masked = 0;
    for (size_t y = blockIdx.y; y < (size_t)k.ccd_ny && x < x1; y += gridDim.y) {
        const size_t i = y * (size_t)k.ccd_nx + x;
        const float v = ivar[i];
        const bool is_bad = !isfinite(k.data[i]) || !isfinite(v) || v < 0.0f;
        const bool is_masked = (mask && mask[i] != 0) || !(v > 0.0f);
        bad += is_bad;
        masked += is_masked && !is_bad;
        ivar[i] = is_bad || is_masked ? 0.0f : v;
        if (k.readnoise && ivar[i] > 0.0f &&
            !((double)k.readnoise[i] >= SPX_LEAST_READNOISE && isfinite(k.readnoise[i]))) {
            ivar[i] = -0.0f; /* not used, but no reason to refuse the image: see coverage_kernel() */
            bad++;
        }
    }
    count_up(&count[PIXELS_BAD], bad);
    count_up(&count[PIXELS_MASKED], masked);
}

/* The three pixels in the middle of the spots of fibres first ... and the bins of the output: thread (bin, fibre). */
__global__ void coverage_kernel(params k, int first, unsigned long long *count)
{
    const int bin = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t fibre = (size_t)first + blockIdx.y;
    unsigned seen = 0, blind = 0;
    if (bin < k.nwave) {
        const size_t at = (size_t)bin + k.pad;
        const double x = floor(spx_basis_sum(k.nxc, k.xcoef + fibre * k.nxc, k.bx + at * k.nxc) + 0.5);
        const double y = floor(spx_basis_sum(k.nyc, k.ycoef + fibre * k.nyc, k.by + at * k.nyc) + 0.5);
        if (y >= 0.0 && y < (double)k.ccd_ny && x >= -1.0 && x <= (double)k.ccd_nx)
            for (long column = (long)x - 1; column <= (long)x + 1; column++)
                if (column >= 0 && column < k.ccd_nx) {
                    seen++;
                    const float weight = k.weight[(size_t)y * k.ccd_nx + column];
                    blind += !(weight > 0.0f) && !signbit(weight);
                }
    }
    count_up(&count[PIXELS_SEEN], seen);
    count_up(&count[PIXELS_BLIND], blind);
}

/* On a stream, after the pixels of columns x0 .. x1 - 1, each of which is weighed once; count: [PIXEL_COUNTS], zeroed.
 */
void pixel_weights(const params &k, const unsigned *mask, size_t x0, size_t x1, unsigned long long *count,
                   cudaStream_t stream)
{
    const unsigned columns = 256, rows = 512; /* a few pixels a thread: one strip fills the device */
    if (x0 >= x1 || k.ccd_ny == 0)
        return;
    const dim3 grid(blocks(x1 - x0, columns), k.ccd_ny < rows ? (unsigned)k.ccd_ny : rows);
    weights_kernel<<<grid, columns, 0, stream>>>(k, mask, x0, x1, (float *)k.weight, count);
    spx::check(cudaGetLastError(), "launch");
}

/* Takes the weights of some pixels of the frame, where they are in columns x0 .. x1 - 1. */
__global__ void left_out_kernel(params k, const unsigned *pixels, size_t n, size_t x0, size_t x1)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && pixels[i] % k.ccd_nx >= x0 && pixels[i] % k.ccd_nx < x1)
        ((float *)k.weight)[pixels[i]] = 0.0f;
}

void leave_out_pixels(const params &k, const unsigned *pixels, size_t n, size_t x0, size_t x1, cudaStream_t stream)
{
    if (n > 0)
        left_out_kernel<<<blocks(n, 128), 128, 0, stream>>>(k, pixels, n, x0, x1);
    spx::check(cudaGetLastError(), "launch");
}

/* Light in these is added up in whole numbers, so that the order does not matter. */
#define LIGHT_UNIT (1.0 / (1 << 30))

/* Weights from the model, of pixels that have one: in the place of theirs. Thread (pixel). */
__global__ void model_weights_kernel(params k, float *weight)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (size_t)k.ccd_nx * k.ccd_ny)
        weight[i] = weight[i] > 0.0f
                        ? (float)(1.0 / spx_model_variance((double)k.readnoise[i], (double)k.light[i] * LIGHT_UNIT))
                        : 0.0f;
}

/* After all pixels. */
void count_coverage(const params &k, int first, int nspec, unsigned long long *count, cudaStream_t stream)
{
    const unsigned bins = 128;
    for (int at = 0; at < nspec; at += 65535)
        coverage_kernel<<<dim3(blocks(k.nwave, bins), nspec - at < 65535 ? nspec - at : 65535), bins, 0, stream>>>(
            k, first + at, count);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
