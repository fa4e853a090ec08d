/* Fits parts of a catalogue, also where spectra have wavelength grids of their own. */
#ifndef SPX_TOOLS_RVFIT_GRIDS_H
#define SPX_TOOLS_RVFIT_GRIDS_H

#include "backend.h"
#include "common/rvfit_options.h"
#include "run/catalogue_parts.h"

/* Fits a part of the stars with the plan of all parts, which is made with the first of them (*planned 1), or with a
 * plan for each of the grids. bins[narm]: with templates of the stars, as spx_rvfit_grids() has them; NULL: without. */
spx_status spx_rvfit_fit_part(spx_backend *b, int grids, spx_rvfit_input *in, const spx_rvfit_options *o,
                              const spx_arm *bins, spx_rvfit_plan **plan, int *planned, spx_progress *p, spx_rvfit *out,
                              spx_err *e);

#endif
