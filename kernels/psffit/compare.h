/* Provides differences of the spots of two PSFs, and what two kinds of fits differ by in both halves of the exposures.
 */
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
    double gain; /* mean square of what the first kind of fit is off by and the second is not, in the cores of spots, by
                  * their peak^2; may be negative */
    double noise[2];    /* variance of a fit of either kind to all exposures */
    double of_light[2]; /* the same by the light in a pixel, whose noise is that of its photons: times
                         * spx_psffit_bundle.of[1] chi squared */
} spx_psffit_agreement;

/* Of fits of two kinds to both halves of the exposures, fit[kind][half], what their differences have in common, at
 * wavelengths between the lines of `of`: noise of the halves has no product in the mean, what is left are errors of one
 * kind that the other one has not. p: a fit to all, beside whose spots they are compared. SPX_EIO: memory. */
spx_status spx_psffit_agree(const spx_psf *p, spx_psf *const fit[2][2], const spx_psffit *of, size_t bundle,
                            spx_psffit_agreement *out, spx_err *e) SPX_NODISCARD;

#endif
