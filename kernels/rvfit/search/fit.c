/* Provides the fit of a group of stars: starts, minima, rejected pixels, errors, models. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "rvfit/search/group.h"

/* Models and chi^2 of n stars at their minima, n <= together. */
static spx_status models(spx_rv_group *g, size_t n, spx_rv_ws *const *w, const spx_rv_minimum *min, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        memcpy(g->at[k], min[k].x, sizeof g->at[k]);
    return n > 0 ? g->engine->models(g->engine->state, n, w, (const double(*)[SPX_MAX_FIT])g->at, e) : SPX_OK;
}

/* Starts of stars g->some[m] once the worst of their outliers are masked, after where they are: those may have led to a
 * wrong minimum. */
static spx_status start_again(spx_rv_group *g, size_t m, spx_err *e)
{
    for (size_t k = 0; k < m; k++)
        g->given_again[k] = g->given[g->some_of[k]];
    spx_status st = spx_rv_group_starts(g, m, g->some, g->given_again, g->again, g->nagain, g->v_again, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++) {
        const double *given = g->given_again[k];
        size_t n = given && isfinite(given[0]) ? 0 : g->nagain[k];
        n = n < SPX_RV_MAX_START ? n : SPX_RV_MAX_START - 1;
        memmove(g->again[k] + 1, g->again[k], n * sizeof g->again[k][0]);
        memcpy(g->again[k][0].x, g->min[g->some_of[k]].x, sizeof g->again[k][0].x);
        g->nagain[k] = n + 1;
    }
    return st;
}

/* Rounds of rejection: stars of which pixels were masked are fitted again from where they are. */
static spx_status reject_outliers(spx_rv_group *g, size_t n, spx_err *e)
{
    const spx_rvfit_options *o = g->c->opt;
    spx_status st = SPX_OK;
    for (int round = 0; round < o->reject && st == SPX_OK; round++) {
        size_t m = 0;
        for (size_t k = 0; k < n && st == SPX_OK; k += g->together) {
            size_t end = n - k < g->together ? n : k + g->together;
            st = models(g, end - k, g->who + k, g->min + k, e);
            EACH_STAR(i, end - k, 1)
            {
                spx_rv_ws *w = g->who[k + i];
                w->room = &g->room[omp_get_thread_num()];
                g->wants[k + i] = g->min[k + i].at.f < HUGE_VAL && spx_rv_reject(w, o->reject_sigma) > 0;
            }
        }
        for (size_t k = 0; k < n && st == SPX_OK; k++)
            if (g->wants[k]) {
                memcpy(g->again[m][0].x, g->min[k].x, sizeof g->min[k].x);
                g->some_of[m] = k;
                g->some[m++] = g->who[k];
            }
        if (st != SPX_OK || m == 0)
            return st;
        if ((g->engine->load && (st = g->engine->load(g->engine->state, m, g->some, e)) != SPX_OK) ||
            (round == 0 && (st = start_again(g, m, e)) != SPX_OK) ||
            (st = spx_rv_group_minimise(g, m, g->some, (const spx_rv_start(*)[SPX_RV_MAX_START])g->again,
                                        round == 0 ? g->nagain : g->one, g->found, e)) != SPX_OK)
            return st;
        for (size_t k = 0; k < m; k++) {
            spx_rv_minimum *old = &g->min[g->some_of[k]];
            memcpy(old->x, g->found[k].x, sizeof old->x);
            old->at = g->found[k].at;
            old->converged = g->found[k].converged;
        }
    }
    return st;
}

/* Everything after the minima of stars k0 ... k0+n-1 of those that can be fitted, n <= together. */
static spx_status finish(spx_rv_group *g, size_t k0, size_t n, spx_rvfit *out, spx_err *e)
{
    size_t m = 0;
    for (size_t k = k0; k < k0 + n; k++) {
        if (!(g->min[k].at.f < HUGE_VAL)) {
            spx_rv_bad_star(g->c, &out->star[g->star[k]]);
            continue;
        }
        g->some[m] = g->who[k];
        g->some_of[m++] = k;
    }
    spx_status st = spx_rv_velocity_errors(g, m, out, e);
    if (st != SPX_OK || (st = models(g, n, g->who + k0, g->min + k0, e)) != SPX_OK)
        return st;
    EACH_STAR(i, n, 1)
    {
        size_t k = k0 + i;
        if (g->min[k].at.f < HUGE_VAL)
            spx_rv_finish_star(g->c, g->who[k], &g->min[k], g->hess[k], &out->star[g->star[k]], out);
    }
    return SPX_OK;
}

/* An error that a workspace met, if any. */
static spx_status any_error(const spx_rv_group *g, size_t n, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        if (g->ws[k].err.code != SPX_OK)
            return spx_fail(e, g->ws[k].err.code, "%s", g->ws[k].err.msg);
    return SPX_OK;
}

spx_status spx_rv_group_fit(spx_rv_group *g, size_t first, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t m = 0;
    EACH_STAR(k, n, 1)
    {
        g->ws[k].room = &g->room[omp_get_thread_num()];
        g->wants[k] = spx_rv_load(&g->ws[k], first + k);
    }
    for (size_t k = 0; k < n; k++) {
        if (!g->wants[k]) {
            spx_rv_bad_star(c, &out->star[first + k]);
            continue;
        }
        g->given[m] = c->in->start ? c->in->start + (first + k) * c->nq : NULL;
        g->who[m] = &g->ws[k];
        g->star[m++] = first + k;
    }
    spx_status st = any_error(g, n, e);
    if (st != SPX_OK || m == 0 ||
        (g->engine->load && (st = g->engine->load(g->engine->state, m, g->who, e)) != SPX_OK) ||
        (st = spx_rv_group_starts(g, m, g->who, g->given, g->start, g->nstart, g->v_ccf, e)) != SPX_OK)
        return st;
    EACH_STAR(k, m, 1)
    {
        spx_rvfit_star *s = &out->star[g->star[k]];
        s->vrad_ccf = g->v_ccf[k];
        s->ccf_entry = g->who[k]->ccf_entry;
        g->who[k]->room = &g->room[omp_get_thread_num()];
        if (c->opt->keep_ccf && s->ccf_entry >= 0)
            spx_rv_keep_ccf(g->who[k], out);
    }
    if ((st = any_error(g, n, e)) != SPX_OK ||
        (st = spx_rv_group_minimise(g, m, g->who, (const spx_rv_start(*)[SPX_RV_MAX_START])g->start, g->nstart, g->min,
                                    e)) != SPX_OK ||
        (st = reject_outliers(g, m, e)) != SPX_OK)
        return st;
    for (size_t k = 0; k < m && st == SPX_OK; k += g->together)
        st = finish(g, k, m - k < g->together ? m - k : g->together, out, e);
    return st;
}
