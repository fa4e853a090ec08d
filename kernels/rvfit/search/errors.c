/* Provides the errors of the stars of a group: the covariance from the curvature at the minimum, the profile of the
 * objective in velocity, other minima along it. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

enum { REFITS = 2 };

/* Inverse of the n x n matrix a (full), through Cholesky; 0 when it is not positive definite. */
static int invert(size_t n, const double *a, double *inverse)
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

/* Covariance 2 H^-1. A quantity that the data push against a bound keeps the variance it would have without the bound
 * and is held for the others: that is where they were fitted. */
void spx_rv_covariance(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess,
                       spx_rvfit_star *star)
{
    size_t nf = c->nfree, m = 0, idx[SPX_MAX_FIT] = {0};
    double full[SPX_MAX_FIT * SPX_MAX_FIT], part[SPX_MAX_FIT * SPX_MAX_FIT] = {0};
    double cov[SPX_MAX_FIT * SPX_MAX_FIT] = {0};
    for (size_t i = 0; i < nf; i++) {
        size_t q = c->freeq[i];
        int held = (x[q] <= c->lo[q] && grad[i] >= 0) || (x[q] >= c->hi[q] && grad[i] <= 0);
        if (!held)
            idx[m++] = i;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            part[i * m + j] = hess[idx[i] * nf + idx[j]];
    int ok = invert(nf, hess, full);
    double inner[SPX_MAX_FIT * SPX_MAX_FIT];
    int inner_ok = invert(m, part, inner);
    if (!ok || !inner_ok)
        star->warn |= SPX_RVS_HESSIAN;
    for (size_t i = 0; i < nf; i++) {
        double diag = hess[i * nf + i], range = c->hi[c->freeq[i]] - c->lo[c->freeq[i]];
        /* Where the curvature says nothing: the spread of the range itself. */
        double v = ok ? full[i * nf + i] : (diag > 0 ? fmin(1 / diag, range * range / 24) : range * range / 24);
        cov[i * nf + i] = v;
    }
    for (size_t i = 0; i < m && inner_ok; i++)
        for (size_t j = 0; j < m; j++)
            cov[idx[i] * nf + idx[j]] = inner[i * m + j];
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j < nf; j++) {
            size_t a = c->freeq[i], b = c->freeq[j];
            double sa = spx_rv_slope(c, a, x[a], sqrt(2 * cov[i * nf + i]));
            double sb = spx_rv_slope(c, b, x[b], sqrt(2 * cov[j * nf + j]));
            double v = 2 * cov[i * nf + j] * sa * sb;
            star->covar[a * c->nq + b] = isfinite(v) ? v : 0;
        }
}

/* Surveys of n stars at x[k], n <= together, where the engine has a way of its own for them. */
static spx_status survey_all(spx_rv_group *g, size_t n, spx_rv_profile *p, spx_err *e)
{
    size_t m = 0;
    for (size_t k = 0; k < n && g->engine->survey; k++)
        if (p[k].step == SPX_RV_SURVEY) {
            g->part[m] = &g->ws[p[k].w->slot];
            g->part_of[m] = k;
            memcpy(g->at[m++], p[k].x, sizeof g->at[m]);
        }
    spx_status st =
        m == 0 ? SPX_OK : g->engine->survey(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++)
        spx_rv_profile_take(&p[g->part_of[k]], NULL, g->part[k]->survey);
    return st;
}

/* Profiles of n stars at x[k], n <= together, until all are done. */
static spx_status profiles(spx_rv_group *g, size_t n, spx_rv_profile *p, spx_err *e)
{
    spx_status surveyed = survey_all(g, n, p, e);
    if (surveyed != SPX_OK)
        return surveyed;
    for (;;) {
        size_t m = 0, total = 0;
        for (size_t k = 0; k < n; k++)
            if (p[k].step != SPX_RV_DONE) {
                g->part[m] = &g->ws[p[k].w->slot];
                g->part_of[m] = k;
                memcpy(g->at[m], p[k].x, sizeof g->at[m]);
                g->first[m++] = total;
                total += spx_rv_profile_ask(&p[k], NULL);
            }
        if (m == 0)
            return SPX_OK;
        g->first[m] = total;
        spx_status st = spx_rv_need_velocities(g, total, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            (void)spx_rv_profile_ask(&p[g->part_of[k]], g->v + g->first[k]);
        if (st != SPX_OK ||
            (total > 0 && (st = g->engine->values(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at,
                                                  g->first, g->v, g->f, e)) != SPX_OK))
            return st;
        for (size_t k = 0; k < m; k++)
            spx_rv_profile_take(&p[g->part_of[k]], g->v + g->first[k], g->f + g->first[k]);
    }
}

/* Curvatures of n stars (g->some) at their minima, into g->hess[g->some_of[]]. What a smooth interpolation says there
 * it says with the derivatives; between linear cells there are several. */
static spx_status curvatures(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_status st = SPX_OK;
    int kinks = g->c->interpolator == SPX_INTERPOLATE_GRID;
    for (size_t k = 0; k < n; k++)
        memcpy(g->at[k], g->min[g->some_of[k]].x, sizeof g->at[k]);
    if (kinks)
        st = spx_rv_mean_curvature(g->engine, g->c, n, g->some, (const double(*)[SPX_MAX_FIT])g->at, g->value, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        memcpy(g->hess[g->some_of[k]], kinks ? g->value[k].hess : g->min[g->some_of[k]].at.hess, sizeof g->hess[k]);
    return st;
}

/* Errors of v of n stars (g->some, whose minima are g->min[g->some_of[]]), n <= together; where the scan meets a lower
 * point, that is where the minimum is sought again. */
spx_status spx_rv_velocity_errors(spx_rv_group *g, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = SPX_OK;
    for (int refit = 0; n > 0 && st == SPX_OK; refit++) {
        if ((st = curvatures(g, n, e)) != SPX_OK)
            return st;
        for (size_t k = 0; k < n; k++) {
            const spx_rv_minimum *min = &g->min[g->some_of[k]];
            const double *hess = g->hess[g->some_of[k]];
            spx_rvfit_star *s = &out->star[g->star[g->some_of[k]]];
            s->vrad_alt = s->dchisq_alt = NAN;
            spx_rv_profile_begin(&g->prof[k], g->some[k], min->x, min->at.f, hess[0] > 0 ? sqrt(2 / hess[0]) : 0);
        }
        if (c->nfree == 0 || c->freeq[0] != 0 || (st = profiles(g, n, g->prof, e)) != SPX_OK)
            return st;
        size_t m = 0;
        for (size_t k = 0; k < n; k++) {
            const spx_rv_profile *p = &g->prof[k];
            size_t j = g->some_of[k];
            spx_rvfit_star *s = &out->star[g->star[j]];
            s->vrad_err = p->err;
            s->vrad_skew = p->skew;
            s->vrad_kurt = p->kurt;
            spx_rv_profile_other(p, &s->vrad_alt, &s->dchisq_alt);
            if (p->lower == p->x[0] || refit == REFITS)
                continue;
            memcpy(g->again[m][0].x, p->x, sizeof g->again[m][0].x);
            g->again[m][0].x[0] = p->lower;
            g->some[m] = g->some[k];
            g->some_of[m++] = j;
        }
        n = 0;
        if (m > 0)
            st = spx_rv_group_minimise(g, m, g->some, (const spx_rv_start(*)[SPX_RV_MAX_START])g->again, g->one,
                                       g->found, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++) {
            spx_rv_minimum *min = &g->min[g->some_of[k]];
            if (!(g->found[k].at.f < min->at.f))
                continue;
            memcpy(min->x, g->found[k].x, sizeof min->x);
            min->at = g->found[k].at;
            min->converged = g->found[k].converged;
            g->some[n] = g->some[k];
            g->some_of[n++] = g->some_of[k];
        }
    }
    return st;
}
