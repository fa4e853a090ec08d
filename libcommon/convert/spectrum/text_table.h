/* Reads spectra from text with two or three columns. */
#ifndef SPX_SPECTRUM_TEXT_TABLE_H
#define SPX_SPECTRUM_TEXT_TABLE_H

#include "convert/spectrum/spectrum.h"

/* Spectrum of a text with two or three columns, separated by blanks or commas: wavelength in Angstrom, flux, error;
 * names in the first line say otherwise; # begins a comment. n 0: it is no such text. SPX_EINPUT names the line that is
 * damaged. */
spx_status spx_text_spectrum_find(const char *name, spx_fits_spectra *out, spx_err *e);

#endif
