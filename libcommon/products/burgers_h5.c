/* Writes /burgers (products/burgers_h5.h). */
#include "products/burgers_h5.h"

#include "h5/attr.h"
#include "h5/write.h"

spx_status spx_burgers_write(hid_t file, const spx_burgers *b, spx_err *e)
{
    const size_t dims[2] = {b->nsnapshot, b->nx};
    spx_status st = spx_h5_write_real(file, "/burgers/x", 8, 1, &b->nx, b->x, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/burgers/time", 8, 1, &b->nsnapshot, b->time, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/burgers/snapshot", 8, 2, dims, b->snapshot, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/burgers/snapshot", 0, "/burgers/time", "time", e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/burgers/snapshot", 1, "/burgers/x", "x", e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/burgers", "viscosity", b->viscosity, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/burgers", "dt", b->dt, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/burgers", "every", (int64_t)b->every, e);
    return st == SPX_OK ? spx_h5_set_str(file, "/burgers", "boundary", b->lagged ? "lagged" : "periodic", e) : st;
}
