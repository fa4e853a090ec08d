/* Reads and writes datasets of a fixed type: floats of one precision, 4 (float) or 8 bytes (double). */
#ifndef SPX_TYPED_H5_H
#define SPX_TYPED_H5_H

#include <hdf5.h>

#include "app/dataset.h"
#include "h5/file.h"

/* Opens the dataset at `path`. SPX_EINPUT where it is not float (is_float) or signed integer, of so many bytes (0:
 * any): a shift that is not a whole number, or a weight of another precision, is a mistake. `what`: the type in
 * words. */
spx_status spx_typed_open(spx_input *in, const char *path, int is_float, int bytes, const char *what, spx_dataset *d,
                          spx_err *e);
/* Reads values in the given precision; dims as in spx_h5_read_f64(). */
spx_status spx_typed_read(hid_t file, const char *path, int precision, int ndim, size_t *dims, void **out, spx_err *e);
/* Writes values in the given precision; units NULL: none. */
spx_status spx_typed_write(hid_t file, const char *path, int precision, int ndim, const size_t *dims, const void *data,
                           const char *units, spx_err *e);

#endif
