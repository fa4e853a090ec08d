/* Says how well a PSF was measured from arcs, and records it. */
#ifndef SPX_TOOLS_PSF_REPORT_H
#define SPX_TOOLS_PSF_REPORT_H

#include "app/main.h"
#include "products/psffit.h"
#include "psffit/tail_fit.h"

/* Messages and records of provenance. part: only some bundles were asked for; nan: pixels that are no numbers; t: the
 * tail, or NULL. */
spx_status spx_psf_report(spx_run *s, const spx_psffit *f, int part, size_t nan, const spx_psffit_tail *t,
                          spx_err *e) SPX_NODISCARD;

#endif
