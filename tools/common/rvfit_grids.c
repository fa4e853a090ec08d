#include "common/rvfit_grids.h"

#include <string.h>

#include "base/mem.h"
#include "rvfit/grids.h"

static spx_status fit_one_grid(void *ctx, const spx_rvfit_input *in, const size_t *row, const spx_rvfit_options *o,
                               spx_progress *p, spx_rvfit *out, spx_err *e)
{
    spx_backend *b = ctx;
    (void)row;
    return b->rvfit(b, in, o, p, out, e);
}

/* Grids of the spectra, for the models. */
static spx_status keep_grids(const spx_spectra *s, spx_rvfit *out, spx_err *e)
{
    for (size_t a = 0; a < s->narm; a++) {
        const size_t n = s->nspec * s->arm[a].nwave;
        if (!s->arm[a].per_row || out->arm[a].model == NULL)
            continue;
        if ((out->arm[a].row_wavelength = spx_alloc(n, sizeof *out->arm[a].row_wavelength, e)) == NULL)
            return SPX_EIO;
        memcpy(out->arm[a].row_wavelength, s->arm[a].row_wavelength, n * sizeof *out->arm[a].row_wavelength);
    }
    return SPX_OK;
}

spx_status spx_rvfit_fit_part(spx_backend *b, int grids, spx_rvfit_input *in, const spx_rvfit_options *o,
                              const spx_arm *bins, spx_rvfit_plan **plan, int *planned, spx_progress *p, spx_rvfit *out,
                              spx_err *e)
{
    spx_status st;
    if (grids) {
        st = spx_rvfit_grids(in, o, fit_one_grid, b, b->library == NULL, bins, p, out, e);
        return st == SPX_OK ? keep_grids(in->spectra, out, e) : st;
    }
    st = *planned ? SPX_OK : b->rvfit_open(b, in, o, plan, e);
    *planned = st == SPX_OK;
    in->plan = *plan;
    if (st == SPX_OK)
        st = b->rvfit(b, in, o, p, out, e);
    return st == SPX_OK && bins != NULL ? spx_rvfit_templates(in, o, bins, out, e) : st;
}
