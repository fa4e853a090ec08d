/* Provides the context of the fit, all that the stars of a batch and the batches of a plan share; the default options.
 */
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "rvfit/model/setup.h"

void spx_rvfit_options_init(spx_rvfit_options *o)
{
    *o = (spx_rvfit_options){.continuum = SPX_CONTINUUM_SPLINE,
                             .vmin = -1000,
                             .vmax = 1000,
                             .vsinimax = 500,
                             .dichroic = 1,
                             .lsf_sigma = -1,
                             .reject_sigma = 5,
                             .keep_model = 1,
                             .threads = 1};
}

spx_status spx_rv_ctx_init(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_err *e)
{
    *c = (spx_rv_ctx){.opt = o, .kernels = spx_rv_kernels_avx512()};
    if (!c->kernels)
        c->kernels = spx_rv_kernels_avx2();
    if (!c->kernels)
        c->kernels = spx_rv_kernels_base();
    spx_status st = spx_rv_check_options(o, e);
    if (st == SPX_OK)
        st = spx_blas_open(e);
    c->interpolator = o->interpolator;
    for (size_t i = 0; i < in->spectra->narm && c->interpolator == SPX_INTERPOLATE_AUTO; i++)
        if (in->setup[i])
            c->interpolator = in->setup[i]->node            ? SPX_INTERPOLATE_CUBIC
                              : in->setup[i]->simplex       ? SPX_INTERPOLATE_SIMPLEX
                              : in->setup[i]->nn.nlayer > 0 ? SPX_INTERPOLATE_NN
                                                            : SPX_INTERPOLATE_CUBIC;
    for (size_t i = 0; st == SPX_OK && i < in->spectra->narm; i++) {
        if (!in->setup[i])
            continue;
        spx_rv_arm *a = &c->arm[c->narm++];
        a->index = i;
        a->arm = &in->spectra->arm[i];
        a->setup = in->setup[i];
        if ((st = spx_rv_make_arm(c, a, e)) == SPX_OK && !spx_rv_setups_alike(a->setup, c->arm[0].setup))
            st = spx_fail(e, SPX_EINPUT, "setups '%.63s' and '%.63s' have different grids: build them from one library",
                          c->arm[0].setup->setup, a->setup->setup);
    }
    if (st == SPX_OK && c->narm == 0)
        st = spx_fail_remedy(e, SPX_EINPUT, "name the setups like the arms, or use {map}",
                             "no arm has a setup of the templates");
    for (size_t i = 0; st == SPX_OK && o->keep_ccf && i < c->narm; i++)
        if (c->arm[i].setup->ccf.ntemp == 0)
            st = spx_fail(e, SPX_EINPUT, "setup '%.63s' has no cross-correlation set whose curves could be kept",
                          c->arm[i].setup->setup);
    if (st == SPX_OK)
        st = spx_rv_make_ranges(c, e);
    if (st == SPX_OK && c->interpolator == SPX_INTERPOLATE_SIMPLEX)
        st = spx_rv_make_simplices(c, e);
    if (st == SPX_OK)
        st = spx_rv_make_ccf(c, e);
    if (st == SPX_OK)
        st = spx_rv_scan_init(c, e);
    if (st == SPX_OK)
        st = spx_rv_make_coarse(c, e);
    if (st != SPX_OK) {
        spx_rv_ctx_free(c);
        return st;
    }
    for (size_t i = 0; i < c->narm; i++)
        c->arm[i].arm = NULL; /* that of the batch comes later */
    return SPX_OK;
}

/* Is the plan for these arms, templates and options? */
static int plan_suits(const spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o)
{
    size_t narm = 0;
    for (size_t i = 0; i < in->spectra->narm; i++)
        narm += in->setup[i] != NULL;
    int ok = o == c->opt && narm == c->narm;
    for (size_t i = 0; i < c->narm && ok; i++) {
        const spx_rv_arm *a = &c->arm[i];
        const spx_arm *d = &in->spectra->arm[a->index];
        ok = a->index < in->spectra->narm && in->setup[a->index] == a->setup && d->nwave == a->n &&
             memcmp(d->wavelength, a->wave, a->n * sizeof *a->wave) == 0 &&
             (!o->resolution || (d->resolution && d->ndiag == a->ndiag));
    }
    return ok;
}

spx_status spx_rv_ctx_batch(spx_rv_ctx *c, const spx_rvfit_plan *plan, const spx_rvfit_input *in,
                            const spx_rvfit_options *o, spx_err *e)
{
    spx_status st = SPX_OK;
    if (!plan_suits(&plan->ctx, in, o))
        return spx_fail(e, SPX_EUSAGE, "the plan of the fit is for other arms, templates or options");
    *c = plan->ctx;
    c->in = in;
    for (size_t i = 0; i < c->narm; i++)
        c->arm[i].arm = &in->spectra->arm[c->arm[i].index];
    for (size_t i = 0; st == SPX_OK && i < in->nrow; i++)
        if ((in->row ? in->row[i] : i) >= in->spectra->nspec)
            st = spx_fail(e, SPX_EINPUT, "row %zu does not exist: there are %zu spectra", in->row ? in->row[i] : i,
                          in->spectra->nspec);
    c->nstar = in->first ? in->nstar : in->nrow;
    if (st == SPX_OK && in->first && (in->first[0] != 0 || in->first[in->nstar] != in->nrow))
        st = spx_fail(e, SPX_EINPUT, "exposures of %zu stars are not all of the %zu rows", in->nstar, in->nrow);
    for (size_t k = 0; st == SPX_OK && in->first && k < in->nstar; k++)
        if (in->first[k] > in->first[k + 1])
            st = spx_fail(e, SPX_EINPUT, "exposures of star %zu: the list is not in order", k);
    return st;
}

void spx_rv_ctx_free(spx_rv_ctx *c)
{
    for (size_t i = 0; i < c->narm; i++) {
        spx_rv_arm *a = &c->arm[i];
        spx_free(a->wave);
        spx_free(a->lnwave);
        spx_free(a->place);
        spx_free(a->basis.value);
        spx_free(a->basis.span);
        spx_ccf_pca_free(&a->ccf_made);
        spx_free(a->lag_at);
        spx_free(a->lag_weight);
        spx_free(a->few.window);
        spx_free(a->few.comp);
        spx_free(a->few.at);
        spx_free(a->few.weight);
        spx_free(a->rebin_at);
        spx_free(a->rebin);
        spx_free(a->comp);
        spx_free(a->coef);
        spx_free(a->mean);
        spx_free(a->cprime);
        spx_free(a->leftout);
        spx_rv_match_free(&a->match);
        spx_rv_fine_free(&a->fine);
        spx_free(a->lines.line);
        spx_free(a->lines.range);
#pragma omp critical(spx_fftw)
        {
            if (a->forward)
                fftwf_destroy_plan(a->forward);
            if (a->few.inverse)
                fftwf_destroy_plan(a->few.inverse);
        }
    }
    for (size_t p = 0; p < SPX_MAX_PAR; p++)
        spx_free(c->grid.axis[p]);
    spx_free(c->grid.simplex);
    spx_free(c->ccf.place);
    spx_rv_coarse_free(c->coarse);
    *c = (spx_rv_ctx){0};
}
