/* Provides the velocity scan: the objective along v at the templates of a minimum, all over the range of velocities, to
 * see where other minima may be.
 *
 * The objective spends its time in S'S of the npoly functions of the continuum, npoly^2/2 products a pixel, or 10 of
 * splines. Here the functions are replaced by their best straight lines in blocks of pixels, of which only the moments
 * with T^2/e^2 and T f/e^2 are needed: five sums a pixel, of several velocities side by side. It is the objective
 * itself for a continuum that is a little different, so that minima are where they are; how deep they are is then seen
 * by the objective. */
#include <math.h>
#include <string.h>

#include "rvfit/search/search.h"

/* Pixels of a piece, as the scan sees them; returns the sum of (flux/e)^2. */
static double prepare_pixels(spx_rv_spectra *w, const spx_rv_data *d)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    const size_t per = a->lines.per;
    double square = 0;
    for (size_t i0 = 0; i0 < a->n; i0 += per)
        for (size_t i = i0; i < a->n && i < i0 + per; i++) {
            const double x = (double)(i - i0) - 0.5 * (double)(per - 1), iv = d->ie[i] * d->ie[i],
                         data = d->flux[i] * iv;
            int32_t k = (int32_t)a->place[i];
            k -= (double)k > a->place[i];
            w->workspace->pixel[i] = (spx_rv_scan_pixel){
                .weight = {iv, iv * x, iv * x * x, data, data * x}, .k = k, .u = (float)(a->place[i] - (double)k)};
            square += d->flux[i] * data;
        }
    return square;
}

/* The template of an arm between its own pixels, from the coefficients c of its spline: straight lines, or the spline
 * itself, where a resolution matrix takes narrow lines. */
static void prepare_template(spx_rv_workspace *r, int spline, size_t nt, const double *c)
{
    float *restrict value = r->curve[0] + 1, *restrict slope = r->curve[1] + 1;
    for (size_t k = 0; k < nt; k++)
        value[k] = (float)((c[k] + 4 * c[k + 1] + c[k + 2]) * (1. / 6));
    if (spline) {
        float *restrict square = r->curve[2] + 1, *restrict cube = r->curve[3] + 1;
        for (size_t k = 0; k + 1 < nt; k++) {
            slope[k] = (float)(0.5 * (c[k + 2] - c[k]));
            square[k] = (float)(0.5 * ((c[k] - c[k + 1]) + (c[k + 2] - c[k + 1])));
            cube[k] = (float)(((c[k + 3] - c[k]) + 3 * (c[k + 1] - c[k + 2])) * (1. / 6));
        }
        square[-1] = square[nt - 1] = cube[-1] = cube[nt - 1] = 0;
    } else {
        for (size_t k = 0; k + 1 < nt; k++)
            slope[k] = (float)(((c[k + 3] - c[k]) + 3 * (c[k + 2] - c[k + 1])) * (1. / 6));
    }
    slope[-1] = slope[nt - 1] = 0;
    value[-1] = value[0];
}

/* Templates at so many velocities, from number i of the scan on, as a piece sees them: rows[n][SPX_RV_LANES]. */
static void sample_rows(spx_rv_spectra *w, const spx_rv_data *d, size_t i, double *rows)
{
    const spx_rv_ctx *c = w->ctx;
    for (size_t k = 0; k < SPX_RV_LANES; k++) {
        const double *t = spx_rv_sample(w, d, c->lo[0] + (double)(i + k) * c->scan.step);
        for (size_t j = 0; j < c->arm[d->arm].n; j++)
            rows[j * SPX_RV_LANES + k] = t[j];
    }
}

/* Adds the objective of a piece; HUGE_VAL where it cannot be computed. */
static void add_piece(spx_rv_spectra *w, const spx_rv_data *d)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    spx_rv_workspace *r = w->workspace;
    const double constant = prepare_pixels(w, d) + a->basis.lndet + d->sum_lne2;
    const int resolution = c->opt->resolution, fine = a->fine.per > 0;
    if (!fine)
        prepare_template(r, resolution, a->nt, r->at->c[d->arm]);
    for (size_t i = 0; i < c->scan.n; i += SPX_RV_LANES) {
        double shift[SPX_RV_LANES], f[SPX_RV_LANES];
        for (size_t k = 0; k < SPX_RV_LANES; k++) /* those beyond the range are as good as others */
            shift[k] = spx_rv_lnshift(c->lo[0] + (double)(i + k) * c->scan.step) / a->setup->dlnwave;
        if (fine)
            sample_rows(w, d, i, r->rows);
        else if (resolution)
            c->kernels->moved(a->n, r->pixel, (const float *const *)r->curve, a->nt, shift, a->arm->ndiag, d->band,
                              r->rows);
        c->kernels->scan(a->n, &a->lines, r->pixel, r->curve[0], r->curve[1], a->nt, shift, resolution ? r->rows : NULL,
                         f);
        for (size_t k = 0; k < SPX_RV_LANES && i + k < c->scan.n; k++)
            w->scan[i + k] = f[k] < HUGE_VAL ? w->scan[i + k] + f[k] + constant : HUGE_VAL;
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
