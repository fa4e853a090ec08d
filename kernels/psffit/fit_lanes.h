/* Provides the inner loops of the normal equations (spx_pf_kernels), compiled for each instruction set: the file that
 * includes it defines SPX_KERNELS, and SPX_VL (simd/simd.h). Loops are plain, for the compiler to vectorise, but for
 * those over the few pixels of a spot. */
#include <stddef.h>
#include <string.h>

#include "psffit/fit.h"
#include "psffit/pixel_lanes.h"
#include "simd/simd.h"
#include "simd/simd_math.h"

enum { SIDE = 128, LOCAL = SPX_PF_MOST_LOCAL, ORDERS = SPX_PF_MOST_HERMITE + 3 };

#include "psffit/factor_lanes.h"

/* As spx_gauss_hermite(), lanes of edges side by side. */
static void lanes_hermite(int deg, int n, double d, double sigma, double *g)
{
    double at[ORDERS][SIDE + SPX_VL]; /* half the error function, and He_(m-1) phi, of each edge */
    vec lane;
    for (int k = 0; k < SPX_VL; k++)
        lane[k] = k;
    for (int k = 0; k <= n; k += SPX_VL) {
        const vec e = (lane + every(k - n / 2 - 0.5 - d)) / every(sigma);
        vec half, here, below = every(0.0);
        half_erf(e, &half, &here);
        here *= every(0.39894228040143267794);
        store(at[0] + k, half);
        for (int m = 1; m <= deg; m++) {
            store(at[m] + k, here);
            const vec above = e * here - every(m - 1) * below;
            below = here;
            here = above;
        }
    }
    for (int k = 0; k < n; k++)
        g[k] = at[0][k + 1] - at[0][k];
    for (int m = 1; m <= deg; m++)
#pragma omp simd
        for (int k = 0; k < n; k++)
            g[m * n + k] = at[m][k] - at[m][k + 1];
}

/* sum_i c_ij g_i(x) of each j, across[deg + 1][SIDE]; whole vectors, of which those beyond nx mean nothing. */
static inline void sum_across(const spx_pf_plan *p, const double *gx, const double *c, double *across)
{
    const int side = p->deg + 1;
    for (int k = 0; k < p->nx; k += SPX_VL)
        for (int j = 0; j < side; j++) {
            vec sum = every(0.0);
            for (int i = 0; i < side; i++)
                sum += every(c[i + side * j]) * load(gx + i * p->nx + k);
            store(across + j * SIDE + k, sum);
        }
}

/* sum_j g_j(y) across_j(x), negative pixels clipped, of a vector of pixels of a row. */
static inline vec pixels_of(const spx_pf_plan *p, const double *gy, const double *across, int y, int k)
{
    vec sum = every(0.0);
    for (int j = 0; j <= p->deg; j++)
        sum += every(gy[j * p->ny + y]) * load(across + j * SIDE + k);
    return positive_or_0(sum);
}

static void lanes_spot(const spx_pf_plan *p, const double *gx, const double *gy, const double *c, double *spot)
{
    double across[(SPX_PF_MOST_HERMITE + 1) * SIDE], row[SIDE];
    sum_across(p, gx, c, across);
    for (int y = 0; y < p->ny; y++) {
        for (int k = 0; k < p->nx; k += SPX_VL)
            store(row + k, pixels_of(p, gy, across, y, k));
        memcpy(spot + y * p->nx, row, (size_t)p->nx * sizeof *row);
    }
}

static void lanes_profile(const spx_pf_plan *p, const double *gx, const double *gy, const double *c, double *out)
{
    double across[(SPX_PF_MOST_HERMITE + 1) * SIDE], row[SIDE];
    sum_across(p, gx, c, across);
    for (int k = 0; k < p->nx; k += SPX_VL) {
        vec sum = every(0.0);
        for (int y = 0; y < p->ny; y++)
            sum += pixels_of(p, gy, across, y, k);
        store(row + k, sum);
    }
    memcpy(out, row, (size_t)p->nx * sizeof *row);
}

static double lanes_dot(int h, int w, const double *a, size_t astride, const double *b, size_t bstride)
{
    vec sum = every(0.0), lane;
    for (int k = 0; k < SPX_VL; k++)
        lane[k] = k;
    for (int r = 0; r < h; r++) {
        const double *pa = a + (size_t)r * astride, *pb = b + (size_t)r * bstride;
        int k = 0;
        for (; k + SPX_VL <= w; k += SPX_VL)
            sum += load(pa + k) * load(pb + k);
        if (k < w) /* lanes beyond the overlap are of other pixels */
            sum += choose(lane < every(w - k), load(pa + k) * load(pb + k), every(0.0));
    }
    return sum_lanes(sum);
}

static void lanes_weigh_spot(const spx_pf_at *at, int nx, const double *spot, const float *root, size_t width,
                             double *out)
{
    for (int r = at->y0; r < at->y1; r++)
#pragma omp simd
        for (int c = at->x0; c < at->x1; c++)
            out[r * nx + c] = root[r * (long)width + c] * spot[r * nx + c];
}

static void lanes_draw_spot(const spx_pf_at *at, int nx, const double *spot, double flux, size_t width, double *light)
{
    for (int r = at->y0; r < at->y1; r++)
#pragma omp simd
        for (int c = at->x0; c < at->x1; c++)
            light[r * (long)width + c] += flux * spot[r * nx + c];
}

static void lanes_add(size_t n, double by, const double *from, double *to)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        to[k] += by * from[k];
}

static void lanes_between(size_t n, const double *a, const double *b, double t, float *out)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        out[k] = (float)((1 - t) * a[k] + t * b[k]);
}

static void lanes_derive(const spx_pf_plan *p, int widths, const spx_pf_at *at, const double *gx, const double *gy,
                         const double *c, const double *spot, double flux, const float *root, long at_root,
                         size_t width, double *const stamp[SPX_PF_STAMPS], double *by_column)
{
    const int nx = p->nx, ny = p->ny, side = p->deg + 1, pad = (int)spx_pf_pad(p);
    double across[(SPX_PF_MOST_HERMITE + 1) * SIDE], right[(SPX_PF_MOST_HERMITE + 1) * SIDE];
    double wide[(SPX_PF_MOST_HERMITE + 1) * SIDE], row[4][SIDE];
    const vec over_x = every(1 / at->sigx);
    /* sum_i c_ij g_i, the same of d g_i / d X, and of d g_i / d sigma */
    for (int k = 0; k < nx; k += SPX_VL)
        for (int j = 0; j < side; j++) {
            vec a = every(0.0), b = every(0.0), w = every(0.0);
            for (int i = 0; i < side; i++) {
                const vec f = every(c[i + side * j]), g = load(gx + i * nx + k);
                a += f * g;
                b += f * load(gx + (i + 1) * nx + k);
                if (widths)
                    w += f * (load(gx + (i + 2) * nx + k) + every(i) * g);
            }
            store(across + j * SIDE + k, a);
            store(right + j * SIDE + k, b * over_x);
            store(wide + j * SIDE + k, w * over_x);
        }
    const int n = widths ? 4 : 2;
    for (int y = 0; y < ny; y++) {
        for (int q = 0; q < n; q++)
            memset(stamp[SPX_PF_BY_X + q] + y * nx, 0, (size_t)nx * sizeof(double));
        if (widths)
            memset(stamp[SPX_PF_LIT] + y * nx, 0, (size_t)nx * sizeof(double));
        if (y < at->y0 || y >= at->y1)
            continue;
        double g1[SPX_PF_MOST_HERMITE + 1], g2[SPX_PF_MOST_HERMITE + 1]; /* by Y and sigma */
        for (int j = 0; j < side; j++) {
            g1[j] = gy[(j + 1) * ny + y] / at->sigy;
            g2[j] = widths ? (gy[(j + 2) * ny + y] + j * gy[j * ny + y]) / at->sigy : 0;
        }
        for (int k = 0; k < nx; k += SPX_VL) {
            vec sum[4] = {every(0.0), every(0.0), every(0.0), every(0.0)};
            for (int j = 0; j < side; j++) {
                const vec g = every(gy[j * ny + y]), a = load(across + j * SIDE + k);
                sum[0] += g * load(right + j * SIDE + k);
                sum[1] += every(g1[j]) * a;
                if (widths) {
                    sum[2] += g * load(wide + j * SIDE + k);
                    sum[3] += every(g2[j]) * a;
                }
            }
            for (int q = 0; q < n; q++)
                store(row[q] + k, sum[q]);
        }
        const float *w = root + at_root + y * (long)width;
        double lit[SIDE];
        for (int x = at->x0; x < at->x1; x++) /* clipped: derivative 0 */
            lit[x] = spot[y * nx + x] > 0 ? w[x] * flux : 0;
        for (int q = 0; q < n; q++)
            for (int x = at->x0; x < at->x1; x++)
                stamp[SPX_PF_BY_X + q][y * nx + x] = lit[x] * row[q][x];
        if (widths)
            memcpy(stamp[SPX_PF_LIT] + y * nx + at->x0, lit + at->x0, (size_t)(at->x1 - at->x0) * sizeof *lit);
    }
    for (int x = 0; x < nx && widths; x++)
        for (int i = 0; i < pad; i++)
            by_column[x * pad + i] = i < side ? gx[i * nx + x] : 0;
}

/* As lanes_gradient(), by the place alone: of f root rest, t_j(x) = sum_y g_j(y) r(x, y), sum_j t_j(x) sum_i c_ij
 * g_i+1(x), and sum_j t_j+1(x) sum_i c_ij g_i(x). */
static void gradient_of_place(const spx_pf_plan *p, const spx_pf_at *at, const double *gx, const double *gy,
                              const double *c, const double *spot, double flux, const float *root, const double *rest,
                              long at_pixel, size_t width, double *out)
{
    const int nx = p->nx, ny = p->ny, side = p->deg + 1;
    double across[(SPX_PF_MOST_HERMITE + 1) * SIDE], right[(SPX_PF_MOST_HERMITE + 1) * SIDE], r[SIDE] = {0};
    double t[(SPX_PF_MOST_HERMITE + 2) * SIDE] = {0};
    sum_across(p, gx, c, across);
    sum_across(p, gx + nx, c, right);
    for (int y = at->y0; y < at->y1; y++) {
        const float *w = root + at_pixel + y * (long)width;
        const double *v = rest + at_pixel + y * (long)width;
        for (int x = at->x0; x < at->x1; x++) /* clipped: derivative 0 */
            r[x] = spot[y * nx + x] > 0 ? flux * w[x] * v[x] : 0;
        for (int j = 0; j <= side; j++) {
            const double g = gy[j * ny + y];
            double *to = t + j * SIDE;
#pragma omp simd
            for (int x = 0; x < nx; x++)
                to[x] += g * r[x];
        }
    }
    double by_x = 0, by_y = 0;
    for (int j = 0; j < side; j++)
#pragma omp simd reduction(+ : by_x, by_y)
        for (int x = 0; x < nx; x++) {
            by_x += t[j * SIDE + x] * right[j * SIDE + x];
            by_y += t[(j + 1) * SIDE + x] * across[j * SIDE + x];
        }
    out[0] = by_x / at->sigx;
    out[1] = by_y / at->sigy;
}

static void lanes_gradient(const spx_pf_plan *p, int active, const spx_pf_at *at, const double *gx, const double *gy,
                           const double *c, const double *spot, double flux, const float *root, const double *rest,
                           long at_pixel, size_t width, double *out)
{
    const int nx = p->nx, ny = p->ny, side = p->deg + 1, orders = p->norder;
    if (active == 0) {
        gradient_of_place(p, at, gx, gy, c, spot, flux, root, rest, at_pixel, width, out);
        return;
    }
    /* sum over rows first: t_j(x) = sum_y g_j(y) r(x, y), then m_ij = sum_x g_i(x) t_j(x), orders j side by side */
    enum { WIDE = (ORDERS + SPX_VL - 1) / SPX_VL };
    double of_row[SIDE][WIDE * SPX_VL], m[ORDERS][WIDE * SPX_VL], r[SIDE] = {0};
    vec t[SIDE][WIDE];
    const int wide = (orders + SPX_VL - 1) / SPX_VL;
    for (int x = 0; x < nx; x++)
        for (int v = 0; v < wide; v++)
            t[x][v] = every(0.0);
    for (int y = at->y0; y < at->y1; y++) {
        const float *w = root + at_pixel + y * (long)width;
        const double *of = rest + at_pixel + y * (long)width;
        for (int x = at->x0; x < at->x1; x++) /* clipped: derivative 0 */
            r[x] = spot[y * nx + x] > 0 ? flux * w[x] * of[x] : 0;
        for (int j = 0; j < wide * SPX_VL; j++)
            of_row[y][j] = j < orders ? gy[j * ny + y] : 0;
        for (int v = 0; v < wide; v++) {
            const vec g = load(of_row[y] + v * SPX_VL);
            for (int x = at->x0; x < at->x1; x++)
                t[x][v] += every(r[x]) * g;
        }
    }
    for (int i = 0; i < orders; i++)
        for (int v = 0; v < wide; v++) {
            vec sum = every(0.0);
            for (int x = at->x0; x < at->x1; x++)
                sum += every(gx[i * nx + x]) * t[x][v];
            store(m[i] + v * SPX_VL, sum);
        }
    /* d g_n / d X = g_{n+1} / sigma, d g_n / d sigma = (g_{n+2} + n g_n) / sigma */
    double X = 0, Y = 0, sx = 0, sy = 0;
    for (int j = 0; j < side; j++)
        for (int i = 0; i < side; i++) {
            const double f = c[i + side * j];
            X += f * m[i + 1][j];
            Y += f * m[i][j + 1];
            sx += f * (m[i + 2][j] + i * m[i][j]);
            sy += f * (m[i][j + 2] + j * m[i][j]);
        }
    out[0] = X / at->sigx;
    out[1] = Y / at->sigy;
    if (active > 0) {
        out[2] = sx / at->sigx;
        out[3] = sy / at->sigy;
    }
    for (int q = 2; q < active; q++)
        out[2 + q] = m[(q - 1) % side][(q - 1) / side];
}

static const spx_pf_kernels SPX_KERNELS = {lanes_hermite,
                                           lanes_spot,
                                           lanes_profile,
                                           lanes_between,
                                           lanes_dot,
                                           lanes_weigh_spot,
                                           lanes_draw_spot,
                                           lanes_derive,
                                           lanes_shapes,
                                           lanes_project,
                                           lanes_places,
                                           lanes_add,
                                           lanes_combine,
                                           lanes_gradient,
                                           pixels_misfit,
                                           pixels_weigh,
                                           pixels_weigh_clipped,
                                           pixels_squares,
                                           pixels_medians,
                                           pixels_moments,
                                           pixels_drift,
                                           pixels_ground};
