/* Says how a frame was calibrated: on the terminal, and in the provenance. */
#ifndef SPX_TOOLS_FLUX_REPORT_H
#define SPX_TOOLS_FLUX_REPORT_H

#include "app/main.h"
#include "products/flux.h"

/* how: how the stars were chosen; NULL: the response was applied only, times `factor`. nbad: wavelengths that could not
 * be calibrated in some spectrum. */
spx_status spx_flux_report(spx_run *s, const char *label, const spx_flux *f, const char *how, double factor,
                           size_t nbad, spx_err *e);

#endif
