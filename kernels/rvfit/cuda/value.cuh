/* The objective alone, at many velocities of a star, on CUDA devices: a warp each, which goes over the pixels once. */
#ifndef SPX_RVFIT_CUDA_VALUE_CUH
#define SPX_RVFIT_CUDA_VALUE_CUH

namespace rv
{

/* Sum of squares of data / error beyond which |D - S a|^2 is not taken as what the factor leaves of it: rounding errors
 * would reach 1e-4 of the objective. */
#define LARGE_SQUARE 1e9

/* Functions of the continuum that a warp has a lane for, beside the data. */
enum { VALUE_POLY = 31 };

inline size_t value_shared(int tiles)
{
    return (size_t)WARPS * tiles * 8 * ROW * sizeof(double);
}

/* Warp: an item; result[item] as pixel_kernel() with VALUE, NAN where that has to be asked. The factor of S'S with S'D
 * and D'D as its last row ends with |D - S a|^2. */
template <int TILES>
__global__ void __launch_bounds__(32 * WARPS, TILES <= 2 ? 4 : 1)
    value_kernel(model m, int n, const item *items, const piece *pieces, const double *flux, const double *ie,
                 const double *band, const double2 *knots, double *result)
{
    constexpr int PAIRS = TILES * (TILES + 1) / 2, N = TILES * 8;
    extern __shared__ __align__(16) double workspace[];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, which = (int)blockIdx.x * WARPS + warp;
    if (which >= n)
        return;
    const item &it = items[which];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int np = a.npoly;
    double *stage = workspace + (size_t)warp * N * ROW;
    const view v = {&a,
                    VALUE,
                    spx_rv_lnshift(it.v) / a.dlnwave,
                    knots + (size_t)it.at * m.samples + a.sample0,
                    nullptr,
                    band != nullptr ? band + d.band0 : nullptr};
    flux += d.pixel0;
    ie += d.pixel0;
    double c[PAIRS][2], b[N];
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        c[i][0] = c[i][1] = 0;
    equations<TILES>(v, np, 0, 32, flux, ie, stage, c);
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            stage[i * 64 + lane / 4 * 8 + lane % 4 * 2 + j] = c[i][j];
    __syncwarp();
    /* row `lane` of the lower triangle */
    double square = 0, left = 0, ln, over;
#pragma unroll
    for (int j = 0; j < N; j++) {
        b[j] = j <= lane && lane <= np ? stage[(lane / 8 * (lane / 8 + 1) / 2 + j / 8) * 64 + lane % 8 * 8 + j % 8] : 0;
        square = j == np ? b[j] : square;
    }
    const bool fine = factor<N>(np, b, &ln, &over);
#pragma unroll
    for (int j = 0; j < N; j++)
        left = j == np ? b[j] : left;
    if (lane == np)
        result[which] = !fine ? HUGE_VAL : (square < LARGE_SQUARE && left > 0 ? left + ln + a.lndet + d.sum_lne2 : NAN);
}

} // namespace rv

#endif
