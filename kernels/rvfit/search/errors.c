/* Provides the errors of the stars of a group: the covariance from the curvature at the minimum, the profile of the
 * objective in velocity, other minima along it. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/search/group.h"

enum { REFITS = 2 };

int spx_rv_invert(size_t n, const double *a, double *inverse)
{
    double chol[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], scale[SPX_MAX_FIT];
    for (size_t i = 0; i < n; i++) {
        if (!(a[i * n + i] > 0))
            return 0;
        scale[i] = 1 / sqrt(a[i * n + i]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            chol[spx_rv_packed(i, j)] = a[i * n + j] * scale[i] * scale[j];
    if (!spx_rv_cholesky(n, chol, 1e-12))
        return 0;
    for (size_t k = 0; k < n; k++) {
        double col[SPX_MAX_FIT] = {0};
        col[k] = 1;
        spx_rv_forward(n, chol, col);
        spx_rv_backward(n, chol, col);
        for (size_t i = 0; i < n; i++)
            inverse[i * n + k] = col[i] * scale[i] * scale[k];
    }
    return 1;
}

int spx_rv_inverse_curvature(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess, double *cov)
{
    size_t nf = c->nfree, m = 0, idx[SPX_MAX_FIT] = {0};
    double full[SPX_MAX_FIT * SPX_MAX_FIT], part[SPX_MAX_FIT * SPX_MAX_FIT] = {0};
    memset(cov, 0, nf * nf * sizeof *cov);
    for (size_t i = 0; i < nf; i++) {
        size_t q = c->freeq[i];
        int held = (x[q] <= c->lo[q] && grad[i] >= 0) || (x[q] >= c->hi[q] && grad[i] <= 0);
        if (!held)
            idx[m++] = i;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            part[i * m + j] = hess[idx[i] * nf + idx[j]];
    int ok = spx_rv_invert(nf, hess, full);
    double inner[SPX_MAX_FIT * SPX_MAX_FIT];
    int inner_ok = spx_rv_invert(m, part, inner);
    for (size_t i = 0; i < nf; i++) {
        double diag = hess[i * nf + i], range = c->hi[c->freeq[i]] - c->lo[c->freeq[i]];
        /* Where the curvature says nothing: the spread of the range itself. */
        double v = ok ? full[i * nf + i] : (diag > 0 ? fmin(1 / diag, range * range / 24) : range * range / 24);
        cov[i * nf + i] = v;
    }
    for (size_t i = 0; i < m && inner_ok; i++)
        for (size_t j = 0; j < m; j++)
            cov[idx[i] * nf + idx[j]] = inner[i * m + j];
    return ok && inner_ok;
}

void spx_rv_covariance(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess,
                       spx_rvfit_star *star)
{
    size_t nf = c->nfree;
    double cov[SPX_MAX_FIT * SPX_MAX_FIT], slope[SPX_MAX_FIT], vsini_square = NAN;
    if (!spx_rv_bounded_moments(c, x, grad, hess, cov, &vsini_square)) {
        if (!spx_rv_inverse_curvature(c, x, grad, hess, cov))
            star->warn |= SPX_RVS_HESSIAN;
        for (size_t i = 0; i < nf * nf; i++)
            cov[i] *= 2;
    }
    for (size_t i = 0; i < nf; i++) {
        const size_t q = c->freeq[i];
        const double sigma = sqrt(cov[i * nf + i]);
        slope[i] = q == 1 && isfinite(vsini_square) ? sqrt(vsini_square) / sigma : spx_rv_slope(c, q, x[q], sigma);
    }
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j < nf; j++) {
            double v = cov[i * nf + j] * slope[i] * slope[j];
            star->covar[c->freeq[i] * c->nq + c->freeq[j]] = isfinite(v) ? v : 0;
        }
}

/* Velocity scans of those that want one, where the engine has a way of its own for them. */
static spx_status scan_all(spx_rv_group *g, size_t n, spx_rv_spectra *const *w, spx_rv_profile *const *p, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    r->n = 0;
    for (size_t k = 0; k < n && g->engine->scan; k++)
        if (p[k]->step == SPX_RV_SCAN)
            spx_rv_ask_of(r, w[k], p[k]->x);
    spx_status st =
        r->n == 0 ? SPX_OK : g->engine->scan(g->engine->state, r->n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, e);
    for (size_t k = 0; k < n && g->engine->scan && st == SPX_OK; k++)
        if (p[k]->step == SPX_RV_SCAN)
            spx_rv_profile_take(p[k], w[k]->scan);
    return st;
}

spx_status spx_rv_profiles(spx_rv_group *g, size_t n, spx_rv_spectra *const *w, spx_rv_profile *const *p, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    spx_status st = scan_all(g, n, w, p, e);
    while (st == SPX_OK) {
        size_t total = 0;
        r->n = 0;
        for (size_t k = 0; k < n; k++) {
            if (p[k]->step == SPX_RV_DONE)
                continue;
            r->first[r->n] = total;
            spx_rv_ask_of(r, w[k], p[k]->x);
            total += spx_rv_profile_ask(p[k], NULL);
        }
        if (r->n == 0)
            return SPX_OK;
        r->first[r->n] = total;
        st = spx_rv_need_velocities(g, total, e);
        double *v = r->v;
        for (size_t k = 0; k < n && st == SPX_OK; k++)
            if (p[k]->step != SPX_RV_DONE)
                v += spx_rv_profile_ask(p[k], v);
        if (st == SPX_OK && total > 0)
            st = spx_rv_ask_values(g, e);
        const size_t *first = r->first;
        for (size_t k = 0; k < n && st == SPX_OK; k++)
            if (p[k]->step != SPX_RV_DONE)
                spx_rv_profile_take(p[k], r->f + *first++);
    }
    return st;
}

/* Those of the stars g->again[n]. */
static spx_status profiles(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_rv_spectra **w = spx_alloc(n, sizeof(spx_rv_spectra *), e);
    spx_rv_profile **p = spx_alloc(n, sizeof(spx_rv_profile *), e);
    spx_status st = w != NULL && p != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        w[k] = &g->again[k]->spectra;
        p[k] = &g->again[k]->profile;
    }
    if (st == SPX_OK)
        st = spx_rv_profiles(g, n, w, p, e);
    spx_free(w);
    spx_free(p);
    return st;
}

/* Curvatures of the stars g->again[n] at their minima. A smooth interpolation has them with the derivatives; where
 * linear cells meet there are several, and their mean is taken. */
static spx_status curvatures(spx_rv_group *g, size_t n, spx_err *e)
{
    if (g->c->interpolator == SPX_INTERPOLATE_GRID)
        return spx_rv_mean_curvature(g->engine, g->c, n, g->again, e);
    for (size_t k = 0; k < n; k++)
        memcpy(g->again[k]->hess, g->again[k]->min.at.hess, sizeof g->again[k]->hess);
    return SPX_OK;
}

/* Objective of the stars g->again[n], n <= together, at their minima: the last step there was not looked at (smooth.c).
 */
static spx_status look_at_minima(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    spx_status st = spx_rv_need_velocities(g, n, e);
    r->n = 0;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        r->first[k] = k;
        r->v[k] = g->again[k]->min.x[0];
        spx_rv_ask(r, g->again[k], g->again[k]->min.x);
    }
    r->first[r->n] = r->n;
    if (st == SPX_OK)
        st = spx_rv_ask_values(g, e);
    for (size_t k = 0; k < r->n && st == SPX_OK; k++)
        if (r->f[k] < HUGE_VAL)
            g->again[k]->min.at.f = r->f[k];
    return st;
}

/* Errors of v of the stars g->again[n], n <= together; where the scan meets a lower point, the minimum is sought again
 * from there. */
spx_status spx_rv_velocity_errors(spx_rv_group *g, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = SPX_OK;
    for (int refit = 0; n > 0 && st == SPX_OK; refit++) {
        if ((st = curvatures(g, n, e)) != SPX_OK ||
            (c->interpolator != SPX_INTERPOLATE_GRID && (st = look_at_minima(g, n, e)) != SPX_OK))
            return st;
        for (size_t k = 0; k < n; k++) {
            spx_rv_star *s = g->again[k];
            spx_rvfit_star *row = &out->star[s->index];
            row->vrad_alt = row->dchisq_alt = NAN;
            spx_rv_profile_begin(&s->profile, &s->spectra, s->min.x, s->min.at.f,
                                 s->hess[0] > 0 ? sqrt(2 / s->hess[0]) : 0);
        }
        if (c->nfree == 0 || c->freeq[0] != 0 || (st = profiles(g, n, e)) != SPX_OK)
            return st;
        size_t m = 0;
        for (size_t k = 0; k < n; k++) {
            spx_rv_star *s = g->again[k];
            const spx_rv_profile *p = &s->profile;
            spx_rvfit_star *row = &out->star[s->index];
            row->vrad_err = p->err;
            row->vrad_skew = p->skew;
            row->vrad_kurt = p->kurt;
            spx_rv_profile_other(p, &row->vrad_alt, &row->dchisq_alt);
            if (p->lower == p->x[0] || refit == REFITS)
                continue;
            memcpy(s->start[0].x, p->x, sizeof s->start[0].x);
            s->start[0].x[0] = p->lower;
            s->nstart = s->nsure = 1;
            g->again[m++] = s;
        }
        n = 0;
        if (m > 0)
            st = spx_rv_group_minimise(g, m, g->again, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++) {
            spx_rv_star *s = g->again[k];
            if (!(s->found.at.f < s->min.at.f))
                continue;
            s->min = s->found;
            g->again[n++] = s;
        }
    }
    return st;
}
