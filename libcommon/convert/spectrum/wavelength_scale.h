/* Reads wavelength scales from headers: linear, logarithmic, by coefficients; and units of columns. */
#ifndef SPX_SPECTRUM_WAVELENGTH_SCALE_H
#define SPX_SPECTRUM_WAVELENGTH_SCALE_H

#include "convert/spectrum/spectrum.h"

/* Scale from CRVAL1, CDELT1 (or CD1_1), CRPIX1: linear, WAVE-LOG, or logarithms as in IRAF and SDSS. 0: none. */
int spx_wave_scale_header(const spx_cards *h, spx_fits_spectrum *s);

/* Scale from COEFF0 and COEFF1 of SDSS and LAMOST: log10 of the first wavelength, and its step. */
int spx_wave_scale_coefficients(const spx_cards *h, spx_fits_spectrum *s);

/* Wavelength column c of a table: unit, medium, logarithm; `name` is its index in spx_column_names[]. */
void spx_wave_scale_table(const spx_fits_hdu *h, int c, int name, spx_fits_spectrum *s);

#endif
