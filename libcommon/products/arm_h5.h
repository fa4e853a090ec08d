/* Reads and writes an arm, which frame and spectra share, and tables with a row a spectrum: contract of all readers and
 * writers in products/README. */
#ifndef SPX_ARM_H5_H
#define SPX_ARM_H5_H

#include <hdf5.h>

#include "h5/deferred.h"
#include "h5/table.h"
#include "products/spectra.h"

/* Reads an arm at group `path` without flux, ivar, mask and resolution (frame and spectra share the layout). nspec 0:
 * any, and gets the number found. rows 1: each spectrum may have a grid of its own, of which the first is read; 0: that
 * is refused, as by all that do not look at a->per_row. */
spx_status spx_arm_read_head(hid_t file, const char *path, int rows, size_t *nspec, spx_arm *a, spx_err *e);
/* *finite, unless NULL: 1, flux, ivar and resolution have been seen to be finite while they were read; 0, not known. */
spx_status spx_arm_read(hid_t file, const char *path, size_t *nspec, int with_resolution, spx_arm *a, int *finite,
                        spx_err *e);
/* Reads flux, ivar, mask and, on demand, resolution. */
spx_status spx_arm_read_values(hid_t file, const char *path, size_t nspec, int with_resolution, spx_arm *a, int *finite,
                               spx_err *e);
/* Large arrays go on the list `writes` (h5/deferred.h; NULL: none), and
 * then stay as they are until it is flushed. */
spx_status spx_arm_write(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision,
                         spx_h5_writes *writes, spx_err *e);

/* Creates an arm of nspec spectra, with the datasets of `a` that are not NULL, for spx_arm_write_rows(): spectra first
 * ... first+n-1 are those of `a`. precision: 4 or 8; values beyond float32's range become its largest. */
spx_status spx_arm_create(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision, spx_err *e);
spx_status spx_arm_write_rows(hid_t file, const char *path, size_t first, size_t n, const spx_arm *a, int precision,
                              spx_err *e);

/* Reads or writes fibermap or scores: a table of nspec rows, or NULL where there is none. */
spx_status spx_row_table_read(hid_t file, const char *path, size_t nspec, spx_table **t, spx_err *e);

#endif
