/* Copies objects from one HDF5 file to another. */
#ifndef SPX_H5_COPY_H
#define SPX_H5_COPY_H

#include <hdf5.h>

#include "base/err.h"

/* Copies the group or dataset `path` and what is below it, to the same path, without attributes; references become
 * empty. Of storage as it was: chunks, filters. A dataset with several names is copied for each of them. SPX_EINPUT: it
 * cannot be read, a path has more than 511 bytes, or a group below it several names; SPX_EIO: it cannot be written. */
spx_status spx_h5_copy(hid_t from, hid_t to, const char *path, spx_err *e) SPX_NODISCARD;

#endif
