/* Provides simulated exposures of a lamp for tests and benchmarks of the fibre flat field: smooth throughputs, a lamp
 * with an edge, resolution matrices that differ between fibres, noise. random.h has to be begun. */
#ifndef FLAT_SCENE_H
#define FLAT_SCENE_H

#include <math.h>

#include "device.h"
#include "flat/flat.h"
#include "random.h"

typedef struct {
    size_t nexp, nspec, nwave, ndiag;
    double *wavelength, *truth, *lamp; /* truth: [nspec][nwave], mean 1 */
    double **flux, **ivar, **resolution;
    uint32_t **mask;
} flat_scene;

static inline void flat_scene_free(flat_scene *c)
{
    for (size_t x = 0; x < c->nexp; x++) {
        spx_free(c->flux[x]);
        spx_free(c->ivar[x]);
        spx_free(c->mask[x]);
        spx_free(c->resolution[x]);
    }
    spx_free(c->flux);
    spx_free(c->ivar);
    spx_free(c->mask);
    spx_free(c->resolution);
    spx_free(c->wavelength);
    spx_free(c->truth);
    spx_free(c->lamp);
}

static inline spx_flat_input flat_scene_input(const flat_scene *c)
{
    return (spx_flat_input){.nexp = c->nexp,
                            .nspec = c->nspec,
                            .nwave = c->nwave,
                            .ndiag = c->ndiag,
                            .wavelength = c->wavelength,
                            .flux = (const double *const *)c->flux,
                            .ivar = (const double *const *)c->ivar,
                            .resolution = (const double *const *)c->resolution,
                            .mask = (const uint32_t *const *)c->mask};
}

/* Throughputs: a level, and `waves` periods of a few per cent over the arm. */
static inline void flat_scene_truth(flat_scene *c, double waves)
{
    for (size_t i = 0; i < c->nspec; i++) {
        const double level = 0.85 + 0.3 * uniform(), tilt = 0.1 * gauss(), phase = 6 * uniform();
        for (size_t k = 0; k < c->nwave; k++) {
            const double u = 2 * (double)k / (double)(c->nwave - 1) - 1;
            c->truth[i * c->nwave + k] = level * (1 + tilt * u + 0.04 * sin(M_PI * waves * u + phase));
        }
    }
    for (size_t k = 0; k < c->nwave; k++) {
        double sum = 0;
        for (size_t i = 0; i < c->nspec; i++)
            sum += c->truth[i * c->nwave + k];
        for (size_t i = 0; i < c->nspec; i++)
            c->truth[i * c->nwave + k] *= (double)c->nspec / sum;
    }
}

/* Resolution of a fibre: Gaussians of its own width, rows that sum to 1. */
static inline void flat_scene_resolution(size_t n, size_t ndiag, double width, double *r)
{
    const long half = (long)(ndiag / 2);
    for (long k = 0; k < (long)n; k++) {
        double sum = 0;
        for (long j = k - half; j <= k + half; j++)
            if (j >= 0 && j < (long)n)
                sum += exp(-0.5 * (double)((j - k) * (j - k)) / (width * width));
        for (long j = k - half; j <= k + half; j++)
            if (j >= 0 && j < (long)n)
                r[(size_t)(half + k - j) * n + (size_t)j] =
                    exp(-0.5 * (double)((j - k) * (j - k)) / (width * width)) / sum;
    }
}

/* (R m)_k by its definition. */
static inline double flat_scene_convolved(size_t n, size_t ndiag, const double *r, const double *m, size_t k)
{
    const long half = (long)(ndiag / 2);
    double sum = 0;
    for (long j = (long)k - half; j <= (long)k + half; j++)
        if (j >= 0 && j < (long)n)
            sum += r[(size_t)(half + (long)k - j) * n + (size_t)j] * m[j];
    return sum;
}

/* Exposures of `light` electron/Angstrom in bins of 0.8 Angstrom, each a few per cent brighter than the one before;
 * edge: the lamp loses a third of its light within a bin in the middle. */
static inline flat_scene flat_scene_new(size_t nexp, size_t nspec, size_t nwave, size_t ndiag, double light,
                                        double waves, int edge)
{
    flat_scene c = {.nexp = nexp, .nspec = nspec, .nwave = nwave, .ndiag = ndiag};
    c.wavelength = need(nwave, sizeof *c.wavelength);
    c.lamp = need(nwave, sizeof *c.lamp);
    c.truth = need(nspec * nwave, sizeof *c.truth);
    c.flux = need(nexp, sizeof *c.flux);
    c.ivar = need(nexp, sizeof *c.ivar);
    c.mask = need(nexp, sizeof *c.mask);
    c.resolution = need(nexp, sizeof *c.resolution);
    flat_scene_truth(&c, waves);
    for (size_t k = 0; k < nwave; k++) {
        const double u = 2 * (double)k / (double)(nwave - 1) - 1;
        c.wavelength[k] = 7000 + 0.8 * (double)k;
        c.lamp[k] = light * (1 - 0.3 * u * u + 0.1 * u) * (edge && k > nwave / 2 ? 0.67 : 1);
    }
    for (size_t x = 0; x < nexp; x++) {
        const double gain = 1 + 0.04 * (double)x;
        c.flux[x] = need(nspec * nwave, sizeof **c.flux);
        c.ivar[x] = need(nspec * nwave, sizeof **c.ivar);
        c.mask[x] = need(nspec * nwave, sizeof **c.mask);
        c.resolution[x] = need(nspec * ndiag * nwave, sizeof **c.resolution);
        for (size_t i = 0; i < nspec; i++) {
            double *r = c.resolution[x] + i * ndiag * nwave;
            flat_scene_resolution(nwave, ndiag, (0.1 + 0.2 * (double)(ndiag / 2)) * (1 + 0.1 * sin((double)i)), r);
            for (size_t k = 0; k < nwave; k++) {
                const size_t at = i * nwave + k;
                const double flux = gain * c.truth[at] * flat_scene_convolved(nwave, ndiag, r, c.lamp, k);
                const double variance = 0.7 * flux + 9;
                c.flux[x][at] = flux + sqrt(variance) * gauss();
                c.ivar[x][at] = 1 / variance;
            }
        }
    }
    return c;
}

#endif
