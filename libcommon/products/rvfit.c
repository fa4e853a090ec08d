/* Provides block `rvfit` (products/rvfit.h). */
#include "products/rvfit.h"

#include <string.h>

#include "base/mem.h"

void spx_rvfit_free(spx_rvfit *r)
{
    if (r == NULL)
        return;
    spx_free(r->row);
    spx_free(r->first);
    spx_free(r->star);
    spx_free(r->exposure);
    for (size_t k = 0; k < r->narm; k++) {
        spx_free(r->arm[k].row_wavelength);
        spx_free(r->arm[k].model);
        spx_free(r->arm[k].star_template);
        spx_free(r->arm[k].ccf);
        spx_free(r->arm[k].residual);
    }
    memset(r, 0, sizeof *r);
}
