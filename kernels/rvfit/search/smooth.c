/* Provides the minimum of a star for an interpolation that is smooth across the nodes of the grid: Levenberg-Marquardt
 * (damped Gauss-Newton) with bounds, from several starts, one after another. Called as a state machine:
 * spx_rv_search_next() gives the next point, spx_rv_search_take() receives the objective with its derivatives there, so
 * that many stars are computed together. */
#include <math.h>
#include <string.h>

#include "rvfit/search/search.h"

enum { MAX_STEPS = 60, MEET = 2 /* starts that led to a minimum which is taken for the lowest */ };
static const double DAMPED = 1e-2;     /* more damping than this is much, */
static const double MOST_DAMPED = 100; /* and as much as one step that went uphill asks for */
/* Steps whose gain falls as before leave so much of the tolerance: the next one is the last, */
static const double REMAINS = 1e-2;
static const double CLOSE = 100; /* if it gains less than this many tolerances: convergence may slow down */
static const double HELD = 0.25; /* fraction of a gain by which a step may miss it where the curvature holds */
static const double NEAR = 1;    /* a start is merged with the best minimum within this many (conditional) errors */
/* A start is followed that is below the best minimum by more than this, or the tolerance, */
static const double LOWER = 1e-3;
static const double PROMISE = 0.1; /* or whose next step should lead so much below it */
/* A start whose next step should lead to the best minimum is merged with it, if that gains less than this, */
static const double AHEAD = 300;
static const double ASTRAY = 0.01; /* to within this fraction of the gain */
static const double HOPELESS = 30; /* a start that will end this much above the best minimum is not followed */

/* A start away from bounds is not followed where the best minimum is so steep that it is this much higher. */
static const double STEEP = 100;

/* Point to compute next of the current start; 0 when it is at its end, with *converged. */
static int propose(spx_rv_search *f, double *y, int *converged)
{
    const spx_rv_ctx *c = f->c;
    double dlo[SPX_MAX_FIT], dhi[SPX_MAX_FIT], d[SPX_MAX_FIT];
    for (size_t k = 0; k < c->nfree; k++) {
        size_t q = c->freeq[k];
        dlo[k] = fmin(0, c->lo[q] - f->x[q]);
        dhi[k] = fmax(0, c->hi[q] - f->x[q]);
    }
    *converged = 0;
    if (!(f->at.f < HUGE_VAL) || f->steps == MAX_STEPS)
        return 0;
    f->gain = spx_rv_box_step(c->nfree, f->at.grad, f->at.hess, f->lambda, dlo, dhi, d);
    memcpy(y, f->x, sizeof f->x);
    for (size_t k = 0; k < c->nfree; k++) {
        size_t q = c->freeq[k];
        y[q] = fmax(c->lo[q], fmin(c->hi[q], f->x[q] + d[k]));
    }
    /* A step that is damped promises little wherever it is. The last step is taken, but not looked at: where a search
     * ends then depends on its way by 1e-3 of the errors, not 1e-2. Gains fall by a factor, or faster: with the one of
     * the last two steps, this step leaves gain^2/before. */
    const int settled =
        f->before > 0 && f->gain < CLOSE * f->tolerance && f->gain * f->gain < REMAINS * f->tolerance * f->before;
    if ((f->gain < f->tolerance || settled) && (f->lambda < DAMPED || f->gain < DAMPED * f->tolerance)) {
        *converged = 1;
        memcpy(f->x, y, sizeof f->x);
        f->at.f -= f->gain;
        return 0;
    }
    if (f->lambda > 1e8) { /* the step is as small as rounding errors */
        *converged = f->gain < 1e-9 * fabs(f->at.f) + 0.01;
        return 0;
    }
    return 1;
}

void spx_rv_search_take(spx_rv_search *f, const double *y, const spx_rv_value *next)
{
    double drop = f->at.f - next->f;
    f->steps++;
    f->before = !f->fresh && fabs(drop - f->gain) < HELD * f->gain ? f->gain : 0;
    if (f->fresh || drop > 0) {
        if (!f->fresh)
            f->lambda = fmax(
                drop > 0.75 * f->gain ? f->lambda * 0.1 : (drop < 0.25 * f->gain ? f->lambda * 5 : f->lambda), 1e-9);
        memcpy(f->x, y, sizeof f->x);
        f->at = *next;
        f->fresh = 0;
    } else if (next->f < HUGE_VAL) { /* the parabola along the step is lowest for a damping of 1 - drop/gain */
        f->lambda = fmax(10 * f->lambda, fmin(MOST_DAMPED, 1 - drop / f->gain));
    } else {
        f->lambda = fmax(f->lambda, 1e-4) * 10;
    }
}

/* Is a point near the best minimum? Where errors are large, valleys are near each other. */
static int is_near(const spx_rv_search *f, const double *x)
{
    const spx_rv_ctx *c = f->c;
    const spx_rv_minimum *b = f->best;
    int near = 1;
    for (size_t k = 0; k < c->nfree && near; k++) {
        double h = b->at.hess[k * c->nfree + k], d = x[c->freeq[k]] - b->x[c->freeq[k]];
        near = d * d * h < 2 * NEAR * NEAR;
    }
    return near;
}

/* Has a later start met the best minimum: is it there, neither below it nor about to be, or will it be, with its next
 * step to y (NULL: there is none)? */
static int met(const spx_rv_search *f, const double *y)
{
    const double above = f->at.f - f->best->at.f, ahead = above - f->gain;
    if (f->s == 0 || !(f->best->at.f < HUGE_VAL))
        return 0;
    if (above < 1 && above > -fmax(LOWER, f->tolerance) && ahead > -PROMISE && is_near(f, f->x))
        return 1;
    return y != NULL && f->gain < AHEAD && fabs(ahead) < PROMISE + ASTRAY * f->gain && is_near(f, y);
}

/* Has a later start no hope to get below the best minimum? */
static int is_hopeless(const spx_rv_search *f)
{
    return f->s > 0 && f->best->at.f < HUGE_VAL && f->steps >= f->look &&
           f->at.f - 4 * f->gain > f->best->at.f + HOPELESS;
}

/* Is the best minimum at a bound of the parameter that changes spectra most? Others may then be deeper inside. At
 * bounds of other parameters, where stars of the library's edge are, starts lead to one minimum as elsewhere. */
static int at_bound(const spx_rv_search *f)
{
    const spx_rv_ctx *c = f->c;
    const size_t q = 2 + c->ccf.main;
    return c->ccf.n > 0 && c->lo[q] < c->hi[q] && (f->best->x[q] <= c->lo[q] || f->best->x[q] >= c->hi[q]);
}

/* Keeps where a start led to. */
static void keep_end(spx_rv_search *f)
{
    memcpy(f->end[f->nend].x, f->x, sizeof f->x);
    f->end[f->nend++].f = f->at.f;
}

/* By how much the objective is higher, by its gradient and curvature at the best minimum, where the quantities that are
 * at bounds in the first start, but not in start s, are as in the latter, and all others free. */
static double rise(const spx_rv_search *f, size_t s)
{
    const spx_rv_ctx *c = f->c;
    const spx_rv_minimum *b = f->best;
    const size_t n = c->nfree;
    double d[SPX_MAX_FIT] = {0}, grad[SPX_MAX_FIT], lo[SPX_MAX_FIT], hi[SPX_MAX_FIT], step[SPX_MAX_FIT], up = 0;
    for (size_t k = 0; k < n; k++) {
        const size_t q = c->freeq[k];
        const int held = f->start[s].x[q] != f->start[0].x[q];
        d[k] = held ? f->start[s].x[q] - b->x[q] : 0;
        lo[k] = held ? 0 : c->lo[q] - b->x[q];
        hi[k] = held ? 0 : c->hi[q] - b->x[q];
    }
    for (size_t k = 0; k < n; k++) {
        double bend = 0;
        for (size_t l = 0; l < n; l++)
            bend += b->at.hess[k * n + l] * d[l];
        grad[k] = b->at.grad[k] + bend;
        up += d[k] * (b->at.grad[k] + 0.5 * bend);
    }
    return up - spx_rv_box_step(n, grad, b->at.hess, 0, lo, hi, step);
}

int spx_rv_search_next(spx_rv_search *f, double *y)
{
    while (f->s < f->nstart) {
        int converged;
        if (f->fresh && f->s > 0 && f->s == f->inside && f->best->at.f < HUGE_VAL && rise(f, f->s) > STEEP) {
            f->s++;
            continue;
        }
        if (f->fresh) {
            memcpy(y, f->start[f->s].x, sizeof f->x);
            return 1;
        }
        const int ended = !propose(f, y, &converged), same = met(f, ended ? NULL : y);
        if (!ended && !same && !is_hopeless(f))
            return 1;
        if (ended && !same && f->at.f < HUGE_VAL)
            keep_end(f);
        f->least[f->s] = f->at.f - (ended || same ? 0 : 4 * f->gain);
        if (same)
            f->met++;
        else if (f->at.f < f->best->at.f)
            f->met = 1;
        if (f->at.f < f->best->at.f) {
            memcpy(f->best->x, f->x, sizeof f->x);
            /* a start that was merged with the minimum may be lower by a rounding error */
            f->best->converged = converged || (f->best->converged && f->best->at.f - f->at.f < f->tolerance);
            f->best->at = f->at;
        }
        f->s++;
        if (f->s >= f->nsure && f->met >= MEET && !at_bound(f))
            f->s = f->nstart;
        f->fresh = 1;
        f->steps = 0;
        f->before = 0;
        f->lambda = 1e-4;
    }
    return 0;
}

void spx_rv_search_begin(spx_rv_search *f, const spx_rv_ctx *c, size_t nstart, size_t nsure, const spx_rv_start *start,
                         size_t look, double tolerance, spx_rv_minimum *out)
{
    *f = (spx_rv_search){.c = c,
                         .start = start,
                         .nstart = nstart,
                         .nsure = nsure,
                         .look = look,
                         .tolerance = tolerance,
                         .fresh = 1,
                         .lambda = 1e-4,
                         .best = out};
    out->at.f = HUGE_VAL;
    out->converged = 0;
    memcpy(out->x, start[0].x, sizeof out->x);
}
