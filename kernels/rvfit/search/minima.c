/* Provides the minima of the stars of a group from their starts: a search for each, side by side, and where the
 * interpolation has kinks a search without derivatives around what it found. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

enum {
    PATTERN_ROUNDS = 3,
    FEW_STEPS = 64, /* stars whose search takes a step */
    LOOK_STEPS = 4  /* of a start, before it is given up */
};
/* Of the objective, where a search ends; on the coarse model it goes on from there. */
static const double TOLERANCE = 1e-4, COARSE_TOLERANCE = 1e-2;
/* A minimum of the coarse model that is less than this above its lowest is a start of the search. */
static const double COARSE_DEPTH = 50;
/* Ends of the coarse model that differ by less are of one minimum. */
static const double SAME = 1e-2;
/* Error of a velocity by the coarse model, km/s, above which its minima are not enough. */
static const double FAINT = 10;
/* A minimum of the coarse model at bounds of parameters may be inside of the model's: another start is there, this
 * fraction of their range away. */
static const double INSIDE = 0.1;
/* Error of vsini by the coarse model, km/s, above which there is a start with another one: slow if this is exceeded. */
static const double ALIKE = 30, MODERATE = 75;
/* Errors of a parameter by the coarse model, fractions of its range, between which there is a start at the bound that
 * is farther: valleys are flat, and dwarfs and giants may both be at their ends. With a larger one it hardly matters.
 */
static const double OPEN = 0.1, VOID = 0.4;
/* Where the velocity is as open, the first start and the lowest minimum of the coarse model with all of these that are
 * unlike the rotation there, km/s. */
static const double ROTATION[] = {0, 300};
static const double PATTERN_GAIN = 1e-3; /* a pattern search that gains less was the last */

/* Steps of the searches of n stars that have begun, a point of each at a time: on the coarse model, or the model. */
static spx_status step_all(spx_rv_group *g, size_t n, spx_rv_star *const *star, int coarse, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    spx_status st = SPX_OK;
    while (st == SPX_OK) {
        r->n = 0;
        EACH_STAR(k, n, FEW_STEPS)
        star[k]->wants = spx_rv_ahead_next(star[k], coarse);
        for (size_t k = 0; k < n; k++)
            if (star[k]->wants) {
                spx_rv_ask(r, star[k], star[k]->point);
                if (coarse)
                    r->spectra[r->n - 1] = &star[k]->coarse;
            }
        const size_t wanted = r->n;
        if (wanted == 0)
            break;
        spx_rv_ahead_ask(g, n, star, coarse);
        st = g->engine->eval(g->engine->state, r->n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, NULL, r->value, e);
        if (st != SPX_OK)
            break;
        EACH_STAR(k, wanted, FEW_STEPS)
        spx_rv_search_take(&r->star[k]->search, r->x[k], &r->value[k]);
        spx_rv_ahead_take(g);
    }
    spx_rv_ahead_end(g, n, star);
    return st;
}

/* x with those of its parameters that are at bounds moved away from these, into y; 0: none is. */
static int from_bounds(const spx_rv_ctx *c, const double *x, double *y)
{
    int moved = 0;
    memcpy(y, x, SPX_MAX_FIT * sizeof *y);
    for (size_t q = 2; q < c->nq; q++) {
        const double inside = INSIDE * (c->hi[q] - c->lo[q]);
        if (!(c->lo[q] < c->hi[q]) || (x[q] > c->lo[q] && x[q] < c->hi[q]))
            continue;
        y[q] += x[q] <= c->lo[q] ? inside : -inside;
        moved = 1;
    }
    return moved;
}

/* Is vsini open by the coarse model, of which it is a fraction of a pixel? */
static int rotation_is_open(const spx_rv_search *f)
{
    const spx_rv_ctx *c = f->c;
    size_t k = 0;
    while (k < c->nfree && c->freeq[k] != 1)
        k++;
    return k < c->nfree && f->best->at.hess[k * c->nfree + k] * ALIKE * ALIKE <= 2;
}

/* x with another vsini, km/s, into y. */
static void turn(const spx_rv_ctx *c, const double *x, double vsini, double *y)
{
    memcpy(y, x, SPX_MAX_FIT * sizeof *y);
    y[1] = fmax(c->lo[1], fmin(c->hi[1], spx_rv_map(c, 1, vsini)));
}

/* Where the starts on the coarse model led to, unless far above the lowest, each minimum once, in this order into
 * to[most]; how many. */
static size_t lowest_ends(const spx_rv_search *f, size_t most, spx_rv_start *to)
{
    size_t n = 0;
    for (size_t k = 0; k < f->nend; k++) {
        const spx_rv_start *end = &f->end[k];
        int again = !(end->f < f->best->at.f + COARSE_DEPTH);
        for (size_t i = 0; i < n && !again; i++)
            again = fabs(end->f - to[i].f) < SAME && fabs(end->x[0] - to[i].x[0]) < FAINT;
        if (again || (n == most && !(n > 0 && end->f < to[n - 1].f)))
            continue;
        size_t at = n < most ? n++ : n - 1;
        for (; at > 0 && end->f < to[at - 1].f; at--)
            to[at] = to[at - 1];
        to[at] = *end;
    }
    return n;
}

/* Starts without those that the coarse model leads far above its lowest minimum. */
static void drop_far(spx_rv_star *s)
{
    const spx_rv_search *f = &s->search;
    size_t n = 1; /* the first stays */
    for (size_t k = 1; k < s->nsure; k++)
        if (f->least[k] < f->best->at.f + COARSE_DEPTH)
            s->start[n++] = s->start[k];
    s->nsure = n;
}

/* Adds the lowest minimum of the coarse model with parameters at their farther bounds, where these are open; but for
 * the main one, along which there are starts. */
static void add_bounds(spx_rv_star *s)
{
    const spx_rv_search *f = &s->search;
    const spx_rv_ctx *c = f->c;
    for (size_t k = 0; k < c->nfree && s->nsure < SPX_RV_MAX_START; k++) {
        const size_t q = c->freeq[k];
        const double x = f->best->x[q], range = c->hi[q] - c->lo[q], bend = f->best->at.hess[k * c->nfree + k];
        const double error = bend > 0 ? sqrt(2 / bend) : HUGE_VAL;
        if (q < 2 || q == 2 + c->ccf.main || error < OPEN * range || error > VOID * range)
            continue;
        double *y = s->start[s->nsure++].x;
        memcpy(y, f->best->x, SPX_MAX_FIT * sizeof *y);
        y[q] = x - c->lo[q] > c->hi[q] - x ? c->lo[q] : c->hi[q];
    }
}

/* Starts of the search of a star are where those on the coarse model led to, lowest first. They stay, unless they led
 * far above, and those that were a reserve are replaced, where lines are so weak that the model may have shallow minima
 * side by side that are one on the coarse model; all stay where none led anywhere. Returns whether the coarse model's
 * are enough. */
static int take_ends(spx_rv_star *s)
{
    const spx_rv_search *f = &s->search;
    if (f->nend == 0 || !(f->best->at.f < HUGE_VAL))
        return 0;
    if (f->c->freeq[0] == 0 && !(f->best->at.hess[0] * FAINT * FAINT > 2)) {
        drop_far(s);
        size_t n = lowest_ends(f, SPX_RV_MAX_START - s->nsure, s->start + s->nsure);
        s->nsure += n;
        add_bounds(s);
        for (size_t i = 0; i < sizeof ROTATION / sizeof *ROTATION; i++)
            if (fabs(spx_rv_unmap(f->c, 1, f->best->x[1]) - ROTATION[i]) > MODERATE && rotation_is_open(f)) {
                const double *from[2] = {s->start[0].x, f->best->x};
                for (size_t k = 0; k < 2 && s->nsure < SPX_RV_MAX_START; k++)
                    turn(f->c, from[k], ROTATION[i], s->start[s->nsure++].x);
            }
        s->nstart = s->nsure;
        return 0;
    }
    size_t n = lowest_ends(f, SPX_RV_MAX_START, s->start);
    if (n == 0)
        return 0;
    if (n < SPX_RV_MAX_START && from_bounds(f->c, s->start[0].x, s->start[n].x))
        s->inside = n++;
    if (n < SPX_RV_MAX_START && rotation_is_open(f)) {
        const double vsini = spx_rv_unmap(f->c, 1, s->start[0].x[1]);
        turn(f->c, s->start[0].x, vsini < MODERATE ? 2 * MODERATE : 0, s->start[n++].x);
    }
    s->nstart = s->nsure = n;
    return 1;
}

/* Follows the starts of those of n stars that have several on the coarse model. */
static spx_status coarse_starts(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    size_t m = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_star *s = star[k];
        s->followed = s->nstart > 1;
        s->inside = 0;
        if (!s->followed)
            continue;
        spx_rv_search_begin(&s->search, g->c->coarse, s->nstart, s->nsure, s->start, LOOK_STEPS, COARSE_TOLERANCE,
                            &s->found);
        g->ask.spectra[m] = &s->coarse;
        g->list[m++] = s;
    }
    spx_status st = m > 0 ? g->engine->coarsen(g->engine->state, m, g->ask.spectra, e) : SPX_OK;
    if (st == SPX_OK)
        st = step_all(g, m, g->list, 1, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++)
        g->list[k]->followed = take_ends(g->list[k]);
    return st;
}

/* Searches of n stars from their starts. */
static spx_status search_all(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    const int coarse = spx_rv_has_coarse(g);
    const spx_status st = coarse ? coarse_starts(g, n, star, e) : SPX_OK;
    if (st != SPX_OK)
        return st;
    for (size_t k = 0; k < n; k++) {
        const int followed = coarse && star[k]->followed;
        spx_rv_search_begin(&star[k]->search, g->c, star[k]->nstart, star[k]->nsure, star[k]->start,
                            followed ? 1 : LOOK_STEPS, TOLERANCE, &star[k]->found);
        star[k]->search.inside = followed ? star[k]->inside : 0;
    }
    return step_all(g, n, star, 0, e);
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
            else
                s->found.converged = 1; /* nothing near is lower, though a descent on a kink may not settle */
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
