/* Calls the hook with views of the result of a fit. */
#include <stdio.h>

#include "rvfit/rvfit.h"

enum { STAR_ARRAYS = 10, ARM_ARRAYS = 3, MOST_ARRAYS = STAR_ARRAYS + ARM_ARRAYS * SPX_MAX_ARM };

/* A column of the stars, where it is. */
static spx_hook_array column(const char *name, void *first, spx_hook_type type, size_t nstar)
{
    return (spx_hook_array){.name = name,
                            .data = first,
                            .type = type,
                            .ndim = 1,
                            .shape = {nstar},
                            .stride = {(ptrdiff_t)sizeof(spx_rvfit_star)}};
}

spx_status spx_rvfit_hook(spx_hook *hook, const spx_rvfit *out, double *const *wavelength, spx_hook_space at,
                          spx_err *e)
{
    spx_hook_array array[MOST_ARRAYS];
    char name[ARM_ARRAYS * SPX_MAX_ARM][32];
    size_t n = 0, nname = 0;
    if (hook == NULL || out->nstar == 0)
        return SPX_OK;
    spx_rvfit_star *s = out->star;
    array[n++] = column("vrad", &s->vrad, SPX_HOOK_FLOAT64, out->nstar);
    array[n++] = column("vrad_err", &s->vrad_err, SPX_HOOK_FLOAT64, out->nstar);
    array[n++] = column("vsini", &s->vsini, SPX_HOOK_FLOAT64, out->nstar);
    array[n++] = column("chisq", &s->chisq, SPX_HOOK_FLOAT64, out->nstar);
    array[n++] = column("neg2logl", &s->neg2logl, SPX_HOOK_FLOAT64, out->nstar);
    array[n++] = column("npix", &s->npix, SPX_HOOK_INT64, out->nstar);
    array[n++] = column("warn", &s->warn, SPX_HOOK_INT64, out->nstar);
    array[n] = column("par", s->par, SPX_HOOK_FLOAT64, out->nstar);
    array[n].ndim = 2;
    array[n].shape[1] = out->npar;
    array[n++].stride[1] = (ptrdiff_t)sizeof(double);
    array[n++] = (spx_hook_array){.name = "first", out->first, SPX_HOOK_UINT64, 1, 0, {out->nstar}, {0}};
    array[n++] = (spx_hook_array){.name = "row", out->row, SPX_HOOK_UINT64, 1, 0, {out->nrow}, {0}};
    for (size_t a = 0; a < out->narm; a++) {
        const size_t nwave = out->arm[a].nwave;
        const struct {
            const char *what;
            void *data;
            spx_hook_type type;
            int ndim;
            size_t shape[2];
        } view[ARM_ARRAYS] = {
            {"residual", out->arm[a].residual, SPX_HOOK_FLOAT32, 2, {out->nrow, nwave}},
            {"model", out->arm[a].model, SPX_HOOK_FLOAT32, 2, {out->nrow, nwave}},
            {"wavelength", wavelength[a], SPX_HOOK_FLOAT64, 1, {nwave}},
        };
        for (size_t i = 0; i < ARM_ARRAYS && out->arm[a].residual != NULL; i++) {
            if (view[i].data == NULL)
                continue;
            (void)snprintf(name[nname], sizeof name[nname], "%s_%s", view[i].what, out->arm[a].name);
            array[n++] = (spx_hook_array){.name = name[nname++],
                                          .data = view[i].data,
                                          .type = view[i].type,
                                          .ndim = view[i].ndim,
                                          .shape = {view[i].shape[0], view[i].shape[1]}};
        }
    }
    const spx_hook_step_info step = {.stage = "rvfit", .at = at, .narray = n, .array = array};
    return spx_hook_step(hook, &step, e);
}
