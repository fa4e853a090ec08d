/* Finds orders of an echelle spectrograph whose wavelengths are formulas of the header. */
#ifndef SPX_SPECTRUM_ECHELLE_H
#define SPX_SPECTRUM_ECHELLE_H

#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/surveys.h"

/* Finds rows of an image whose wavelengths are formulas of the header: IRAF's multispec (bands: spectrum, ..., error),
 * HARPS. */
spx_status spx_find_formulas(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                             spx_fits_spectra *out, spx_err *e);

#endif
