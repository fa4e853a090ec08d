/* Provides the memory of a group of stars. */

#include "rvfit/search/group.h"
#include "base/mem.h"

void spx_rv_group_free(spx_rv_group *g)
{
    if (!g)
        return;
    for (size_t k = 0; g->ws && k < g->most; k++)
        spx_rv_ws_free(&g->ws[k]);
    for (size_t k = 0; g->room && k < g->nroom; k++)
        spx_rv_room_free(&g->room[k]);
    void *all[] = {g->ws,    g->room,  g->who,    g->star,    g->nstart, g->given,  g->v_ccf,       g->start,
                   g->min,   g->hess,  g->some,   g->some_of, g->again,  g->nagain, g->given_again, g->v_again,
                   g->found, g->prof,  g->part,   g->part_of, g->pick,   g->base,   g->reached,     g->chol,
                   g->best,  g->going, g->search, g->point,   g->wants,  g->asked,  g->asked_of,    g->value,
                   g->at,    g->first, g->v,      g->f,       g->one};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
    spx_free(g);
}

spx_rv_group *spx_rv_group_new(const spx_rv_ctx *c, const spx_rv_engine *engine, size_t most, spx_err *e)
{
    spx_rv_group *g = spx_alloc(1, sizeof *g, e);
    if (!g)
        return NULL;
    *g = (spx_rv_group){.c = c, .engine = engine, .most = most, .nroom = (size_t)engine->threads};
    g->together = engine->together < most ? engine->together : most;
#define MAKE(field) (g->field = spx_alloc(most, sizeof *g->field, e))
    int ok = MAKE(ws) && MAKE(who) && MAKE(star) && MAKE(nstart) && MAKE(given) && MAKE(v_ccf) && MAKE(start) &&
             MAKE(min) && MAKE(hess) && MAKE(some) && MAKE(some_of) && MAKE(again) && MAKE(nagain) &&
             MAKE(given_again) && MAKE(v_again) && MAKE(found) && MAKE(prof) && MAKE(part) && MAKE(part_of) &&
             MAKE(pick) && MAKE(base) && MAKE(reached) && MAKE(chol) && MAKE(best) && MAKE(going) && MAKE(search) &&
             MAKE(point) && MAKE(wants) && MAKE(asked) && MAKE(asked_of) && MAKE(value) && MAKE(at) && MAKE(one) &&
             (g->first = spx_alloc(most + 1, sizeof *g->first, e)) &&
             (g->room = spx_alloc((size_t)engine->threads, sizeof *g->room, e));
#undef MAKE
    for (size_t k = 0; k < g->nroom && ok; k++)
        ok = spx_rv_room_init(&g->room[k], c, e) == SPX_OK;
    for (size_t k = 0; k < most && ok; k++) {
        ok = spx_rv_ws_init(&g->ws[k], c, &g->room[0], e) == SPX_OK;
        g->ws[k].slot = k;
        g->one[k] = 1;
    }
    if (ok)
        return g;
    spx_rv_group_free(g);
    return NULL;
}

spx_rv_ws *spx_rv_group_ws(spx_rv_group *g, size_t k)
{
    return &g->ws[k];
}

spx_rv_room *spx_rv_group_room(spx_rv_group *g, size_t thread)
{
    return &g->room[thread];
}

/* Room for n velocities. */
spx_status spx_rv_need_velocities(spx_rv_group *g, size_t n, spx_err *e)
{
    if (n <= g->room_v)
        return SPX_OK;
    spx_free(g->v);
    spx_free(g->f);
    g->v = spx_alloc(n, sizeof *g->v, e);
    g->f = spx_alloc(n, sizeof *g->f, e);
    g->room_v = g->v && g->f ? n : 0;
    return g->room_v ? SPX_OK : SPX_EIO;
}
