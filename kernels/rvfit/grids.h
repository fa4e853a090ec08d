/* Fits stars whose spectra have wavelength grids of their own (per_row of products/spectra.h), grid by grid. */
#ifndef SPX_RVFIT_GRIDS_H
#define SPX_RVFIT_GRIDS_H

#include "rvfit/rvfit.h"

/* Fits a batch on one grid of each arm; makes its own plan. row[in->nrow]: its spectra are these of all. */
typedef spx_status (*spx_rvfit_call)(void *ctx, const spx_rvfit_input *in, const size_t *row,
                                     const spx_rvfit_options *o, spx_progress *p, spx_rvfit *out, spx_err *e);

/* Has an arm that is fitted a grid for each row? */
int spx_rvfit_has_grids(const spx_rvfit_input *in);

/* Stars whose spectra share their grids are one batch of `call`, in which arms end where all of its spectra have no
 * more information, and exposures of a star on different grids in one arm are in parts of that arm, a part a grid.
 * `in` has no row[] and plan; results are in the order of `in`, models on all bins, what the arm's parts have is added
 * up. together 1: batches of few stars may be fitted side by side, each by one thread. bins[in->spectra->narm]: with
 * templates of the stars (spx_rvfit_templates()), of arms with a grid for each row on its bins, of others on these;
 * NULL: without. SPX_EINPUT: arms of a star have more than SPX_MAX_ARM grids. */
spx_status spx_rvfit_grids(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_call call, void *ctx,
                           int together, const spx_arm *bins, spx_progress *p, spx_rvfit *out, spx_err *e);

#endif
