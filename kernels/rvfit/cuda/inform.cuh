/* Information of pieces on a velocity (search/epochs.c), on CUDA devices. */
#ifndef SPX_RVFIT_CUDA_INFORM_CUH
#define SPX_RVFIT_CUDA_INFORM_CUH

namespace rv
{

/* Block: of piece list[blockIdx.x], from its models at v - half and v + half; out[blockIdx.x]: the sum with errors as
 * they are, and with those of the noise alone. sigma: errors without a jitter; NULL: they have none. */
static __global__ void __launch_bounds__(JITTER_THREADS)
    inform_kernel(model m, const informed *list, const piece *pieces, const double *ie, const uint8_t *good,
                  const double *sigma, const double *left, const double *right, double2 *out)
{
    __shared__ double partial[2][JITTER_WARPS];
    const informed which = list[blockIdx.x];
    const piece d = pieces[which.piece];
    const int n = m.arms[d.arm].n;
    double sum[2] = {0, 0};
    for (int i = (int)threadIdx.x; i < n; i += JITTER_THREADS) {
        const size_t at = d.pixel0 + (size_t)i;
        if (!good[at])
            continue;
        const double e = ie[at], slope = (right[at] - left[at]) / (2 * which.half) * e,
                     photon = sigma != nullptr ? slope * sigma[at] * e : slope;
        sum[0] = fma(slope, slope, sum[0]);
        sum[1] = fma(photon, photon, sum[1]);
    }
    block_sums(sum, partial);
    if (threadIdx.x == 0)
        out[blockIdx.x] = make_double2(sum[0], sum[1]);
}

} // namespace rv

#endif
