/* Provides the fit of the atmosphere: strengths of species and a shift that all spectra of an exposure share. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/band.h"
#include "rvfit/grids.h"
#include "rvfit/search/search.h"

enum { MOST = SPX_MAX_SPECIES + 1, ALL = SPX_MAX_FIT + MOST, ROUNDS = 8 };
static const double DONE = 0.1;                   /* change of a quantity, in errors, that no longer matters */
static const double MOST_SHIFT = 20;              /* km/s; winds and zero points are below */
static const double MOST_STRENGTH = 100;          /* times the table */
static const double STEP = 1, STEP_SHIFT = 4;     /* largest change in a round */
static const double PRIOR = 10, PRIOR_SHIFT = 20; /* sigma of priors that bound what no line says */

/* What a star says of its atmosphere, with its own quantities marginalised: grad - hess (value - present). */
typedef struct {
    int known;
    double hess[MOST * MOST], grad[MOST];
} star_normal;

typedef struct {
    const spx_rvfit *fit;
    const double *air; /* [nrow][na] */
    size_t na;
    star_normal *normal; /* [nrow] */
} normal_args;

/* x = A^-1 b, dense and symmetric of n rows. */
static int solve(size_t n, const double *A, double *b)
{
    double gram[ALL * ALL] = {0}, factor[ALL * ALL];
    for (size_t d = 0; d < n; d++) /* by diagonals (calib/band.h) */
        for (size_t i = 0; i + d < n; i++)
            gram[d * n + i] = A[(i + d) * n + i];
    if (spx_band_factor(n, (int)n - 1, gram, 0, factor) > 0)
        return 0;
    spx_band_solve(n, (int)n - 1, factor, b);
    return 1;
}

/* Schur complement of the first nf of nf + na quantities. */
static int marginalise(size_t nf, size_t na, const double *hess, const double *grad, star_normal *out)
{
    const size_t nq = nf + na;
    double block[ALL * ALL], column[ALL];
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j < nf; j++)
            block[i * nf + j] = hess[i * nq + j];
    for (size_t k = 0; k <= na; k++) { /* column na: the gradient */
        for (size_t i = 0; i < nf; i++)
            column[i] = k < na ? hess[i * nq + nf + k] : grad[i];
        if (nf > 0 && !solve(nf, block, column))
            return 0;
        for (size_t l = 0; l < na; l++) {
            double value = k < na ? hess[(nf + l) * nq + nf + k] : grad[nf + l];
            for (size_t i = 0; i < nf; i++)
                value -= hess[(nf + l) * nq + i] * column[i];
            if (!isfinite(value))
                return 0;
            if (k < na)
                out->hess[l * na + k] = value;
            else
                out->grad[l] = value;
        }
    }
    return 1;
}

static void star_task(spx_rv_spectra *w, size_t star, const normal_args *a)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rvfit_star *s = &a->fit->star[star];
    double x[SPX_MAX_FIT], hess[ALL * ALL], grad[ALL];
    a->normal[star].known = 0;
    if ((s->warn & (SPX_RVS_BAD | SPX_RVS_HESSIAN)) != 0 || !isfinite(s->vrad) || !spx_rv_load(w, star))
        return;
    for (size_t q = 0; q < c->nq; q++)
        x[q] = spx_rv_map(c, q, q == 0 ? s->vrad : q == 1 ? s->vsini : s->par[q - 2]);
    a->normal[star].known = spx_rv_air_normal(w, x, a->air + star * a->na, hess, grad) &&
                            marginalise(c->nfree, a->na, hess, grad, &a->normal[star]);
}

static spx_status normal_task(spx_rv_group *g, size_t first, size_t n, void *arg, spx_err *e)
{
    spx_rv_spectra *w = spx_rv_group_spectra(g, 0);
    for (size_t k = 0; k < n && w->err.code == SPX_OK; k++)
        star_task(w, first + k, arg);
    return w->err.code == SPX_OK ? SPX_OK : spx_err_pass(e, &w->err);
}

/* Moves the atmosphere of a group by a Gauss-Newton step; returns its largest part, in errors. */
static double step(size_t nrow, const size_t *group, size_t which, size_t na, const star_normal *normal, spx_air *air)
{
    double hess[MOST * MOST] = {0}, data[MOST] = {0}, move[MOST] = {0}, largest = 0;
    air->nstar = 0;
    for (size_t k = 0; k < nrow; k++) {
        if (group[k] != which || !normal[k].known)
            continue;
        air->nstar++;
        for (size_t i = 0; i < na * na; i++)
            hess[i] += normal[k].hess[i];
        for (size_t i = 0; i < na; i++)
            move[i] += normal[k].grad[i];
    }
    for (size_t i = 0; i < na; i++) {
        const int shift = i + 1 == na;
        const double sigma = shift ? PRIOR_SHIFT : PRIOR;
        data[i] = hess[i * na + i];
        hess[i * na + i] += 1 / (sigma * sigma);
        move[i] -= (air->value[i] - !shift) / (sigma * sigma);
    }
    for (size_t i = 0; i < na; i++) {
        double column[MOST] = {0};
        column[i] = 1;
        air->err[i] = solve(na, hess, column) && column[i] > 0 && data[i] > 0 ? sqrt(column[i]) : 0;
    }
    if (air->nstar == 0 || !solve(na, hess, move))
        return 0;
    for (size_t i = 0; i < na; i++) {
        const int shift = i + 1 == na;
        const double most = shift ? STEP_SHIFT : STEP, end = shift ? MOST_SHIFT : MOST_STRENGTH;
        const double value = fmin(end, fmax(shift ? -end : 0, air->value[i] + fmin(most, fmax(-most, move[i]))));
        if (air->err[i] > 0)
            largest = fmax(largest, fabs(value - air->value[i]) / air->err[i]);
        air->value[i] = value;
    }
    return largest;
}

/* Fits stars on one grid of each arm, and puts what each says of its atmosphere at its row of normal[]; row NULL: all
 * stars. */
static spx_status fit_batch(void *ctx, const spx_rvfit_input *in, const size_t *row, const spx_rvfit_options *o,
                            spx_progress *p, spx_rvfit *fit, spx_err *e)
{
    star_normal *normal = ctx, *mine = spx_alloc(in->nrow, sizeof *mine, e);
    spx_rvfit_input batch = *in;
    spx_rvfit_plan *plan = NULL;
    spx_rv_ctx c;
    spx_status st = mine == NULL ? SPX_EIO : spx_rv_begin(&c, &batch, o, &plan, e);
    batch.plan = plan != NULL ? plan : in->plan;
    if (st == SPX_OK)
        st = spx_rvfit_cpu(&batch, o, p, fit, e);
    normal_args a = {fit, in->air, o->transmission->nspecies + 1, mine};
    if (st == SPX_OK)
        st = spx_rv_for_stars(&c, NULL, normal_task, 1, &a, e);
    for (size_t k = 0; k < in->nrow && st == SPX_OK; k++)
        normal[row != NULL ? row[k] : k] = mine[k];
    spx_rvfit_close_cpu(plan);
    spx_free(mine);
    return st;
}

spx_status spx_rvfit_fit_air(const spx_rvfit_input *in, const spx_rvfit_options *o, size_t ngroup, const size_t *group,
                             const double *velocity, spx_progress *p, spx_air *out, spx_err *e)
{
    const size_t na = o->transmission->nspecies + 1, nq = 2 + SPX_MAX_PAR;
    spx_rvfit_options own = *o;
    const int grids = spx_rvfit_has_grids(in);
    spx_rvfit_input batch = *in;
    spx_rvfit_plan *plan = NULL;
    spx_rvfit fit = {0};
    own.keep_model = own.keep_ccf = 0;
    own.hook = NULL;
    batch.first = NULL;
    batch.plan = NULL;
    double *air = spx_alloc2(in->nrow, na, sizeof *air, e), *start = spx_alloc2(in->nrow, nq, sizeof *start, e);
    star_normal *normal = spx_alloc(in->nrow, sizeof *normal, e);
    spx_status st = air == NULL || start == NULL || normal == NULL ? SPX_EIO : SPX_OK;
    batch.air = air;
    if (st == SPX_OK && !grids) /* else each grid needs one of its own */
        st = spx_rvfit_open_cpu(&batch, &own, &plan, e);
    batch.plan = plan;
    for (size_t g = 0; g < ngroup; g++) {
        out[g] = (spx_air){.expid = -1};
        for (size_t i = 0; i < na; i++)
            out[g].value[i] = i + 1 < na;
    }
    double largest = HUGE_VAL;
    for (int round = 0; round < ROUNDS && largest > DONE && st == SPX_OK; round++) {
        for (size_t k = 0; k < in->nrow; k++)
            for (size_t i = 0; i < na; i++)
                air[k * na + i] = out[group[k]].value[i] + (i + 1 == na && velocity != NULL ? velocity[k] : 0);
        spx_rvfit_free(&fit);
        spx_progress *shown = round == 0 ? p : NULL;
        st = grids ? spx_rvfit_grids(&batch, &own, fit_batch, normal, 1, NULL, shown, &fit, e)
                   : fit_batch(normal, &batch, NULL, &own, shown, &fit, e);
        largest = 0;
        for (size_t g = 0; g < ngroup && st == SPX_OK; g++)
            largest = fmax(largest, step(in->nrow, group, g, na, normal, &out[g]));
        for (size_t k = 0; k < in->nrow && st == SPX_OK; k++) {
            const spx_rvfit_star *s = &fit.star[k];
            double *x = start + k * (2 + fit.npar);
            x[0] = (s->warn & SPX_RVS_BAD) != 0 ? NAN : s->vrad;
            x[1] = s->vsini;
            memcpy(x + 2, s->par, fit.npar * sizeof *x);
        }
        batch.start = start;
    }
    spx_rvfit_free(&fit);
    spx_rvfit_close_cpu(plan);
    spx_free(air);
    spx_free(start);
    spx_free(normal);
    return st;
}
