/* Provides starts of the fit by cross-correlation with a set of templates (Tonry & Davis 1979, AJ 84, 1511): chi^2 of
 * every entry at every lag by fast Fourier transform, summed over arms on a common velocity grid. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "num/stat.h"
#include "rvfit/search/search.h"
#include "spectral/continuum.h"

static const double LEAST_AIR = 0.9; /* transmission of the atmosphere in pixels that are correlated */

/* Adds a piece, as the set wants it (templates.h), to the arm's data in workspace->cdata: ivar s and ivar, weighted so
 * that an inverse transform of the product needs no factor. Sets w->err when memory runs out. */
static void add_piece(spx_rv_spectra *w, const spx_rv_data *d)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    const spx_setup *s = a->setup;
    const spx_ccf_set *set = &s->ccf;
    size_t n = a->n, nc = set->nwave;
    uint8_t *bad = (uint8_t *)w->workspace->u;
    double *cont = w->workspace->q, *value = w->workspace->r, *ivar = w->workspace->w;
    float *num = w->workspace->cdata, *den = w->workspace->cdata + nc;

    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (d->good[i])
            cont[m++] = d->ie[i];
    double typical = spx_median(cont, m);
    for (size_t i = 0; i < n; i++)
        bad[i] = !d->good[i] || d->ie[i] * SPX_RV_CCF_MAX_ERROR < typical ||
                 (a->fine.per > 0 && d->air[i * a->fine.per + a->fine.per / 2] < LEAST_AIR);
    if (spx_continuum_find(log(s->wmin), log(s->wmax), n, a->lnwave, d->flux, bad, cont, &w->err) != SPX_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        value[i] = d->flux[i] / cont[i] - 1;
        ivar[i] = bad[i] ? 0 : cont[i] * cont[i] * d->ie[i] * d->ie[i];
    }
    for (size_t k = 0; k < nc; k++) {
        int32_t j = a->rebin_at[k];
        if (j < 0 || !(ivar[j] > 0) || !(ivar[j + 1] > 0))
            continue;
        double f = a->rebin[k], g = 1 - f;
        double iv = ivar[j] * ivar[j + 1] / (g * g * ivar[j + 1] + f * f * ivar[j]);
        double v = g * value[j] + f * value[j + 1];
        num[k] += (float)(-2 * iv * v / (double)nc);
        den[k] += (float)(iv / (double)nc);
    }
}

/* -i times n complex numbers. */
static void turn(size_t n, const float (*z)[2], float (*out)[2])
{
    for (size_t i = 0; i < n; i++) {
        out[i][0] = z[i][1];
        out[i][1] = -z[i][0];
    }
}

/* Into workspace->cs and civ: what n pieces, all of one arm, are correlated as. */
static void transform(spx_rv_spectra *w, size_t n, const spx_rv_data *piece)
{
    const spx_rv_arm *a = &w->ctx->arm[piece->arm];
    spx_rv_workspace *r = w->workspace;
    size_t nc = a->setup->ccf.nwave;
    memset(r->cdata, 0, 2 * nc * sizeof *r->cdata);
    for (size_t i = 0; i < n; i++)
        add_piece(w, &piece[i]);
    fftwf_execute_dft_r2c(a->forward, r->cdata, r->cs);
    fftwf_execute_dft_r2c(a->forward, r->cdata + nc, r->civ);
}

/* out[n] = four rows of x[4][n], weighted. */
SPX_CLONES
static void weigh(size_t n, const float *u, const float *x, float *restrict out)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        out[k] = u[0] * x[k] + u[1] * x[n + k] + u[2] * x[2 * n + k] + u[3] * x[3 * n + k];
}

/* Sums of the taps, into the frequencies of the short inverse transform. */
SPX_CLONES
static void add_taps(const spx_rv_few_lags *f, const float (*sum)[2], float (*restrict out)[2])
{
    const float *p = &sum[0][0];
    float *q = &out[0][0];
    const size_t next = 2 * (f->nblock + 1);
#pragma omp simd
    for (size_t i = 0; i < 2 * (f->length / 2 + 1); i++)
        q[i] = ((p[i] + p[i + next]) + (p[i + 2 * next] + p[i + 3 * next])) +
               ((p[i + 4 * next] + p[i + 5 * next]) + (p[i + 6 * next] + p[i + 7 * next]));
}
_Static_assert(SPX_RV_TAPS == 8, "terms of this sum");

/* n pieces, all of one arm: chi^2 of the components at all lags in workspace->clag. */
static void correlate(spx_rv_spectra *w, size_t n, const spx_rv_data *piece)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[piece->arm];
    const spx_rv_few_lags *few = &a->few;
    spx_rv_workspace *r = w->workspace;
    const size_t nf = few->per * few->nblock, nc = a->nccf;
    transform(w, n, piece);
    float(*s)[2] = r->cfew, (*iv)[2] = s + nf, (*s_turned)[2] = iv + nf, (*iv_turned)[2] = s_turned + nf;
    spx_rv_few_of(a, (const float(*)[2])r->cs, s);
    spx_rv_few_of(a, (const float(*)[2])r->civ, iv);
    turn(nf, (const float(*)[2])s, s_turned);
    turn(nf, (const float(*)[2])iv, iv_turned);
    for (size_t k = 0; k < nc; k++) {
        const float(*f)[2] = (const float(*)[2])(few->comp + k * 4 * nf);
        c->kernels->correlate(few->nblock, few->per, few->window, (const float(*)[2])s, (const float(*)[2])s_turned,
                              (const float(*)[2])iv, (const float(*)[2])iv_turned, f, f + nf, r->csum);
        add_taps(few, (const float(*)[2])r->csum, (float(*)[2])r->cprod);
        fftwf_execute_dft_c2r(few->inverse, r->cprod, r->cout);
        for (size_t j = 0; j < few->n; j++)
            r->csample[j * nc + k] = r->cout[(few->first + j) & (few->length - 1)];
    }
    for (size_t i = 0; i < c->ccf.nlag; i++)
        weigh(nc, few->weight + 4 * i, r->csample + few->at[i] * nc, r->clag + i * nc);
}

/* Adds arm ia to chi^2 of all entries at all lags. */
static void add_arm(spx_rv_spectra *w, size_t ia)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    correlate(w, w->first[ia + 1] - w->first[ia], &w->piece[w->first[ia]]);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)a->setup->ccf.ntemp, (int)c->ccf.nlag, (int)a->nccf, 1,
                a->ccf_coef, (int)a->nccf, w->workspace->clag, (int)a->nccf, 1, w->workspace->chi, (int)c->ccf.nlag);
}

void spx_rv_ccf(spx_rv_spectra *w, const spx_rv_data *d, size_t entry, float *out)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    correlate(w, 1, d);
    cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)c->ccf.nlag, (int)a->nccf, -1, w->workspace->clag, (int)a->nccf,
                a->ccf_coef + entry * a->nccf, 1, 0, out, 1);
}

spx_rv_set spx_rv_set_of(const spx_rv_ctx *c)
{
    const spx_ccf_set *s = &c->arm[0].setup->ccf;
    return (spx_rv_set){.ntemp = s->ntemp,
                        .nlag = c->ccf.nlag,
                        .lag_v0 = c->ccf.lag_v0,
                        .lag_step = c->ccf.lag_step,
                        .vmin = c->lo[0],
                        .vmax = c->hi[0],
                        .npar = c->npar,
                        .main = c->ccf.main,
                        .vsini = s->vsini,
                        .place = c->ccf.place};
}

void spx_rv_correlate(spx_rv_spectra *w, spx_rv_candidates *candidates)
{
    const spx_rv_ctx *c = w->ctx;
    spx_rv_set set = spx_rv_set_of(c);
    spx_rv_workspace *r = w->workspace;
    memset(r->chi, 0, set.ntemp * c->ccf.nlag * sizeof *r->chi);
    for (size_t ia = 0; ia < c->narm; ia++)
        if (w->first[ia] < w->first[ia + 1])
            add_arm(w, ia);
    const spx_rv_surface q = {r->chi, r->best, r->best_entry, r->least, r->least_lag};
    for (size_t i = 0; i < c->ccf.nlag; i++)
        spx_rv_candidates_best(&set, &q, i);
    size_t i0, i1;
    const size_t top = spx_rv_candidates_near(&set, &q, &i0, &i1);
    for (size_t t = 0; t < set.ntemp; t++)
        spx_rv_candidates_least(&set, &q, t, i0, i1);
    spx_rv_candidates_choose(&set, &q, top, candidates);
}
