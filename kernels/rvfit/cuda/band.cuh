/* Resolution matrices for templates with a line-spread function of their own, on CUDA devices: what
 * spx_rv_match_rows() of model/lsf_match.c does. */
#ifndef SPX_RVFIT_CUDA_BAND_CUH
#define SPX_RVFIT_CUDA_BAND_CUH

namespace rv
{

enum { BAND_THREADS = 512 };

/* Element k of row i of R, res[nd][n] by diagonals; 0 beyond the ends and where it is no number. */
__device__ inline double raw_element(const double *res, int n, int nd, int i, int k)
{
    const int j = i + k - nd / 2; /* column j is in the diagonal of offset k - nd/2, at j */
    const double x = j >= 0 && j < n ? res[(size_t)(nd - 1 - k) * n + j] : 0;
    return fabs(x) <= DBL_MAX ? x : 0;
}

/* Second moment of row i about its centroid, pixels squared. */
__device__ inline double row_variance(const double *res, int n, int nd, int i)
{
    double s0 = 0, s1 = 0, s2 = 0;
    for (int k = 0; k < nd; k++) {
        const double x = (double)(k - nd / 2), r = raw_element(res, n, nd, i, k);
        s0 += r;
        s1 += r * x;
        s2 += r * x * x;
    }
    return s2 / s0 - s1 / s0 * (s1 / s0);
}

/* Row i of the band, b[k n], of that of R: by the matrix of its class, or between those of two. */
__device__ inline void matched_row(const arm &a, int level, const double *res, int i, double *b)
{
    const int n = a.n, nd = a.ndiag, c = min((int)a.match_place[i], a.nclass - 1);
    const double t = a.match_place[i] - (double)c;
    const double *one = a.match + ((size_t)c * SPX_RV_LEVELS + level) * nd * nd;
    const double *other = c + 1 < a.nclass ? one + (size_t)SPX_RV_LEVELS * nd * nd : nullptr;
    for (int k = 0; k < nd; k++, one += nd, other += other != nullptr ? nd : 0) {
        double sum = 0, next = 0;
        for (int j = 0; j < nd; j++) {
            const double x = raw_element(res, n, nd, i, j);
            sum = fma(one[j], x, sum);
            if (other != nullptr)
                next = fma(other[j], x, next);
        }
        b[(size_t)k * n] = other != nullptr ? (1 - t) * sum + t * next : sum;
    }
}

/* Warp: mean square of what row b[k n] of the band and the templates' LSF make, less that of row i of R, of the square
 * of the latter's. */
__device__ inline double row_misfit(const arm &a, int level, const double *res, int i, const double *b)
{
    const int n = a.n, nd = a.ndiag, c = min((int)a.match_place[i], a.nclass - 1);
    const double *lag = a.match_lag + ((size_t)c * SPX_RV_LEVELS + level) * SPX_RV_PRODUCTS * nd;
    double bb = 0, br = 0, rr = 0;
    for (int p = (int)threadIdx.x % 32; p < nd * nd; p += 32) {
        const int j = p / nd, k = p % nd, d = abs(j - k);
        const double bj = b[(size_t)j * n], rj = raw_element(res, n, nd, i, j);
        const double bk = b[(size_t)k * n], rk = raw_element(res, n, nd, i, k);
        bb = fma(bj * bk, lag[SPX_RV_GG * nd + d], bb);
        br = fma(bj * rk, lag[SPX_RV_GH * nd + d], br);
        rr = fma(rj * rk, lag[SPX_RV_HH * nd + d], rr);
    }
    bb = spx::warp_sum(bb);
    br = spx::warp_sum(br);
    rr = spx::warp_sum(rr);
    return (bb - 2 * br + rr) / rr;
}

/* Median of x[n], which is sorted. */
__device__ inline double few_median(int n, double *x)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j - 1] > x[j]; j--) {
            const double y = x[j];
            x[j] = x[j - 1];
            x[j - 1] = y;
        }
    return n == 0 ? 0 : n % 2 ? x[n / 2] : x[n / 2 - 1] + (x[n / 2] - x[n / 2 - 1]) / 2;
}

/* Block: piece first + blockIdx.x. Its R, from raw[band0 - raw0] on, to the band; out[piece]: width and misfit.
 * scratch: a number a pixel, as models have it. */
static __global__ void __launch_bounds__(BAND_THREADS)
    band_kernel(model m, int first, const piece *pieces, const double *raw, size_t raw0, double *band, double *scratch,
                spx_rv_read *out)
{
    __shared__ unsigned sums[3 * BAND_THREADS / 32];
    __shared__ double few[SPX_RV_MISFITS];
    const piece d = pieces[first + (int)blockIdx.x];
    const arm &a = m.arms[d.arm];
    const block_scope block = {sums};
    const int n = a.n, nd = a.ndiag, h = nd / 2, tid = (int)threadIdx.x;
    const double *res = raw + (d.band0 - raw0);
    double *b = band + d.band0, *tmp = scratch + d.pixel0;
    unsigned count;
    for (int i = tid; i < n; i += BAND_THREADS)
        tmp[i] = i >= h && i + h < n ? row_variance(res, n, nd, i) : 0;
    __syncthreads();
    const double width = sqrt(median(
        block, 0, n,
        [&](int i, double *x) {
            *x = tmp[i];
            return tmp[i] > 0 && tmp[i] <= DBL_MAX;
        },
        &count));
    const int level = (int)spx_rv_match_level(width);
    __syncthreads();
    for (int i = tid; i < n; i += BAND_THREADS) {
        double sum = 0;
        for (int k = 0; k < nd; k++)
            sum += raw_element(res, n, nd, i, k);
        tmp[i] = sum;
        matched_row(a, level, res, i, b + i);
    }
    __syncthreads();
    double middle = median(
        block, 0, n,
        [&](int i, double *x) {
            *x = tmp[i];
            return true;
        },
        &count);
    if (middle == 0)
        middle = 1;
    /* rows that are cut by the ends of the arm are scaled to the sum that rows have in the middle */
    for (int i = tid; i < n; i += BAND_THREADS) {
        double sum = 0;
        if (i >= h && i + h < n)
            continue;
        for (int k = 0; k < nd; k++) {
            if (i + k < h || i + k - h >= n)
                b[(size_t)k * n + i] = 0;
            sum += b[(size_t)k * n + i];
        }
        for (int k = 0; k < nd && sum != 0; k++)
            b[(size_t)k * n + i] *= middle / sum;
    }
    const int step = n / SPX_RV_MISFITS + 1;
    for (int q = tid / 32; q < SPX_RV_MISFITS; q += BAND_THREADS / 32) {
        const int i = n / SPX_RV_MISFITS / 2 + q * step;
        const bool use = a.match_lag != nullptr && i < n && i >= h && i + h < n && tmp[i] > 0;
        const double x = use ? row_misfit(a, level, res, i, b + i) : NAN;
        if (tid % 32 == 0)
            few[q] = fabs(x) <= DBL_MAX ? sqrt(fmax(x, 0.0)) : NAN;
    }
    __syncthreads();
    if (tid == 0) {
        int used = 0;
        for (int q = 0; q < SPX_RV_MISFITS; q++)
            if (!isnan(few[q]))
                few[used++] = few[q];
        out[first + (int)blockIdx.x].width = width;
        out[first + (int)blockIdx.x].misfit = few_median(used, few);
    }
}

} // namespace rv

#endif
