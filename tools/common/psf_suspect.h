/* Provides what specx-psf says of arcs, flats and lists that do not suit, when the fit shows it. */
#ifndef SPX_PSF_SUSPECT_H
#define SPX_PSF_SUSPECT_H

#include "app/main.h"
#include "backend.h"
#include "psffit/psffit.h"
#include "psffit/tail_fit.h"
#include "spectral/lines.h"

/* SPX_EINPUT where most traces of a flat have no lines in the arcs: they are not of one camera. arc: name of the first.
 */
spx_status spx_psf_check_fitted(const spx_psffit *fit, const char *flat, const char *arc, spx_err *e) SPX_NODISCARD;

/* Warns where all traces lie as far from the start along the rows as a list in air, taken for vacuum, puts them, or the
 * reverse. medium: SPX_VACUUM or SPX_AIR, that of the file of lines. */
void spx_psf_suspect_air(const spx_psf *start, const spx_psffit *fit, const char *lines, int medium);

/* Warns of arcs image[n] the cores of most of whose lines are saturated. */
void spx_psf_suspect_saturation(size_t n, const spx_image *image, char *const *name, const spx_psf *psf,
                                const spx_psffit *fit);

/* Says, in the product too, what the medium of the list `lines` rests on, n lines, `given` by an option or not: arcs do
 * not tell, and 80 km/s are at stake. */
spx_status spx_psf_record_medium(spx_run *s, const char *lines, int medium, int given, size_t n,
                                 const spx_arc_line *line, spx_err *e);

/* Warns of light that repeats lines beyond spots (spx_psffit_find_ghost()). */
void spx_psf_suspect_ghost(spx_psf *psf, spx_psffit *fit);

/* spx_psffit_choose_degrees() and spx_psffit_doubt_places() (psffit/again.h) by a backend, and says what they find. */
spx_status spx_psf_choose_degrees(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                  spx_psf *psf, spx_psffit *fit, spx_err *e) SPX_NODISCARD;
spx_status spx_psf_doubt_places(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                                const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, spx_err *e) SPX_NODISCARD;

#endif
