/* Provides the fit on the CPU: the engine that the search asks (search/search.h), and batches, whose groups of stars
 * are shared out among threads. The stars of a thread have one workspace. */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/blas.h"
#include "num/wave.h"
#include "rvfit/search/search.h"

/* Stars of a group: two batches, so that those whose search goes on fill one; the last groups are smaller, so that all
 * threads end together. */
enum { GROUP = 2 * SPX_RV_BATCH, LEAST_GROUP = 4 };

static spx_status cpu_correlate(void *state, size_t n, spx_rv_spectra *const *w, spx_rv_candidates *candidates,
                                spx_err *e)
{
    (void)state;
    for (size_t k = 0; k < n; k++) {
        spx_rv_correlate(w[k], &candidates[k]);
        if (w[k]->err.code != SPX_OK)
            return spx_err_pass(e, &w[k]->err);
    }
    return SPX_OK;
}

static spx_status cpu_eval(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                           const size_t *const *cell, spx_rv_value *out, spx_err *e)
{
    (void)state;
    (void)e;
    for (size_t k = 0; k < n; k += SPX_RV_BATCH)
        spx_rv_eval_batch(n - k < SPX_RV_BATCH ? n - k : SPX_RV_BATCH, w + k, x + k, cell != NULL ? cell + k : NULL,
                          out + k);
    return SPX_OK;
}

static spx_status cpu_values(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                             const size_t *first, const double *v, double *f, spx_err *e)
{
    (void)state;
    if (n > 0 && !spx_rv_keep_templates(n, w, x))
        return spx_err_pass(e, &w[0]->err);
    for (size_t k = 0; k < n; k++) {
        spx_rv_use_templates(w[k], x[k]);
        for (size_t i = first[k]; i < first[k + 1]; i++) {
            spx_rv_value at;
            spx_rv_project(w[k], v[i], &at);
            f[i] = at.f;
        }
    }
    return SPX_OK;
}

static spx_status cpu_scan(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e)
{
    (void)state;
    if (n > 0 && !spx_rv_keep_templates(n, w, x))
        return spx_err_pass(e, &w[0]->err);
    for (size_t k = 0; k < n; k++) {
        spx_rv_use_templates(w[k], x[k]);
        spx_rv_velocity_scan(w[k]);
    }
    return SPX_OK;
}

static spx_status cpu_models(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                             spx_err *e)
{
    (void)state;
    if (n > 0 && !spx_rv_keep_templates(n, w, x))
        return spx_err_pass(e, &w[0]->err);
    for (size_t k = 0; k < n; k++) {
        spx_rv_use_templates(w[k], x[k]);
        for (size_t i = 0; i < w[k]->first[w[k]->ctx->narm]; i++) {
            spx_rv_data *d = &w[k]->piece[i];
            d->chisq_c = spx_rv_chisq(w[k], d, x[k][0], 1, NULL);
            d->chisq = spx_rv_chisq(w[k], d, x[k][0], 0, d->model);
        }
    }
    return SPX_OK;
}

static spx_status cpu_shifted(void *state, size_t n, const spx_rv_shifts *s, spx_err *e)
{
    (void)state;
    (void)e;
    for (size_t k = 0; k < n; k++)
        spx_rv_shifted_chisq(&s[k]);
    return SPX_OK;
}

static spx_status cpu_inform(void *state, size_t n, const spx_rv_information *s, spx_err *e)
{
    (void)state;
    (void)e;
    for (size_t k = 0; k < n; k++) {
        spx_rv_use_templates(s[k].w, s[k].x);
        spx_rv_inform(&s[k]);
    }
    return SPX_OK;
}

static spx_status cpu_coarsen(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e)
{
    (void)state;
    for (size_t k = 0; k < n; k++)
        if (!spx_rv_coarsen(w[k]))
            return spx_err_pass(e, &w[k]->err);
    return SPX_OK;
}

spx_rv_engine spx_rv_engine_cpu(const spx_rv_ctx *c)
{
    return (spx_rv_engine){.threads = 1,
                           .together = spx_rv_together(c),
                           .correlate = cpu_correlate,
                           .eval = cpu_eval,
                           .values = cpu_values,
                           .scan = cpu_scan,
                           .models = cpu_models,
                           .shifted = cpu_shifted,
                           .inform = cpu_inform,
                           .coarsen = cpu_coarsen};
}

/* First star of each group, into begin[nstar+1], of which the largest is the first; returns how many groups there are.
 */
static size_t share_out(size_t nstar, size_t threads, size_t most, size_t *begin)
{
    const size_t share = (nstar + threads - 1) / threads;
    const size_t few = share < LEAST_GROUP ? share : LEAST_GROUP, least = few < most ? few : most;
    size_t k = 0;
    for (begin[0] = 0; begin[k] < nstar; k++) {
        const size_t left = nstar - begin[k], part = threads > 1 ? left / (2 * threads) : most;
        const size_t n = part < least ? least : part < most ? part : most;
        begin[k + 1] = begin[k] + (n < left ? n : left);
    }
    return k;
}

spx_status spx_rv_for_stars(const spx_rv_ctx *c, spx_progress *p, spx_rv_task task, size_t held, void *arg, spx_err *e)
{
    spx_status st = spx_blas_open(e);
    if (st != SPX_OK)
        return st;
    const size_t nstar = c->nstar, most = c->interpolator != SPX_INTERPOLATE_GRID ? GROUP : 1;
    size_t threads = c->opt->threads > 1 ? (size_t)c->opt->threads : 1;
    threads = threads > nstar ? (nstar > 1 ? nstar : 1) : threads;
    size_t *begin = spx_alloc(nstar + 1, sizeof *begin, e);
    if (begin == NULL)
        return SPX_EIO;
    const size_t ngroup = share_out(nstar, threads, most, begin);
    const size_t largest = ngroup > 0 && begin[1] < held ? begin[1] : held;
    spx_rv_engine engine = spx_rv_engine_cpu(c);
#pragma omp parallel num_threads((int)threads)
    {
        spx_err mine = {0};
        spx_rv_group *g = spx_rv_group_new(c, &engine, largest, &mine);
#pragma omp for schedule(dynamic, 1)
        for (size_t k = 0; k < ngroup; k++) {
            if (mine.code != SPX_OK)
                continue;
            const size_t n = begin[k + 1] - begin[k];
            if (task(g, begin[k], n, arg, &mine) == SPX_OK)
                spx_progress_step(p, n);
        }
        if (mine.code != SPX_OK) {
#pragma omp critical(spx_rvfit_error)
            st = spx_err_pass(e, &mine);
        }
        spx_rv_group_free(g);
    }
    spx_free(begin);
    return st;
}

static spx_status fit_task(spx_rv_group *g, size_t first, size_t n, void *arg, spx_err *e)
{
    return spx_rv_group_fit(g, first, n, arg, e);
}

spx_status spx_rvfit_open_cpu(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_plan **plan, spx_err *e)
{
    if (*plan)
        return SPX_OK;
    spx_rvfit_plan *p = spx_alloc(1, sizeof *p, e);
    if (!p)
        return SPX_EIO;
    spx_status st = spx_rv_ctx_init(&p->ctx, in, o, e);
    if (st != SPX_OK)
        spx_free(p);
    else
        *plan = p;
    return st;
}

void spx_rvfit_close_cpu(spx_rvfit_plan *plan)
{
    if (plan)
        spx_rv_ctx_free(&plan->ctx);
    spx_free(plan);
}

spx_status spx_rv_begin(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_plan **own,
                        spx_err *e)
{
    *own = NULL;
    spx_status st = in->plan ? SPX_OK : spx_rvfit_open_cpu(in, o, own, e);
    return st != SPX_OK ? st : spx_rv_ctx_batch(c, in->plan ? in->plan : *own, in, o, e);
}

/* Memory for the residuals, which the hook sees beside the result. */
static spx_status residuals(const spx_rvfit_input *in, spx_rvfit *out, spx_err *e)
{
    for (size_t a = 0; a < out->narm; a++)
        if (in->setup[a] != NULL &&
            (out->arm[a].residual = spx_alloc2(out->nrow, out->arm[a].nwave, sizeof *out->arm[a].residual, e)) == NULL)
            return SPX_EIO;
    return SPX_OK;
}

/* The hook sees the result, and the residuals go. */
static spx_status call_hook(const spx_rvfit_input *in, spx_hook *hook, spx_rvfit *out, spx_err *e)
{
    double *wavelength[SPX_MAX_ARM] = {NULL};
    for (size_t a = 0; a < out->narm; a++)
        wavelength[a] = in->spectra->arm[a].wavelength;
    spx_status st = spx_rvfit_hook(hook, out, wavelength, SPX_HOOK_HOST, e);
    spx_hook_release(hook);
    for (size_t a = 0; a < out->narm; a++) {
        spx_free(out->arm[a].residual);
        out->arm[a].residual = NULL;
    }
    return st;
}

spx_status spx_rvfit_cpu(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p, spx_rvfit *out,
                         spx_err *e)
{
    spx_rv_ctx c;
    spx_rvfit_plan *own;
    *out = (spx_rvfit){0};
    spx_status st = spx_rv_begin(&c, in, o, &own, e);
    if (st == SPX_OK && (st = spx_rv_result_init(&c, out, e)) == SPX_OK && o->hook != NULL)
        st = residuals(in, out, e);
    if (st == SPX_OK)
        st = spx_rv_for_stars(&c, p, fit_task, GROUP, out, e);
    if (st == SPX_OK && o->hook != NULL)
        st = call_hook(in, o->hook, out, e);
    spx_rvfit_close_cpu(own);
    if (st != SPX_OK)
        spx_rvfit_free(out);
    return st;
}

typedef struct {
    const double *x;
    double *f, *grad;
} objective_args;

static void star_objective(spx_rv_spectra *w, size_t star, const objective_args *a)
{
    const spx_rv_ctx *c = w->ctx;
    double x[SPX_MAX_FIT];
    spx_rv_value at;
    a->f[star] = 0;
    for (size_t q = 0; a->grad && q < c->nq; q++)
        a->grad[star * c->nq + q] = 0;
    if (!spx_rv_load(w, star))
        return;
    for (size_t q = 0; q < c->nq; q++)
        x[q] = spx_rv_map(c, q, a->x[star * c->nq + q]);
    spx_rv_eval(w, x, NULL, a->grad != NULL, &at);
    a->f[star] = at.f;
    for (size_t k = 0; a->grad && k < c->nfree; k++) {
        size_t q = c->freeq[k];
        double scale = 1 / spx_rv_slope(c, q, x[q], 0);
        if (q == 1 && c->slow > 0) /* 0 for a star at rest */
            scale = 2 * spx_rv_unmap(c, 1, x[1]) / spx_rv_vsini_square_dx(x[1], c->slow);
        a->grad[star * c->nq + q] = at.grad[k] * scale;
    }
}

static spx_status objective_task(spx_rv_group *g, size_t first, size_t n, void *arg, spx_err *e)
{
    spx_rv_spectra *w = spx_rv_group_spectra(g, 0);
    for (size_t k = 0; k < n && w->err.code == SPX_OK; k++)
        star_objective(w, first + k, arg);
    return w->err.code == SPX_OK ? SPX_OK : spx_err_pass(e, &w->err);
}

spx_status spx_rvfit_objective(const spx_rvfit_input *in, const spx_rvfit_options *o, const double *x, double *f,
                               double *grad, spx_err *e)
{
    spx_rv_ctx c;
    spx_rvfit_plan *own;
    spx_status st = spx_rv_begin(&c, in, o, &own, e);
    for (size_t i = 0; st == SPX_OK && i < c.nstar * c.nq; i++) {
        size_t q = i % c.nq;
        if (!isfinite(x[i]) || (q >= 2 && c.grid.parlog[q - 2] && !(x[i] > 0)) ||
            (q < 2 && !(x[i] >= (q ? o->vsinimin : o->vmin) && x[i] <= (q ? o->vsinimax : o->vmax))))
            st = spx_fail(e, SPX_EUSAGE, "point %zu, quantity %zu: %g is outside its range", i / c.nq, q, x[i]);
    }
    objective_args a = {x, f, grad};
    if (st == SPX_OK)
        st = spx_rv_for_stars(&c, NULL, objective_task, 1, &a, e);
    spx_rvfit_close_cpu(own);
    return st;
}

/* ---- templates of stars ---- */

/* Half-length of the filter that takes a line-spread function out, bins. */
enum { FILTER = 64 };

/* Of each arm of the context: filters, symmetric, of each width of the templates' LSF and of spots, where a spectrum
 * has such; the first one of each bin; and places of the bins on the templates' grid. */
typedef struct {
    spx_rvfit *out;
    double *filter[SPX_MAX_ARM]; /* [widths][SPX_RV_LEVELS][FILTER+1] */
    size_t *width[SPX_MAX_ARM];  /* [nbin] */
    double *place[SPX_MAX_ARM];
    size_t most; /* bins of an arm */
} template_args;

/* Widths of the LSF, in equal steps of the logarithm, and their filters, of the levels that spectra of arm k have. */
static spx_status make_filters(const spx_setup *s, double sigma, const spx_arm *bins, const spx_rvfit *fit, size_t k,
                               size_t **width, double **filter, spx_err *e)
{
    const double step = 0.01;
    const size_t n = bins->nwave;
    double lo = HUGE_VAL, hi = 0, *g = spx_alloc(n, sizeof *g, e);
    int has[1 + SPX_RV_LEVELS] = {0};
    for (size_t i = 0; i < fit->nrow; i++)
        has[fit->exposure[i].lsf[k]] = 1;
    *width = spx_alloc(n, sizeof **width, e);
    spx_status st = g && *width ? spx_rv_template_lsf(s, sigma, n, bins->wavelength, g, e) : SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        lo = fmin(lo, g[i]);
        hi = fmax(hi, g[i]);
    }
    const size_t nwidth = st == SPX_OK && lo > 0 ? (size_t)(log(hi / lo) / step + 0.5) + 1 : 1;
    if (st == SPX_OK && (*filter = spx_alloc2(nwidth * SPX_RV_LEVELS, FILTER + 1, sizeof **filter, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK && lo > 0; i++)
        (*width)[i] = (size_t)(log(g[i] / lo) / step + 0.5);
    for (size_t i = 0; i < nwidth * SPX_RV_LEVELS && st == SPX_OK; i++)
        if (has[1 + i % SPX_RV_LEVELS])
            spx_rv_filter(lo * exp(step * (double)(i / SPX_RV_LEVELS)), spx_rv_level_width(i % SPX_RV_LEVELS),
                          FILTER + 1, *filter + i * (FILTER + 1));
    spx_free(g);
    return st;
}

/* sum[n] of a symmetric filter over the samples around x[0 ... n-1]. */
SPX_CLONES
static void filter_run(size_t n, size_t reach, const double *filter, const double *restrict x, double *restrict sum)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] = filter[0] * x[i];
    for (size_t k = 1; k <= reach; k++)
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            sum[i] += filter[k] * (x[i - k] + x[i + k]);
}

/* out[n] is t[n] without line-spread function, whose widths are width[n]; around it there is memory for FILTER samples,
 * in which the template goes on as its reflection in the end's value. */
static void sharpen(size_t n, const double *filters, const size_t *width, double *t, float *out)
{
    enum { RUN = 64 }; /* bins, whose sums stay in the cache */
    const size_t reach = n > FILTER ? FILTER : n - 1;
    for (size_t k = 1; k <= reach; k++) {
        t[-(ptrdiff_t)k] = 2 * t[0] - t[k];
        t[n - 1 + k] = 2 * t[n - 1] - t[n - 1 - k];
    }
    for (size_t i = 0, end; i < n; i = end) {
        double sum[RUN];
        for (end = i + 1; end < n && end < i + RUN && width[end] == width[i]; end++)
            ;
        filter_run(end - i, reach, filters + width[i] * SPX_RV_LEVELS * (FILTER + 1), t + i, sum);
        for (size_t j = i; j < end; j++)
            out[j] = sum[j - i] > 0 && sum[j - i] < FLT_MAX ? (float)sum[j - i] : 0;
    }
}

static void star_template(spx_rv_spectra *w, size_t star, const template_args *a)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rvfit_star *s = &a->out->star[star];
    double x[SPX_MAX_FIT], *memory = NULL;
    if ((s->warn & SPX_RVS_BAD) != 0 || !isfinite(s->vrad) || !spx_rv_list(w, star) ||
        (memory = spx_alloc(a->most + 2 * FILTER, sizeof *memory, &w->err)) == NULL)
        return;
    double *t = memory + FILTER;
    for (size_t q = 0; q < c->nq; q++)
        x[q] = spx_rv_map(c, q, q == 0 ? s->vrad : q == 1 ? s->vsini : s->par[q - 2]);
    spx_rv_template(w, x, NULL, 0);
    for (size_t ia = 0; ia < c->narm; ia++) {
        const size_t k = c->arm[ia].index, n = a->out->arm[k].nbin;
        size_t first = 0, end = n;
        spx_rv_sample_at(w, ia, x[0], n, a->place[ia], t);
        const double norm = exp(spx_rv_lnnorm(w, ia, x));
        for (size_t i = 0; i < n; i++)
            t[i] *= norm;
        while (first < end && !(t[first] > 0))
            first++;
        while (end > first && !(t[end - 1] > 0))
            end--;
        for (size_t i = w->first[ia]; i < w->first[ia + 1] && end > first; i++) {
            const size_t row = w->piece[i].exposure, level = a->out->exposure[row].lsf[k];
            if (level > 0)
                sharpen(end - first, a->filter[ia] + (level - 1) * (FILTER + 1), a->width[ia] + first, t + first,
                        a->out->arm[k].star_template + row * n + first);
        }
    }
    spx_free(memory);
}

static spx_status template_task(spx_rv_group *g, size_t first, size_t n, void *arg, spx_err *e)
{
    spx_rv_spectra *w = spx_rv_group_spectra(g, 0);
    for (size_t k = 0; k < n && w->err.code == SPX_OK; k++)
        star_template(w, first + k, arg);
    return w->err.code == SPX_OK ? SPX_OK : spx_err_pass(e, &w->err);
}

/* Places of an arm's bins on the templates' grid. */
static double *places(const spx_rv_arm *arm, const spx_arm *bins, spx_err *e)
{
    const spx_setup *s = arm->setup;
    double *place = spx_alloc(bins->nwave, sizeof *place, e);
    for (size_t i = 0; i < bins->nwave && place != NULL; i++) {
        double w = bins->wavelength[i];
        if (bins->medium != s->medium)
            w = s->medium == SPX_AIR ? spx_vacuum_to_air(w) : spx_air_to_vacuum(w);
        place[i] = (log(w) - s->lnwave0) / s->dlnwave;
    }
    return place;
}

spx_status spx_rvfit_templates(const spx_rvfit_input *in, const spx_rvfit_options *o, const spx_arm *bins,
                               spx_rvfit *out, spx_err *e)
{
    spx_rv_ctx c;
    spx_rvfit_plan *own;
    template_args *a = spx_alloc(1, sizeof *a, e);
    spx_status st = a == NULL ? SPX_EIO : spx_rv_begin(&c, in, o, &own, e);
    if (a == NULL)
        return st;
    a->out = out;
    for (size_t ia = 0; st == SPX_OK && ia < c.narm; ia++) {
        const spx_rv_arm *arm = &c.arm[ia];
        const spx_arm *b = &bins[arm->index];
        if (arm->match.matrix == NULL || arm->setup->norm == SPX_NORM_LINEAR ||
            (arm->setup->norm == SPX_NORM_MEDIAN && c.interpolator == SPX_INTERPOLATE_NN)) {
            st = spx_fail(e, SPX_EUSAGE,
                          "templates of stars need resolution matrices and setups that keep the continuum");
            break;
        }
        a->most = b->nwave > a->most ? b->nwave : a->most;
        out->arm[arm->index].nbin = b->nwave;
        out->arm[arm->index].bins = b->wavelength;
        out->arm[arm->index].star_template = spx_alloc2(out->nrow, b->nwave, sizeof(float), e);
        if (out->arm[arm->index].star_template == NULL || (a->place[ia] = places(arm, b, e)) == NULL)
            st = SPX_EIO;
        if (st == SPX_OK)
            st = make_filters(arm->setup, o->lsf_sigma, b, out, arm->index, &a->width[ia], &a->filter[ia], e);
    }
    if (st == SPX_OK)
        st = spx_rv_for_stars(&c, NULL, template_task, 1, a, e);
    for (size_t ia = 0; ia < SPX_MAX_ARM; ia++) {
        spx_free(a->place[ia]);
        spx_free(a->width[ia]);
        spx_free(a->filter[ia]);
    }
    spx_free(a);
    spx_rvfit_close_cpu(own);
    return st;
}
