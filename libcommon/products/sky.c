/* Frees a sky (products/sky.h). */
#include "products/sky.h"

#include <string.h>

#include "base/mem.h"

void spx_sky_free(spx_sky *sky)
{
    spx_free(sky->wavelength);
    spx_free(sky->s);
    spx_free(sky->covariance);
    spx_free(sky->mode);
    spx_free(sky->coordinate);
    spx_free(sky->model);
    spx_free(sky->variance);
    spx_free(sky->p);
    spx_free(sky->cov);
    spx_free(sky->chi2);
    spx_free(sky->chi2_loo);
    spx_free(sky->role);
    spx_free(sky->nrejected);
    spx_free(sky->line_class);
    spx_free(sky->bad);
    memset(sky, 0, sizeof *sky);
}
