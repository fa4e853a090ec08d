/* Finds the parameters of a PSF by name, and refuses a PSF that no kernel can use. */
#ifndef SPX_PSF_INDEX_H
#define SPX_PSF_INDEX_H

#include "base/err.h"
#include "products/psf.h"

/* Sets the rows of the parameters: sigx, sigy, gh, tilt, and those of other types. SPX_EINPUT when one is absent that
 * the type needs. */
spx_status spx_psf_index(spx_psf *psf, spx_err *e);

/* Of a PSF that was read: fibres whose spots have no width or no light, as those of a bundle that a fit has lost, get
 * SPX_PSF_BUNDLE and an empty valid_range, so that nothing is extracted there. SPX_EINPUT: all fibres are lost. */
spx_status spx_psf_mark_lost(spx_psf *psf, spx_err *e) SPX_NODISCARD;

#endif
