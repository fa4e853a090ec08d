/* Provides the barycentric correction of a frame's wavelengths, fibre by fibre. */
#ifndef SPX_FRAME_BARYCENTRE_H
#define SPX_FRAME_BARYCENTRE_H

#include <stddef.h>

#include "base/err.h"
#include "num/barycentre.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/spectra.h"

/* Barycentric factors (spx_barycentric_factors()) for all fibres of a PSF, from TARGET_RA and TARGET_DEC of the image's
 * fibermap and the time in its header; factor[psf->nspec]. `site` NULL: from the header. Fibres without a row or a
 * finite position get the factor of the mean direction of the others; their number is in *nowhere. SPX_EINPUT: no
 * fibermap, or no position at all. */
spx_status spx_image_barycentric(const spx_image *im, const spx_psf *psf, const spx_site *site, double *factor,
                                 size_t *nowhere, spx_err *e) SPX_NODISCARD;

/* Marks the frame's wavelengths as barycentric and adds column BARYCENTRIC_VELOCITY, c (factor - 1) in km/s, to its
 * fibermap. factor[psf->nspec], for all fibres of the PSF. */
spx_status spx_frame_set_barycentric(spx_frame *f, const double *factor, spx_err *e) SPX_NODISCARD;

#endif
