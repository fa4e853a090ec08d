/* Provides one spectrum of a product as text: of arms of /spectra, of /frame, or the models of /rvfit. */
#ifndef SPX_SPECTRUM_TEXT_H
#define SPX_SPECTRUM_TEXT_H

#include <stdio.h>

#include "h5/file.h"
#include "h5/textcolumn.h"

/* Row of the spectrum whose target is written as text. SPX_EUSAGE: no whole number; SPX_EINPUT: none, or several, have
 * it. */
spx_status spx_spectrum_of_target(const spx_input *in, const char *targetid, long *row, spx_err *e);
/* Prints the spectrum in row `row`: arm (of several), wavelength, and what there is of flux, ivar, mask and model. Arms
 * that lack one of these have NaN, or 0, there. */
spx_status spx_spectrum_print(spx_input *in, long row, const spx_textformat *format, FILE *out, spx_err *e);

#endif
