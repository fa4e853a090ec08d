/* Principal components of a setup's templates. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "template/template.h"
#include "template/template_impl.h"

enum {
    MOST = 2048, /* templates that the components are made from: the cost of the eigenvectors grows with the cube */
    BLOCK = 64
};

/* ln flux minus mean of n templates, row i * step of the setup, into x[n][nwave]. */
static void centred(const spx_setup *s, const double *mean, size_t row0, size_t n, size_t step, double *x)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s->nwave; k++)
            x[i * s->nwave + k] = (double)s->lnflux[(row0 + i * step) * s->nwave + k] - mean[k];
}

/* Right singular vectors of x[n][nwave], of the largest singular values, into comp[K][nwave]; K so that what is left
 * has an rms of at most `error`. */
static spx_status components(const double *x, size_t n, size_t nwave, double error, spx_pca *p, spx_err *e)
{
    int by_wave = nwave < n;
    size_t m = by_wave ? nwave : n;
    spx_status st = SPX_EIO;
    double *gram = spx_alloc2(m, m, sizeof *gram, e), *value = spx_alloc(m, sizeof *value, e);
    double *vector = NULL, *comp = NULL;
    if (!gram || !value)
        goto end;
    cblas_dsyrk(CblasRowMajor, CblasLower, by_wave ? CblasTrans : CblasNoTrans, (int)m, (int)(by_wave ? n : nwave), 1,
                x, (int)nwave, 0, gram, (int)m);
    if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', (int)m, gram, (int)m, value) != 0) {
        st = spx_fail(e, SPX_EIO, "principal components of the templates were not found");
        goto end;
    }
    double left = 0, allowed = error * error * (double)n * (double)nwave;
    size_t out = 0; /* eigenvalues increase: the first `out` are left out */
    while (out < m && left + fmax(0, value[out]) <= allowed)
        left += fmax(0, value[out++]);
    while (out < m && !(value[out] > 1e-14 * value[m - 1]))
        out++;
    p->ncomp = m - out;
    p->comp = spx_alloc2(p->ncomp, nwave, sizeof *p->comp, e);
    vector = spx_alloc2(p->ncomp, m, sizeof *vector, e);
    if (!p->comp || !vector)
        goto end;
    for (size_t c = 0; c < p->ncomp; c++)
        for (size_t k = 0; k < m; k++)
            vector[c * m + k] = gram[k * m + m - 1 - c] * (by_wave ? 1 : 1 / sqrt(value[m - 1 - c]));
    if (!by_wave && p->ncomp > 0) {
        if (!(comp = spx_alloc2(p->ncomp, nwave, sizeof *comp, e)))
            goto end;
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)p->ncomp, (int)nwave, (int)n, 1, vector, (int)n, x,
                    (int)nwave, 0, comp, (int)nwave);
    }
    for (size_t k = 0; k < p->ncomp * nwave; k++)
        p->comp[k] = (float)(by_wave ? vector[k] : comp[k]);
    st = SPX_OK;
end:
    spx_free(gram);
    spx_free(value);
    spx_free(vector);
    spx_free(comp);
    return st;
}

/* Coefficients of all templates on the components as they are stored, and what is left. */
static spx_status project(const spx_setup *s, spx_pca *p, spx_err *e)
{
    size_t nw = s->nwave, nc = p->ncomp;
    spx_status st = SPX_EIO;
    double *x = spx_alloc2(BLOCK, nw, sizeof *x, e), *comp = spx_alloc2(nc, nw, sizeof *comp, e), sum = 0;
    p->coef = spx_alloc2(s->ntemp, nc, sizeof *p->coef, e);
    if (!x || !comp || !p->coef)
        goto end;
    for (size_t k = 0; k < nc * nw; k++)
        comp[k] = (double)p->comp[k];
    for (size_t row = 0; row < s->ntemp; row += BLOCK) {
        size_t n = s->ntemp - row < BLOCK ? s->ntemp - row : BLOCK;
        double *coef = p->coef + row * nc;
        centred(s, p->mean, row, n, 1, x);
        if (nc > 0) {
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)nc, (int)nw, 1, x, (int)nw, comp, (int)nw,
                        0, coef, (int)nc);
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nw, (int)nc, -1, coef, (int)nc, comp,
                        (int)nw, 1, x, (int)nw);
        }
        for (size_t k = 0; k < n * nw; k++) {
            sum += x[k] * x[k];
            p->max = fmax(p->max, fabs(x[k]));
        }
    }
    p->rms = sqrt(sum / (double)s->ntemp / (double)nw);
    st = SPX_OK;
end:
    spx_free(x);
    spx_free(comp);
    return st;
}

spx_status spx_template_pca(spx_setup *s, double error, spx_err *e)
{
    spx_pca *p = &s->pca;
    size_t step = (s->ntemp + MOST - 1) / MOST, n = (s->ntemp + step - 1) / step;
    p->mean = spx_alloc(s->nwave, sizeof *p->mean, e);
    double *x = spx_alloc2(n, s->nwave, sizeof *x, e);
    spx_status st = p->mean && x ? SPX_OK : SPX_EIO;
    for (size_t t = 0; t < s->ntemp && !st; t++)
        for (size_t k = 0; k < s->nwave; k++)
            p->mean[k] += (double)s->lnflux[t * s->nwave + k] / (double)s->ntemp;
    if (!st) {
        centred(s, p->mean, 0, n, step, x);
        st = components(x, n, s->nwave, error, p, e);
    }
    spx_free(x);
    return st ? st : project(s, p, e);
}
