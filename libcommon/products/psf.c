/* Provides block `psf` (products/psf.h). */
#include "products/psf.h"

#include <string.h>

#include "base/mem.h"

void spx_psf_free(spx_psf *psf)
{
    if (psf == NULL)
        return;
    spx_free(psf->x.coef);
    spx_free(psf->y.coef);
    spx_free(psf->param);
    spx_free(psf->coeff);
    spx_free(psf->gh);
    spx_cards_free(&psf->header);
    memset(psf, 0, sizeof *psf);
}

/* Copy of n values, NULL and SPX_EIO without memory. */
static spx_status copy(const void *from, size_t n, size_t size, void *to, spx_err *e)
{
    void *more = spx_alloc(n, size, e);
    memcpy(to, &more, sizeof more);
    if (more == NULL)
        return SPX_EIO;
    memcpy(more, from, n * size);
    return SPX_OK;
}

spx_status spx_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e)
{
    *to = *from;
    to->x.coef = to->y.coef = to->coeff = NULL;
    to->param = NULL;
    to->gh = NULL;
    to->header = (spx_cards){0};
    spx_status st = spx_cards_copy(&to->header, &from->header, e);
    if (st == SPX_OK)
        st = copy(from->x.coef, from->nspec * from->x.ncoef, sizeof *from->x.coef, &to->x.coef, e);
    if (st == SPX_OK)
        st = copy(from->y.coef, from->nspec * from->y.ncoef, sizeof *from->y.coef, &to->y.coef, e);
    if (st == SPX_OK)
        st = copy(from->coeff, from->npar * from->nspec * from->ndeg, sizeof *from->coeff, &to->coeff, e);
    if (st == SPX_OK)
        st = copy(from->param, from->npar, sizeof *from->param, &to->param, e);
    if (st == SPX_OK && from->gh != NULL)
        st = copy(from->gh, (size_t)(from->ghdegx + 1) * (size_t)(from->ghdegy + 1), sizeof *from->gh, &to->gh, e);
    if (st != SPX_OK)
        spx_psf_free(to);
    return st;
}
