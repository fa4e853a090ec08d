/* Provides the velocity scan: the objective along v at the templates of a minimum, all over the range of velocities, to
 * see where other minima may be.
 *
 * The objective spends its time in S'S of the npoly functions of the continuum, npoly^2/2 products a pixel, or 10 of
 * splines. Here the functions are replaced by their best straight lines in blocks of pixels, of which only the moments
 * with T^2/e^2 and T f/e^2 are needed: five sums a pixel. It is the objective itself for a continuum that is a little
 * different, so that minima are where they are; how deep they are is then seen by the objective. */
#include <math.h>
#include <string.h>

#include "calib/band.h"
#include "rvfit/search/search.h"

/* Adds the objective of a piece; HUGE_VAL where it cannot be computed. */
static void add_piece(spx_rv_spectra *w, const spx_rv_data *d)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    const spx_rv_lines *l = &a->lines;
    double *weight = w->workspace->q, *data = w->workspace->r, square = 0;
    for (size_t i = 0; i < a->stride; i++) {
        weight[i] = d->ie[i] * d->ie[i];
        data[i] = d->flux[i] * weight[i];
        square += d->flux[i] * data[i];
    }
    for (size_t i = 0; i < c->scan.n; i++) {
        double gram[SPX_RVFIT_MAX_POLY * SPX_RVFIT_MAX_POLY], right[SPX_RVFIT_MAX_POLY], solved[SPX_RVFIT_MAX_POLY];
        double v = c->lo[0] + (double)i * c->scan.step, f = square;
        if (c->opt->resolution)
            c->kernels->scan(a->n, l, NULL, 0, 0, spx_rv_sample(w, d, v), weight, data, gram, right);
        else
            c->kernels->scan(a->n, l, a->place, spx_rv_lnshift(v) / a->setup->dlnwave, a->nt, w->workspace->y[d->arm],
                             weight, data, gram, right);
        if (spx_band_factor(l->functions, (int)l->band, gram, 0, gram) > 0) {
            w->scan[i] = HUGE_VAL;
            continue;
        }
        memcpy(solved, right, l->functions * sizeof *right);
        spx_band_solve(l->functions, (int)l->band, gram, solved);
        for (size_t k = 0; k < l->functions; k++)
            f -= solved[k] * right[k];
        w->scan[i] += f + spx_rv_lndet(l->functions, gram) + a->basis.lndet + d->sum_lne2;
    }
}

void spx_rv_velocity_scan(spx_rv_spectra *w)
{
    const spx_rv_ctx *c = w->ctx;
    int lines = 1;
    for (size_t i = 0; i < w->first[c->narm]; i++)
        lines = lines && c->arm[w->piece[i].arm].lines.per > 0;
    for (size_t i = 0; i < c->scan.n; i++) {
        spx_rv_value at;
        const double v = c->lo[0] + (double)i * c->scan.step;
        if (lines)
            spx_rv_begin_value(w, v, &at);
        else
            spx_rv_project(w, v, &at);
        w->scan[i] = at.f;
    }
    for (size_t i = 0; i < w->first[c->narm] && lines; i++)
        add_piece(w, &w->piece[i]);
}
