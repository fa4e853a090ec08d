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
