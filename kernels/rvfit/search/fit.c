/* Provides the fit of a group of stars: starts, minima, jitter and rejected pixels, errors, models. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "rvfit/search/group.h"

/* Models and chi^2 of n stars at their minima, n <= together. */
static spx_status models(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    r->n = 0;
    for (size_t k = 0; k < n; k++)
        spx_rv_ask(r, star[k], star[k]->min.x);
    return n > 0 ? g->engine->models(g->engine->state, n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, e) : SPX_OK;
}

/* The engine gets new data of n stars. */
static spx_status load(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    r->n = 0;
    for (size_t k = 0; k < n; k++)
        spx_rv_ask(r, star[k], star[k]->point); /* data are of no point */
    return g->engine->load ? g->engine->load(g->engine->state, n, r->spectra, e) : SPX_OK;
}

/* Starts of stars g->again[m] once the worst of their outliers are masked, after where they are: those may have led to
 * a wrong minimum. */
static spx_status start_again(spx_rv_group *g, size_t m, spx_err *e)
{
    spx_status st = spx_rv_group_starts(g, m, g->again, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++) {
        spx_rv_star *s = g->again[k];
        size_t n = s->given && isfinite(s->given[0]) ? 0 : s->nstart;
        n = n < SPX_RV_MAX_START ? n : SPX_RV_MAX_START - 1;
        memmove(s->start + 1, s->start, n * sizeof s->start[0]);
        memcpy(s->start[0].x, s->min.x, sizeof s->start[0].x);
        s->nsure = (s->nsure < n ? s->nsure : n) + 1;
        s->nstart = n + 1;
    }
    return st;
}

/* A fitted jitter, and rejection of pixels, by the engine, of those of n stars, n <= together, that it has read:
 * `again` and `masked`. */
static spx_status revise_unread(spx_rv_group *g, size_t n, spx_rv_star *const *star, int jitter, int reject, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    spx_status st = SPX_OK;
    r->n = 0;
    for (size_t k = 0; k < n; k++)
        if (star[k]->spectra.unread && star[k]->min.at.f < HUGE_VAL)
            spx_rv_ask(r, star[k], star[k]->min.x);
    if (r->n == 0)
        return SPX_OK;
    if (jitter)
        st = g->engine->jitter(g->engine->state, r->n, r->spectra, r->first, e);
    for (size_t k = 0; k < r->n && jitter && st == SPX_OK; k++)
        r->star[k]->again = r->first[k] > 0;
    if (reject && st == SPX_OK)
        st = g->engine->reject(g->engine->state, r->n, r->spectra, g->c->opt->reject_sigma, r->first, e);
    for (size_t k = 0; k < r->n && reject && st == SPX_OK; k++)
        r->star[k]->masked = r->first[k] > 0;
    return st;
}

enum { JITTER_ROUNDS = 4 };

/* Errors of n stars, by their models: a fitted jitter, and pixels that are masked. Stars that are to be fitted again
 * have `again`, those of which pixels were masked `masked`. */
static spx_status revise(spx_rv_group *g, size_t n, spx_rv_star *const *star, int jitter, int reject, spx_err *e)
{
    const double sigma = g->c->opt->reject_sigma;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < n; k++)
        star[k]->again = star[k]->masked = 0;
    for (size_t k = 0; k < n && st == SPX_OK; k += g->together) {
        const size_t m = n - k < g->together ? n - k : g->together;
        if ((st = models(g, m, star + k, e)) != SPX_OK ||
            (st = revise_unread(g, m, star + k, jitter, reject, e)) != SPX_OK)
            return st;
        EACH_STAR(i, m, 1)
        {
            spx_rv_star *s = star[k + i];
            s->spectra.workspace = &g->workspace[omp_get_thread_num()];
            if (s->min.at.f < HUGE_VAL && !s->spectra.unread) {
                s->again = jitter && spx_rv_fit_jitter(&s->spectra);
                s->masked = reject && spx_rv_reject(&s->spectra, sigma) > 0;
            }
            s->again = s->again || s->masked;
        }
    }
    return st;
}

/* Rounds of rejection and of a fitted jitter: stars whose errors have changed are fitted again from where they are. */
static spx_status revise_errors(spx_rv_group *g, size_t n, spx_err *e)
{
    const spx_rvfit_options *o = g->c->opt;
    const int rounds = !o->jitter ? o->reject : o->reject > JITTER_ROUNDS ? o->reject : JITTER_ROUNDS;
    size_t left = n;
    memcpy(g->again, g->fitted, n * sizeof(spx_rv_star *));
    for (int round = 0; round < rounds && left > 0; round++) {
        size_t m = 0, masked = 0;
        spx_status st = revise(g, left, g->again, o->jitter, round < o->reject, e);
        if (st != SPX_OK)
            return st;
        for (int first = 1; first >= 0; first--) { /* stars with masked pixels, then the others */
            for (size_t k = 0; k < n; k++) {
                spx_rv_star *s = g->fitted[k];
                if (!s->again || s->masked != first)
                    continue;
                g->again[m++] = s;
                memcpy(s->start[0].x, s->min.x, sizeof s->min.x);
                s->nstart = s->nsure = 1;
            }
            if (first)
                masked = m;
        }
        left = m;
        if (m > 0 && ((st = load(g, m, g->again, e)) != SPX_OK ||
                      (round == 0 && masked > 0 && (st = start_again(g, masked, e)) != SPX_OK) ||
                      (st = spx_rv_group_minimise(g, m, g->again, e)) != SPX_OK))
            return st;
        for (size_t k = 0; k < m; k++)
            g->again[k]->min = g->again[k]->found;
    }
    return SPX_OK;
}

/* Searches stars of n whose velocity is open, n <= together, where a scan with another rotation is lowest: lines that
 * are hardly seen fit at one velocity as wide ones, at another as narrow ones. */
static spx_status look_elsewhere(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    spx_status st = spx_rv_turn_open(g, n, star, e);
    size_t m = 0;
    for (size_t k = 0; k < n; k++)
        if (star[k]->nstart > 0)
            g->again[m++] = star[k];
    if (st != SPX_OK || m == 0 || (st = spx_rv_group_minimise(g, m, g->again, e)) != SPX_OK)
        return st;
    for (size_t k = 0; k < m; k++)
        if (g->again[k]->found.at.f < g->again[k]->min.at.f - SPX_RV_LOWER)
            g->again[k]->min = g->again[k]->found;
    return SPX_OK;
}

/* Cross-correlation of n stars with starts, as it is kept. */
static spx_status keep_curves(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_rvfit *out, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    EACH_STAR(k, n, 1)
    {
        spx_rv_spectra *w = &star[k]->spectra;
        w->workspace = &g->workspace[omp_get_thread_num()];
        if (!w->unread && w->ccf_entry >= 0)
            spx_rv_keep_ccf(w, out);
    }
    r->n = 0;
    for (size_t k = 0; k < n; k++)
        if (star[k]->spectra.unread && star[k]->spectra.ccf_entry >= 0)
            spx_rv_ask(r, star[k], star[k]->point); /* curves are of no point */
    return r->n > 0 ? g->engine->curves(g->engine->state, r->n, r->spectra, out, e) : SPX_OK;
}

/* Where the models of a star go that is unread. */
static void keep_models(const spx_rv_ctx *c, spx_rv_spectra *w, const spx_rvfit *out)
{
    for (size_t i = 0; w->unread && i < w->first[c->narm]; i++) {
        spx_rv_data *d = &w->piece[i];
        const size_t a = c->arm[d->arm].index;
        d->kept = out->arm[a].model != NULL ? out->arm[a].model + d->exposure * c->arm[d->arm].n : NULL;
    }
}

/* Everything after the minima of n of the stars that can be fitted, n <= together. */
static spx_status finish(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_rvfit *out, spx_err *e)
{
    size_t m = 0;
    spx_status st = look_elsewhere(g, n, star, e);
    for (size_t k = 0; k < n; k++) {
        if (star[k]->min.at.f < HUGE_VAL)
            g->again[m++] = star[k];
        else
            spx_rv_bad_star(g->c, &out->star[star[k]->index]);
    }
    if (st == SPX_OK)
        st = spx_rv_velocity_errors(g, m, out, e);
    if (st == SPX_OK && g->c->opt->jitter)
        st = spx_rv_misfit(g, n, star, e);
    for (size_t k = 0; k < n; k++)
        keep_models(g->c, &star[k]->spectra, out);
    if (st != SPX_OK || (st = models(g, n, star, e)) != SPX_OK ||
        (st = spx_rv_compare_exposures(g, n, star, out, e)) != SPX_OK ||
        (st = spx_rv_compare_arms(g, n, star, e)) != SPX_OK)
        return st;
    EACH_STAR(k, n, 1)
    {
        star[k]->spectra.workspace = &g->workspace[omp_get_thread_num()];
        if (star[k]->min.at.f < HUGE_VAL)
            spx_rv_finish_star(g->c, star[k], out);
        if (star[k]->min.at.f < HUGE_VAL && g->c->opt->components > 1)
            spx_rv_double(star[k], out);
    }
    for (size_t k = 0; k < n; k++)
        if (star[k]->spectra.err.code != SPX_OK)
            return spx_err_pass(e, &star[k]->spectra.err);
    return g->c->opt->epochs ? spx_rv_epochs(g, n, star, out, e) : SPX_OK;
}

/* An error that a workspace met, if any. */
static spx_status any_error(const spx_rv_group *g, size_t n, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        if (g->star[k].spectra.err.code != SPX_OK)
            return spx_err_pass(e, &g->star[k].spectra.err);
    return SPX_OK;
}

spx_status spx_rv_group_fit(spx_rv_group *g, size_t first, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t m = 0;
    EACH_STAR(k, n, 1)
    {
        spx_rv_star *s = &g->star[k];
        s->index = first + k;
        s->given = c->in->start ? c->in->start + s->index * c->nq : NULL;
        s->spectra.workspace = &g->workspace[omp_get_thread_num()];
        s->again = g->engine->reads && c->opt->components < 2 /* pairs are sought in pixels of the host */
                       ? spx_rv_list(&s->spectra, s->index)
                       : spx_rv_load(&s->spectra, s->index);
    }
    for (size_t k = 0; k < n; k++)
        if (g->star[k].again)
            g->fitted[m++] = &g->star[k];
    spx_status st = any_error(g, n, e);
    if (st != SPX_OK || (m > 0 && (st = load(g, m, g->fitted, e)) != SPX_OK))
        return st;
    m = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_star *s = &g->star[k];
        if (s->spectra.first[c->narm] > 0) {
            g->fitted[m++] = s;
        } else {
            spx_rv_bad_star(c, &out->star[s->index]);
            out->star[s->index].bad = s->spectra.bad;
        }
    }
    if (m == 0 || (st = spx_rv_group_starts(g, m, g->fitted, e)) != SPX_OK)
        return st;
    for (size_t k = 0; k < m; k++) {
        const spx_rv_star *s = g->fitted[k];
        out->star[s->index].vrad_ccf = s->v_ccf;
        out->star[s->index].ccf_entry = s->spectra.ccf_entry;
    }
    if ((c->opt->keep_ccf && (st = keep_curves(g, m, g->fitted, out, e)) != SPX_OK) ||
        (st = any_error(g, n, e)) != SPX_OK || (st = spx_rv_group_minimise(g, m, g->fitted, e)) != SPX_OK)
        return st;
    for (size_t k = 0; k < m; k++)
        g->fitted[k]->min = g->fitted[k]->found;
    st = revise_errors(g, m, e);
    for (size_t k = 0; k < m && st == SPX_OK; k += g->together)
        st = finish(g, m - k < g->together ? m - k : g->together, g->fitted + k, out, e);
    return st;
}
