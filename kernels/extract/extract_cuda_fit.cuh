/* Model of the image and chi^2 of the bins. The traces that touch 32 pixels are found by their lanes, not by a loop
 * over all of the bundle. */
#ifndef SPX_EXTRACT_CUDA_FIT_CUH
#define SPX_EXTRACT_CUDA_FIT_CUH

#include "extract/extract_cuda_work.cuh"

namespace
{

__global__ void no_rows_kernel(work k)
{
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.ccd_ny * k.lanes)
        k.span[i] = {INT_MAX, -1, INT_MAX, INT_MIN};
}

/* Bins that only widen what the bin before (after) them has said already say nothing. */
__global__ void rows_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const spx_trace_place at = k.at[i];
    const bool there = k.state[i] == SPX_TRACE_SPOT;
    k.brief[i] = {at.xc, there ? at.yc : INT_MAX / 2, k.x[i]};
    if (!there)
        return;
    const int xc = at.xc, yc = at.yc, before = i - k.lanes, after = i + k.lanes;
    const bool has_before = bin > 0 && k.state[before] == SPX_TRACE_SPOT;
    const bool has_after = bin + 1 < k.n && k.state[after] == SPX_TRACE_SPOT;
    const int yb = has_before ? k.at[before].yc : INT_MAX / 2, ya = has_after ? k.at[after].yc : INT_MAX / 2;
    const bool same = has_before && k.at[before].xc == xc;
    for (int y = yc > 0 ? yc : 0; y < yc + k.ny && y < k.ccd_ny; y++) {
        const bool said = (unsigned)(y - yb) < (unsigned)k.ny, will_be = (unsigned)(y - ya) < (unsigned)k.ny;
        span *s = k.span + (size_t)y * k.lanes + column;
        if (!said)
            atomicMin(&s->k0, bin);
        if (!will_be)
            atomicMax(&s->k1, bin);
        if (!said || !same) {
            atomicMin(&s->x0, xc);
            atomicMax(&s->x1, xc + k.nx);
        }
    }
}

/* (p - M)^2 / (1/ivar + (psf_error M)^2) of the pixels of a bundle, 0 without ivar: one thread a pixel, a warp 32 of a
 * row; its lanes look for the traces that touch any of these. */
__global__ void chi2_kernel(work k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.z, lane = threadIdx.x % WARP;
    const int y = (int)blockIdx.y, first = k.x0[b] + column - lane, x = first + lane;
    if (column - lane >= k.wide || y < k.y0[b] || y >= k.y1[b])
        return;
    const bool in = column < k.wide && x >= 0 && x < k.ccd_nx;
    const double ivar = in ? (double)k.weight[(size_t)y * k.ccd_nx + x] : 0.0;
    double model = 0.0;
    for (int f0 = 0; f0 < k.nl; f0 += WARP) {
        span s = {0, -1, INT_MAX, INT_MIN};
        if (f0 + lane < k.nl)
            s = k.span[(size_t)y * k.lanes + b * k.nl + f0 + lane];
        unsigned touch = __ballot_sync(FULL, s.x0 < first + WARP && s.x1 > first);
        for (; touch != 0; touch &= touch - 1) {
            const int f = __ffs((int)touch) - 1;
            const int k0 = __shfl_sync(FULL, s.k0, f), k1 = __shfl_sync(FULL, s.k1, f);
            const int trace = b * k.nl + f0 + f;
#pragma unroll 4
            for (int j = k0; j <= k1; j++) {
                const size_t i = (size_t)j * k.lanes + trace;
                const brief at = k.brief[i];
                const int dx = x - at.xc, dy = y - at.yc;
                if ((unsigned)dx < (unsigned)k.nx && (unsigned)dy < (unsigned)k.ny)
                    model = fma(at.x, k.spot[i * k.npix + dy * k.nx + dx], model);
            }
        }
    }
    if (column >= k.wide)
        return;
    double chi2 = 0.0;
    if (ivar > 0.0) {
        const double error = k.psf_error * model, rest = (double)k.data[(size_t)y * k.ccd_nx + x] - model;
        chi2 = rest * rest * ivar / (error * error * ivar + 1.0);
    }
    k.chi2[((size_t)b * k.ccd_ny + y) * k.wide + column] = chi2;
}

/* chi2pix: one warp GATHERED neighbouring bins of the output. */
enum { GATHERED = 4 };

__global__ void gather_chi2_kernel(work k)
{
    const int lane = threadIdx.x % WARP, groups = (k.nwave + GATHERED - 1) / GATHERED;
    const int item = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (item >= groups * k.lanes)
        return;
    const int bin0 = item % groups * GATHERED, column = item / groups, b = column / k.nl;
    if (k.wanted[column] < 0)
        return;
    const int y0 = k.y0[b], y1 = k.y1[b];
    const double *chi2[GATHERED], *spot[GATHERED];
    int xc[GATHERED], yc[GATHERED];
    double sum[GATHERED], seen[GATHERED];
#pragma unroll
    for (int g = 0; g < GATHERED; g++) {
        const bool in = bin0 + g < k.nwave;
        const size_t i = (size_t)(in ? bin0 + g + k.pad : 0) * k.lanes + column;
        const spx_trace_place at = k.at[i];
        seen[g] = in && k.state[i] == SPX_TRACE_SPOT ? k.seen[i] : 0.0;
        sum[g] = 0.0;
        spot[g] = k.spot + i * k.npix;
        xc[g] = at.xc;
        yc[g] = seen[g] > 0.0 ? at.yc : INT_MAX / 2;
        chi2[g] = k.chi2 + ((long)b * k.ccd_ny + (seen[g] > 0.0 ? at.yc : 0)) * k.wide + (at.xc - k.x0[b]);
    }
    for (int s = lane; s < k.npix; s += WARP) {
        const int dy = s / k.nx, dx = s - dy * k.nx, at = dy * k.wide + dx;
#pragma unroll
        for (int g = 0; g < GATHERED; g++) {
            const int x = xc[g] + dx, y = yc[g] + dy;
            if (x >= 0 && x < k.ccd_nx && y >= y0 && y < y1)
                sum[g] = fma(spot[g][s], chi2[g][at], sum[g]);
        }
    }
#pragma unroll
    for (int g = 0; g < GATHERED; g++) {
        const double total = warp_sum(sum[g]);
        if (lane == 0 && bin0 + g < k.nwave)
            k.out_chi2[(size_t)(k.wanted[column] - k.row0) * k.nwave + bin0 + g] = total > 0.0 ? total / seen[g] : 0.0;
    }
}

spx_status fit(const work &k, slot *s, spx_err *e)
{
    const unsigned warps = 8;
    no_rows_kernel<<<blocks((size_t)k.ccd_ny * k.lanes, 256), 256, 0, s->stream>>>(k);
    rows_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k);
    chi2_kernel<<<dim3(blocks(k.wide, 128), (unsigned)k.ccd_ny, k.nbundle), 128, 0, s->stream>>>(k);
    const size_t groups = (size_t)(k.nwave + GATHERED - 1) / GATHERED * k.lanes;
    gather_chi2_kernel<<<blocks(groups, warps), warps * WARP, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

} // namespace

#endif
