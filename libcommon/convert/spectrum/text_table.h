/* Reads spectra from text with two or three columns. */
#ifndef SPX_SPECTRUM_TEXT_TABLE_H
#define SPX_SPECTRUM_TEXT_TABLE_H

#include "convert/spectrum/spectrum.h"

/* Reads a spectrum from text with two or three columns, separated by blanks or commas: wavelength in Angstrom, flux,
 * error, or as names in the first line say; # begins a comment. n 0: no such text. SPX_EINPUT names the damaged
 * line. */
spx_status spx_text_spectrum_find(const char *name, spx_fits_spectra *out, spx_err *e);

#endif
