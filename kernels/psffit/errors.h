/* Provides what errors of a fit of arcs have beside noise: what places are off by. */
#ifndef SPX_PSFFIT_ERRORS_H
#define SPX_PSFFIT_ERRORS_H

#include "products/psf.h"
#include "products/psffit.h"

/* Pixels that places are off by, beyond their noise, above which the fit of a fibre is bad. */
#define SPX_PSFFIT_OFF 0.05

/* Adds what places of a fibre are off by, off[2][nplace] pixels in x and y, to their errors where there are any, and to
 * the covariance of the coefficients of its trace, whose errors at these places grow by as much. */
void spx_psffit_add_misfit(const spx_psf *psf, spx_psffit *fit, size_t fibre, const double *off);

/* Errors of a fibre, medians of those of its places, of the traces of psf. */
void spx_psffit_sum_errors(const spx_psf *psf, spx_psffit *fit, size_t fibre);

#endif
