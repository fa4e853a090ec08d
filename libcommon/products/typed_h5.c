/* Reads and writes datasets of a fixed type (products/typed_h5.h). */
#include "products/typed_h5.h"

#include "h5/attr.h"
#include "h5/file.h"
#include "h5/read.h"
#include "h5/write.h"

spx_status spx_typed_open(spx_input *in, const char *path, int is_float, int bytes, const char *what, spx_dataset *d,
                          spx_err *e)
{
    spx_status st = spx_dataset_open(in, path, d, e);
    if (st == SPX_OK && (d->is_float != is_float || !d->is_signed || (bytes != 0 && d->bytes != bytes)))
        st = spx_fail_at(e, SPX_EINPUT, d->in->name, d->path, NULL, "is %s%d, should be %s",
                         d->is_float    ? "float"
                         : d->is_signed ? "int"
                                        : "uint",
                         8 * d->bytes, what);
    return st;
}

spx_status spx_typed_read(hid_t file, const char *path, int precision, int ndim, size_t *dims, void **out, spx_err *e)
{
    spx_status st;
    if (precision == 4) {
        float *f = NULL;
        st = spx_h5_read_f32(file, path, ndim, dims, &f, e);
        *out = f;
    } else {
        double *f = NULL;
        st = spx_h5_read_f64(file, path, ndim, dims, &f, e);
        *out = f;
    }
    return st;
}

spx_status spx_typed_write(hid_t file, const char *path, int precision, int ndim, const size_t *dims, const void *data,
                           const char *units, spx_err *e)
{
    spx_status st =
        spx_h5_write(file, path, precision == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, ndim, dims, data, e);
    return st == SPX_OK && units != NULL ? spx_h5_set_str(file, path, "units", units, e) : st;
}
