/* Provides what specx-psf says of arcs, flats and lists that do not suit, when the fit shows it. */
#ifndef SPX_PSF_SUSPECT_H
#define SPX_PSF_SUSPECT_H

#include "backend.h"
#include "psffit/psffit.h"
#include "psffit/tail_fit.h"

/* SPX_EINPUT where most traces of a flat have no lines in the arcs: they are not of one camera. arc: name of the first.
 */
spx_status spx_psf_check_fitted(const spx_psffit *fit, const char *flat, const char *arc, spx_err *e) SPX_NODISCARD;

/* Warns where all traces lie as far from the start along the rows as a list in air, taken for vacuum, puts them, or the
 * reverse. medium: SPX_VACUUM or SPX_AIR, that of the file of lines. */
void spx_psf_suspect_air(const spx_psf *start, const spx_psffit *fit, const char *lines, int medium);

/* Warns of arcs image[n] the cores of most of whose lines are saturated. */
void spx_psf_suspect_saturation(size_t n, const spx_image *image, char *const *name, const spx_psf *psf,
                                const spx_psffit *fit);

/* Where spots are not those of the fit: fits the bundle that shows it most with narrower functions and higher degrees
 * and, where some leave less than half of it, all bundles with those, which have *psf and *fit then if no bundle is
 * worse than that was; *ko gets them. Says so. SPX_EIO: memory. */
spx_status spx_psf_choose_degrees(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                  spx_psf *psf, spx_psffit *fit, spx_err *e) SPX_NODISCARD;

/* Where spots are not the usual ones: light of a wing may be that of the next fibre's core, or the reverse, and terms
 * of the shape along fibres trade the one for the other, as may those of a fibre through bad pixels. Fits such bundles
 * again with spots that are alike in all fibres, and, where these are less than twice as far from the light, adds the
 * distances of places to their errors; a fibre with one above SPX_PSFFIT_OFF is flagged BADFIT. Says so. SPX_EIO:
 * memory. */
spx_status spx_psf_doubt_places(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                                const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, spx_err *e) SPX_NODISCARD;

#endif
