/* Provides the coarse model, on which the starts of a star are followed for a fraction of what the model itself takes:
 * SPX_RV_BIN pixels in one, templates in steps of half such a pixel, and the first of their principal components.
 * Minima lie where those of the model lie but for a few errors; how deep they are, and where exactly, the model itself
 * says (search/minima.c).
 *
 * A pixel of the coarse model sees the mean flux of the templates over its width. The mean is taken of flux, not of its
 * logarithm, which in strong lines is another thing; of templates from all over the library, ln of that mean is then
 * expressed by their coefficients of the principal components, in least squares. So the coarse components have the
 * coefficients that the model's own have, at all points of the library. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

enum {
    PER_FUNCTION = 16, /* coarse pixels for each function of the continuum, at least */
    COMPONENTS = 64,   /* at most: the rest is 1e-3 of ln flux of the libraries of the tests, rms */
    TEMPLATES = 200    /* that components are made from, at least, of a library that has as many */
};
static const double RIDGE = 1e-10; /* of the diagonal: coefficients of all templates of a small library are dependent */

/* Can the model be made coarse? Resolution matrices and transmissions act on the pixels themselves, a network has no
 * templates, and other interpolators have kinks at which a descent may end. */
static int suits(const spx_rv_ctx *c)
{
    int ok = c->interpolator == SPX_INTERPOLATE_CUBIC && !c->opt->resolution && c->opt->transmission == NULL;
    for (size_t i = 0; i < c->narm && ok; i++) {
        const spx_rv_arm *a = &c->arm[i];
        ok = a->comp != NULL && a->setup->pca.coef != NULL && !a->setup->pca.of_flux &&
             a->n / SPX_RV_BIN >= PER_FUNCTION * a->basis.n;
    }
    return ok;
}

/* Samples of the templates in a step of the coarse ones. */
static size_t decimation(const spx_rv_arm *a)
{
    const double pixel = (a->place[a->n - 1] - a->place[0]) / (double)(a->n - 1);
    return (size_t)fmax(1, floor(0.5 * SPX_RV_BIN * pixel + 0.5));
}

/* Place of coarse sample 0 on the templates' grid. */
static double first_sample(size_t step)
{
    return 0.5 * (double)(step - 1);
}

/* Integral of a spectrum of samples of width 1, sums[k] up to sample k, from its beginning to `at` within it. */
static double integral(const double *sums, double at)
{
    const size_t k = (size_t)at;
    return sums[k] + (at - (double)k) * (sums[k + 1] - sums[k]);
}

/* ln of the means of flux[nt] over a coarse pixel around each coarse sample. sums[nt+2] is used. */
static void average(const spx_rv_arm *a, size_t step, size_t n, const double *flux, double *sums, double *out)
{
    for (size_t k = 0; k < a->nt; k++)
        sums[k + 1] = sums[k] + flux[k];
    sums[a->nt + 1] = sums[a->nt];
    for (size_t j = 0, i = 0; j < n; j++) {
        const double at = first_sample(step) + (double)(j * step);
        while (i + 2 < a->n && a->place[i + 1] < at)
            i++;
        const double half = 0.5 * fmax((double)step, SPX_RV_BIN * (a->place[i + 1] - a->place[i]));
        const double lo = fmax(0, at + 0.5 - half), hi = fmin((double)a->nt, at + 0.5 + half);
        out[j] = log(fmax((integral(sums, hi) - integral(sums, lo)) / (hi - lo), 1e-300));
    }
}

/* Templates 0, every, 2 every ...: rows (1, coefficients) into design[n][1+nc], coarse templates into target[n][nt]. A
 * thread has a few at a time, so that the components are read once for them. */
static spx_status coarse_templates(const spx_rv_ctx *c, const spx_rv_arm *a, const spx_rv_arm *b, size_t step,
                                   size_t every, size_t n, double *design, double *target, spx_err *e)
{
    enum { FEW = 8 };
    const spx_pca *p = &a->setup->pca;
    const size_t nc = p->ncomp, k = b->setup->pca.ncomp, stride = a->ntile * SPX_RV_TILE;
    spx_status st = SPX_OK;
#pragma omp parallel num_threads(spx_rv_plan_threads(c))
    {
        spx_err mine = {0};
        double *planes = spx_alloc2(FEW, stride, sizeof *planes, &mine),
               *sums = spx_alloc(a->nt + 2, sizeof *sums, &mine);
        float *singles = spx_alloc2(FEW, nc, sizeof *singles, &mine);
        const int ok = planes != NULL && sums != NULL && singles != NULL;
#pragma omp for schedule(static)
        for (size_t t = 0; t < n; t += FEW) {
            const size_t few = n - t < FEW ? n - t : FEW;
            const double *cd[FEW];
            const float *cf[FEW];
            double *plane[FEW];
            float *slope[FEW] = {NULL};
            for (size_t j = 0; j < few && ok; j++) {
                cd[j] = p->coef + (t + j) * every * nc;
                cf[j] = singles + j * nc;
                plane[j] = planes + j * stride;
                for (size_t i = 0; i < nc; i++)
                    singles[j * nc + i] = (float)cd[j][i];
            }
            if (!ok)
                continue;
            c->kernels->components(1, a->ntile, nc < SPX_RV_LARGE ? nc : SPX_RV_LARGE, nc, a->comp, a->mean, few, cd,
                                   cf, plane, slope);
            for (size_t j = 0; j < few; j++) {
                c->kernels->exponential(stride, plane[j]);
                average(a, step, b->nt, plane[j], sums, target + (t + j) * b->nt);
                design[(t + j) * (1 + k)] = 1;
                memcpy(design + (t + j) * (1 + k) + 1, cd[j], k * sizeof **cd);
            }
        }
        if (!ok) {
#pragma omp critical(spx_rvfit_error)
            st = spx_err_pass(e, &mine);
        }
        spx_free(planes);
        spx_free(sums);
        spx_free(singles);
    }
    return st;
}

/* Mean and components of the coarse templates, in tiles. */
static spx_status make_components(const spx_rv_ctx *c, const spx_rv_arm *a, spx_rv_arm *b, size_t step, spx_err *e)
{
    const size_t nt = b->nt, nc = b->setup->pca.ncomp, m = 1 + nc, every = a->setup->ntemp / TEMPLATES,
                 stride = every > 1 ? every : 1, n = (a->setup->ntemp + stride - 1) / stride;
    double *design = spx_alloc2(n, m, sizeof *design, e), *target = spx_alloc2(n, nt, sizeof *target, e),
           *normal = spx_alloc2(m, m, sizeof *normal, e), *right = spx_alloc2(m, nt, sizeof *right, e);
    b->comp = spx_alloc2(b->ntile * SPX_RV_TILE, nc, sizeof *b->comp, e);
    b->mean = spx_alloc(b->ntile * SPX_RV_TILE, sizeof *b->mean, e);
    spx_status st = design && target && normal && right && b->comp && b->mean
                        ? coarse_templates(c, a, b, step, stride, n, design, target, e)
                        : SPX_EIO;
    if (st == SPX_OK) {
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)m, (int)n, 1, design, (int)m, 0, normal, (int)m);
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)nt, (int)n, 1, design, (int)m, target,
                    (int)nt, 0, right, (int)nt);
        for (size_t k = 0; k < m; k++)
            normal[k * m + k] = normal[k * m + k] > 0 ? normal[k * m + k] * (1 + RIDGE) : 1;
        if (LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', (int)m, (int)nt, normal, (int)m, right, (int)nt) != 0)
            st = spx_fail(e, SPX_EINPUT, "components of setup '%.63s' are not usable", a->setup->setup);
    }
    for (size_t i = 0; i < nt && st == SPX_OK; i++) {
        b->mean[i] = right[i];
        for (size_t k = 0; k < nc; k++)
            b->comp[(i / SPX_RV_TILE * nc + k) * SPX_RV_TILE + i % SPX_RV_TILE] = (float)right[(1 + k) * nt + i];
    }
    spx_free(design);
    spx_free(target);
    spx_free(normal);
    spx_free(right);
    return st;
}

/* The setup of a coarse arm is its own: sizes, and the coefficients of the components that are kept. */
static spx_status make_setup(const spx_rv_arm *a, spx_rv_arm *b, size_t step, spx_err *e)
{
    const spx_setup *from = a->setup;
    const size_t nc = from->pca.ncomp < COMPONENTS ? from->pca.ncomp : COMPONENTS;
    spx_setup *s = spx_alloc(1, sizeof *s, e);
    b->setup = s;
    if (s == NULL)
        return SPX_EIO;
    *s = *from;
    s->nwave = b->nt;
    s->lnwave0 = from->lnwave0 + first_sample(step) * from->dlnwave;
    s->dlnwave = (double)step * from->dlnwave;
    s->lnflux = NULL;
    s->ccf = (spx_ccf_set){0};
    s->pca = (spx_pca){.ncomp = nc, .coef = spx_alloc2(from->ntemp, nc, sizeof(double), e)};
    for (size_t t = 0; t < from->ntemp && s->pca.coef != NULL; t++)
        memcpy(s->pca.coef + t * nc, from->pca.coef + t * from->pca.ncomp, nc * sizeof(double));
    return s->pca.coef != NULL ? SPX_OK : SPX_EIO;
}

static spx_status make_coarse_arm(const spx_rv_ctx *c, const spx_rv_arm *a, spx_rv_arm *b, spx_err *e)
{
    const size_t step = decimation(a);
    *b = (spx_rv_arm){.index = a->index, .n = a->n / SPX_RV_BIN, .nt = a->nt / step};
    b->stride = (b->n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    b->ntile = (b->nt + SPX_RV_TILE - 1) / SPX_RV_TILE;
    b->place = spx_alloc(b->n, sizeof *b->place, e);
    b->cprime = spx_alloc(b->nt, sizeof *b->cprime, e);
    if (b->place == NULL || b->cprime == NULL)
        return SPX_EIO;
    spx_rv_spline_factor(b->nt, b->cprime);
    for (size_t i = 0; i < b->n; i++) {
        double sum = 0;
        for (size_t k = 0; k < SPX_RV_BIN; k++)
            sum += a->place[i * SPX_RV_BIN + k];
        b->place[i] = (sum / SPX_RV_BIN - first_sample(step)) / (double)step;
    }
    spx_status st = spx_rv_coarse_basis(&a->basis, SPX_RV_BIN, b->n, b->stride, &b->basis, e);
    if (st == SPX_OK && (st = make_setup(a, b, step, e)) == SPX_OK)
        st = make_components(c, a, b, step, e);
    return st == SPX_OK ? spx_rv_make_coefficients(b, e) : st;
}

static void free_arms(spx_rv_ctx *k)
{
    for (size_t i = 0; i < k->narm; i++) {
        spx_rv_arm *a = &k->arm[i];
        spx_free(a->place);
        spx_free(a->cprime);
        spx_free(a->basis.value);
        spx_free(a->basis.span);
        spx_free(a->comp);
        spx_free(a->coef);
        spx_free(a->mean);
        if (a->setup != NULL)
            spx_free(a->setup->pca.coef);
        spx_free((void *)a->setup);
    }
}

spx_status spx_rv_make_coarse(spx_rv_ctx *c, spx_err *e)
{
    spx_status st = SPX_OK;
    spx_rv_ctx *k = suits(c) ? spx_alloc(1, sizeof *k, e) : NULL;
    if (k == NULL)
        return suits(c) ? SPX_EIO : SPX_OK;
    *k = *c;
    k->scan.n = 0;
    k->ccf.nlag = 0; /* it is not correlated */
    k->size.n = 0;
    memset(k->arm, 0, sizeof k->arm);
    c->coarse = k; /* which is freed with c, whatever happens */
    for (size_t i = 0; i < c->narm && st == SPX_OK; i++) {
        st = make_coarse_arm(c, &c->arm[i], &k->arm[i], e);
        k->size.n = k->arm[i].stride > k->size.n ? k->arm[i].stride : k->size.n;
    }
    return st;
}

void spx_rv_coarse_free(spx_rv_ctx *k)
{
    if (k != NULL)
        free_arms(k);
    spx_free(k);
}

int spx_rv_coarse_pieces(spx_rv_spectra *w)
{
    const spx_rv_spectra *from = w->of;
    const size_t n = from->first[w->ctx->narm];
    if (!spx_rv_need_pieces(w, n, &w->err))
        return 0;
    memcpy(w->first, from->first, sizeof w->first);
    w->workspace = from->workspace;
    w->npix = from->npix; /* the penalty outside of the templates is that of the model */
    for (size_t p = 0; p < n; p++) {
        w->piece[p].arm = from->piece[p].arm;
        w->piece[p].exposure = from->piece[p].exposure;
        w->piece[p].sum_lne2 = 0;
    }
    return 1;
}

int spx_rv_coarsen(spx_rv_spectra *w)
{
    if (!spx_rv_coarse_pieces(w))
        return 0;
    for (size_t p = 0; p < w->first[w->ctx->narm]; p++) {
        const spx_rv_data *d = &w->of->piece[p];
        const spx_rv_arm *a = &w->ctx->arm[d->arm];
        spx_rv_data *o = &w->piece[p];
        for (size_t i = 0; i < a->n; i++)
            o->flux[i] = spx_rv_coarse_pixel(SPX_RV_BIN, d->flux + i * SPX_RV_BIN, d->ie + i * SPX_RV_BIN, &o->ie[i]);
        for (size_t i = a->n; i < a->stride; i++)
            o->flux[i] = o->ie[i] = 0;
    }
    return 1;
}
