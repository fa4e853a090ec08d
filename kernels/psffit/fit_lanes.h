/* Provides the inner loops of the normal equations (spx_pf_kernels), compiled for each instruction set: the file that
 * includes it defines SPX_KERNELS. Loops are plain, for the compiler to vectorise. */
#include <stddef.h>

#include "psffit/fit.h"

enum { SIDE = 128, LOCAL = SPX_PF_MOST_LOCAL };

static void lanes_derive(const spx_pf_plan *p, int active, const spx_pf_at *at, const double *gx, const double *gy,
                         const double *c, const double *spot, double flux, const double *vterm, const float *root,
                         long at_root, size_t width, double *one, double *two, double *d, long at_d, size_t dwidth)
{
    const int nx = p->nx, ny = p->ny, na = p->na, side = p->deg + 1;
    double across[SIDE * (SPX_PF_MOST_HERMITE + 1)], right[SIDE * (SPX_PF_MOST_HERMITE + 1)];
    double wide[SIDE * (SPX_PF_MOST_HERMITE + 1)], column[SIDE * LOCAL], row[LOCAL], t[LOCAL];
    double vx[SIDE], vy[SIDE], sx[SIDE], sy[SIDE];
    /* sum_i c_ij g_i, the same of d g_i / d X, and of d g_i / d sigma */
    for (int j = 0; j < side; j++) {
        double *a = across + j * nx, *b = right + j * nx, *w = wide + j * nx;
        for (int x = 0; x < nx; x++)
            a[x] = b[x] = w[x] = 0;
        for (int i = 0; i < side; i++) {
            const double f = c[i + side * j], by = f / at->sigx;
            const double *g = gx + i * nx, *g1 = g + nx, *g2 = g1 + nx;
#pragma omp simd
            for (int x = 0; x < nx; x++) {
                a[x] += f * g[x];
                b[x] += by * g1[x];
                w[x] += by * (g2[x] + i * g[x]);
            }
        }
    }
    /* g_i(x) for each row of GH-i-j; those of the widths are put in their place pixel by pixel */
    for (int x = 0; x < nx && active > 2; x++)
        for (int q = 2; q < active; q++)
            column[x * active + q] = gx[(q - 1) % side * nx + x];
    for (int y = at->y0; y < at->y1; y++) {
        const float *w = root + at_root + y * (long)width;
        for (int x = 0; x < nx; x++)
            vx[x] = vy[x] = sx[x] = sy[x] = 0;
        for (int j = 0; j < side; j++) {
            const double g = gy[j * ny + y], g1 = gy[(j + 1) * ny + y] / at->sigy;
            const double g2 = (gy[(j + 2) * ny + y] + j * g) / at->sigy;
            const double *a = across + j * nx, *b = right + j * nx, *v = wide + j * nx;
#pragma omp simd
            for (int x = 0; x < nx; x++) {
                vx[x] += g * b[x];
                vy[x] += g1 * a[x];
                sx[x] += g * v[x];
                sy[x] += g2 * a[x];
            }
        }
        for (int q = 2; q < active; q++)
            row[q] = gy[(q - 1) / side * ny + y];
        for (int x = at->x0; x < at->x1; x++) {
            if (!(spot[y * nx + x] > 0)) /* clipped: derivative 0 */
                continue;
            const double f = w[x] * flux;
            one[y * nx + x] = f * vx[x];
            two[y * nx + x] = f * vy[x];
            if (active == 0 || f == 0)
                continue;
            double *to = d + (at_d + y * (long)dwidth + x) * (long)(na * active);
            const double *in = column + x * active;
            t[0] = f * sx[x];
            t[1] = f * sy[x];
#pragma omp simd
            for (int q = 2; q < active; q++)
                t[q] = f * in[q] * row[q];
            for (int a = 0; a < na; a++) {
                const double by = vterm[a];
#pragma omp simd
                for (int q = 0; q < active; q++)
                    to[a * active + q] += by * t[q];
            }
        }
    }
}

static void lanes_project(int h, int w, size_t n, const double *const v[3], int nx, const double *d, size_t dwidth,
                          double *out)
{
    /* 16 columns at a time, whose sums stay in registers */
    enum { BLOCK = 16 };
    for (size_t k = 0; k < n; k += BLOCK) {
        const size_t m = n - k < BLOCK ? n - k : BLOCK;
        double sum[3][BLOCK] = {{0}};
        if (m == BLOCK) {
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    const double *in = d + ((size_t)y * dwidth + (size_t)x) * n + k;
                    const double a = v[0][y * nx + x], b = v[1][y * nx + x], c = v[2][y * nx + x];
#pragma omp simd
                    for (size_t l = 0; l < BLOCK; l++) {
                        sum[0][l] += a * in[l];
                        sum[1][l] += b * in[l];
                        sum[2][l] += c * in[l];
                    }
                }
        } else {
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    const double *in = d + ((size_t)y * dwidth + (size_t)x) * n + k;
                    const double a = v[0][y * nx + x], b = v[1][y * nx + x], c = v[2][y * nx + x];
                    for (size_t l = 0; l < m; l++) {
                        sum[0][l] += a * in[l];
                        sum[1][l] += b * in[l];
                        sum[2][l] += c * in[l];
                    }
                }
        }
        for (int s = 0; s < 3; s++)
            for (size_t l = 0; l < m; l++)
                out[(size_t)s * n + k + l] += sum[s][l];
    }
}

static const spx_pf_kernels SPX_KERNELS = {lanes_derive, lanes_project};
