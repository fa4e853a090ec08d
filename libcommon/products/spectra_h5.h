/* Reads and writes /spectra: contract of all readers and writers in products/README. */
#ifndef SPX_SPECTRA_H5_H
#define SPX_SPECTRA_H5_H

#include <hdf5.h>

#include "products/spectra.h"

/* Reads /spectra, /fibermap, /scores, /exp_fibermap; or a /frame as spectra of one arm, named by its camera.
 * with_resolution 0: resolution matrices are not read. */
spx_status spx_spectra_read(hid_t file, int with_resolution, spx_spectra *s, spx_err *e);
/* The same; arms may have a grid for each spectrum (per_row), which spx_spectra_read() refuses. */
spx_status spx_spectra_read_grids(hid_t file, int with_resolution, spx_spectra *s, spx_err *e);
spx_status spx_spectra_write(hid_t file, const spx_spectra *s, int precision, spx_err *e);
/* As spx_spectra_read(), without flux, ivar, mask and resolution: arms have wavelengths, ndiag and unit; path: group of
 * each. rows 1: arms may have a grid for each spectrum (per_row); else SPX_EINPUT. */
enum { SPX_ARM_PATH = 32 };
spx_status spx_spectra_read_head(hid_t file, int rows, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e);

#endif
