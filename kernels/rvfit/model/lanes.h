/* The heavy loops of the velocity fit, for SPX_VL doubles a vector: included once for every instruction set
 * (simd_base.c, simd_avx2.c, simd_avx512.c), which defines SPX_VL and SPX_KERNELS. All loops have a fixed order, so
 * that a star's result does not depend on which stars are computed beside it. */
#include <string.h>

#include "rvfit/model/model.h"
#include "simd/simd.h"
#include "simd/simd_math.h"

enum {
    LV = SPX_RV_LANES / SPX_VL, /* vectors in a row of lanes */
    BLOCK = 256                 /* pixels whose rows stay in the cache */
};

/* ---- ln T from principal components ---- */

static void combine(size_t n, size_t nnode, const int32_t *row, const double *weight, size_t nlane, const double *coef,
                    double *out)
{
    for (size_t l = 0; l < nlane; l++) {
        double *o = out + l * n;
        memset(o, 0, n * sizeof *o);
        for (size_t k = 0; k < nnode; k++) {
            const double *c = coef + (size_t)row[k] * n;
            double w = weight[k * nlane + l];
            if (w == 0)
                continue;
            for (size_t i = 0; i < n; i++)
                o[i] += w * c[i];
        }
    }
}

/* One tile: the first `nd` components, which are large, in double precision; the others in single. Two vectors at a
 * time, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void tile_sum(size_t L, size_t nd, size_t nc, const float *comp,
                                                           const double *mean, const double *cd, const float *cf,
                                                           double *plane, size_t stride)
{
    for (size_t j = 0; j < SPX_RV_TILE; j += 4 * SPX_VL) {
        vecf f[SPX_RV_LANES - 1][2];
        for (size_t l = 0; l < L; l++)
            f[l][0] = f[l][1] = everyf(0);
        for (size_t k = nd; k < nc; k++) {
            vecf e0 = load_vecf(comp + k * SPX_RV_TILE + j), e1 = load_vecf(comp + k * SPX_RV_TILE + j + 2 * SPX_VL);
            for (size_t l = 0; l < L; l++) {
                f[l][0] += cf[k * L + l] * e0;
                f[l][1] += cf[k * L + l] * e1;
            }
        }
        for (size_t l = 0; l < L; l++) {
            float rest[4 * SPX_VL];
            memcpy(rest, f[l], sizeof rest);
            for (size_t i = 0; i < 4 * SPX_VL; i++)
                plane[l * stride + j + i] = (double)rest[i];
        }
    }
    for (size_t j = 0; j < SPX_RV_TILE; j += 2 * SPX_VL) {
        vec d[SPX_RV_LANES - 1][2];
        for (size_t l = 0; l < L; l++)
            for (size_t i = 0; i < 2; i++)
                d[l][i] = load(plane + l * stride + j + i * SPX_VL);
        for (size_t k = 0; k < nd; k++) {
            vec e0 = load_float(comp + k * SPX_RV_TILE + j), e1 = load_float(comp + k * SPX_RV_TILE + j + SPX_VL);
            for (size_t l = 0; l < L; l++) {
                d[l][0] += cd[k * L + l] * e0;
                d[l][1] += cd[k * L + l] * e1;
            }
        }
        for (size_t i = 0; i < 2; i++)
            d[0][i] += load(mean + j + i * SPX_VL);
        for (size_t l = 0; l < L; l++)
            for (size_t i = 0; i < 2; i++)
                store(plane + l * stride + j + i * SPX_VL, d[l][i]);
    }
}

static void components(size_t L, size_t ntile, size_t nd, size_t nc, const float *comp, const double *mean, size_t n,
                       const double *const *cd, const float *const *cf, double *const *plane)
{
    size_t stride = ntile * SPX_RV_TILE;
    for (size_t t = 0; t < ntile; t++)
        for (size_t s = 0; s < n; s++) {
#define TILE(N)                                                                                                        \
    case N:                                                                                                            \
        tile_sum(N, nd, nc, comp + t * nc * SPX_RV_TILE, mean + t * SPX_RV_TILE, cd[s], cf[s],                         \
                 plane[s] + t * SPX_RV_TILE, stride);                                                                  \
        break
            switch (L) {
                TILE(1);
                TILE(2);
                TILE(3);
                TILE(4);
                TILE(5);
                TILE(6);
                TILE(7);
            }
#undef TILE
        }
}

/* ---- templates ---- */

static void exponential(size_t n, double *x)
{
    for (size_t i = 0; i < n; i += SPX_VL)
        store(x + i, vexp(vclamp(load(x + i), -300, 300)));
}

static void flux_lanes(size_t n, const double *const *dln, const double *flux, double *rot)
{
    static const double none[BLOCK];
    for (size_t i0 = 0; i0 < n; i0 += BLOCK) {
        size_t m = n - i0 < BLOCK ? n - i0 : BLOCK;
        const double *d[SPX_RV_LANES];
        for (size_t l = 1; l < SPX_RV_LANES; l++)
            d[l] = dln[l] ? dln[l] + i0 : none;
        for (size_t i = 0; i < m; i++) {
            double *o = rot + (i0 + i) * SPX_RV_LANES, f = flux[i0 + i];
            o[0] = f;
            for (size_t l = 1; l < SPX_RV_LANES; l++)
                o[l] = f * d[l][i];
        }
    }
}

static void broaden(size_t n, size_t reach, const double *weight, const double *rot, double *y)
{
    for (size_t j = 0; j < n; j++) {
        const double *c = rot + j * SPX_RV_LANES;
        vec s[LV];
        for (size_t v = 0; v < LV; v++)
            s[v] = weight[0] * load(c + v * SPX_VL);
        for (size_t k = 1; k <= reach; k++) {
            const double *left = rot + (j >= k ? j - k : 0) * SPX_RV_LANES;
            const double *right = rot + (n - 1 - j >= k ? j + k : n - 1) * SPX_RV_LANES;
            for (size_t v = 0; v < LV; v++)
                s[v] += weight[k] * (load(left + v * SPX_VL) + load(right + v * SPX_VL));
        }
        for (size_t v = 0; v < LV; v++)
            store(y + j * SPX_RV_LANES + v * SPX_VL, s[v]);
    }
}

static void broaden_one(size_t n, size_t reach, const double *weight, const double *f, double *y)
{
    for (size_t j0 = 0; j0 < n; j0 += BLOCK) {
        size_t m = n - j0 < BLOCK ? n - j0 : BLOCK;
        double *o = y + j0;
        for (size_t j = 0; j < m; j++)
            o[j] = weight[0] * f[j0 + j];
        if (j0 >= reach && j0 + m + reach <= n) {
            for (size_t k = 1; k <= reach; k++)
                for (size_t j = 0; j < m; j++)
                    o[j] += weight[k] * (f[j0 + j - k] + f[j0 + j + k]);
        } else {
            for (size_t k = 1; k <= reach; k++)
                for (size_t j = 0; j < m; j++) {
                    size_t at = j0 + j;
                    o[j] += weight[k] * (f[at >= k ? at - k : 0] + f[n - 1 - at >= k ? at + k : n - 1]);
                }
        }
    }
}

/* spx_rv_spline_solve() for rows of SPX_RV_LANES. */
static void spline(size_t n, const double *cprime, const double *y, double *m)
{
    vec last[LV];
    for (size_t v = 0; v < LV; v++) {
        last[v] = every(0);
        store(m + v * SPX_VL, last[v]);
        store(m + (n - 1) * SPX_RV_LANES + v * SPX_VL, last[v]);
    }
    for (size_t i = 1; i + 1 < n; i++)
        for (size_t v = 0; v < LV; v++) {
            const double *p = y + i * SPX_RV_LANES + v * SPX_VL;
            vec at = load(p);
            vec bend = ((load(p - SPX_RV_LANES) - at) + (load(p + SPX_RV_LANES) - at)) * cprime[i];
            last[v] = bend - cprime[i] * last[v];
            store(m + i * SPX_RV_LANES + v * SPX_VL, last[v]);
        }
    for (size_t v = 0; v < LV; v++)
        last[v] = every(0);
    for (size_t i = n - 2; i >= 1; i--)
        for (size_t v = 0; v < LV; v++) {
            double *p = m + i * SPX_RV_LANES + v * SPX_VL;
            last[v] = load(p) - cprime[i] * last[v];
            store(p, last[v]);
        }
}

/* t[nout][stride]: lane 0, with `slope` its derivative by v, then the other lanes, at the pixels. */
static void sample(size_t n, const double *place, double shift, double dshift, size_t nt, const double *y,
                   const double *m, size_t nlane, int slope, double *t, size_t stride)
{
    size_t skip = slope ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        double w[4], d[4];
        size_t k = spx_rv_spline_weights(place[i] + shift, nt, w, d) * SPX_RV_LANES;
        double out[SPX_RV_LANES];
        for (size_t v = 0; v < LV; v++) {
            const double *yk = y + k + v * SPX_VL, *mk = m + k + v * SPX_VL;
            store(out + v * SPX_VL,
                  w[0] * load(yk) + w[1] * load(yk + SPX_RV_LANES) + w[2] * load(mk) + w[3] * load(mk + SPX_RV_LANES));
        }
        t[i] = out[0];
        if (skip)
            t[stride + i] =
                (d[0] * y[k] + d[1] * y[k + SPX_RV_LANES] + d[2] * m[k] + d[3] * m[k + SPX_RV_LANES]) * dshift;
        for (size_t l = 1; l < nlane; l++)
            t[(l + skip) * stride + i] = out[l];
    }
}

/* The same for a single spline, y[nt] and m[nt]. */
static void sample_one(size_t n, const double *place, double shift, size_t nt, const double *y, const double *m,
                       double *t)
{
    for (size_t i = 0; i < n; i++) {
        double w[4], d[4];
        size_t k = spx_rv_spline_weights(place[i] + shift, nt, w, d);
        t[i] = w[0] * y[k] + w[1] * y[k + 1] + w[2] * m[k] + w[3] * m[k + 1];
    }
}

/* ---- sums over pixels ---- */

enum { TX = 4, TY = 3, MAX_X = (SPX_RVFIT_MAX_POLY + 1 + SPX_MAX_FIT + TX) / TX };
enum { MAX_Y = (SPX_RVFIT_MAX_POLY + 1 + TY) / TY };

/* sum[x][y] += x_i y_i over a block, for TX rows of x and TY of y. */
static inline void products(size_t n, const double *x, const double *y, vec *sum)
{
    vec s[TX][TY];
    memcpy(s, sum, sizeof s);
    for (size_t i = 0; i < n; i += SPX_VL)
        for (size_t a = 0; a < TX; a++) {
            vec xa = load(x + a * BLOCK + i);
            for (size_t b = 0; b < TY; b++)
                s[a][b] += xa * load(y + b * BLOCK + i);
        }
    memcpy(sum, s, sizeof s);
}

/* The same for a continuum that is linear in each block of `per` pixels (a multiple of SPX_RV_LANES, at most
 * SPX_RV_BLOCK; without `place` y is the template at the pixels): line[nblock][2][SPX_RVFIT_MAX_POLY] are value at the
 * middle and slope of each function of the basis. weight[n] is 1/e^2, data[n] flux/e^2, both 0 beyond the last of the
 * npix pixels; the template is linear between its own pixels y[nt]. gram as normal() leaves it. */
static void scan(size_t npix, size_t per, size_t np, const double *line, const double *place, double shift, size_t nt,
                 const double *y, const double *weight, const double *data, double *gram)
{
    enum { M = SPX_RVFIT_MAX_POLY };
    const size_t npad = (np + SPX_VL - 1) / SPX_VL * SPX_VL;
    const double last = (double)nt - 1.000001;
    double a[M][M] = {{0}}, b[M] = {0}, t[SPX_RV_BLOCK];
    vec ramp;
    for (size_t l = 0; l < SPX_VL; l++)
        ramp[l] = (double)l - 0.5 * (double)(per - 1);
    for (size_t i0 = 0; i0 < npix; i0 += per, line += 2 * M) {
        const size_t m = npix - i0 < per ? npix - i0 : per;
        for (size_t j = 0; j < m && !place; j++)
            t[j] = y[i0 + j];
        for (size_t j = 0; j < m && place; j++) {
            double at = place[i0 + j] + shift;
            at = at > 0 ? at : 0;
            at = at < last ? at : last;
            int k = (int)at;
            t[j] = y[k] + (at - (double)k) * (y[k + 1] - y[k]);
        }
        for (size_t j = m; j < per; j++)
            t[j] = 0;
        vec s0 = every(0), s1 = s0, s2 = s0, d0 = s0, d1 = s0;
        for (size_t j = 0; j < m; j += SPX_VL) {
            vec x = ramp + (double)j, tj = load(t + j), w = tj * tj * load(weight + i0 + j), wx = w * x;
            vec d = tj * load(data + i0 + j);
            s0 += w;
            s1 += wx;
            s2 += wx * x;
            d0 += d;
            d1 += d * x;
        }
        const double m0 = sum_in_order(s0), m1 = sum_in_order(s1), m2 = sum_in_order(s2), e0 = sum_in_order(d0),
                     e1 = sum_in_order(d1);
        const double *value = line, *slope = line + M;
        for (size_t k = 0; k < np; k++) {
            const double g0 = m0 * value[k] + m1 * slope[k], g1 = m1 * value[k] + m2 * slope[k];
            b[k] += e0 * value[k] + e1 * slope[k];
            for (size_t l = 0; l < npad; l += SPX_VL)
                store(&a[k][l], load(&a[k][l]) + g0 * load(value + l) + g1 * load(slope + l));
        }
    }
    for (size_t k = 0; k < np; k++) {
        for (size_t l = 0; l <= k; l++)
            gram[spx_rv_packed(k, l)] = a[k][l];
        gram[spx_rv_packed(np, k)] = b[k];
    }
}

/* gram: lower triangle of S'S and S'D, packed: row np is D. */
static void normal(size_t n, size_t np, const double *basis, const double *t, const double *ie, const double *flux,
                   double *gram)
{
    size_t nx = (np + 1 + TX - 1) / TX;
    double s[MAX_X * TX + TY][BLOCK];
    vec sum[MAX_X][MAX_Y][TX * TY];
    memset(sum, 0, nx * sizeof sum[0]);
    memset(s[np + 1], 0, (nx * TX + TY - np - 1) * sizeof s[0]);
    for (size_t i0 = 0; i0 < n; i0 += BLOCK) {
        size_t m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (size_t i = 0; i < m; i += SPX_VL) {
            vec e = load(ie + i0 + i), te = load(t + i0 + i) * e;
            for (size_t k = 0; k < np; k++)
                store(&s[k][i], load(basis + k * n + i0 + i) * te);
            store(&s[np][i], load(flux + i0 + i) * e);
        }
        for (size_t a = 0; a < nx; a++)
            for (size_t b = 0; b * TY < (a + 1) * TX && b * TY < np; b++)
                products(m, s[a * TX], s[b * TY], sum[a][b]);
    }
    for (size_t k = 0; k <= np; k++)
        for (size_t j = 0; j <= k && j < np; j++)
            gram[spx_rv_packed(k, j)] = sum_in_order(sum[k / TX][j / TY][k % TX * TY + j % TY]);
}

static double residual(size_t n, size_t np, const double *basis, const double *coef, const double *t, const double *ie,
                       const double *flux, double *cont)
{
    vec chisq = every(0);
    for (size_t i = 0; i < n; i += SPX_VL) {
        vec q = every(0);
        for (size_t k = 0; k < np; k++)
            q += coef[k] * load(basis + k * n + i);
        store(cont + i, q);
        vec r = (load(flux + i) - q * load(t + i)) * load(ie + i);
        chisq += r * r;
    }
    return sum_in_order(chisq);
}

static void curvature(size_t n, size_t np, size_t nf, const double *basis, const double *chol, const double *cont,
                      const double *t, const double *ie, const double *flux, double *out)
{
    size_t rows = np + 1 + nf, nx = (rows + TX - 1) / TX, ny = (nf + TY - 1) / TY;
    double x[MAX_X * TX][BLOCK], y[SPX_MAX_FIT + TY][BLOCK], scale[SPX_RVFIT_MAX_POLY];
    vec sum[MAX_X][MAX_Y][TX * TY];
    memset(sum, 0, nx * sizeof sum[0]);
    memset(x[rows], 0, (nx * TX - rows) * sizeof x[0]);
    memset(y[nf], 0, (ny * TY - nf) * sizeof y[0]);
    for (size_t k = 0; k < np; k++)
        scale[k] = 1 / chol[spx_rv_packed(k, k)];
    for (size_t i0 = 0; i0 < n; i0 += BLOCK) {
        size_t m = n - i0 < BLOCK ? n - i0 : BLOCK;
        for (size_t i = 0; i < m; i += SPX_VL) {
            size_t at = i0 + i;
            vec e = load(ie + at), q = load(cont + at), t0 = load(t + at), qe = q * e, te = t0 * e, w = qe * te;
            vec z[SPX_RVFIT_MAX_POLY], lever = every(0);
            for (size_t k = 0; k < np; k++) { /* z = L^-1 B_i */
                vec b = load(basis + k * n + at);
                for (size_t j = 0; j < k; j++)
                    b -= chol[spx_rv_packed(k, j)] * z[j];
                z[k] = b * scale[k];
                lever += z[k] * z[k];
                store(&x[k][i], z[k] * w);
            }
            vec r = (load(flux + at) - q * t0) * e;
            store(&x[np][i], lever * te * e - r * qe);
            for (size_t l = 0; l < nf; l++) {
                vec tl = load(t + (1 + l) * n + at);
                store(&x[np + 1 + l][i], qe * qe * tl);
                store(&y[l][i], tl);
            }
        }
        for (size_t a = 0; a < nx; a++)
            for (size_t b = 0; b < ny; b++)
                products(m, x[a * TX], y[b * TY], sum[a][b]);
    }
    for (size_t k = 0; k < rows; k++)
        for (size_t l = 0; l < nf; l++)
            out[k * nf + l] = sum_in_order(sum[k / TX][l / TY][k % TX * TY + l % TY]);
}

static const spx_rv_kernels SPX_KERNELS = {.combine = combine,
                                           .components = components,
                                           .exponential = exponential,
                                           .flux_lanes = flux_lanes,
                                           .broaden = broaden,
                                           .broaden_one = broaden_one,
                                           .spline = spline,
                                           .sample = sample,
                                           .sample_one = sample_one,
                                           .scan = scan,
                                           .normal = normal,
                                           .residual = residual,
                                           .curvature = curvature};
