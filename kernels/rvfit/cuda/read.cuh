/* Reads the pixels of stars on CUDA devices: errors, bad pixels, what pieces are left out, as model/data.c does. */
#ifndef SPX_RVFIT_CUDA_READ_CUH
#define SPX_RVFIT_CUDA_READ_CUH

namespace rv
{

enum { READ_THREADS = 256, EMPTY = 2 }; /* EMPTY: mark of pixels that are to be filled */

/* Fills pixels of f[n] that are marked EMPTY. Every thread has pixels side by side; `first` and `last`, shared, have
 * the first and the last one of each thread's that is not empty. */
__device__ inline void fill_pixels(int n, double *f, const uint8_t *mark, int *first, int *last)
{
    const int tid = (int)threadIdx.x, per = (n + READ_THREADS - 1) / READ_THREADS;
    const int begin = min(n, tid * per), end = min(n, begin + per);
    first[tid] = n;
    last[tid] = -1;
    for (int i = begin; i < end; i++)
        if (!(mark[i] & EMPTY)) {
            first[tid] = min(first[tid], i);
            last[tid] = i;
        }
    __syncthreads();
    int before = -1, after = n;
    for (int t = tid - 1; t >= 0 && before < 0; t--)
        before = last[t];
    for (int t = tid + 1; t < READ_THREADS && after == n; t++)
        after = first[t];
    for (int i = begin; i < end; i++) {
        if (!(mark[i] & EMPTY)) {
            before = i;
            continue;
        }
        int next = i + 1;
        while (next < end && (mark[next] & EMPTY))
            next++;
        next = next < end ? next : after;
        for (; i < end && i < next; i++)
            f[i] = before >= 0 && next < n ? spx_rv_filled(f[before], f[next], (size_t)before, (size_t)i, (size_t)next)
                   : before >= 0           ? f[before]
                   : next < n              ? f[next]
                                           : 0;
        i--;
    }
    __syncthreads();
}

/* The median flux of a piece, of all that is finite, or of what is not 0 when most is. */
__device__ inline double typical_flux(const block_scope &s, int n, const double *f, const uint8_t *mark)
{
    unsigned count;
    double typical = median(
        s, 0, n,
        [&](int i, double *x) {
            *x = f[i];
            return fabs(f[i]) <= DBL_MAX;
        },
        &count);
    if (typical == 0)
        typical = median(
            s, 0, n,
            [&](int i, double *x) {
                *x = f[i];
                return !(mark[i] & EMPTY) && f[i] > 0;
            },
            &count);
    if (typical == 0)
        typical = median(
            s, 0, n,
            [&](int i, double *x) {
                *x = fabs(f[i]) <= DBL_MAX ? fabs(f[i]) : 0;
                return true;
            },
            &count);
    return fabs(typical);
}

/* Block: the piece list[blockIdx.x], in place: its ivar is where 1/e will be, its mask where the good pixels will be.
 * out[piece], in which widths are. sigma and level: NULL without a jitter. */
static __global__ void __launch_bounds__(READ_THREADS)
    read_kernel(model m, const int *list, const piece *pieces, double *flux, double *ie, uint8_t *good, double *sigma,
                double *level, spx_rv_read *out)
{
    __shared__ double value[SPX_RV_LEVEL_BLOCKS], middle[SPX_RV_LEVEL_BLOCKS];
    __shared__ unsigned sums[3 * READ_THREADS / 32];
    __shared__ double partial[READ_THREADS / 32];
    __shared__ int first[READ_THREADS], last[READ_THREADS];
    const piece d = pieces[list[blockIdx.x]];
    const arm &a = m.arms[d.arm];
    const block_scope block = {sums};
    const int tid = (int)threadIdx.x, n = a.n;
    double *f = flux + d.pixel0, *e = ie + d.pixel0;
    uint8_t *mark = good + d.pixel0;
    unsigned ngood[1] = {0}, count;
    for (int i = tid; i < n; i += READ_THREADS) {
        const double root = sqrt(e[i]);
        const double err = mark[i] == 0 && spx_rv_sane(f[i], e[i], root) ? 1 / root : 0;
        const bool use = err > 0 && a.leftout[i] == 0;
        mark[i] = (use ? GOOD : 0) | (err > 0 ? 0 : EMPTY);
        e[i] = use ? err : 0;
        ngood[0] += use;
    }
    block.sum(ngood);
    const int which = list[blockIdx.x];
    spx_rv_read r = {0, 0, 0, 0, 0, (int32_t)ngood[0], SPX_RVFIT_GOOD};
    const double typical = typical_flux(block, n, f, mark);
    r.large = typical * SPX_RV_LARGE_ERROR;
    r.bad = ngood[0] == 0                             ? SPX_RVFIT_NO_PIXEL
            : (int)ngood[0] <= a.npoly                ? SPX_RVFIT_FEW_PIXELS
            : !(typical > 1e-45) || !(typical < 1e45) ? SPX_RVFIT_NO_FLUX
                                                      : SPX_RVFIT_GOOD;
    if (r.bad == SPX_RVFIT_GOOD) {
        fill_pixels(n, f, mark, first, last);
        r.sn = median(
            block, 0, n,
            [&](int i, double *x) {
                *x = f[i] / e[i];
                return (mark[i] & GOOD) && fabs(*x) <= DBL_MAX;
            },
            &count);
        const double least = SPX_RV_LEAST_ERROR * median(
                                                      block, 0, n,
                                                      [&](int i, double *x) {
                                                          *x = e[i];
                                                          return (mark[i] & GOOD) != 0;
                                                      },
                                                      &count);
        double sum = 0;
        for (int q = 4 * tid; q < n; q += 4 * READ_THREADS) { /* a logarithm of four errors */
            double product = 1;
            for (int i = q; i < min(n, q + 4); i++) {
                const double s = mark[i] & GOOD ? (e[i] > least ? e[i] : least) : r.large;
                product *= s;
                e[i] = 1 / s;
                mark[i] &= GOOD;
            }
            sum += 2 * log(product);
        }
        r.sum_lne2 = spx::block_sum<READ_THREADS / 32>(sum, partial);
        if (level != nullptr) {
            __syncthreads();
            smooth_level(n, f, mark, value, middle, level + d.pixel0);
            for (int i = tid; i < n; i += READ_THREADS)
                sigma[d.pixel0 + i] = 1 / e[i];
        }
    }
    if (tid == 0 && a.ndiag > 0) {
        r.width = out[which].width;
        r.misfit = out[which].misfit;
    }
    if (tid == 0)
        out[which] = r;
}

/* Block: pixels of piece list[blockIdx.x] that are far from its model are masked, and filled. */
static __global__ void __launch_bounds__(READ_THREADS)
    reject_kernel(model m, double sigma, const rejection *list, const piece *pieces, const double *models, double *flux,
                  double *ie, uint8_t *good, spx_rv_rejected *out)
{
    __shared__ unsigned sums[3 * READ_THREADS / 32];
    __shared__ double partial[READ_THREADS / 32];
    __shared__ int first[READ_THREADS], last[READ_THREADS];
    const rejection which = list[blockIdx.x];
    const piece d = pieces[which.piece];
    const arm &a = m.arms[d.arm];
    const block_scope block = {sums};
    const int tid = (int)threadIdx.x, n = a.n;
    const double *at = models + d.pixel0;
    double *f = flux + d.pixel0, *e = ie + d.pixel0;
    uint8_t *mark = good + d.pixel0;
    unsigned ngood, found[1] = {0};
    const double cut = spx_rv_reject_cut(sigma, median(
                                                    block, 0, n,
                                                    [&](int i, double *x) {
                                                        *x = fabs(f[i] - at[i]) * e[i];
                                                        return mark[i] != 0;
                                                    },
                                                    &ngood));
    for (int i = tid; i < n; i += READ_THREADS)
        found[0] += mark[i] != 0 && fabs(f[i] - at[i]) * e[i] > cut;
    block.sum(found);
    if ((int)(ngood - found[0]) <= a.npoly)
        found[0] = 0;
    double change = 0;
    if (found[0] > 0) {
        for (int i = tid; i < n; i += READ_THREADS)
            if (mark[i] != 0 && fabs(f[i] - at[i]) * e[i] > cut) {
                change += 2 * log(which.large * e[i]);
                e[i] = 1 / which.large;
                mark[i] = EMPTY;
            }
        change = spx::block_sum<READ_THREADS / 32>(change, partial);
        __syncthreads();
        fill_pixels(n, f, mark, first, last);
        for (int i = tid; i < n; i += READ_THREADS)
            mark[i] &= GOOD;
    }
    if (tid == 0)
        out[blockIdx.x] = {change, (int32_t)found[0]};
}

/* Models as they are kept. */
static __global__ void __launch_bounds__(256) keep_kernel(size_t n, const double *fitted, float *kept)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        kept[i] = spx_rv_model(fitted[i]);
}

} // namespace rv

#endif
