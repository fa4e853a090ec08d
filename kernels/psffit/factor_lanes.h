/* Provides the products of derivatives of spots for the normal equations (spx_pf_kernels), compiled for each
 * instruction set by fit_lanes.h, which includes it.
 *
 * Sum factorisation: the derivative of a spot by GH-i-j is u(y,x) g_i(x) g_j(y), u = root f where the spot is not
 * clipped, so those of two spots have products
 *     sum_y g_j(y) g'_j'(y) A_ii'(y),   A_ii'(y) = sum_x u u' g_i(x) g'_i'(x),
 * for all i, i', j, j' a tenth of the operations of the matrix D'D' of the derivatives themselves. */
#include <stddef.h>
#include <string.h>

#include "psffit/fit.h"
#include "simd/simd.h"

enum { PAIR_VECTORS = 8, MOST_PAD = (SPX_PF_MOST_HERMITE / SPX_PF_LANES + 1) * SPX_PF_LANES };
enum { MOST_PAIR = (SPX_PF_MOST_HERMITE + 1) * MOST_PAD + PAIR_VECTORS * SPX_PF_LANES };

/* sum += w_k row_k of n rows whose distance is `stride`, PAIR_VECTORS vectors of each. */
ALWAYS_INLINE void weighted_rows(int n, const double *w, const double *rows, size_t stride, vec sum[PAIR_VECTORS])
{
    for (int v = 0; v < PAIR_VECTORS; v++)
        sum[v] = every(0.0);
    for (int k = 0; k < n; k++) {
        const vec by = every(w[k]);
        const double *row = rows + (size_t)k * stride;
        for (int v = 0; v < PAIR_VECTORS; v++)
            sum[v] += by * load(row + v * SPX_VL);
    }
}

static void lanes_shapes(const spx_pf_plan *p, int h, int w, const spx_pf_part *s, const spx_pf_part *m,
                         const double *by, double *sum)
{
    const int nx = p->nx, ny = p->ny, side = p->deg + 1, pad = (int)spx_pf_pad(p), na = p->na;
    const size_t n = spx_pf_pair_width(p);
    double product[SIDE][MOST_PAIR], a[SIDE][MOST_PAIR], weight[SIDE];
    for (int x = 0; x < w; x++) {
        for (int i = 0; i < side; i++)
            for (int k = 0; k < pad; k += SPX_VL)
                store(product[x] + i * pad + k, every(s->across[x * pad + i]) * load(m->across + x * pad + k));
        for (int k = side * pad; k < (int)n; k++)
            product[x][k] = 0;
    }
    for (int y = 0; y < h; y++) {
        const double *u = s->stamp[SPX_PF_LIT] + y * nx, *v = m->stamp[SPX_PF_LIT] + y * nx;
        for (int x = 0; x < w; x++)
            weight[x] = u[x] * v[x];
        for (size_t k = 0; k < n; k += PAIR_VECTORS * SPX_VL) {
            vec row[PAIR_VECTORS];
            weighted_rows(w, weight, product[0] + k, MOST_PAIR, row);
            for (int l = 0; l < PAIR_VECTORS; l++)
                store(a[y] + k + (size_t)l * SPX_VL, row[l]);
        }
    }
    for (int j = 0; j < side; j++)
        for (int l = 0; l < side; l++) {
            double *to = sum + (size_t)(j * side + l) * n;
            for (int y = 0; y < h; y++)
                weight[y] = s->gy[j * ny + y] * m->gy[l * ny + y];
            for (size_t k = 0; k < n; k += PAIR_VECTORS * SPX_VL) {
                vec all[PAIR_VECTORS];
                weighted_rows(h, weight, a[0] + k, MOST_PAIR, all);
                for (int t = 0; t < na * na; t++) {
                    double *out = to + (size_t)(t * side * side) * n + k;
                    for (int v = 0; v < PAIR_VECTORS; v++)
                        store(out + v * SPX_VL, load(out + v * SPX_VL) + every(by[t]) * all[v]);
                }
            }
        }
}

/* Products of the stamps of s with the derivatives of m that are no products of factors: by the widths. */
static inline void dense_products(const spx_pf_plan *p, int h, int w, int n, const spx_pf_part *s, const spx_pf_part *m,
                                  double out[SPX_PF_DENSE][2])
{
    for (int k = 0; k < n; k++) {
        double one = 0, two = 0;
        for (int y = 0; y < h; y++) {
            const double *v = s->stamp[k] + y * p->nx;
            const double *a = m->stamp[SPX_PF_BY_SIGX] + y * p->nx, *b = m->stamp[SPX_PF_BY_SIGY] + y * p->nx;
#pragma omp simd reduction(+ : one, two)
            for (int x = 0; x < w; x++) {
                one += v[x] * a[x];
                two += v[x] * b[x];
            }
        }
        out[k][0] = one;
        out[k][1] = two;
    }
}

static void lanes_project(const spx_pf_plan *p, int h, int w, int n, int whole, const spx_pf_part *s,
                          const spx_pf_part *m, const double *by, double *out)
{
    const int nx = p->nx, ny = p->ny, side = p->deg + 1, pad = (int)spx_pf_pad(p), na = p->na;
    const size_t step = spx_pf_projected(p);
    double dense[SPX_PF_DENSE][2], lit[SPX_PF_DENSE][SIDE];
    dense_products(p, h, w, n, s, m, dense);
    for (int k = 0; k < n; k++)
        for (int a = 0; a < na; a++) {
            out[(size_t)(k * na + a) * step] += by[a] * dense[k][0];
            out[(size_t)(k * na + a) * step + 1] += by[a] * dense[k][1];
        }
    if (!whole)
        return;
    double all[SPX_PF_DENSE][(SPX_PF_MOST_HERMITE + 1) * MOST_PAD];
    for (int k = 0; k < n; k++)
        memset(all[k], 0, (size_t)(side * pad) * sizeof(double));
    for (int y = 0; y < h; y++) {
        const double *u = m->stamp[SPX_PF_LIT] + y * nx;
        for (int k = 0; k < SPX_PF_DENSE; k++) {
            const double *v = s->stamp[k < n ? k : 0] + y * nx;
            for (int x = 0; x < w; x++)
                lit[k][x] = v[x] * u[x];
        }
        for (int c = 0; c < pad; c += SPX_VL) {
            vec sum[SPX_PF_DENSE];
            for (int k = 0; k < SPX_PF_DENSE; k++)
                sum[k] = every(0.0);
            for (int x = 0; x < w; x++) {
                const vec g = load(m->across + x * pad + c);
                for (int k = 0; k < SPX_PF_DENSE; k++)
                    sum[k] += every(lit[k][x]) * g;
            }
            for (int j = 0; j < side; j++) {
                const vec g = every(m->gy[j * ny + y]);
                for (int k = 0; k < n; k++) {
                    double *to = all[k] + j * pad + c;
                    store(to, load(to) + g * sum[k]);
                }
            }
        }
    }
    for (int k = 0; k < n; k++)
        for (int a = 0; a < na; a++) {
            double *to = out + (size_t)(k * na + a) * step + 2;
#pragma omp simd
            for (int c = 0; c < side * pad; c++)
                to[c] += by[a] * all[k][c];
        }
}

static void lanes_places(int h, int w, const double *a, const double *b, size_t step, size_t nx, double *out)
{
    vec sum[SPX_PF_PLACES * SPX_PF_PLACES], lane;
    for (int k = 0; k < SPX_VL; k++)
        lane[k] = k;
    for (int q = 0; q < SPX_PF_PLACES * SPX_PF_PLACES; q++)
        sum[q] = every(0.0);
    for (int r = 0; r < h; r++)
        for (int k = 0; k < w; k += SPX_VL) {
            vec one[SPX_PF_PLACES], two[SPX_PF_PLACES];
            for (int q = 0; q < SPX_PF_PLACES; q++) {
                one[q] = load(a + (size_t)q * step + (size_t)r * nx + k);
                two[q] = load(b + (size_t)q * step + (size_t)r * nx + k);
                if (w - k < SPX_VL) { /* lanes beyond the overlap are of other pixels */
                    one[q] = choose(lane < every(w - k), one[q], every(0.0));
                    two[q] = choose(lane < every(w - k), two[q], every(0.0));
                }
            }
            for (int q = 0; q < SPX_PF_PLACES * SPX_PF_PLACES; q++)
                sum[q] += one[q / SPX_PF_PLACES] * two[q % SPX_PF_PLACES];
        }
    for (int q = 0; q < SPX_PF_PLACES * SPX_PF_PLACES; q++)
        out[q] = sum_lanes(sum[q]);
}

static void lanes_combine(size_t nrow, const double *row, size_t size, size_t nterm, const double *weight, size_t n,
                          double *const *to)
{
    for (size_t k = 0; k < n; k += SPX_VL)
        for (size_t q = 0; q < nterm; q += SPX_PF_TERMS) {
            vec sum[SPX_PF_TERMS];
            for (size_t i = 0; i < SPX_PF_TERMS; i++)
                sum[i] = every(0.0);
            for (size_t m = 0; m < nrow; m++) {
                const vec v = load(row + m * size + k);
                const double *w = weight + m * nterm + q;
                for (size_t i = 0; i < SPX_PF_TERMS; i++)
                    sum[i] += every(w[i]) * v;
            }
            for (size_t i = 0; i < SPX_PF_TERMS && q + i < nterm; i++) {
                double *out = to[q + i] + k;
                if (n - k >= SPX_VL)
                    store(out, load(out) + sum[i]);
                else
                    for (size_t c = 0; c < n - k; c++)
                        out[c] += sum[i][c];
            }
        }
}
