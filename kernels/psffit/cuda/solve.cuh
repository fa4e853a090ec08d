/* Provides Cholesky's factor L of the damped matrix of a bundle, its step, and the covariance of the result: steps of
 * solve() and inform() (psffit/passes.c).
 *
 * A matrix has its lower triangle by columns, a[j ld + i], and below it rows that are divided by L^T from the right, as
 * the rows of L are: of a right-hand side g this makes (L^-1 g)', of the unit matrix L^-T, with which the inverse is
 * L^-T L^-1. Panels of PANEL columns are factored one after another by some blocks, which wait for each other: launches
 * for each panel would be many, and wait for those of other bundles. */
#ifndef SPX_PSFFIT_CUDA_SOLVE_CUH
#define SPX_PSFFIT_CUDA_SOLVE_CUH

#include <cooperative_groups.h>

#include "psffit/cuda/normal.cuh"

namespace spx_pf
{

/* Blocks that factor a matrix together: other bundles are at work beside them. */
constexpr int TOGETHER = 8;

/* A matrix that is factored: m columns, rows >= m of them. */
struct factored {
    int m, rows;
    int unit;         /* row below it with which m rows of the unit matrix begin; rows: there are none */
    int band, dense;  /* rows before `dense` have no element beyond this many from the diagonal; m and m: all may */
    double *a;        /* [m][rows] */
    double *diagonal; /* [panels][PANEL][PANEL] factors of the diagonal's blocks, by rows */
    int *bad;         /* not 0: it is not positive definite */
};

/* First column, a multiple of PANEL, in which the rows of a panel have elements. */
__device__ inline int first_column(const factored &f, int j0)
{
    return j0 + PANEL > f.dense ? 0 : max(0, j0 - f.band) / PANEL * PANEL;
}

/* Priors of a matrix h[n][n] of nt columns a fibre, upper triangle: weight[nt] prior[nf][nf] of the traces, and add[n]
 * on the diagonal, which goes to out[n]. */
__global__ void __launch_bounds__(THREADS) prior_kernel(const __grid_constant__ problem p, const double *prior,
                                                        const double *weight, const double *add, double *h, double *out)
{
    const size_t r = (size_t)blockIdx.x * THREADS + threadIdx.x, n = (size_t)p.n, nt = 2 * (size_t)p.ntr;
    if (r >= n)
        return;
    for (size_t j = r / nt; j < (size_t)p.nf && r < p.shift0; j++)
        h[r * n + j * nt + r % nt] += weight[r % nt] * prior[r / nt * (size_t)p.nf + j];
    h[r * n + r] += add[r];
    out[r] = h[r * n + r];
}

/* The shape's parameters of a term, and those that each goes with (spx_pf_turned). */
struct mates {
    size_t nq, side;
    const int *of; /* [nq][side] */
};

/* Adds add[ns][side] to the elements of h[columns][columns], upper triangle, of parameters from `first` on and their
 * mates. */
__global__ void __launch_bounds__(THREADS)
    mates_kernel(size_t first, size_t ns, size_t columns, mates m, const double *add, double *h)
{
    const size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x, q = k % m.nq;
    if (k >= ns)
        return;
    for (size_t i = 0; i < m.side; i++) {
        const int mate = m.of[q * m.side + i];
        if (mate >= (int)q)
            h[(first + k) * columns + first + k - q + (size_t)mate] += add[k * m.side + i];
    }
}

/* The columns at[m] of h[n][n], with their diagonal times 1 + damping, and below them the right-hand side g[n] (NULL:
 * the unit matrix). *f.bad is 0 then. */
__global__ void __launch_bounds__(THREADS)
    damped_kernel(factored f, size_t n, const double *h, const int *at, double damping, const double *g)
{
    const int j = (int)blockIdx.x;
    if (j == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        *f.bad = 0;
    for (int i = j + (int)(blockIdx.y * THREADS + threadIdx.x); i < f.rows; i += (int)gridDim.y * THREADS) {
        double v;
        if (i >= f.m)
            v = g != nullptr ? g[at[j]] : i - f.m == j;
        else
            v = h[(size_t)at[j] * n + (size_t)at[i]] * (i == j ? 1 + damping : 1);
        f.a[(size_t)j * (size_t)f.rows + (size_t)i] = v;
    }
}

/* Row i of a panel from column j0 on, below the diagonal's block l. */
__device__ inline void panel_row(const factored &f, int j0, const double (*l)[PANEL + 1], int i)
{
    const int w = f.m - j0 < PANEL ? f.m - j0 : PANEL;
    double *row = f.a + (size_t)j0 * (size_t)f.rows + (size_t)i, v[PANEL];
#pragma unroll
    for (int k = 0; k < PANEL; k++)
        v[k] = k < w ? row[(size_t)k * (size_t)f.rows] : 0;
    solve_row(l, v);
#pragma unroll
    for (int k = 0; k < PANEL; k++)
        if (k < w)
            row[(size_t)k * (size_t)f.rows] = v[k];
}

/* L'^-1 of the row below the square, out[m], by the block that calls it. */
__device__ inline void back_by_block(const factored &f, double *out)
{
    constexpr int MANY = 8;       /* columns that a warp has on their way */
    extern __shared__ double x[]; /* [m + PANEL] */
    const int me = (int)threadIdx.x, lane = me % WARP, rows = f.rows;
    for (int j = me; j < f.m + PANEL; j += FACTOR_THREADS)
        x[j] = j < f.m ? f.a[(size_t)j * (size_t)rows + (size_t)f.m] : 0;
    for (int j0 = (f.m - 1) / PANEL * PANEL; j0 >= 0; j0 -= PANEL) {
        __syncthreads();
        if (me < WARP) {
            const double *l = f.diagonal + (size_t)j0 * PANEL;
            double v = x[j0 + lane];
            for (int j = PANEL - 1; j >= 0; j--) {
                const double at = __shfl_sync(FULL, v, j) * l[j * PANEL + j];
                v = lane == j ? at : lane < j ? fma(-l[j * PANEL + lane], at, v) : v;
            }
            x[j0 + lane] = v;
        }
        __syncthreads();
        const int i = j0 + lane;
        const double at = x[i];
        for (int k0 = first_column(f, j0) + me / WARP * MANY; k0 < j0; k0 += FACTOR_WARPS * MANY) {
            double sum[MANY];
#pragma unroll
            for (int k = 0; k < MANY; k++)
                sum[k] = i < f.m && k0 + k < j0 ? f.a[(size_t)(k0 + k) * (size_t)rows + (size_t)i] * at : 0.0;
#pragma unroll
            for (int k = 0; k < MANY; k++)
                sum[k] = spx::warp_sum(sum[k]);
#pragma unroll
            for (int k = 0; k < MANY; k++)
                if (lane == k && k0 + k < j0)
                    x[k0 + k] -= sum[k];
        }
    }
    __syncthreads();
    for (int j = me; j < f.m; j += FACTOR_THREADS)
        out[j] = x[j];
}

/* Sums of products of rows r0 ... r0 + 15 with the PANEL rows from j0 on, over columns k0 ... k1 - 1 (both multiples
 * of 4), by a warp: rows r0 + lane/4 and + 8, columns 8 q + 2 (lane % 4) and + 1. Rows beyond the matrix are those of
 * the last one. */
struct panel_sum {
    static constexpr int HALF = 8, ROWS = 2 * HALF, PARTS = PANEL / HALF;
    double d[PARTS][4];
    __device__ panel_sum(const factored &f, int r0, int j0, int k0, int k1)
    {
        const int lane = (int)threadIdx.x % WARP, last = f.rows - 1;
        const int r = min(r0 + lane / 4, last), below = min(r0 + HALF + lane / 4, last);
        int c[PARTS];
#pragma unroll
        for (int q = 0; q < PARTS; q++) {
            c[q] = min(j0 + q * HALF + lane / 4, last);
            for (double &v : d[q])
                v = 0;
        }
#pragma unroll 4
        for (int k = k0 + lane % 4; k < k1; k += 4) {
            const double *column = f.a + (size_t)k * (size_t)f.rows, a0 = column[r], a1 = column[below];
#pragma unroll
            for (int q = 0; q < PARTS; q++)
                spx::multiply_add(d[q], a0, a1, column[c[q]]);
        }
    }
    /* g(row, column of the panel, value) of all of them, rows from 0 */
    template <typename G> __device__ void each(G g) const
    {
        const int lane = (int)threadIdx.x % WARP;
#pragma unroll
        for (int q = 0; q < PARTS; q++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                g(lane / 4 + e / 2 * HALF, q * HALF + lane % 4 * 2 + e % 2, d[q][e]);
    }
};

/* Takes the columns before a panel off rows r0 ... r0 + 15 of it, those before `end`, by a warp. Of rows of the unit
 * matrix the columns before their own are 0. */
__device__ inline void update_rows(const factored &f, int j0, int r0, int end)
{
    const int w = min(f.m - j0, PANEL), own = r0 >= f.unit && r0 + panel_sum::ROWS <= f.unit + f.m ? r0 - f.unit : 0;
    if (own >= j0)
        return;
    panel_sum(f, r0, j0, max(own / 4 * 4, first_column(f, j0)), j0).each([&](int i, int j, double v) {
        if (r0 + i < end && j < w)
            f.a[(size_t)(j0 + j) * (size_t)f.rows + (size_t)(r0 + i)] -= v;
    });
}

/* Factors a matrix by all blocks of the grid, which run at one time: each panel takes off those before it. All make the
 * factor of the diagonal's block, of which the warps sum a half of the rows and a quarter of the columns before; rows
 * below it are divided among blocks, 16 a warp. */
__device__ inline void factor_together(const factored &f)
{
    constexpr int QUARTERS = FACTOR_WARPS / 2;
    __shared__ double l[PANEL][PANEL + 1], part[QUARTERS][PANEL][PANEL + 1];
    const int me = (int)threadIdx.x, warp = me / WARP, lane = me % WARP;
    for (int j0 = 0; j0 < f.m; j0 += PANEL) {
        const int w = min(f.m - j0, PANEL), below = j0 + w, first = first_column(f, j0);
        /* strips of rows within the band, and of those that are dense */
        const int end = min(f.dense, below + f.band), dense = max(f.dense, below);
        const int near = (max(end - below, 0) + panel_sum::ROWS - 1) / panel_sum::ROWS;
        const int strips = near + (f.rows - dense + panel_sum::ROWS - 1) / panel_sum::ROWS;
        const auto row_of = [&](int s) {
            return s < near ? below + s * panel_sum::ROWS : dense + (s - near) * panel_sum::ROWS;
        };
        const int half = warp / QUARTERS * panel_sum::ROWS, quarter = warp % QUARTERS;
        const int each = (j0 - first) / QUARTERS;
        panel_sum(f, j0 + half, j0, first + each * quarter, first + each * (quarter + 1))
            .each([&](int i, int j, double v) { part[quarter][half + i][j] = v; });
        __syncthreads();
        if (warp == 0) {
            double v[PANEL];
#pragma unroll
            for (int k = 0; k < PANEL; k++) {
                v[k] = lane < w && k <= lane ? f.a[(size_t)(j0 + k) * (size_t)f.rows + (size_t)(j0 + lane)] : k == lane;
                for (int q = 0; q < QUARTERS && lane < w && k <= lane; q++)
                    v[k] -= part[q][lane][k];
            }
            if (!factor_block(v, l) && lane == 0 && blockIdx.x == 0)
                atomicOr(f.bad, 1);
        }
        for (int s = (int)blockIdx.x + (warp - 1) * (int)gridDim.x; warp > 0 && s < strips;
             s += (FACTOR_WARPS - 1) * (int)gridDim.x)
            update_rows(f, j0, row_of(s), s < near ? end : f.rows);
        __syncthreads();
        for (int e = me; e < PANEL * PANEL && blockIdx.x == 0; e += FACTOR_THREADS)
            f.diagonal[(size_t)j0 * PANEL + (size_t)e] = l[e / PANEL][e % PANEL];
        for (int e = me; e / panel_sum::ROWS * (int)gridDim.x + (int)blockIdx.x < strips; e += FACTOR_THREADS) {
            const int s = e / panel_sum::ROWS * (int)gridDim.x + (int)blockIdx.x;
            const int i = row_of(s) + e % panel_sum::ROWS;
            if (i < (s < near ? end : f.rows) && !(i >= f.unit && i < f.unit + f.m && i - f.unit >= below))
                panel_row(f, j0, l, i);
        }
        cooperative_groups::this_grid().sync();
    }
}

/* Factors a matrix, and, where out is not NULL, solves for the row below it, out[m]. */
__global__ void __launch_bounds__(FACTOR_THREADS) whole_kernel(factored f, double *out)
{
    factor_together(f);
    if (blockIdx.x == 0 && out != nullptr)
        back_by_block(f, out);
}

/* ---- priors of the shape by their evidence (psffit/learn.c) ---- */

/* Columns at[m] of h[n][n] as those of a matrix of f.m columns and m rows, and below them the row g[at]. */
__global__ void __launch_bounds__(THREADS)
    part_kernel(factored f, size_t n, const double *h, const int *at, const double *g)
{
    const int j = (int)blockIdx.x, m = f.rows - 1;
    for (int i = j + (int)(blockIdx.y * THREADS + threadIdx.x); i < f.rows; i += (int)gridDim.y * THREADS)
        f.a[(size_t)j * (size_t)f.rows + (size_t)i] = i == m ? g[at[j]] : h[(size_t)at[j] * n + (size_t)at[i]];
}

/* The rest of it: s[ns + 1][ns + 1], upper triangle, the last column g; was[ns] is taken off the diagonal. A block a
 * row. */
__global__ void __launch_bounds__(THREADS)
    rest_kernel(size_t n, int ns, const double *h, const int *at, const double *g, const double *was, double *s)
{
    const int k = (int)blockIdx.x;
    for (int l = k + (int)threadIdx.x; l <= ns; l += THREADS)
        s[(size_t)k * (size_t)(ns + 1) + (size_t)l] =
            k == ns   ? 0
            : l == ns ? g[at[k]]
                      : h[(size_t)at[k] * n + (size_t)at[l]] - (l == k ? was[k] : 0);
}

/* Row k of back[nq][side] times v[ns]. */
__device__ inline double turned_row(const mates &m, const double *back, size_t k, const double *v)
{
    const size_t q = k % m.nq;
    double sum = 0;
    for (size_t i = 0; i < m.side; i++) {
        const int mate = m.of[q * m.side + i];
        if (mate >= 0)
            sum += back[q * m.side + i] * v[k - q + (size_t)mate];
    }
    return sum;
}

/* s[ns + 1][ns + 1] of rest_kernel(), of parameters, to coefficients (turn() of learn.c). First its rows, by columns,
 * and the last column: out[ns][ns + 1], whole. A block a row. */
__global__ void __launch_bounds__(THREADS)
    turn_rows_kernel(int ns, mates m, const double *back, const double *s, double *out)
{
    const size_t stride = (size_t)ns + 1, k = blockIdx.x, q = k % m.nq;
    for (size_t l = threadIdx.x; l < stride; l += THREADS) {
        double sum = 0;
        for (size_t i = 0; i < m.side; i++) {
            const int mate = m.of[q * m.side + i];
            const size_t r = k - q + (size_t)(mate < 0 ? 0 : mate);
            if (mate >= 0)
                sum += back[q * m.side + i] * (r < l ? s[r * stride + l] : s[l * stride + r]);
        }
        out[k * stride + l] = sum;
    }
}

/* Then its columns: s, upper triangle and last column. A block a row. */
__global__ void __launch_bounds__(THREADS)
    turn_columns_kernel(int ns, mates m, const double *back, const double *rows, double *s)
{
    const size_t stride = (size_t)ns + 1, k = blockIdx.x;
    for (size_t l = k + threadIdx.x; l < stride; l += THREADS)
        s[k * stride + l] = l + 1 == stride ? rows[k * stride + l] : turned_row(m, back, l, rows + k * stride);
}

/* Rounds of spx_pf_learn() by blocks that run at one time: s[ns + 1][ns + 1] of turn_columns_kernel(); z[ns]
 * coefficients from their priors' centres, and precision[ns] of these; f has 2 ns + 1 rows, of ns columns. Below the
 * matrix the unit matrix becomes L'^-1, and the right-hand side (L^-1 r)'. r[ns], variance[ns], square[nclass]: room.
 */
__global__ void __launch_bounds__(FACTOR_THREADS)
    learn_kernel(factored f, const double *s, const int *of, int nclass, int rounds, double *z, double *r,
                 double *variance, double *square, double *precision)
{
    const cooperative_groups::grid_group all = cooperative_groups::this_grid();
    const int ns = f.m, blocks = (int)gridDim.x, each = (ns + blocks - 1) / blocks;
    const int k0 = (int)blockIdx.x * each, k1 = min(ns, k0 + each), me = (int)threadIdx.x; /* parameters of a block */
    const size_t rows = (size_t)f.rows, stride = (size_t)(ns + 1);
    for (int k = k0 + me; k < k1; k += FACTOR_THREADS) {
        double sum = s[(size_t)k * stride + (size_t)ns];
        for (int l = 0; l < ns; l++)
            sum += s[(size_t)min(k, l) * stride + (size_t)max(k, l)] * z[l];
        r[k] = sum;
    }
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        for (int j = k0 + me / WARP; j < k1; j += FACTOR_WARPS)
            for (int i = j + me % WARP; i < f.rows; i += WARP)
                f.a[(size_t)j * rows + (size_t)i] =
                    i < ns       ? s[(size_t)j * stride + (size_t)i] + (i == j ? precision[j] : 0)
                    : i < 2 * ns ? i - ns == j
                                 : r[j];
        all.sync();
        factor_together(f);
        for (int k = k0 + me; k < k1; k += FACTOR_THREADS) {
            double sum = 0, v = 0;
#pragma unroll 4
            for (int j = k; j < ns; j++) {
                const double *column = f.a + (size_t)j * rows, by = column[ns + k];
                sum = fma(by, by, sum);
                v = fma(by, column[2 * ns], v);
            }
            variance[k] = sum;
            z[k] = v;
        }
        all.sync();
        for (int c = (int)blockIdx.x + me * blocks; c < nclass; c += FACTOR_THREADS * blocks)
            square[c] = spx_pf_square_of_class((size_t)ns, of, c, z, precision, variance);
        all.sync();
        for (int k = k0 + me; k < k1; k += FACTOR_THREADS)
            if (of[k] >= 0)
                precision[k] = 1 / square[of[k]];
        __syncthreads();
    }
}

} // namespace spx_pf

#endif
