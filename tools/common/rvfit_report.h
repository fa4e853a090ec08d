/* Tells the user and the provenance of a velocity fit: stars, failures, setups. */
#ifndef SPX_TOOLS_RVFIT_REPORT_H
#define SPX_TOOLS_RVFIT_REPORT_H

#include "common/rvfit_stars.h"

/* Of the results of all stars; setup[SPX_MAX_ARM] as they were fitted. SPX_ENO when no star was fitted. */
spx_status spx_rvfit_report(spx_run *s, const spx_rvfit_stars *stars, const spx_spectra_parts *p,
                            const spx_setup *const *setup, const spx_rvfit *all, spx_err *e);

#endif
