/* Finds spectra in images: rows of one, parallel HDUs, a wavelength scale in the header. */
#ifndef SPX_SPECTRUM_IMAGES_H
#define SPX_SPECTRUM_IMAGES_H

#include "convert/spectrum/columns.h"
#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/surveys.h"

/* 1 when the HDU is an image of floating-point numbers with ndim dimensions. */
int spx_image_is_float(const spx_fits_hdu *h, int ndim);

/* Finders of spectra: append to `out` the spectra found in a file of survey `fam` (NULL: unknown). */
spx_status spx_find_image_rows(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                               spx_fits_spectra *out, spx_err *e);

/* Assigns roles to HDUs by their names. */
void spx_image_roles(const spx_fits *f, spx_column_roles *c);

spx_status spx_find_images(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e);

spx_status spx_find_apogee(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e);

/* 1 when the value of a card contains a text. */
int spx_card_has_text(const spx_cards *h, const char *key, const char *text);

/* Index of the band of errors among IRAF's bands; 0: none. */
size_t spx_band_of_errors(const spx_cards *h, size_t nband);

/* Finds one array with a wavelength scale, or its bands, in the first HDU that has one. */
spx_status spx_find_plain(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                          spx_err *e);

#endif
