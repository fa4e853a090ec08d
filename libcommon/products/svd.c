/* Provides the singular value decomposition of a matrix (products/svd.h). */
#include "products/svd.h"

#include <string.h>

#include "base/mem.h"

void spx_svd_free(spx_svd *d)
{
    spx_free(d->u);
    spx_free(d->s);
    spx_free(d->v);
    spx_free(d->energy);
    spx_free(d->mean);
    spx_free(d->row_weight);
    spx_free(d->column_weight);
    memset(d, 0, sizeof *d);
}
