/* Sums over the pixels of a piece, on CUDA devices: the objective, its derivatives, models. */
#ifndef SPX_RVFIT_CUDA_PIXELS_CUH
#define SPX_RVFIT_CUDA_PIXELS_CUH

namespace rv
{

using spx::multiply_add;

enum {
    WARPS = 4, /* of a block that computes values, an item each */
    ROW = 36   /* stride of its staged rows: 32 pixels, and no bank conflicts */
};

enum { VALUE = 0, DERIVATIVES = 1, MODEL = 2, CONTINUUM = 3 };

/* What a piece's pixels see of the template. */
struct view {
    arm a; /* in registers */
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
        const int k = (int)spx_rv_spline_weights(a.place[i] + shift, (size_t)a.nt, u, d);
        const double2 p = knots[k], q = knots[k + 1];
        return fma(u[0], p.x, fma(u[1], q.x, fma(u[2], p.y, u[3] * q.y)));
    }
    /* Of pixel i, that of a lane in a chunk of 32 or the last one; by all lanes of a warp. With a resolution matrix
     * each value of the template is computed once and handed to the rows that need it; the band is 0 beyond the ends.
     */
    __device__ double at(int chunk, int i) const
    {
        if (band == nullptr)
            return raw(i);
        const int h = a.ndiag / 2, lane = (int)threadIdx.x % 32, first = 32 * chunk - h + lane;
        double s = 0;
        if (a.ndiag > 32) {
            for (int k = max(h - i, 0); k < min(a.ndiag, a.n - i + h); k++)
                s = fma(band[(size_t)k * a.n + i], raw(i + k - h), s);
            return s;
        }
        const double near = raw(min(max(first, 0), a.n - 1)), far = lane < 2 * h ? raw(min(first + 32, a.n - 1)) : 0;
        for (int k = 0; k < a.ndiag; k++) {
            const double x = __shfl_sync(0xffffffffu, near, lane + k), y = __shfl_sync(0xffffffffu, far, lane + k);
            s = fma(band[(size_t)k * a.n + i], lane + k < 32 ? x : y, s);
        }
        return s;
    }
};

/* Parts of the pixels whose sums are added in their order, and warps of a block that have some of them each. Where the
 * functions are few, their equations, which are one warp's, take as long as the pixels: with one warp a block, others
 * work meanwhile. */
enum { PARTS = 4 };
__host__ __device__ constexpr int pixel_warps(int tiles)
{
    return tiles <= 2 ? 1 : PARTS;
}

/* Shared memory of a block that sums over pixels with `tiles` tiles of eight rows for the functions of a span and the
 * data, and np functions with a band of m + 1 diagonals in all: numbers of a warp, and bytes of a block. */
__host__ __device__ inline int stage_size(int tiles)
{
    return (tiles + 1) * 8 * ROW;
}

/* S'S, S'D, D'D of a warp, or S'u and u'u. */
__host__ __device__ inline int sums_size(int np, int m)
{
    const int equations = np * (m + 1) + np + 1, curvature = (np + 8) * 8;
    return equations > curvature ? equations : curvature;
}

/* Sums of parts that a block of `warps` has at a time: one warp adds those of a part to those before. */
__host__ __device__ constexpr int parts_kept(int warps)
{
    return warps == 1 ? 2 : PARTS;
}

/* Stride of rows of m + 1 levers, which are read four at a time. */
__host__ __device__ constexpr int lever_row(int m)
{
    return m / 4 * 4 + 4;
}

inline size_t pixel_shared(int tiles, int warps, int np, int m)
{
    const int rows = np + 8 * tiles;
    return ((size_t)warps * stage_size(tiles) + (size_t)parts_kept(warps) * sums_size(np, m) + (size_t)(m + 1) * np +
            rows + 1) *
               sizeof(double) +
           (size_t)(lever_row(m) * rows) * sizeof(float);
}

/* Chunks of 32 pixels of a part: [begin, end), side by side, so that it has few spans. */
__device__ inline int2 chunks_of(const arm &a, int part, int parts)
{
    const int n = (a.n + 31) / 32;
    return make_int2(n * part / parts, n * (part + 1) / parts);
}

/* Data of a lane's pixel of a chunk; of the last one beyond those that there are, where `e` has to be taken as 0.
 * Nothing is done with what is loaded, so that a warp can ask for the next chunk's before it uses this one's. SPLINE:
 * the template is looked up in knots, whose place is then to be known before, for a value without a resolution matrix;
 * else it is v.at(). */
template <bool SPLINE> struct pixel {
    double e, f, t; /* t: the template, or where it is between the knots p and q */
    double2 p, q;

    __device__ static double place(const view &v, int chunk)
    {
        return SPLINE ? v.a.place[min(32 * chunk + (int)threadIdx.x % 32, v.a.n - 1)] : 0;
    }
    __device__ void load(const view &v, const double *flux, const double *ie, int chunk, double place)
    {
        const int i = min(32 * chunk + (int)threadIdx.x % 32, v.a.n - 1);
        e = ie[i];
        f = flux[i];
        if (SPLINE) {
            const double x = place + v.shift, last = v.a.nt - 1, at = x > 0 ? (x < last ? x : last) : 0;
            const int k = min((int)at, v.a.nt - 2);
            p = v.knots[k];
            q = v.knots[k + 1];
            t = at - k;
        } else {
            t = v.at(chunk, i);
        }
    }
    __device__ double flux_of_template() const
    {
        const double a = 1 - t;
        return SPLINE ? fma(a, p.x, fma(t, q.x, fma(a * (a * a - 1), p.y, t * (t * t - 1) * q.y))) : t;
    }
};

/* The functions of a chunk's span at the pixel of a lane; beyond all functions, the last one. */
template <int FUNCTIONS> struct functions {
    int first;
    double b[FUNCTIONS];

    __device__ void load(const arm &a, int chunk)
    {
        const int i = min(32 * chunk + (int)threadIdx.x % 32, a.n - 1);
        first = a.first[chunk];
#pragma unroll
        for (int k = 0; k < FUNCTIONS; k++)
            b[k] = __ldg(a.basis + (size_t)min(first + k, a.npoly - 1) * a.stride + i);
    }
};

/* The same as products take them: of tile p, row lane/4 at pixel 4 k + lane%4; 1 in the row of the data. */
template <int TILES> struct fragments {
    int first;
    double2 b[TILES][4];

    __device__ void load(const arm &a, int chunk)
    {
        const double2 *from = a.fragments + (size_t)chunk * (TILES * 4 * 32) + threadIdx.x % 32;
        first = a.first[chunk];
#pragma unroll
        for (int p = 0; p < TILES; p++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                b[p][j] = __ldg(from + (p * 4 + j) * 32);
    }
    __device__ double at(int p, int k) const
    {
        return k % 2 == 0 ? b[p][k / 2].x : b[p][k / 2].y;
    }
};

/* Adds tiles c[pairs][2] of one warp, of a span whose functions begin with `first`, to S'S, gram[np][m+1] with element
 * (k + d, k) at [k][d], and to S'D and D'D, right[np + 1]. */
template <int TILES> __device__ inline void add_equations(const arm &a, int first, const double (*c)[2], double *gram)
{
    constexpr int LAST = 8 * TILES - 1; /* the row of the data */
    const int lane = (int)threadIdx.x % 32, np = a.npoly, m = a.basis_band;
    double *right = gram + np * (m + 1);
#pragma unroll
    for (int p = 0; p < TILES; p++)
#pragma unroll
        for (int q = 0; q <= p; q++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int row = 8 * p + lane / 4, column = 8 * q + lane % 4 * 2 + j;
                const double value = c[p * (p + 1) / 2 + q][j];
                if (row == LAST && column == LAST)
                    right[np] += value;
                else if (row == LAST && first + column < np)
                    right[first + column] += value;
                else if (row < LAST && row >= column && row - column <= m && first + row < np)
                    gram[(first + column) * (m + 1) + row - column] += value;
            }
}

/* S'S, S'D and D'D of chunks of 32 pixels, by one warp and its buffer stage[EQUATIONS]: gram[np][m+1], then
 * right[np + 1]. TILES: of eight rows, for the functions of a span and the data. */
enum { EQUATIONS = 2 * 64 };
template <int TILES, bool SPLINE>
__device__ inline void equations(const view &v, int2 chunks, const double *flux, const double *ie, double *stage,
                                 double *gram)
{
    constexpr int PAIRS = TILES * (TILES + 1) / 2;
    const arm &a = v.a;
    const int lane = (int)threadIdx.x % 32, size = a.npoly * (a.basis_band + 2) + 1;
    const int column = lane % 4, data = column + (lane / 4 == 7 ? 32 : 0); /* the last row of the last tile */
    double c[PAIRS][2];
    for (int i = lane; i < size; i += 32)
        gram[i] = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        c[i][0] = c[i][1] = 0;
    __syncwarp();
    pixel<SPLINE> next, here;
    fragments<TILES> next_rows, rows;
    double place = 0; /* of the next chunk's pixel */
    if (chunks.x < chunks.y) {
        next.load(v, flux, ie, chunks.x, next.place(v, chunks.x));
        next_rows.load(a, chunks.x);
        place = next.place(v, min(chunks.x + 1, chunks.y - 1));
    }
    for (int chunk = chunks.x; chunk < chunks.y; chunk++) {
        here = next;
        rows = next_rows;
        if (chunk + 1 < chunks.y) {
            next.load(v, flux, ie, chunk + 1, place);
            next_rows.load(a, chunk + 1);
            place = next.place(v, min(chunk + 2, chunks.y - 1));
        }
        const double e = 32 * chunk + lane < a.n ? here.e : 0;
        double *factor = stage + chunk % 2 * 64; /* of the functions, of the data: while others read the last chunk's */
        factor[lane] = here.flux_of_template() * e;
        factor[32 + lane] = here.f * e;
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            double x[TILES];
#pragma unroll
            for (int p = 0; p < TILES; p++)
                x[p] = rows.at(p, k) * factor[4 * k + (p + 1 < TILES ? column : data)];
#pragma unroll
            for (int p = 0; p < TILES; p++)
#pragma unroll
                for (int q = 0; q <= p; q++)
                    multiply_add(c[p * (p + 1) / 2 + q], x[p], x[q]);
        }
        if (chunk + 1 == chunks.y || next_rows.first != rows.first) {
            add_equations<TILES>(a, rows.first, c, gram);
#pragma unroll
            for (int k = 0; k < PAIRS; k++)
                c[k][0] = c[k][1] = 0;
        }
    }
    __syncwarp();
}

/* ---- the equations of functions of which four side by side overlap, as cubic splines do ----
 *
 * All lanes of a warp do the same, with what the next steps need in registers: each step waits for the one before, and
 * shared memory would make it wait several times. The first lane keeps what is found. The same numbers as those of
 * factor(), forward() and band_inverse() below, bit by bit. */
enum { CUBIC = 3 };

__device__ inline bool factor_cubic(int np, double *gram, double *right)
{
    constexpr int M = CUBIC;
    const bool keeps = threadIdx.x % 32 == 0;
    bool fine = true;
    double a[M + 1][M + 1], y[M + 1]; /* a[k][d]: element (j + k + d, j + k), for k + d <= M */
#pragma unroll
    for (int k = 0; k <= M; k++) {
#pragma unroll
        for (int d = 0; k + d <= M; d++)
            a[k][d] = k + d < np ? gram[k * (M + 1) + d] : 0;
        y[k] = k < np ? right[k] : 0;
    }
    for (int j = 0; j < np; j++) {
        const int row = j + 1 + M; /* comes next */
        double next[M + 1], next_y = row < np ? right[row] : 0;
#pragma unroll
        for (int k = 0; k <= M; k++)
            next[k] = row < np ? gram[(j + 1 + k) * (M + 1) + M - k] : 0;
        const double pivot = a[0][0];
        fine = fine && pivot > 0 && isfinite(pivot);
        const double over = fine ? 1 / pivot : 1;
#pragma unroll
        for (int i = 1; i <= M; i++) {
            const double l = -a[0][i] * over;
#pragma unroll
            for (int k = 1; k <= i; k++)
                a[k][i - k] = fma(l, a[0][k], a[k][i - k]);
            y[i] = fma(l, y[0], y[i]);
        }
        __syncwarp(); /* all lanes have read what is written now */
        if (keeps) {
            gram[j * (M + 1)] = over;
#pragma unroll
            for (int i = 1; i <= M; i++)
                gram[j * (M + 1) + i] = a[0][i] * over;
            right[j] = y[0];
        }
#pragma unroll
        for (int k = 0; k <= M; k++) {
#pragma unroll
            for (int d = 0; k + d < M; d++)
                a[k][d] = a[k + 1][d];
            a[k][M - k] = next[k];
            y[k] = k < M ? y[k + 1] : next_y;
        }
    }
    __syncwarp();
    return fine;
}

__device__ inline void band_inverse_cubic(int np, const double *factor, double *inverse, double *x)
{
    constexpr int M = CUBIC;
    const bool keeps = threadIdx.x % 32 == 0;
    double z[M][M] = {{0}}, after[M] = {0}; /* z[p][d]: element (j + 1 + p + d, j + 1 + p); x of those rows */
    for (int j = np - 1; j >= 0; j--) {
        double l[M + 1], s[M + 1], own[M + 1], at;
#pragma unroll
        for (int i = 0; i <= M; i++)
            l[i] = factor[j * (M + 1) + i];
        at = x[j] * l[0];
        own[0] = 0;
#pragma unroll
        for (int i = 1; i <= M; i++) {
            at = fma(-l[i], after[i - 1], at);
            s[i] = 0;
#pragma unroll
            for (int t = 1; t <= M; t++)
                s[i] = fma(-l[t], z[(i < t ? i : t) - 1][i < t ? t - i : i - t], s[i]);
            own[i] = -l[i] * s[i];
        }
        s[0] = l[0] + ((own[1] + own[2]) + (own[3] + own[0]));
        __syncwarp(); /* as above: x(j) */
        if (keeps) {
#pragma unroll
            for (int i = 0; i <= M; i++)
                inverse[j * (M + 1) + i] = s[i];
            x[j] = at;
        }
#pragma unroll
        for (int p = M - 1; p > 0; p--) {
#pragma unroll
            for (int d = 0; p + d < M; d++)
                z[p][d] = z[p - 1][d];
            after[p] = after[p - 1];
        }
        after[0] = at;
#pragma unroll
        for (int d = 0; d < M; d++)
            z[0][d] = s[d];
    }
    __syncwarp();
}

/* Of one thread. */
__device__ inline void forward_cubic(int np, const double *factor, double *x, int stride)
{
    constexpr int M = CUBIC;
    double before[M] = {0};
    for (int j = 0; j < np; j++) {
        double s = x[j * stride];
#pragma unroll
        for (int t = 1; t <= M; t++)
            s = fma(j >= t ? -factor[(j - t) * (M + 1) + t] : 0, before[t - 1], s);
        x[j * stride] = s;
#pragma unroll
        for (int t = M - 1; t > 0; t--)
            before[t] = before[t - 1];
        before[0] = s;
    }
}

/* ---- the same of any band ---- */

/* By one warp: S'S = L D L' in place, gram[np][m+1] with 1/D_j at [j][0] and L(j+d, j) at [j][d]; right[np] becomes
 * L^-1 right. Returns whether S'S is positive definite; *lndet of it. As spx_band_factor() and spx_band_solve(). */
__device__ inline bool factor(int np, int m, double *gram, double *right, double *lndet)
{
    const int lane = (int)threadIdx.x % 32;
    bool fine = true;
    if (m == CUBIC)
        fine = factor_cubic(np, gram, right);
    for (int j = 0; j < np && m != CUBIC; j++) {
        double *row = gram + j * (m + 1);
        const double pivot = row[0], y = right[j];
        const int ahead = min(m, np - 1 - j);
        fine = fine && pivot > 0 && isfinite(pivot);
        const double over = fine ? 1 / pivot : 1;
        for (int i = 1 + lane / 8; i <= ahead; i += 4) { /* what the rows below leave */
            const double l = -row[i] * over;
            for (int k = 1 + lane % 8; k <= i; k += 8)
                row[k * (m + 1) + i - k] = fma(l, row[k], row[k * (m + 1) + i - k]);
            if (lane % 8 == 0)
                right[j + i] = fma(l, y, right[j + i]);
        }
        __syncwarp();
        for (int i = lane; i <= ahead; i += 32)
            row[i] = i == 0 ? over : row[i] * over;
        __syncwarp();
    }
    double ln = 0;
    for (int j = lane; j < np; j += 32)
        ln -= log(gram[j * (m + 1)]);
    *lndet = spx::warp_sum(ln);
    return fine;
}

/* By one thread: x[np], a column of a matrix whose rows are `stride` apart, becomes L^-1 x. */
__device__ inline void forward(int np, int m, const double *factor, double *x, int stride)
{
    if (m == CUBIC)
        return forward_cubic(np, factor, x, stride);
    for (int j = 1; j < np; j++) {
        double s = x[j * stride];
        for (int t = 1; t <= min(m, j); t++)
            s = fma(-factor[(j - t) * (m + 1) + t], x[(j - t) * stride], s);
        x[j * stride] = s;
    }
}

/* By one warp, out of the factor of S'S: the band of (S'S)^-1, inverse[np][m+1], as spx_band_inverse(), and with it
 * x[np] becomes L'^-1 D^-1 x. The last lane has x, the first ones the diagonals. */
__device__ inline void band_inverse(int np, int m, const double *factor, double *inverse, double *x)
{
    const int lane = (int)threadIdx.x % 32;
    if (m == CUBIC)
        return band_inverse_cubic(np, factor, inverse, x);
    for (int j = np - 1; j >= 0; j--) {
        const double *l = factor + j * (m + 1);
        const int ahead = min(m, np - 1 - j);
        const bool has_x = lane == 31;
        double diagonal = 0;
        if (lane < ahead || has_x) {
            const int i = 1 + lane;
            double s = has_x ? x[j] * l[0] : 0;
            for (int t = 1; t <= ahead; t++)
                s = fma(-l[t], has_x ? x[j + t] : inverse[(j + min(i, t)) * (m + 1) + abs(t - i)], s);
            if (has_x) {
                x[j] = s;
            } else {
                inverse[j * (m + 1) + i] = s;
                diagonal = -l[i] * s;
            }
        }
        for (int o = 1; o < ahead && o < 32; o *= 2)
            diagonal += __shfl_xor_sync(FULL, diagonal, o);
        if (lane == 0)
            inverse[j * (m + 1)] = l[0] + diagonal;
        __syncwarp();
    }
}

/* Adds tiles g[TILES + 1][2] of one warp to S'u, su[np][8], and u'u, the eight rows after it. */
template <int TILES> __device__ inline void add_curvature(const arm &a, int first, const double (*g)[2], double *su)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p <= TILES; p++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int row = 8 * p + lane / 4, column = lane % 4 * 2 + j;
            if (p == TILES)
                su[(a.npoly + lane / 4) * 8 + column] += g[p][j];
            else if (first + row < a.npoly)
                su[(first + row) * 8 + column] += g[p][j];
        }
}

enum { RESOLVED = 128 /* pixels of a block */ };

inline size_t resolve_shared(int nfree)
{
    return (size_t)(RESOLVED + SPX_MAX_NDIAG - 1) * (sizeof(double) + (size_t)nfree * sizeof(float));
}

/* Block (item, RESOLVED pixels): what the resolution matrix of a piece makes of the template of point from[item.at] and
 * of its derivatives: those of point item.at. */
static __global__ void __launch_bounds__(RESOLVED)
    resolve_kernel(model m, const item *items, const int *from, const piece *pieces, const double *bands,
                   const double *t, const float *dt, double *resolved, float *resolved_dt)
{
    enum { WIDE = RESOLVED + SPX_MAX_NDIAG - 1 };
    extern __shared__ __align__(16) double workspace[];
    float *slopes = reinterpret_cast<float *>(workspace + WIDE);
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const arm &a = m.arms[d.arm];
    const int nf = m.nfree, n = a.n, nd = a.ndiag, begin = (int)blockIdx.y * RESOLVED, h = nd / 2,
              tid = (int)threadIdx.x;
    if (begin >= n)
        return;
    t += (size_t)from[it.at] * m.pixels + a.pixel0;
    dt += (size_t)from[it.at] * nf * m.pixels + a.pixel0;
    for (int q = tid; q < RESOLVED + nd - 1; q += RESOLVED) { /* beyond the ends the band is 0 */
        const int j = min(max(begin - h + q, 0), n - 1);
        workspace[q] = t[j];
        for (int l = 0; l < nf; l++)
            slopes[l * WIDE + q] = dt[(size_t)l * m.pixels + j];
    }
    __syncthreads();
    const int i = begin + tid;
    if (i >= n)
        return;
    const double *band = bands + d.band0 + i;
    double sum = 0, slope[SPX_MAX_FIT] = {0};
    for (int k = 0; k < nd; k++) {
        const double b = __ldg(band + (size_t)k * n);
        sum = fma(b, workspace[tid + k], sum);
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            if (l < nf)
                slope[l] = fma(b, (double)slopes[l * WIDE + tid + k], slope[l]);
    }
    resolved[(size_t)it.at * m.pixels + a.pixel0 + i] = sum;
#pragma unroll
    for (int l = 0; l < SPX_MAX_FIT; l++)
        if (l < nf)
            resolved_dt[((size_t)it.at * nf + l) * m.pixels + a.pixel0 + i] = (float)slope[l];
}

/* Block: a piece with a template: result[item][1 + nfree + nfree^2]: objective, gradient, curvature (only the first
 * unless `mode` is DERIVATIVES), or with MODEL and CONTINUUM chi^2 over good pixels; HUGE_VAL where S'S is singular.
 * See model/model.c for the equations: with u = q e dT (q: the continuum) and S'S = L D L', curvature is
 * u'u - (L^-1 S'u)' D^-1 (L^-1 S'u), and what ln det(S'S) adds to the gradient is S_i'(S'S)^-1 S_i dT_i / T_i, which
 * needs the inverse where functions overlap.
 *
 * TILES: of eight rows, for the functions of a span, that is of chunks of 32 pixels with the same first function, and
 * the data. Splines need one tile where dense functions need as many as there are functions. DERIVED: `mode` is
 * DERIVATIVES, of templates that resolve_kernel() has been at where there are resolution matrices. W: warps of a
 * block, on which no result depends. */
template <int TILES, bool DERIVED, int W>
__global__ void __launch_bounds__(32 * W, W > 1 && TILES > 2 ? 1 : (TILES == 1 ? 12 : 8) / W)
    pixel_kernel(model m, int any_mode, const item *items, const piece *pieces, const double *flux, const double *ie,
                 const uint8_t *good, const double *any_band, const double2 *knots, const double *t, const float *dt,
                 double *result, double *models)
{
    constexpr int FUNCTIONS = TILES * 8 - 1;
    const int mode = DERIVED ? (int)DERIVATIVES : any_mode;
    const double *band = DERIVED ? nullptr : any_band;
    extern __shared__ __align__(16) double workspace[];
    __shared__ double part[PARTS][1 + SPX_MAX_FIT], lndet;
    __shared__ int ok;
    const item &it = items[blockIdx.x];
    const piece &d = pieces[it.piece];
    const view v = {m.arms[d.arm],
                    mode,
                    spx_rv_lnshift(it.v) / m.arms[d.arm].dlnwave,
                    knots + (size_t)it.at * m.samples + m.arms[d.arm].sample0,
                    t + (size_t)it.at * m.pixels + m.arms[d.arm].pixel0,
                    band != nullptr ? band + d.band0 : nullptr};
    const arm &a = v.a;
    const int np = a.npoly, nb = a.basis_band + 1, nf = m.nfree, n = a.n;
    const int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, rows = np + 8 * TILES;
    const int size = sums_size(np, a.basis_band);
    double *stage = workspace + (size_t)warp * stage_size(TILES), *sums = workspace + W * stage_size(TILES);
    auto sums_of = [&](int p) { return sums + (size_t)(W > 1 ? p : min(p, 1)) * size; }; /* of a part */
    double *inverse = sums + (size_t)parts_kept(W) * size;                               /* [np][nb] */
    double *coef = inverse + np * nb;                                                    /* [rows], 0 beyond np */
    /* [rows][lever_row()] the inverse, 0 beyond it */
    const int row = lever_row(a.basis_band);
    float *lever_of = reinterpret_cast<float *>(coef + rows + (coef + rows - workspace) % 2);
    const double *factors = sums, *right = sums + np * nb;
    dt += (size_t)it.at * nf * m.pixels + a.pixel0;
    flux += d.pixel0;
    ie += d.pixel0;
    good += d.pixel0;

    /* adds the n first sums of part p to those before: in their order */
    auto add_part = [&](int p, int m) {
        for (int i = tid; i < m; i += 32 * W)
            sums[i] += sums_of(p)[i];
        __syncthreads();
    };
    for (int p = warp; p < PARTS; p += W) { /* S'S and S'D */
        equations<TILES, false>(v, chunks_of(a, p, PARTS), flux, ie, stage, sums_of(p));
        if (W == 1 && p > 0)
            add_part(p, np * nb + np);
    }
    __syncthreads();
    for (int p = 1; p < PARTS && W > 1; p++)
        add_part(p, np * nb + np);
    if (warp == 0) {
        double ln;
        const bool fine = factor(np, nb - 1, sums, sums + np * nb, &ln);
        if (lane == 0) {
            lndet = ln;
            ok = fine;
        }
    }
    __syncthreads();
    if (warp == 0)
        band_inverse(np, nb - 1, factors, inverse, sums + np * nb);
    __syncthreads();
    for (int i = tid; i < rows; i += 32 * W)
        coef[i] = i < np ? right[i] : 0;
    for (int i = tid; i < rows * row && DERIVED; i += 32 * W)
        lever_of[i] = i % row < nb && i / row + i % row < np ? (float)inverse[i / row * nb + i % row] : 0;
    /* the other parts' sums, and after it those of the first, are overwritten: the factor is needed once more */
    __syncthreads();
    for (int i = tid; i < np * nb && DERIVED; i += 32 * W)
        inverse[i] = factors[i];
    factors = inverse;

    const int width = DERIVED ? 1 + nf + nf * nf : 1;
    double *out = result + (size_t)blockIdx.x * width, *model = models + d.pixel0;
    if (!ok) {
        for (int i = tid; i < width; i += 32 * W)
            out[i] = i == 0 ? HUGE_VAL : 0;
        for (int i = tid; i < n && mode == MODEL; i += 32 * W)
            model[i] = 0;
        return;
    }
    __syncthreads();

    /* residuals; S'u and u'u; the gradient a thread at a time */
    double g[TILES + 1][2];
#pragma unroll
    for (int i = 0; i <= TILES; i++)
        g[i][0] = g[i][1] = 0;
    for (int i = lane; i < stage_size(TILES) && DERIVED; i += 32)
        stage[i] = 0;
    double *us = stage + 8 * TILES * ROW;
    pixel<false> next, here;
    functions<FUNCTIONS> next_functions, of_chunk;
    float slope[SPX_MAX_FIT], next_slope[SPX_MAX_FIT]; /* of no meaning from nf on */
    auto load = [&](int chunk) {
        const int i = min(32 * chunk + lane, n - 1);
        next.load(v, flux, ie, chunk, 0);
        next_functions.load(a, chunk);
        if (DERIVED) {
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                next_slope[l] = nf > 0 ? __ldg(dt + (size_t)min(l, nf - 1) * m.pixels + i) : 0;
        }
    };
    for (int p = warp; p < PARTS; p += W) {
        const int2 chunks = chunks_of(a, p, PARTS);
        double grad[SPX_MAX_FIT], chisq = 0, *su = sums_of(p);
#pragma unroll
        for (int l = 0; l < SPX_MAX_FIT; l++)
            grad[l] = 0;
        for (int i = lane; i < (np + 8) * 8 && DERIVED; i += 32)
            su[i] = 0;
        if (chunks.x < chunks.y)
            load(chunks.x);
        __syncwarp();
        for (int chunk = chunks.x; chunk < chunks.y; chunk++) {
            const int i = 32 * chunk + lane;
            const bool in = i < n;
            here = next;
            of_chunk = next_functions;
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                slope[l] = next_slope[l];
            if (chunk + 1 < chunks.y)
                load(chunk + 1);
            double *b = of_chunk.b;
            const int first = of_chunk.first;
            const double e = in ? here.e : 0, f = here.f, t0 = here.t;
            double q = 0;
#pragma unroll
            for (int k = 0; k < FUNCTIONS; k++)
                q = fma(coef[first + k], b[k], q);
            const double r = (f - q * t0) * e;
            if (mode == VALUE || DERIVED || (in && good[i]))
                chisq = fma(r, r, chisq);
            if (mode == MODEL && in)
                model[i] = q * t0;
            if (!DERIVED)
                continue;
            const double qe = q * e, te = t0 * e;
            float s[FUNCTIONS], lever = 0; /* S_i'(S'S)^-1 S_i */
#pragma unroll
            for (int k = 0; k < FUNCTIONS; k++) {
                b[k] *= te;
                s[k] = (float)b[k];
                stage[k * ROW + lane] = b[k];
            }
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                if (l < nf)
                    us[l * ROW + lane] = qe * (double)slope[l];
#pragma unroll
            for (int k = 0; k < FUNCTIONS; k++) {
                const float4 *z = reinterpret_cast<const float4 *>(lever_of + (first + k) * row);
                float sum = 0, own = 0;
#pragma unroll
                for (int g = 0; k + 4 * g < FUNCTIONS; g++)
                    if (4 * g < nb) {
                        const float4 four = z[g];
                        const float each[4] = {four.x, four.y, four.z, four.w};
                        if (g == 0)
                            own = four.x;
#pragma unroll
                        for (int l = g == 0; l < 4; l++)
                            if (k + 4 * g + l < FUNCTIONS)
                                sum = fmaf(each[l], s[k + 4 * g + l], sum);
                    }
                lever = fmaf(s[k], fmaf(own, s[k], 2 * sum), lever);
            }
            __syncwarp();
            const double w = (t0 != 0 ? (double)lever / t0 : 0) - r * qe;
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                grad[l] = fma(w, (double)slope[l], grad[l]);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const double y = us[lane / 4 * ROW + 4 * k + lane % 4];
#pragma unroll
                for (int i = 0; i < TILES; i++)
                    multiply_add(g[i], stage[(i * 8 + lane / 4) * ROW + 4 * k + lane % 4], y);
                multiply_add(g[TILES], y, y);
            }
            __syncwarp();
            if (chunk + 1 == chunks.y || next_functions.first != first) {
                add_curvature<TILES>(a, first, g, su);
#pragma unroll
                for (int k = 0; k <= TILES; k++)
                    g[k][0] = g[k][1] = 0;
            }
        }
#pragma unroll
        for (int o = 16; o > 0; o /= 2) {
            chisq += __shfl_xor_sync(FULL, chisq, o);
            if (DERIVED)
#pragma unroll
                for (int l = 0; l < SPX_MAX_FIT; l++)
                    grad[l] += __shfl_xor_sync(FULL, grad[l], o);
        }
        if (lane == 0) {
            part[p][0] = chisq;
#pragma unroll
            for (int l = 0; l < SPX_MAX_FIT; l++)
                part[p][1 + l] = grad[l];
        }
        if (W == 1 && p > 0 && DERIVED) {
            __syncwarp();
            add_part(p, (np + 8) * 8);
        }
    }
    __syncthreads();
    if (tid == 0 || (tid <= nf && DERIVED)) {
        double s = 0;
        for (int p = 0; p < PARTS; p++)
            s += part[p][tid];
        if (tid > 0)
            out[tid] = 2 * s;
        else
            out[0] = mode == VALUE || DERIVED ? s + lndet + a.lndet + d.sum_lne2 : s;
    }
    if constexpr (DERIVED) {
        for (int p = 1; p < PARTS && W > 1; p++)
            add_part(p, (np + 8) * 8);
        if (tid < nf) /* L^-1 S'u */
            forward(np, nb - 1, factors, sums + tid, 8);
        __syncthreads();
        for (int i = tid; i < nf * nf; i += 32 * W) {
            double s = sums[(np + i / nf) * 8 + i % nf];
            for (int k = 0; k < np; k++)
                s = fma(-sums[k * 8 + i / nf] * factors[k * nb], sums[k * 8 + i % nf], s);
            out[1 + nf + i] = 2 * s;
        }
    }
}

} // namespace rv

#endif
