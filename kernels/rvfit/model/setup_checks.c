/* Checks of what users and files give to the fit: options, grids of templates, networks, triangulations. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

spx_status spx_rv_check_options(const spx_rvfit_options *o, spx_err *e)
{
    if (o->npoly > SPX_RVFIT_MAX_POLY)
        return spx_fail(e, SPX_EUSAGE, "%zu continuum functions: use 1 to %d", o->npoly, SPX_RVFIT_MAX_POLY);
    if (!(o->vmin <= o->vmax))
        return spx_fail(e, SPX_EUSAGE, "{vrange} %g to %g km/s: give the smaller velocity first", o->vmin, o->vmax);
    if (!(fabs(o->vmin) < SPX_C_KMS / 2) || !(fabs(o->vmax) < SPX_C_KMS / 2))
        return spx_fail(e, SPX_EUSAGE, "{vrange} %g to %g km/s: give velocities below half of that of light", o->vmin,
                        o->vmax);
    if (!(o->vsinimin >= 0) || !(o->vsinimin <= o->vsinimax) || !(o->vsinimax <= 2000))
        return spx_fail(e, SPX_EUSAGE, "{vsini_range} %g to %g km/s: give 0 to 2000 km/s, the smaller value first",
                        o->vsinimin, o->vsinimax);
    if (o->reject < 0 || (o->reject > 0 && !(o->reject_sigma > 0)))
        return spx_fail(e, SPX_EUSAGE,
                        "rejection %d times beyond %g sigma: give a number of 0 or more, and a sigma above 0",
                        o->reject, o->reject_sigma);
    if (o->resolution && !isfinite(o->lsf_sigma))
        return spx_fail(e, SPX_EUSAGE, "sigma of the templates' line-spread function is %g", o->lsf_sigma);
    if (o->transmission != NULL && !o->resolution)
        return spx_fail(e, SPX_EUSAGE, "{tellurics} go with {resolution_matrix} only");
    for (size_t a = 0; a < SPX_MAX_ARM && o->jitter; a++)
        if (o->jitter_of[a] < 0 || isinf(o->jitter_of[a]))
            return spx_fail(e, SPX_EUSAGE, "{jitter} %g of the flux: must not be negative", o->jitter_of[a]);
    if (o->jitter && o->scale_errors)
        return spx_fail(e, SPX_EUSAGE, "{jitter} and {scale_errors} exclude each other");
    for (size_t q = 0; q < SPX_MAX_FIT; q++)
        if ((o->fixed[q] && !isfinite(o->value[q])) || !isfinite(o->prior_mean[q]) || !(o->prior_sigma[q] >= 0) ||
            !isfinite(o->prior_sigma[q]))
            return spx_fail(e, SPX_EUSAGE, "a fixed value or prior is not a usable number");
    return SPX_OK;
}

static spx_status check_grid(const spx_setup *s, spx_err *e)
{
    size_t nnode = 1;
    for (size_t p = 0; p < s->npar; p++) {
        if (s->naxis[p] < 1 || !s->axis[p] || spx_mul(nnode, s->naxis[p], &nnode, e) != SPX_OK)
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': parameter %zu has no nodes", s->setup, p);
        for (size_t i = 0; i < s->naxis[p]; i++)
            if (!isfinite(s->axis[p][i]) || (i && !(s->axis[p][i] > s->axis[p][i - 1])) ||
                (s->parlog[p] && !(s->axis[p][i] > 0)))
                return spx_fail(e, SPX_EINPUT,
                                "templates of setup '%.63s': nodes of %.31s are not increasing, or not positive where "
                                "the logarithm is interpolated",
                                s->setup, s->parname[p]);
    }
    for (size_t i = 0; i < nnode; i++)
        if (s->node[i] < 0 || (size_t)s->node[i] >= s->ntemp)
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': node %zu of the grid has no template", s->setup,
                            i);
    return SPX_OK;
}

static spx_status check_network(const spx_setup *s, spx_err *e)
{
    const spx_nn *nn = &s->nn;
    int bad = nn->nlayer < 1 || nn->nlayer > SPX_NN_MAX_LAYER || !nn->weight || !nn->bias || !s->pca.mean ||
              nn->size[0] != s->npar || nn->size[nn->nlayer] != s->pca.ncomp;
    for (size_t p = 0; p < s->npar && !bad; p++)
        bad = !isfinite(nn->offset[p]) || !isfinite(nn->scale[p]) || !isfinite(nn->lo[p]) ||
              !(nn->hi[p] >= nn->lo[p]) || !isfinite(nn->hi[p]);
    return bad ? spx_fail_remedy(e, SPX_EINPUT,
                                 "use another {interpolator}, or build them with {make_templates} {train_nn}",
                                 "templates of setup '%.63s' have no network", s->setup)
               : SPX_OK;
}

/* Is there what the interpolator works with? */
static spx_status check_interpolator(const spx_setup *s, spx_interpolator which, spx_err *e)
{
    if (which == SPX_INTERPOLATE_NN)
        return check_network(s, e);
    if (s->pca.of_flux)
        return spx_fail_remedy(e, SPX_EINPUT, "only {interpolator} nn can use them",
                               "templates of setup '%.63s' are components of the flux", s->setup);
    if (which == SPX_INTERPOLATE_SIMPLEX ? !s->simplex : !s->node)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s' have no %s: use another {interpolator}, or build them with "
                        "{make_templates} {interpolator} %s",
                        s->setup, which == SPX_INTERPOLATE_SIMPLEX ? "triangulation" : "regular grid",
                        which == SPX_INTERPOLATE_SIMPLEX ? "simplex" : "grid");
    return which == SPX_INTERPOLATE_SIMPLEX ? SPX_OK : check_grid(s, e);
}

spx_status spx_rv_check_setup(const spx_setup *s, spx_interpolator which, spx_err *e)
{
    const int whole = which == SPX_INTERPOLATE_GRID || s->pca.ncomp == 0; /* the templates themselves are summed */
    if ((whole && !s->lnflux) || s->npar < 1 || s->npar > SPX_MAX_PAR)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s' have no regular grid: build them with {make_templates}", s->setup);
    if (s->nwave < 8 || !isfinite(s->lnwave0) || !(s->dlnwave > 0) || !(s->dlnwave < 0.1))
        return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': wavelength grid is not usable", s->setup);
    spx_status st = check_interpolator(s, which, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < s->ntemp * s->nwave && whole; i++)
        if (!(fabsf(s->lnflux[i]) <= 80))
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': template %zu is not finite at pixel %zu",
                            s->setup, i / s->nwave, i % s->nwave);
    return SPX_OK;
}

int spx_rv_setups_alike(const spx_setup *a, const spx_setup *b)
{
    if (a->npar != b->npar)
        return 0;
    for (size_t p = 0; p < a->npar; p++) {
        if (strcmp(a->parname[p], b->parname[p]) != 0 || !a->parlog[p] != !b->parlog[p] || a->naxis[p] != b->naxis[p])
            return 0;
        for (size_t i = 0; i < a->naxis[p]; i++)
            if (a->axis[p][i] != b->axis[p][i])
                return 0;
    }
    for (size_t p = 0; p < a->npar && a->nn.nlayer > 0 && b->nn.nlayer > 0; p++)
        if (a->nn.lo[p] != b->nn.lo[p] || a->nn.hi[p] != b->nn.hi[p])
            return 0;
    if (!a->simplex != !b->simplex)
        return 0;
    return !a->simplex || (a->ntemp == b->ntemp && a->nsimplex == b->nsimplex && a->ncorner == b->ncorner &&
                           memcmp(a->params, b->params, a->ntemp * a->npar * sizeof *a->params) == 0 &&
                           memcmp(a->simplex, b->simplex, a->nsimplex * a->ncorner * sizeof *a->simplex) == 0);
}
