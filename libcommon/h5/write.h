/* Writes groups and datasets; units, names and flag meanings come from the schema.
 *
 * `loc` may be any group; paths are relative to it or absolute. Every function returns SPX_OK or fills *e (SPX_EINPUT:
 * the content is wrong; SPX_EIO: reading or writing failed); messages say file, dataset and remedy. */
#ifndef SPX_H5_WRITE_H
#define SPX_H5_WRITE_H

#include <hdf5.h>
#include <stddef.h>

#include "base/err.h"
#include "h5/deferred.h"

/* Makes a group and the groups above it, with the block's `type` and `version` attributes where the schema names it. */
spx_status spx_h5_group(hid_t loc, const char *path, spx_err *e);

/* Writes a dataset (groups above it are made). Attributes units, long_name, flag_masks, flag_meanings come from the
 * schema of its absolute path. `memtype` is a native type; the file gets the same type. */
spx_status spx_h5_write(hid_t loc, const char *path, hid_t memtype, int ndim, const size_t *dims, const void *data,
                        spx_err *e);
/* As spx_h5_write() for doubles that are stored as float32 (precision 4) or float64 (8). A value beyond float32's
 * range is stored as its largest; a NaN or Inf is SPX_EBUG: products never hold one. */
spx_status spx_h5_write_real(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                             const double *data, spx_err *e);
/* The same two for arrays that stay as they are until the output is finished: large ones only get their place in the
 * file and are put on the list `writes` (NULL: none). */
spx_status spx_h5_defer_write(spx_h5_writes *writes, hid_t loc, const char *path, hid_t memtype, int ndim,
                              const size_t *dims, const void *data, spx_err *e);
spx_status spx_h5_defer_write_real(spx_h5_writes *writes, hid_t loc, const char *path, int precision, int ndim,
                                   const size_t *dims, const double *data, spx_err *e);

/* Writes n fixed strings of `size` characters (space padded in memory and file), 1-D. */
spx_status spx_h5_write_strings(hid_t loc, const char *path, size_t size, size_t n, const char *data, spx_err *e);

/* n doubles as float32 in `to` unless that is NULL, by several threads; SPX_EBUG: one is not finite, which the dataset
 * must not hold. */
spx_status spx_h5_narrow(hid_t loc, const char *path, const double *data, size_t n, float *to, spx_err *e);

/* Creates a dataset without values, for spx_h5_write_rows(). */
spx_status spx_h5_create(hid_t loc, const char *path, hid_t filetype, int ndim, const size_t *dims, spx_err *e);
spx_status spx_h5_write_rows(hid_t loc, const char *path, hid_t memtype, size_t first, size_t n, const void *data,
                             spx_err *e);

/* Makes `scale` (1-D) an HDF5 dimension scale called `dimname` and attaches it to dimension `dim` of `data`. */
spx_status spx_h5_attach_scale(hid_t loc, const char *data, unsigned dim, const char *scale, const char *dimname,
                               spx_err *e);

/* Makes a hard link: a second name for an object of the same file. */
spx_status spx_h5_link(hid_t loc, const char *target, const char *name, spx_err *e);

#endif
