/* Chooses the spectra that are fitted, tells which of them are exposures of one star, and reads where stars start. */
#ifndef SPX_TOOLS_RVFIT_STARS_H
#define SPX_TOOLS_RVFIT_STARS_H

#include "app/main.h"
#include "common/rvfit_options.h"
#include "run/catalogue_parts.h"
#include "run/redshifts.h"

/* Stars are exposures first[k] ... first[k+1]-1 of row[nrow], which are rows of the spectra; with joint 0 each row is a
 * star, and `first` is NULL. */
typedef struct {
    int joint;
    size_t nstar, nrow, *row, *first;
    spx_redshifts redshifts; /* of --zbest or the input, where they are asked for; else n is 0 */
} spx_rvfit_stars;

/* By --rows, --targetid and the other options of what to fit; setup[SPX_MAX_ARM]: NULL for arms that do not count.
 * SPX_ENO when none is left. To be freed also after an error. */
spx_status spx_rvfit_choose_stars(const spx_rvfit_args *o, spx_run *run, const spx_spectra_parts *p,
                                  const spx_setup *const *setup, spx_rvfit_stars *out, spx_err *e);

/* Row of the first spectrum of each star: [nstar], to be freed. NULL: no memory. */
size_t *spx_rvfit_star_rows(const spx_rvfit_stars *s, spx_err *e);

/* Starts of all stars from the former fit of --start: (*start)[nstar][nq], to be freed, NaN where that has none; NULL
 * where no arm has a setup. */
spx_status spx_rvfit_read_starts(const spx_rvfit_args *o, spx_run *run, const spx_spectra_parts *p,
                                 const spx_setup *const *setup, const spx_rvfit_stars *s, size_t nq, double **start,
                                 spx_err *e);

void spx_rvfit_stars_free(spx_rvfit_stars *s);

#endif
