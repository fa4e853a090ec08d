/* Provides the agreement of exposures that are fitted as one star: has each of them the velocity of the joint fit?
 *
 * The model of an exposure, with its own continuum, is shifted along the pixels by a velocity u and scaled, piece by
 * piece; chi^2 of the good pixels at u, less that at 0, says how many errors the exposure's velocity is away from that
 * of the star. Shifts below a few km/s are the wavelength calibration's. The model's samples are interpolated by
 * cubics, which is exact enough to find another velocity, though not to measure it. */
#include <math.h>

#include "num/wave.h"
#include "products/plausible.h"
#include "rvfit/search/group.h"

/* Least difference of velocities that counts, km/s. */
static const double LEAST = 5;

/* Model of n pixels at a place between pixels j and j+1, by cubics through four of them. */
static double between(const double *model, const double *place, size_t n, size_t j, double p)
{
    const double t = (p - place[j]) / (place[j + 1] - place[j]);
    const double a = model[j > 0 ? j - 1 : j], b = model[j], c = model[j + 1], d = model[j + 2 < n ? j + 2 : j + 1];
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

/* chi^2 of a piece whose model is shifted by u, and scaled. */
static double shifted_chisq(const spx_rv_arm *arm, const spx_rv_data *d, double u)
{
    const double shift = log1p(u / SPX_C_KMS) / arm->setup->dlnwave;
    double ff = 0, fm = 0, mm = 0;
    for (size_t i = 0, j = 0; i < arm->n; i++) {
        const double p = arm->place[i] - shift, w = d->ie[i] * d->ie[i];
        double m;
        if (!d->good[i])
            continue;
        while (j + 2 < arm->n && arm->place[j + 1] <= p)
            j++;
        if (p <= arm->place[0])
            m = d->model[0];
        else if (p >= arm->place[arm->n - 1])
            m = d->model[arm->n - 1];
        else
            m = between(d->model, arm->place, arm->n, j, p);
        ff += w * d->flux[i] * d->flux[i];
        fm += w * d->flux[i] * m;
        mm += w * m * m;
    }
    return mm > 0 ? ff - fm * fm / mm : ff;
}

/* The same of all pieces of an exposure. */
static double exposure_chisq(const spx_rv_spectra *w, size_t exposure, double u, double *npix, double *pixel)
{
    const spx_rv_ctx *c = w->ctx;
    double chisq = 0;
    *npix = 0;
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        const spx_rv_arm *arm = &c->arm[d->arm];
        if (d->exposure != exposure || arm->n < 4)
            continue;
        chisq += shifted_chisq(arm, d, u);
        *npix += (double)d->ngood;
        *pixel = SPX_C_KMS * arm->setup->dlnwave * (arm->place[arm->n - 1] - arm->place[0]) / (double)(arm->n - 1);
    }
    return chisq;
}

/* Errors by which an exposure's velocity differs from v. */
static double disagreement(const spx_rv_spectra *w, size_t exposure, double v)
{
    const spx_rvfit_options *o = w->ctx->opt;
    double npix = 0, pixel = 0, best = 0, at = 0;
    const double here = exposure_chisq(w, exposure, 0, &npix, &pixel);
    if (!(npix > 0) || !(pixel > 0))
        return 0;
    best = here;
    for (double u = o->vmin - v; u <= o->vmax - v; u += 0.5 * pixel) {
        const double f = exposure_chisq(w, exposure, u, &npix, &pixel);
        if (f < best) {
            best = f;
            at = u;
        }
    }
    /* a misfit that is there at any velocity says nothing of this one */
    return fabs(at) < LEAST ? 0 : sqrt((here - best) / fmax(1, best / npix));
}

int spx_rv_exposures_differ(const spx_rv_spectra *w, size_t first, size_t end, double v)
{
    for (size_t x = first; x < end && end - first > 1; x++)
        if (spx_rule_broken(SPX_RULE_EXPOSURES, disagreement(w, x, v)))
            return 1;
    return 0;
}
