/* Errors beside noise (psffit/errors.h). */
#include "psffit/errors.h"

#include <math.h>
#include <string.h>

#include "calib/bordered.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"

#define KMS 299792.458

enum { MOST_PLACES = 64, MOST_TERMS = SPX_BORDER_MOST };
/* Precision of each coefficient beside that of all places, a part of the latter: keeps terms that places leave open,
 * where lines end far within the series' range, from running away. */
#define HELD 1e-3

/* Places of a fibre that have errors, at[n]. Returns n. */
static size_t told_places(const spx_psffit *fit, size_t fibre, size_t *at)
{
    size_t n = 0;
    for (size_t k = 0; k < fit->nplace && n < MOST_PLACES; k++)
        if (fit->x_error[fibre * fit->nplace + k] > 0)
            at[n++] = k;
    return n;
}

/* Adds to the covariance of the coefficients of one axis, c[ntr][stride], that of a function that is off by off[k] at
 * place k: with T the polynomials at places and G = T'T, coefficients answer to offsets as G^-1 T', and a function of
 * ntr terms tells offsets of neighbours apart by 1/h_k places, h_k = (T G^-1 T')_kk. Offsets that are independent over
 * such lengths have variances off^2/h: sum_k off_k^2/h_k a_k a_k', a_k = G^-1 t_k, scaled to their mean square. */
static void add_to_trace(const spx_psf_series *series, const spx_psffit *fit, size_t n, const size_t *at,
                         const double *off, size_t stride, float *c)
{
    const size_t ntr = series->ncoef;
    double t[MOST_PLACES][MOST_TERMS], a[MOST_PLACES][MOST_TERMS], g[MOST_TERMS * MOST_TERMS] = {0};
    double sum[MOST_TERMS * MOST_TERMS] = {0}, square = 0, got = 0;
    for (size_t k = 0; k < n; k++) {
        spx_legendre_basis(ntr, spx_psf_u(series->wmin, series->wmax, fit->place[at[k]]), t[k]);
        for (size_t i = 0; i < ntr; i++)
            for (size_t j = 0; j < ntr; j++)
                g[i * ntr + j] += t[k][i] * t[k][j];
        square += off[at[k]] * off[at[k]];
    }
    for (size_t i = 0; i < ntr; i++)
        g[i * (ntr + 1)] += HELD * (double)n;
    if (!(square > 0) || !spx_small_factor(ntr, g))
        return;
    for (size_t k = 0; k < n; k++) {
        double h = 0;
        memcpy(a[k], t[k], sizeof a[k]);
        spx_small_solve(ntr, g, a[k]);
        for (size_t i = 0; i < ntr; i++)
            h += a[k][i] * t[k][i];
        for (size_t i = 0; i < ntr; i++)
            for (size_t j = 0; j < ntr; j++)
                sum[i * ntr + j] += off[at[k]] * off[at[k]] / h * a[k][i] * a[k][j];
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < ntr; i++)
            for (size_t j = 0; j < ntr; j++)
                got += t[k][i] * sum[i * ntr + j] * t[k][j];
    for (size_t i = 0; i < ntr; i++)
        for (size_t j = 0; j < ntr; j++)
            c[i * stride + j] += (float)(square / got * sum[i * ntr + j]);
}

void spx_psffit_add_misfit(const spx_psf *psf, spx_psffit *fit, size_t fibre, const double *off)
{
    size_t at[MOST_PLACES];
    const size_t n = told_places(fit, fibre, at), ntr = fit->ntrace / 2;
    double *const error[2] = {fit->x_error + fibre * fit->nplace, fit->y_error + fibre * fit->nplace};
    float *c = fit->cov_trace + fibre * fit->ntrace * fit->ntrace;
    for (size_t q = 0; q < 2; q++) {
        for (size_t k = 0; k < n; k++)
            error[q][at[k]] = hypot(error[q][at[k]], off[q * fit->nplace + at[k]]);
        if (ntr <= MOST_TERMS)
            add_to_trace(q == 0 ? &psf->x : &psf->y, fit, n, at, off + q * fit->nplace, fit->ntrace,
                         c + q * ntr * (fit->ntrace + 1));
    }
}

void spx_psffit_sum_errors(const spx_psf *psf, spx_psffit *fit, size_t fibre)
{
    size_t at[MOST_PLACES];
    const size_t n = told_places(fit, fibre, at);
    const double h = 1e-3 * (psf->y.wmax - psf->y.wmin);
    double some[3][MOST_PLACES];
    for (size_t k = 0; k < n; k++) {
        const double wave = fit->place[at[k]], lo = spx_psf_series_value(&psf->y, fibre, wave - h),
                     hi = spx_psf_series_value(&psf->y, fibre, wave + h);
        some[0][k] = fit->x_error[fibre * fit->nplace + at[k]];
        some[1][k] = fit->y_error[fibre * fit->nplace + at[k]];
        some[2][k] = some[1][k] * 2 * h / fmax(fabs(hi - lo), 1e-6) / wave * KMS;
    }
    spx_psffit_fibre *to = &fit->fibre[fibre];
    to->x_error = spx_median(some[0], n);
    to->y_error = spx_median(some[1], n);
    to->wave_error_kms = spx_median(some[2], n);
}
