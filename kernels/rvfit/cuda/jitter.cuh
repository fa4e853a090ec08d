/* Errors with a jitter, and those of quantities that neighbouring pixels share, on CUDA devices: what model/jitter.c
 * and search/misfit.c do. */
#ifndef SPX_RVFIT_CUDA_JITTER_CUH
#define SPX_RVFIT_CUDA_JITTER_CUH

namespace rv
{

enum { JITTER_THREADS = 256, JITTER_WARPS = JITTER_THREADS / 32, GOOD = 1 }; /* GOOD: mark of pixels that are used */

/* Sums over a block of N values, in all threads. */
template <int N> __device__ inline void block_sums(double (&x)[N], double (*partial)[JITTER_WARPS])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < N; k++) {
        x[k] = spx::warp_sum(x[k]);
        if (lane == 0)
            partial[k][warp] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
        x[k] = 0;
        for (int g = 0; g < JITTER_WARPS; g++)
            x[k] += partial[k][g];
    }
    __syncthreads();
}

/* Block: errors of piece list[blockIdx.x] with a jitter; out[blockIdx.x]: 2 sum ln e. */
static __global__ void __launch_bounds__(JITTER_THREADS)
    error_kernel(model m, const jittered *list, const piece *pieces, const uint8_t *good, const double *sigma,
                 const double *level, double *ie, double *out)
{
    __shared__ double partial[1][JITTER_WARPS];
    const jittered which = list[blockIdx.x];
    const piece d = pieces[which.piece];
    const int n = m.arms[d.arm].n;
    good += d.pixel0;
    sigma += d.pixel0;
    level += d.pixel0;
    ie += d.pixel0;
    double sum[1] = {0};
    for (int q = 4 * (int)threadIdx.x; q < n; q += 4 * JITTER_THREADS) { /* a logarithm of four errors */
        double product = 1;
        for (int i = q; i < min(n, q + 4); i++) {
            const double s = !good[i]           ? which.large
                             : which.jitter > 0 ? hypot(sigma[i], which.jitter * level[i])
                                                : sigma[i];
            product *= s;
            ie[i] = 1 / s;
        }
        sum[0] += 2 * log(product);
    }
    block_sums(sum, partial);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum[0];
}

/* Smooth level of the flux f[n] of a piece, as spx_rv_level() has it. value, middle: [SPX_RV_LEVEL_BLOCKS], shared. */
__device__ inline void smooth_level(int n, const double *f, const uint8_t *mark, double *value, double *middle,
                                    double *level)
{
    const int block = max(n / SPX_RV_LEVEL_BLOCKS, (int)SPX_RV_LEVEL_PIXELS), many = n > block ? n / block : 1;
    const int warp = (int)threadIdx.x / 32;
    if (warp < many) {
        const int i0 = (int)((size_t)warp * n / many), i1 = (int)((size_t)(warp + 1) * n / many);
        unsigned count;
        const double x = median(
            warp_scope(), i0, i1,
            [&](int i, double *y) {
                *y = f[i];
                return (mark[i] & GOOD) != 0;
            },
            &count);
        if (threadIdx.x % 32 == 0) {
            value[warp] = fabs(x);
            middle[warp] = count > 0 ? 0.5 * (i0 + i1 - 1) : -1;
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        double before = 0, at = 0, x = 0;
        bool found = false;
        for (int b = 0; b < many && !found; b++) {
            if (middle[b] < 0)
                continue;
            found = i <= middle[b];
            x = found && at > 0 ? before + (value[b] - before) * (i - at) / (middle[b] - at) : value[b];
            before = value[b];
            at = middle[b];
        }
        level[i] = x;
    }
}

/* Likelihood of an arm as a function of the jitter's square (model/jitter.c): slope, information, sum of r^2/c^2,
 * pixels. */
__device__ inline void likelihood(const model &m, const arm_of_star &s, const int *list, const piece *pieces,
                                  const double *flux, const double *models, const uint8_t *good, const double *sigma,
                                  const double *level, double q, double (&sum)[4], double (*partial)[JITTER_WARPS])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        sum[k] = 0;
    for (int p = s.begin; p < s.end; p++) {
        const piece &d = pieces[list[p]];
        const int n = m.arms[d.arm].n;
        for (int i = (int)threadIdx.x; i < n; i += JITTER_THREADS) {
            const size_t at = d.pixel0 + (size_t)i;
            if (!good[at] || !(level[at] > 0))
                continue;
            const double r = flux[at] - models[at], c2 = level[at] * level[at];
            const double weight = c2 / (sigma[at] * sigma[at] + q * c2);
            sum[0] += weight * (1 - s.taken - r * r * weight / c2);
            sum[1] += 0.5 * weight * weight;
            sum[2] += r * r / c2;
            sum[3]++;
        }
    }
    block_sums(sum, partial);
}

/* Block: an arm of a star. The jitter's square where the likelihood has its maximum, and the information on it. */
static __global__ void __launch_bounds__(JITTER_THREADS)
    jitter_kernel(model m, const arm_of_star *arms, const int *list, const piece *pieces, const double *flux,
                  const double *models, const uint8_t *good, const double *sigma, const double *level, double2 *out)
{
    __shared__ double partial[4][JITTER_WARPS];
    const arm_of_star s = arms[blockIdx.x];
    double sum[4];
    auto at = [&](double q) { likelihood(m, s, list, pieces, flux, models, good, sigma, level, q, sum, partial); };
    at(0);
    double lo = 0, hi = sum[2] / fmax(1.0, sum[3]), best = 0;
    if (sum[0] < 0 && hi > 0 && hi < HUGE_VAL) {
        at(hi);
        for (int k = 0; k < SPX_RV_JITTER_STEPS && sum[0] < 0; k++) {
            hi *= 2;
            at(hi);
        }
        for (int k = 0; k < SPX_RV_JITTER_STEPS && hi - lo > 1e-6 * hi; k++) {
            const double middle = 0.5 * (lo + hi);
            at(middle);
            if (sum[0] < 0)
                lo = middle;
            else
                hi = middle;
        }
        best = 0.5 * (lo + hi);
        at(best);
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = make_double2(best, sum[1]);
}

/* A piece with its models at two points along a quantity. */
struct two_models {
    int n;
    const double *flux, *ie, *sigma, *level, *model, *other;
    const uint8_t *good;
    double up, down;

    __device__ double influence(int i) const
    {
        return good[i] ? (other[i] - model[i]) * ie[i] / (up + down) : 0;
    }
    __device__ double residual(int i) const
    {
        return (flux[i] - (down * other[i] + up * model[i]) / (up + down)) * ie[i];
    }
};

/* Sums over the clusters of score[n] (search/misfit.c), by a warp: variance, and sum of squares of their shares. */
__device__ inline void clustered(int n, const double *score, const double *share, int least, int around,
                                 double *variance, double *squares)
{
    const int lane = (int)threadIdx.x % 32;
    *variance = *squares = 0;
    for (int first = 0, end; first < n; first = end) {
        end = n;
        if (n - first > least + least / 2) { /* where the information around is least */
            const int from = first + least, to = min(from + least, n - least / 2);
            double lowest = HUGE_VAL;
            for (int k = from + lane; k < to; k += 32) {
                double sum = 0;
                for (int i = max(k - around, 0); i < k + around && i < n; i++)
                    sum += share[i];
                if (sum < lowest) {
                    lowest = sum;
                    end = k;
                }
            }
            for (int s = 16; s > 0; s /= 2) {
                const double sum = __shfl_xor_sync(FULL, lowest, s);
                const int k = __shfl_xor_sync(FULL, end, s);
                if (sum < lowest || (sum == lowest && k < end)) {
                    lowest = sum;
                    end = k;
                }
            }
        }
        double sum = 0, taken = 0;
        for (int k = first + lane; k < end; k += 32) {
            sum += score[k];
            taken += share[k];
        }
        sum = spx::warp_sum(sum);
        taken = spx::warp_sum(taken);
        *variance += sum * sum / (1 - fmin(SPX_RV_MOST_TAKEN, taken));
        *squares += taken * taken;
    }
}

/* Block: a star, and a quantity: asked[blockIdx.x]. score: two numbers a bin of it. */
static __global__ void __launch_bounds__(JITTER_THREADS)
    misfit_kernel(model m, const shared_misfit *asked, const piece *pieces, const double *flux, const double *ie,
                  const uint8_t *good, const double *sigma, const double *level, const double *models,
                  const double *others, double *scores, double2 *out)
{
    __shared__ double partial[5][JITTER_WARPS];
    const shared_misfit s = asked[blockIdx.x];
    const int tid = (int)threadIdx.x, bins = (int)s.bins;
    double *score = scores + s.score0, *share = score + bins, length = s.length;
    auto of = [&](int p) {
        const size_t at = pieces[p].pixel0;
        return two_models{m.arms[pieces[p].arm].n,
                          flux + at,
                          ie + at,
                          sigma + at,
                          level + at,
                          models + at,
                          others + at,
                          good + at,
                          s.up,
                          s.down};
    };
    if (s.first) { /* over which influences keep their sign */
        double sum = 0, weight = 0;
        for (int p = s.begin; p < s.end; p++) {
            const two_models d = of(p);
            const double *lnwave = m.arms[pieces[p].arm].lnwave;
            double square = 0, before = 0, now[1] = {0};
            int lag = 0;
            for (; lag < d.n; lag++, before = now[0]) {
                now[0] = 0;
                for (int i = tid; i + lag < d.n; i += JITTER_THREADS)
                    now[0] += d.influence(i) * d.influence(i + lag);
                block_sums(now, partial);
                if (lag == 0)
                    square = now[0];
                if (now[0] <= 0)
                    break;
            }
            if (!(square > 0) || lag == d.n || d.n < 2)
                continue;
            const double pixel = (lnwave[d.n - 1] - lnwave[0]) / (double)(d.n - 1);
            sum += square * pixel * ((double)lag - 1 + before / (before - now[0]));
            weight += square;
        }
        length = weight > 0 ? sum / weight : 0;
    }
    for (int k = tid; k < 2 * bins; k += JITTER_THREADS)
        score[k] = 0;
    double sums[3] = {0}; /* squares of influences, of those of the noise, pixels */
    for (int p = s.begin; p < s.end; p++) {
        const two_models d = of(p);
        const double *lnwave = m.arms[pieces[p].arm].lnwave;
        double line[2] = {0};
        if (s.is_velocity) { /* the part of the residuals that is linear in the template */
            double g[5] = {0};
            for (int i = tid; i < d.n; i += JITTER_THREADS) {
                if (!d.good[i])
                    continue;
                const double r = d.residual(i), c = d.level[i] * d.ie[i], t = d.model[i] * d.ie[i];
                g[0] += c * c;
                g[1] += c * t;
                g[2] += t * t;
                g[3] += c * r;
                g[4] += t * r;
            }
            block_sums(g, partial);
            const double det = g[0] * g[2] - g[1] * g[1];
            if (det > SPX_RV_COLLINEAR * g[0] * g[2]) {
                line[0] = (g[2] * g[3] - g[1] * g[4]) / det;
                line[1] = (g[0] * g[4] - g[1] * g[3]) / det;
            }
        }
        __syncthreads(); /* bins are cleared, or have the pieces before */
        auto bin_of = [&](int i) { return (int)((lnwave[i] - s.ln0) / s.bin); };
        for (int i = tid; i < d.n; i += JITTER_THREADS) {
            const int bin = bin_of(i);
            if (i > 0 && bin_of(i - 1) == bin) /* the first pixel of a bin adds those behind it */
                continue;
            double all = score[bin], information = share[bin];
            for (int j = i; j < d.n && bin_of(j) == bin; j++) {
                if (!d.good[j])
                    continue;
                const double x = d.influence(j), photon = x * d.sigma[j] * d.ie[j];
                all += x * (d.residual(j) - (line[0] * d.level[j] + line[1] * d.model[j]) * d.ie[j]);
                information += x * x;
                sums[0] += x * x;
                sums[1] += photon * photon;
                sums[2]++;
            }
            score[bin] = all;
            share[bin] = information;
        }
        __syncthreads();
    }
    block_sums(sums, partial);
    for (int k = tid; k < bins; k += JITTER_THREADS)
        share[k] /= sums[0];
    __syncthreads();
    if (tid >= 32)
        return;
    const spx_rv_clusters c = spx_rv_clusters_of(length, s.bin, (double)bins);
    double variance, squares;
    clustered(bins, score, share, c.least, c.around, &variance, &squares);
    if (tid == 0)
        out[blockIdx.x] =
            make_double2(length, spx_rv_widened(variance, 1 / squares, sums[0], sums[1], sums[2], s.free));
}

} // namespace rv

#endif
