/* Computes wavelengths of IRAF's multispec headers (Valdes 1993, ASP Conf. Ser. 52, 467). */
#ifndef SPX_SPECTRUM_IRAF_MULTISPEC_H
#define SPX_SPECTRUM_IRAF_MULTISPEC_H

#include "convert/spectrum/spectrum.h"

/* Wavelengths w[n] of order `order` (from 0) from an IRAF multispec header (WAT2_nnn). SPX_EINPUT: no such order, or an
 * unknown function. */
spx_status spx_fits_multispec(const spx_cards *h, size_t order, size_t n, double *w, spx_err *e);

#endif
