/* The objective alone, at many velocities of a star, on CUDA devices: a warp each, which goes over the pixels once. */
#ifndef SPX_RVFIT_CUDA_VALUE_CUH
#define SPX_RVFIT_CUDA_VALUE_CUH

namespace rv
{

/* Sum of squares of data / error beyond which |D - S a|^2 is not taken as what the factor leaves of it: rounding errors
 * would reach 1e-4 of the objective. */
#define LARGE_SQUARE 1e9

/* Numbers of a warp in shared memory. */
__host__ __device__ inline size_t value_size(int np, int m)
{
    return (size_t)(EQUATIONS + np * (m + 2) + 1);
}

/* Warp: an item; result[item] as pixel_kernel() with VALUE, NAN where that has to be asked. |D - S a|^2 is what
 * (L^-1 S'D)' D^-1 (L^-1 S'D) leaves of D'D. PLAIN: there is no resolution matrix. */
template <int TILES, bool PLAIN>
__global__ void __launch_bounds__(32 * WARPS, TILES == 1 ? 5 : (TILES == 2 ? 3 : 1))
    value_kernel(model m, int n, const item *items, const piece *pieces, const double *flux, const double *ie,
                 const double *band, const double2 *knots, double *result)
{
    extern __shared__ __align__(16) double workspace[];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, which = (int)blockIdx.x * WARPS + warp;
    if (which >= n)
        return;
    const item &it = items[which];
    const piece &d = pieces[it.piece];
    const view v = {m.arms[d.arm],
                    VALUE,
                    spx_rv_lnshift(it.v) / m.arms[d.arm].dlnwave,
                    knots + (size_t)it.at * m.samples + m.arms[d.arm].sample0,
                    nullptr,
                    !PLAIN ? band + d.band0 : nullptr};
    const arm &a = v.a;
    const int np = a.npoly, nb = a.basis_band + 1;
    /* warps of a block may have different arms */
    double *stage = workspace + warp * value_size(m.npoly, m.basis_band), *gram = stage + EQUATIONS;
    equations<TILES, PLAIN>(v, chunks_of(a, 0, 1), flux + d.pixel0, ie + d.pixel0, stage, gram);
    double ln, *right = gram + np * nb, sum = 0;
    const double square = right[np];
    const bool fine = factor(np, nb - 1, gram, right, &ln);
    for (int j = lane; j < np; j += 32)
        sum = fma(right[j] * right[j], gram[j * nb], sum);
    const double left = square - spx::warp_sum(sum);
    if (lane == 0)
        result[which] = !fine ? HUGE_VAL : (square < LARGE_SQUARE && left > 0 ? left + ln + a.lndet + d.sum_lne2 : NAN);
}

} // namespace rv

#endif
