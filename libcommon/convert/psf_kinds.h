/* Reads PSFs of other programs than DESI's from FITS files, as the block psf holds them. */
#ifndef SPX_FITS_PSF_KINDS_H
#define SPX_FITS_PSF_KINDS_H

#include "convert/note_list.h"
#include "fits/scan.h"
#include "products/psf.h"

/* Grid of over-sampled spots of specter (PSFTYPE SPOTGRID): HDUs XCOEFF, YCOEFF [nspec, n] with WAVEMIN and WAVEMAX,
 * SPOTS [npos, nwave, my, mx], FIBERPOS [nspec], SPOTPOS [npos], SPOTWAVE [nwave] (Angstrom); keywords of the first
 * header CCDPIXSZ and PIXSIZE, of which the ratio is a whole number. The middle of an array lies on the trace where
 * specter puts it: half a pixel beyond it, in x and y, where the array is an even number of pixels wide; noted. *psf is
 * not indexed; free with spx_psf_free(), also after an error. SPX_EINPUT: something is missing, or shapes disagree. */
spx_status spx_fits_read_spotgrid(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e) SPX_NODISCARD;

/* Sub-pixel of an array of n that specter places on the trace, along one axis. */
double spx_fits_specter_place(size_t n, int oversample);

#endif
