/* What a hook sees of a batch of fits. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "rvfit/rvfit.h"

enum { STAR_ARRAYS = 10, MOST_ARRAYS = STAR_ARRAYS + 2 * SPX_MAX_ARM };

/* (data - model) / error of the spectra that were fitted, float32 [nrow, nwave]. */
static void residuals(const spx_arm *data, const spx_rvfit *out, const float *model, float *to)
{
    for (size_t k = 0; k < out->nstar; k++) {
        const int bad = (out->star[k].warn & SPX_RVS_BAD) != 0;
        for (size_t r = out->first[k]; r < out->first[k + 1]; r++) {
            const size_t from = out->row[r] * data->nwave;
            for (size_t i = 0; i < data->nwave; i++) {
                const double ivar = data->ivar[from + i], flux = data->flux[from + i];
                const int use = !bad && ivar > 0 && isfinite(ivar) && isfinite(flux) &&
                                (data->mask == NULL || data->mask[from + i] == 0);
                to[r * data->nwave + i] =
                    use ? (float)((flux - (double)model[r * data->nwave + i]) * sqrt(ivar)) : 0.0F;
            }
        }
    }
}

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

spx_status spx_rvfit_hook(spx_hook *hook, const spx_rvfit_input *in, const spx_rvfit *out, spx_hook_lend *lend,
                          void *ctx, spx_err *e)
{
    spx_hook_array array[MOST_ARRAYS];
    char name[2 * SPX_MAX_ARM][32];
    float *residual[SPX_MAX_ARM] = {NULL};
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
    spx_status st = SPX_OK;
    for (size_t a = 0; a < out->narm && st == SPX_OK; a++) {
        const spx_arm *data = &in->spectra->arm[a];
        if (in->setup[a] == NULL || out->arm[a].model == NULL)
            continue;
        if ((residual[a] = spx_alloc2(out->nrow, data->nwave, sizeof *residual[a], e)) == NULL) {
            st = SPX_EIO;
            break;
        }
        residuals(data, out, out->arm[a].model, residual[a]);
        (void)snprintf(name[nname], sizeof name[nname], "residual_%s", data->name);
        array[n++] =
            (spx_hook_array){.name = name[nname++], residual[a], SPX_HOOK_FLOAT32, 2, 0, {out->nrow, data->nwave}, {0}};
        (void)snprintf(name[nname], sizeof name[nname], "wavelength_%s", data->name);
        array[n++] =
            (spx_hook_array){.name = name[nname++], data->wavelength, SPX_HOOK_FLOAT64, 1, 0, {data->nwave}, {0}};
    }
    if (st == SPX_OK)
        st = lend(ctx, hook, "rvfit", n, array, e);
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        spx_free(residual[a]);
    return st;
}
