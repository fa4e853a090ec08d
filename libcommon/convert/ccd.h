/* Writes DESI's inputs of an extraction, pre-processed CCD images and PSFs, as FITS files. */
#ifndef SPX_FITS_CCD_H
#define SPX_FITS_CCD_H

#include "convert/note_list.h"
#include "fits/write.h"
#include "products/image.h"
#include "products/psf.h"

/* Writes HDUs IMAGE, IVAR, MASK (int32), READNOISE and FIBERMAP, as desispec's preproc files. */
spx_status spx_image_write_fits(spx_fits_out *o, const spx_image *im, spx_err *e);
/* Writes HDUs XTRACE, YTRACE and PSF, PSFTYPE GAUSS-HERMITE, PSFVER 3; of two cores, one table, PSFTYPE GAUSS-HERMITE2,
 * PSFVER 2; grids of spots as specter's, PSFTYPE SPOTGRID (convert/psf_kinds.h). SPX_EINPUT for what none can hold. */
spx_status spx_psf_write_fits(spx_fits_out *o, const spx_psf *psf, spx_err *e);
/* Reads a PSF directly from such a FITS file; indexed (spx_psf_index()). SPX_EINPUT: not FITS, or no PSF
 * of a known kind. A file that disagrees with its CHECKSUM or DATASUM is noted. */
spx_status spx_psf_read_fits(const char *path, spx_psf *psf, spx_note_list *notes, spx_err *e);

#endif
