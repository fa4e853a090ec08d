/* Provides the spots of all bins (equations: psf/psf_math.h). */
#ifndef SPX_EXTRACT_CUDA_SPOTS_CUH
#define SPX_EXTRACT_CUDA_SPOTS_CUH

#include "cuda/tensor.cuh"
#include "extract/cuda/params.cuh"

namespace
{

using spx::multiply_add;

/* Sum over the lanes, in all of them: of four lanes, then these sums times four in other lanes, and of those. */
__device__ double sum_of_lanes(double v)
{
    double fours[2] = {0.0, 0.0}, pair[2] = {0.0, 0.0}, all[2] = {0.0, 0.0};
    multiply_add(fours, v, 1.0);
    multiply_add(pair, 1.0, fours[0]);
    multiply_add(all, pair[0] + pair[1], 1.0);
    return 0.25 * all[0];
}

/* Half an error function and the unit Gaussian at multiples of 1/8 within +-NORMAL_FAR: erf(e/sqrt 2)/2, phi(e). */
__global__ void normals_kernel(params k)
{
    const double at = 0.125 * (int)threadIdx.x - NORMAL_FAR;
    k.normal[threadIdx.x] = {0.5 * erf(at * 0.70710678118654752440), exp(-0.5 * at * at) * 0.39894228040143267794};
}

/* The same at any e, by Taylor's series around the nearest of these: with its distance d, phi(e) is the sum of
 * t_n = He_n (-d)^n/n! phi, and the integral that of d t_n/(n + 1). |d| <= 1/16 leaves 2e-16 after ten terms. Beyond
 * NORMAL_FAR both are as there: 1e-22 from what they are. This takes less than half of the instructions of erf() and
 * exp(). */
__device__ double2 normal_at(const double2 *table, double e)
{
    if (!(fabs(e) <= NORMAL_FAR))
        e = copysign((double)NORMAL_FAR, e);
    const int nearest = __double2int_rn(8.0 * e);
    const double2 there = table[nearest + 8 * NORMAL_FAR];
    const double x = 0.125 * nearest, d = e - x, a = -d * x, b = -d * d;
    constexpr double inverse[] = {0.0,     1.0,     1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5,
                                  1.0 / 6, 1.0 / 7, 1.0 / 8, 1.0 / 9, 1.0 / 10};
    double before = 0.0, term = there.y, density = term, integral = term;
#pragma unroll
    for (int n = 1; n < 10; n++) {
        const double next = fma(a, term, b * before) * inverse[n];
        before = term;
        term = next;
        density += term;
        integral = fma(term, inverse[n + 1], integral);
    }
    return {fma(integral, d, there.x), density};
}

/* Bins of a trace whose spots a warp makes, and warps of a block. */
enum { SPOT_BINS = 8, SPOT_WARPS = 4 };

/* Shared memory of a warp, in doubles: of each bin and axis 1/sigma and the offset from the pixel's middle; of each bin
 * the coefficients; of each order the edge functions; a spot. Rows are as long as keeps lanes out of each other's
 * banks. */
struct spot_layout {
    int coefficients, edges; /* lengths of rows */
    int c, e, s, all;        /* where these begin, and their end */

    __host__ __device__ explicit spot_layout(const params &k)
    {
        const int deg = k.degx > k.degy ? k.degx : k.degy;
        coefficients = round_to((k.degx + 1) * (k.degy + 1) + 4, 8) - 2;
        edges = round_to(k.nx + k.ny + 6, 8) - 4;
        c = 4 * SPOT_BINS;
        e = c + SPOT_BINS * coefficients;
        s = e + (deg + 1) * edges;
        all = round_to(s + (k.npix > 32 ? k.npix : 32), 2);
    }
};

/* Products of both axes' functions and the coefficients, 16 x 16 pixels at a time, into s[ny][nx]; SMALL: there are no
 * more, and no orders beyond 7. c: [degy + 1][degx + 1]. Rows and columns beyond a spot's may be of anything, orders
 * beyond the last have coefficients 0 and stay what they are. */
template <bool SMALL> __device__ void add_up_spot(const params &k, const double *c, const double *e, int row, double *s)
{
    const int lane = threadIdx.x % WARP, r = lane / 4, q = lane % 4;
    for (int y0 = 0; y0 < (SMALL ? 1 : k.ny); y0 += 16)
        for (int x0 = 0; x0 < (SMALL ? 1 : k.nx); x0 += 16) {
            double tile[2][2][2] = {};
            for (int g0 = 0; g0 <= (SMALL ? 0 : k.degx); g0 += 8) {
                /* sum over j of g_j(y) GH-g-j; its columns, 2 q and 2 q + 1 of a lane, are orders q and q + 4, and so
                 * stand where the next product takes them from */
                double across[2][2] = {};
                const int g = g0 + r / 2 + r % 2 * 4;
                for (int j0 = 0; j0 <= (SMALL ? 0 : k.degy); j0 += 8)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int j = j0 + q + 4 * i;
                        const double factor = j <= k.degy && g <= k.degx ? c[g + (k.degx + 1) * j] : 0.0;
                        const double *at = e + min(j, k.degy) * row + k.nx + 1 + y0 + r;
#pragma unroll
                        for (int t = 0; t < 2; t++)
                            multiply_add(across[t], at[8 * t] - at[8 * t + 1], factor);
                    }
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const double *at = e + min(g0 + q + 4 * i, k.degx) * row + x0 + r;
#pragma unroll
                    for (int u = 0; u < 2; u++) {
                        const double along = at[8 * u] - at[8 * u + 1];
#pragma unroll
                        for (int t = 0; t < 2; t++)
                            multiply_add(tile[t][u], across[t][i], along);
                    }
                }
            }
            __syncwarp(); /* what is beyond the edges' functions, and is not used, may have been read from s */
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int u = 0; u < 2; u++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int x = x0 + 8 * u + 2 * q + i, y = y0 + 8 * t + r;
                        if (x < k.nx && y < k.ny)
                            s[y * k.nx + x] = tile[t][u][i];
                    }
        }
}

/* Pixels of a spot that a lane has at a time. */
enum { PIXELS = 6 };

/* Places and spots: one warp SPOT_BINS bins of a trace. Coefficients of all of them are one matrix product, the pixels
 * of each two; 28 lanes of 32 have an edge of 15 x 11 pixels. 1.0 ms for 500 fibres x 2326 bins on an H200, which could
 * write the spots in 0.35: a warp has some 460 instructions to do for each. SMALL: as in add_up_spot(), PIXELS a lane
 * and an edge a lane at most. */
template <bool SMALL> __global__ void __launch_bounds__(SPOT_WARPS *WARP, 6) spots_kernel(params k)
{
    extern __shared__ double2 shared2[];
    const spot_layout layout(k);
    double *shared = (double *)shared2 + threadIdx.x / WARP * layout.all;
    double *c = shared + layout.c, *e = shared + layout.e, *s = shared + layout.s;
    const int lane = threadIdx.x % WARP, r = lane / 4, q = lane % 4, groups = (k.n + SPOT_BINS - 1) / SPOT_BINS;
    const int item = blockIdx.x * SPOT_WARPS + threadIdx.x / WARP;
    if (item >= groups * k.lanes)
        return;
    const int bin0 = item % groups * SPOT_BINS, column = item / groups, b = column / k.nl, fibre = k.fibre[column];
    const int nx = k.nx, ny = k.ny, ngh = (k.degx + 1) * (k.degy + 1), deg = k.degx > k.degy ? k.degx : k.degy;
    bool bad[2] = {false, false}; /* coefficients of bins 2 q and 2 q + 1 that are not finite: no pixel is, then */
    if (fibre >= 0) {
        const double *coeff = k.coeff + (size_t)fibre * k.ndeg * k.npar;
        const double *basis = k.bp + (size_t)(bin0 + r) * k.ndeg;
        for (int p0 = 0; p0 < ngh + 2; p0 += 8) {
            double sum[2] = {0.0, 0.0};
            const int p = p0 + r;
            for (int d = q; d - q < k.ndeg; d += 4)
                multiply_add(sum, d < k.ndeg && p < ngh + 2 ? coeff[(size_t)d * k.npar + p] : 0.0,
                             d < k.ndeg && bin0 + r < k.n ? basis[d] : 0.0);
            bad[0] |= !isfinite(sum[0]);
            bad[1] |= !isfinite(sum[1]);
            if (p < ngh + 2) {
                c[2 * q * layout.coefficients + p] = sum[0];
                c[(2 * q + 1) * layout.coefficients + p] = sum[1];
            }
        }
        __syncwarp();
    }
    /* place and width along one axis of a bin: two lanes each */
    const int bin = bin0 + lane / 2, axis = lane % 2;
    const bool here = lane < 2 * SPOT_BINS && bin < k.n;
    const size_t mine = here ? (size_t)bin * k.lanes + column : 0;
    unsigned char state = SPX_TRACE_OFF;
    if (here && fibre >= 0)
        state = k.bin_state[(size_t)b * k.n * k.nl + (size_t)bin * k.nf[b] + column % k.nl];
    const bool spot = state == SPX_TRACE_SPOT;
    bool usable = false;
    int corner = 0;
    double offset = 0.0;
    if (spot) {
        const int n = axis ? k.nyc : k.nxc;
        const double at =
            spx_basis_sum(n, (axis ? k.ycoef : k.xcoef) + (size_t)fibre * n, (axis ? k.by : k.bx) + (size_t)bin * n);
        const double middle = floor(at + 0.5), sigma = c[lane / 2 * layout.coefficients + ngh + axis];
        corner = (int)middle - (axis ? ny : nx) / 2;
        offset = at - middle;
        /* edges have to be finite, too */
        usable = sigma > 0.0 && sigma < SPX_SPOT_FAR && isfinite((nx + ny) / sigma);
        ((double2 *)shared)[lane] = {1.0 / sigma, offset};
    }
    if (here && axis) {
        k.at[mine].yc = corner;
        k.at[mine].dy = offset;
    } else if (here) {
        k.at[mine].xc = corner;
        k.at[mine].dx = offset;
    }
    const unsigned spots = __ballot_sync(FULL, spot), both = __ballot_sync(FULL, usable);
    const unsigned odd[2] = {__ballot_sync(FULL, bad[0]), __ballot_sync(FULL, bad[1])};
    unsigned singular = 0;
    __syncwarp();
    for (int i = 0; i < SPOT_BINS; i++) {
        if ((spots >> 2 * i & 1) == 0)
            continue;
        double total = 0.0, v[PIXELS] = {};
        const auto pixel = [&](int j) {
            const double p = j < k.npix ? s[j] : 0.0;
            return p > 0.0 ? p : 0.0;
        };
        if ((both >> 2 * i & 3) == 3 && ((i % 2 ? odd[1] : odd[0]) & 0x11111111u << i / 2) == 0) {
            for (int l = lane; l < nx + ny + 2; l = SMALL ? INT_MAX : l + WARP) {
                const bool along_x = l <= nx;
                const double2 at = ((const double2 *)shared)[2 * i + (along_x ? 0 : 1)];
                const double edge = ((along_x ? l - nx / 2 : l - nx - 1 - ny / 2) - 0.5 - at.y) * at.x;
                const double2 at_edge = normal_at(k.normal, edge);
                double below = 0.0, function = at_edge.y, order = 0.0, *to = e + l;
                *to = -at_edge.x;
                for (int m = 1; m <= deg; m++, order += 1.0) {
                    to += layout.edges;
                    *to = function;
                    const double above = fma(edge, function, -order * below);
                    below = function;
                    function = above;
                }
            }
            __syncwarp();
            add_up_spot<SMALL>(k, c + i * layout.coefficients, e, layout.edges, s);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < PIXELS; j++) {
                v[j] = pixel(lane + j * WARP);
                total += v[j];
            }
            for (int j = lane + PIXELS * WARP; !SMALL && j < k.npix; j += WARP)
                total += pixel(j);
            total = sum_of_lanes(total);
        }
        const double scale = total > 0.0 && isfinite(total) ? 1.0 / total : 0.0;
        if (scale > 0.0 && isfinite(scale)) {
            double *to = k.spot + ((size_t)(bin0 + i) * k.lanes + column) * k.npix;
#pragma unroll
            for (int j = 0; j < PIXELS; j++)
                if (lane + j * WARP < k.npix)
                    to[lane + j * WARP] = v[j] * scale;
            for (int j = lane + PIXELS * WARP; !SMALL && j < k.npix; j += WARP)
                to[j] = pixel(j) * scale;
        } else {
            singular |= 1u << 2 * i;
        }
    }
    if (here && !axis)
        k.state[mine] = singular >> lane & 1 ? SPX_TRACE_NOSPOT : state;
}

/* Places, states and spots of all bins of a piece: k.at, k.state, k.spot. */
void spots(params &k, slot *s)
{
    const size_t groups = (size_t)(k.n + SPOT_BINS - 1) / SPOT_BINS * k.lanes;
    normals_kernel<<<1, NORMALS, 0, s->stream>>>(k);
    const size_t bytes = sizeof(double) * SPOT_WARPS * (size_t)spot_layout(k).all;
    const bool small =
        k.nx <= 16 && k.ny <= 16 && k.nx + k.ny + 2 <= WARP && k.npix <= PIXELS * WARP && k.degx < 8 && k.degy < 8;
    const auto kernel = small ? spots_kernel<true> : spots_kernel<false>;
    kernel<<<blocks(groups, SPOT_WARPS), SPOT_WARPS * WARP, bytes, s->stream>>>(k);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
