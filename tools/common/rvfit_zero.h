/* Subtracts a table of zero points from fitted velocities. */
#ifndef SPX_TOOLS_RVFIT_ZERO_H
#define SPX_TOOLS_RVFIT_ZERO_H

#include "common/rvfit_stars.h"
#include "products/zeropoint.h"

/* Subtracts what --zero-points names from a fit with velocities of exposures. Each arm of each exposure gets the zero
 * point that suits it best (products/zeropoint.h), by the arm's name without number, and PETAL_LOC, FIBER and NIGHT of
 * its fibermap (NIGHT: or header). Warns where there is none. */
spx_status spx_rvfit_apply_zero(spx_run *run, const spx_zeropoints *z, const spx_spectra_parts *p, spx_rvfit *all,
                                spx_err *e);

#endif
