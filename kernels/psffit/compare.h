/* Provides differences of the spots of two PSFs, and what two fits have in common beside a third one. */
#ifndef SPX_PSFFIT_COMPARE_H
#define SPX_PSFFIT_COMPARE_H

#include "base/err.h"
#include "products/psf.h"
#include "products/psffit.h"

/* Doubles that spx_psf_spot_difference() needs. */
size_t spx_psf_spot_difference_room(const spx_psf *of, const spx_psf *other);

/* Spot of `other` minus that of `of`, which may be of any type, at (fibre, wave), after the change of place and flux
 * that brings them closest, and the latter: out[2][npix], by its peak, pixels of its window; both have the same half
 * sizes. change[2], or NULL: that of place, x and y. 0: there is none. */
int spx_psf_spot_difference(const spx_psf *of, const spx_psf *other, size_t fibre, double wave, double *room,
                            double *out, double *change);

typedef struct {
    double common; /* root of the mean product of the differences in the cores of spots, by their peak; 0: below 0 */
    double alike;  /* their correlation */
} spx_psffit_agreement;

/* Differences of a and b, fits of a bundle to exposures of their own, from the spots of p, at wavelengths between the
 * lines of fit, that of p. Noise of a and b has no product in the mean: what is left is the error of p that a and b
 * have not. SPX_EIO: memory. */
spx_status spx_psffit_agree(const spx_psf *p, const spx_psf *a, const spx_psf *b, const spx_psffit *fit, size_t bundle,
                            spx_psffit_agreement *out, spx_err *e) SPX_NODISCARD;

#endif
