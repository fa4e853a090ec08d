/* Provides shifts and widths along the traces (shift/shift.h, part Y), and the order of all steps. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "psf/psf_math.h"
#include "shift/shift.h"

/* A shift that is known worse than this is not applied, and one from which on the frame is extracted again, pixels. */
#define KNOWN 0.1
#define AGAIN 0.1
enum { MOST_ROUNDS = 3, NODES = 33 };

/* Value and error of a series with coefficients c[n] and covariance (rows of `stride`) at u. */
static double series_at(size_t n, const double *c, const double *cov, size_t stride, double u, double *error)
{
    double p[SPX_SKY_MOST], value = 0, variance = 0;
    spx_legendre(u, n, p);
    for (size_t i = 0; i < n; i++) {
        value += c[i] * p[i];
        for (size_t j = 0; j < n; j++)
            variance += p[i] * p[j] * cov[i * stride + j];
    }
    *error = variance > 0 ? sqrt(variance) : 0;
    return value;
}

/* dY/dlambda of a trace, pixels per Angstrom. */
static double dispersion(const spx_psf *psf, size_t f, double lambda)
{
    const double h = 0.5;
    return (spx_psf_series_value(&psf->y, f, lambda + h) - spx_psf_series_value(&psf->y, f, lambda - h)) / (2 * h);
}

static double sigma_y(const spx_psf *psf, size_t f, double lambda)
{
    return spx_legendre_sum(psf->ndeg, psf->coeff + ((size_t)psf->sigy * psf->nspec + f) * psf->ndeg,
                            spx_psf_u(psf->wmin, psf->wmax, lambda));
}

/* Zero point of the sky that the fibres share. */
static spx_status find_zero(const spx_frame *f, const spx_psf *psf, const spx_sky *sky, const spx_shift_lines *lines,
                            int nthreads, spx_shift_zero *zero, spx_err *e)
{
    const size_t n = f->arm.nwave, ns = f->nspec, ndiag = f->arm.ndiag;
    *zero = (spx_shift_zero){0};
    if (lines->n == 0)
        return SPX_OK;
    double *w = spx_alloc_unset(ns, n, sizeof *w, e), *info = spx_alloc2(ndiag, n, sizeof *info, e);
    uint8_t *use = spx_alloc(ns, 1, e);
    spx_status st = w && info && use ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < ns && st == SPX_OK; i++) {
        const double t = sky->nt > 0 ? sky->p[i * sky->nq] : 1;
        use[i] = sky->role[i] == SPX_SKY_FIBRE;
        for (size_t k = 0; k < n; k++) {
            const double ivar = f->arm.mask == NULL || f->arm.mask[i * n + k] == 0 ? f->arm.ivar[i * n + k] : 0;
            w[i * n + k] = use[i] && ivar > 0 && isfinite(ivar) && !sky->bad[k] ? ivar * t * t : 0;
        }
    }
    if (st == SPX_OK) {
        spx_resolution_normal(ns, n, ndiag, f->arm.resolution, w, NULL, use, nthreads, info, NULL);
        const double middle = f->arm.wavelength[n / 2], step = sky->wavelength[1] - sky->wavelength[0];
        double width = 0, count = 0;
        for (size_t i = 0; i < ns; i++) {
            const double rows = fabs(dispersion(psf, (size_t)f->fiber[i], middle)) * step;
            width += use[i] && rows > 0 ? sigma_y(psf, (size_t)f->fiber[i], middle) / rows : 0;
            count += use[i] && rows > 0;
        }
        st = spx_shift_zero_point(n, ndiag, sky->wavelength[0], step, count > 0 ? width / count : 1, sky->s, info,
                                  lines, zero, e);
    }
    spx_free(w);
    spx_free(info);
    spx_free(use);
    return st;
}

static spx_status alloc_out(const spx_sky *sky, spx_shift *out, spx_err *e)
{
    if (out->delta != NULL)
        return SPX_OK;
    out->nterm_delta = sky->nd;
    out->nterm_kappa = sky->nk;
    out->delta = spx_alloc2(out->nspec, sky->nd, sizeof(double), e);
    out->delta_error = spx_alloc2(out->nspec, sky->nd, sizeof(double), e);
    out->kappa = spx_alloc2(out->nspec, sky->nk, sizeof(double), e);
    out->kappa_error = spx_alloc2(out->nspec, sky->nk, sizeof(double), e);
    return out->delta && out->delta_error && out->kappa && out->kappa_error ? SPX_OK : SPX_EIO;
}

/* Moves one trace: row i of the frame, fibre f of the PSF. Returns the largest shift, pixels. */
static double move_fibre(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i, size_t f,
                         spx_psf *psf, spx_shift *out)
{
    const size_t nt = sky->nt, nd = sky->nd, nk = sky->nk, nq = sky->nq, n = frame->arm.nwave;
    const double lo = frame->arm.wavelength[0], hi = frame->arm.wavelength[n - 1];
    const double *p = sky->p + i * nq, *cov = sky->cov + i * nq * nq;
    double lambda[NODES], dy[NODES], ds[NODES], error, worst = 0, most = 0;
    for (size_t k = 0; k < NODES; k++) {
        lambda[k] = lo + (hi - lo) * (double)k / (NODES - 1);
        const double u = spx_legendre_place(lo, hi, lambda[k]), slope = dispersion(psf, f, lambda[k]);
        const double delta = series_at(nd, p + nt, cov + nt * nq + nt, nq, u, &error) + zero->value;
        dy[k] = -delta * slope;
        worst = fmax(worst, error * fabs(slope));
        most = fmax(most, fabs(dy[k]));
        const double sigma = sigma_y(psf, f, lambda[k]);
        const double kappa = series_at(nk, p + nt + nd, cov + (nt + nd) * nq + nt + nd, nq, u, &error);
        ds[k] = sigma > 0 ? 0.5 * kappa * slope * slope / sigma : 0;
    }
    if (nd == 0 || worst > KNOWN || zero->error * fabs(dispersion(psf, f, 0.5 * (lo + hi))) > KNOWN) {
        out->flags[f] |= SPX_SHIFT_NOLINES;
        return 0;
    }
    for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
        const size_t at = f * SPX_SHIFT_PLACES + k;
        const double where = fmin(fmax(out->wavelength[k], lo), hi), u = spx_legendre_place(lo, hi, where);
        const double slope = dispersion(psf, f, where), sigma = sigma_y(psf, f, where);
        const double delta = series_at(nd, p + nt, cov + nt * nq + nt, nq, u, &error) + zero->value;
        out->dy[at] -= delta * slope;
        if (out->rounds == 0) /* later ones see the same noise, which is in what they measure from */
            out->dy_error[at] = sqrt(error * error + zero->error * zero->error) * fabs(slope);
        const double kappa = series_at(nk, p + nt + nd, cov + (nt + nd) * nq + nt + nd, nq, u, &error);
        const double factor = sigma > 0 ? 0.5 * slope * slope / (sigma * sigma) : 0;
        out->width_y[at] = (1 + out->width_y[at]) * (1 + kappa * factor) - 1;
        if (out->rounds == 0)
            out->width_y_error[at] = error * factor;
    }
    for (size_t q = 0; q < nd; q++) {
        out->delta[f * nd + q] += p[nt + q] + (q == 0 ? zero->value : 0);
        if (out->rounds == 0)
            out->delta_error[f * nd + q] = sqrt(fmax(0, cov[(nt + q) * nq + nt + q]));
    }
    for (size_t q = 0; q < nk; q++) {
        out->kappa[f * nk + q] += p[nt + nd + q];
        if (out->rounds == 0)
            out->kappa_error[f * nk + q] = sqrt(fmax(0, cov[(nt + nd + q) * nq + nt + nd + q]));
    }
    spx_shift_add_series(psf->y.ncoef, psf->y.coef + f * psf->y.ncoef, psf->y.wmin, psf->y.wmax, psf->y.ncoef, NODES,
                         lambda, dy);
    if (nk > 0)
        spx_shift_add_series(psf->ndeg, psf->coeff + ((size_t)psf->sigy * psf->nspec + f) * psf->ndeg, psf->wmin,
                             psf->wmax, psf->ndeg, NODES, lambda, ds);
    return most;
}

/* Fibres of the PSF that rows of a frame are: one row a fibre where it does not say so. */
static spx_status check_fibres(spx_frame *frame, const spx_psf *psf, spx_err *e)
{
    if (frame->fiber == NULL && frame->nspec == psf->nspec) {
        if ((frame->fiber = spx_alloc(frame->nspec, sizeof *frame->fiber, e)) == NULL)
            return SPX_EIO;
        for (size_t i = 0; i < frame->nspec; i++)
            frame->fiber[i] = (int32_t)i;
    }
    if (frame->fiber == NULL)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/frame", "give the PSF that the frame was extracted with",
                           "has %zu spectra and does not say of which of the PSF's %zu fibres", frame->nspec,
                           psf->nspec);
    for (size_t i = 0; i < frame->nspec; i++)
        if (frame->fiber[i] < 0 || (size_t)frame->fiber[i] >= psf->nspec)
            return spx_fail_at(e, SPX_EINPUT, NULL, "/frame/fiber", "give the PSF that the frame was extracted with",
                               "fibre %d is not one of the PSF's %zu", frame->fiber[i], psf->nspec);
    return SPX_OK;
}

spx_status spx_shift_along(const spx_frame *frame, const spx_sky *sky, const spx_shift_lines *lines,
                           const spx_shift_options *o, spx_psf *psf, spx_shift *out, double *largest, spx_err *e)
{
    spx_shift_zero zero;
    *largest = 0;
    spx_status st = alloc_out(sky, out, e);
    if (st == SPX_OK)
        st = find_zero(frame, psf, sky, lines, o->nthreads, &zero, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < frame->nspec; i++) {
        const double most = move_fibre(frame, sky, &zero, i, (size_t)frame->fiber[i], psf, out);
        *largest = fmax(*largest, most);
    }
    out->zero_point += zero.value;
    out->zero_point_error = zero.error;
    out->zero_point_chi2 = zero.chi2;
    out->zero_point_dof = zero.dof;
    out->nline = zero.nline;
    out->tau_delta = sky->nd > 0 ? sky->tau[sky->nt] : 0;
    out->tau_kappa = sky->nk > 0 ? sky->tau[sky->nt + sky->nd] : 0;
    out->nfibre_common = sky->nsky;
    return SPX_OK;
}

spx_status spx_shift_traces(const spx_shift_engine *g, const spx_image *image, spx_frame *frame,
                            const spx_shift_lines *lines, const spx_shift_options *o, spx_psf *psf, spx_shift *out,
                            spx_err *e)
{
    double largest = 2 * AGAIN;
    int found = 1;
    spx_status st = g->extract == NULL ? check_fibres(frame, psf, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_shift_across(g->measure, g->ctx, image, psf, o, out, e);
    for (size_t f = 0; f < psf->nspec && st == SPX_OK; f++)
        out->flags[f] |= SPX_SHIFT_NOLINES;
    while (st == SPX_OK && found && largest > AGAIN && out->rounds < MOST_ROUNDS) {
        spx_sky sky = {0};
        if (g->extract != NULL) {
            spx_frame_free(frame);
            st = g->extract(g->ctx, image, psf, frame, e);
        }
        if (st == SPX_OK)
            st = g->sky(g->ctx, frame, &sky, &found, e);
        if (st == SPX_OK && found) {
            for (size_t i = 0; i < frame->nspec; i++)
                out->flags[frame->fiber[i]] &= ~(uint32_t)SPX_SHIFT_NOLINES;
            st = spx_shift_along(frame, &sky, lines, o, psf, out, &largest, e);
            out->rounds++;
        }
        spx_sky_free(&sky);
        if (g->extract == NULL) /* the frame is that of the traces of before */
            break;
    }
    for (size_t f = 0; f < psf->nspec && st == SPX_OK; f++)
        if (out->nline == 0)
            out->flags[f] |= SPX_SHIFT_RELATIVE;
    return st;
}
