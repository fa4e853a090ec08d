/* Provides the minima of the stars of a group from their starts: a search for each, side by side, and where the
 * interpolation has kinks a search without derivatives around what it found. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

enum { POLISH_ROUNDS = 3, FEW_STEPS = 64 /* stars whose search takes a step */ };
static const double POLISHED = 1e-3; /* a polish that gains less was the last */

/* Searches of n stars, a point of each at a time. */
static spx_status search_all(spx_rv_group *g, size_t n, spx_rv_ws *const *w,
                             const spx_rv_start (*start)[SPX_RV_MAX_START], const size_t *nstart, spx_rv_minimum *out,
                             spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        spx_rv_search_begin(&g->search[k], g->c, nstart[k], start[k], &out[k]);
    for (;;) {
        size_t m = 0;
        EACH_STAR(k, n, FEW_STEPS)
        g->wants[k] = spx_rv_search_next(&g->search[k], g->point[k]);
        for (size_t k = 0; k < n; k++)
            if (g->wants[k]) {
                g->asked[m] = w[k];
                memcpy(g->at[m], g->point[k], sizeof g->at[m]);
                g->asked_of[m++] = k;
            }
        if (m == 0)
            return SPX_OK;
        spx_status st =
            g->engine->eval(g->engine->state, m, g->asked, (const double(*)[SPX_MAX_FIT])g->at, NULL, g->value, e);
        if (st != SPX_OK)
            return st;
        EACH_STAR(k, m, FEW_STEPS)
        spx_rv_search_take(&g->search[g->asked_of[k]], g->at[k], &g->value[k]);
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

/* Search without derivatives around the minima of n stars, n <= together, and descent from where it led, until nothing
 * near is lower. */
static spx_status polish(spx_rv_group *g, size_t n, spx_rv_ws *const *w, spx_rv_minimum *min, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = spx_rv_need_velocities(g, n, e);
    for (size_t k = 0; k < n; k++)
        g->going[k] = c->nfree > 0 && min[k].at.f < HUGE_VAL;
    for (int round = 0; round < POLISH_ROUNDS && st == SPX_OK; round++) {
        size_t m = 0;
        for (size_t k = 0; k < n; k++) {
            g->going[k] = g->going[k] && spx_rv_probe_scale(c, &min[k].at, g->chol[k]);
            if (!g->going[k])
                continue;
            g->part[m] = w[k];
            g->part_of[m] = k;
            memcpy(g->base[m][0].x, min[k].x, sizeof min[k].x);
            g->best[m++] = min[k].at.f;
        }
        if (m == 0)
            return SPX_OK;
        for (size_t i = 0; st == SPX_OK; i++) {
            int more = 0;
            for (size_t k = 0; k < m; k++) {
                more = spx_rv_probe(c, g->chol[g->part_of[k]], i, g->base[k][0].x, g->at[k]);
                g->first[k] = k;
                g->v[k] = g->at[k][0];
            }
            if (!more)
                break;
            g->first[m] = m;
            st = g->engine->values(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at, g->first, g->v,
                                   g->f, e);
            for (size_t k = 0; k < m && st == SPX_OK; k++)
                if (g->f[k] < g->best[k] - SPX_RV_PROBE_LOWER) {
                    g->best[k] = g->f[k];
                    memcpy(g->base[k][0].x, g->at[k], sizeof g->at[k]);
                }
        }
        size_t fell = 0;
        for (size_t k = 0; k < m; k++) {
            double gain = min[g->part_of[k]].at.f - g->best[k];
            g->going[g->part_of[k]] = gain >= POLISHED;
            if (!(gain > 0))
                continue;
            g->part[fell] = g->part[k];
            g->part_of[fell] = g->part_of[k];
            memcpy(g->base[fell++][0].x, g->base[k][0].x, sizeof g->base[k][0].x);
        }
        if (st == SPX_OK && fell > 0)
            st = search_all(g, fell, g->part, (const spx_rv_start(*)[SPX_RV_MAX_START])g->base, g->one, g->reached, e);
        for (size_t k = 0; k < fell && st == SPX_OK; k++) {
            spx_rv_minimum *to = &min[g->part_of[k]];
            memcpy(to->x, g->reached[k].x, sizeof to->x);
            to->at = g->reached[k].at;
            to->converged = 1; /* nothing near was lower when it ended */
        }
    }
    return st;
}

spx_status spx_rv_group_minimise(spx_rv_group *g, size_t n, spx_rv_ws *const *w,
                                 const spx_rv_start (*start)[SPX_RV_MAX_START], const size_t *nstart,
                                 spx_rv_minimum *out, spx_err *e)
{
    if (g->c->interpolator == SPX_INTERPOLATE_GRID)
        return spx_rv_minimise(g->engine, g->c, n, w, start, nstart, out, e);
    spx_status st = search_all(g, n, w, start, nstart, out, e);
    for (size_t k = 0; k < n && st == SPX_OK && has_kinks(g->c); k += g->together)
        st = polish(g, n - k < g->together ? n - k : g->together, w + k, out + k, e);
    return st;
}
