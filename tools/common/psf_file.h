/* Reads a PSF that an option names. */
#ifndef SPX_TOOLS_PSF_FILE_H
#define SPX_TOOLS_PSF_FILE_H

#include "app/main.h"
#include "products/psf.h"

/* A PSF from an HDF5 file with /psf, or from a DESI PSF file, which is recorded as an input. */
spx_status spx_psf_file_read(spx_run *s, const char *path, spx_psf *psf, spx_err *e);

#endif
