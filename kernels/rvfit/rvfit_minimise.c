/* Minimum of the objective of one star.
 *
 * Within a cell of the grid the objective is smooth; at the faces between cells its gradient jumps. So the search has
 * two phases. From each start a Gauss-Newton descent with the exact gradient runs freely through the grid. From the
 * best of the points it reaches, the minimum of the cell is found with the cell's faces as bounds; where it lies on
 * faces, the cells across them are tried, until none is lower; then all neighbours of the best cell are tried, and a
 * search without derivatives makes sure that nothing near is lower. */
#include <math.h>
#include <string.h>

#include "rvfit/rvfit_internal.h"

enum { FREE_STEPS = 12, CELL_STEPS = 40, MAX_CELLS = 256, MAX_ROUNDS = 3, MAX_DISTINCT = 4 };
static const double TOLERANCE = 1e-4; /* of the objective */
static const double LOWER = 1e-3;     /* a minimum is lower than another by more than this */
static const double HOPELESS = 2000;  /* a start this much above the best minimum is not followed */

typedef struct {
    size_t cell[MAX_CELLS][SPX_MAX_PAR];
    size_t n;
} visited;

/* Take the free quantities out of x, or put them back. */
static void gather(const spx_rv_ctx *c, const double *x, double *z)
{
    for (size_t k = 0; k < c->nfree; k++)
        z[k] = x[c->freeq[k]];
}

/* Damped Gauss-Newton within lo ... hi (free quantities), from x, whose value and derivatives as seen from `cell`
 * (NULL: the cell that a point is in) are in *at. Leaves the best point in x and *at; returns 1 when it converged. */
static int descend(spx_rv_ws *w, const size_t *cell, const double *lo, const double *hi, size_t steps, double *x,
                   spx_rv_value *at)
{
    const spx_rv_ctx *c = w->ctx;
    size_t nf = c->nfree;
    double lambda = 1e-4;
    if (!(at->f < HUGE_VAL))
        return 0;
    for (size_t it = 0; it < steps; it++) {
        double z[SPX_MAX_FIT], dlo[SPX_MAX_FIT], dhi[SPX_MAX_FIT], d[SPX_MAX_FIT], y[SPX_MAX_FIT];
        gather(c, x, z);
        for (size_t k = 0; k < nf; k++) {
            dlo[k] = fmin(0, lo[k] - z[k]);
            dhi[k] = fmax(0, hi[k] - z[k]);
        }
        double gain = spx_rv_box_step(nf, at->grad, at->hess, lambda, dlo, dhi, d);
        if (gain < TOLERANCE)
            return 1;
        memcpy(y, x, sizeof y);
        for (size_t k = 0; k < nf; k++)
            y[c->freeq[k]] = fmax(lo[k], fmin(hi[k], z[k] + d[k]));
        spx_rv_value next;
        spx_rv_eval(w, y, cell, 1, &next);
        double drop = at->f - next.f;
        if (drop > 0) {
            lambda = drop > 0.75 * gain ? lambda * 0.1 : (drop < 0.25 * gain ? lambda * 5 : lambda);
            lambda = fmax(lambda, 1e-9);
            memcpy(x, y, sizeof y);
            *at = next;
            if (drop < TOLERANCE && gain < 10 * TOLERANCE)
                return 1;
        } else {
            lambda = fmax(lambda, 1e-4) * 10;
            if (lambda > 1e8) /* the step is as small as rounding errors */
                return gain < 1e-9 * fabs(at->f) + 0.01;
        }
    }
    return 0;
}

static void cell_bounds(const spx_rv_ctx *c, const size_t *cell, double *lo, double *hi)
{
    for (size_t k = 0; k < c->nfree; k++) {
        size_t q = c->freeq[k];
        lo[k] = c->lo[q];
        hi[k] = c->hi[q];
        for (size_t g = 0; q >= 2 && g < c->ng; g++)
            if (c->gpar[g] == q - 2) {
                lo[k] = fmax(lo[k], c->axis[q - 2][cell[g]]);
                hi[k] = fmin(hi[k], c->axis[q - 2][cell[g] + 1]);
            }
    }
}

static int is_visited(const visited *v, const size_t *cell, size_t ng)
{
    for (size_t i = 0; i < v->n; i++)
        if (memcmp(v->cell[i], cell, ng * sizeof *cell) == 0)
            return 1;
    return 0;
}

/* Minimum within a cell, from the point of it that is nearest to x. */
static int in_cell(spx_rv_ws *w, const size_t *cell, visited *v, double *x, spx_rv_value *at)
{
    const spx_rv_ctx *c = w->ctx;
    double lo[SPX_MAX_FIT], hi[SPX_MAX_FIT];
    cell_bounds(c, cell, lo, hi);
    for (size_t k = 0; k < c->nfree; k++)
        x[c->freeq[k]] = fmax(lo[k], fmin(hi[k], x[c->freeq[k]]));
    if (v->n < MAX_CELLS)
        memcpy(v->cell[v->n++], cell, c->ng * sizeof *cell);
    spx_rv_eval(w, x, cell, 1, at);
    return descend(w, cell, lo, hi, CELL_STEPS, x, at);
}

/* Axes whose quantity is free and at which a neighbour lies in direction dir (-1, 1). */
static int has_neighbour(const spx_rv_ctx *c, const size_t *cell, size_t g, int dir)
{
    size_t p = c->gpar[g];
    if (!(c->hi[2 + p] > c->lo[2 + p]))
        return 0;
    return dir < 0 ? cell[g] > 0 : cell[g] + 2 < c->naxis[p];
}

/* From the minimum x of `cell`: cells across the faces on which x lies, in all combinations, while that goes down. */
static int across_faces(spx_rv_ws *w, size_t *cell, visited *v, double *x, spx_rv_value *at)
{
    const spx_rv_ctx *c = w->ctx;
    int converged = 1, moved = 1;
    while (moved && v->n < MAX_CELLS) {
        moved = 0;
        size_t face[SPX_MAX_PAR], nface = 0;
        int dir[SPX_MAX_PAR];
        for (size_t g = 0; g < c->ng; g++) {
            size_t p = c->gpar[g];
            int d = x[2 + p] <= c->axis[p][cell[g]] ? -1 : (x[2 + p] >= c->axis[p][cell[g] + 1] ? 1 : 0);
            if (d && has_neighbour(c, cell, g, d)) {
                face[nface] = g;
                dir[nface++] = d;
            }
        }
        for (unsigned set = 1; set < 1u << nface && !moved; set++) {
            size_t other[SPX_MAX_PAR];
            memcpy(other, cell, sizeof other);
            for (size_t i = 0; i < nface; i++)
                if (set >> i & 1)
                    other[face[i]] = dir[i] < 0 ? cell[face[i]] - 1 : cell[face[i]] + 1;
            if (is_visited(v, other, c->ng))
                continue;
            double y[SPX_MAX_FIT];
            spx_rv_value there;
            memcpy(y, x, sizeof y);
            int ok = in_cell(w, other, v, y, &there);
            if (there.f < at->f - LOWER) {
                memcpy(cell, other, sizeof other);
                memcpy(x, y, sizeof y);
                *at = there;
                converged = ok;
                moved = 1;
            }
        }
    }
    return converged;
}

int spx_rv_probe_scale(const spx_rv_ctx *c, const spx_rv_value *at, double *chol)
{
    size_t nf = c->nfree;
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j <= i; j++)
            chol[spx_rv_packed(i, j)] = 0.5 * at->hess[i * nf + j] * (i == j ? 1 + 1e-9 : 1);
    return spx_rv_cholesky(nf, chol, 1e-14);
}

int spx_rv_probe(const spx_rv_ctx *c, const double *chol, size_t i, const double *x, double *y)
{
    static const double step[] = {1, 0.25, 0.0625};
    size_t nf = c->nfree, round = i / (2 * nf), k = i / 2 % nf;
    if (round >= sizeof step / sizeof *step)
        return 0;
    double d[SPX_MAX_FIT] = {0};
    d[k] = i % 2 ? step[round] : -step[round];
    spx_rv_backward(nf, chol, d);
    memcpy(y, x, SPX_MAX_FIT * sizeof *y);
    for (size_t j = 0; j < nf; j++) {
        size_t q = c->freeq[j];
        y[q] = fmax(c->lo[q], fmin(c->hi[q], x[q] + d[j]));
    }
    return 1;
}

/* Search along conjugate directions without derivatives, crossing cells; returns how far the objective fell. */
static double polish(spx_rv_ws *w, double *x, const spx_rv_value *at)
{
    double chol[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], best = at->f, y[SPX_MAX_FIT];
    if (w->ctx->nfree == 0 || !spx_rv_probe_scale(w->ctx, at, chol))
        return 0;
    for (size_t i = 0; spx_rv_probe(w->ctx, chol, i, x, y); i++) {
        spx_rv_value f;
        spx_rv_eval(w, y, NULL, 0, &f);
        if (f.f < best - SPX_RV_PROBE_LOWER) {
            best = f.f;
            memcpy(x, y, sizeof y);
        }
    }
    return at->f - best;
}

/* From x: the minimum of its cell, of the cells across faces, and of the neighbours. */
static int follow(spx_rv_ws *w, double *x, spx_rv_value *at)
{
    const spx_rv_ctx *c = w->ctx;
    visited v = {.n = 0};
    size_t cell[SPX_MAX_PAR];
    spx_rv_cell(c, x, cell);
    int converged = in_cell(w, cell, &v, x, at);
    for (int round = 0; round < MAX_ROUNDS; round++) {
        converged = across_faces(w, cell, &v, x, at) && converged;
        for (size_t k = 0; k < 2 * c->ng && v.n < MAX_CELLS; k++) {
            size_t g = k / 2, other[SPX_MAX_PAR];
            int dir = k % 2 ? 1 : -1;
            if (!has_neighbour(c, cell, g, dir))
                continue;
            memcpy(other, cell, sizeof other);
            other[g] = dir < 0 ? cell[g] - 1 : cell[g] + 1;
            if (is_visited(&v, other, c->ng))
                continue;
            double y[SPX_MAX_FIT];
            spx_rv_value there;
            memcpy(y, x, sizeof y);
            int ok = in_cell(w, other, &v, y, &there);
            if (there.f < at->f - LOWER) {
                memcpy(cell, other, sizeof other);
                memcpy(x, y, sizeof y);
                *at = there;
                converged = across_faces(w, cell, &v, x, at) && ok;
                k = (size_t)-1; /* the neighbours of this cell, from the beginning */
            }
        }
        double y[SPX_MAX_FIT];
        memcpy(y, x, sizeof y);
        if (polish(w, y, at) < LOWER)
            break;
        v.n = 0;
        memcpy(x, y, sizeof y);
        spx_rv_cell(c, x, cell);
        converged = in_cell(w, cell, &v, x, at);
    }
    return converged;
}

void spx_rv_minimise(spx_rv_ws *w, size_t nstart, const spx_rv_start *start, spx_rv_minimum *out)
{
    const spx_rv_ctx *c = w->ctx;
    double lo[SPX_MAX_FIT], hi[SPX_MAX_FIT], point[SPX_RV_MAX_START][SPX_MAX_FIT];
    spx_rv_value at[SPX_RV_MAX_START];
    size_t order[SPX_RV_MAX_START], n = 0;
    gather(c, c->lo, lo);
    gather(c, c->hi, hi);
    for (size_t s = 0; s < nstart; s++) {
        memcpy(point[s], start[s].x, sizeof point[s]);
        spx_rv_eval(w, point[s], NULL, 1, &at[s]);
        descend(w, NULL, lo, hi, FREE_STEPS, point[s], &at[s]);
        size_t k = n++;
        for (; k > 0 && at[s].f < at[order[k - 1]].f; k--)
            order[k] = order[k - 1];
        order[k] = s;
    }
    out->at.f = HUGE_VAL;
    out->converged = 0;
    memcpy(out->x, start[0].x, sizeof out->x);
    size_t followed = 0;
    for (size_t k = 0; k < n && followed < MAX_DISTINCT; k++) {
        const double *p = point[order[k]];
        const spx_rv_value *a = &at[order[k]];
        if (!(a->f < HUGE_VAL) || a->f > out->at.f + HOPELESS)
            break;
        /* Starts that met where one was followed already, or are still on the way there, add nothing. */
        size_t cell[SPX_MAX_PAR], known[SPX_MAX_PAR];
        int same = 0;
        spx_rv_cell(c, p, cell);
        for (size_t j = 0; j < k && !same; j++) {
            const double *o = point[order[j]];
            spx_rv_cell(c, o, known);
            int near = memcmp(cell, known, c->ng * sizeof *cell) == 0;
            for (size_t i = 0; i < c->nfree && near; i++) {
                double sigma2 = a->hess[i * c->nfree + i] > 0 ? 2 / a->hess[i * c->nfree + i] : HUGE_VAL;
                double d = p[c->freeq[i]] - o[c->freeq[i]];
                near = c->freeq[i] < 2 ? d * d < 100 * sigma2 : 1;
            }
            same = near;
        }
        if (same)
            continue;
        double y[SPX_MAX_FIT];
        spx_rv_value f;
        memcpy(y, p, sizeof y);
        int ok = follow(w, y, &f);
        followed++;
        if (f.f < out->at.f) {
            out->at = f;
            memcpy(out->x, y, sizeof y);
            out->converged = ok;
        }
    }
}
