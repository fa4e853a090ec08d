/* Models of exposures and arms, shifted along their pixels and scaled (search/agreement.c), on CUDA devices. */
#ifndef SPX_RVFIT_CUDA_SHIFTED_CUH
#define SPX_RVFIT_CUDA_SHIFTED_CUH

namespace rv
{

enum { SHIFT_THREADS = 128, SHIFTS = 8 }; /* SHIFTS: side by side, which have their pixels in common */

/* The last of n pixels but one whose place is not beyond p, sought from j on. */
__device__ inline int pixel_before(const double *place, int n, int j, double p)
{
    j = max(0, min(n - 2, j));
    while (j + 2 < n && place[j + 1] <= p)
        j++;
    while (j > 0 && place[j] > p)
        j--;
    return j;
}

/* Block: SHIFTS shifts of an exposure, blockIdx.y of list[blockIdx.x]. Sums of a piece: w f m and w m^2 of each shift,
 * w f^2. */
static __global__ void __launch_bounds__(SHIFT_THREADS)
    shifted_kernel(model m, const shifts *list, const int *list_pieces, const piece *pieces, const double *flux,
                   const double *ie, const uint8_t *good, const double *models, double *result)
{
    enum { SUMS = 2 * SHIFTS + 1, SHIFT_WARPS = SHIFT_THREADS / 32 };
    __shared__ double partial[SHIFT_WARPS][SUMS];
    const shifts s = list[blockIdx.x];
    const unsigned k0 = blockIdx.y * SHIFTS;
    const int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32;
    if (k0 >= s.n)
        return;
    double chisq = 0; /* of shift k0 + tid */
    for (int i = s.begin; i < s.end; i++) {
        const piece d = pieces[list_pieces[i]];
        const arm &a = m.arms[d.arm];
        const int n = a.n;
        const double *place = a.place, *f = flux + d.pixel0, *e = ie + d.pixel0, *at = models + d.pixel0;
        const uint8_t *use = good + d.pixel0;
        const double lo = place[0], hi = place[n - 1];
        double shift[SHIFTS], sum[SUMS] = {0};
        for (int k = 0; k < SHIFTS; k++) {
            const unsigned which = k0 + (unsigned)k;
            shift[k] = spx_rv_place_shift(which == 0 ? 0 : s.first + (double)(which - 1) * s.step, a.dlnwave);
        }
        for (int q = tid; q < n; q += SHIFT_THREADS) {
            if (!use[q])
                continue;
            const double w = e[q] * e[q], data = w * f[q], p = place[q];
            /* pixels are nearly as wide as the one here */
            const double pixels = q + 1 < n ? 1 / (place[q + 1] - p) : 1 / (p - place[q - 1]);
            sum[2 * SHIFTS] = fma(data, f[q], sum[2 * SHIFTS]);
#pragma unroll
            for (int k = 0; k < SHIFTS; k++) {
                const double x = spx_rv_within(p - shift[k], lo, hi);
                const int j = pixel_before(place, n, q - (int)floor(shift[k] * pixels) - 1, x);
                const double t = (x - place[j]) / (place[j + 1] - place[j]);
                const double y = spx_rv_between(t, at[max(j - 1, 0)], at[j], at[j + 1], at[min(j + 2, n - 1)]);
                sum[2 * k] = fma(data, y, sum[2 * k]);
                sum[2 * k + 1] = fma(w * y, y, sum[2 * k + 1]);
            }
        }
#pragma unroll
        for (int k = 0; k < SUMS; k++) {
            const double all = spx::warp_sum(sum[k]);
            if (lane == 0)
                partial[warp][k] = all;
        }
        __syncthreads();
        if (tid < SHIFTS) {
            double fm = 0, mm = 0, ff = 0;
            for (int g = 0; g < SHIFT_WARPS; g++) {
                fm += partial[g][2 * tid];
                mm += partial[g][2 * tid + 1];
                ff += partial[g][2 * SHIFTS];
            }
            chisq += spx_rv_scaled_chisq(ff, fm, mm);
        }
        __syncthreads();
    }
    if (tid < SHIFTS && k0 + (unsigned)tid < s.n)
        result[s.out + k0 + (unsigned)tid] = chisq;
}

} // namespace rv

#endif
