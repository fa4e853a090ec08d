/* Provides rows of large datasets, such as the spectra of some stars, read by threads: with pread(), beside HDF5, which
 * is not thread-safe and takes as long for each run of rows as for many. */
#ifndef SPX_GATHER_H
#define SPX_GATHER_H

#include <hdf5.h>
#include <stddef.h>

#include "base/err.h"

/* Row `from` of the dataset becomes row `to` in memory. */
typedef struct {
    size_t from, to;
} spx_h5_move;

/* A row is `lines` lines of `whole` values in the file, of which `count` from `skip` on are wanted. */
typedef struct {
    size_t lines, whole, skip, count;
} spx_h5_row;

/* Reads n rows, m[] in the order of `from`, into out[row][lines][count] of type `mem`, and compares the pieces of the
 * file that they lie in with its inventory. *done: 0, the rows have to be read by HDF5, one after another: they are
 * few, or the dataset is packed, in chunks, of another type, or not in a file that is open for reading. The types are
 * those of `mem`, and for H5T_NATIVE_DOUBLE also float32. *finite, unless NULL: 1, all of float32 have been seen to be
 * finite; 0, not known. SPX_EINPUT: the file differs from its inventory; SPX_EIO: it
 * cannot be read. */
spx_status spx_h5_gather(hid_t loc, const char *path, hid_t mem, const spx_h5_row *s, size_t n, const spx_h5_move *m,
                         void *out, int *done, int *finite, spx_err *e);

#endif
