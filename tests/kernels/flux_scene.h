/* Provides standard stars with a known response, for tests of stage `flux`: an arm of bins of 0.8 Angstrom, resolution
 * matrices that differ between fibres, a smooth throughput with telluric bands, stars with lines, noise, and models
 * that are wrong by a tilt, a wave and noise of their own. Uses tests/kernels/random.h. */
#ifndef FLUX_SCENE_H
#define FLUX_SCENE_H

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "flux/flux.h"
#include "random.h"

typedef struct {
    size_t nspec, nstar, n, ndiag;
    spx_arm arm;
    double *truth; /* [n] response, deconvolved */
    double *model; /* [nstar][n] as the fit is given them */
    double *star;  /* [nspec][n] true T of every fibre */
    double *scale; /* [nspec] true grey scales, median 1 */
    size_t *row;   /* [nstar] */
    spx_flux_stars in;
} flux_scene;

typedef struct {
    double first;             /* Angstrom */
    double sn;                /* of a bin; 0: no noise */
    double tilt, wave, grain; /* of the models: relative, at the ends, rms of a bin */
    int smooth;               /* 1: no telluric bands */
} flux_scene_how;

static double *flux_array(size_t n)
{
    spx_err e = {0};
    double *p = spx_alloc(n, sizeof *p, &e);
    if (p == NULL)
        exit(1);
    return p;
}

/* Response of a simulated arm: a hump with steep ends, times an atmosphere of narrow lines within the bands. */
static double flux_truth(double w, double first, double last, int smooth)
{
    const double u = 2 * (w - first) / (last - first) - 1;
    double c = 2 * exp(-0.5 * u * u) / (1 + exp((u - 0.93) / 0.015)) / (1 + exp((-0.95 - u) / 0.015)) + 0.01;
    for (size_t i = 0; i < spx_flux_nband && !smooth; i++) {
        const double lo = spx_flux_bands[i][0], hi = spx_flux_bands[i][1];
        if (w > lo && w < hi) {
            const double place = (w - lo) / (hi - lo), depth = 0.5 * sin(M_PI * place);
            c *= 1 - depth * (0.6 + 0.4 * sin(w * 1.9) * sin(w * 0.37));
        }
    }
    return c;
}

/* nspec fibres, of which the first nstar are standards. */
static void flux_scene_draw(flux_scene *s, size_t nspec, size_t nstar, size_t n, size_t ndiag, uint64_t seed,
                            const flux_scene_how *how)
{
    const double step = 0.8, last = how->first + step * (double)(n - 1);
    const size_t h = ndiag / 2;
    *s = (flux_scene){.nspec = nspec, .nstar = nstar, .n = n, .ndiag = ndiag};
    spx_arm *a = &s->arm;
    *a = (spx_arm){.name = "z", .nwave = n, .ndiag = ndiag, .unit = "electron/Angstrom"};
    a->wavelength = flux_array(n);
    a->flux = flux_array(nspec * n);
    a->ivar = flux_array(nspec * n);
    a->resolution = flux_array(nspec * ndiag * n);
    s->truth = flux_array(n);
    s->model = flux_array(nstar * n);
    s->star = flux_array(nspec * n);
    s->scale = flux_array(nspec);
    spx_err e = {0};
    s->row = spx_alloc(nstar, sizeof *s->row, &e);
    if (s->row == NULL || (a->mask = spx_alloc2(nspec, n, sizeof *a->mask, &e)) == NULL)
        exit(1);
    random_start(seed * 2654435761u + 88172645463325252u);
    for (size_t k = 0; k < n; k++) {
        a->wavelength[k] = how->first + step * (double)k;
        s->truth[k] = flux_truth(a->wavelength[k], how->first, last, how->smooth);
    }
    enum { LINES = 120 }; /* at places of their own, broader than a bin */
    double centre[LINES], depth[LINES];
    for (int l = 0; l < LINES; l++) {
        centre[l] = how->first + (last - how->first) * fmod(0.618034 * (l + 1), 1) * 1.02;
        depth[l] = 0.4 * fmod(0.31 * l + 0.1, 1);
    }
    for (size_t i = 0; i < nspec; i++) {
        const double slope = 0.3 * gauss(), shift = 300 * gauss() / 299792.458, width = 0.85 + 0.2 * uniform();
        double *t = s->star + i * n, *r = a->resolution + i * ndiag * n;
        s->scale[i] = exp(0.05 * gauss());
        for (size_t k = 0; k < n; k++) {
            const double w = a->wavelength[k], u = 2 * (double)k / (double)(n - 1) - 1;
            double tau = 0;
            for (int l = 0; l < LINES; l++) {
                const double x = (w - centre[l] * (1 + shift)) / 1.2;
                tau += x * x < 40 ? depth[l] * exp(-0.5 * x * x) : 0;
            }
            t[k] = 100 * (1 + slope * u) * exp(-tau);
        }
        for (size_t d = 0; d < ndiag; d++)
            for (size_t j = 0; j < n; j++) {
                const long k = (long)j + (long)d - (long)h;
                const double x = ((double)h - (double)d) / (width * (1 + 0.1 * (double)j / (double)n));
                r[d * n + j] = k < 0 || k >= (long)n ? 0 : exp(-0.5 * x * x);
            }
        for (size_t k = 0; k < n;
             k++) { /* whole rows of sum 1; those at the ends are cut, and the light goes on there */
            double sum = 0, whole = 0, flux = 0;
            for (size_t d = 0; d < ndiag; d++) {
                const long j = (long)k + (long)h - (long)d;
                const double x = ((double)h - (double)d) / width;
                sum += j >= 0 && j < (long)n ? r[d * n + (size_t)j] : 0;
                whole += exp(-0.5 * x * x);
            }
            whole = k < h || k + h >= n ? whole : sum;
            for (size_t d = 0; d < ndiag; d++) {
                const long j = (long)k + (long)h - (long)d;
                if (j < 0 || j >= (long)n)
                    continue;
                flux += r[d * n + (size_t)j] / sum * s->truth[j] * t[j];
                r[d * n + (size_t)j] /= whole;
            }
            flux *= s->scale[i];
            const double error = how->sn > 0 ? sqrt(fmax(flux, 5)) * sqrt(200.) / how->sn : 1;
            a->ivar[i * n + k] = 1 / (error * error);
            a->flux[i * n + k] = flux + (how->sn > 0 ? error * gauss() : 0);
        }
    }
    for (size_t i = 0; i < nstar; i++) {
        const double tilt = how->tilt * gauss(), wave = how->wave * sqrt(2.), phase = 6.2832 * uniform();
        const double period = 300 + 500 * uniform();
        s->row[i] = i;
        for (size_t k = 0; k < n; k++) {
            const double u = 2 * (double)k / (double)(n - 1) - 1;
            s->model[i * n + k] = s->star[i * n + k] * (1 + tilt * u) *
                                  (1 + wave * sin(6.2832 * a->wavelength[k] / period + phase)) *
                                  (1 + how->grain * gauss());
        }
    }
    s->in = (spx_flux_stars){.nstar = nstar, .row = s->row, .model = s->model, .calibrated = 1};
}

static void flux_scene_free(flux_scene *s)
{
    spx_arm_free(&s->arm);
    spx_free(s->truth);
    spx_free(s->model);
    spx_free(s->star);
    spx_free(s->scale);
    spx_free(s->row);
}

#endif
