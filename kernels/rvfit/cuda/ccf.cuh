/* Cross-correlation on CUDA devices: chi^2 of all entries of the set at all lags, and the starts out of it. */
#ifndef SPX_RVFIT_CUDA_CCF_CUH
#define SPX_RVFIT_CUDA_CCF_CUH

namespace rv
{

enum { ROWS = 128, FEW_ROWS = 64, GEMM_DEPTH = 16, SAMPLES = 96, FEW_SAMPLES = 64, LAGS = 64 };

/* Tile of TALL x COLS of C = A B by 256 threads. a(i, k) is two values, of k and k + 1, k even; b(k, j) one; both are
 * read through functions, within `rows`, `depth` (even) and `columns`; c(i, j, value) takes the result. */
template <int TALL, int COLS, typename A, typename B, typename C>
__device__ inline void multiply(int rows, int depth, int columns, int row0, int column0, A a, B b, C c)
{
    __shared__ __align__(16) float as[GEMM_DEPTH][TALL + 4], bs[GEMM_DEPTH][COLS + 4];
    const int tid = (int)threadIdx.x, tx = tid % 16, ty = tid / 16;
    constexpr int AS = TALL * GEMM_DEPTH / 2 / 256, BS = COLS * GEMM_DEPTH / 256, PER = COLS / 16, HIGH = TALL / 16;
    static_assert(PER % 2 == 0 && HIGH % 4 == 0, "columns of a thread are read in pairs, rows in fours");
    float2 next_a[AS];
    float next_b[BS], sum[HIGH][PER];
    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < PER; j++)
            sum[i][j] = 0;
    auto fetch = [&](int k0) {
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 256 * n, k = k0 + 2 * (i % (GEMM_DEPTH / 2)), r = row0 + i / (GEMM_DEPTH / 2);
            next_a[n] = r < rows && k < depth ? a(r, k) : make_float2(0, 0);
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 256 * n, j = column0 + i % COLS, k = k0 + i / COLS;
            next_b[n] = j < columns && k < depth ? b(k, j) : 0;
        }
    };
    fetch(0);
    for (int k0 = 0; k0 < depth; k0 += GEMM_DEPTH) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 256 * n, k = 2 * (i % (GEMM_DEPTH / 2)), r = i / (GEMM_DEPTH / 2);
            as[k][r] = next_a[n].x;
            as[k + 1][r] = next_a[n].y;
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 256 * n;
            bs[i / COLS][i % COLS] = next_b[n];
        }
        __syncthreads();
        if (k0 + GEMM_DEPTH < depth)
            fetch(k0 + GEMM_DEPTH);
#pragma unroll
        for (int k = 0; k < GEMM_DEPTH; k++) {
            __align__(16) float x[HIGH], y[PER];
#pragma unroll
            for (int i = 0; i < HIGH; i += 4)
                *reinterpret_cast<float4 *>(&x[i]) = *reinterpret_cast<const float4 *>(&as[k][ty * HIGH + i]);
#pragma unroll
            for (int j = 0; j < PER; j += 2)
                *reinterpret_cast<float2 *>(&y[j]) = *reinterpret_cast<const float2 *>(&bs[k][tx * PER + j]);
#pragma unroll
            for (int i = 0; i < HIGH; i++)
#pragma unroll
                for (int j = 0; j < PER; j++)
                    sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (row0 + ty * HIGH + i < rows && column0 + tx * PER + j < columns)
                c(row0 + ty * HIGH + i, column0 + tx * PER + j, sum[i][j]);
}

/* chi^2 of the components of arm blockIdx.z at the samples of the inverse transform that the lags lie between,
 * samples[star][nccf][nsample] of the arm, nstar * samples0 from the beginning: transforms s and v of the star's data,
 * data[star][nfreq of all arms][4], times the conjugate ones of the components, back transformed. */
__global__ void __launch_bounds__(256, 2) sample_kernel(model m, int nstar, const float *data, float *samples)
{
    const arm &a = m.arms[blockIdx.z];
    const int nccf = a.nccf, nfreq = a.nfreq, nsample = a.nsample, rows = nstar * nccf;
    const int row0 = (int)blockIdx.y * FEW_ROWS, sample0 = (int)blockIdx.x * SAMPLES;
    if (row0 >= rows || sample0 >= nsample)
        return;
    const float2 *comp = reinterpret_cast<const float2 *>(a.ccf_comp);
    const float4 *spectrum = reinterpret_cast<const float4 *>(data) + a.freq0;
    samples += (size_t)nstar * a.samples0;
    auto product = [&](int row, int k) {
        const int star = row / nccf;
        const float2 *p = comp + (size_t)(row - star * nccf) * 2 * nfreq + k / 2;
        const float4 s = spectrum[(size_t)star * m.nfreq + k / 2];
        const float2 f = p[0], g = p[nfreq];
        return make_float2(s.x * f.x + s.y * f.y + s.z * g.x + s.w * g.y,
                           s.y * f.x - s.x * f.y + s.w * g.x - s.z * g.y);
    };
    auto response = [&](int k, int i) { return a.response[(size_t)k * nsample + i]; };
    auto put = [&](int row, int i, float value) { samples[(size_t)row * nsample + i] = value; };
    if (nsample <= FEW_SAMPLES)
        multiply<FEW_ROWS, FEW_SAMPLES>(rows, 2 * nfreq, nsample, row0, sample0, product, response, put);
    else
        multiply<FEW_ROWS, SAMPLES>(rows, 2 * nfreq, nsample, row0, sample0, product, response, put);
}

/* The same at all lags, lags[star][nccf of all arms][nlag]; block (lags, component of all arms, star). */
__global__ void __launch_bounds__(128) lag_kernel(model m, const float *samples, float *lags)
{
    const size_t nlag = m.set.nlag, lag = (size_t)blockIdx.x * 128 + threadIdx.x;
    int which = 0;
    while (which + 1 < m.narm && (int)blockIdx.y >= m.arms[which + 1].ccf0)
        which++;
    const arm &a = m.arms[which];
    if (lag >= nlag)
        return;
    const int first = a.lag_at[lag], n = a.nsample;
    const float4 w = a.lag_weight[lag];
    const float *p =
        samples + gridDim.z * a.samples0 + ((size_t)blockIdx.z * a.nccf + (blockIdx.y - (unsigned)a.ccf0)) * n;
    auto at = [&](int i) { return p[a.cyclic && first + i >= n ? first + i - n : first + i]; };
    lags[((size_t)blockIdx.z * m.nccf + blockIdx.y) * nlag + lag] =
        w.x * at(0) + w.y * at(1) + w.z * at(2) + w.w * at(3);
}

/* chi^2 of all entries at all lags, chi[star][entries][nlag]; block (lags, entries, star). */
__global__ void __launch_bounds__(256) entry_kernel(model m, const float *lags, float *chi)
{
    const size_t star = blockIdx.z, nlag = m.set.nlag;
    multiply<ROWS, LAGS>(
        (int)m.set.ntemp, m.nccf + m.nccf % 2, (int)nlag, (int)blockIdx.y * ROWS, (int)blockIdx.x * LAGS,
        [&](int entry, int k) {
            const float *p = m.ccf_coef + (size_t)entry * m.nccf + k;
            return make_float2(p[0], k + 1 < m.nccf ? p[1] : 0);
        },
        [&](int k, int lag) { return k < m.nccf ? lags[(star * m.nccf + k) * nlag + lag] : 0; },
        [&](int entry, int lag, float value) { chi[(star * m.set.ntemp + entry) * nlag + lag] = value; });
}

/* Decrease of chi^2 by an entry of the set in each arm, curve[star][arm][nlag]; block (lags, arm, star). */
__global__ void __launch_bounds__(128) curve_kernel(model m, const float *lags, const int *entry, float *curve)
{
    const size_t nlag = m.set.nlag, lag = (size_t)blockIdx.x * 128 + threadIdx.x, star = blockIdx.z;
    const arm &a = m.arms[blockIdx.y];
    if (lag >= nlag)
        return;
    const float *coef = m.ccf_coef + (size_t)entry[star] * m.nccf + a.ccf0;
    const float *p = lags + (star * m.nccf + a.ccf0) * nlag + lag;
    float sum = 0;
    for (int k = 0; k < a.nccf; k++)
        sum = fmaf(-coef[k], p[(size_t)k * nlag], sum);
    curve[(star * m.narm + blockIdx.y) * nlag + lag] = sum;
}

/* Block: starts of a star; best, entry [star][nlag] and least, lag [star][entries] as spx_rv_surface has them. */
__global__ void __launch_bounds__(128) candidates_kernel(model m, const float *chi, float *best, int *entry,
                                                         float *least, int *lag, spx_rv_candidates *candidates)
{
    const size_t star = blockIdx.x, nlag = m.set.nlag, ntemp = m.set.ntemp;
    const spx_rv_surface q = {chi + star * ntemp * nlag, best + star * nlag, entry + star * nlag, least + star * ntemp,
                              lag + star * ntemp};
    __shared__ size_t top, first, last;
    for (size_t i = threadIdx.x; i < nlag; i += blockDim.x)
        spx_rv_candidates_best(&m.set, &q, i);
    __syncthreads();
    if (threadIdx.x == 0)
        top = spx_rv_candidates_near(&m.set, &q, &first, &last);
    __syncthreads();
    for (size_t t = threadIdx.x; t < ntemp; t += blockDim.x)
        spx_rv_candidates_least(&m.set, &q, t, first, last);
    __syncthreads();
    if (threadIdx.x == 0)
        spx_rv_candidates_choose(&m.set, &q, top, &candidates[star]);
}

} // namespace rv

#endif
