/* Provides access to objects of an HDF5 file: existence, shapes, names, and opening them safely.
 *
 * `loc` may be any group; paths are relative to it or absolute. Every function returns SPX_OK or fills *e (SPX_EINPUT:
 * the content is wrong; SPX_EIO: reading or writing failed); messages say file, dataset and remedy. */
#ifndef SPX_H5_OBJECT_H
#define SPX_H5_OBJECT_H

#include <hdf5.h>
#include <stddef.h>

#include "base/err.h"

enum { SPX_H5_MAXDIM = 8 };

/* 1 when every link of `path` exists and resolves to an object; 0 otherwise. Where that cannot be found out it is 0,
 * too, and the failure is pending (h5/failure.h): the program cannot end well. */
int spx_h5_exists(hid_t loc, const char *path);

/* Rank and dimensions of a dataset; SPX_EINPUT naming file and dataset when it is absent. */
spx_status spx_h5_shape(hid_t loc, const char *path, int *ndim, size_t dims[SPX_H5_MAXDIM], spx_err *e);

/* Opens a dataset for direct use; close it with H5Dclose(). Negative and SPX_EINPUT in *e when it is absent, behind an
 * external link, or has external storage: a hostile file must not make a program open others. */
hid_t spx_h5_open(hid_t loc, const char *path, spx_err *e);
/* 1 when a dataset has dimension scales whose list has the type and length that HDF5's high-level library (H5DS...)
 * takes for granted: 1.10 reads an attribute DIMENSION_LIST of any type and length into a buffer for the dataset's
 * rank. */
int spx_h5_has_scales(hid_t d);
/* 1 when `bytes` of data are far more than dataset d can hold: allocating them would exhaust memory. */
int spx_h5_overclaims(hid_t d, size_t bytes);

/* Name of the file of an object, for messages ("standard input" for a pipe); valid until the next call in this
 * thread. */
const char *spx_h5_filename(hid_t loc);

/* Names of the links of a group, in alphabetical order. Free with spx_h5_names_free(). */
spx_status spx_h5_list(hid_t loc, const char *path, size_t *n, char ***names, spx_err *e);
void spx_h5_names_free(size_t n, char **names);

#endif
