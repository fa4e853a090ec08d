/* Provides the minima of stars for the multilinear interpolation.
 *
 * Within a cell of the grid the objective is smooth; at the faces between cells its gradient jumps. So the search has
 * two phases. From each start a Gauss-Newton descent with the exact gradient runs freely through the grid. From the
 * best of the points it reaches, the minimum of the cell is found with the cell's faces as bounds; where it lies on
 * faces, the cells across them are tried, until none is lower; then all neighbours of the best cell are tried, and a
 * search without derivatives makes sure that nothing near is lower.
 *
 * The search of a star asks for one point at a time, so that those of many stars can be computed together. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/search/group.h"

enum { FREE_STEPS = 12, CELL_STEPS = 40, MAX_CELLS = 256, MAX_ROUNDS = 3, MAX_DISTINCT = 4 };
static const double TOLERANCE = 1e-4; /* of the objective */
static const double HOPELESS = 2000;  /* a start this much above the best minimum is not followed */

/* ---- a descent ---- */

/* Damped Gauss-Newton within lo ... hi (free quantities), from x, as seen from `cell` (NULL: the cell that a point is
 * in). */
typedef struct {
    const size_t *cell;
    double lo[SPX_MAX_FIT], hi[SPX_MAX_FIT];
    size_t steps; /* that are left */
    int fresh;    /* the point that was asked for is the first */
    int ended, converged;
    double lambda, gain;   /* damping; what the step in question should gain */
    double x[SPX_MAX_FIT]; /* best point */
    spx_rv_value at;       /* there */
} descent;

/* Take the free quantities out of x. */
static void gather(const spx_rv_ctx *c, const double *x, double *z)
{
    for (size_t k = 0; k < c->nfree; k++)
        z[k] = x[c->freeq[k]];
}

/* From x, or the nearest point that is within the bounds, which are set. */
static void descent_begin(descent *d, const spx_rv_ctx *c, const size_t *cell, size_t steps, const double *x)
{
    d->cell = cell;
    d->steps = steps;
    d->fresh = 1;
    d->ended = d->converged = 0;
    d->lambda = 1e-4;
    memcpy(d->x, x, sizeof d->x);
    for (size_t k = 0; k < c->nfree; k++)
        d->x[c->freeq[k]] = fmax(d->lo[k], fmin(d->hi[k], x[c->freeq[k]]));
}

/* Point whose value is needed next, in y; 0 at the end. */
static int descent_next(descent *d, const spx_rv_ctx *c, double *y)
{
    size_t nf = c->nfree;
    double z[SPX_MAX_FIT], dlo[SPX_MAX_FIT], dhi[SPX_MAX_FIT], step[SPX_MAX_FIT];
    memcpy(y, d->x, sizeof d->x);
    if (d->fresh)
        return 1;
    if (d->ended || d->steps == 0)
        return 0;
    gather(c, d->x, z);
    for (size_t k = 0; k < nf; k++) {
        dlo[k] = fmin(0, d->lo[k] - z[k]);
        dhi[k] = fmax(0, d->hi[k] - z[k]);
    }
    d->gain = spx_rv_box_step(nf, d->at.grad, d->at.hess, d->lambda, dlo, dhi, step);
    if (d->gain < TOLERANCE) {
        d->converged = 1;
        return 0;
    }
    for (size_t k = 0; k < nf; k++)
        y[c->freeq[k]] = fmax(d->lo[k], fmin(d->hi[k], z[k] + step[k]));
    return 1;
}

static void descent_take(descent *d, const double *y, const spx_rv_value *next)
{
    double drop = d->at.f - next->f;
    if (d->fresh) {
        d->fresh = 0;
        d->at = *next;
        d->ended = !(next->f < HUGE_VAL);
        return;
    }
    d->steps--;
    if (drop > 0) {
        d->lambda = drop > 0.75 * d->gain ? d->lambda * 0.1 : (drop < 0.25 * d->gain ? d->lambda * 5 : d->lambda);
        d->lambda = fmax(d->lambda, 1e-9);
        memcpy(d->x, y, sizeof d->x);
        d->at = *next;
        d->ended = d->converged = drop < TOLERANCE && d->gain < 10 * TOLERANCE;
    } else {
        d->lambda = fmax(d->lambda, 1e-4) * 10;
        if (d->lambda > 1e8) { /* the step is as small as rounding errors */
            d->ended = 1;
            d->converged = d->gain < 1e-9 * fabs(d->at.f) + 0.01;
        }
    }
}

/* ---- the search of a star ---- */

typedef struct {
    double x[SPX_MAX_FIT];
    spx_rv_value at;
} reached;

typedef struct {
    const spx_rv_ctx *c;
    const spx_rv_start *start;
    size_t nstart;
    spx_rv_minimum *best;
    /* What is under way: the descent from start s; that in the cell that is home; that in another one; the search
     * without derivatives around the minimum of home. */
    enum { FREELY, AT_HOME, ELSEWHERE, PROBING, DONE } step;
    descent d;
    size_t s;                        /* start; later the one of point[] that is followed */
    reached point[SPX_RV_MAX_START]; /* where the starts led, lowest first */
    size_t followed;                 /* how many of them were */
    double x[SPX_MAX_FIT];           /* minimum of home */
    spx_rv_value at;                 /* there */
    int converged;                   /* was it reached? */
    size_t home[SPX_MAX_PAR], other[SPX_MAX_PAR];
    size_t visited[MAX_CELLS], nvisited; /* indices of the cells that were seen from here */
    size_t tried;                        /* of the cells around home */
    size_t nface, face[SPX_MAX_PAR];     /* axes along which the minimum is on a face, towards */
    int dir[SPX_MAX_PAR];                /* -1: the lower, 1: the upper neighbour */
    int round;
    double chol[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], lowest[SPX_MAX_FIT], least;
    size_t probe;
} search;

static size_t cell_index(const spx_rv_ctx *c, const size_t *cell)
{
    size_t at = 0;
    for (size_t g = 0; g < c->grid.ng; g++)
        at += cell[g] * c->grid.stride[g];
    return at;
}

static int is_visited(const search *s, const size_t *cell)
{
    size_t at = cell_index(s->c, cell);
    for (size_t i = 0; i < s->nvisited; i++)
        if (s->visited[i] == at)
            return 1;
    return 0;
}

/* Descent to the minimum within a cell, from the point of it that is nearest to x. */
static void begin_in_cell(search *s, const size_t *cell, const double *x)
{
    const spx_rv_ctx *c = s->c;
    descent *d = &s->d;
    for (size_t k = 0; k < c->nfree; k++) {
        size_t q = c->freeq[k];
        d->lo[k] = c->lo[q];
        d->hi[k] = c->hi[q];
        for (size_t g = 0; q >= 2 && g < c->grid.ng; g++)
            if (c->grid.gpar[g] == q - 2) {
                d->lo[k] = fmax(d->lo[k], c->grid.axis[q - 2][cell[g]]);
                d->hi[k] = fmin(d->hi[k], c->grid.axis[q - 2][cell[g] + 1]);
            }
    }
    if (s->nvisited < MAX_CELLS)
        s->visited[s->nvisited++] = cell_index(c, cell);
    descent_begin(d, c, cell, CELL_STEPS, x);
}

static void begin_home(search *s, const double *x)
{
    s->step = AT_HOME;
    s->nvisited = 0;
    spx_rv_cell(s->c, x, s->home);
    begin_in_cell(s, s->home, x);
}

static void begin_start(search *s)
{
    const spx_rv_ctx *c = s->c;
    s->step = FREELY;
    gather(c, c->lo, s->d.lo);
    gather(c, c->hi, s->d.hi);
    descent_begin(&s->d, c, NULL, FREE_STEPS, s->start[s->s].x);
}

static void keep_reached(search *s)
{
    size_t k = s->s;
    for (; k > 0 && s->d.at.f < s->point[k - 1].at.f; k--)
        s->point[k] = s->point[k - 1];
    s->point[k].at = s->d.at;
    memcpy(s->point[k].x, s->d.x, sizeof s->d.x);
}

/* Did a start meet where one was followed already, or is it still on the way there? Then it adds nothing. */
static int met_another(const search *s, const reached *p)
{
    const spx_rv_ctx *c = s->c;
    size_t cell[SPX_MAX_PAR], other[SPX_MAX_PAR];
    spx_rv_cell(c, p->x, cell);
    for (size_t j = 0; j < s->s; j++) {
        const double *o = s->point[j].x;
        spx_rv_cell(c, o, other);
        int near = memcmp(cell, other, c->grid.ng * sizeof *cell) == 0;
        for (size_t i = 0; i < c->nfree && near; i++) {
            double bend = p->at.hess[i * c->nfree + i], sigma2 = bend > 0 ? 2 / bend : HUGE_VAL;
            double d = p->x[c->freeq[i]] - o[c->freeq[i]];
            near = c->freeq[i] < 2 ? d * d < 100 * sigma2 : 1;
        }
        if (near)
            return 1;
    }
    return 0;
}

/* The next of the points where the starts led that is worth it is home. */
static void follow_next(search *s)
{
    for (; s->s < s->nstart && s->followed < MAX_DISTINCT; s->s++) {
        const reached *p = &s->point[s->s];
        if (!(p->at.f < HUGE_VAL) || p->at.f > s->best->at.f + HOPELESS)
            break;
        if (met_another(s, p))
            continue;
        s->round = 0;
        begin_home(s, p->x);
        return;
    }
    s->step = DONE;
}

static void end_follow(search *s)
{
    if (s->at.f < s->best->at.f) {
        s->best->at = s->at;
        memcpy(s->best->x, s->x, sizeof s->x);
        s->best->converged = s->converged;
    }
    s->followed++;
    s->s++;
    follow_next(s);
}

/* Is there a neighbour along axis g in direction dir, and the quantity free? */
static int has_neighbour(const search *s, size_t g, int dir)
{
    const spx_rv_ctx *c = s->c;
    size_t p = c->grid.gpar[g];
    if (!(c->hi[2 + p] > c->lo[2 + p]))
        return 0;
    return dir < 0 ? s->home[g] > 0 : s->home[g] + 2 < c->grid.naxis[p];
}

/* Cell number i around home: those across the faces on which the minimum lies, in all combinations, then the
 * neighbours. 0: there is none. */
static int around(const search *s, size_t i, size_t *other)
{
    size_t across = ((size_t)1 << s->nface) - 1;
    memcpy(other, s->home, sizeof s->home);
    if (i < across) {
        for (size_t k = 0; k < s->nface; k++)
            if ((i + 1) >> k & 1)
                other[s->face[k]] = s->dir[k] < 0 ? s->home[s->face[k]] - 1 : s->home[s->face[k]] + 1;
        return 1;
    }
    size_t g = (i - across) / 2;
    int dir = (i - across) % 2 ? 1 : -1;
    if (!has_neighbour(s, g, dir))
        return 0;
    other[g] = dir < 0 ? s->home[g] - 1 : s->home[g] + 1;
    return 1;
}

/* The next cell around home that was not seen; when there is none, the search without derivatives. */
static void try_next(search *s)
{
    const spx_rv_ctx *c = s->c;
    size_t all = ((size_t)1 << s->nface) - 1 + 2 * c->grid.ng;
    while (s->tried < all && s->nvisited < MAX_CELLS) {
        if (!around(s, s->tried++, s->other) || is_visited(s, s->other))
            continue;
        s->step = ELSEWHERE;
        begin_in_cell(s, s->other, s->x);
        return;
    }
    if (c->nfree == 0 || !spx_rv_pattern_axes(c, &s->at, s->chol)) {
        end_follow(s);
        return;
    }
    s->step = PROBING;
    s->probe = 0;
    s->least = s->at.f;
    memcpy(s->lowest, s->x, sizeof s->x);
}

/* The descent ended in the lowest cell so far, which is home. */
static void settle(search *s)
{
    const spx_rv_ctx *c = s->c;
    s->at = s->d.at;
    s->converged = s->d.converged;
    memcpy(s->x, s->d.x, sizeof s->x);
    s->tried = s->nface = 0;
    for (size_t g = 0; g < c->grid.ng; g++) {
        size_t p = c->grid.gpar[g];
        double at = s->x[2 + p];
        int dir = at <= c->grid.axis[p][s->home[g]] ? -1 : (at >= c->grid.axis[p][s->home[g] + 1] ? 1 : 0);
        if (dir && has_neighbour(s, g, dir)) {
            s->face[s->nface] = g;
            s->dir[s->nface++] = dir;
        }
    }
    if (s->round < MAX_ROUNDS)
        try_next(s);
    else
        end_follow(s);
}

/* What was under way is at its end. */
static void go_on(search *s)
{
    switch (s->step) {
    case FREELY:
        keep_reached(s);
        if (++s->s < s->nstart) {
            begin_start(s);
        } else {
            s->s = 0;
            follow_next(s);
        }
        break;
    case AT_HOME:
        settle(s);
        break;
    case ELSEWHERE:
        if (s->d.at.f < s->at.f - SPX_RV_LOWER) {
            memcpy(s->home, s->other, sizeof s->home);
            settle(s);
        } else {
            try_next(s);
        }
        break;
    case PROBING:
        if (s->at.f - s->least < SPX_RV_LOWER) {
            end_follow(s);
        } else {
            s->round++;
            begin_home(s, s->lowest);
        }
        break;
    case DONE:
        break;
    }
}

static void search_begin(search *s, const spx_rv_ctx *c, size_t nstart, const spx_rv_start *start, spx_rv_minimum *out)
{
    s->c = c;
    s->start = start;
    s->nstart = nstart;
    s->best = out;
    out->at.f = HUGE_VAL;
    out->converged = 0;
    memcpy(out->x, start[0].x, sizeof out->x);
    begin_start(s);
}

/* The point whose value the search needs next, in y; NOTHING: it is done. */
enum { NOTHING, DERIVATIVES, VALUE };

static int search_next(search *s, double *y)
{
    for (; s->step != DONE; go_on(s)) {
        if (s->step == PROBING && spx_rv_pattern_point(s->c, s->chol, s->probe, s->lowest, y))
            return VALUE;
        if (s->step != PROBING && descent_next(&s->d, s->c, y))
            return DERIVATIVES;
    }
    return NOTHING;
}

static void search_take(search *s, const double *y, const spx_rv_value *value)
{
    if (s->step != PROBING) {
        descent_take(&s->d, y, value);
        return;
    }
    s->probe++;
    if (value->f < s->least - SPX_RV_PATTERN_LOWER) {
        s->least = value->f;
        memcpy(s->lowest, y, sizeof s->lowest);
    }
}

/* ---- many stars ---- */

/* Points of stars that are computed together. */
typedef struct {
    search *search;
    int *wants;
    double (*point)[SPX_MAX_FIT];
    size_t *of; /* which star */
    spx_rv_spectra **who;
    double (*x)[SPX_MAX_FIT];
    const size_t **cell;
    spx_rv_value *value;
    size_t *first;
    double *v, *f;
} together;

static void together_free(together *t)
{
    void *all[] = {t->search, t->wants, t->point, t->of, t->who, t->x, t->cell, t->value, t->first, t->v, t->f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
}

static spx_status together_init(together *t, size_t n, spx_err *e)
{
    *t = (together){0};
    if ((t->search = spx_alloc(n, sizeof *t->search, e)) && (t->wants = spx_alloc(n, sizeof *t->wants, e)) &&
        (t->point = spx_alloc(n, sizeof *t->point, e)) && (t->of = spx_alloc(n, sizeof *t->of, e)) &&
        (t->who = spx_alloc(n, sizeof *t->who, e)) && (t->x = spx_alloc(n, sizeof *t->x, e)) &&
        (t->cell = spx_alloc(n, sizeof *t->cell, e)) && (t->value = spx_alloc(n, sizeof *t->value, e)) &&
        (t->first = spx_alloc(n + 1, sizeof *t->first, e)) && (t->v = spx_alloc(n, sizeof *t->v, e)) &&
        (t->f = spx_alloc(n, sizeof *t->f, e)))
        return SPX_OK;
    together_free(t);
    return SPX_EIO;
}

/* The stars that want `what`, and their points; returns how many. */
static size_t collect(together *t, size_t n, spx_rv_star *const *star, int what)
{
    size_t m = 0;
    for (size_t k = 0; k < n; k++) {
        if (t->wants[k] != what)
            continue;
        t->who[m] = &star[k]->spectra;
        t->cell[m] = t->search[k].d.cell;
        t->first[m] = m;
        t->v[m] = t->point[k][0];
        memcpy(t->x[m], t->point[k], sizeof t->x[m]);
        t->of[m++] = k;
    }
    t->first[m] = m;
    return m;
}

spx_status spx_rv_minimise(const spx_rv_engine *engine, const spx_rv_ctx *c, size_t n, spx_rv_star *const *star,
                           spx_err *e)
{
    together t;
    spx_status st = together_init(&t, n, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        search_begin(&t.search[k], c, star[k]->nsure, star[k]->start, &star[k]->found);
    for (int going = 1; going && st == SPX_OK;) {
#pragma omp parallel for num_threads(engine->threads) schedule(dynamic, 4) if (engine->threads > 1)
        for (size_t k = 0; k < n; k++)
            t.wants[k] = search_next(&t.search[k], t.point[k]);
        size_t m = collect(&t, n, star, DERIVATIVES);
        going = m > 0;
        if (m > 0)
            st = engine->eval(engine->state, m, t.who, (const double(*)[SPX_MAX_FIT])t.x, t.cell, t.value, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            search_take(&t.search[t.of[k]], t.x[k], &t.value[k]);
        m = st == SPX_OK ? collect(&t, n, star, VALUE) : 0;
        going = going || m > 0;
        for (size_t k = 0; k < m && st == SPX_OK; k += engine->together) {
            size_t some = m - k < engine->together ? m - k : engine->together;
            st = engine->values(engine->state, some, t.who + k, (const double(*)[SPX_MAX_FIT])(t.x + k), t.first,
                                t.v + k, t.f + k, e);
        }
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            search_take(&t.search[t.of[k]], t.x[k], &(spx_rv_value){.f = t.f[k]});
    }
    together_free(&t);
    return st;
}

spx_status spx_rv_mean_curvature(const spx_rv_engine *engine, const spx_rv_ctx *c, size_t n, spx_rv_star *const *star,
                                 spx_err *e)
{
    together t;
    size_t nf = c->nfree, m = n;
    spx_status st = together_init(&t, n, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        search *s = &t.search[k];
        const double *x = star[k]->min.x;
        spx_rv_cell(c, x, s->home);
        for (size_t g = 0; g < c->grid.ng; g++) {
            size_t p = c->grid.gpar[g];
            if (s->home[g] > 0 && x[2 + p] == c->grid.axis[p][s->home[g]] && c->hi[2 + p] > c->lo[2 + p]) {
                s->dir[s->nface] = -1;
                s->face[s->nface++] = g;
            }
        }
        memset(star[k]->hess, 0, sizeof star[k]->hess);
    }
    /* home first, then the cells across the faces, which are numbered from 0 */
    for (size_t i = 0; m > 0 && st == SPX_OK; i++) {
        m = 0;
        for (size_t k = 0; k < n; k++) {
            search *s = &t.search[k];
            if (i >> s->nface)
                continue;
            memcpy(s->other, s->home, sizeof s->home);
            if (i > 0)
                (void)around(s, i - 1, s->other);
            t.who[m] = &star[k]->spectra;
            t.cell[m] = s->other;
            memcpy(t.x[m], star[k]->min.x, sizeof t.x[m]);
            t.of[m++] = k;
        }
        if (m > 0)
            st = engine->eval(engine->state, m, t.who, (const double(*)[SPX_MAX_FIT])t.x, t.cell, t.value, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            for (size_t j = 0; j < nf * nf; j++)
                star[t.of[k]]->hess[j] += t.value[k].hess[j] / (double)((size_t)1 << t.search[t.of[k]].nface);
    }
    together_free(&t);
    return st;
}
