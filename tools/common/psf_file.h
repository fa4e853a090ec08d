/* Reads a PSF that an option names. */
#ifndef SPX_TOOLS_PSF_FILE_H
#define SPX_TOOLS_PSF_FILE_H

#include "app/main.h"
#include "products/psf.h"

/* A PSF from an HDF5 file with /psf, or from a DESI PSF file, which is recorded as an input. */
spx_status spx_psf_file_read(spx_run *s, const char *path, spx_psf *psf, spx_err *e);

/* One for the fit of PSFs to begin with: where its spots are of a kind that is not fitted, Gaussians as wide, and it
 * says so; ranges of traces of their own become one where they differ little (spx_psf_one_range()). as_it_is: its shape
 * is to stay, and no other kind will do. */
spx_status spx_psf_file_start(spx_run *s, const char *path, int as_it_is, spx_psf *psf, spx_err *e);

#endif
