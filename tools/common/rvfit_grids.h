/* Fits parts of a catalogue, also where spectra have wavelength grids of their own. */
#ifndef SPX_TOOLS_RVFIT_GRIDS_H
#define SPX_TOOLS_RVFIT_GRIDS_H

#include "backend.h"
#include "common/rvfit_options.h"
#include "run/catalogue_parts.h"

/* *grids 1: an arm that is fitted has a wavelength grid for each spectrum. SPX_EUSAGE: an option needs one for all. */
spx_status spx_rvfit_check_grids(const spx_rvfit_args *o, const spx_spectra_parts *p, const spx_setup *const *setup,
                                 int *grids, spx_err *e);

/* Fits a part of the stars with the plan of all parts, which is made with the first of them (*planned 1), or with a
 * plan for each of the grids. */
spx_status spx_rvfit_fit_part(spx_backend *b, int grids, spx_rvfit_input *in, const spx_rvfit_options *o,
                              spx_rvfit_plan **plan, int *planned, spx_progress *p, spx_rvfit *out, spx_err *e);

#endif
