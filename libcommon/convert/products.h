/* Writes blocks as FITS files for users of desispec, rvspecfit and astropy. `in` is an open product; the header of the
 * first HDU gets a HISTORY card for every run in its provenance. SPX_EINPUT when the block is absent. */
#ifndef SPX_FITS_PRODUCTS_H
#define SPX_FITS_PRODUCTS_H

#include <hdf5.h>

#include "base/err.h"
#include "fits/write.h"

/* Card of a unit that is words (`relative flux`): BUNIT is for units. */
#define SPX_FITS_WORDS "FLUXUNIT"

/* DESI frame: FLUX, IVAR, MASK, WAVELENGTH, RESOLUTION, FIBERMAP, CHI2PIX, PIXMASK_FRACTION, SCORES (those that
 * exist). */
spx_status spx_fits_put_frame(hid_t in, spx_fits_out *o, spx_err *e);
/* The same layout: a frame that was flux-calibrated, one whose sky was subtracted; SPX_EINPUT: it is not. */
spx_status spx_fits_put_cframe(hid_t in, spx_fits_out *o, spx_err *e);
spx_status spx_fits_put_sframe(hid_t in, spx_fits_out *o, spx_err *e);
int spx_fits_is_cframe(hid_t in);
int spx_fits_is_sframe(hid_t in);
/* DESI sky model: SKY, IVAR, MASK, WAVELENGTH, FIBERMAP; from /sky. */
spx_status spx_fits_put_sky(hid_t in, spx_fits_out *o, spx_err *e);
/* DESI fibre flat: FIBERFLAT, IVAR, MASK, MEANSPEC (mean over lamps), WAVELENGTH, FIBERMAP; from /flat. */
spx_status spx_fits_put_fiberflat(hid_t in, spx_fits_out *o, spx_err *e);
/* DESI coadd: as spectra, a row a target, with COADD_FIBERSTATUS, COADD_NUMEXP and EXP_FIBERMAP. */
spx_status spx_fits_put_coadd(hid_t in, spx_fits_out *o, spx_err *e);
/* DESI spectra: FIBERMAP, EXP_FIBERMAP, {B,R,Z,...}_{WAVELENGTH,FLUX,IVAR,MASK,RESOLUTION}, SCORES. */
spx_status spx_fits_put_spectra(hid_t in, spx_fits_out *o, spx_err *e);
/* rvspecfit's table: RVTAB, FIBERMAP, SCORES, EXP_FIBERMAP. */
spx_status spx_fits_put_rvtab(hid_t in, spx_fits_out *o, spx_err *e);
/* rvspecfit's models: {B,R,Z,...}_WAVELENGTH, {B,R,Z,...}_MODEL, FIBERMAP. */
spx_status spx_fits_put_rvmod(hid_t in, spx_fits_out *o, spx_err *e);
/* DESI preproc image and PSF, through convert/ccd.h. */
spx_status spx_fits_put_image(hid_t in, spx_fits_out *o, spx_err *e);
spx_status spx_fits_put_psf(hid_t in, spx_fits_out *o, spx_err *e);

#endif
