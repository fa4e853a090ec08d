/* Provides traces and Gauss-Hermite functions of a PSF, for host and device; spots that are made of them:
 * psf/spot_math.h.
 *
 * Plain inline functions on plain data: no allocation, no errors but a return value. Compiled as C for the host and as
 * CUDA for a device (where the pointers inside spx_psf are device pointers).
 *
 * Pixel (0,0) has its centre at (0,0). A spot covers (2 hsizey + 1) rows and (2 hsizex + 1) columns; its first pixel
 * (corner) is row yc = floor(Y - hsizey + 1/2), column xc = floor(X - hsizex + 1/2), where (X, Y) is the trace centre.
 * Definition: DESI PSF files, PSFTYPE GAUSS-HERMITE (their own header describes the parameters). */
#ifndef SPX_PSF_MATH_H
#define SPX_PSF_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"
#include "products/psf.h"

/* Limit of trace centres, pixels: larger than any detector, and corners fit a long. */
#define SPX_SPOT_FAR 1e8

typedef enum {
    SPX_SPOT_OK = 0,
    SPX_SPOT_CENTRE, /* trace centre is not finite, or beyond SPX_SPOT_FAR */
    SPX_SPOT_SIGMA,  /* GHSIGX or GHSIGY is not finite or not above 0 */
    SPX_SPOT_EMPTY,  /* no positive pixel, or a coefficient that is not finite */
    SPX_SPOT_DENSE   /* spx_psf_spot_factors(): spots of this kind are not separable */
} spx_spot_status;

typedef struct {
    double x, y;   /* trace centre, pixels */
    long xc, yc;   /* first column and row of the spot; may lie off the CCD */
    double dx, dy; /* centre minus the middle of the spot's central pixel, -1/2 <= d < 1/2 */
} spx_spot;

/* Columns and rows of a spot. */
SPX_HD int spx_psf_nx(const spx_psf *p)
{
    return 2 * p->hsizex + 1;
}

SPX_HD int spx_psf_ny(const spx_psf *p)
{
    return 2 * p->hsizey + 1;
}

/* Legendre argument of a series that is defined over [wmin, wmax]. */
SPX_HD double spx_psf_u(double wmin, double wmax, double lambda)
{
    return 2.0 * (lambda - wmin) / (wmax - wmin) - 1.0;
}

/* sum_k c[k] P_k(u), by (k+1) P_{k+1} = (2k+1) u P_k - k P_{k-1}. */
SPX_HD double spx_legendre_sum(size_t n, const double *c, double u)
{
    double below = 0.0, here = 1.0, sum = 0.0;
    for (size_t k = 0; k < n; k++) {
        sum += c[k] * here;
        double above = ((double)(2 * k + 1) * u * here - (double)k * below) / (double)(k + 1);
        below = here;
        here = above;
    }
    return sum;
}

/* P_0(u) .. P_{n-1}(u). */
SPX_HD void spx_legendre_basis(size_t n, double u, double *basis)
{
    double below = 0.0, here = 1.0;
    for (size_t k = 0; k < n; k++) {
        basis[k] = here;
        double above = ((double)(2 * k + 1) * u * here - (double)k * below) / (double)(k + 1);
        below = here;
        here = above;
    }
}

/* Value of a series from its n coefficients and the polynomials, spx_legendre_basis(). */
SPX_HD double spx_basis_sum(int n, const double *c, const double *basis)
{
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        sum += c[k] * basis[k];
    return sum;
}

/* Legendre argument of a series of one fibre. */
SPX_HD double spx_psf_series_u(const spx_psf_series *s, size_t fibre, double lambda)
{
    if (s->range != NULL)
        return spx_psf_u(s->range[2 * fibre], s->range[2 * fibre + 1], lambda);
    return spx_psf_u(s->wmin, s->wmax, lambda);
}

/* Legendre argument of the parameters of one fibre. */
SPX_HD double spx_psf_param_u(const spx_psf *p, size_t fibre, double lambda)
{
    if (p->wave_range != NULL)
        return spx_psf_u(p->wave_range[2 * fibre], p->wave_range[2 * fibre + 1], lambda);
    return spx_psf_u(p->wmin, p->wmax, lambda);
}

/* Value of a series for one fibre. */
SPX_HD double spx_psf_series_value(const spx_psf_series *s, size_t fibre, double lambda)
{
    return spx_legendre_sum(s->ncoef, s->coef + fibre * s->ncoef, spx_psf_series_u(s, fibre, lambda));
}

/* Computes the place of the spot of (fibre, lambda), centre and corner, without its pixels. All 0 unless
 * SPX_SPOT_OK. */
SPX_HD spx_spot_status spx_psf_spot_place(const spx_psf *p, size_t fibre, double lambda, spx_spot *at)
{
    double x = spx_psf_series_value(&p->x, fibre, lambda), y = spx_psf_series_value(&p->y, fibre, lambda);
    at->x = at->y = at->dx = at->dy = 0.0;
    at->xc = at->yc = 0;
    if (!(fabs(x) < SPX_SPOT_FAR && fabs(y) < SPX_SPOT_FAR))
        return SPX_SPOT_CENTRE;
    /* One floor gives both the corner and the offset, so that rounding can never put them one pixel apart. */
    double mx = floor(x + 0.5), my = floor(y + 0.5);
    at->x = x;
    at->y = y;
    at->dx = x - mx;
    at->dy = y - my;
    at->xc = (long)mx - p->hsizex;
    at->yc = (long)my - p->hsizey;
    return SPX_SPOT_OK;
}

/* Integrals of Gauss-Hermite functions up to an edge at e sigma, of orders m = 0..orders, negative, into h[m stride]:
 * -erf(e/sqrt 2)/2, then He_{m-1}(e) phi(e). g_m of a pixel, below, is that of its left edge minus that of its right.
 */
SPX_HD void spx_gauss_hermite_edge(double e, int orders, double *h, int stride)
{
    double below = 0, here = exp(-0.5 * e * e) * 0.39894228040143267794;
    h[0] = -0.5 * erf(e * 0.70710678118654752440);
    for (int m = 1; m <= orders; m++) {
        h[m * stride] = here;
        const double above = e * here - (m - 1) * below;
        below = here;
        here = above;
    }
}

/* Pixel-integrated Gauss-Hermite functions of orders 0..deg over n pixels into g[deg+1][n].
 * Edges e_k = (k - n div 2 - 1/2 - d)/sigma, k = 0..n; with probabilists' Hermite polynomials He and the unit
 * Gaussian phi:  g_0[k] = (erf(e_{k+1}/sqrt 2) - erf(e_k/sqrt 2))/2,
 *                g_m[k] = He_{m-1}(e_k) phi(e_k) - He_{m-1}(e_{k+1}) phi(e_{k+1}). */
SPX_HD void spx_gauss_hermite(int deg, int n, double d, double sigma, double *g)
{
    const double sqrt1_2 = 0.70710678118654752440, sqrt1_2pi = 0.39894228040143267794;
    for (int k = 0; k <= n; k++) {
        double e = (k - n / 2 - 0.5 - d) / sigma;
        double half_erf = 0.5 * erf(e * sqrt1_2);
        if (k > 0)
            g[k - 1] += half_erf;
        if (k < n)
            g[k] = -half_erf;
        double below = 0.0, here = exp(-0.5 * e * e) * sqrt1_2pi; /* He_{m-1} phi, from m = 1 on */
        for (int m = 1; m <= deg; m++) {
            double *gm = g + (size_t)m * (size_t)n;
            if (k > 0)
                gm[k - 1] -= here;
            if (k < n)
                gm[k] = here;
            double above = e * here - (m - 1) * below; /* He_m = e He_{m-1} - (m-1) He_{m-2} */
            below = here;
            here = above;
        }
    }
}

#endif
