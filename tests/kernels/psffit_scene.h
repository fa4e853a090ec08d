/* Provides arcs with their truth for tests and benchmarks of the fit of PSFs: traces that curve and scatter, spots that
 * change with fibre and wavelength, drawn by spx_psf_spot(), which the fit does not use. */
#ifndef PSFFIT_SCENE_H
#define PSFFIT_SCENE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "psf/spot_math.h"
#include "psffit/psffit.h"
#include "sim/sim_math.h"

typedef struct {
    size_t nspec, bundle, ny, nexp; /* bundle: fibres */
    size_t nline;
    double faint, bright; /* electrons of a line in a fibre */
    double continuum;     /* electrons a row */
    double bump;          /* of the continuum: its height by the rest, a tenth of the rows wide; no polynomial */
    double edge;          /* part of the continuum that ends in the middle of the rows: an edge of a filter */
    double readnoise;
    double hits; /* cosmic-ray hits in a million pixels, not flagged */
    int deg;     /* Gauss-Hermite degree of the truth */
    uint64_t seed;
    uint64_t draw; /* of the noise: another one of the same scene */
    double noise;  /* 1; 0: none */
} psffit_request;

typedef struct {
    psffit_request r;
    spx_psf truth, start;
    spx_arc_line *line; /* listed */
    double *drawn;      /* wavelengths of the lines as they are drawn */
    spx_image *image;   /* [nexp] */
    double *flux;       /* [nspec][nline] */
    size_t nextra;      /* lines that are drawn and not listed: the last of `drawn` */
    double wmin, step;  /* of the continuum: at the first row, Angstrom, and a row */
} psffit_scene;

/* Fibres of a bundle of scene_camera(). */
enum { SCENE_BUNDLE = 25 };

/* An arc of a camera of 4096 rows. nline: lines. */
static inline psffit_request scene_camera(size_t bundles, size_t nline)
{
    return (psffit_request){.nspec = SCENE_BUNDLE * bundles,
                            .bundle = SCENE_BUNDLE,
                            .ny = 4096,
                            .nexp = 1,
                            .nline = nline,
                            .faint = 300,
                            .bright = 56000,
                            .readnoise = 3,
                            .hits = 100,
                            .deg = 6,
                            .seed = 1,
                            .noise = 1};
}

static inline double scene_random(uint64_t seed, uint64_t index, uint32_t draw)
{
    double u[2];
    spx_sim_uniform2(seed, SPX_SIM_LAMP, 1, index, draw, u);
    return fmax(-3, fmin(3, spx_sim_normal(u)));
}

static inline double scene_uniform(uint64_t seed, uint64_t index, uint32_t draw)
{
    double u[2];
    spx_sim_uniform2(seed, SPX_SIM_LAMP, 2, index, draw, u);
    return u[0];
}

#define SCENE_WMIN 5000.0
#define SCENE_STEP 0.55 /* Angstrom a row */

static inline int scene_psf(const psffit_request *r, spx_psf *p)
{
    const int side = r->deg + 1, nc = side * side;
    const double wmax = SCENE_WMIN + SCENE_STEP * (double)(r->ny - 1);
    *p = (spx_psf){.nspec = r->nspec, .ndeg = 3, .npar = (size_t)(2 + nc), .ghdegx = r->deg, .ghdegy = r->deg};
    p->hsizex = 8;
    p->hsizey = 5;
    p->wmin = SCENE_WMIN - 20;
    p->wmax = wmax + 20;
    p->psferr = 0.01;
    p->npix_y = r->ny;
    strcpy(p->camera, "r0");
    p->x = p->y = (spx_psf_series){.ncoef = 6, .wmin = p->wmin, .wmax = p->wmax};
    p->x.coef = spx_alloc2(r->nspec, 6, sizeof(double), NULL);
    p->y.coef = spx_alloc2(r->nspec, 6, sizeof(double), NULL);
    p->param = spx_alloc(p->npar, sizeof *p->param, NULL);
    p->coeff = spx_alloc2(p->npar * r->nspec, p->ndeg, sizeof(double), NULL);
    if (p->x.coef == NULL || p->y.coef == NULL || p->param == NULL || p->coeff == NULL)
        return 0;
    const double half = 0.5 * (p->wmax - p->wmin) / SCENE_STEP; /* rows from the middle to an end of the range */
    double x = 14;
    for (size_t i = 0; i < r->nspec; i++) {
        const double v = r->nspec > 1 ? 2.0 * (double)i / (double)(r->nspec - 1) - 1 : 0;
        double *a = p->x.coef + 6 * i, *b = p->y.coef + 6 * i;
        a[0] = x + 0.05 * scene_random(r->seed, i, 0);
        a[1] = 1.5 * v + 0.8;
        a[2] = 3.0 * v;
        a[3] = 0.1;
        a[4] = 0.01 * v;
        b[0] = 0.5 * (double)(r->ny - 1) + 2 * v * v + 0.1 * scene_random(r->seed, i, 1);
        b[1] = half;
        b[2] = 0.02 * half;
        b[3] = 0.002 * half;
        b[4] = -0.05;
        x += (i + 1) % r->bundle == 0 ? 18 : 7.3;
    }
    p->npix_x = (size_t)(x + 10);
    snprintf(p->param[0], sizeof *p->param, "GHSIGX");
    snprintf(p->param[1], sizeof *p->param, "GHSIGY");
    for (int k = 0; k < nc; k++) {
        char name[64];
        snprintf(name, sizeof name, "GH-%d-%d", k % side, k / side);
        memcpy(p->param[2 + k], name, sizeof *p->param - 1);
    }
    for (size_t k = 0; k < p->npar; k++)
        for (size_t i = 0; i < r->nspec; i++) {
            double *c = p->coeff + (k * r->nspec + i) * p->ndeg;
            const size_t in = i % r->bundle, bundle = i / r->bundle, of = bundle * 1000 + k;
            const double v = r->bundle > 1 ? 2.0 * (double)in / (double)(r->bundle - 1) - 1 : 0;
            if (k < 2) {
                c[0] = (k == 0 ? 1.13 : 1.02) + 0.02 * v;
                c[1] = k == 0 ? 0.02 : -0.03;
                c[2] = 0.03;
            } else if (k == 2) {
                c[0] = 1;
            } else {
                const int gx = (int)(k - 2) % side, gy = (int)(k - 2) / side;
                const int gauge = gx + gy == 1 || (gx + gy == 2 && gx * gy == 0);
                const double size = (gauge ? 0.004 : 0.03) / (1 + 0.3 * (gx + gy));
                c[0] = size * (scene_random(r->seed, of, 2) + 0.4 * v * scene_random(r->seed, of, 3));
                c[1] = 0.4 * size * (scene_random(r->seed, of, 4) + 0.4 * v * scene_random(r->seed, of, 6));
                c[2] = 0.2 * size * scene_random(r->seed, of, 5);
            }
        }
    spx_err e = {0};
    return spx_psf_index(p, &e) == SPX_OK;
}

/* A start as another night's would be: traces moved by up to 1.2 pixels with a slope and 0.15 pixel of scatter, widths
 * 5 % too large, Gaussian spots. */
static inline int scene_start(const psffit_scene *s, spx_psf *p)
{
    spx_err e = {0};
    if (spx_psf_copy(&s->truth, p, &e) != SPX_OK)
        return 0;
    const size_t row = p->nspec * p->ndeg;
    for (size_t i = 0; i < p->nspec; i++) {
        p->x.coef[6 * i] += 0.7 + 0.15 * scene_random(s->r.seed, i, 8);
        p->x.coef[6 * i + 1] += 0.3;
        p->y.coef[6 * i] += -0.6 + 0.15 * scene_random(s->r.seed, i, 9);
        p->y.coef[6 * i + 1] += -0.4;
        for (size_t k = 0; k < p->npar; k++)
            for (size_t d = 0; d < p->ndeg; d++)
                p->coeff[k * row + i * p->ndeg + d] *= k < 2 ? 1.05 : k == 2 ? 1 : 0;
    }
    return 1;
}

/* Adds lines and continuum of one exposure, shifted by dx, dy pixels, into sum[ny][nx]. */
static inline void scene_draw(const psffit_scene *s, double dx, double dy, const unsigned char *dead, double *sum)
{
    const size_t nx = s->truth.npix_x, ny = s->r.ny;
    spx_psf moved;
    spx_err e = {0};
    if (spx_psf_copy(&s->truth, &moved, &e) != SPX_OK)
        return;
    double *work = spx_alloc(spx_psf_spot_work(&moved), sizeof *work, NULL);
    double *spot = spx_alloc((size_t)(spx_psf_nx(&moved) * spx_psf_ny(&moved)), sizeof *spot, NULL);
    const int w = spx_psf_nx(&moved), h = spx_psf_ny(&moved);
    for (size_t i = 0; i < moved.nspec; i++) {
        moved.x.coef[moved.x.ncoef * i] += dx;
        moved.y.coef[moved.y.ncoef * i] += dy;
        if (dead != NULL && dead[i])
            continue;
        const size_t nrow = s->r.continuum > 0 ? ny + 20 : 0;
        for (size_t l = 0; l < s->r.nline + s->nextra + nrow; l++) {
            spx_spot at;
            const int is_line = l < s->r.nline + s->nextra;
            const double wave = is_line ? s->drawn[l] : s->wmin + s->step * ((double)(l - s->r.nline - s->nextra) - 10);
            const double u = (wave - s->wmin) / (s->step * (double)ny), from = (u - 0.6) / 0.1;
            const double f = is_line ? s->flux[i * (s->r.nline + s->nextra) + l]
                                     : s->r.continuum * (1 + 0.2 * u + s->r.bump * exp(-0.5 * from * from)) *
                                           (u > 0.5 ? 1 - s->r.edge : 1);
            if (!(f > 0) || spx_psf_spot(&moved, i, wave, work, spot, &at) != SPX_SPOT_OK)
                continue;
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    const long r = at.yc + y, c = at.xc + x;
                    if (r >= 0 && c >= 0 && r < (long)ny && c < (long)nx)
                        sum[(size_t)r * nx + (size_t)c] += f * spot[y * w + x];
                }
        }
    }
    spx_free(work);
    spx_free(spot);
    spx_psf_free(&moved);
}

static inline void scene_free(psffit_scene *s)
{
    for (size_t x = 0; s->image != NULL && x < s->r.nexp; x++)
        spx_image_free(&s->image[x]);
    spx_free(s->image);
    spx_free(s->line);
    spx_free(s->drawn);
    spx_free(s->flux);
    spx_psf_free(&s->truth);
    spx_psf_free(&s->start);
}

/* Truth, start, lines and fluxes; a test may change them before scene_expose(). 0: no memory. nextra lines of 3000
 * electrons are not listed. */
static inline int scene_make(const psffit_request *r, size_t nextra, psffit_scene *s)
{
    *s = (psffit_scene){.r = *r, .nextra = nextra, .wmin = SCENE_WMIN, .step = SCENE_STEP};
    const size_t all = r->nline + nextra;
    if (!scene_psf(r, &s->truth) || !scene_start(s, &s->start))
        return 0;
    s->line = spx_alloc(r->nline, sizeof *s->line, NULL);
    s->drawn = spx_alloc(all, sizeof *s->drawn, NULL);
    s->flux = spx_alloc2(r->nspec, all, sizeof *s->flux, NULL);
    s->image = spx_alloc(r->nexp, sizeof *s->image, NULL);
    if (s->line == NULL || s->drawn == NULL || s->flux == NULL || s->image == NULL)
        return 0;
    const double length = SCENE_STEP * (double)(r->ny - 1), space = length / (double)r->nline;
    for (size_t l = 0; l < r->nline; l++) {
        s->drawn[l] = SCENE_WMIN + space * ((double)l + 0.5 + 0.3 * (scene_uniform(r->seed, l, 1) - 0.5));
        s->line[l] = (spx_arc_line){.wavelength = s->drawn[l], .quality = SPX_ARC_BRIGHT, .ion = 1, .element = "Ne"};
    }
    for (size_t l = 0; l < nextra; l++)
        s->drawn[r->nline + l] = SCENE_WMIN + length * ((double)l + 0.37) / (double)nextra;
    for (size_t i = 0; i < r->nspec; i++)
        for (size_t l = 0; l < all; l++) {
            /* fluxes of lines spread over the range in logarithm; fibres differ by 10 % */
            const double u = scene_uniform(r->seed, l, 2),
                         f = l < r->nline ? r->faint * pow(r->bright / r->faint, u) : 3000;
            s->flux[i * all + l] = f * (1 + 0.1 * scene_random(r->seed, i, 10));
        }
    return 1;
}

/* Exposure x with noise of its own, its traces moved by dx, dy. */
static inline int scene_expose(psffit_scene *s, size_t x, double dx, double dy, const unsigned char *dead)
{
    const size_t nx = s->truth.npix_x, ny = s->r.ny, n = nx * ny;
    spx_image *im = &s->image[x];
    double *sum = spx_alloc(n, sizeof *sum, NULL);
    *im = (spx_image){.nx = nx, .ny = ny};
    im->data = spx_alloc(n, sizeof *im->data, NULL);
    im->ivar = spx_alloc(n, sizeof *im->ivar, NULL);
    im->mask = spx_alloc(n, sizeof *im->mask, NULL);
    im->readnoise = spx_alloc(n, sizeof *im->readnoise, NULL);
    if (sum == NULL || im->data == NULL || im->ivar == NULL || im->mask == NULL || im->readnoise == NULL)
        return 0;
    scene_draw(s, dx, dy, dead, sum);
    const double rn = s->r.readnoise;
    for (size_t k = 0; k < n; k++) {
        double u[2], p = sum[k];
        if (s->r.noise > 0) {
            spx_sim_uniform2(s->r.seed + 77 + s->r.draw, SPX_SIM_READ, (unsigned)x, k, 0, u);
            p = spx_sim_poisson(sum[k], s->r.seed + 77 + s->r.draw, (unsigned)x, k) + rn * spx_sim_normal(u);
        }
        if (scene_uniform(s->r.seed + 5 + x, k, 7) < 1e-6 * s->r.hits)
            p += 200 + 5000 * scene_uniform(s->r.seed + 5 + x, k, 8);
        im->data[k] = (float)p;
        im->ivar[k] = (float)(1 / (rn * rn + fmax(p, 0)));
        im->readnoise[k] = (float)rn;
    }
    spx_free(sum);
    return 1;
}

/* ---- comparison with the truth ---- */

/* Pixels of a spot of fibre i on a canvas around the truth's centre: [CANVAS][CANVAS]. */
enum { CANVAS = 31 };

static inline int scene_canvas(const spx_psf *p, size_t i, double wave, double dx, double dy, long xc, long yc,
                               double *out)
{
    double work[4096], spot[1024];
    spx_spot at;
    spx_psf copy = *p;
    double x[32], y[32];
    /* the one fibre, moved */
    if (p->x.ncoef > 32 || spx_psf_spot_work(p) > 4096)
        return 0;
    copy.x.coef = x - i * p->x.ncoef;
    copy.y.coef = y - i * p->y.ncoef;
    memcpy(x, p->x.coef + i * p->x.ncoef, p->x.ncoef * sizeof *x);
    memcpy(y, p->y.coef + i * p->y.ncoef, p->y.ncoef * sizeof *y);
    x[0] += dx;
    y[0] += dy;
    if (spx_psf_spot(&copy, i, wave, work, spot, &at) != SPX_SPOT_OK)
        return 0;
    memset(out, 0, CANVAS * CANVAS * sizeof *out);
    for (int r = 0; r < spx_psf_ny(p); r++)
        for (int c = 0; c < spx_psf_nx(p); c++) {
            const long py = at.yc + r - yc + CANVAS / 2, px = at.xc + c - xc + CANVAS / 2;
            if (py >= 0 && px >= 0 && py < CANVAS && px < CANVAS)
                out[py * CANVAS + px] = spot[r * spx_psf_nx(p) + c];
        }
    return 1;
}

/* Place error of a fitted spot: fit - truth projected on (dP/dX, dP/dY, P) of the truth; and what is left of the shape:
 * rms over pixels above a tenth of the peak, and the largest, by the peak. */
static inline int scene_compare(const psffit_scene *s, const spx_psf *fit, size_t i, double wave, double *ex,
                                double *ey, double *core, double *worst)
{
    static const double h = 1e-3;
    double t[CANVAS * CANVAS], f[CANVAS * CANVAS], d[3][CANVAS * CANVAS], up[CANVAS * CANVAS], a[3][4] = {{0}};
    const long xc = (long)floor(spx_psf_series_value(&s->truth.x, i, wave) + 0.5);
    const long yc = (long)floor(spx_psf_series_value(&s->truth.y, i, wave) + 0.5);
    if (!scene_canvas(&s->truth, i, wave, 0, 0, xc, yc, t) || !scene_canvas(fit, i, wave, 0, 0, xc, yc, f))
        return 0;
    for (int k = 0; k < 2; k++) {
        if (!scene_canvas(&s->truth, i, wave, k ? 0 : h, k ? h : 0, xc, yc, up) ||
            !scene_canvas(&s->truth, i, wave, k ? 0 : -h, k ? -h : 0, xc, yc, d[k]))
            return 0;
        for (int p = 0; p < CANVAS * CANVAS; p++)
            d[k][p] = (up[p] - d[k][p]) / (2 * h);
    }
    memcpy(d[2], t, sizeof t);
    double peak = 0;
    for (int p = 0; p < CANVAS * CANVAS; p++) {
        peak = fmax(peak, t[p]);
        for (int k = 0; k < 3; k++) {
            for (int l = 0; l < 3; l++)
                a[k][l] += d[k][p] * d[l][p];
            a[k][3] += d[k][p] * (f[p] - t[p]);
        }
    }
    for (int k = 0; k < 3; k++)
        for (int l = 0; l < 3; l++)
            if (l != k) {
                const double by = a[l][k] / a[k][k];
                for (int m = 0; m < 4; m++)
                    a[l][m] -= by * a[k][m];
            }
    double c[3], sum = 0;
    int n = 0;
    for (int k = 0; k < 3; k++)
        c[k] = a[k][3] / a[k][k];
    *ex = c[0];
    *ey = c[1];
    *worst = 0;
    for (int p = 0; p < CANVAS * CANVAS; p++) {
        const double left = (f[p] - t[p] - c[0] * d[0][p] - c[1] * d[1][p] - c[2] * d[2][p]) / peak;
        if (t[p] > 0.1 * peak) {
            sum += left * left;
            n++;
        }
        *worst = fmax(*worst, fabs(left));
    }
    *core = sqrt(sum / (n > 0 ? n : 1));
    return 1;
}

typedef struct {
    size_t n;
    double rms[2], limit[2];          /* of places, pixels; rms of the errors given */
    double median[2], mad[2];         /* of (fit - truth) / error: median and 1.4826 MAD */
    double kms_mean, kms_rms;         /* of the wavelength */
    double core, worst_median, worst; /* of the shape, by the peak */
    double core_limit;                /* rms of what the covariance says of core; 0: not asked for */
    double chi2;                      /* median of fibres */
} psffit_score;

/* Mean square that the covariance of the shape says of `core` (scene_compare()), by the peak, for a fit with na terms
 * along fibres and nb along wavelengths: derivatives of the spot by each parameter, without what place and flux take of
 * them. Of Gauss-Hermite series of at most degree 6. */
static inline double scene_core_variance(const psffit_scene *s, const spx_psf *fit, const spx_psffit *f, size_t i,
                                         double wave, size_t na, size_t nb)
{
    enum { MOST = 50 };
    static const double h = 1e-4;
    static double d[MOST + 3][CANVAS * CANVAS], c[MOST][MOST];
    double t[CANVAS * CANVAS], up[CANVAS * CANVAS], term[16], along[16], peak = 0, sum = 0;
    const size_t nq = f->nshape / (na * nb), in = i % s->r.bundle, bundle = i / s->r.bundle;
    const long xc = (long)floor(spx_psf_series_value(&s->truth.x, i, wave) + 0.5);
    const long yc = (long)floor(spx_psf_series_value(&s->truth.y, i, wave) + 0.5);
    if (nq > MOST || nq != fit->npar - 1 || na > 16 || nb > 16 || !scene_canvas(fit, i, wave, 0, 0, xc, yc, t))
        return 0;
    spx_psf near = *fit;
    for (size_t q = 0; q < nq + 2; q++) {
        double *at = q < nq ? &near.coeff[((q < 2 ? q : q + 1) * fit->nspec + i) * fit->ndeg] : NULL;
        for (int side = 0; side < 2; side++) {
            const double by = side ? h : -h, was = at != NULL ? *at : 0;
            if (at != NULL)
                *at += by;
            const int ok = scene_canvas(&near, i, wave, q == nq ? by : 0, q == nq + 1 ? by : 0, xc, yc,
                                        side ? up : d[q < nq ? q + 3 : q - nq]);
            if (at != NULL)
                *at = was;
            if (!ok)
                return 0;
        }
        for (int p = 0; p < CANVAS * CANVAS; p++) {
            double *to = &d[q < nq ? q + 3 : q - nq][p];
            *to = (up[p] - *to) / (2 * h);
        }
    }
    memcpy(d[2], t, sizeof t);
    for (size_t k = 0; k < nq + 3; k++) /* Gram-Schmidt */
        for (size_t l = 0; l < 3 && l < k; l++) {
            double dot = 0, norm = 0;
            for (int p = 0; p < CANVAS * CANVAS; p++) {
                dot += d[k][p] * d[l][p];
                norm += d[l][p] * d[l][p];
            }
            for (int p = 0; p < CANVAS * CANVAS; p++)
                d[k][p] -= dot / norm * d[l][p];
        }
    spx_legendre_basis(nb, 2 * (wave - fit->x.wmin) / (fit->x.wmax - fit->x.wmin) - 1, term);
    spx_legendre_basis(na, s->r.bundle > 1 ? 2.0 * (double)in / (double)(s->r.bundle - 1) - 1 : 0, along);
    const float *cov = f->cov_shape + bundle * f->nshape * f->nshape;
    for (size_t q = 0; q < nq; q++)
        for (size_t r = 0; r < nq; r++) {
            c[q][r] = 0;
            for (size_t m = 0; m < na * nb; m++)
                for (size_t n = 0; n < na * nb; n++)
                    c[q][r] += term[m / na] * along[m % na] * term[n / na] * along[n % na] *
                               (double)cov[(m * nq + q) * f->nshape + n * nq + r];
        }
    size_t n = 0;
    for (int p = 0; p < CANVAS * CANVAS; p++)
        peak = fmax(peak, t[p]);
    for (int p = 0; p < CANVAS * CANVAS; p++) {
        if (!(t[p] > 0.1 * peak))
            continue;
        n++;
        for (size_t q = 0; q < nq; q++)
            for (size_t r = 0; r < nq; r++)
                sum += d[q + 3][p] * c[q][r] * d[r + 3][p];
    }
    return n > 0 ? sum / ((double)n * peak * peak) : 0;
}

/* All fibres without the flags of `skip`, at the places where errors are given. */
static inline psffit_score scene_score(const psffit_scene *s, const spx_psf *fit, const spx_psffit *f, unsigned skip)
{
    psffit_score o = {0};
    const size_t most = f->nspec * f->nplace;
    double *pull = spx_alloc(4 * most + f->nspec, sizeof *pull, NULL), *worst = pull + 2 * most,
           *chi2 = pull + 4 * most;
    size_t nchi2 = 0;
    if (pull == NULL)
        return o;
    for (size_t i = 0; i < f->nspec; i++) {
        if (f->fibre[i].status & skip)
            continue;
        chi2[nchi2++] = f->fibre[i].chi2;
        for (size_t k = 0; k < f->nplace; k++) {
            double e[2], core, most_left;
            const double error[2] = {f->x_error[i * f->nplace + k], f->y_error[i * f->nplace + k]};
            const double wave = f->place[k];
            if (!(error[0] > 0) || !scene_compare(s, fit, i, wave, &e[0], &e[1], &core, &most_left))
                continue;
            for (int y = 0; y < 2; y++) {
                o.rms[y] += e[y] * e[y];
                o.limit[y] += error[y] * error[y];
                pull[(size_t)y * most + o.n] = e[y] / error[y];
            }
            const double rows =
                spx_psf_series_value(&s->truth.y, i, wave + 1) - spx_psf_series_value(&s->truth.y, i, wave - 1);
            const double kms = e[1] * 2 / rows / wave * 299792.458;
            o.kms_mean += kms;
            o.kms_rms += kms * kms;
            o.core += core * core;
            o.worst = fmax(o.worst, most_left);
            worst[o.n++] = most_left;
        }
    }
    const double n = o.n > 0 ? (double)o.n : 1;
    for (int y = 0; y < 2; y++) {
        o.rms[y] = sqrt(o.rms[y] / n);
        o.limit[y] = sqrt(o.limit[y] / n);
        double *p = pull + (size_t)y * most;
        o.median[y] = spx_median(p, o.n);
        for (size_t k = 0; k < o.n; k++)
            p[k] = fabs(p[k] - o.median[y]);
        o.mad[y] = 1.4826 * spx_median(p, o.n);
    }
    o.kms_mean /= n;
    o.kms_rms = sqrt(o.kms_rms / n);
    o.core = sqrt(o.core / n);
    o.worst_median = spx_median(worst, o.n);
    o.chi2 = spx_median(chi2, nchi2);
    spx_free(pull);
    return o;
}

static inline void scene_print(const char *name, const psffit_score *o)
{
    printf(
        "%-10s n %4zu  x rms %.5f limit %.5f pull %+.2f %.2f  y rms %.5f limit %.5f pull %+.2f %.2f  km/s %+.4f %.4f  "
        "shape core %.5f pixel %.5f %.5f  chi2 %.4f  core limit %.5f\n",
        name, o->n, o->rms[0], o->limit[0], o->median[0], o->mad[0], o->rms[1], o->limit[1], o->median[1], o->mad[1],
        o->kms_mean, o->kms_rms, o->core, o->worst_median, o->worst, o->chi2, o->core_limit);
}

#endif
