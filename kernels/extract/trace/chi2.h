/* Provides chi^2 of the model, weighted with each bin's spot: a second pass over the spots. Lanes are columns of the
 * CCD. */
#ifndef SPX_EXTRACT_TRACE_CHI2_H
#define SPX_EXTRACT_TRACE_CHI2_H

#include <string.h>

#include "extract/trace/spots.h"

/* Add the model of one bin to the window. */
ALWAYS_INLINE void add_model(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *at,
                             const double *spot, double flux, double *model)
{
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    for (int y = 0; y < p->ny; y++, pixel += b->wnx)
        for (size_t x = 0; x < (size_t)p->nx; x += SPX_VL)
            store(model + pixel + x, load(model + pixel + x) + every(flux) * load(spot + (size_t)y * p->nxp + x));
}

/* Adds A v to the window model[wny][wnx]; v as b->x, bins where it is 0 are passed over. */
static spx_status render(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, const double *v,
                         double *model, spx_err *e)
{
    double *spot = spx_trace_workspace_get(r, SPX_BUFFER_RING, (size_t)p->ny, p->nxp, e);
    double *work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work, 1, e);
    if (!spot || !work)
        return SPX_EIO;
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < b->nf; f++) {
            const spx_bin_geometry *at = &b->at[k * b->nf + f];
            const double flux = v[k * b->nl + f];
            if (flux == 0.0 || b->state[k * b->nf + f] != SPX_TRACE_SPOT)
                continue;
            make_spot(p, b->fibre0 + f, k, at, work, spot);
            add_model(p, b, at, spot, flux, model);
        }
    return SPX_OK;
}

/* Rows first .. last-1 of the window: from the model to (p - M)^2 / (1/ivar + (psf_error M)^2), 0 without ivar. */
static void model_to_chi2(const spx_trace_plan *p, const spx_trace_bundle *b, size_t first, size_t last, double *model)
{
    const double psf_error = p->job->psf_error;
    for (size_t i = first * b->wnx; i < last * b->wnx; i++) {
        double ivar = (double)b->weight[i], error = psf_error * model[i], rest = (double)b->data[i] - model[i];
        model[i] = ivar > 0.0 ? rest * rest * ivar / (error * error * ivar + 1.0) : 0.0;
    }
}

ALWAYS_INLINE double gather_chi2(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *at,
                                 const double *spot, const double *chi2)
{
    vec sum = every(0.0);
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    for (int y = 0; y < p->ny; y++, pixel += b->wnx)
        for (size_t x = 0; x < (size_t)p->nx; x += SPX_VL)
            sum += load(spot + (size_t)y * p->nxp + x) * load(chi2 + pixel + x);
    return sum_lanes(sum);
}

static spx_status fit(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, size_t f0, size_t f1,
                      double *chi2, spx_err *e)
{
    const size_t nf = b->nf, npix = (size_t)p->ny * p->nxp, nwave = p->job->nwave, nl = b->nl;
    const size_t lag = (size_t)b->fit_depth, slots = lag + 1;
    double *model = spx_trace_workspace_get(r, SPX_BUFFER_MODEL, b->wny, b->wnx, e);
    double *ring = spx_trace_workspace_get(r, SPX_BUFFER_RING, slots * nf, npix, e);
    double *work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work, 1, e);
    if (!model || !ring || !work)
        return SPX_EIO;
    memset(model, 0, b->wny * b->wnx * sizeof *model);
    /* A bin is looked at `lag` bins after its own model was added: by then its rows are complete. With lag 0 (traces
     * that turn back) there are two passes over all bins instead. */
    size_t done = 0;
    for (size_t k = 0; k < p->nbin + lag; k++) {
        if (k < p->nbin)
            for (size_t f = 0; f < nf; f++) {
                if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                    continue;
                double *spot = ring + (k % slots * nf + f) * npix;
                make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, spot);
                add_model(p, b, &b->at[k * nf + f], spot, b->x[k * nl + f], model);
            }
        if (lag == 0 || k < lag)
            continue;
        size_t old = k - lag, need = done;
        for (size_t f = f0; f < f1; f++)
            if (b->state[old * nf + f] == SPX_TRACE_SPOT) {
                size_t end = (size_t)(b->at[old * nf + f].yc - b->wy0) + (size_t)p->ny;
                need = end > need ? end : need;
            }
        model_to_chi2(p, b, done, need, model);
        done = need;
        if (old < p->pad || old >= p->pad + nwave)
            continue;
        for (size_t f = f0; f < f1; f++)
            if (b->state[old * nf + f] == SPX_TRACE_SPOT && b->seen[old * nl + f] > 0.0)
                chi2[(f - f0) * nwave + old - p->pad] =
                    gather_chi2(p, b, &b->at[old * nf + f], ring + (old % slots * nf + f) * npix, model) /
                    b->seen[old * nl + f];
    }
    if (lag == 0) {
        model_to_chi2(p, b, 0, b->wny, model);
        for (size_t k = p->pad; k < p->pad + nwave; k++)
            for (size_t f = f0; f < f1; f++)
                if (b->state[k * nf + f] == SPX_TRACE_SPOT && b->seen[k * nl + f] > 0.0) {
                    make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, ring);
                    chi2[(f - f0) * nwave + k - p->pad] =
                        gather_chi2(p, b, &b->at[k * nf + f], ring, model) / b->seen[k * nl + f];
                }
    }
    return SPX_OK;
}

#endif
