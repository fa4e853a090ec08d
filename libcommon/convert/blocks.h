/* Recognises FITS files by their content, and writes blocks of products made from them. */
#ifndef SPX_FITS_BLOCKS_H
#define SPX_FITS_BLOCKS_H

#include <hdf5.h>

#include "base/err.h"
#include "convert/hdf5.h"
#include "convert/note_list.h"
#include "fits/scan.h"

typedef enum {
    SPX_FITS_AS_GENERIC, /* not recognised: HDUs only */
    SPX_FITS_AS_IMAGE,   /* DESI preproc: HDUs IMAGE, IVAR, MASK, (READNOISE), (FIBERMAP) */
    SPX_FITS_AS_PSF, /* DESI or BOSS PSF, PSFTYPE GAUSS-HERMITE, PSFVER 2 or 3, or GAUSS-HERMITE2: HDUs XTRACE, YTRACE,
                      * PSF; or PSFVER 2 with traces in rows X and Y of the table */
    SPX_FITS_AS_FRAME,      /* DESI frame, cframe, sframe: HDUs FLUX, IVAR, WAVELENGTH, ... */
    SPX_FITS_AS_SPECTRA,    /* DESI spectra, coadd: HDUs B_WAVELENGTH, B_FLUX, B_IVAR, ... */
    SPX_FITS_AS_RAW,        /* raw CCD exposure (convert/raw.h) */
    SPX_FITS_AS_SPECTRUM,   /* spectra of other surveys and instruments (convert/spectrum/spectrum.h) */
    SPX_FITS_AS_LIBRARY,    /* a whole library of model spectra */
    SPX_FITS_AS_MODEL,      /* one model spectrum of a library (PHOENIX) */
    SPX_FITS_AS_WAVELENGTH, /* wavelengths of model spectra */
    SPX_FITS_PRODUCTS
} spx_fits_product;

/* "generic", "image", "psf", "frame", "spectra", "raw", "spectrum", "library", "model", "wavelength". */
extern const char *const spx_fits_product_names[SPX_FITS_PRODUCTS + 1];

/* Recognises a file by HDU names, keywords, columns and shapes; never by file name. Raw exposures: convert/raw.h.
 * `note` gets a sentence when the file resembles a type that is not supported (another kind of PSF), else an empty
 * text. Libraries: convert/library.h; spectra of other instruments: convert/spectrum/spectrum.h. */
spx_fits_product spx_fits_recognise(const spx_fits *f, char *note, size_t size);

/* CAMERA of a header in lower case, without the quotes that some writers add; unchanged where it has none. */
void spx_fits_camera(const spx_cards *h, char camera[16]);

/* Path of the dataset made from each HDU, or an empty text. */
void spx_fits_plan(const spx_fits *f, spx_fits_product p, spx_fits_path *view);

/* Write the blocks (image ... spectra) into an HDF5 file. What a user should hear is added to `notes`.
 * Image pixels stay as they are, NaN included; in spectra and frames a flux, ivar or resolution that is not finite, and
 * a negative ivar, become 0 (and NODATA in the mask). SPX_EINPUT: an HDU is missing, shapes do not fit together,
 * wavelengths do not increase. */
spx_status spx_fits_blocks(spx_fits *f, spx_fits_product p, hid_t file, spx_note_list *notes, spx_err *e);

#endif
