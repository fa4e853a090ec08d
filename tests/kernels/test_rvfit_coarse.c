/* Checks the coarse model of kernel `rvfit`, on which starts are followed: its templates are the means of the model's
 * over the pixels of a coarse one; its data are weighted means; searches that begin on it end in the minima that those
 * on the model alone find, with fewer evaluations of the model; starts that are followed ahead of their turn change
 * nothing; there is none where it would be another model; and faint stars start as fast rotators, too. */
#include "rv_stars.h"

#include "rvfit/search/group.h"

enum { NSTAR = 24, BIN = 4, FAINT = NSTAR /* one star more, of S/N 8 */ };

static spx_spectra spectra;
static spx_rvfit_input input;

static void open_ctx(const spx_templates *t, const spx_rvfit_options *o, spx_rvfit_plan **plan, spx_rv_ctx *c)
{
    input = input_of(&spectra, t);
    *plan = NULL;
    NEED(spx_rvfit_open_cpu(&input, o, plan, &need_e));
    NEED(spx_rv_ctx_batch(c, *plan, &input, o, &need_e));
}

/* Templates between the nodes, of slow and fast rotators: means over flux, not over its logarithm, which is 1 % off
 * where lines are deep. */
static void templates(spx_rv_group *g)
{
    const spx_rv_ctx *c = g->c;
    spx_rv_spectra *w = &g->star[0].spectra, *few = &g->star[0].coarse;
    double mean[NPIX];
    for (size_t i = 0; i < 12; i++) {
        CHECK(spx_rv_load(w, i) && spx_rv_coarsen(few), "star %zu cannot be loaded", i);
        const double par[NQ] = {-200 + 400 * uniform(), i % 3 == 0 ? 0 : 80 * uniform(), 4600 + 1800 * uniform(),
                                -1.8 + 1.7 * uniform(), 0};
        double x[SPX_MAX_FIT];
        for (size_t q = 0; q < c->nq; q++)
            x[q] = spx_rv_map(c, q, par[q]);
        for (size_t a = 0; a < NARM; a++) {
            const spx_rv_data *d = &w->piece[a], *o = &few->piece[a];
            double sum = 0, worst = 0;
            spx_rv_template(w, x, NULL, 0);
            const double *t = spx_rv_sample(w, d, par[0]);
            for (size_t k = 0; k < NPIX / BIN; k++) {
                double weight = 0, flux = 0;
                mean[k] = 0;
                for (size_t j = k * BIN; j < (k + 1) * BIN; j++) {
                    mean[k] += t[j] / BIN;
                    weight += d->ie[j] * d->ie[j];
                    flux += d->ie[j] * d->ie[j] * d->flux[j];
                }
                CHECK(fabs(o->ie[k] * o->ie[k] / weight - 1) < 1e-12 &&
                          fabs(o->flux[k] * weight - flux) < 1e-12 * fabs(flux),
                      "star %zu, coarse pixel %zu: %g, error %g", i, k, o->flux[k], 1 / o->ie[k]);
            }
            spx_rv_template(few, x, NULL, 0);
            t = spx_rv_sample(few, o, par[0]);
            for (size_t k = 0; k < NPIX / BIN; k++) {
                const double z = t[k] / mean[k] - 1;
                sum += z * z / (NPIX / BIN);
                worst = fmax(worst, fabs(z));
            }
            CHECK(sqrt(sum) < 2e-3 && worst < 1e-2, "star %zu, arm %zu: coarse template off by %.2g rms, %.2g at most",
                  i, a, sqrt(sum), worst);
        }
    }
}

/* A faint star starts as a fast rotator, too, before the reserve; a bright one does not. */
static void starts(spx_rv_group *g)
{
    for (size_t k = 0; k < 2; k++) {
        spx_rv_star *s = &g->star[0];
        size_t fast = 0, sure = 0;
        CHECK(spx_rv_load(&s->spectra, k == 0 ? 0 : FAINT), "star %zu cannot be loaded", k);
        NEED(spx_rv_group_starts(g, 1, &s, &need_e));
        for (size_t i = 0; i < s->nstart; i++) {
            const int is = spx_rv_unmap(g->c, 1, s->start[i].x[1]) > 250;
            fast += (size_t)is;
            sure += (size_t)(is && i < s->nsure);
        }
        CHECK(s->nstart > 1 && s->nsure <= s->nstart && fast == k && sure == k,
              "%s star: %zu starts, %zu sure, of these as fast rotators %zu and %zu", k == 0 ? "bright" : "faint",
              s->nstart, s->nsure, fast, sure);
    }
}

/* The fit of all stars with a group, and evaluations of the model. */
static double fit(const spx_rv_ctx *c, int coarse, spx_rvfit *out)
{
    spx_err e = {0};
    double neval = 0;
    spx_rv_engine engine = spx_rv_engine_cpu(c);
    if (!coarse)
        engine.coarsen = NULL;
    spx_rv_group *g = spx_rv_group_new(c, &engine, SPX_RV_BATCH, &e);
    CHECK(g != NULL, "%s", spx_err_text(&e));
    if (coarse) {
        templates(g);
        starts(g);
    }
    NEED(spx_rv_result_init(c, out, &need_e));
    for (size_t k = 0; k < NSTAR; k += SPX_RV_BATCH)
        NEED(spx_rv_group_fit(g, k, NSTAR - k < SPX_RV_BATCH ? NSTAR - k : SPX_RV_BATCH, out, &need_e));
    for (size_t k = 0; k < NSTAR; k++)
        neval += out->star[k].niter;
    spx_rv_group_free(g);
    return neval / NSTAR;
}

static void minima(const spx_templates *t)
{
    spx_rvfit_options o;
    spx_rvfit_plan *plan;
    spx_rv_ctx c;
    spx_rvfit with, without;
    init(&o);
    o.npoly = 5;
    open_ctx(t, &o, &plan, &c);
    CHECK(c.coarse != NULL && c.coarse->narm == NARM, "there is no coarse model");
    const double fewer = fit(&c, 1, &with), more = fit(&c, 0, &without);
    CHECK(fewer < 0.6 * more, "%.1f evaluations a star with the coarse model, %.1f without", fewer, more);
    for (size_t k = 0; k < NSTAR; k++) {
        const spx_rvfit_star *a = &with.star[k], *b = &without.star[k];
        CHECK(a->success && b->success && fabs(a->neg2logl - b->neg2logl) < 2e-4 &&
                  fabs(a->vrad - b->vrad) < 0.01 * b->vrad_err && fabs(a->vrad_err / b->vrad_err - 1) < 1e-3,
              "star %zu: %.5f at v %.4f +- %.4f with the coarse model, %.5f at %.4f +- %.4f without", k, a->neg2logl,
              a->vrad, a->vrad_err, b->neg2logl, b->vrad, b->vrad_err);
    }
    spx_rvfit_free(&with);
    spx_rvfit_free(&without);
    spx_rvfit_close_cpu(plan);
}

static size_t ncall, npoint; /* of the engine below */

/* As an engine that computes many points in the time of one: several of a star, too. */
static spx_status eval_apart(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                             const size_t *const *cell, spx_rv_value *out, spx_err *e)
{
    (void)state;
    (void)cell;
    (void)e;
    ncall++;
    npoint += n;
    for (size_t k = 0; k < n; k++)
        spx_rv_eval_batch(1, w + k, x + k, NULL, out + k);
    return SPX_OK;
}

/* Starts that are followed ahead of their turn: fewer calls of the engine, and the same bits. */
static void ahead(const spx_templates *t)
{
    enum { N = 12 };
    spx_rvfit_options o;
    spx_rvfit_plan *plan;
    spx_rv_ctx c;
    spx_rvfit got[3];
    spx_err e = {0};
    size_t calls[3], points[3];
    init(&o);
    o.npoly = 5;
    open_ctx(t, &o, &plan, &c);
    for (size_t i = 0; i < 3; i++) {
        spx_rv_engine engine = spx_rv_engine_cpu(&c);
        engine.eval = eval_apart;
        engine.fill = i == 0 ? 0 : i == 1 ? 5 : SPX_RV_MOST_FILL;
        ncall = npoint = 0;
        spx_rv_group *g = spx_rv_group_new(&c, &engine, N, &e);
        CHECK(g != NULL, "%s", spx_err_text(&e));
        NEED(spx_rv_result_init(&c, &got[i], &need_e));
        NEED(spx_rv_group_fit(g, FAINT + 1 - (size_t)N, N, &got[i], &need_e));
        spx_rv_group_free(g);
        calls[i] = ncall;
        points[i] = npoint;
        CHECK(memcmp(got[0].star + FAINT + 1 - N, got[i].star + FAINT + 1 - N, N * sizeof *got[i].star) == 0,
              "%zu points at a time: other results", engine.fill);
    }
    CHECK(calls[1] <= calls[0] && (double)calls[2] < 0.8 * (double)calls[0] && points[2] < 2 * points[0],
          "%zu, %zu, %zu calls for %zu, %zu, %zu points", calls[0], calls[1], calls[2], points[0], points[1],
          points[2]);
    for (size_t i = 0; i < 3; i++)
        spx_rvfit_free(&got[i]);
    spx_rvfit_close_cpu(plan);
}

/* No coarse model of kinks, of resolution matrices, and where few pixels are left for each function. */
static void nowhere_else(const spx_templates *t)
{
    static const spx_interpolator kinks[] = {SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX};
    for (size_t k = 0; k < 4; k++) {
        spx_rvfit_options o;
        spx_rvfit_plan *plan;
        spx_rv_ctx c;
        init(&o);
        o.npoly = k == 2 ? 20 : 5;
        o.interpolator = k < 2 ? kinks[k] : SPX_INTERPOLATE_CUBIC;
        o.resolution = k == 3;
        open_ctx(t, &o, &plan, &c);
        CHECK(c.coarse == NULL, "case %zu has a coarse model", k);
        spx_rvfit_close_cpu(plan);
    }
}

static void body(spx_templates *t)
{
    interpolator = SPX_INTERPOLATE_CUBIC;
    alloc_spectra(&spectra, NSTAR + 1);
    for (size_t i = 0; i <= NSTAR; i++)
        draw(&spectra, i,
             &(truth){-300 + 600 * uniform(), i % 2 == 0 ? 0 : 60 * uniform(), 4600 + 1800 * uniform(),
                      -1.8 + 1.7 * uniform(), i == FAINT ? 8 : 20 + 60 * uniform()});
    for (size_t a = 0; a < NARM; a++) {
        spectra.arm[a].ndiag = 1;
        spectra.arm[a].resolution = spx_alloc2(NSTAR + 1, NPIX, sizeof(double), NULL);
        for (size_t i = 0; i < (size_t)(NSTAR + 1) * NPIX && spectra.arm[a].resolution != NULL; i++)
            spectra.arm[a].resolution[i] = 1;
        for (size_t i = 0; i < NSTAR; i++) /* a bad pixel counts little in its coarse one */
            spectra.arm[a].ivar[i * NPIX + 7 + i] = 0;
    }
    minima(t);
    ahead(t);
    nowhere_else(t);
    free_spectra(&spectra);
}

int main(void)
{
    return rv_test(body);
}
