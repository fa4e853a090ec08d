/* Fits the atmosphere of each exposure to its brightest stars, for rvs-fit --tellurics. */
#ifndef SPX_TOOLS_RVFIT_AIR_H
#define SPX_TOOLS_RVFIT_AIR_H

#include "app/main.h"
#include "common/rvfit_stars.h"
#include "products/transmission.h"
#include "rvfit/rvfit.h"

typedef struct {
    spx_transmission table;
    size_t n; /* exposures */
    spx_air *exposure;
    double *row; /* [stars.nrow][nspecies+1] as spx_rvfit_input.air */
} spx_rvfit_airs;

/* The table of --tellurics, checked against the arms that are fitted (setup[narm] is not NULL). SPX_EINPUT: it has
 * nothing of any of them. */
spx_status spx_rvfit_read_air(const char *name, spx_run *run, const spx_spectra_parts *p, const spx_setup *const *setup,
                              spx_rvfit_airs *a, spx_err *e);

/* Exposures are spectra of equal EXPID, else those of one file. Each is fitted with at most `most` of its chosen
 * spectra, the brightest. SPX_EINPUT: barycentric wavelengths without the velocity of the ground. */
spx_status spx_rvfit_fit_airs(spx_run *run, spx_spectra_parts *p, const spx_setup *const *setup,
                              const spx_rvfit_options *o, const spx_rvfit_stars *stars, size_t most, spx_rvfit_airs *a,
                              spx_err *e);

/* That of chosen row `first` and those behind it; NULL without --tellurics. */
const double *spx_rvfit_air_rows(const spx_rvfit_airs *a, size_t first);

/* With --tellurics (not NULL), the fit is one for the CPU: chooses that, and says so where another was asked for. */
void spx_rvfit_air_device(spx_run *run, const char *tellurics);

void spx_rvfit_airs_free(spx_rvfit_airs *a);

#endif
