/* Provides the velocity scan: the objective along v at the templates of a minimum, all over the range of velocities, to
 * see where other minima may be.
 *
 * The objective spends its time in S'S of the npoly functions of the continuum, npoly^2/2 products a pixel. Here the
 * functions are replaced by their best straight lines in blocks of pixels, of which only the moments with T^2/e^2 and
 * T f/e^2 are needed: five sums a pixel. It is the objective itself for a continuum that is a little different, so that
 * minima are where they are; how deep they are is then seen by the objective. */
#include <math.h>

#include "rvfit/search/search.h"

/* Adds the objective of a piece; HUGE_VAL where it cannot be computed. */
static void add_piece(spx_rv_spectra *w, const spx_rv_data *d)
{
    enum { CHOL = (SPX_RVFIT_MAX_POLY + 1) * (SPX_RVFIT_MAX_POLY + 2) / 2 };
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    const size_t np = c->opt->npoly;
    double *weight = w->workspace->q, *data = w->workspace->r, square = 0;
    for (size_t i = 0; i < a->stride; i++) {
        weight[i] = d->ie[i] * d->ie[i];
        data[i] = d->flux[i] * weight[i];
        square += d->flux[i] * data[i];
    }
    for (size_t i = 0; i < c->scan.n; i++) {
        double gram[CHOL], *b = gram + np * (np + 1) / 2, v = c->lo[0] + (double)i * c->scan.step, f = square;
        if (c->opt->resolution)
            c->kernels->scan(a->n, a->per, np, a->line, NULL, 0, 0, spx_rv_sample(w, d, v), weight, data, gram);
        else
            c->kernels->scan(a->n, a->per, np, a->line, a->place, spx_rv_lnshift(v) / a->setup->dlnwave, a->nt,
                             w->workspace->y[d->arm], weight, data, gram);
        if (!spx_rv_cholesky(np, gram, 0)) {
            w->scan[i] = HUGE_VAL;
            continue;
        }
        spx_rv_forward(np, gram, b);
        for (size_t k = 0; k < np; k++)
            f += 2 * log(gram[spx_rv_packed(k, k)]) - b[k] * b[k];
        w->scan[i] += f + a->lndet + d->sum_lne2;
    }
}

void spx_rv_velocity_scan(spx_rv_spectra *w)
{
    const spx_rv_ctx *c = w->ctx;
    int lines = 1;
    for (size_t i = 0; i < w->first[c->narm]; i++)
        lines = lines && c->arm[w->piece[i].arm].per > 0;
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
