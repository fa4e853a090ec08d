/* Provides the memory of a group of stars. */

#include "rvfit/search/group.h"
#include "base/mem.h"

void spx_rv_group_free(spx_rv_group *g)
{
    if (!g)
        return;
    for (size_t k = 0; g->star && k < g->most; k++) {
        spx_rv_spectra_free(&g->star[k].spectra);
        spx_rv_spectra_free(&g->star[k].coarse);
    }
    for (size_t k = 0; g->workspace && k < g->nworkspace; k++)
        spx_rv_workspace_free(&g->workspace[k]);
    spx_rv_request *r = &g->ask;
    void *all[] = {g->star,    g->workspace, g->fitted, g->again,      g->list,  g->ahead, g->pieces, r->star,
                   r->spectra, r->x,         r->value,  r->candidates, r->first, r->v,     r->f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
    spx_free(g);
}

spx_rv_group *spx_rv_group_new(const spx_rv_ctx *c, const spx_rv_engine *engine, size_t most, spx_err *e)
{
    spx_rv_group *g = spx_alloc(1, sizeof *g, e);
    if (!g)
        return NULL;
    *g = (spx_rv_group){.c = c, .engine = engine, .most = most, .nworkspace = (size_t)engine->threads};
    g->together = engine->together < most ? engine->together : most;
    spx_rv_request *r = &g->ask;
#define MAKE(field, n) (field = spx_alloc(n, sizeof *field, e))
    int ok = MAKE(g->star, most) && MAKE(g->workspace, g->nworkspace) && MAKE(g->fitted, most) &&
             MAKE(g->again, most) && MAKE(g->list, most) && MAKE(r->star, most) && MAKE(r->spectra, most) &&
             MAKE(r->x, most) && MAKE(r->value, most) && MAKE(r->candidates, most) && MAKE(r->first, most + 1);
    g->most_ahead = engine->fill * (SPX_RV_MAX_START - 1) / 2;
    ok = ok && (g->most_ahead == 0 || MAKE(g->ahead, g->most_ahead));
#undef MAKE
    for (size_t k = 0; k < g->nworkspace && ok; k++)
        ok = spx_rv_workspace_init(&g->workspace[k], c, e) == SPX_OK;
    /* of all stars in one block, which has large pages */
    const size_t fine = spx_rv_pieces_bytes(c), coarse = spx_rv_has_coarse(g) ? spx_rv_pieces_bytes(c->coarse) : 0;
    ok = ok && (g->pieces = spx_alloc2(most, fine + coarse, 1, e)) != NULL;
    for (size_t k = 0; k < most && ok; k++) {
        char *own = g->pieces + k * (fine + coarse);
        ok = spx_rv_spectra_init(&g->star[k].spectra, c, &g->workspace[0], own, e) == SPX_OK &&
             (coarse == 0 ||
              spx_rv_spectra_init(&g->star[k].coarse, c->coarse, &g->workspace[0], own + fine, e) == SPX_OK);
        g->star[k].spectra.slot = g->star[k].coarse.slot = k;
        g->star[k].coarse.of = &g->star[k].spectra;
    }
    if (ok)
        return g;
    spx_rv_group_free(g);
    return NULL;
}

spx_rv_spectra *spx_rv_group_spectra(spx_rv_group *g, size_t k)
{
    return &g->star[k].spectra;
}

spx_rv_workspace *spx_rv_group_workspace(spx_rv_group *g, size_t thread)
{
    return &g->workspace[thread];
}

spx_status spx_rv_need_velocities(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    if (n <= r->capacity)
        return SPX_OK;
    spx_free(r->v);
    spx_free(r->f);
    r->v = spx_alloc(n, sizeof *r->v, e);
    r->f = spx_alloc(n, sizeof *r->f, e);
    r->capacity = r->v && r->f ? n : 0;
    return r->capacity ? SPX_OK : SPX_EIO;
}

spx_status spx_rv_ask_values(spx_rv_group *g, spx_err *e)
{
    const spx_rv_request *r = &g->ask;
    return g->engine->values(g->engine->state, r->n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, r->first, r->v,
                             r->f, e);
}
