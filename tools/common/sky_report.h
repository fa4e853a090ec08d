/* Tells the user and the provenance of a sky subtraction: chi2 by class of bins, scatter of the fibres, rejections. */
#ifndef SPX_TOOLS_SKY_REPORT_H
#define SPX_TOOLS_SKY_REPORT_H

#include "app/main.h"
#include "products/sky.h"

/* Notes, each behind `label` (may be ""), and figures into the record of the product in work. flat: the frame has been
 * divided by a flat field. SPX_ENO when the sky is none: it has not converged, by far. */
spx_status spx_sky_report(spx_run *s, const char *label, const spx_sky *sky, int flat, spx_err *e);

#endif
