/* Frees the block `flux` (products/flux.h). */
#include "products/flux.h"

#include "base/mem.h"

void spx_flux_free(spx_flux *f)
{
    spx_free(f->wavelength);
    spx_free(f->response);
    spx_free(f->covariance);
    spx_free(f->model_error);
    spx_free(f->stars);
    spx_free(f->star);
    *f = (spx_flux){0};
}
