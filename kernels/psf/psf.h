/* What a PSF says about a whole detector. One spot: psf/psf_math.h. */
#ifndef SPX_KERNEL_PSF_H
#define SPX_KERNEL_PSF_H

#include <stddef.h>

#include "base/err.h"
#include "products/psf.h"

/* Wavelengths, Angstrom, that all series of a PSF were made for; they can be evaluated beyond. */
void spx_psf_range(const spx_psf *psf, double *lo, double *hi);

/* Longest run of multiples of `step` (Angstrom) at which the trace centres of all fibres lie on a CCD of nx columns and
 * ny rows: first and last wavelength in *wmin, *wmax. Only wavelengths inside the ranges that all series of the PSF
 * were made for count. The whole PSF decides, not the fibres that are wanted, so that the default grid of a camera
 * does not depend on which fibres are extracted. SPX_EINPUT when there is no such wavelength. */
spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e) SPX_NODISCARD;

/* The same PSF as a function of barycentric wavelengths: for fibre k, *to is at lambda what `from` is at
 * lambda / factor[k], with factor = barycentric over observed wavelength. Exact, as a Legendre series of a stretched
 * and shifted argument is one of the same degree; so every method and device extracts each fibre on a grid of its own.
 * The ranges (wmin, wmax) stay as they are. factor[from->nspec], finite, > 0. SPX_EIO: memory. *to: free with
 * spx_psf_free(). */
spx_status spx_psf_to_barycentre(const spx_psf *from, const double *factor, spx_psf *to, spx_err *e) SPX_NODISCARD;

#endif
