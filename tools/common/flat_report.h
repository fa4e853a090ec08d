/* Tells the user and the provenance of a flat field. */
#ifndef SPX_TOOLS_FLAT_REPORT_H
#define SPX_TOOLS_FLAT_REPORT_H

#include "app/main.h"
#include "common/flat_inputs.h"
#include "flat/flat.h"

/* Chi2, passes, rejected bins, fibres that are flagged, and what looks wrong; counts into the record. */
spx_status spx_flat_report(spx_run *s, const spx_flat *flat, const spx_flat_frames *f, const spx_flat_counts *c,
                           spx_err *e);

#endif
