/* Provides the continuum of a spectrum for cross-correlation. Templates and data are treated alike, so that errors of
 * the continuum cancel. */
#ifndef SPX_CONTINUUM_H
#define SPX_CONTINUUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPX_CONTINUUM_NODES = 20, SPX_CONTINUUM_PIXELS = 3 };

/* Divides ln0 ... ln1 into bins of equal width in ln(wavelength), about 1000 km/s, at most SPX_CONTINUUM_NODES. Bin b
 * has pixels first[b] ... first[b+1]-1; pixels outside the range belong to the first or last one. Returns the number of
 * bins. */
int spx_continuum_bins(double ln0, double ln1, size_t n, const double *lnwave, double *width,
                       size_t first[SPX_CONTINUUM_NODES + 1]);

/* cont[n]: straight lines in ln(flux) against ln(wavelength) through the medians of the bins of
 * ln0 ... ln1 (the range of the setup); bins with fewer than SPX_CONTINUUM_PIXELS good pixels are left out. Nowhere
 * below 1/100 of the median of the good pixels' |flux|; 1 everywhere when no pixel is good or all are 0. lnwave[n]
 * increasing; flux[n] finite where good; bad[n] non-zero: pixel is not used, NULL: all are. SPX_EIO: memory. */
spx_status spx_continuum_find(double ln0, double ln1, size_t n, const double *lnwave, const double *flux,
                              const uint8_t *bad, double *cont, spx_err *e);

#endif
