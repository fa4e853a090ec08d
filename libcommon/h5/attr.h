/* Reads and writes scalar attributes.
 *
 * `loc` may be any group; paths are relative to it or absolute. Every function returns SPX_OK or fills *e (SPX_EINPUT:
 * the content is wrong; SPX_EIO: reading or writing failed); messages say file, dataset and remedy. */
#ifndef SPX_H5_ATTR_H
#define SPX_H5_ATTR_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Scalar attributes of the object at `path` ("." for loc itself). An absent attribute: SPX_EINPUT. */
spx_status spx_h5_attr_f64(hid_t loc, const char *path, const char *name, double *out, spx_err *e);
spx_status spx_h5_attr_i64(hid_t loc, const char *path, const char *name, int64_t *out, spx_err *e);
spx_status spx_h5_attr_str(hid_t loc, const char *path, const char *name, char *out, size_t size, spx_err *e);
/* 1: it is there; where that cannot be found out it is 0, and the failure is pending (h5/failure.h). */
int spx_h5_has_attr(hid_t loc, const char *path, const char *name);

spx_status spx_h5_set_f64(hid_t loc, const char *path, const char *name, double v, spx_err *e);
spx_status spx_h5_set_i64(hid_t loc, const char *path, const char *name, int64_t v, spx_err *e);
spx_status spx_h5_set_str(hid_t loc, const char *path, const char *name, const char *v, spx_err *e);

/* How many bits attribute flag_masks of a mask has, and how many names flag_meanings (CF conventions); -1: there is
 * none that can be read. */
void spx_h5_count_flags(hid_t loc, const char *path, long *bits, long *names);

/* Copies the attributes of an object to another one that is there, in place of those of the same name: numbers as they
 * are, texts with the type that all texts of the file have. What ties scales to datasets is
 * left out, and so are the names of `except`, which ends in NULL (NULL: none). */
spx_status spx_h5_copy_attrs(hid_t from, const char *frompath, hid_t to, const char *topath, const char *const *except,
                             spx_err *e);

#endif
