/* Provides the barycentric correction of a frame's wavelengths, fibre by fibre. */
#ifndef SPX_FRAME_BARYCENTRE_H
#define SPX_FRAME_BARYCENTRE_H

#include <stddef.h>

#include "base/err.h"
#include "num/barycentre.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/spectra.h"

/* Where the targets of an exposure were. nowhere: fibres without a position, which (0, 0) and declinations out of
 * range stand for. below: part of the others whose target was below the horizon in the middle of the exposure;
 * altitude: of their mean direction, degrees; in_hours: what it would be with right ascensions in hours, NAN where
 * these are no hours. off: degrees from where the header says that the telescope pointed to the targets' median
 * direction, and off_hours, with right ascensions in hours; NAN: not known. flat: how far they scatter along right
 * ascension over that along declination, both in degrees on the sky, with eight right ascensions and eight
 * declinations or more; else NAN. astray:
 * fibres more than 10 degrees from the median direction; stray: the first. */
typedef struct {
    size_t nowhere, astray, stray;
    double below, altitude, in_hours, off, off_hours, flat;
} spx_directions;

/* Barycentric factors (spx_barycentric_factors()) for all fibres of a PSF, from TARGET_RA and TARGET_DEC of the image's
 * fibermap and the time in its header; factor[psf->nspec]. `site` NULL: from the header. Fibres without a row or a
 * position get the factor of the mean direction of the others. SPX_EINPUT: no fibermap, no position at all. */
spx_status spx_image_barycentric(const spx_image *im, const spx_psf *psf, const spx_site *site, double *factor,
                                 spx_directions *where, spx_err *e) SPX_NODISCARD;

/* Marks the frame's wavelengths as barycentric and adds column BARYCENTRIC_VELOCITY, c (factor - 1) in km/s, to its
 * fibermap. factor[psf->nspec], for all fibres of the PSF. */
spx_status spx_frame_set_barycentric(spx_frame *f, const double *factor, spx_err *e) SPX_NODISCARD;

#endif
