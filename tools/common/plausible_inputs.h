/* Applies the rules of plausibility (products/plausible.h) to what a program reads and makes. */
#ifndef SPX_TOOLS_PLAUSIBLE_INPUTS_H
#define SPX_TOOLS_PLAUSIBLE_INPUTS_H

#include "app/main.h"
#include "extract/quality.h"
#include "products/frame_barycentre.h"
#include "products/image.h"
#include "products/library.h"
#include "products/plausible.h"
#include "products/psf.h"
#include "products/shift.h"
#include "products/sky.h"
#include "products/spectra.h"
#include "shift/line_places.h"
#include "sky/sky.h"

/* Do image and PSF belong together, and has the PSF traces? SPX_EINPUT where they cannot; rules in `allowed`, a sum of
 * 1 << rule, only warn, with `label` before the text. *odd: which traces cannot be right, [psf->nspec] SPX_ODD_...
 * (psf/psf.h), to be freed; NULL: none. */
spx_status spx_plausible_pair(const spx_image *image, const spx_psf *psf, unsigned allowed, const char *label,
                              uint32_t **odd, spx_err *e) SPX_NODISCARD;

/* Ranges of wavelengths as psf->valid_range has them, to be freed, in which traces in odd[] are used nowhere: they say
 * nothing of the others. */
spx_status spx_plausible_ranges(const spx_psf *psf, const uint32_t *odd, double **ranges, spx_err *e) SPX_NODISCARD;

/* Were the targets above the horizon? SPX_EINPUT where they cannot have been seen; `allowed`, `label` as above. */
spx_status spx_plausible_directions(const spx_directions *where, unsigned allowed, const char *label, spx_err *e);

/* Warns of bundles that share light. Returns the rule that is broken, 1 << rule, or 0. */
unsigned spx_plausible_bundles(const char *label, const spx_extract_border *border);

/* Says what is implausible of an extracted frame, in warnings, in the provenance, and in frame->implausible, and flags
 * the bins of fibres in odd[] (NULL: none). SPX_EINPUT where a rule that is not allowed refuses. */
spx_status spx_plausible_frame(spx_run *s, const char *label, spx_frame *frame, const spx_frame_quality *q,
                               const spx_extract_border *border, const uint32_t *odd, unsigned allowed, spx_err *e);

/* Says whether the bins of a frame whose sky was subtracted are too wide for its lines, in a warning, in the
 * provenance, and in frame->implausible. in: of the frame. */
spx_status spx_plausible_bins(spx_run *s, const char *label, spx_frame *frame, const spx_sky_input *in,
                              spx_err *e) SPX_NODISCARD;

/* chi squared of sky fibres without each, over that of the fit, above which they are of different light. */
#define SPX_SKY_CONTRADICT 3.0

/* The same of a variance that chi squared of its sky fibres contradicts. */
spx_status spx_plausible_sky(spx_run *s, const char *label, spx_frame *frame, const spx_sky *sky,
                             spx_err *e) SPX_NODISCARD;

/* Warns of an image whose variance is too large for what is left of it with traces that were moved. Returns the rule
 * that is broken, 1 << rule, or 0. */
unsigned spx_plausible_moved(const char *label, const spx_shift *shift);

/* Warns of lines that lie elsewhere than they should. unit: of the offset, "rows" or "bins"; wavelength: of the middle.
 * Returns the rule that is broken, 1 << rule, or 0. */
unsigned spx_plausible_lines(const char *label, const spx_line_places *places, const char *unit, double wavelength);

/* Warns where lines of a library of stars say that its wavelengths are in another medium. *broken: the rule, 1 << rule,
 * or 0. */
spx_status spx_plausible_library(const spx_input *in, const spx_library *lib, unsigned *broken,
                                 spx_err *e) SPX_NODISCARD;

/* Names the rules in `broken`, a sum of 1 << rule, as attribute `implausible` of a block of a product, and in the
 * provenance; none: nothing. */
spx_status spx_plausible_flag(spx_run *s, hid_t file, const char *block, unsigned broken, spx_err *e);

#endif
