/* Provides starts that are followed ahead of their turn. Starts of a star are followed one after another, since a later
 * one may meet the best minimum or be hopeless; but the points of a start depend on no other one. Where few points are
 * wanted and an engine computes more in the same time, those of later starts are computed beside them, and are there
 * when their turn comes: the search is the same, in fewer steps. */
#include "rvfit/search/group.h"

static spx_rv_spectra *spectra_of(spx_rv_star *s, int coarse)
{
    return coarse ? &s->coarse : &s->spectra;
}

int spx_rv_ahead_next(spx_rv_star *s, int coarse)
{
    spx_rv_search *f = &s->search;
    while (spx_rv_search_next(f, s->point)) {
        const spx_rv_ahead *a = s->ahead[f->s];
        const size_t i = f->steps;
        if (a == NULL || i >= a->n || memcmp(s->point, a->x[i], sizeof a->x[i]) != 0)
            return 1;
        spectra_of(s, coarse)->neval++;
        spx_rv_search_take(f, s->point, &a->value[i]);
    }
    return 0;
}

/* Start j of a star, which is followed from now on; NULL: it is at its end, or there is no memory for it. */
static spx_rv_ahead *follow(spx_rv_group *g, spx_rv_star *s, size_t j)
{
    const spx_rv_search *f = &s->search;
    if (s->ahead[j] == NULL && g->nahead < g->most_ahead) {
        spx_rv_ahead *a = s->ahead[j] = &g->ahead[g->nahead++];
        a->n = 0;
        a->ended = 0;
        spx_rv_search_begin(&a->search, f->c, 1, 1, &f->start[j], f->look, f->tolerance, &a->found);
    }
    return s->ahead[j] != NULL && !s->ahead[j]->ended ? s->ahead[j] : NULL;
}

void spx_rv_ahead_ask(spx_rv_group *g, size_t n, spx_rv_star *const *star, int coarse)
{
    spx_rv_request *r = &g->ask;
    const size_t most = n < g->engine->fill ? n : g->engine->fill;
    g->nasked = 0;
    for (size_t later = 1; later < SPX_RV_MAX_START && r->n < most; later++)
        for (size_t k = 0; k < n && r->n < most; k++) {
            spx_rv_star *s = star[k];
            const size_t j = s->search.s + later;
            spx_rv_ahead *a = s->wants && j < s->search.nsure ? follow(g, s, j) : NULL;
            if (a == NULL)
                continue;
            a->ended = a->n == SPX_RV_AHEAD || !spx_rv_search_next(&a->search, a->x[a->n]);
            if (a->ended)
                continue;
            g->asked[g->nasked++] = a;
            spx_rv_ask(r, s, a->x[a->n]);
            r->spectra[r->n - 1] = spectra_of(s, coarse);
        }
}

void spx_rv_ahead_take(spx_rv_group *g)
{
    const spx_rv_request *r = &g->ask;
    const size_t first = r->n - g->nasked;
    for (size_t i = 0; i < g->nasked; i++) {
        spx_rv_ahead *a = g->asked[i];
        r->spectra[first + i]->neval--; /* it counts when its turn comes */
        a->value[a->n] = r->value[first + i];
        spx_rv_search_take(&a->search, a->x[a->n], &a->value[a->n]);
        a->n++;
    }
}

void spx_rv_ahead_end(spx_rv_group *g, size_t n, spx_rv_star *const *star)
{
    for (size_t k = 0; k < n && g->nahead > 0; k++)
        memset(star[k]->ahead, 0, sizeof star[k]->ahead);
    g->nahead = 0;
}
