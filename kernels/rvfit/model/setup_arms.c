/* Provides what the model needs of an arm: its pixels on the templates' grid, and the principal components in tiles. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"
#include "spectral/nn_math.h"

enum { EDGE_PIXELS = 5 };
static const double DICHROIC_MIN = 4300, DICHROIC_MAX = 4450;

spx_status spx_rv_make_coefficients(spx_rv_arm *a, spx_err *e)
{
    const spx_pca *p = &a->setup->pca;
    const size_t n = (p->ncomp + SPX_RV_PAD - 1) / SPX_RV_PAD * SPX_RV_PAD;
    a->ncoef = n;
    if ((a->coef = spx_alloc2(a->setup->ntemp, n, sizeof *a->coef, e)) == NULL)
        return SPX_EIO;
    for (size_t t = 0; t < a->setup->ntemp; t++)
        for (size_t k = 0; k < p->ncomp; k++)
            a->coef[t * n + k] = (float)p->coef[t * p->ncomp + k];
    return SPX_OK;
}

/* Principal components in the order in which they are used: tile after tile. */
static spx_status make_tiles(spx_rv_arm *a, spx_err *e)
{
    const spx_pca *p = &a->setup->pca;
    size_t nc = p->ncomp;
    a->comp = spx_alloc2(a->ntile * SPX_RV_TILE, nc, sizeof *a->comp, e);
    a->mean = spx_alloc(a->ntile * SPX_RV_TILE, sizeof *a->mean, e);
    if (!a->comp || !a->mean)
        return SPX_EIO;
    memcpy(a->mean, p->mean, a->nt * sizeof *a->mean);
    for (size_t k = 0; k < nc; k++)
        for (size_t i = 0; i < a->nt; i++)
            a->comp[(i / SPX_RV_TILE * nc + k) * SPX_RV_TILE + i % SPX_RV_TILE] = p->comp[k * a->nt + i];
    return p->coef != NULL ? spx_rv_make_coefficients(a, e) : SPX_OK;
}

/* Pixels in the templates' medium and on their grid; is the range covered? */
static spx_status make_pixels(spx_rv_arm *a, const spx_rvfit_options *o, spx_err *e)
{
    const spx_arm *d = a->arm;
    const spx_setup *s = a->setup;
    size_t n = a->n;
    a->wave = spx_alloc(n, sizeof *a->wave, e);
    a->lnwave = spx_alloc(n, sizeof *a->lnwave, e);
    a->place = spx_alloc(n, sizeof *a->place, e);
    a->leftout = spx_alloc(n, 1, e);
    a->cprime = spx_alloc(a->nt, sizeof *a->cprime, e);
    if (!a->wave || !a->lnwave || !a->place || !a->leftout || !a->cprime)
        return SPX_EIO;
    memcpy(a->wave, d->wavelength, n * sizeof *a->wave);
    spx_rv_spline_factor(a->nt, a->cprime);
    for (size_t i = 0; i < n; i++) {
        double w = d->wavelength[i];
        if (!isfinite(w) || !(w > 0) || (i && !(w > d->wavelength[i - 1])))
            return spx_fail(e, SPX_EINPUT, "arm '%.15s': wavelengths are not increasing at pixel %zu", d->name, i);
        a->leftout[i] = (o->dichroic && w > DICHROIC_MIN && w < DICHROIC_MAX) ||
                        (o->resolution && (i < EDGE_PIXELS || i + EDGE_PIXELS >= n));
        if (d->medium != s->medium)
            w = s->medium == SPX_AIR ? spx_vacuum_to_air(w) : spx_air_to_vacuum(w);
        a->lnwave[i] = log(w);
        a->place[i] = (a->lnwave[i] - s->lnwave0) / s->dlnwave;
    }
    /* Setups end within a pixel of their range times 1 +- 1000 km/s / c, which is 2 km/s less than 1000 km/s. */
    double grace = 1 + 1e-5 / s->dlnwave;
    double first = a->place[0] + spx_rv_lnshift(o->vmax) / s->dlnwave;
    double last = a->place[n - 1] + spx_rv_lnshift(o->vmin) / s->dlnwave;
    if (!(first >= -grace) || !(last <= (double)(s->nwave - 1) + grace)) {
        /* a setup reaches 1000 km/s beyond the range that rvs-template is given; with the same grace, so that the arm's
         * own ends are asked for where these do */
        const double lo = exp(s->lnwave0 + first * s->dlnwave), hi = exp(s->lnwave0 + last * s->dlnwave),
                     beyond = 1 + 1000 / SPX_C_KMS, from = floor(lo * beyond * (1 + 1e-5)),
                     to = ceil(hi / beyond * (1 - 1e-5)), has_lo = exp(s->lnwave0),
                     has_hi = exp(s->lnwave0 + (double)(s->nwave - 1) * s->dlnwave);
        if (lo > has_hi || hi < has_lo)
            return spx_fail(
                e, SPX_EINPUT,
                "arm '%.15s' (%.1f-%.1f Angstrom) has nothing of setup '%.63s' (%.1f-%.1f), which is "
                "another arm's: make one with {make_templates} {setup} %.15s:%.0f:%.0f:..., or leave the arm out "
                "with {arms}",
                d->name, d->wavelength[0], d->wavelength[n - 1], s->setup, has_lo, has_hi, d->name, from, to);
        return spx_fail(e, SPX_EINPUT,
                        "arm '%.15s' (%.1f-%.1f Angstrom, v %g to %g km/s) needs templates of %.1f-%.1f Angstrom, "
                        "setup '%.63s' has %.1f-%.1f: make a wider setup with {make_templates} {setup} "
                        "%.63s:%.0f:%.0f:... (which adds "
                        "1000 km/s at both ends) of a library that reaches so far, or narrow {vrange}, or fit less of "
                        "the arm with {wavelength}",
                        d->name, d->wavelength[0], d->wavelength[n - 1], o->vmin, o->vmax, lo, hi, s->setup, has_lo,
                        has_hi, s->setup, from, to);
    }
    return SPX_OK;
}

spx_status spx_rv_make_arm(spx_rv_ctx *c, spx_rv_arm *a, spx_err *e)
{
    const spx_rvfit_options *o = c->opt;
    spx_status st = spx_rv_check_setup(a->setup, c->interpolator, e);
    if (st != SPX_OK)
        return st;
    a->n = a->arm->nwave;
    a->nt = a->setup->nwave;
    a->stride = (a->n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    a->ntile = (a->nt + SPX_RV_TILE - 1) / SPX_RV_TILE;
    if (a->n < 2)
        return spx_fail(e, SPX_EINPUT, "arm '%.15s' has %zu pixels: nothing to fit", a->arm->name, a->n);
    a->ndiag = o->resolution ? a->arm->ndiag : 0;
    if (o->resolution && !a->arm->resolution)
        return spx_fail_remedy(e, SPX_EINPUT, "fit without {resolution_matrix}", "arm '%.15s' has no resolution matrix",
                               a->arm->name);
    if (o->resolution && (a->arm->ndiag % 2 == 0 || a->arm->ndiag > SPX_MAX_NDIAG))
        return spx_fail_remedy(e, SPX_EINPUT, "fit without {resolution_matrix}",
                               "arm '%.15s': resolution matrix has %zu diagonals, want an odd number up to %d",
                               a->arm->name, a->arm->ndiag, SPX_MAX_NDIAG);
    if ((st = make_pixels(a, o, e)) != SPX_OK || (st = spx_rv_make_basis(a, o, e)) != SPX_OK)
        return st;
    if (o->resolution && (st = spx_rv_make_match(a, o->lsf_sigma, e)) != SPX_OK)
        return st;
    if (c->interpolator != SPX_INTERPOLATE_GRID && a->setup->pca.ncomp > 0 && (st = make_tiles(a, e)) != SPX_OK)
        return st;
    c->size.n = a->stride > c->size.n ? a->stride : c->size.n;
    c->size.nt = a->ntile * SPX_RV_TILE > c->size.nt ? a->ntile * SPX_RV_TILE : c->size.nt;
    c->size.sample = a->stride > c->size.sample ? a->stride : c->size.sample;
    size_t row = o->resolution ? a->arm->ndiag : 0;
    if (o->transmission != NULL) {
        if ((st = spx_rv_make_fine(a, o->transmission, e)) != SPX_OK)
            return st;
        row = 2 * a->fine.half + 1;
        const size_t n = (a->fine.n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
        c->size.sample = n > c->size.sample ? n : c->size.sample;
    }
    c->size.band = a->n * row > c->size.band ? a->n * row : c->size.band;
    const size_t ncomp = a->ncoef > a->setup->pca.ncomp ? a->ncoef : a->setup->pca.ncomp;
    c->size.comp = ncomp > c->size.comp ? ncomp : c->size.comp;
    if (c->interpolator == SPX_INTERPOLATE_NN) {
        size_t width = spx_nn_width(&a->setup->nn);
        c->size.width = width > c->size.width ? width : c->size.width;
    }
    return SPX_OK;
}
