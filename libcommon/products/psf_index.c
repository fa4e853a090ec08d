/* Finds the parameters of a PSF by name, and refuses a PSF that no kernel can use (products/psf_index.h). */
#include "products/psf_index.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Limits of spot size and order: a file beyond them is taken for broken. */
enum { MAX_HSIZE = 1000, MAX_GHDEG = 99 };

static int row_of(const spx_psf *psf, const char *name)
{
    for (size_t k = 0; k < psf->npar; k++)
        if (!strncmp(psf->param[k], name, sizeof psf->param[k]))
            return (int)k;
    return -1;
}

static int range_usable(double wmin, double wmax)
{
    return wmax > wmin && isfinite(wmax - wmin);
}

spx_status spx_psf_index(spx_psf *psf, spx_err *e)
{
    if (psf->hsizex < 0 || psf->hsizex > MAX_HSIZE || psf->hsizey < 0 || psf->hsizey > MAX_HSIZE)
        return spx_fail(e, SPX_EINPUT, "psf: spot half size %d x %d pixels: must be 0 to %d", psf->hsizex, psf->hsizey,
                        MAX_HSIZE);
    if (psf->ghdegx < 0 || psf->ghdegx > MAX_GHDEG || psf->ghdegy < 0 || psf->ghdegy > MAX_GHDEG)
        return spx_fail(e, SPX_EINPUT, "psf: Gauss-Hermite degree %d x %d: must be 0 to %d", psf->ghdegx, psf->ghdegy,
                        MAX_GHDEG);
    if (!psf->nspec || !psf->ndeg || !psf->x.ncoef || !psf->y.ncoef)
        return spx_fail(e, SPX_EINPUT, "psf: no spectra or no coefficients");
    if (!range_usable(psf->wmin, psf->wmax) || !range_usable(psf->x.wmin, psf->x.wmax) ||
        !range_usable(psf->y.wmin, psf->y.wmax))
        return spx_fail(e, SPX_EINPUT, "psf: empty wavelength range: WAVEMAX must be above WAVEMIN, and both finite");
    psf->sigx = row_of(psf, "GHSIGX");
    psf->sigy = row_of(psf, "GHSIGY");
    if (psf->sigx < 0 || psf->sigy < 0)
        return spx_fail(e, SPX_EINPUT, "psf: no parameter GHSIGX or GHSIGY: not a Gauss-Hermite PSF");
    spx_free(psf->gh);
    psf->gh = spx_alloc2((size_t)psf->ghdegx + 1, (size_t)psf->ghdegy + 1, sizeof *psf->gh, e);
    if (psf->gh == NULL)
        return SPX_EIO;
    for (int j = 0; j <= psf->ghdegy; j++)
        for (int i = 0; i <= psf->ghdegx; i++) {
            char name[32];
            snprintf(name, sizeof name, "GH-%d-%d", i, j);
            psf->gh[i + (psf->ghdegx + 1) * j] = row_of(psf, name);
        }
    return SPX_OK;
}
