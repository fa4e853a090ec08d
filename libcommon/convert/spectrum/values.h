/* Reads values and wavelengths of a spectrum. */
#ifndef SPX_SPECTRUM_VALUES_H
#define SPX_SPECTRUM_VALUES_H

#include "convert/spectrum/spectrum.h"

/* Cache of a whole HDU or column: its rows are read one after another. */
typedef struct {
    int hdu, column;
    size_t n, total; /* elements a row, and in all */
    double *v;
} spx_column_cache;

/* Reads n values at `at` as doubles, into new memory. */
spx_status spx_values_get(spx_fits *f, const spx_fits_values *at, size_t n, spx_column_cache *keep, double **out,
                          spx_err *e);

/* Reads wavelengths of a spectrum in Angstrom, not sorted, into new memory. */
spx_status spx_values_wavelengths(spx_fits *f, const spx_fits_spectrum *s, spx_column_cache *keep, double **out,
                                  spx_err *e);

/* Least and largest of the n wavelengths that are there; 0 where they cannot be (SPX_FITS_SHORTEST, SPX_FITS_LONGEST).
 */
int spx_values_possible(size_t n, const double *w, double *lo, double *hi);

#endif
