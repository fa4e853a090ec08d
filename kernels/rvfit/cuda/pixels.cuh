/* Sums over the pixels of a piece, on CUDA devices: the objective, its derivatives, models. */
#ifndef SPX_RVFIT_CUDA_PIXELS_CUH
#define SPX_RVFIT_CUDA_PIXELS_CUH

namespace rv
{

enum {
    WARPS = 4, /* of a block that sums over pixels */
    ROW = 36   /* stride of its staged rows: 32 pixels, and no bank conflicts */
};

enum { VALUE = 0, DERIVATIVES = 1, MODEL = 2, CONTINUUM = 3 };

/* c += a b of 8 x 4 and 4 x 8 on the tensor cores, each product and sum as fma() would. */
__device__ inline void mma(double &c0, double &c1, double a, double b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c0), "+d"(c1)
                 : "d"(a), "d"(b));
}

/* What a piece's pixels see of the template. */
struct view {
    const arm *a;
    int mode;
    double shift;
    const double2 *knots;
    const double *t, *band;

    __device__ double raw(int i) const
    {
        if (mode == CONTINUUM)
            return 1;
        if (mode == DERIVATIVES)
            return t[i];
        double u[4], d[4];
        const int k = (int)spx_rv_spline_weights(a->place[i] + shift, (size_t)a->nt, u, d);
        const double2 p = knots[k], q = knots[k + 1];
        return fma(u[0], p.x, fma(u[1], q.x, fma(u[2], p.y, u[3] * q.y)));
    }
    __device__ double at(int i) const
    {
        if (band == nullptr)
            return raw(i);
        const int h = a->ndiag / 2;
        double s = 0;
        for (int k = max(h - i, 0); k < min(a->ndiag, a->n - i + h); k++)
            s = fma(band[(size_t)i * a->ndiag + k], raw(i + k - h), s);
        return s;
    }
    __device__ double slope(const float *dt, int i) const
    {
        if (band == nullptr)
            return (double)dt[i];
        const int h = a->ndiag / 2;
        double s = 0;
        for (int k = max(h - i, 0); k < min(a->ndiag, a->n - i + h); k++)
            s = fma(band[(size_t)i * a->ndiag + k], (double)dt[i + k - h], s);
        return s;
    }
};

/* sum[tile][64] of all warps, in their order. */
template <int N> __device__ inline void add_up(const double (*c)[2], double *sum)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < 2; j++) {
                    double *to = sum + i * 64 + (lane / 4) * 8 + lane % 4 * 2 + j;
                    *to = w == 0 ? c[i][j] : *to + c[i][j];
                }
        __syncthreads();
    }
}

/* Sums of a block that has `tiles` tiles of eight rows of S: bytes of shared memory. */
inline size_t pixel_shared(int tiles)
{
    const int rows = (tiles + 1) * 8, pairs = tiles * (tiles + 1) / 2;
    return ((size_t)WARPS * rows * ROW + (size_t)(pairs > tiles + 1 ? pairs : tiles + 1) * 64 +
            (size_t)tiles * 8 * (tiles * 8 + 1)) *
           sizeof(double);
}

/* Continuum functions at pixel i, 0 beyond the last; all loads are on their way together. */
template <int N> __device__ inline void basis_at(const arm &a, int np, int i, bool in, double *b)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        b[k] = in && k < np ? __ldg(a.basis + (size_t)k * a.stride + i) : 0;
}

/* By one warp, lane k with row k of a symmetric G (row[N], lower triangle): np columns of its factor L, and of the rows
 * below them what these leave; returns whether the first np rows are positive definite. *lndet of those; *over: 1/L_kk
 * of this lane. */
template <int N> __device__ inline bool factor(int np, double *row, double *lndet, double *over)
{
    const int lane = (int)threadIdx.x % 32;
    bool fine = true;
    *over = 1;
    *lndet = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j >= np)
            break;
        const double pivot = __shfl_sync(FULL, row[j], j & 31);
        fine = fine && pivot > 0 && isfinite(pivot);
        const double scale = fine ? rsqrt(pivot) : 1;
        *lndet += fine ? log(pivot) : 0;
        *over = lane == j ? scale : *over;
        row[j] *= scale;
#pragma unroll
        for (int k = j + 1; k < N; k++) {
            const double l = __shfl_sync(FULL, row[j], k & 31);
            row[k] = fma(-row[j], l, row[k]);
        }
    }
    return fine;
}

/* By one warp, lane k with row k of G = S'S (row[N], lower triangle; below np): its factor L and inverse[k][j] = L^-1,
 * N x `stride`, zero above the diagonal and beyond np; returns whether G is positive definite. *lndet of G. */
template <int N> __device__ inline bool invert_factor(int np, double *row, double *inverse, int stride, double *lndet)
{
    const int lane = (int)threadIdx.x % 32;
    double mine;
    const bool fine = factor<N>(np, row, lndet, &mine);
    /* column `lane` of the inverse; all lanes take part in the exchange */
    double w[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        w[k] = 0;
        if (k < np) {
            double s = k == lane ? 1 : 0;
#pragma unroll
            for (int j = 0; j < k; j++) {
                const double l = __shfl_sync(FULL, row[j], k & 31);
                s = fma(-l, w[j], s);
            }
            const double over = __shfl_sync(FULL, mine, k & 31);
            w[k] = k < lane ? 0 : s * over;
        }
        for (int c = lane; c < N; c += 32)
            inverse[k * stride + c] = c == lane && c < np ? w[k] : 0;
    }
    return fine;
}

/* S'S and S'D of the pixels first ... first + 31, those `step` farther, and so on: tiles c[pairs][2] of one warp, by
 * its buffer `stage`. */
template <int TILES>
__device__ inline void equations(const view &v, int np, int first, int step, const double *flux, const double *ie,
                                 double *stage, double (*c)[2])
{
    constexpr int N = TILES * 8;
    const arm &a = *v.a;
    const int lane = (int)threadIdx.x % 32;
    double b[N];
    basis_at<N>(a, np, first + lane, first + lane < a.n, b);
    for (int i0 = first; i0 < a.n; i0 += step) {
        const int i = i0 + lane;
        const bool in = i < a.n;
        const double e = in ? ie[i] : 0, f = in ? flux[i] : 0, te = in ? v.at(i) * e : 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            stage[k * ROW + lane] = k == np ? f * e : b[k] * te;
        basis_at<N>(a, np, i + step, i + step < a.n, b); /* on their way while these are summed */
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            double x[TILES];
#pragma unroll
            for (int p = 0; p < TILES; p++)
                x[p] = stage[(p * 8 + lane / 4) * ROW + 4 * k + lane % 4];
#pragma unroll
            for (int p = 0; p < TILES; p++)
#pragma unroll
                for (int q = 0; q <= p; q++)
                    mma(c[p * (p + 1) / 2 + q][0], c[p * (p + 1) / 2 + q][1], x[p], x[q]);
        }
        __syncwarp();
    }
}

/* Block: a piece with a template: result[item][1 + nfree + nfree^2]: objective, gradient, curvature (only the first
 * unless `mode` is DERIVATIVES), or with MODEL and CONTINUUM chi^2 over good pixels; HUGE_VAL where S'S is singular.
 * TILES: of eight rows, for the npoly + 1 of S and D. See model/model.c for the equations; with u = q e dT (q: the
 * continuum) and S = L Q', curvature is u'u - (Q'u)'(Q'u), Q'u = L^-1 (S'u), and what ln det(S'S) adds to the gradient
 * is |L^-1 S_i|^2 dT_i / T_i. */
template <int TILES>
__global__ void __launch_bounds__(32 * WARPS, TILES <= 2 ? 4 : 1)
    pixel_kernel(model m, int mode, const item *items, const piece *pieces, const double *flux, const double *ie,
                 const uint8_t *good, const double *band, const double2 *knots, const double *t, const float *dt,
                 double *result, double *models)
{
    constexpr int PAIRS = TILES * (TILES + 1) / 2, STAGE = (TILES + 1) * 8, N = TILES * 8;
    constexpr int SUMS = PAIRS > TILES + 1 ? PAIRS : TILES + 1;
    extern __shared__ __align__(16) double workspace[];
    __shared__ double coef[N], part[WARPS][1 + SPX_MAX_FIT], qu[SPX_RVFIT_MAX_POLY * SPX_MAX_FIT], lndet;
    __shared__ __align__(16) float lever_of[N][N];
    __shared__ int ok;
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int np = a.npoly, nf = m.nfree, n = a.n;
    const int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32;
    double *stage = workspace + (size_t)warp * STAGE * ROW, *sum = workspace + (size_t)WARPS * STAGE * ROW;
    double *inverse = sum + SUMS * 64; /* L^-1, [N][N + 1] */
    const view v = {&a,
                    mode,
                    spx_rv_lnshift(it.v) / a.dlnwave,
                    knots + (size_t)it.at * m.samples + a.sample0,
                    t + (size_t)it.at * m.pixels + a.pixel0,
                    band != nullptr ? band + d.band0 : nullptr};
    dt += (size_t)it.at * nf * m.pixels + a.pixel0;
    flux += d.pixel0;
    ie += d.pixel0;
    good += d.pixel0;

    /* S'S and S'D */
    for (int i = lane; i < STAGE * ROW; i += 32)
        stage[i] = 0;
    double c[PAIRS][2];
    for (int i = 0; i < PAIRS; i++)
        c[i][0] = c[i][1] = 0;
    __syncwarp();
    equations<TILES>(v, np, 32 * warp, 32 * WARPS, flux, ie, stage, c);
    add_up<PAIRS>(c, sum);
    if (warp == 0) {
        double row[N], ln;
        const int mine = min(lane, N - 1);
#pragma unroll
        for (int j = 0; j < N; j++) /* row `lane`, of which the lower triangle is there */
            row[j] =
                j <= mine && lane < np ? sum[(mine / 8 * (mine / 8 + 1) / 2 + j / 8) * 64 + mine % 8 * 8 + j % 8] : 0;
        const bool fine = invert_factor<N>(np, row, inverse, N + 1, &ln);
        __syncwarp();
        /* a = L'^-1 (L^-1 S'D) */
        double y = 0, x = 0;
        for (int j = 0; j < np && lane < np; j++)
            y = fma(inverse[lane * (N + 1) + j], sum[(np / 8 * (np / 8 + 1) / 2 + j / 8) * 64 + np % 8 * 8 + j % 8], y);
        for (int k = 0; k < np; k++)
            x = fma(inverse[k * (N + 1) + mine], __shfl_sync(FULL, y, k), x);
        for (int k = lane; k < N; k += 32)
            coef[k] = k < np ? x : 0;
        if (lane == 0) {
            lndet = ln;
            ok = fine;
        }
    }
    __syncthreads();
    for (int i = tid; i < N * N && mode == DERIVATIVES; i += 32 * WARPS)
        lever_of[i / N][i % N] = (float)inverse[i / N * (N + 1) + i % N];
    __syncthreads();

    const int width = mode == DERIVATIVES ? 1 + nf + nf * nf : 1;
    double *out = result + (size_t)blockIdx.x * width, *model = models + d.pixel0;
    if (!ok) {
        for (int i = tid; i < width; i += 32 * WARPS)
            out[i] = i == 0 ? HUGE_VAL : 0;
        for (int i = tid; i < n && mode == MODEL; i += 32 * WARPS)
            model[i] = 0;
        return;
    }

    /* residuals; S'u and u'u; the gradient a thread at a time */
    double g[TILES + 1][2], grad[SPX_MAX_FIT], chisq = 0;
    for (int i = 0; i <= TILES; i++)
        g[i][0] = g[i][1] = 0;
#pragma unroll
    for (int l = 0; l < SPX_MAX_FIT; l++)
        grad[l] = 0;
    double *right = stage + N * ROW;
    for (int i0 = 32 * warp; i0 < n; i0 += 32 * WARPS) {
        const int i = i0 + lane;
        const bool in = i < n;
        double b[N], slope[SPX_MAX_FIT];
        basis_at<N>(a, np, i, in, b);
        const double e = in ? ie[i] : 0, f = in ? flux[i] : 0, t0 = in ? v.at(i) : 0;
        if (mode == DERIVATIVES) {
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                slope[l] = in && l < nf ? v.slope(dt + (size_t)l * m.pixels, i) : 0;
        }
        double q = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            q = fma(coef[k], b[k], q);
        const double r = (f - q * t0) * e;
        if (mode == VALUE || mode == DERIVATIVES || (in && good[i]))
            chisq = fma(r, r, chisq);
        if (mode == MODEL && in)
            model[i] = q * t0;
        if (mode != DERIVATIVES)
            continue;
        const double qe = q * e, te = t0 * e;
        float s[N], lever = 0; /* |L^-1 S_i|^2 */
#pragma unroll
        for (int k = 0; k < N; k++) {
            b[k] *= te;
            s[k] = (float)b[k];
            stage[k * ROW + lane] = b[k];
        }
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            if (l < nf)
                right[l * ROW + lane] = qe * slope[l];
#pragma unroll
        for (int k = 0; k < N; k++)
            if (k < np) {
                float z = 0;
#pragma unroll
                for (int j = 0; j <= k; j++)
                    z = fmaf(lever_of[k][j], s[j], z);
                lever = fmaf(z, z, lever);
            }
        __syncwarp();
        const double w = (t0 != 0 ? (double)lever / t0 : 0) - r * qe;
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            grad[l] = fma(w, slope[l], grad[l]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const double y = right[lane / 4 * ROW + 4 * k + lane % 4];
#pragma unroll
            for (int p = 0; p < TILES; p++)
                mma(g[p][0], g[p][1], stage[(p * 8 + lane / 4) * ROW + 4 * k + lane % 4], y);
            mma(g[TILES][0], g[TILES][1], y, y);
        }
        __syncwarp();
    }
    /* of the warp, then of all of them in their order */
#pragma unroll
    for (int o = 16; o > 0; o /= 2) {
        chisq += __shfl_xor_sync(FULL, chisq, o);
        if (mode == DERIVATIVES)
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                grad[l] += __shfl_xor_sync(FULL, grad[l], o);
    }
    if (lane == 0) {
        part[warp][0] = chisq;
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            part[warp][1 + l] = grad[l];
    }
    __syncthreads();
    if (tid == 0 || (tid <= nf && mode == DERIVATIVES)) {
        double s = 0;
        for (int i = 0; i < WARPS; i++)
            s += part[i][tid];
        if (tid > 0)
            out[tid] = 2 * s;
        else
            out[0] = mode == VALUE || mode == DERIVATIVES ? s + lndet + a.lndet + d.sum_lne2 : s;
    }
    if (mode != DERIVATIVES)
        return;
    add_up<TILES + 1>(g, sum);
    for (int i = tid; i < np * nf; i += 32 * WARPS) { /* Q'u */
        const int k = i / nf, l = i % nf;
        double s = 0;
        for (int j = 0; j <= k; j++)
            s = fma(inverse[k * (N + 1) + j], sum[j / 8 * 64 + j % 8 * 8 + l], s);
        qu[i] = s;
    }
    __syncthreads();
    for (int i = tid; i < nf * nf; i += 32 * WARPS) {
        double s = sum[TILES * 64 + i / nf * 8 + i % nf];
        for (int k = 0; k < np; k++)
            s = fma(-qu[k * nf + i / nf], qu[k * nf + i % nf], s);
        out[1 + nf + i] = 2 * s;
    }
}

} // namespace rv

#endif
