/* Block `truth`: what a simulation put in. */
#ifndef SPX_TRUTH_H
#define SPX_TRUTH_H

#include <hdf5.h>
#include <stddef.h>

#include "base/err.h"

struct spx_table;

/* Plain view of arrays that others own. */
typedef struct {
    size_t nspec, nwave;
    const double *wavelength;      /* [nwave], Angstrom, vacuum */
    const double *flux;            /* [nspec][nwave], electron/Angstrom, with the sky */
    const double *sky;             /* [nwave], electron/Angstrom in every fibre; NULL: no sky */
    const struct spx_table *table; /* nspec rows: targets, stars' parameters and velocities */
} spx_truth;

/* Fluxes are stored as float32. */
spx_status spx_truth_write(hid_t file, const spx_truth *t, spx_err *e);

#endif
