/* Writes /svd (products/svd_h5.h). */
#include "products/svd_h5.h"

#include "h5/attr.h"
#include "h5/write.h"

spx_status spx_svd_write(hid_t file, const spx_svd *d, const char *units, spx_err *e)
{
    const size_t u[2] = {d->nrow, d->nmode}, v[2] = {d->nmode, d->ncol};
    spx_status st = spx_h5_write_real(file, "/svd/u", 8, 2, u, d->u, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/s", 8, 1, &d->nmode, d->s, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd/s", "units", units, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/v", 8, 2, v, d->v, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/energy", 8, 1, &d->nmode, d->energy, e);
    if (st == SPX_OK && d->mean != NULL &&
        (st = spx_h5_write_real(file, "/svd/mean", 8, 1, &d->ncol, d->mean, e)) == SPX_OK)
        st = spx_h5_set_str(file, "/svd/mean", "units", units, e);
    if (st == SPX_OK && d->row_weight != NULL)
        st = spx_h5_write_real(file, "/svd/row_weight", 8, 1, &d->nrow, d->row_weight, e);
    if (st == SPX_OK && d->column_weight != NULL)
        st = spx_h5_write_real(file, "/svd/column_weight", 8, 1, &d->ncol, d->column_weight, e);
    return st;
}
