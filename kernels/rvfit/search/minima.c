/* Provides the minima of the stars of a group from their starts: a search for each, side by side, and where the
 * interpolation has kinks a search without derivatives around what it found. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

enum { PATTERN_ROUNDS = 3, FEW_STEPS = 64 /* stars whose search takes a step */ };
static const double PATTERN_GAIN = 1e-3; /* a pattern search that gains less was the last */

/* Searches of n stars from their starts, a point of each at a time. */
static spx_status search_all(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    for (size_t k = 0; k < n; k++)
        spx_rv_search_begin(&star[k]->search, g->c, star[k]->nstart, star[k]->nsure, star[k]->start, &star[k]->found);
    for (;;) {
        r->n = 0;
        EACH_STAR(k, n, FEW_STEPS)
        star[k]->wants = spx_rv_search_next(&star[k]->search, star[k]->point);
        for (size_t k = 0; k < n; k++)
            if (star[k]->wants)
                spx_rv_ask(r, star[k], star[k]->point);
        if (r->n == 0)
            return SPX_OK;
        spx_status st =
            g->engine->eval(g->engine->state, r->n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, NULL, r->value, e);
        if (st != SPX_OK)
            return st;
        EACH_STAR(k, r->n, FEW_STEPS)
        spx_rv_search_take(&r->star[k]->search, r->x[k], &r->value[k]);
    }
}

/* Does the interpolation have kinks, at which a descent may end though it goes on downhill beyond? */
static int has_kinks(const spx_rv_ctx *c)
{
    int leaky = 0;
    for (size_t i = 0; i < c->narm; i++)
        leaky |= c->arm[i].setup->nn.activation == SPX_NN_LEAKY;
    return c->interpolator == SPX_INTERPOLATE_SIMPLEX || (c->interpolator == SPX_INTERPOLATE_NN && leaky);
}

/* One round of the pattern search around the minima of the stars g->list[n]: the lowest of the points of each becomes
 * its start. */
static spx_status try_points(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < n; k++) {
        spx_rv_start *lowest = g->list[k]->start;
        memcpy(lowest->x, g->list[k]->found.x, sizeof lowest->x);
        lowest->f = g->list[k]->found.at.f;
    }
    for (size_t i = 0; st == SPX_OK; i++) {
        int more = 0;
        r->n = 0;
        for (size_t k = 0; k < n; k++) {
            spx_rv_star *s = g->list[k];
            more = spx_rv_pattern_point(g->c, s->chol, i, s->start->x, s->point);
            r->first[k] = k;
            r->v[k] = s->point[0];
            spx_rv_ask(r, s, s->point);
        }
        if (!more)
            return SPX_OK;
        r->first[n] = n;
        st = spx_rv_ask_values(g, e);
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            spx_rv_start *lowest = r->star[k]->start;
            if (r->f[k] < lowest->f - SPX_RV_PATTERN_LOWER) {
                lowest->f = r->f[k];
                memcpy(lowest->x, r->x[k], sizeof lowest->x);
            }
        }
    }
    return st;
}

/* Pattern search around the minima of n stars, n <= together, and descent from where it led, until nothing near is
 * lower. */
static spx_status pattern_search(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = spx_rv_need_velocities(g, n, e);
    size_t going = 0;
    for (size_t k = 0; k < n; k++)
        if (c->nfree > 0 && star[k]->found.at.f < HUGE_VAL)
            g->list[going++] = star[k];
    for (int round = 0; round < PATTERN_ROUNDS && st == SPX_OK; round++) {
        size_t m = 0, fell = 0;
        for (size_t k = 0; k < going; k++)
            if (spx_rv_pattern_axes(c, &g->list[k]->found.at, g->list[k]->chol))
                g->list[m++] = g->list[k];
        if (m == 0)
            return SPX_OK;
        st = try_points(g, m, e);
        for (size_t k = 0; k < m; k++) {
            spx_rv_star *s = g->list[k];
            double gain = s->found.at.f - s->start->f;
            s->nstart = s->nsure = 1;
            s->again = gain >= PATTERN_GAIN;
            if (gain > 0)
                g->list[fell++] = s;
        }
        if (st == SPX_OK && fell > 0)
            st = search_all(g, fell, g->list, e);
        going = 0;
        for (size_t k = 0; k < fell && st == SPX_OK; k++) {
            g->list[k]->found.converged = 1; /* nothing near was lower when it ended */
            if (g->list[k]->again)
                g->list[going++] = g->list[k];
        }
    }
    return st;
}

spx_status spx_rv_group_minimise(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    if (g->c->interpolator == SPX_INTERPOLATE_GRID)
        return spx_rv_minimise(g->engine, g->c, n, star, e);
    spx_status st = search_all(g, n, star, e);
    for (size_t k = 0; k < n && st == SPX_OK && has_kinks(g->c); k += g->together)
        st = pattern_search(g, n - k < g->together ? n - k : g->together, star + k, e);
    return st;
}
