/* Finds the parameters of a PSF by name, and refuses a PSF that no kernel can use (products/psf_index.h). */
#include "products/psf_index.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "products/psf_grid.h"

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

static int degrees_usable(int degx, int degy)
{
    return degx >= 0 && degx <= MAX_GHDEG && degy >= 0 && degy <= MAX_GHDEG;
}

/* Rows of the coefficients of a core, PREFIX-i-j. */
static spx_status find_coefficients(const spx_psf *psf, const char *prefix, int degx, int degy, int **gh, spx_err *e)
{
    spx_free(*gh);
    *gh = spx_alloc2((size_t)degx + 1, (size_t)degy + 1, sizeof **gh, e);
    if (*gh == NULL)
        return SPX_EIO;
    for (int j = 0; j <= degy; j++)
        for (int i = 0; i <= degx; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s-%d-%d", prefix, i, j);
            (*gh)[i + (degx + 1) * j] = row_of(psf, name);
        }
    return SPX_OK;
}

int spx_psf_has_tail(const spx_psf *psf)
{
    const int row = psf->tail[SPX_TAIL_AMP];
    const size_t n = psf->nspec * psf->ndeg;
    for (size_t k = 0; row >= 0 && k < n; k++)
        if (psf->coeff[(size_t)row * n + k] != 0.0)
            return 1;
    return 0;
}

void spx_psf_drop_tail(spx_psf *psf)
{
    for (int k = 0; k < SPX_PSF_NTAIL; k++)
        psf->tail[k] = -1;
}

/* Rows of what only some kinds of spot have. */
static spx_status find_more(spx_psf *psf, spx_err *e)
{
    static const char *const tail[SPX_PSF_NTAIL] = {"TAILAMP", "TAILCORE", "TAILXSCA", "TAILYSCA", "TAILINDE"};
    const int two = psf->type == SPX_PSF_GAUSS_HERMITE2;
    psf->tilt = row_of(psf, "TILT");
    psf->sigx2 = two ? row_of(psf, "GHSIGX2") : -1;
    psf->sigy2 = two ? row_of(psf, "GHSIGY2") : -1;
    psf->nsig = two ? row_of(psf, "GHNSIG") : -1;
    for (int k = 0; k < SPX_PSF_NTAIL; k++)
        psf->tail[k] = row_of(psf, tail[k]);
    if (!two && !spx_psf_has_tail(psf))
        spx_psf_drop_tail(psf);
    for (int k = 1; k < SPX_PSF_NTAIL && psf->tail[SPX_TAIL_AMP] >= 0; k++)
        if (psf->tail[k] < 0)
            return spx_fail(e, SPX_EINPUT, "psf: a parameter TAILAMP, but no %s", tail[k]);
    if (psf->type == SPX_PSF_SPOTGRID && psf->tail[SPX_TAIL_AMP] >= 0)
        return spx_fail(e, SPX_EINPUT, "psf: a grid of spots with a tail (TAILAMP): put the tail into the spots");
    if (!two)
        return SPX_OK;
    if (!degrees_usable(psf->ghdegx2, psf->ghdegy2))
        return spx_fail(e, SPX_EINPUT, "psf: Gauss-Hermite degree %d x %d of the second core: must be 0 to %d",
                        psf->ghdegx2, psf->ghdegy2, MAX_GHDEG);
    if (psf->sigx2 < 0 || psf->sigy2 < 0 || psf->nsig < 0)
        return spx_fail(e, SPX_EINPUT, "psf: no parameter GHSIGX2, GHSIGY2 or GHNSIG: not a GAUSS-HERMITE2 PSF");
    return find_coefficients(psf, "GH2", psf->ghdegx2, psf->ghdegy2, &psf->gh2, e);
}

spx_status spx_psf_index(spx_psf *psf, spx_err *e)
{
    if (psf->hsizex < 0 || psf->hsizex > MAX_HSIZE || psf->hsizey < 0 || psf->hsizey > MAX_HSIZE)
        return spx_fail(e, SPX_EINPUT, "psf: spot half size %d x %d pixels: must be 0 to %d", psf->hsizex, psf->hsizey,
                        MAX_HSIZE);
    if (!degrees_usable(psf->ghdegx, psf->ghdegy))
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
    spx_status st = find_more(psf, e);
    if (st == SPX_OK && psf->type == SPX_PSF_SPOTGRID)
        st = spx_psf_grid_index(psf, e);
    return st == SPX_OK ? find_coefficients(psf, "GH", psf->ghdegx, psf->ghdegy, &psf->gh, e) : st;
}

/* Value of a parameter of a fibre in the middle of its series. */
static double in_the_middle(const spx_psf *psf, int row, size_t f)
{
    const double *c = psf->coeff + ((size_t)row * psf->nspec + f) * psf->ndeg;
    double v = 0, p = 1; /* P_k(0): 1, 0, -1/2, 0, 3/8, ... */
    for (size_t k = 0; k < psf->ndeg; k += 2) {
        v += c[k] * p;
        p *= -(double)(k + 1) / (double)(k + 2);
    }
    return v;
}

static int is_lost(const spx_psf *psf, size_t f)
{
    const int grid = psf->type == SPX_PSF_SPOTGRID, amplitude = !grid && psf->gh != NULL ? psf->gh[0] : -1;
    return !(in_the_middle(psf, psf->sigx, f) > 0 && in_the_middle(psf, psf->sigy, f) > 0) ||
           (amplitude >= 0 && in_the_middle(psf, amplitude, f) == 0);
}

spx_status spx_psf_mark_lost(spx_psf *psf, spx_err *e)
{
    const double lo = fmax(psf->wmin, fmax(psf->x.wmin, psf->y.wmin)),
                 hi = fmin(psf->wmax, fmin(psf->x.wmax, psf->y.wmax));
    size_t n = 0;
    for (size_t f = 0; f < psf->nspec; f++)
        n += (size_t)is_lost(psf, f);
    if (n == psf->nspec)
        return spx_fail(e, SPX_EINPUT, "psf: no fibre has spots: GHSIGX, GHSIGY or GH-0-0 are 0");
    if (n == 0)
        return SPX_OK;
    if (psf->valid_range == NULL) {
        if ((psf->valid_range = spx_alloc2(psf->nspec, 2, sizeof *psf->valid_range, e)) == NULL)
            return SPX_EIO;
        for (size_t f = 0; f < psf->nspec; f++) {
            psf->valid_range[2 * f] = psf->wave_range != NULL ? psf->wave_range[2 * f] : lo;
            psf->valid_range[2 * f + 1] = psf->wave_range != NULL ? psf->wave_range[2 * f + 1] : hi;
        }
    }
    if (psf->status == NULL && (psf->status = spx_alloc(psf->nspec, sizeof *psf->status, e)) == NULL)
        return SPX_EIO;
    for (size_t f = 0; f < psf->nspec; f++)
        if (is_lost(psf, f)) {
            psf->status[f] |= SPX_PSF_BUNDLE;
            psf->valid_range[2 * f] = hi;
            psf->valid_range[2 * f + 1] = lo;
        }
    return SPX_OK;
}
