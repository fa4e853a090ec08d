/* Recognises PSFs in FITS files, and makes the block psf of them: the part of blocks.h that has to do with PSFs. */
#ifndef SPX_FITS_PSF_FITS_H
#define SPX_FITS_PSF_FITS_H

#include <hdf5.h>

#include "convert/hdf5.h"
#include "convert/note_list.h"
#include "fits/scan.h"
#include "products/psf.h"

/* 1: a PSF that can be read; 0: of another kind, which `note` says; -1: no PSF. */
int spx_fits_psf_recognise(const spx_fits *f, char *note, size_t size);

/* Path of the dataset made of each HDU. */
void spx_fits_psf_plan(const spx_fits *f, spx_fits_path *view);

/* Writes the block psf; other: a second file that has a part of it (trace sets), or NULL. SPX_EINPUT: an HDU, column or
 * keyword is missing, or no kernel could use the PSF. */
spx_status spx_fits_psf_block(spx_fits *f, spx_fits *other, hid_t file, spx_note_list *notes, spx_err *e);

/* Value of a keyword of an HDU; SPX_EINPUT: it has none. */
spx_status spx_fits_need_key(const spx_fits *f, int hdu, const char *key, double *out, spx_err *e);

/* Reads the series of traces of image HDU `name`, with WAVEMIN and WAVEMAX of its header; *nspec: 0, or what it has to
 * be. */
spx_status spx_fits_trace_series(spx_fits *f, const char *name, spx_psf_series *s, size_t *nspec, spx_err *e);

#endif
