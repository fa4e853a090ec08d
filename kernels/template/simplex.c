/* Provides the triangulation of a library's parameters: intervals of one, a Delaunay triangulation of several
 * (delaunay.c). */
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "template/template_impl.h"

typedef struct {
    double x;
    int32_t row;
} place;

static int by_place(const void *a, const void *b)
{
    const place *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* One parameter: intervals between neighbours. */
static spx_status intervals(spx_setup *s, const double *x, spx_err *e)
{
    place *p = spx_alloc(s->ntemp, sizeof *p, e);
    s->simplex = spx_alloc2(s->ntemp - 1, 2, sizeof *s->simplex, e);
    if (!p || !s->simplex) {
        spx_free(p);
        return SPX_EIO;
    }
    for (size_t t = 0; t < s->ntemp; t++)
        p[t] = (place){x[t], (int32_t)t};
    qsort(p, s->ntemp, sizeof *p, by_place);
    for (size_t t = 0; t + 1 < s->ntemp; t++) {
        s->simplex[2 * t] = p[t].row;
        s->simplex[2 * t + 1] = p[t + 1].row;
    }
    s->nsimplex = s->ntemp - 1;
    s->ncorner = 2;
    spx_free(p);
    return SPX_OK;
}

/* Scales the parameters that vary, par[*dim], to their ranges: (*x)[ntemp][*dim]; `mapped`: logarithms of those
 * interpolated in the logarithm. */
static spx_status scale(const spx_setup *s, int mapped, size_t *dim, size_t *par, double **x, spx_err *e)
{
    double lo[SPX_MAX_PAR], hi[SPX_MAX_PAR];
    *dim = 0;
    for (size_t p = 0; p < s->npar; p++) {
        lo[p] = INFINITY;
        hi[p] = -INFINITY;
        for (size_t t = 0; t < s->ntemp; t++) {
            double v = s->params[t * s->npar + p];
            if (s->parlog[p] && !(v > 0))
                return spx_fail(e, SPX_EINPUT,
                                "parameter %.31s is %g in some spectrum, so that it has no logarithm: do not map it to "
                                "log10 ({log_param})",
                                s->parname[p], v);
            v = mapped && s->parlog[p] ? log10(v) : v;
            lo[p] = fmin(lo[p], v);
            hi[p] = fmax(hi[p], v);
        }
        if (hi[p] > lo[p])
            par[(*dim)++] = p;
    }
    if (!(*x = spx_alloc2(s->ntemp, *dim, sizeof **x, e)))
        return SPX_EIO;
    for (size_t t = 0; t < s->ntemp; t++)
        for (size_t k = 0; k < *dim; k++) {
            const size_t p = par[k];
            double v = s->params[t * s->npar + p];
            (*x)[t * *dim + k] = ((mapped && s->parlog[p] ? log10(v) : v) - lo[p]) / (hi[p] - lo[p]);
        }
    return SPX_OK;
}

/* Rms extent of a library, in units of the parameters' ranges, below which a direction counts as degenerate: dependent
 * parameters, rounded to a hundredth of their range, scatter less. */
static const double FLAT = 1e-3;

static spx_status check_span(const spx_setup *s, int mapped, spx_err *e)
{
    double *x = NULL, mean[SPX_MAX_PAR] = {0}, v[SPX_MAX_PAR * SPX_MAX_PAR] = {0}, variance[SPX_MAX_PAR];
    size_t dim, par[SPX_MAX_PAR], thin = 0, n = 0, at = 0;
    spx_status st = scale(s, mapped, &dim, par, &x, e);
    if (st != SPX_OK || dim < 2) {
        spx_free(x);
        return st;
    }
    for (size_t i = 0; i < s->ntemp * dim; i++)
        mean[i % dim] += x[i] / (double)s->ntemp;
    for (size_t t = 0; t < s->ntemp; t++)
        for (size_t k = 0; k < dim * dim; k++)
            v[k] += (x[t * dim + k / dim] - mean[k / dim]) * (x[t * dim + k % dim] - mean[k % dim]) / (double)s->ntemp;
    spx_free(x);
    if (LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'V', 'U', (int)dim, v, (int)dim, variance) != 0)
        return spx_fail(e, SPX_EINPUT, "the extent of the library in its parameters cannot be found");
    while (thin < dim && !(variance[thin] > FLAT * FLAT))
        thin++;
    if (thin == 0)
        return SPX_OK;
    char text[256] = "";
    for (size_t k = 0; k < dim && at < sizeof text; k++) {
        double share = 0;
        for (size_t d = 0; d < thin; d++)
            share = fmax(share, fabs(v[k * dim + d]));
        if (share > 0.05)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%.31s", n++ > 0 ? ", " : "", s->parname[par[k]]);
    }
    return spx_fail(e, SPX_EINPUT,
                    "the parameters of %zu spectra lie on %s%s: of %s only %zu can be fitted: leave out the others "
                    "({param_keywords}), or add spectra elsewhere",
                    s->ntemp,
                    dim - thin == 1   ? "a line"
                    : dim - thin == 2 ? "a plane"
                                      : "a hyperplane",
                    mapped ? ", in logarithms" : "", text, n - thin);
}

spx_status spx_template_span(const spx_setup *s, spx_err *e)
{
    int mapped = 0;
    for (size_t p = 0; p < s->npar; p++)
        mapped |= s->parlog[p];
    spx_status st = check_span(s, 0, e);
    return st == SPX_OK && mapped ? check_span(s, 1, e) : st;
}

spx_status spx_template_simplex(spx_setup *s, spx_err *e)
{
    double *x = NULL;
    size_t dim, par[SPX_MAX_PAR];
    spx_status st = scale(s, 1, &dim, par, &x, e);
    if (st == SPX_OK && dim == 0)
        st = spx_fail(e, SPX_EINPUT, "all spectra of the library have the same parameters: a fit needs different ones");
    if (st == SPX_OK && !s->filled && !(s->filled = spx_alloc(s->ntemp, sizeof *s->filled, e)))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = dim == 1 ? intervals(s, x, e) : spx_template_delaunay(s, dim, x, e);
    spx_free(x);
    return st;
}
