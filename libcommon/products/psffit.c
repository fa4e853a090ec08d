/* Provides block `psffit` (products/psffit.h). */
#include "products/psffit.h"

#include <string.h>

#include "base/mem.h"

void spx_psffit_free(spx_psffit *p)
{
    spx_free(p->fibre);
    spx_free(p->line);
    spx_free(p->bundle);
    spx_free(p->shift);
    spx_free(p->shift_error);
    spx_free(p->flux);
    spx_free(p->flux_ivar);
    spx_free(p->cov_trace);
    spx_free(p->cov_shape);
    spx_free(p->place);
    spx_free(p->x_error);
    spx_free(p->y_error);
    spx_free(p->model);
    spx_free(p->chi);
    memset(p, 0, sizeof *p);
}
