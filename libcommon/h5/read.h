/* Reads datasets into typed memory; class, rank and shape are checked before memory is allocated.
 *
 * `loc` may be any group; paths are relative to it or absolute. Every function returns SPX_OK or fills *e (SPX_EINPUT:
 * the content is wrong; SPX_EIO: reading or writing failed); messages say file, dataset and remedy. */
#ifndef SPX_H5_READ_H
#define SPX_H5_READ_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "h5/deferred.h"

/* Reads a whole dataset of `ndim` dimensions into new memory (spx_free). dims[i] is the length wanted, or 0 for any and
 * then gets the length found. Any integer or float type in the file is converted; a value that does not fit (an integer
 * dataset of the other sign, a string) is refused by class. */
spx_status spx_h5_read_f64(hid_t loc, const char *path, int ndim, size_t *dims, double **out, spx_err *e);
/* *finite: 1, all have been seen to be finite while they were read; 0, not known. */
spx_status spx_h5_read_checked(hid_t loc, const char *path, int ndim, size_t *dims, double **out, int *finite,
                               spx_err *e);
spx_status spx_h5_read_f32(hid_t loc, const char *path, int ndim, size_t *dims, float **out, spx_err *e);
spx_status spx_h5_read_i32(hid_t loc, const char *path, int ndim, size_t *dims, int32_t **out, spx_err *e);
spx_status spx_h5_read_u32(hid_t loc, const char *path, int ndim, size_t *dims, uint32_t **out, spx_err *e);
spx_status spx_h5_read_u8(hid_t loc, const char *path, int ndim, size_t *dims, uint8_t **out, spx_err *e);
/* The same, but large arrays are put on the list `reads` (NULL: none) and have their values once that is flushed. */
spx_status spx_h5_defer_f32(spx_h5_reads *reads, hid_t loc, const char *path, int ndim, size_t *dims, float **out,
                            spx_err *e);
/* Reads a mask, as the functions above do, of pixels whose weights are there, or are on the list before it: those whose
 * word is not 0 lose their weight, and the mask takes no memory. *done: 0, it does not lie in the file as it is wanted.
 */
spx_status spx_h5_defer_mask(spx_h5_reads *reads, hid_t loc, const char *path, int ndim, size_t *dims, float *weight,
                             int *done, spx_err *e);
/* Compares the shape of a dataset with dims[], of which those that are 0 are set: before anything is read. */
spx_status spx_h5_check_shape(hid_t loc, const char *path, int ndim, size_t *dims, spx_err *e);
/* The same for rows [first, first+n) along the first dimension, into `out` which the caller owns. */
spx_status spx_h5_read_rows(hid_t loc, const char *path, hid_t memtype, size_t first, size_t n, void *out, spx_err *e);
/* H5Dread() of dataset d, which is compared with the inventory of its file first (h5/inventory.h). SPX_EINPUT: it
 * differs, or cannot be read. Every read of an input goes through here. */
spx_status spx_h5_get(hid_t d, hid_t memtype, hid_t memspace, hid_t filespace, void *out, spx_err *e);
/* Reads a 1-D dataset of fixed strings as n blocks of `size` characters, NUL-padded (longer text is refused), such as
 * header cards with size 80. */
spx_status spx_h5_read_strings(hid_t loc, const char *path, size_t size, size_t *n, char **out, spx_err *e);
/* The same as n blocks of *width characters, the length that they have in the file; above `most` they are refused. */
spx_status spx_h5_read_lines(hid_t loc, const char *path, size_t most, size_t *width, size_t *n, char **out,
                             spx_err *e);

#endif
