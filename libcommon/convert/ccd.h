/* DESI files of what stands before an extraction: pre-processed CCD images and their PSFs. */
#ifndef SPX_FITS_CCD_H
#define SPX_FITS_CCD_H

#include "fits/write.h"
#include "products/image.h"
#include "products/psf.h"

/* HDUs IMAGE, IVAR, MASK (int32), READNOISE and FIBERMAP, as desispec's preproc files. */
spx_status spx_image_write_fits(spx_fits_out *o, const spx_image *im, spx_err *e);
/* HDUs XTRACE, YTRACE and PSF, PSFTYPE GAUSS-HERMITE, PSFVER 3. */
spx_status spx_psf_write_fits(spx_fits_out *o, const spx_psf *psf, spx_err *e);
/* A PSF straight from such a file; indexed. SPX_EINPUT: it is no FITS file, or holds no Gauss-Hermite PSF. */
spx_status spx_psf_read_fits(const char *path, spx_psf *psf, spx_err *e);

#endif
