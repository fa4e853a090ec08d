/* Provides the rows of the result: parameters, errors and warnings of a star. */
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/stat.h"
#include "products/plausible.h"
#include "rvfit/search/group.h"

static int at_edge(const spx_rv_ctx *c, size_t p, double value)
{
    const spx_setup *s = c->arm[0].setup;
    double first = spx_rv_unmap(c, 2 + p, c->grid.axis[p][0]),
           last = spx_rv_unmap(c, 2 + p, c->grid.axis[p][c->grid.naxis[p] - 1]);
    double near = 1e-3 * (last - first);
    if (c->grid.naxis[p] < 2 || !(c->hi[2 + p] > c->lo[2 + p]) || strcmp(s->parname[p], "alpha") == 0)
        return 0;
    if (strcmp(s->parname[p], "teff") == 0)
        near = 10;
    else if (strcmp(s->parname[p], "logg") == 0 || strcmp(s->parname[p], "feh") == 0)
        near = 0.01;
    return value < first + near || value > last - near;
}

/* Sigma that chi^2 a degree of freedom is from 1, besides being beyond the limits of the rule, in a fit that is
 * flagged: variances are rarely known to better than some ten per cent, which with thousands of pixels is many sigma
 * and no sign of a bad fit. */
static const double FIT_SIGMA = 5;

/* Templates that are wider than the resolution matrix are flagged where vsini^2 is off by OFF of its error, by what
 * spx_rv_match_off() expects to 0.06 of it; where vsini is held, or there is an atmosphere, with a misfit above MISFIT.
 * Where templates are narrower than the matrix the misfit is aliases, which bias nothing, and so it is where they are
 * narrower than NARROW. */
static const double OFF = 0.15, MISFIT = 0.012;
static const double NARROW = 0.8; /* pixels, sigma */

/* Multiplies the error of each quantity by a factor, widen[nq]. */
static void widen_errors(const spx_rv_ctx *c, const double *widen, spx_rvfit_star *s)
{
    s->vrad_err *= widen[0];
    s->vsini_err *= widen[1];
    for (size_t p = 0; p < c->npar; p++)
        s->par_err[p] *= widen[2 + p];
    for (size_t i = 0; i < c->nq * c->nq; i++)
        s->covar[i] *= widen[i / c->nq] * widen[i % c->nq];
}

/* Goodness of the fit, and errors that are as large as the misfit where that is asked for. np: functions of the
 * continua */
static void judge(const spx_rv_ctx *c, size_t np, const spx_rv_star *star, spx_rvfit_star *s)
{
    const double dof = fmax(1, (double)s->npix - (double)c->nfree - (double)np), reduced = s->chisq / dof;
    /* Wilson & Hilferty 1931: the cube root of chi^2/dof is nearly normal */
    const double z = (cbrt(reduced) - 1 + 2 / (9 * dof)) / sqrt(2 / (9 * dof));
    s->chisq_logp = spx_log10_chisq_tail(s->chisq, dof);
    if (spx_rule_broken(SPX_RULE_FIT, reduced) && fabs(z) > FIT_SIGMA)
        s->warn |= SPX_RVS_FIT;
    double widen[SPX_MAX_FIT];
    for (size_t q = 0; q < c->nq; q++)
        widen[q] = c->opt->jitter ? star->widen[q] : c->opt->scale_errors ? sqrt(fmax(1, reduced)) : 1;
    widen_errors(c, widen, s);
}

static void warnings(const spx_rv_ctx *c, spx_rvfit_star *s)
{
    if (s->chisq_c - s->chisq < 50)
        s->warn |= SPX_RVS_CHISQ;
    if (!c->opt->fixed[0] && (s->vrad < c->opt->vmin + 5 || s->vrad > c->opt->vmax - 5))
        s->warn |= SPX_RVS_VEDGE;
    if (s->vrad_err > 100)
        s->warn |= SPX_RVS_VERR;
    for (size_t p = 0; p < c->npar; p++)
        if (at_edge(c, p, s->par[p]))
            s->warn |= SPX_RVS_PARAM;
    if (s->vsini > 100)
        s->warn |= SPX_RVS_VSINI;
}

/* Is the light of a star negative? The mean of squared medians of the signal-to-noise ratio, each with its sign, where
 * it is that many errors from 0. */
static int is_negative(const spx_rv_spectra *w)
{
    double square = 0, n = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        square += d->sn * fabs(d->sn) * (double)d->ngood;
        n += (double)d->ngood;
    }
    const double sn = n > 0 ? copysign(sqrt(fabs(square) / n), square) : 0;
    /* the error of a median is 1.25 times that of the mean */
    return spx_rule_broken(SPX_RULE_NEGATIVE, sn) && sn * sqrt(n) / 1.2533 < -FIT_SIGMA;
}

/* Error of vsini^2 by the curvature. */
static double square_error(const spx_rv_ctx *c, const spx_rv_star *star)
{
    const double *x = star->min.x;
    double cov[SPX_MAX_FIT * SPX_MAX_FIT];
    size_t k = 0;
    while (c->freeq[k] != 1)
        k++;
    (void)spx_rv_inverse_curvature(c, x, star->min.at.grad, star->hess, cov);
    return spx_rv_vsini_square_dx(x[1], c->slow) * sqrt(2 * cov[k * c->nfree + k]);
}

/* Are the templates of pieces wider than their resolution matrices, by more than can be taken out of these? What
 * vsini^2 is off by is the mean of the pieces, with their signal as weight. */
static int is_too_wide(const spx_rv_star *star, const spx_rvfit_star *s)
{
    const spx_rv_spectra *w = &star->spectra;
    const spx_rv_ctx *c = w->ctx;
    double off = 0, weights = 0, most = 0;
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        const spx_rv_arm *a = &c->arm[d->arm];
        const double weight = d->sn * d->sn * (double)d->ngood;
        weights += weight;
        if (a->match.matrix == NULL || !(a->match.g[a->n / 2] > fmax(d->width, NARROW)))
            continue;
        most = fmax(most, d->misfit);
        const double pixel = SPX_C_KMS * (a->lnwave[a->n - 1] - a->lnwave[0]) / (double)(a->n - 1);
        const double *res = a->arm->resolution + spx_rv_row(c, d->exposure) * a->arm->ndiag * a->n;
        if (a->fine.per == 0)
            off += weight * pixel * pixel * spx_rv_match_off(c->kernels, a, res, d->width, s->vsini / pixel);
    }
    if (!(c->lo[1] < c->hi[1]) || c->opt->transmission != NULL)
        return most > MISFIT;
    return weights > 0 && off > 0 && off / weights > OFF * square_error(c, star);
}

static void no_pair(spx_rvfit_star *s)
{
    s->vrad1 = s->vrad1_err = s->vrad2 = s->vrad2_err = s->flux_ratio = s->flux_ratio_err = s->teff2 = NAN;
}

void spx_rv_bad_star(const spx_rv_ctx *c, spx_rvfit_star *s)
{
    *s = (spx_rvfit_star){.warn = SPX_RVS_BAD, .ccf_entry = -1};
    no_pair(s);
    s->vrad = s->vrad_err = s->vrad_skew = s->vrad_kurt = s->vrad_ccf = s->vrad_alt = s->dchisq_alt = s->vsini =
        s->vsini_err = s->neg2logl = s->chisq_logp = NAN;
    for (size_t p = 0; p < c->npar; p++)
        s->par[p] = s->par_err[p] = NAN;
    for (size_t i = 0; i < c->narm; i++)
        s->jitter[c->arm[i].index] = s->jitter_err[c->arm[i].index] = NAN;
    for (size_t i = 0; i < c->nq * c->nq; i++)
        s->covar[i] = NAN;
}

SPX_CLONES
static void keep_model(size_t n, const double *restrict model, float *restrict out)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = spx_rv_model(model[i]);
}

/* What a piece adds to the star's sums (sn: of the squares), and what is kept of it; here: its pixels are. */
static void finish_piece(const spx_rv_ctx *c, const spx_rv_data *d, int here, spx_rvfit_star *s, spx_rvfit *out)
{
    size_t a = c->arm[d->arm].index, n = c->arm[d->arm].n;
    spx_rvfit_exposure *x = &out->exposure[d->exposure];
    /* those that are kept elsewhere are there */
    float *model = here && out->arm[a].model ? out->arm[a].model + d->exposure * n : NULL;
    float *residual = here && out->arm[a].residual ? out->arm[a].residual + d->exposure * n : NULL;
    s->nexp += x->npix == 0;
    x->npix += (int64_t)d->ngood;
    x->sn[a] = d->sn;
    x->chisq[a] = d->chisq;
    x->lsf[a] = c->opt->resolution ? (uint8_t)(1 + spx_rv_match_level(d->width)) : 0;
    s->sn[a] += d->sn * fabs(d->sn);
    s->arm_chisq[a] += d->chisq;
    s->arm_chisq_c[a] += d->chisq_c;
    s->npix += (int64_t)d->ngood;
    s->nreject += (int64_t)d->nreject;
    if (model != NULL)
        keep_model(n, d->model, model);
    for (size_t i = 0; residual && i < n; i++)
        residual[i] = d->good[i] ? spx_rv_residual(d->flux[i], d->ie[i], d->model[i]) : 0;
}

/* The row of a star whose fit has ended. */
void spx_rv_finish_star(const spx_rv_ctx *c, const spx_rv_star *star, spx_rvfit *out)
{
    const spx_rv_spectra *w = &star->spectra;
    const spx_rv_minimum *min = &star->min;
    spx_rvfit_star *s = &out->star[star->index];
    const double *x = min->x, *hess = star->hess;
    int vfree = c->nfree > 0 && c->freeq[0] == 0;
    double sigma_v = vfree && hess[0] > 0 ? sqrt(2 / hess[0]) : 0;
    if (vfree && !(s->vrad_err < 1.25 * sigma_v && s->vrad_err > 0.8 * sigma_v))
        s->warn |= SPX_RVS_PROFILE;
    spx_rv_covariance(c, x, min->at.grad, hess, s);
    s->success = min->converged;
    s->niter = w->neval;
    s->neg2logl = min->at.f;
    s->vrad = x[0];
    s->vsini = spx_rv_unmap(c, 1, x[1]);
    s->vsini_err = sqrt(s->covar[1 * c->nq + 1]);
    for (size_t p = 0; p < c->npar; p++) {
        s->par[p] = c->opt->fixed[2 + p]
                        ? c->opt->value[2 + p]
                        : (c->grid.naxis[p] == 1 ? c->arm[0].setup->params[p] : spx_rv_unmap(c, 2 + p, x[2 + p]));
        s->par_err[p] = sqrt(s->covar[(2 + p) * c->nq + 2 + p]);
    }
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        finish_piece(c, &w->piece[i], !w->unread, s, out);
        const spx_rv_arm *a = &c->arm[w->piece[i].arm];
        s->npoly[a->index] = (int32_t)a->basis.n;
    }
    for (size_t i = 0; i < c->narm; i++) {
        s->jitter[c->arm[i].index] = w->jitter[i];
        s->jitter_err[c->arm[i].index] = w->jitter_err[i];
    }
    for (size_t a = 0; a < out->narm; a++) {
        s->sn[a] = copysign(sqrt(fabs(s->sn[a])), s->sn[a]);
        s->chisq += s->arm_chisq[a];
        s->chisq_c += s->arm_chisq_c[a];
    }
    judge(c, spx_rv_continua(w), star, s);
    warnings(c, s);
    if (is_negative(w))
        s->warn |= SPX_RVS_NEGATIVE;
    if (star->differ)
        s->warn |= SPX_RVS_EXPOSURES;
    if (star->odd != SPX_RV_ALL) {
        s->warn |= SPX_RVS_ARMS;
        s->odd_arm = (int32_t)c->arm[star->odd].index;
        s->odd_by = star->odd_by;
    }
    if (is_too_wide(star, s))
        s->warn |= SPX_RVS_WIDE;
}

void spx_rv_keep_ccf(spx_rv_spectra *w, spx_rvfit *out)
{
    const spx_rv_ctx *c = w->ctx;
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        spx_rv_ccf(w, d, (size_t)w->ccf_entry, out->arm[c->arm[d->arm].index].ccf + d->exposure * out->nlag);
    }
}

/* Rows with nothing in them yet. They take kilobytes each, and are touched here for the first time: the pages of many
 * are made by all threads. */
static void begin_rows(const spx_rv_ctx *c, spx_rvfit *out)
{
    enum { MANY = 4096 };
#pragma omp parallel for num_threads(c->opt->threads) schedule(static) if (out->nstar > MANY)
    for (size_t i = 0; i < out->nstar; i++)
        no_pair(&out->star[i]);
#pragma omp parallel for num_threads(c->opt->threads) schedule(static) if (out->nrow > MANY)
    for (size_t i = 0; i < out->nrow; i++) {
        spx_rvfit_exposure *x = &out->exposure[i];
        x->vrad = x->vrad_err = x->vrad_alt = x->dchisq_alt = NAN;
        x->warn = SPX_EPOCH_BAD;
        out->row[i] = spx_rv_row(c, i);
    }
}

spx_status spx_rv_result_init(const spx_rv_ctx *c, spx_rvfit *out, spx_err *e)
{
    const spx_spectra *sp = c->in->spectra;
    *out = (spx_rvfit){.nstar = c->nstar,
                       .npar = c->npar,
                       .narm = sp->narm,
                       .nrow = c->in->nrow,
                       .with_jitter = c->opt->jitter,
                       .with_epochs = c->opt->epochs,
                       .with_double = c->opt->components > 1};
    memcpy(out->parname, c->arm[0].setup->parname, sizeof out->parname);
    out->row = spx_alloc(out->nrow, sizeof *out->row, e);
    out->first = spx_alloc(out->nstar + 1, sizeof *out->first, e);
    out->star = spx_alloc(out->nstar, sizeof *out->star, e);
    out->exposure = spx_alloc(out->nrow, sizeof *out->exposure, e);
    if (!out->row || !out->first || !out->star || !out->exposure)
        return SPX_EIO;
    begin_rows(c, out);
    for (size_t i = 0; i < out->nstar; i++)
        spx_rv_exposures(c, i, &out->first[i], &out->first[i + 1]);
    if (c->opt->keep_ccf) {
        out->nlag = c->ccf.nlag;
        out->lag_v0 = c->ccf.lag_v0;
        out->lag_step = c->ccf.lag_step;
    }
    for (size_t i = 0; i < sp->narm; i++) {
        memcpy(out->arm[i].name, sp->arm[i].name, sizeof out->arm[i].name);
        out->arm[i].nwave = sp->arm[i].nwave;
        if (c->opt->keep_model && c->in->setup[i] &&
            !(out->arm[i].model = spx_alloc2(out->nrow, sp->arm[i].nwave, sizeof *out->arm[i].model, e)))
            return SPX_EIO;
        if (c->opt->keep_ccf && c->in->setup[i] &&
            !(out->arm[i].ccf = spx_alloc2(out->nrow, out->nlag, sizeof *out->arm[i].ccf, e)))
            return SPX_EIO;
    }
    return SPX_OK;
}
