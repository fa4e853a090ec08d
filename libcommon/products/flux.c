/* Frees the block `flux` (products/flux.h). */
#include "products/flux.h"

#include "base/mem.h"
#include "h5/table.h"

void spx_flux_free(spx_flux *f)
{
    spx_free(f->wavelength);
    spx_free(f->response);
    spx_free(f->covariance);
    spx_free(f->model_error);
    spx_free(f->stars);
    spx_free(f->star);
    spx_free(f->band);
    spx_table_free(f->table);
    *f = (spx_flux){0};
}
