/* Reads values and wavelengths of a spectrum that was found. */
#ifndef SPX_SPECTRUM_VALUES_H
#define SPX_SPECTRUM_VALUES_H

#include "convert/spectrum/spectrum.h"

/* A whole HDU or column, kept until another one is wanted: rows of it come one after another. */
typedef struct {
    int hdu, column;
    size_t n, total; /* a row, all of them */
    double *v;
} spx_whole;

/* n values at `at` as doubles, into new memory. */
spx_status spx_values_get(spx_fits *f, const spx_fits_values *at, size_t n, spx_whole *keep, double **out, spx_err *e);

/* Wavelengths of a spectrum in Angstrom, as the file has them, into new memory. */
spx_status spx_values_wavelengths(spx_fits *f, const spx_fits_spectrum *s, spx_whole *keep, double **out, spx_err *e);

#endif
