/* Spots of all bins (see ../psf/psf_math.h for the equations). */
#ifndef SPX_EXTRACT_CUDA_SPOTS_CUH
#define SPX_EXTRACT_CUDA_SPOTS_CUH

#include "extract/extract_cuda_work.cuh"

namespace
{

__device__ double series(int n, const double *c, const double *basis)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += c[i] * basis[i];
    return sum;
}

/* Places of the spots, with the bits of the host's: what is known of them is which bins have one. */
__global__ void places_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, b = column / k.nl, fibre = k.fibre[column];
    spx_trace_place at = {0, 0, 0.0, 0.0};
    unsigned char state = SPX_TRACE_OFF;
    if (fibre >= 0)
        state = k.known[(size_t)b * k.n * k.nl + (size_t)bin * k.nf[b] + column % k.nl];
    if (state == SPX_TRACE_SPOT) {
        const double x = series(k.nxc, k.xcoef + (size_t)fibre * k.nxc, k.bx + (size_t)bin * k.nxc);
        const double y = series(k.nyc, k.ycoef + (size_t)fibre * k.nyc, k.by + (size_t)bin * k.nyc);
        const double mx = floor(x + 0.5), my = floor(y + 0.5);
        at = {(int)mx - k.nx / 2, (int)my - k.ny / 2, x - mx, y - my};
    }
    k.at[i] = at;
    k.state[i] = state;
}

/* D += A B of the tensor cores, 8 x 4 by 4 x 8: lane l has A(l/4, l%4), B(l%4, l/4) and D(l/4, 2 (l%4) + 0, 1). */
__device__ void multiply_add(double (&d)[2], double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a), "d"(b));
}

/* Doubles of shared memory that spots_kernel needs a warp. */
__device__ __host__ inline int spot_room(const work &k)
{
    const int deg = k.degx > k.degy ? k.degx : k.degy;
    return k.npar + (deg + 1) * (k.nx + k.ny + 2) + round_to(k.degx + 1, 4) * (round_to(k.nx, 8) + round_to(k.ny, 8)) +
           k.npix;
}

/* One warp a bin: its spot. Shared memory a warp: coefficients, edge functions, the differences of these over the
 * pixels of a row, their contraction with the coefficients over y, and the spot. */
__global__ void spots_kernel(work k, int per_warp)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP;
    const int item = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (item >= k.n * k.lanes || k.state[item] != SPX_TRACE_SPOT)
        return;
    const int bin = item / k.lanes, column = item % k.lanes;
    const int nx = k.nx, ny = k.ny, ngh = (k.degx + 1) * (k.degy + 1), ne = nx + ny + 2;
    const int deg = k.degx > k.degy ? k.degx : k.degy;
    const int inner = round_to(k.degx + 1, 4), wx = round_to(nx, 8), wy = round_to(ny, 8);
    double *c = shared + (threadIdx.x / WARP) * per_warp, *e = c + k.npar, *along = e + (deg + 1) * ne;
    double *across = along + inner * wx, *s = across + inner * wy;
    const double *coeff = k.coeff + (size_t)k.fibre[column] * k.ndeg * k.npar, *basis = k.bp + (size_t)bin * k.ndeg;
    for (int i = lane; i < ngh + 2; i += WARP) {
        double sum = 0.0;
        for (int d = 0; d < k.ndeg; d++)
            sum = fma(coeff[(size_t)d * k.npar + i], basis[d], sum);
        c[i] = sum;
    }
    __syncwarp();
    const double sigx = c[ngh], sigy = c[ngh + 1];
    const spx_trace_place at = k.at[item];
    bool usable = sigx > 0.0 && sigy > 0.0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR;
    double total = 0.0, raw = 0.0;
    if (usable) {
        for (int i = lane; i < ne; i += WARP) {
            const bool along_x = i <= nx;
            const double edge =
                along_x ? (i - nx / 2 - 0.5 - at.dx) / sigx : (i - nx - 1 - ny / 2 - 0.5 - at.dy) / sigy;
            e[i] = -0.5 * erf(edge * 0.70710678118654752440);
            double below = 0.0, here = exp(-0.5 * edge * edge) * 0.39894228040143267794;
            for (int m = 1; m <= deg; m++) {
                e[m * ne + i] = here;
                double above = edge * here - (m - 1) * below;
                below = here;
                here = above;
            }
        }
        __syncwarp();
        for (int i = lane; i < wx; i += WARP)
            for (int g = 0; g < inner; g++)
                along[g * wx + i] = g <= k.degx && i < nx ? e[g * ne + i] - e[g * ne + i + 1] : 0.0;
        for (int i = lane; i < inner * wy; i += WARP) {
            const int g = i / wy, y = i % wy;
            double sum = 0.0;
            if (g <= k.degx && y < ny)
                for (int j = 0; j <= k.degy; j++)
                    sum = fma(c[g + (k.degx + 1) * j], e[j * ne + nx + 1 + y] - e[j * ne + nx + 2 + y], sum);
            across[i] = sum;
        }
        __syncwarp();
        /* tiles of 8 x 8 pixels */
        const int r = lane / 4, q = lane % 4;
        for (int y0 = 0; y0 < ny; y0 += 8)
            for (int x0 = 0; x0 < nx; x0 += 8) {
                double tile[2] = {0.0, 0.0};
                for (int g = 0; g < inner; g += 4)
                    multiply_add(tile, across[(g + q) * wy + y0 + r], along[(g + q) * wx + x0 + r]);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int x = x0 + 2 * q + i, y = y0 + r;
                    if (x < nx && y < ny) {
                        const double v = tile[i] > 0.0 ? tile[i] : 0.0;
                        raw += tile[i];
                        total += v;
                        s[y * nx + x] = v;
                    }
                }
            }
        __syncwarp();
    }
    total = warp_sum(total);
    raw = warp_sum(raw);
    const double scale = usable && isfinite(raw) && total > 0.0 && isfinite(total) ? 1.0 / total : 0.0;
    usable = scale > 0.0 && isfinite(scale);
    double *spot = k.spot + (size_t)item * k.npix;
    if (usable)
        for (int i = lane; i < k.npix; i += WARP)
            spot[i] = s[i] * scale;
    else if (lane == 0)
        k.state[item] = SPX_TRACE_NOSPOT;
}

spx_status spots(work &k, slot *s, spx_err *e)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const int per_warp = spot_room(k);
    const unsigned warps = 4;
    places_kernel<<<blocks(bins, 128), 128, 0, s->stream>>>(k);
    spots_kernel<<<blocks(bins, warps), warps * WARP, sizeof(double) * warps * per_warp, s->stream>>>(k, per_warp);
    TRY(cudaGetLastError());
    return SPX_OK;
}

} // namespace

#endif
