/* Provides block `psf` (products/psf.h). */
#include "products/psf.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "products/psf_grid.h"

void spx_psf_free(spx_psf *psf)
{
    if (psf == NULL)
        return;
    spx_free(psf->x.coef);
    spx_free(psf->y.coef);
    spx_free(psf->param);
    spx_free(psf->coeff);
    spx_free(psf->gh);
    spx_free(psf->gh2);
    spx_free(psf->wave_range);
    spx_free(psf->valid_range);
    spx_free(psf->status);
    spx_free(psf->bundle);
    spx_free(psf->fibre);
    spx_free(psf->order);
    spx_psf_grid_free(&psf->grid);
    spx_cards_free(&psf->header);
    memset(psf, 0, sizeof *psf);
}

const char *spx_psf_type_name(spx_psf_type type)
{
    static const char *const name[] = {"gauss-hermite", "gauss-hermite2", "spotgrid"};
    return name[type];
}

void spx_psf_set_wave_range(spx_psf *psf, double *range)
{
    double lo = HUGE_VAL, hi = -HUGE_VAL;
    for (size_t f = 0; f < psf->nspec && range != NULL; f++) {
        lo = fmin(lo, range[2 * f]);
        hi = fmax(hi, range[2 * f + 1]);
    }
    psf->wave_range = range;
    psf->x.range = psf->y.range = range;
    if (range == NULL)
        return;
    psf->wmin = psf->x.wmin = psf->y.wmin = lo;
    psf->wmax = psf->x.wmax = psf->y.wmax = hi;
}

spx_status spx_psf_require(const spx_psf *psf, unsigned can, const char *what, const char *remedy, spx_err *e)
{
    if (!spx_psf_plain_spots(psf) && (can & SPX_PSF_SPOTS) == 0)
        return spx_fail_remedy(e, SPX_EINPUT, remedy, "psf: spots of this kind (%s) are nothing that %s can take",
                               psf->type != SPX_PSF_GAUSS_HERMITE ? spx_psf_type_name(psf->type)
                               : psf->tilt >= 0                   ? "with TILT"
                                                                  : "with a tail, TAILAMP",
                               what);
    if (psf->wave_range == NULL || (can & SPX_PSF_RANGES) != 0)
        return SPX_OK;
    return spx_fail_remedy(e, SPX_EINPUT, remedy,
                           "psf: each trace has a range of wavelengths of its own (wave_range), which %s cannot take",
                           what);
}

/* Copies what single traces have. */
static spx_status copy_traces(const spx_psf *from, spx_psf *to, spx_err *e)
{
    const size_t n = from->nspec;
    spx_status st = SPX_OK;
    if (from->wave_range != NULL)
        st = spx_psf_copy_array(from->wave_range, 2 * n, sizeof *from->wave_range, &to->wave_range, e);
    to->x.range = to->y.range = to->wave_range;
    if (st == SPX_OK && from->valid_range != NULL)
        st = spx_psf_copy_array(from->valid_range, 2 * n, sizeof *from->valid_range, &to->valid_range, e);
    if (st == SPX_OK && from->status != NULL)
        st = spx_psf_copy_array(from->status, n, sizeof *from->status, &to->status, e);
    if (st == SPX_OK && from->bundle != NULL)
        st = spx_psf_copy_array(from->bundle, n, sizeof *from->bundle, &to->bundle, e);
    if (st == SPX_OK && from->fibre != NULL)
        st = spx_psf_copy_array(from->fibre, n, sizeof *from->fibre, &to->fibre, e);
    if (st == SPX_OK && from->order != NULL)
        st = spx_psf_copy_array(from->order, n, sizeof *from->order, &to->order, e);
    return st;
}

spx_status spx_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e)
{
    *to = *from;
    to->x.coef = to->y.coef = to->coeff = NULL;
    to->param = NULL;
    to->gh = to->gh2 = NULL;
    to->header = (spx_cards){0};
    to->x.range = to->y.range = to->wave_range = to->valid_range = NULL;
    to->status = NULL;
    to->bundle = to->order = NULL;
    to->fibre = NULL;
    to->grid = (spx_psf_grid){0};
    spx_status st = spx_cards_copy(&to->header, &from->header, e);
    if (st == SPX_OK)
        st = copy_traces(from, to, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->x.coef, from->nspec * from->x.ncoef, sizeof *from->x.coef, &to->x.coef, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->y.coef, from->nspec * from->y.ncoef, sizeof *from->y.coef, &to->y.coef, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->coeff, from->npar * from->nspec * from->ndeg, sizeof *from->coeff, &to->coeff, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->param, from->npar, sizeof *from->param, &to->param, e);
    if (st == SPX_OK && from->gh != NULL)
        st = spx_psf_copy_array(from->gh, (size_t)(from->ghdegx + 1) * (size_t)(from->ghdegy + 1), sizeof *from->gh,
                                &to->gh, e);
    if (st == SPX_OK && from->gh2 != NULL)
        st = spx_psf_copy_array(from->gh2, (size_t)(from->ghdegx2 + 1) * (size_t)(from->ghdegy2 + 1), sizeof *from->gh2,
                                &to->gh2, e);
    if (st == SPX_OK && from->type == SPX_PSF_SPOTGRID)
        st = spx_psf_grid_copy(&from->grid, from->nspec, &to->grid, e);
    if (st != SPX_OK)
        spx_psf_free(to);
    return st;
}

static int same_array(const void *a, const void *b, size_t n, size_t size)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, n * size) == 0);
}

static int same_series(const spx_psf_series *a, const spx_psf_series *b, size_t nspec)
{
    return a->ncoef == b->ncoef && a->wmin == b->wmin && a->wmax == b->wmax &&
           same_array(a->coef, b->coef, nspec * a->ncoef, sizeof *a->coef);
}

int spx_psf_same_light(const spx_psf *a, const spx_psf *b)
{
    const size_t n = a->nspec;
    const int numbers = n == b->nspec && a->type == b->type && a->type != SPX_PSF_SPOTGRID && a->npar == b->npar &&
                        a->ndeg == b->ndeg && a->wmin == b->wmin && a->wmax == b->wmax && a->ghdegx == b->ghdegx &&
                        a->ghdegy == b->ghdegy && a->ghdegx2 == b->ghdegx2 && a->ghdegy2 == b->ghdegy2 &&
                        a->hsizex == b->hsizex && a->hsizey == b->hsizey && a->sigx == b->sigx && a->sigy == b->sigy &&
                        a->sigx2 == b->sigx2 && a->sigy2 == b->sigy2 && a->nsig == b->nsig && a->tilt == b->tilt &&
                        memcmp(a->tail, b->tail, sizeof a->tail) == 0;
    return numbers && same_series(&a->x, &b->x, n) && same_series(&a->y, &b->y, n) &&
           same_array(a->coeff, b->coeff, a->npar * n * a->ndeg, sizeof *a->coeff) &&
           same_array(a->gh, b->gh, (size_t)(a->ghdegx + 1) * (size_t)(a->ghdegy + 1), sizeof *a->gh) &&
           same_array(a->gh2, b->gh2, (size_t)(a->ghdegx2 + 1) * (size_t)(a->ghdegy2 + 1), sizeof *a->gh2) &&
           same_array(a->wave_range, b->wave_range, 2 * n, sizeof *a->wave_range) &&
           same_array(a->valid_range, b->valid_range, 2 * n, sizeof *a->valid_range) &&
           same_array(a->status, b->status, n, sizeof *a->status) &&
           same_array(a->bundle, b->bundle, n, sizeof *a->bundle) &&
           same_array(a->order, b->order, n, sizeof *a->order);
}
