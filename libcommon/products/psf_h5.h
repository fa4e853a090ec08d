/* Reads and writes /psf: contract of all readers and writers in products/README. */
#ifndef SPX_PSF_H5_H
#define SPX_PSF_H5_H

#include <hdf5.h>

#include "products/psf.h"

/* Reads or writes /psf; reading calls spx_psf_index(). */
spx_status spx_psf_read(hid_t file, spx_psf *psf, spx_err *e);
spx_status spx_psf_write(hid_t file, const spx_psf *psf, spx_err *e);

#endif
